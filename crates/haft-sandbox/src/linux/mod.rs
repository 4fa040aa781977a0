//! The launcher: a small, single-threaded process that confines itself and then becomes the command's parent.
//!
//! haft's own binary is started again with [`MAGIC`] as its first argument, and [`crate::init`] then runs this module.
//! Two processes do the work: the *watcher* stays outside the sandbox and kills everything when the lifeline closes;
//! the *keeper* is the first process in the new pid namespace, confines itself, starts the command and reaps orphans.

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

/// Returns the effective uid of this process.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The hidden first argument that makes haft's binary run as a launcher.
pub(crate) const MAGIC: &str = "__haft-launcher-1";

/// Returns the path of haft's own binary. The path stays valid if the file is replaced after the start.
pub(crate) fn ourselves() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The named functions that a launcher can run instead of a program.
pub(crate) type WorkerTable<'a> = &'a [(&'a str, WorkerFn)];
