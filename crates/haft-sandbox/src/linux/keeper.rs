//! The keeper confines itself in a fixed order, then starts the command and reaps orphans.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use rustix::process::{DumpableBehavior, Pid, WaitStatus, set_dumpable_behavior};

use super::control::ControlSocket;
use super::namespaces::{self, LevelAttempt};
use super::rlimits::MemoryLimitScope;
use super::stage::{InStage, StageError};
use super::supervise::{self, ChildSignals, OnTerminate, WaitOutcome};
use super::{WorkerTable, capabilities, identity, landlock, mounts, rlimits, seccomp};
use crate::message::{CommandExit, LaunchProgram, LaunchReport, LaunchRequest, SandboxLayer, SandboxStatus};
use crate::plan::{SandboxPlan, UnixIdentity};

/// The exit code that asks the watcher to try the next weaker level. A command's own exit code is sent in a report, so
/// it cannot be mistaken for this code.
pub(super) const LEVEL_UNAVAILABLE: i32 = 99;

/// The settings of a call that the watcher passes to the keeper.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeeperSettings {
    pub(super) memory: MemoryLimitScope,
    pub(super) protection: NameProtection,
}

/// Selects whether protected files in writable directories stay protected when another program replaces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameProtection {
    /// If a process outside the sandbox replaces a file, the watcher covers the new file again.
    Renewed,
    /// The keeper covers a file only once, because the kernel cannot report that the file was replaced.
    Once,
}

/// Runs the keeper in its forked process. Never returns.
pub(super) fn main(
    attempt: LevelAttempt,
    ids: UnixIdentity,
    settings: KeeperSettings,
    control: &ControlSocket,
    order: &LaunchRequest,
    workers: WorkerTable<'_>,
) -> ! {
    let watcher = rustix::process::getppid();
    supervise::die_with_parent();
    if let Err(refusal) = namespaces::enter(attempt, &order.plan, ids) {
        control.report(&LaunchReport::Skipped { level: attempt.level(), reason: refusal.reason });
        exit(LEVEL_UNAVAILABLE)
    }
    let result = confine(attempt, settings, &order.plan).and_then(|confinement| {
        control.report(&LaunchReport::Ready(confinement));
        if !attempt.has_namespaces() && matches!(order.program, LaunchProgram::Command) {
            supervise::become_subreaper();
            supervise::outlive_parent();
        }
        run(&order.program, watcher, control, workers)
    });
    match result {
        Ok(ended) => control.report(&LaunchReport::Exited(ended)),
        Err(failure) => {
            control.report(&LaunchReport::Failed { stage: failure.stage.into(), reason: failure.reason });
        }
    }
    exit(0)
}

/// Applies all layers. The order is a safety property: each step gives up a right that the later steps no longer need.
fn confine(
    attempt: LevelAttempt,
    settings: KeeperSettings,
    plan: &SandboxPlan,
) -> Result<SandboxStatus, StageError> {
    let mut layers = vec![namespaces::layer(attempt, plan)];
    if attempt.has_namespaces() {
        mounts::build(plan)?;
        layers.push(SandboxLayer::active(
            "mounts",
            "the root is read-only, the writable directories are mounted, haft's own data is hidden",
        ));
    }
    env::set_current_dir(&plan.workspace)
        .stage("workspace", format!("entering {}", plan.workspace.display()))?;
    layers.push(rlimits::apply(attempt, settings.memory, &plan.limits)?);
    let rules = landlock::prepare(attempt, plan)?;
    if let (LevelAttempt::Namespaces | LevelAttempt::Landlock, Some(identity)) = (attempt, plan.identity) {
        identity::take(identity).stage("identity", "switching to the user that owns the workspace")?;
        // The kernel clears the parent-death signal when the ids change.
        supervise::die_with_parent();
    }
    capabilities::drop_all()?;
    // Deny tracing: the command has the same uid as the keeper. In a mode that allows ptrace, the command could
    // otherwise stop the keeper with ptrace.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .stage("keeper", "disabling tracing of this process")?;
    layers.push(SandboxLayer::active("capabilities", "all capabilities are dropped, and none can be gained"));
    rustix::thread::set_no_new_privs(true).stage("no-new-privs", "setting no_new_privs")?;
    layers.push(landlock::enforce(rules)?);
    layers.push(seccomp::enforce(attempt, plan)?);
    let mut weaker = attempt.missing_guarantees(plan);
    if attempt.has_namespaces() && settings.protection == NameProtection::Once && !plan.watched.is_empty() {
        weaker.push("protected files in writable directories lose their protection when another program replaces them".to_owned());
    }
    Ok(SandboxStatus { level: attempt.level(), weaker, layers })
}

fn run(
    program: &LaunchProgram,
    watcher: Option<Pid>,
    control: &ControlSocket,
    workers: WorkerTable<'_>,
) -> Result<CommandExit, StageError> {
    match program {
        LaunchProgram::Command => run_command(watcher, control),
        LaunchProgram::Worker(name) => run_worker(name, workers),
    }
}

fn run_command(watcher: Option<Pid>, control: &ControlSocket) -> Result<CommandExit, StageError> {
    let mut signals = ChildSignals::take_over().stage("start", "installing the SIGCHLD handler")?;
    let mut words = env::args_os().skip(2);
    let program =
        words.next().ok_or_else(|| StageError::new("start", "the launcher got no program to run"))?;
    let mut command = Command::new(&program);
    // The command gets a separate process group, so that SIGTERM reaches the whole group.
    command.args(words).process_group(0);
    let child = supervise::unblock_signals(&mut command)
        .spawn()
        .map_err(|error| StageError::new("start", start_reason(&error)))?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let child = child.ok_or_else(|| StageError::new("start", "the kernel returned an invalid process id"))?;
    match supervise::supervise(child, control, &mut signals, OnTerminate::TellTheGroup { watcher }, None)
        .stage("run", "waiting for the command")?
    {
        WaitOutcome::Exited(status) => Ok(exit_of(status)),
        // Kill the tree from here too, in case the watcher is dead. A watcher that is alive sees the closed lifeline
        // and kills the whole tree.
        WaitOutcome::LifelineClosed | WaitOutcome::Exposed(_) => {
            supervise::kill_descendants();
            Ok(CommandExit::Signal(libc::SIGKILL))
        }
    }
}

fn start_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::E2BIG) => "the command line is too long for the system".into(),
        _ => error.to_string(),
    }
}

fn exit_of(status: WaitStatus) -> CommandExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => CommandExit::Code(code),
        (None, Some(signal)) => CommandExit::Signal(signal),
        (None, None) => CommandExit::Code(-1),
    }
}

fn run_worker(name: &str, workers: WorkerTable<'_>) -> Result<CommandExit, StageError> {
    let (_, worker) = workers
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| StageError::new("start", format!("this launcher has no worker `{name}`")))?;
    let channel =
        io::stdout().as_fd().try_clone_to_owned().stage("start", "opening the channel of the worker")?;
    worker(UnixStream::from(channel));
    Ok(CommandExit::Code(0))
}

impl SandboxLayer {
    pub(super) fn active(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), active: true, detail: detail.into() }
    }

    pub(super) fn inactive(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), active: false, detail: detail.into() }
    }
}
