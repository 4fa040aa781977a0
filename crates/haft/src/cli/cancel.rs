//! Ways in which a person or a program says that the answer is no longer wanted.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::exit::Exit;

/// Waits until somebody interrupts, terminates, or stops reading our output.
pub(super) async fn cancelled() -> Exit {
    tokio::select! {
        () = arrives(SignalKind::interrupt()) => Exit::Cancelled,
        () = arrives(SignalKind::terminate()) => Exit::Terminated,
        () = arrives(SignalKind::hangup()) => Exit::Terminated,
        () = reader_gone() => Exit::ClosedPipe,
    }
}

async fn arrives(kind: SignalKind) {
    match signal(kind) {
        Ok(mut stream) => {
            stream.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// A pipe whose reading end is closed reports an error at once, long before anything is written to it.
async fn reader_gone() {
    let (tell, told) = oneshot::channel();
    let watch = move || {
        let stdout = io::stdout();
        let fd = stdout.as_fd();
        let mut fds = [PollFd::new(&fd, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
        if fds[0].revents().contains(PollFlags::ERR) {
            let _ = tell.send(());
        }
    };
    // A thread of its own, not one of the pool: it may wait as long as we live.
    let started = std::thread::Builder::new().name("stdout-watch".into()).spawn(watch);
    if started.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}
