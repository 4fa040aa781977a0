//! The watcher: tries the levels from the strongest down, and kills the process tree when the lifeline closes.

use std::process::exit;

use rustix::process::{Pid, WaitStatus};

use super::cgroup::Cgroup;
use super::control::ControlSocket;
use super::keeper::{self, LEVEL_UNAVAILABLE};
use super::namespaces::{self, LevelAttempt};
use super::rlimits::MemoryLimitScope;
use super::stage::{InStage, StageError};
use super::supervise::{self, ChildSignals, Fork, OnTerminate, WaitOutcome};
use super::{WorkerTable, descriptors, identity};
use crate::message::{LaunchReport, LaunchRequest};

/// The exit code of a launcher that failed. It reports the reason first, if it has the control socket.
const LAUNCHER_FAILED: i32 = 125;

/// Runs the launcher; never returns.
pub(crate) fn main(workers: WorkerTable<'_>) -> ! {
    let Ok((control, order)) = descriptors::close_inherited().and_then(|()| ControlSocket::take()) else {
        exit(LAUNCHER_FAILED)
    };
    if let Err(failure) = watch(&control, &order, workers) {
        control.report(&LaunchReport::Failed { stage: failure.stage.into(), reason: failure.reason });
        supervise::kill_descendants();
        exit(LAUNCHER_FAILED)
    }
    exit(0)
}

fn watch(control: &ControlSocket, order: &LaunchRequest, workers: WorkerTable<'_>) -> Result<(), StageError> {
    rustix::process::setsid().stage("session", "starting a new session")?;
    supervise::become_subreaper();
    let mut signals = ChildSignals::take_over().stage("session", "taking over SIGCHLD")?;
    let attempts = namespaces::attempts();
    // Without our own privileges we might be unable to leave and remove the control group.
    let privileged = attempts.first() == Some(&LevelAttempt::Namespaces);
    let cgroup = if privileged { Cgroup::enter(&order.plan.limits) } else { None };
    for attempt in attempts {
        match start(attempt, cgroup.as_ref(), control, order, workers)? {
            KeeperStart::Unavailable => {}
            KeeperStart::Running(keeper) => match wait_for_keeper(keeper, control, &mut signals)? {
                KeeperOutcome::LevelUnavailable => {}
                KeeperOutcome::Done => return Ok(()),
            },
        }
    }
    Err(StageError::new("level", "no level of the sandbox can be put up here"))
}

fn memory_of(cgroup: Option<&Cgroup>) -> MemoryLimitScope {
    cgroup.map_or(MemoryLimitScope::OfEachProcess, |_| MemoryLimitScope::OfTheCall)
}

enum KeeperStart {
    Running(Pid),
    Unavailable,
}

fn start(
    attempt: LevelAttempt,
    cgroup: Option<&Cgroup>,
    control: &ControlSocket,
    order: &LaunchRequest,
    workers: WorkerTable<'_>,
) -> Result<KeeperStart, StageError> {
    if let (LevelAttempt::UserNamespaces, Some(identity)) = (attempt, order.plan.identity) {
        // Switch before the fork: inside a user namespace the owner's ids could no longer be named.
        identity::take(identity).stage("identity", "becoming the owner of the workspace")?;
    }
    let ids = identity::own();
    match supervise::fork(attempt.clone_flags(&order.plan)) {
        Ok(Fork::Child) => keeper::main(attempt, ids, memory_of(cgroup), control, order, workers),
        Ok(Fork::Parent(keeper)) => Ok(KeeperStart::Running(keeper)),
        Err(error) if attempt.may_be_unavailable() => {
            let reason = format!("the kernel refuses new namespaces: {error}");
            control.report(&LaunchReport::Skipped { level: attempt.level(), reason });
            Ok(KeeperStart::Unavailable)
        }
        Err(error) => Err(StageError::new("fork", error)),
    }
}

enum KeeperOutcome {
    Done,
    LevelUnavailable,
}

/// Waits for the keeper. In every case it then kills the processes that are left of the call.
fn wait_for_keeper(
    keeper: Pid,
    control: &ControlSocket,
    signals: &mut ChildSignals,
) -> Result<KeeperOutcome, StageError> {
    let ended = supervise::supervise(keeper, control, signals, OnTerminate::PassOn)
        .stage("watch", "waiting for the keeper")?;
    supervise::kill_descendants();
    match ended {
        WaitOutcome::Exited(status) if is_unavailable(status) => Ok(KeeperOutcome::LevelUnavailable),
        WaitOutcome::Exited(_) | WaitOutcome::LifelineClosed => Ok(KeeperOutcome::Done),
    }
}

fn is_unavailable(status: WaitStatus) -> bool {
    status.exit_status() == Some(LEVEL_UNAVAILABLE)
}
