//! Standard input and output without other threads. tokio's own types read and write in a blocking thread: each message
//! would wake that thread and then the main thread, which takes longer than all other work on a call.
//!
//! To avoid blocking, a pipe is opened again, and a socket gets a flag with each operation. Both leave the mode of the
//! inherited stream unchanged, because other processes may use the same stream. Other kinds of streams use tokio's
//! types.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout};
use tokio::net::unix::pipe;

/// The first number for a copy of a file descriptor, so that it never takes the number of a standard stream.
const COPY_FD_MIN: i32 = 3;

/// The standard input of the process.
pub(super) enum InputStream {
    Pipe(pipe::Receiver),
    Socket(SocketStream),
    Other(Stdin),
}

/// The standard output of the process.
pub(super) enum OutputStream {
    Pipe(pipe::Sender),
    Socket(SocketStream),
    Other(Stdout),
}

impl InputStream {
    pub(super) fn open() -> Self {
        let stdin = io::stdin();
        let opened = match kind(stdin.as_fd()) {
            FileType::Fifo => pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").map(Self::Pipe),
            FileType::Socket => SocketStream::copy_of(stdin.as_fd()).map(Self::Socket),
            _ => return Self::Other(tokio::io::stdin()),
        };
        // A pipe of another user cannot be opened again.
        opened.unwrap_or_else(|_| Self::Other(tokio::io::stdin()))
    }
}

impl OutputStream {
    pub(super) fn open() -> Self {
        let stdout = io::stdout();
        let opened = match kind(stdout.as_fd()) {
            FileType::Fifo => pipe::OpenOptions::new().open_sender("/proc/self/fd/1").map(Self::Pipe),
            FileType::Socket => SocketStream::copy_of(stdout.as_fd()).map(Self::Socket),
            _ => return Self::Other(tokio::io::stdout()),
        };
        opened.unwrap_or_else(|_| Self::Other(tokio::io::stdout()))
    }
}

fn kind(stream: impl AsFd) -> FileType {
    fstat(stream).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

impl AsyncRead for InputStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buffer),
            Self::Socket(socket) => socket.poll_receive(cx, buffer),
            Self::Other(stdin) => Pin::new(stdin).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for OutputStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            Self::Socket(socket) => socket.poll_send(cx, bytes),
            Self::Other(stdout) => Pin::new(stdout).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(_) | Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Other(stdout) => Pin::new(stdout).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(_) | Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Other(stdout) => Pin::new(stdout).poll_shutdown(cx),
        }
    }
}

/// A socket as a standard stream, as Node.js gives it to its child processes.
pub(super) struct SocketStream(AsyncFd<OwnedFd>);

impl SocketStream {
    #[expect(deprecated, reason = "the replacement is unsafe, and an `OwnedFd` always meets its conditions")]
    fn copy_of(stream: impl AsFd) -> io::Result<Self> {
        AsyncFd::new(fcntl_dupfd_cloexec(stream, COPY_FD_MIN)?).map(Self)
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let space = buffer.initialize_unfilled();
            let received = ready.try_io(|socket| Ok(recv(socket.get_ref(), space, RecvFlags::DONTWAIT)?));
            if let Ok(received) = received {
                buffer.advance(received?.0);
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Without `NOSIGNAL`, a write to a client that is gone would kill the process with SIGPIPE.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(sent) = ready.try_io(|socket| Ok(send(socket.get_ref(), bytes, flags)?)) {
                return Poll::Ready(sent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn socket_stream_waits_without_changing_the_mode_of_the_socket() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = || SocketStream::copy_of(&ours).unwrap();
        let (mut input, mut output) = (InputStream::Socket(socket()), OutputStream::Socket(socket()));
        let mut buffer = [0; 16];
        let writer = async {
            tokio::task::yield_now().await;
            io::Write::write_all(&mut &theirs, b"hello").unwrap();
        };
        let (read, ()) = tokio::join!(input.read(&mut buffer), writer);
        assert_eq!(&buffer[..read.unwrap()], b"hello");
        // Send more bytes than the socket can buffer, so that the writer must wait for the reader.
        let text = vec![b'x'; 4 << 20];
        let bytes = text.len();
        let reader = tokio::task::spawn_blocking({
            let mut theirs = theirs.try_clone().unwrap();
            move || {
                let mut got = vec![0; bytes];
                io::Read::read_exact(&mut theirs, &mut got).map(|()| got)
            }
        });
        output.write_all(&text).await.unwrap();
        assert_eq!(reader.await.unwrap().unwrap(), text);
        let flags = rustix::fs::fcntl_getfl(&ours).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "another process may share the socket");
        drop(theirs);
        assert_eq!(input.read(&mut buffer).await.unwrap(), 0, "the stream reports the end of the input");
    }
}
