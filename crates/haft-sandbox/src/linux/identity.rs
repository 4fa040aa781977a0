//! Switches to the user who owns the workspace.

#![allow(unsafe_code, reason = "changing the ids of the whole process has no safe wrapper")]

use std::io;

use crate::plan::UnixIdentity;

/// Switches to the uid and gid of `identity`, and drops all other groups. This cannot be undone, because the saved ids
/// change too.
pub(super) fn take(identity: UnixIdentity) -> io::Result<()> {
    let UnixIdentity { uid, gid } = identity;
    check(rustix::process::geteuid().is_root(), "only root can switch to another user")?;
    // SAFETY: the three calls take integers and a null list of length zero.
    let taken = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
    };
    if taken { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the current ids of this process. Call this function before creating a user namespace: inside a user
/// namespace, the process has the overflow ids until its own ids are mapped.
pub(super) fn own() -> UnixIdentity {
    UnixIdentity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

fn check(holds: bool, otherwise: &'static str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, otherwise)) }
}
