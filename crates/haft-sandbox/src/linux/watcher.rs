//! The watcher tries the isolation levels from the strongest down, and kills the process tree when the lifeline closes.

use std::process::exit;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitStatus};

use super::cgroup::Cgroup;
use super::control::ControlSocket;
use super::keeper::{self, KeeperSettings, LEVEL_UNAVAILABLE, NameProtection};
use super::namespaces::{self, LevelAttempt};
use super::protected_names::NameWatch;
use super::rlimits::MemoryLimitScope;
use super::stage::{InStage, StageError};
use super::supervise::{self, ChildSignals, Fork, OnTerminate, WaitOutcome};
use super::{WorkerTable, descriptors, identity};
use crate::message::{LaunchProgram, LaunchReport, LaunchRequest};

/// The exit code of a launcher that failed. If the launcher has the control socket, it first reports the reason there.
const LAUNCHER_FAILED: i32 = 125;

/// Runs the launcher. Never returns.
pub(crate) fn main(workers: WorkerTable<'_>) -> ! {
    let Ok((control, order)) = descriptors::close_inherited().and_then(|()| ControlSocket::take()) else {
        exit(LAUNCHER_FAILED)
    };
    let watched = watch(&control, &order, workers);
    if let Err(failure) = watched {
        control.report(&LaunchReport::Failed { stage: failure.stage.into(), reason: failure.reason });
        supervise::kill_descendants();
        exit(LAUNCHER_FAILED)
    }
    exit(0)
}

fn watch(control: &ControlSocket, order: &LaunchRequest, workers: WorkerTable<'_>) -> Result<(), StageError> {
    rustix::process::setsid().stage("session", "starting a new session")?;
    supervise::become_subreaper();
    let mut signals = ChildSignals::take_over().stage("session", "installing the SIGCHLD handler")?;
    let attempts = namespaces::attempts(&order.plan);
    // Without haft's own privileges, the launcher may not be able to leave and remove a control group, so it creates
    // none.
    let privileged = attempts.first() == Some(&LevelAttempt::Namespaces);
    let cgroup = if privileged { Cgroup::enter(&order.plan.limits) } else { None };
    for attempt in attempts {
        let mut names = names(attempt, order);
        let calling = CallParts { control, order, workers, memory: memory_of(cgroup.as_ref()) };
        match start(attempt, &calling, &mut names)? {
            KeeperStart::Unavailable => {}
            KeeperStart::Running(keeper) => {
                match wait_for_keeper(keeper, control, &mut signals, names.watch.as_mut())? {
                    KeeperOutcome::LevelUnavailable => {}
                    KeeperOutcome::Done => return Ok(()),
                }
            }
        }
    }
    let reason = match order.plan.reason_for_mounts() {
        Some(need) => format!("haft cannot {need}, because this system refuses new namespaces"),
        None => "haft cannot set up any sandbox level on this system".to_owned(),
    };
    Err(StageError::new("level", reason))
}

/// Watches the files that mounts protect during a call, because another process may replace such a file.
struct WatchedNames {
    watch: Option<NameWatch>,
    protection: NameProtection,
}

/// Starts to watch protected files, if mounts protect them and the program is a command. If another process replaces
/// such a file, the kernel removes its mount, and the command could write to the new file until the watcher covers it
/// again. See `protected_names`.
fn names(attempt: LevelAttempt, order: &LaunchRequest) -> WatchedNames {
    let is_needed = attempt.has_namespaces() && matches!(order.program, LaunchProgram::Command);
    match if is_needed { NameWatch::begin(&order.plan) } else { Ok(None) } {
        Ok(watch) => WatchedNames { watch, protection: NameProtection::Renewed },
        Err(_) => WatchedNames { watch: None, protection: NameProtection::Once },
    }
}

/// The parts of a call that do not depend on the isolation level.
struct CallParts<'a> {
    control: &'a ControlSocket,
    order: &'a LaunchRequest,
    workers: WorkerTable<'a>,
    memory: MemoryLimitScope,
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
    calling: &CallParts<'_>,
    names: &mut WatchedNames,
) -> Result<KeeperStart, StageError> {
    let CallParts { control, order, workers, memory } = *calling;
    if let (LevelAttempt::UserNamespaces, Some(identity)) = (attempt, order.plan.identity) {
        // Switch before the fork, because a process inside a user namespace could no longer use the ids of the owner.
        identity::take(identity).stage("identity", "switching to the user that owns the workspace")?;
    }
    let ids = identity::own();
    // The keeper waits until the watcher has opened the keeper's namespaces, because the keeper later denies access to
    // the watcher.
    let (wait, go) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).stage("fork", "creating a pipe to the keeper process")?;
    match supervise::fork(attempt.clone_flags(&order.plan)) {
        Ok(Fork::Child) => {
            drop(go);
            let protection = match rustix::io::read(&wait, &mut [0]) {
                Ok(1) => NameProtection::Once,
                Ok(_) | Err(_) => names.protection,
            };
            keeper::main(attempt, ids, KeeperSettings { memory, protection }, control, order, workers)
        }
        Ok(Fork::Parent(keeper)) => {
            let unseen =
                names.watch.as_mut().is_some_and(|watch| watch.enter_later(attempt, keeper).is_err());
            if unseen {
                names.watch = None;
                let _ = rustix::io::write(&go, b"1");
            }
            Ok(KeeperStart::Running(keeper))
        }
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

/// Waits for the keeper, and then always kills the remaining processes of the call.
fn wait_for_keeper(
    keeper: Pid,
    control: &ControlSocket,
    signals: &mut ChildSignals,
    mut names: Option<&mut NameWatch>,
) -> Result<KeeperOutcome, StageError> {
    let ended = supervise::supervise(keeper, control, signals, OnTerminate::PassOn, names.as_deref_mut())
        .stage("watch", "waiting for the keeper process")?;
    supervise::kill_descendants();
    let exposed = match &ended {
        WaitOutcome::Exposed(path) => Some(path.clone()),
        WaitOutcome::Exited(_) | WaitOutcome::LifelineClosed => names.and_then(NameWatch::last_look),
    };
    if let Some(path) = exposed {
        control.report(&LaunchReport::Exposed { path });
    }
    match ended {
        WaitOutcome::Exited(status) if is_unavailable(status) => Ok(KeeperOutcome::LevelUnavailable),
        WaitOutcome::Exited(_) | WaitOutcome::LifelineClosed | WaitOutcome::Exposed(_) => {
            Ok(KeeperOutcome::Done)
        }
    }
}

fn is_unavailable(status: WaitStatus) -> bool {
    status.exit_status() == Some(LEVEL_UNAVAILABLE)
}
