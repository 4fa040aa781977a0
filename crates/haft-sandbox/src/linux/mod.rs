//! The launcher: a small, single-threaded process that confines itself and then becomes the command's parent.
//!
//! Our own binary is started again with [`MAGIC`] as its first argument; [`crate::init`] sends it here. Two processes
//! do the work: the *watcher* stays outside and kills everything when our lifeline closes; the *keeper* is the first
//! process of the new pid namespace, confines itself, starts the command and reaps orphans.

mod capabilities;
mod cgroup;
mod control;
mod descriptors;
mod grants;
mod identity;
mod keeper;
mod landlock;
mod lifeline;
mod loopback;
mod mounts;
mod namespaces;
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

/// The uid whose rights we have.
pub(crate) fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The hidden first argument.
pub(crate) const MAGIC: &str = "__haft-launcher-1";

/// Our own binary, also when its file has been replaced since we were started.
pub(crate) fn ourselves() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The named functions a launcher can run instead of a program.
pub(crate) type Workers<'a> = &'a [(&'a str, WorkerFn)];
