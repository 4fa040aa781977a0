//! Detects that a command is cancelled: by a signal, or because the reader of standard output is gone.

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

use super::exit::ExitReason;
use super::question;

/// Waits for an interrupt, a termination signal or a hangup, or until the reader of standard output is gone.
pub(super) async fn cancelled() -> ExitReason {
    CancelSignals::listen().first().await
}

/// Listens for signals from the time of its creation, so that a command can shut down cleanly at any point of its
/// setup.
#[derive(Debug)]
pub(super) struct SignalListener(oneshot::Receiver<SignalNotice>);

/// The exit code of the signal, and a channel to acknowledge that the command handles it.
type SignalNotice = (ExitReason, oneshot::Sender<()>);

/// The time in which the command must acknowledge a signal. A command that is blocked on a pipe without a writer cannot
/// do so.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(3);

impl SignalListener {
    /// Starts to listen. Exits the process if the command does not acknowledge the first signal in time, or if a second
    /// signal arrives. Confined processes end with this process.
    pub(super) fn begin() -> Self {
        Self::begin_with(CancelSignals::listen)
    }

    /// Starts to listen, but leaves SIGHUP to the caller: a server reads its configuration again on SIGHUP.
    #[cfg(feature = "serve")]
    pub(super) fn begin_without_hangup() -> Self {
        Self::begin_with(|| CancelSignals { hangup: None, ..CancelSignals::listen() })
    }

    fn begin_with(listen_to: fn() -> CancelSignals) -> Self {
        let (notice_sender, notice) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        // Use a separate thread, because the main thread may block on a pipe without a writer.
        let listen = move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
            runtime.block_on(async {
                let signals = listen_to();
                let _ = ready.send(());
                forward_signals(signals, notice_sender).await;
            });
        };
        if thread::Builder::new().name("signals".into()).spawn(listen).is_ok() {
            let _ = is_ready.recv();
        }
        Self(notice)
    }

    /// Waits for the first signal, acknowledges it and returns its exit code. A second call never returns.
    pub(super) async fn first_signal(&mut self) -> ExitReason {
        match (&mut self.0).await {
            Ok((exit, acknowledge)) => {
                let _ = acknowledge.send(());
                exit
            }
            Err(_) => std::future::pending().await,
        }
    }
}

async fn forward_signals(mut signals: CancelSignals, notice_sender: oneshot::Sender<SignalNotice>) {
    let exit = signals.first().await;
    let (acknowledge, acknowledged) = oneshot::channel();
    if notice_sender.send((exit, acknowledge)).is_ok()
        && timeout(ACKNOWLEDGE_TIMEOUT, acknowledged).await.is_err()
    {
        exit_immediately(exit);
    }
    exit_immediately(signals.next().await);
}

fn exit_immediately(exit: ExitReason) {
    question::restore_terminal();
    std::process::exit(exit.code().into());
}

/// The signals that cancel a command, received since the creation of this value.
#[derive(Debug)]
pub(super) struct CancelSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    reader_gone: oneshot::Receiver<()>,
}

impl CancelSignals {
    pub(super) fn listen() -> Self {
        let of = |kind| signal(kind).ok();
        Self {
            interrupt: of(SignalKind::interrupt()),
            terminate: of(SignalKind::terminate()),
            hangup: if ignores(SignalKind::hangup()) { None } else { of(SignalKind::hangup()) },
            reader_gone: watch_reader(),
        }
    }

    pub(super) async fn first(&mut self) -> ExitReason {
        let Self { interrupt, terminate, hangup, reader_gone } = self;
        tokio::select! {
            exit = next(interrupt, terminate, hangup) => exit,
            Ok(()) = reader_gone => ExitReason::ClosedPipe,
        }
    }

    /// Waits for another signal, sent by a user who does not want to wait for a clean shutdown.
    pub(super) async fn next(&mut self) -> ExitReason {
        next(&mut self.interrupt, &mut self.terminate, &mut self.hangup).await
    }
}

/// Returns true if the parent process made us ignore the signal, as `nohup` does.
fn ignores(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_signal_mask(&status, kind.as_raw_value())
}

/// Checks the `SigIgn` mask: a hexadecimal number with one bit per signal, in which the lowest bit is signal 1.
fn is_in_signal_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    u32::try_from(signal - 1).ok().and_then(|bit| mask.checked_shr(bit)).is_some_and(|mask| mask & 1 == 1)
}

async fn next(
    interrupt: &mut Option<Signal>,
    terminate: &mut Option<Signal>,
    hangup: &mut Option<Signal>,
) -> ExitReason {
    tokio::select! {
        () = arrives(interrupt) => ExitReason::Cancelled,
        () = arrives(terminate) => ExitReason::Terminated,
        () = arrives(hangup) => ExitReason::Terminated,
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

/// Sends a notification when the reader of standard output is gone. `poll` reports a pipe with a closed reading end at
/// once, before any write fails.
fn watch_reader() -> oneshot::Receiver<()> {
    let (notice_sender, notice) = oneshot::channel();
    let watch = move || {
        let stdout = io::stdout();
        let fd = stdout.as_fd();
        let mut fds = [PollFd::new(&fd, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
        if fds[0].revents().contains(PollFlags::ERR) {
            let _ = notice_sender.send(());
        }
    };
    // Use a separate thread instead of a pool thread, because it may block until the process ends.
    let _ = thread::Builder::new().name("stdout-watch".into()).spawn(watch);
    notice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_parsed_from_sigign_mask() {
        let check = |status: &str, signal: i32, expected: bool| {
            assert_eq!(is_in_signal_mask(status, signal), expected, "{status} {signal}");
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
