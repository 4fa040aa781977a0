//! The only way a process is started. There is no way back from these types to a plain command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::environment::environment;
use crate::error::SandboxError;
use crate::home::Home;
use crate::launcher::Launcher;
use crate::message::{Confinement, Exit, Order, Program, Report};
use crate::mode::SandboxMode;
use crate::passwd;
use crate::plan::{Identity, Plan};
use crate::policy::{Policy, PolicyError};

/// A command under the operator's policy.
pub fn sandboxed_command(program: impl Into<OsString>, policy: &Policy) -> SandboxedCommand {
    SandboxedCommand {
        words: vec![program.into()],
        policy: policy.clone(),
        launcher: None,
        stdin: StandardInput::Empty,
        output: OutputPipes::Merged,
    }
}

/// A command that is open but for the blocklist, haft's own data, the environment and the kill of its tree.
pub fn protected_command(
    program: impl Into<OsString>,
    workspace: &std::path::Path,
    home: &Home,
) -> Result<SandboxedCommand, PolicyError> {
    let policy = Policy::new(SandboxMode::Rwx, workspace, home, None)?;
    Ok(sandboxed_command(program, &policy))
}

/// What the command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandardInput {
    Empty,
    Piped,
}

/// How its output arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPipes {
    /// One pipe for both, so that order is kept; `stderr` of the child is `None`.
    Merged,
    Separate,
}

/// A command that will run confined.
#[derive(Debug, Clone)]
pub struct SandboxedCommand {
    words: Vec<OsString>,
    policy: Policy,
    launcher: Option<Launcher>,
    stdin: StandardInput,
    output: OutputPipes,
}

/// A command that runs confined. Dropping it, or dying, kills everything it started.
#[derive(Debug)]
pub struct SandboxedChild {
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    confinement: Confinement,
    lifeline: Lifeline,
}

impl SandboxedCommand {
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().into());
        self
    }

    pub fn args(mut self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().into()));
        self
    }

    pub fn stdin(mut self, stdin: StandardInput) -> Self {
        self.stdin = stdin;
        self
    }

    pub fn output(mut self, output: OutputPipes) -> Self {
        self.output = output;
        self
    }

    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Starts the command and returns once it is confined and about to run.
    pub async fn spawn(self) -> Result<SandboxedChild, SandboxError> {
        let plan = Plan::of(&self.policy)?;
        let launcher = self.launcher.map_or_else(Launcher::find, Ok)?;
        let pipes = Pipes::new(self.stdin, self.output).map_err(|error| SandboxError::launcher(&error))?;
        let mut command = launch(&launcher, &self.policy, &plan);
        command.args(&self.words).stdout(pipes.stdout_for_child).stderr(pipes.stderr_for_child);
        let order = Order { plan, program: Program::Command };
        let mut lifeline = Lifeline::start(command, &order, pipes.stdin_for_child)?;
        let confinement = lifeline.ready().await?;
        Ok(SandboxedChild { stdin: pipes.stdin, stdout: Some(pipes.stdout), stderr: pipes.stderr, confinement, lifeline })
    }
}

impl SandboxedChild {
    /// Which layers hold the command.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Waits until the command has ended and everything it started is gone.
    pub async fn wait(&mut self) -> Result<Exit, SandboxError> {
        self.lifeline.exited().await
    }

    /// Kills everything the command started and waits until it is gone.
    pub async fn kill(self) {
        self.lifeline.cut().await;
    }
}

/// The launcher's command line but for the program: our own binary, in an environment built from nothing.
pub(crate) fn launch(launcher: &Launcher, policy: &Policy, plan: &Plan) -> Command {
    let mut command = Command::new(launcher.path());
    command.arg(MAGIC).env_clear().envs(environment(std::env::vars_os(), &policy.environment));
    if let Some(Identity { uid, .. }) = plan.identity
        && let Some((name, home)) = passwd::entry(uid)
    {
        command.env("USER", name).env("HOME", home);
    }
    command
}

#[cfg(target_os = "linux")]
use crate::linux::MAGIC;
#[cfg(not(target_os = "linux"))]
const MAGIC: &str = "unsupported";

/// The launcher and our end of its control socket. Closing that end kills what the launcher started.
#[derive(Debug)]
pub(crate) struct Lifeline {
    launcher: Child,
    control: BufReader<UnixStream>,
    skipped: Vec<String>,
}

impl Lifeline {
    #[cfg(target_os = "linux")]
    pub(crate) fn start(mut command: Command, order: &Order, stdin: Option<OwnedFd>) -> Result<Self, SandboxError> {
        let failed = |error: io::Error| SandboxError::launcher(&error);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        let launcher = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().map_err(failed)?;
        crate::linux::send_order(&ours, order, stdin.as_ref().map(AsFd::as_fd)).map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let control = BufReader::new(UnixStream::from_std(ours).map_err(failed)?);
        Ok(Self { launcher, control, skipped: Vec::new() })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn start(_: Command, _: &Order, _: Option<OwnedFd>) -> Result<Self, SandboxError> {
        Err(SandboxError::Unsupported)
    }

    /// The layers in force, once the program is about to run.
    pub(crate) async fn ready(&mut self) -> Result<Confinement, SandboxError> {
        loop {
            match self.report().await? {
                Some(Report::Skipped { level, reason }) => self.skipped.push(format!("{}: {reason}", level.name())),
                Some(Report::Ready(mut confinement)) => {
                    confinement.weaker.extend(self.skipped.drain(..));
                    return Ok(confinement);
                }
                Some(Report::Failed { stage, reason }) => return Err(SandboxError::Layer { stage, reason }),
                Some(Report::Exited(_)) | None => {
                    return Err(SandboxError::Launcher { reason: "it ended without a word".into() });
                }
            }
        }
    }

    async fn exited(&mut self) -> Result<Exit, SandboxError> {
        let exit = loop {
            match self.report().await? {
                Some(Report::Exited(exit)) => break Ok(exit),
                Some(Report::Failed { reason, .. }) => break Err(SandboxError::Start { reason }),
                Some(Report::Skipped { .. } | Report::Ready(_)) => {}
                // The keeper was killed before it could speak, by the kernel's memory killer for example.
                None => break Ok(Exit::Signal(SIGKILL)),
            }
        };
        self.launcher.wait().await.map_err(|error| SandboxError::launcher(&error))?;
        exit
    }

    /// Lets go, and waits until all is gone.
    pub(crate) async fn cut(self) {
        let Self { mut launcher, control, .. } = self;
        drop(control);
        drop(launcher.wait().await);
    }

    async fn report(&mut self) -> Result<Option<Report>, SandboxError> {
        let mut line = String::new();
        match self.control.read_line(&mut line).await {
            Ok(0) => Ok(None),
            Ok(_) => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| SandboxError::Launcher { reason: format!("it said something odd: {error}") }),
            // A launcher that dies with our order unread resets the socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(SandboxError::launcher(&error)),
        }
    }
}

const SIGKILL: i32 = 9;

/// Our ends of the pipes, and those for the command.
struct Pipes {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
    stdin_for_child: Option<OwnedFd>,
    stdout_for_child: Stdio,
    stderr_for_child: Stdio,
}

impl Pipes {
    fn new(stdin: StandardInput, output: OutputPipes) -> io::Result<Self> {
        let (out_read, out_write) = io::pipe()?;
        let (stderr, stderr_for_child) = match output {
            OutputPipes::Merged => (None, OwnedFd::from(out_write.try_clone()?)),
            OutputPipes::Separate => {
                let (read, write) = io::pipe()?;
                (Some(pipe::Receiver::from_owned_fd(read.into())?), OwnedFd::from(write))
            }
        };
        let (stdin, stdin_for_child) = match stdin {
            StandardInput::Empty => (None, None),
            StandardInput::Piped => {
                let (read, write) = io::pipe()?;
                (Some(pipe::Sender::from_owned_fd(write.into())?), Some(OwnedFd::from(read)))
            }
        };
        Ok(Self {
            stdin,
            stdout: pipe::Receiver::from_owned_fd(out_read.into())?,
            stderr,
            stdin_for_child,
            stdout_for_child: Stdio::from(OwnedFd::from(out_write)),
            stderr_for_child: Stdio::from(stderr_for_child),
        })
    }
}
