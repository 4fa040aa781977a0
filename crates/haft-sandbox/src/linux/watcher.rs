//! The watcher: tries the levels from the strongest down, and kills the process tree when the lifeline closes.

use std::process::exit;

use rustix::process::{Pid, WaitStatus};

use super::cgroup::Cgroup;
use super::control::Control;
use super::keeper::{self, LEVEL_UNAVAILABLE};
use super::namespaces::{self, Attempt};
use super::rlimits::Memory;
use super::stage::{Failure, InStage};
use super::supervise::{self, ChildSignals, Ended, Fork, OnTerminate};
use super::{Workers, descriptors, identity};
use crate::message::{Order, Report};

/// The exit code of a launcher that failed. It reports the reason first, if it has the control socket.
const LAUNCHER_FAILED: i32 = 125;

/// Runs the launcher; never returns.
pub(crate) fn main(workers: Workers<'_>) -> ! {
    let Ok((control, order)) = descriptors::close_inherited().and_then(|()| Control::take()) else {
        exit(LAUNCHER_FAILED)
    };
    if let Err(failure) = watch(&control, &order, workers) {
        control.report(&Report::Failed { stage: failure.stage.into(), reason: failure.reason });
        supervise::kill_descendants();
        exit(LAUNCHER_FAILED)
    }
    exit(0)
}

fn watch(control: &Control, order: &Order, workers: Workers<'_>) -> Result<(), Failure> {
    rustix::process::setsid().stage("session", "starting a new session")?;
    supervise::become_subreaper();
    let mut signals = ChildSignals::take_over().stage("session", "taking over SIGCHLD")?;
    let attempts = namespaces::attempts();
    // Without our own privileges we might be unable to leave and remove the control group.
    let privileged = attempts.first() == Some(&Attempt::Namespaces);
    let cgroup = if privileged { Cgroup::enter(&order.plan.limits) } else { None };
    for attempt in attempts {
        match start(attempt, cgroup.as_ref(), control, order, workers)? {
            Started::Unavailable => {}
            Started::Running(keeper) => match attend(keeper, control, &mut signals)? {
                Attended::LevelUnavailable => {}
                Attended::Done => return Ok(()),
            },
        }
    }
    Err(Failure::new("level", "no level of the sandbox can be put up here"))
}

fn memory_of(cgroup: Option<&Cgroup>) -> Memory {
    cgroup.map_or(Memory::OfEachProcess, |_| Memory::OfTheCall)
}

enum Started {
    Running(Pid),
    Unavailable,
}

fn start(
    attempt: Attempt,
    cgroup: Option<&Cgroup>,
    control: &Control,
    order: &Order,
    workers: Workers<'_>,
) -> Result<Started, Failure> {
    if let (Attempt::UserNamespaces, Some(identity)) = (attempt, order.plan.identity) {
        // Switch before the fork: inside a user namespace the owner's ids could no longer be named.
        identity::take(identity).stage("identity", "becoming the owner of the workspace")?;
    }
    let ids = identity::own();
    match supervise::fork(attempt.clone_flags(&order.plan)) {
        Ok(Fork::Child) => keeper::main(attempt, ids, memory_of(cgroup), control, order, workers),
        Ok(Fork::Parent(keeper)) => Ok(Started::Running(keeper)),
        Err(error) if attempt.may_be_unavailable() => {
            let reason = format!("the kernel refuses new namespaces: {error}");
            control.report(&Report::Skipped { level: attempt.level(), reason });
            Ok(Started::Unavailable)
        }
        Err(error) => Err(Failure::new("fork", error)),
    }
}

enum Attended {
    Done,
    LevelUnavailable,
}

/// Waits for the keeper. In every case it then kills the processes that are left of the call.
fn attend(keeper: Pid, control: &Control, signals: &mut ChildSignals) -> Result<Attended, Failure> {
    let ended = supervise::supervise(keeper, control, signals, OnTerminate::PassOn)
        .stage("watch", "waiting for the keeper")?;
    supervise::kill_descendants();
    match ended {
        Ended::Exited(status) if is_unavailable(status) => Ok(Attended::LevelUnavailable),
        Ended::Exited(_) | Ended::LifelineClosed => Ok(Attended::Done),
    }
}

fn is_unavailable(status: WaitStatus) -> bool {
    status.exit_status() == Some(LEVEL_UNAVAILABLE)
}
