//! A command in a Seatbelt profile, and the process group that is killed with it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::MAGIC;
use crate::error::SandboxError;
use crate::launch::Launch;
use crate::message::{CommandExit, LaunchProgram, SandboxLayer, SandboxLevel, SandboxStatus};
use crate::plan::SandboxPlan;
use crate::seatbelt::{SeatbeltRules, seatbelt_profile};
use haft_core::settings::mode::SandboxMode;

/// The absolute path of `sandbox-exec`, because a program with this name in PATH could be any program.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The guarantees that macOS does not give.
const WEAKER: [&str; 3] = [
    "a process that leaves its process group can outlive the call",
    "the sandbox does not limit processes, memory and CPU time",
    "if haft itself is killed, the processes that it started keep running",
];

/// The running command. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Lifeline {
    child: Child,
    group: ProcessGroup,
}

impl Lifeline {
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self, SandboxError> {
        let profile = seatbelt_profile(&rules(launch.plan));
        let mut command = Command::new(SANDBOX_EXEC);
        command.arg("-p").arg(&profile.text);
        for (name, path) in &profile.parameters {
            command.arg("-D").arg(format!("{name}={}", path.display()));
        }
        command.arg("--").env_clear().envs(launch.environment()).current_dir(&launch.plan.workspace);
        match &launch.program {
            LaunchProgram::Command => command.args(launch.words),
            LaunchProgram::Worker(name) => command.arg(launch.launcher.path()).args([MAGIC, name]),
        };
        command.stdin(launch.stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(launch.stdout).stderr(launch.stderr).process_group(0);
        let child = command.spawn().map_err(|error| SandboxError::launcher(&error))?;
        let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        Ok(Self { child, group })
    }

    #[allow(clippy::unused_async, reason = "on the other systems, this function waits")]
    pub(crate) async fn ready(&mut self) -> Result<SandboxStatus, SandboxError> {
        let layer = SandboxLayer {
            name: "seatbelt".into(),
            active: true,
            detail: "denies every operation that no rule allows".into(),
        };
        let weaker = WEAKER.map(str::to_owned).to_vec();
        Ok(SandboxStatus { level: SandboxLevel::Seatbelt, layers: vec![layer], weaker })
    }

    pub(crate) async fn exited(&mut self) -> Result<CommandExit, SandboxError> {
        let status = self.child.wait().await.map_err(|error: io::Error| SandboxError::launcher(&error))?;
        self.group.kill();
        Ok(status
            .code()
            .map_or_else(|| CommandExit::Signal(status.signal().unwrap_or_default()), CommandExit::Code))
    }

    pub(crate) fn terminate(&self) {
        if let Some(group) = self.group.0 {
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    pub(crate) async fn cut(mut self) {
        self.group.kill();
        drop(self.child.wait().await);
    }
}

fn rules(plan: &SandboxPlan) -> SeatbeltRules {
    SeatbeltRules {
        writable: match plan.mode {
            SandboxMode::Workspace | SandboxMode::Network => Some(plan.writable.clone()),
            SandboxMode::Full => None,
        },
        frozen: [plan.frozen.clone(), plan.nested.clone()].concat(),
        hidden: hidden(plan),
        network: plan.network,
    }
}

/// Returns the hidden paths. In `full` mode the profile cannot grant access to one cache inside the hidden caches, so
/// the caches stay visible.
fn hidden(plan: &SandboxPlan) -> Vec<PathBuf> {
    let holds_own =
        |hidden: &PathBuf| plan.writable.iter().any(|root| root != hidden && root.starts_with(hidden));
    let is_open = |hidden: &PathBuf| plan.mode == SandboxMode::Full && holds_own(hidden);
    plan.hidden.iter().filter(|hidden| !is_open(hidden)).cloned().collect()
}

/// A process group that is killed once, when it is dropped at the latest.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
