//! The launcher's end of the control socket, and the request that haft's process sends to it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::message::{LaunchReport, LaunchRequest};

/// The only byte that may follow the request. It means: terminate the command.
pub(crate) const TERMINATE: u8 = b'T';

/// The maximum size of a request that a launcher accepts, in bytes.
const ORDER_BYTES_MAX: u64 = 1 << 20;

/// Sends the request and, if the program gets standard input, its descriptor.
pub(crate) fn send_order(
    socket: &UnixStream,
    order: &LaunchRequest,
    stdin: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    let fds: Vec<BorrowedFd<'_>> = stdin.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    (&mut &*socket).write_all(&line[sent..])
}

/// The launcher's end of the socket. haft passes it as standard input, because passing any other descriptor would need
/// code between `fork` and `exec`.
#[derive(Debug)]
pub(super) struct ControlSocket {
    socket: UnixStream,
}

impl ControlSocket {
    /// Takes the socket from standard input, and replaces standard input by the program's own input or by `/dev/null`.
    pub(super) fn take() -> io::Result<(Self, LaunchRequest)> {
        let socket = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?);
        let (first, stdin) = receive_first(&socket)?;
        let mut line = Vec::new();
        let mut rest = BufReader::new(first.as_slice().chain((&socket).take(ORDER_BYTES_MAX)));
        rest.read_until(b'\n', &mut line)?;
        let order = serde_json::from_slice(&line)?;
        rustix::stdio::dup2_stdin(stdin.map_or_else(nothing, Ok)?)?;
        Ok((Self { socket }, order))
    }

    /// Consumes the pending bytes, and returns true if one of these bytes is a request to terminate the command.
    pub(super) fn is_asked_to_terminate(&self) -> bool {
        let mut words = [0; 16];
        match rustix::net::recv(&self.socket, &mut words, RecvFlags::DONTWAIT) {
            Ok((_, read)) => words[..read].contains(&TERMINATE),
            Err(_) => false,
        }
    }

    /// Sends a report. Ignores a failure: it means that haft's process is gone, and the closed lifeline ends the
    /// launcher.
    pub(super) fn report(&self, report: &LaunchReport) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            drop((&self.socket).write_all(&line));
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn receive_first(socket: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; 16 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let stdin = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    bytes.truncate(received);
    Ok((bytes, stdin))
}

fn nothing() -> io::Result<OwnedFd> {
    Ok(OwnedFd::from(File::from(rustix::fs::open(
        "/dev/null",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)))
}
