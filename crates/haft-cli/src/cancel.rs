//! Ways in which a person or a program says that the answer is no longer wanted.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::exit::Exit;

/// Waits until somebody interrupts, terminates, or stops reading our output.
pub(super) async fn cancelled() -> Exit {
    Signals::listen().first().await
}

/// Listens from the moment it is made, so that whatever is done meanwhile can be ended in good order.
#[derive(Debug)]
pub(super) struct Listening(oneshot::Receiver<Heard>);

/// What was said, and where to say that somebody sees to it.
type Heard = (Exit, oneshot::Sender<()>);

/// How long a word may go unheard: a pipe that nobody writes to may be waited for.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

impl Listening {
    /// When nobody sees to what was said, or when it is said again, the program is ended wherever it is: what it started ends
    /// with it.
    pub(super) fn begin() -> Self {
        let (tell, told) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        // A thread of its own: the one that works may wait for a pipe that nobody writes to.
        let listen = move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let signals = Signals::listen();
                let _ = ready.send(());
                see_to(signals, tell).await;
            });
        };
        if thread::Builder::new().name("signals".into()).spawn(listen).is_ok() {
            let _ = is_ready.recv();
        }
        Self(told)
    }

    /// How it was said. Heard once; after that nothing more is.
    pub(super) async fn heard(&mut self) -> Exit {
        match (&mut self.0).await {
            Ok((exit, acknowledge)) => {
                let _ = acknowledge.send(());
                exit
            }
            Err(_) => std::future::pending().await,
        }
    }
}

async fn see_to(mut signals: Signals, tell: oneshot::Sender<Heard>) {
    let exit = signals.first().await;
    let (acknowledge, acknowledged) = oneshot::channel();
    if tell.send((exit, acknowledge)).is_ok() && timeout(HEARD_WITHIN, acknowledged).await.is_err() {
        end_at_once(exit);
    }
    end_at_once(signals.next().await);
}

fn end_at_once(exit: Exit) {
    std::process::exit(exit.code().into());
}

/// What is heard of them, from the moment it is made.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    reader_gone: oneshot::Receiver<()>,
}

impl Signals {
    pub(super) fn listen() -> Self {
        let of = |kind| signal(kind).ok();
        Self {
            interrupt: of(SignalKind::interrupt()),
            terminate: of(SignalKind::terminate()),
            hangup: if ignores(SignalKind::hangup()) { None } else { of(SignalKind::hangup()) },
            reader_gone: watch_reader(),
        }
    }

    pub(super) async fn first(&mut self) -> Exit {
        let Self { interrupt, terminate, hangup, reader_gone } = self;
        tokio::select! {
            exit = next(interrupt, terminate, hangup) => exit,
            Ok(()) = reader_gone => Exit::ClosedPipe,
        }
    }

    /// Once more, from somebody who does not want to wait for a good end.
    pub(super) async fn next(&mut self) -> Exit {
        next(&mut self.interrupt, &mut self.terminate, &mut self.hangup).await
    }
}

/// Whether whoever started us wants the signal to pass us by, as `nohup` does.
fn ignores(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_among(&status, kind.as_raw_value())
}

/// The mask of ignored signals is a hexadecimal number with a bit for each, from the lowest on.
fn is_among(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    u32::try_from(signal - 1).ok().and_then(|bit| mask.checked_shr(bit)).is_some_and(|mask| mask & 1 == 1)
}

async fn next(
    interrupt: &mut Option<Signal>,
    terminate: &mut Option<Signal>,
    hangup: &mut Option<Signal>,
) -> Exit {
    tokio::select! {
        () = arrives(interrupt) => Exit::Cancelled,
        () = arrives(terminate) => Exit::Terminated,
        () = arrives(hangup) => Exit::Terminated,
    }
}

async fn arrives(signal: &mut Option<Signal>) {
    match signal {
        Some(stream) => {
            stream.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// A pipe whose reading end is closed reports an error at once, long before anything is written to it.
fn watch_reader() -> oneshot::Receiver<()> {
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
    let _ = thread::Builder::new().name("stdout-watch".into()).spawn(watch);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_their_mask() {
        let check = |status: &str, signal: i32, expected: bool| {
            assert_eq!(is_among(status, signal), expected, "{status} {signal}");
        };
        let status = "Name:\thaft\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        check(status, 1, true);
        check(status, 2, false);
        check(status, 13, true);
        check(status, 0, false);
        check(status, 65, false);
        check("", 1, false);
        check("SigIgn:\tnone\n", 1, false);
    }
}
