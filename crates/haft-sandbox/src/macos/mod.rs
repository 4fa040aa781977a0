//! The sandbox on macOS, with the same guarantees as far as Apple's `sandbox-exec` supports them.
//!
//! On macOS there is no launcher process: the profile is applied to the command itself, and a worker is haft's own
//! binary, started again inside a profile.

mod lifeline;

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::exit;

pub(crate) use lifeline::Lifeline;

use crate::WorkerFn;

/// The hidden first argument of a worker. The second argument is the worker name.
pub(crate) const MAGIC: &str = "__haft-worker-1";

/// Runs a worker. Never returns.
pub(crate) fn main(workers: &[(&str, WorkerFn)]) -> ! {
    let wanted = env::args().nth(2).unwrap_or_default();
    let worker = workers.iter().find(|(name, _)| *name == wanted);
    let channel = io::stdout().as_fd().try_clone_to_owned();
    if let (Some((_, worker)), Ok(channel)) = (worker, channel) {
        worker(UnixStream::from(channel));
        exit(0)
    }
    exit(125)
}

/// Returns the path of haft's own binary.
pub(crate) fn ourselves() -> PathBuf {
    env::current_exe().unwrap_or_default()
}

/// Returns `None`: Landlock exists only on Linux.
pub(crate) fn landlock_version() -> Option<i32> {
    None
}

/// Returns the effective uid of this process.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
