//! The launcher process and the socket by which it lives and dies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::MAGIC;
use super::control::{TERMINATE, send_order};
use crate::error::SandboxError;
use crate::launch::Launch;
use crate::message::{Confinement, Exit, Order, Report};

/// The longest report that is read.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// What the kernel sends to a process it ends.
const SIGKILL: i32 = 9;

/// The launcher and our end of its control socket. Closing that end kills what the launcher started.
#[derive(Debug)]
pub(crate) struct Lifeline {
    launcher: Child,
    control: BufReader<UnixStream>,
    /// What was read of a report that is not whole yet: a wait that is dropped loses nothing.
    line: Vec<u8>,
    skipped: Vec<String>,
    exit: Option<Exit>,
}

impl Lifeline {
    /// Starts the launcher and tells it what to do.
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self, SandboxError> {
        let failed = |error: io::Error| SandboxError::launcher(&error);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let mut command = Command::new(launch.launcher.path());
        command.arg(MAGIC).args(launch.words).env_clear().envs(launch.environment());
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(launch.stdout).stderr(launch.stderr);
        let launcher = command.spawn().map_err(failed)?;
        let order = Order { plan: launch.plan.clone(), program: launch.program };
        send_order(&ours, &order, launch.stdin.as_ref().map(AsFd::as_fd)).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let control = BufReader::new(UnixStream::from_std(ours).map_err(failed)?);
        Ok(Self { launcher, control, line: Vec::new(), skipped: Vec::new(), exit: None })
    }

    /// The layers in force, once the program is about to run.
    pub(crate) async fn ready(&mut self) -> Result<Confinement, SandboxError> {
        loop {
            match self.report().await? {
                Some(Report::Skipped { level, reason }) => {
                    self.skipped.push(format!("{}: {reason}", level.name()));
                }
                Some(Report::Ready(mut confinement)) => {
                    confinement.weaker.append(&mut self.skipped);
                    return Ok(confinement);
                }
                Some(Report::Failed { stage, reason }) => return Err(SandboxError::Layer { stage, reason }),
                Some(Report::Exited(_)) | None => {
                    return Err(SandboxError::Launcher { reason: "it ended without a word".into() });
                }
            }
        }
    }

    /// How the program ended, once everything it started is gone.
    pub(crate) async fn exited(&mut self) -> Result<Exit, SandboxError> {
        while self.exit.is_none() {
            match self.report().await? {
                Some(Report::Exited(exit)) => self.exit = Some(exit),
                Some(Report::Failed { reason, .. }) => return Err(SandboxError::Start { reason }),
                Some(Report::Skipped { .. } | Report::Ready(_)) => {}
                // The keeper was killed before it could speak, by the kernel's memory killer for example.
                None => self.exit = Some(Exit::Signal(SIGKILL)),
            }
        }
        self.launcher.wait().await.map_err(|error| SandboxError::launcher(&error))?;
        Ok(self.exit.unwrap_or(Exit::Signal(SIGKILL)))
    }

    /// Has the command told to end. A launcher that takes no more words is about to end by itself.
    pub(crate) fn terminate(&self) {
        let _ = self.control.get_ref().try_write(&[TERMINATE]);
    }

    /// Lets go, and waits until all is gone.
    pub(crate) async fn cut(self) {
        let Self { mut launcher, control, .. } = self;
        drop(control);
        drop(launcher.wait().await);
    }

    async fn report(&mut self) -> Result<Option<Report>, SandboxError> {
        let room = REPORT_BYTES_MAX.saturating_sub(self.line.len() as u64);
        match (&mut self.control).take(room).read_until(b'\n', &mut self.line).await {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_slice(&std::mem::take(&mut self.line)).map(Some).map_err(|error| {
                SandboxError::Launcher { reason: format!("it said something odd: {error}") }
            }),
            // A launcher that dies with our order unread resets the socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(SandboxError::launcher(&error)),
        }
    }
}
