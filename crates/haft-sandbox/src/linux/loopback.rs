//! Brings up the loopback interface in a new network namespace.

#![allow(unsafe_code, reason = "the interface ioctl has no safe wrapper")]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The flags `IFF_UP | IFF_RUNNING`, in the integer type of the request's field.
const UP_AND_RUNNING: libc::c_short = 0x41;

/// Brings up `lo`, so that a server and its client inside one call can communicate. Nothing outside becomes reachable.
pub(super) fn bring_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is valid; the name fits and stays terminated.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = UP_AND_RUNNING;
    // SAFETY: the request outlives the call, which only reads it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
