//! The only way to start a process. No method converts these types back into a plain command.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use tokio::net::unix::pipe;

use crate::error::SandboxError;
use crate::launch::Launch;
use crate::launcher::Launcher;
use crate::message::{CommandExit, LaunchProgram, SandboxStatus};
use crate::pipes::Pipes;
use crate::plan::SandboxPlan;
use crate::policy::{PolicyError, SandboxPolicy};
use crate::system::Lifeline;
use haft_core::home::Home;
use haft_core::settings::mode::SandboxMode;

/// Builds a command that runs under the operator's policy.
pub fn sandboxed_command(program: impl Into<OsString>, policy: &SandboxPolicy) -> SandboxedCommand {
    SandboxedCommand {
        words: vec![program.into()],
        policy: policy.clone(),
        launcher: None,
        stdin: StandardInput::Empty,
        output: OutputPipes::Merged,
    }
}

/// Builds a command in `full` mode. Only the blocklist, the protection of haft's own data and the environment filter
/// restrict the command. When the command is killed, its whole process tree is killed.
pub fn protected_command(
    program: impl Into<OsString>,
    workspace: &Path,
    home: &Home,
) -> Result<SandboxedCommand, PolicyError> {
    let policy = SandboxPolicy::new(SandboxMode::Full, workspace, home, None)?;
    Ok(sandboxed_command(program, &policy))
}

/// The standard input of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandardInput {
    Empty,
    Piped,
}

/// The pipes for the command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPipes {
    /// One pipe for standard output and standard error, which preserves their order. The child's `stderr` is `None`.
    Merged,
    Separate,
}

/// A command that will run in the sandbox.
#[derive(Debug, Clone)]
pub struct SandboxedCommand {
    words: Vec<OsString>,
    policy: SandboxPolicy,
    launcher: Option<Launcher>,
    stdin: StandardInput,
    output: OutputPipes,
}

/// A running confined command. Dropping this value kills everything that the command started. On Linux, the death of
/// haft's process has the same effect.
#[derive(Debug)]
pub struct SandboxedChild {
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    confinement: SandboxStatus,
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

    /// Starts the command, and returns when the sandbox is active and the command is about to run.
    pub async fn spawn(self) -> Result<SandboxedChild, SandboxError> {
        let plan = SandboxPlan::of(&self.policy)?;
        let launcher = self.launcher.map_or_else(Launcher::find, Ok)?;
        let pipes = Pipes::new(self.stdin, self.output).map_err(|error| SandboxError::launcher(&error))?;
        let mut lifeline = Lifeline::start(Launch {
            launcher: &launcher,
            policy: &self.policy,
            plan: &plan,
            program: LaunchProgram::Command,
            words: &self.words,
            stdin: pipes.stdin_for_child,
            stdout: pipes.stdout_for_child,
            stderr: pipes.stderr_for_child,
        })?;
        let confinement = lifeline.ready().await?;
        Ok(SandboxedChild {
            stdin: pipes.stdin,
            stdout: Some(pipes.stdout),
            stderr: pipes.stderr,
            confinement,
            lifeline,
        })
    }
}

impl SandboxedChild {
    /// Returns the sandbox layers that confine the command.
    pub fn confinement(&self) -> &SandboxStatus {
        &self.confinement
    }

    /// Waits until the command and everything that it started have ended.
    pub async fn wait(&mut self) -> Result<CommandExit, SandboxError> {
        self.lifeline.exited().await
    }

    /// Sends SIGTERM to the process group of the command. The processes of the group may ignore the signal;
    /// [`kill`](Self::kill) ends them.
    pub fn terminate(&self) {
        self.lifeline.terminate();
    }

    /// Kills everything that the command started, and waits until it has ended.
    pub async fn kill(self) {
        self.lifeline.cut().await;
    }
}
