//! The launcher: a small, single-threaded process that confines itself and then becomes the command's parent.
//!
//! Our own binary starts again with [`MAGIC`] as its first argument, and [`crate::init`] sends it here. Two processes
//! do the work: the *watcher* stays outside and kills everything when our lifeline closes; the *keeper* is the first
//! process of the new pid namespace, confines itself, starts the command and reaps orphans.

mod capabilities;
mod cgroup;
mod control;
mod descriptors;
mod identity;
mod keeper;
mod landlock;
mod landlock_paths;
mod lifeline;
mod loopback;
mod mounts;
mod namespaces;
mod protected_names;
mod rlimits;
mod seccomp;
mod stage;
mod supervise;
mod watcher;

pub(crate) use landlock::version as landlock_version;
pub(crate) use lifeline::Lifeline;
pub(crate) use watcher::main;

use std::path::PathBuf;

use crate::WorkerFn;

/// Returns the effective uid of our process.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The hidden first argument that turns our binary into a launcher.
pub(crate) const MAGIC: &str = "__haft-launcher-1";

/// Returns the path of our own binary, which stays valid when its file is replaced after our start.
pub(crate) fn ourselves() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The named functions that a launcher can run instead of a program.
pub(crate) type WorkerTable<'a> = &'a [(&'a str, WorkerFn)];
