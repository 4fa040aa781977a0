//! Keeps the memory of haft away from core files and from other processes of the same user.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// Turns core files off, and makes the process undumpable: other processes of the same user can then neither trace it
/// nor read its memory and its environment, which contain API keys. Programs that haft starts are dumpable again,
/// because executing a program resets this.
pub(super) fn protect() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    refuse_inspection()
}

#[cfg(target_os = "linux")]
fn refuse_inspection() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(not(target_os = "linux"))]
fn refuse_inspection() -> io::Result<()> {
    Ok(())
}
