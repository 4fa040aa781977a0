//! Landlock: the second barrier behind the mounts, and the only one if there are no namespaces.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::landlock_paths::{around, entries};
use super::namespaces::LevelAttempt;
use super::stage::StageError;
use crate::message::SandboxLayer;
use crate::plan::SandboxPlan;
use crate::sockets::PlannedSockets;
use haft_core::settings::mode::SandboxMode;

const STAGE: &str = "landlock";

/// A Landlock rule set that is built but not yet enforced. Building the rule set opens the paths, while the process may
/// still access them.
pub(super) enum LandlockRules {
    Ready { rules: RulesetCreated, abi: i32 },
    NotUsed,
}

/// Returns the Landlock ABI version of the kernel, according to the system call.
pub(crate) fn version() -> Option<i32> {
    #![allow(unsafe_code, reason = "the system call for the version has no safe wrapper")]
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads neither pointer nor size.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// Builds the rules. In `full` mode with mounts, the mounts already enforce the blocklist, so no Landlock rules are
/// needed.
pub(super) fn prepare(attempt: LevelAttempt, plan: &SandboxPlan) -> Result<LandlockRules, StageError> {
    if plan.mode == SandboxMode::Full && attempt.has_namespaces() {
        return Ok(LandlockRules::NotUsed);
    }
    let Some(abi) = version() else {
        return Err(StageError::new(
            STAGE,
            "this kernel has no Landlock; it needs Linux 5.13 or later, with Landlock enabled at boot",
        ));
    };
    build(attempt, plan, ABI::from(abi))
        .map(|rules| LandlockRules::Ready { rules, abi })
        .map_err(|error| StageError::new(STAGE, error))
}

/// Enforces the rules for this process and its descendants.
pub(super) fn enforce(rules: LandlockRules) -> Result<SandboxLayer, StageError> {
    match rules {
        LandlockRules::NotUsed => Ok(SandboxLayer::inactive(
            "landlock",
            "full mode does not use Landlock, because mounts enforce the blocklist",
        )),
        LandlockRules::Ready { rules, abi } => {
            rules.restrict_self().map_err(|error| StageError::new(STAGE, error))?;
            Ok(SandboxLayer::active("landlock", format!("ABI {abi}")))
        }
    }
}

type BuildError = Box<dyn std::error::Error>;

fn build(attempt: LevelAttempt, plan: &SandboxPlan, abi: ABI) -> Result<RulesetCreated, BuildError> {
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    // Landlock handles Unix sockets only if the operator named some of them. Otherwise the seccomp filter is enough.
    let handled = all & !unix_sockets();
    let named = named_sockets(plan);
    let sockets = if named.is_empty() { BitFlags::empty() } else { all & unix_sockets() };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled | sockets)?;
    let scope = scope(plan, abi);
    if !scope.is_empty() {
        rules = rules.scope(scope)?;
    }
    let mut rules = rules.create()?;
    if attempt.has_namespaces() {
        // A mount that covers a secret disappears if a process outside the sandbox replaces the secret by a rename.
        // Neither the new file nor any of its parents has a Landlock rule, so the file stays unreadable.
        rules = grant(rules, &[PathBuf::from("/")], AccessFs::ReadDir.into())?;
        rules = grant(rules, &around(Path::new("/"), &plan.hidden, &entries), read)?;
        rules = grant(rules, &plan.writable, handled & !make_devices())?;
        rules = grant(rules, &[PathBuf::from("/dev/shm")], handled & !make_devices())?;
    } else {
        rules = grant_unprotected(rules, plan, read, handled & !make_devices())?;
    }
    if !sockets.is_empty() {
        rules = grant(rules, named, sockets)?;
    }
    let devices = AccessFs::ReadFile | AccessFs::WriteFile | (handled & AccessFs::IoctlDev);
    Ok(grant(rules, &DEVICES.map(PathBuf::from), devices)?)
}

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Grants access to paths when there are no namespaces, so no mount hides the protected paths. A Landlock rule for a
/// directory covers everything below it, so this grants the siblings of a protected path, but never its parent.
fn grant_unprotected(
    rules: RulesetCreated,
    plan: &SandboxPlan,
    read: BitFlags<AccessFs>,
    write: BitFlags<AccessFs>,
) -> Result<RulesetCreated, BuildError> {
    let unreadable = [plan.hidden.clone(), vec![PathBuf::from("/dev")]].concat();
    let readable = around(Path::new("/"), &unreadable, &entries);
    // Allow listing directory names everywhere, because otherwise shells and file name patterns would not work.
    let rules = grant(rules, &[PathBuf::from("/")], AccessFs::ReadDir.into())?;
    let rules = grant(rules, &readable, read)?;
    let writable: Vec<PathBuf> =
        plan.writable.iter().flat_map(|root| around(root, &unwritable(root, plan), &entries)).collect();
    Ok(grant(rules, &writable, write)?)
}

/// Returns the paths to leave out of a writable directory. A path above this directory is ignored: the workspace in
/// home is writable although home is not, and a cache is writable although the other caches are hidden.
fn unwritable(root: &Path, plan: &SandboxPlan) -> Vec<PathBuf> {
    let above = |path: &&PathBuf| *path != root && root.starts_with(path);
    plan.hidden.iter().chain(&plan.frozen).filter(|path| !above(path)).cloned().collect()
}

fn grant(
    mut rules: RulesetCreated,
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    for path in paths {
        // A path that has been removed since planning needs no rule.
        let Ok(fd) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { access } else { access & file_rights() };
        if !access.is_empty() {
            rules = rules.add_rule(PathBeneath::new(fd, access))?;
        }
    }
    Ok(rules)
}

fn file_rights() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::Execute
        | AccessFs::Truncate
        | AccessFs::IoctlDev
        | unix_sockets()
}

/// Returns the sockets to which the command is limited.
fn named_sockets(plan: &SandboxPlan) -> &[PathBuf] {
    match &plan.unix_sockets {
        PlannedSockets::Named(named) => named,
        PlannedSockets::Denied | PlannedSockets::All => &[],
    }
}

/// The Landlock version that limits connections to Unix sockets.
pub(super) const LIMITS_SOCKETS: i32 = 9;

fn make_devices() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock
}

/// Returns the access rights that Landlock ABI 9 added to ABI 8.
fn unix_sockets() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI::V9) & !AccessFs::from_all(ABI::V8)
}

/// Confines signals to the sandbox. Also confines abstract sockets, unless the operator allowed all Unix sockets.
fn scope(plan: &SandboxPlan, abi: ABI) -> BitFlags<Scope> {
    let all = Scope::from_all(abi);
    match plan.unix_sockets {
        PlannedSockets::All => all & Scope::Signal,
        PlannedSockets::Denied | PlannedSockets::Named(_) => all,
    }
}
