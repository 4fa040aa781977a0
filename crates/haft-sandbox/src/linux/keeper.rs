//! The keeper: confines itself in a fixed order, then starts the command and reaps orphans.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use rustix::process::{DumpableBehavior, Pid, WaitStatus, set_dumpable_behavior};

use super::control::Control;
use super::namespaces::{self, Attempt};
use super::rlimits::Memory;
use super::stage::{Failure, InStage};
use super::supervise::{self, ChildSignals, Ended, OnTerminate};
use super::{Workers, capabilities, identity, landlock, mounts, rlimits, seccomp};
use crate::message::{Confinement, Exit, Layer, Order, Program, Report};
use crate::plan::{Identity, Plan};

/// The exit code that asks the watcher to try the next weaker level. A command's own exit code travels in a report and
/// cannot be mistaken for it.
pub(super) const LEVEL_UNAVAILABLE: i32 = 99;

/// Runs the keeper in its fork; never returns.
pub(super) fn main(
    attempt: Attempt,
    ids: Identity,
    memory: Memory,
    control: &Control,
    order: &Order,
    workers: Workers<'_>,
) -> ! {
    supervise::die_with_parent();
    if let Err(refusal) = namespaces::enter(attempt, &order.plan, ids) {
        control.report(&Report::Skipped { level: attempt.level(), reason: refusal.reason });
        exit(LEVEL_UNAVAILABLE)
    }
    let result = confine(attempt, memory, &order.plan).and_then(|confinement| {
        control.report(&Report::Ready(confinement));
        run(&order.program, control, workers)
    });
    match result {
        Ok(ended) => control.report(&Report::Exited(ended)),
        Err(failure) => {
            control.report(&Report::Failed { stage: failure.stage.into(), reason: failure.reason });
        }
    }
    exit(0)
}

/// Applies all layers. The order is a safety property: each step gives up a right that the later steps no longer need.
fn confine(attempt: Attempt, memory: Memory, plan: &Plan) -> Result<Confinement, Failure> {
    let mut layers = vec![namespaces::layer(attempt, plan)];
    if attempt.has_namespaces() {
        mounts::build(plan)?;
        layers.push(Layer::active(
            "mounts",
            "read-only root, writable directories bound, our own data covered",
        ));
    }
    env::set_current_dir(&plan.workspace)
        .stage("workspace", format!("entering {}", plan.workspace.display()))?;
    layers.push(rlimits::apply(attempt, memory, &plan.limits)?);
    let rules = landlock::prepare(attempt, plan)?;
    if let (Attempt::Namespaces | Attempt::Landlock, Some(identity)) = (attempt, plan.identity) {
        identity::take(identity).stage("identity", "becoming the owner of the workspace")?;
        // The kernel clears the parent-death signal when the ids change.
        supervise::die_with_parent();
    }
    capabilities::drop_all()?;
    // The command has our uid: without this it could stop us with ptrace in a mode that allows tracing.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).stage("keeper", "closing ourselves to tracing")?;
    layers.push(Layer::active("capabilities", "all dropped, none can be gained"));
    rustix::thread::set_no_new_privs(true).stage("no-new-privs", "setting it")?;
    layers.push(landlock::enforce(rules)?);
    layers.push(seccomp::enforce(attempt, plan)?);
    Ok(Confinement { level: attempt.level(), weaker: attempt.weaker_promises(plan), layers })
}

fn run(program: &Program, control: &Control, workers: Workers<'_>) -> Result<Exit, Failure> {
    match program {
        Program::Command => run_command(control),
        Program::Worker(name) => run_worker(name, workers),
    }
}

fn run_command(control: &Control) -> Result<Exit, Failure> {
    let mut signals = ChildSignals::take_over().stage("start", "taking over SIGCHLD")?;
    let mut words = env::args_os().skip(2);
    let program = words.next().ok_or_else(|| Failure::new("start", "no program was given"))?;
    let mut command = Command::new(&program);
    // A process group of its own, so that SIGTERM reaches all of it.
    command.args(words).process_group(0);
    let child = supervise::with_open_signals(&mut command)
        .spawn()
        .map_err(|error| Failure::new("start", start_reason(&error)))?;
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let child = child.ok_or_else(|| Failure::new("start", "the kernel gave no valid pid"))?;
    match supervise::supervise(child, control, &mut signals, OnTerminate::TellTheGroup)
        .stage("run", "waiting for the command")?
    {
        Ended::Exited(status) => Ok(exit_of(status)),
        // The watcher sees the closed lifeline too and kills the whole tree; we only have to exit.
        Ended::LifelineClosed => Ok(Exit::Signal(libc::SIGKILL)),
    }
}

fn start_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::E2BIG) => "the command line is too long for the system".into(),
        _ => error.to_string(),
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

fn run_worker(name: &str, workers: Workers<'_>) -> Result<Exit, Failure> {
    let (_, worker) = workers
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| Failure::new("start", format!("this launcher has no worker `{name}`")))?;
    let channel = io::stdout().as_fd().try_clone_to_owned().stage("start", "taking the worker's channel")?;
    worker(UnixStream::from(channel));
    Ok(Exit::Code(0))
}

impl Layer {
    pub(super) fn active(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), active: true, detail: detail.into() }
    }

    pub(super) fn inactive(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), active: false, detail: detail.into() }
    }
}
