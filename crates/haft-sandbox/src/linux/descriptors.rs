//! Closes inherited descriptors: a descriptor left open by an embedding program would bypass every path rule.

#![allow(unsafe_code, reason = "close_range has no safe wrapper")]

use std::io;

/// Closes every descriptor above standard error.
pub(super) fn close_inherited() -> io::Result<()> {
    // SAFETY: this is called first in a single-threaded process that owns no descriptor above standard error yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
