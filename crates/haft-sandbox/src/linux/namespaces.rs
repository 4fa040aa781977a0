//! The isolation levels, from the strongest down, and the guarantees that each of them cannot give.

use std::fs;
use std::io;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{CapabilitySet, capabilities};

use super::landlock;
use super::loopback;
use super::stage::{InStage, StageError};
use crate::git::REPOSITORIES_MAX;
use crate::message::{SandboxLayer, SandboxLevel};
use crate::plan::{SandboxPlan, UnixIdentity};
use crate::sockets::PlannedSockets;
use haft_core::settings::mode::SandboxMode;

/// An isolation level to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LevelAttempt {
    /// Namespaces that haft creates with its own privileges. Uids and gids keep their meaning inside them.
    Namespaces,
    UserNamespaces,
    /// No namespaces; only Landlock and seccomp.
    Landlock,
}

/// Returns the isolation levels to try on this machine, strongest first.
pub(super) fn attempts(plan: &SandboxPlan) -> Vec<LevelAttempt> {
    let privileged = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let first = if privileged { Some(LevelAttempt::Namespaces) } else { None };
    let last = if plan.needs_mounts() { None } else { Some(LevelAttempt::Landlock) };
    first.into_iter().chain([LevelAttempt::UserNamespaces]).chain(last).collect()
}

impl LevelAttempt {
    pub(super) fn level(self) -> SandboxLevel {
        match self {
            LevelAttempt::Namespaces => SandboxLevel::Namespaces,
            LevelAttempt::UserNamespaces => SandboxLevel::UserNamespaces,
            LevelAttempt::Landlock => SandboxLevel::Landlock,
        }
    }

    pub(super) fn has_namespaces(self) -> bool {
        match self {
            LevelAttempt::Namespaces | LevelAttempt::UserNamespaces => true,
            LevelAttempt::Landlock => false,
        }
    }

    /// Returns true if a failed fork means that this isolation level is not available on this machine.
    pub(super) fn may_be_unavailable(self) -> bool {
        self.has_namespaces()
    }

    pub(super) fn clone_flags(self, plan: &SandboxPlan) -> libc::c_int {
        let network = if plan.network { 0 } else { libc::CLONE_NEWNET };
        let common = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | network;
        match self {
            LevelAttempt::Namespaces => common,
            LevelAttempt::UserNamespaces => common | libc::CLONE_NEWUSER,
            LevelAttempt::Landlock => 0,
        }
    }

    /// Returns the guarantees that a user would expect but that this isolation level does not give.
    pub(super) fn missing_guarantees(self, plan: &SandboxPlan) -> Vec<String> {
        let mut weaker = Vec::new();
        if !bounds_processes(self) {
            weaker.push("the sandbox does not limit the number of processes".to_owned());
        }
        let limits_sockets = landlock::version().is_some_and(|version| version >= landlock::LIMITS_SOCKETS);
        if matches!(plan.unix_sockets, PlannedSockets::Named(_)) && !limits_sockets {
            weaker.push("commands can connect to unix sockets that other programs create later".to_owned());
        }
        if self.has_namespaces() {
            if plan.unprotected_repositories > 0 {
                let count = plan.unprotected_repositories;
                weaker.push(format!(
                    "commands can change the git hooks and configuration of {count} repositories below the root of the workspace; haft protects at most {REPOSITORIES_MAX} repositories, and none behind a link or below a name that is not UTF-8"
                ));
            }
            return weaker;
        }
        let always = [
            "commands can change the mode, owner, times and attributes of files outside the writable directories",
            "commands can list the names (not the contents) of files in protected directories",
            "commands cannot use files that are created later next to a protected path",
            "commands cannot write git hooks and configuration, but can rename their directory",
            "commands can change the git hooks and configuration of repositories below the root of the workspace, and haft does not report repositories that a call creates",
            "commands can see other processes, but cannot read or signal them",
            "commands cannot use System V shared memory, semaphores and message queues, but can list them",
            "commands cannot open devices other than null, zero, full and random, and can read but not write files in /dev/shm",
        ];
        weaker.extend(always.map(str::to_owned));
        if !plan.network {
            weaker.push("commands have no loopback network".to_owned());
        }
        weaker
    }
}

/// Returns true if the system limits the number of processes of the call: by the pid namespace, or by the process count
/// of a user namespace.
pub(super) fn bounds_processes(attempt: LevelAttempt) -> bool {
    match attempt {
        LevelAttempt::Namespaces => pid_max_is_per_namespace(),
        LevelAttempt::UserNamespaces => true,
        LevelAttempt::Landlock => false,
    }
}

/// Returns true on Linux 6.14 and later, where `kernel.pid_max` belongs to the pid namespace. On older kernels, writing
/// it would change the whole system.
pub(super) fn pid_max_is_per_namespace() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 14)
}

/// Makes the new namespaces usable. An error means that this isolation level is not available.
pub(super) fn enter(attempt: LevelAttempt, plan: &SandboxPlan, ids: UnixIdentity) -> Result<(), StageError> {
    if !attempt.has_namespaces() {
        return Ok(());
    }
    if attempt == LevelAttempt::UserNamespaces {
        map_ids(ids).stage("namespaces", "mapping the user and group ids into the user namespace")?;
    }
    // Mounts made from now on must not propagate back to the host.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).stage("namespaces", "making mounts private")?;
    super::mounts::can_show_processes().stage("namespaces", "mounting a fresh /proc")?;
    if !plan.network {
        loopback::bring_up().stage("namespaces", "bringing up loopback")?;
    }
    Ok(())
}

/// Maps the own uid and gid to themselves. No other user exists inside the namespace.
fn map_ids(ids: UnixIdentity) -> io::Result<()> {
    let UnixIdentity { uid, gid } = ids;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

/// Describes the namespace layer for the report.
pub(super) fn layer(attempt: LevelAttempt, plan: &SandboxPlan) -> SandboxLayer {
    if !attempt.has_namespaces() {
        return SandboxLayer::inactive(
            "namespaces",
            "the kernel or its security policy refuses new namespaces",
        );
    }
    let user = if attempt == LevelAttempt::UserNamespaces { "user, " } else { "" };
    let network = if plan.network { "" } else { ", network" };
    let identity = if plan.mode == SandboxMode::Full { " (full mode)" } else { "" };
    SandboxLayer::active("namespaces", format!("{user}mount, pid, ipc{network}{identity}"))
}
