//! The launcher process, and the control socket that ties its lifetime to haft's process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::MAGIC;
use super::control::{TERMINATE, send_order};
use crate::error::SandboxError;
use crate::launch::Launch;
use crate::message::{CommandExit, LaunchReport, LaunchRequest, SandboxStatus};

/// The maximum size of a report, in bytes.
const REPORT_BYTES_MAX: u64 = 64 << 10;

/// The signal with which the kernel kills a process.
const SIGKILL: i32 = 9;

/// The launcher and haft's end of its control socket. Closing this end kills everything that the launcher started.
#[derive(Debug)]
pub(crate) struct Lifeline {
    launcher: Child,
    control: BufReader<UnixStream>,
    /// The bytes of an incomplete report. They stay here, so that no byte is lost if a caller drops the future that
    /// waits for the report.
    line: Vec<u8>,
    skipped: Vec<String>,
    exit: Option<CommandExit>,
    exposed: Option<PathBuf>,
}

impl Lifeline {
    /// Starts the launcher and sends it the request.
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self, SandboxError> {
        let failed = |error: io::Error| SandboxError::launcher(&error);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let mut command = Command::new(launch.launcher.path());
        command.arg(MAGIC).args(launch.words).env_clear().envs(launch.environment());
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(launch.stdout).stderr(launch.stderr);
        let launcher = command.spawn().map_err(failed)?;
        let order = LaunchRequest { plan: launch.plan.clone(), program: launch.program };
        send_order(&ours, &order, launch.stdin.as_ref().map(AsFd::as_fd)).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let control = BufReader::new(UnixStream::from_std(ours).map_err(failed)?);
        Ok(Self { launcher, control, line: Vec::new(), skipped: Vec::new(), exit: None, exposed: None })
    }

    /// Waits until the program is about to run, and returns the active layers.
    pub(crate) async fn ready(&mut self) -> Result<SandboxStatus, SandboxError> {
        loop {
            match self.report().await? {
                Some(LaunchReport::Skipped { level, reason }) => {
                    self.skipped.push(format!("{}: {reason}", level.name()));
                }
                Some(LaunchReport::Ready(mut confinement)) => {
                    confinement.weaker.append(&mut self.skipped);
                    return Ok(confinement);
                }
                Some(LaunchReport::Failed { stage, reason }) => {
                    return Err(SandboxError::Layer { stage, reason });
                }
                Some(LaunchReport::Exited(_) | LaunchReport::Exposed { .. }) | None => {
                    return Err(SandboxError::Launcher {
                        reason: "the launcher exited before it reported a result".into(),
                    });
                }
            }
        }
    }

    /// Waits until everything that the program started has ended, and returns the program's exit status.
    pub(crate) async fn exited(&mut self) -> Result<CommandExit, SandboxError> {
        loop {
            match self.report().await? {
                Some(LaunchReport::Exited(exit)) => self.exit = Some(exit),
                Some(LaunchReport::Failed { reason, .. }) => return Err(SandboxError::Start { reason }),
                Some(LaunchReport::Exposed { path }) => self.exposed = Some(path),
                Some(LaunchReport::Skipped { .. } | LaunchReport::Ready(_)) => {}
                // The watcher closes its end of the socket only after its last check, so no report about an exposed
                // file can follow.
                None => break,
            }
        }
        self.launcher.wait().await.map_err(|error| SandboxError::launcher(&error))?;
        match &self.exposed {
            Some(path) => Err(SandboxError::Exposed { path: path.clone() }),
            // The keeper sent no report, so it was killed, for example by the kernel's OOM killer.
            None => Ok(self.exit.unwrap_or(CommandExit::Signal(SIGKILL))),
        }
    }

    /// Asks the launcher to terminate the command. Ignores a failed write: a launcher that no longer reads is about to
    /// end.
    pub(crate) fn terminate(&self) {
        let _ = self.control.get_ref().try_write(&[TERMINATE]);
    }

    /// Closes the lifeline, and waits until the launcher and everything that it started have ended.
    pub(crate) async fn cut(self) {
        let Self { mut launcher, control, .. } = self;
        drop(control);
        drop(launcher.wait().await);
    }

    async fn report(&mut self) -> Result<Option<LaunchReport>, SandboxError> {
        let room = REPORT_BYTES_MAX.saturating_sub(self.line.len() as u64);
        match (&mut self.control).take(room).read_until(b'\n', &mut self.line).await {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_slice(&std::mem::take(&mut self.line)).map(Some).map_err(|error| {
                SandboxError::Launcher { reason: format!("the launcher sent an invalid message: {error}") }
            }),
            // If the launcher ends before it reads the request, the kernel resets the socket. Treat this like the end
            // of the reports.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(SandboxError::launcher(&error)),
        }
    }
}
