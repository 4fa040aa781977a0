//! Converts a policy into the steps that the launcher carries out. The steps are computed before the launcher starts.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::check::blocklist;
use crate::fingerprint::fingerprint;
use crate::git::{GitPaths, nested_git_paths, root_git_paths};
use crate::path::{between, is_within, resolve};
use crate::policy::{NeighbourVisibility, SandboxPolicy};
use crate::sockets::{PlannedSockets, SOCKETS_MAX};
use crate::system::effective_uid;
use haft_core::settings::limits::CommandLimits;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};

/// Everything that the launcher needs. Two equal plans produce equal sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxPlan {
    pub(crate) mode: SandboxMode,
    pub(crate) workspace: PathBuf,
    pub(crate) writable: Vec<PathBuf>,
    /// The mount steps, parents before children.
    pub(crate) steps: Vec<MountStep>,
    /// The hidden paths, for Landlock without a mount namespace and for Seatbelt.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) frozen: Vec<PathBuf>,
    /// The read-only paths of nested repositories in the granted directories. Landlock alone cannot make these paths
    /// read-only, because it would also prevent new files next to each path.
    pub(crate) nested: Vec<PathBuf>,
    /// The number of nested repositories that no isolation level of the sandbox protects.
    pub(crate) unprotected_repositories: usize,
    /// The protected names in writable directories. The mount over such a file is lost when another program replaces
    /// the file.
    pub(crate) watched: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) unix_sockets: PlannedSockets,
    pub(crate) identity: Option<UnixIdentity>,
    pub(crate) limits: CommandLimits,
    /// A fingerprint of the files at the planned paths. It changes if a path now refers to another file.
    pub(crate) fingerprint: u64,
}

/// The user as whom the command runs, if it is not haft's own user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnixIdentity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// One mount to set up in the new mount namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MountStep {
    /// A fresh `/proc` that shows only the processes of the call.
    Processes,
    /// The path is mounted onto itself, writable. The mount also protects the name, because a mount point cannot be
    /// renamed.
    Writable(PathBuf),
    /// Another directory is mounted onto the path, writable.
    Private { path: PathBuf, source: PathBuf },
    /// The path is mounted onto itself, read-only.
    Frozen(PathBuf),
    /// A device file that the command can open. It cannot open any other device file.
    Device(PathBuf),
    /// An empty directory private to the call.
    Scratch(PathBuf),
    /// Another file, which the command cannot open, covers the file at the path.
    HiddenFile(PathBuf),
    /// Another file covers the socket at the path. The program of the socket may remove the path at any time; then
    /// there is nothing to cover.
    HiddenSocket(PathBuf),
    /// An empty directory covers the directory at the path. Only the entries in `keep` stay visible.
    HiddenDirectory { path: PathBuf, keep: Vec<VisibleEntry> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VisibleEntry {
    /// The path below the covered directory.
    pub(crate) name: String,
    pub(crate) writable: bool,
}

impl MountStep {
    pub(crate) fn path(&self) -> &Path {
        match self {
            MountStep::Processes => Path::new("/proc"),
            MountStep::Writable(path)
            | MountStep::Frozen(path)
            | MountStep::Device(path)
            | MountStep::Scratch(path)
            | MountStep::HiddenFile(path)
            | MountStep::HiddenSocket(path)
            | MountStep::Private { path, .. }
            | MountStep::HiddenDirectory { path, .. } => path,
        }
    }

    /// Returns the sort key: parents before children. On the same path the stricter step comes last, so that its mount
    /// is on top.
    fn order(&self) -> (usize, u8) {
        let strictness = match self {
            MountStep::Processes
            | MountStep::Writable(_)
            | MountStep::Private { .. }
            | MountStep::Device(_)
            | MountStep::Scratch(_) => 0,
            MountStep::Frozen(_) => 1,
            MountStep::HiddenFile(_) | MountStep::HiddenSocket(_) | MountStep::HiddenDirectory { .. } => 2,
        };
        (self.path().components().count(), strictness)
    }
}

/// The device files that a command can use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

impl SandboxPlan {
    /// Inspects the file system, and determines the steps.
    pub(crate) fn of(policy: &SandboxPolicy) -> Result<Self, PlanError> {
        let writable = granted(policy);
        let git = match policy.git {
            GitMetadata::Frozen => root_git_paths(&policy.granted_by_operator(), &writable)?,
            GitMetadata::Writable => GitPaths::default(),
        };
        let nested = match policy.git {
            GitMetadata::Frozen => nested_git_paths(&policy.granted_by_operator(), &writable),
            GitMetadata::Writable => GitPaths::default(),
        };
        let blocked = blocked_within(&writable);
        let frozen = [git.frozen, policy.frozen.clone(), blocked.clone()].concat();
        let frozen: Vec<PathBuf> = frozen.into_iter().filter(|path| path.exists()).collect();
        let hidden = hidden_steps(policy, &writable)?;
        let pinned = [git.pinned, nested.pinned].concat();
        let steps = in_order(&writable, &pinned, &[frozen.clone(), nested.frozen.clone()].concat(), &hidden);
        let unix_sockets = PlannedSockets::of(policy);
        let steps = with_covered_sockets(with_private_tmp(steps, policy)?, policy, &unix_sockets)?;
        let watched = watched(&steps, &pinned, &writable, &blocked);
        let mounted: Vec<PathBuf> = writable.iter().chain(&policy.tmp).cloned().collect();
        let fingerprint = fingerprint(&mounted, &policy.hidden());
        let plan = Self {
            mode: policy.mode,
            workspace: policy.workspace.clone(),
            steps,
            watched,
            nested: nested.frozen,
            unprotected_repositories: git.left_out + nested.left_out,
            hidden: policy.hidden(),
            frozen: [frozen, vec![policy.home.root().to_path_buf()]].concat(),
            writable,
            network: policy.network == ResourceAccess::Allow,
            unix_sockets,
            identity: identity(&policy.workspace),
            limits: policy.limits.clone(),
            fingerprint,
        };
        plan.refuse_non_utf8_paths()
    }

    /// Returns true if a sandbox without mounts would reveal more than the policy allows.
    pub(crate) fn needs_mounts(&self) -> bool {
        self.reason_for_mounts().is_some()
    }

    /// Returns the part of the policy that a sandbox without mounts cannot enforce.
    pub(crate) fn reason_for_mounts(&self) -> Option<&'static str> {
        if self.steps.iter().any(|step| matches!(step, MountStep::Private { .. })) {
            return Some("give the command a private /tmp");
        }
        match self.unix_sockets {
            PlannedSockets::Named(_) => Some("limit the command to some unix sockets"),
            PlannedSockets::Denied | PlannedSockets::All => None,
        }
    }

    /// Rejects paths that are not UTF-8, because the plan is sent to the launcher as JSON.
    fn refuse_non_utf8_paths(self) -> Result<Self, PlanError> {
        let odd = self
            .steps
            .iter()
            .map(MountStep::path)
            .chain([self.workspace.as_path()])
            .find(|path| path.to_str().is_none());
        match odd {
            Some(path) => Err(PlanError::NotUtf8 { path: path.to_path_buf() }),
            None => Ok(self),
        }
    }
}

fn granted(policy: &SandboxPolicy) -> Vec<PathBuf> {
    match policy.mode {
        SandboxMode::Workspace | SandboxMode::Network => policy.writable_roots(),
        // Add the granted paths: a granted file stays writable even inside a directory that the policy makes read-only.
        SandboxMode::Full => [top_directories(), policy.writable.clone()].concat(),
    }
}

/// Lists every top-level directory instead of `/` itself. If `/` were writable, a command could replace a link such as
/// `/bin` by a link to its own programs.
fn top_directories() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> =
        directories.map(|entry| entry.path()).filter(|path| path != Path::new("/proc")).collect();
    found.sort();
    found
}

/// Returns the overlaps of the blocklist and the writable directories. They become read-only, because a denial has
/// priority over a grant.
fn blocked_within(writable: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for blocked in blocklist().iter().filter(|blocked| *blocked != Path::new("/proc")) {
        for root in writable {
            if is_within(blocked, root) {
                found.push(blocked.clone());
            } else if is_within(root, blocked) {
                found.push(root.clone());
            }
        }
    }
    found
}

fn hidden_steps(policy: &SandboxPolicy, writable: &[PathBuf]) -> Result<Vec<MountStep>, PlanError> {
    let home = policy.home.root();
    let is_writable = |path: &Path| writable.iter().any(|root| is_within(path, root));
    let mut steps = Vec::new();
    if let Some(user_home) = policy.covered_home.as_ref().filter(|home| home.is_dir()) {
        steps.push(cover_of_home(policy, user_home, is_writable));
    }
    let is_covered = policy.covered_home.as_ref().is_some_and(|user_home| is_within(home, user_home));
    if home.is_dir() && !is_covered {
        steps.push(MountStep::HiddenDirectory {
            path: home.into(),
            keep: visible_entries(policy, is_writable),
        });
    } else if !is_covered && is_writable(home) {
        return Err(PlanError::NameUnprotected { path: home.into() });
    }
    for path in policy.hidden().into_iter().filter(|path| !is_within(path, home)) {
        if path.is_dir() {
            steps.push(MountStep::HiddenDirectory { path, keep: Vec::new() });
        } else if path.exists() {
            steps.push(MountStep::HiddenFile(path));
        } else if policy.protected.contains(&path) && is_writable(&path) {
            return Err(PlanError::NameUnprotected { path });
        }
    }
    Ok(steps)
}

/// Covers a home directory. The granted directories and the visible entries of haft's own home stay visible.
fn cover_of_home(policy: &SandboxPolicy, user_home: &Path, is_writable: impl Fn(&Path) -> bool) -> MountStep {
    let below = |path: &Path| path.strip_prefix(user_home).ok()?.to_str().map(str::to_owned);
    let home = policy.home.root();
    let of_haft = visible_entries(policy, &is_writable).into_iter();
    let of_haft = of_haft.filter_map(|kept| {
        let name = below(&home.join(&kept.name))?;
        Some(VisibleEntry { name, ..kept })
    });
    let own = policy.own().into_iter().filter(|own| own.is_dir() && !is_within(own, home));
    let own = own.filter_map(|own| Some(VisibleEntry { name: below(&own)?, writable: is_writable(&own) }));
    MountStep::HiddenDirectory { path: user_home.into(), keep: of_haft.chain(own).collect() }
}

/// Mounts the policy's private `/tmp` instead of the machine's own. No other step may be below it.
fn with_private_tmp(steps: Vec<MountStep>, policy: &SandboxPolicy) -> Result<Vec<MountStep>, PlanError> {
    let Some(source) = &policy.tmp else { return Ok(steps) };
    if !cfg!(target_os = "linux") {
        return Err(PlanError::NoPrivateTmp);
    }
    let tmp = resolve(Path::new("/tmp"));
    let replace = |step: MountStep| match step {
        MountStep::Writable(path) if path == tmp => Some(MountStep::Private { path, source: source.clone() }),
        step if step.path() != tmp && is_within(step.path(), &tmp) => None,
        step => Some(step),
    };
    Ok(steps.into_iter().filter_map(replace).collect())
}

/// Covers the sockets of other programs. A private `/tmp` and a covered directory already hide the sockets in it.
fn with_covered_sockets(
    mut steps: Vec<MountStep>,
    policy: &SandboxPolicy,
    sockets: &PlannedSockets,
) -> Result<Vec<MountStep>, PlanError> {
    if matches!(sockets, PlannedSockets::Named(_)) && !cfg!(target_os = "linux") {
        return Err(PlanError::NoNamedSockets);
    }
    let tmp = policy.tmp.as_ref().map(|_| resolve(Path::new("/tmp")));
    let is_hidden = |socket: &Path| tmp.as_ref().is_some_and(|tmp| is_within(socket, tmp));
    let covered: Vec<MountStep> = sockets
        .covered()
        .into_iter()
        .filter(|socket| !is_hidden(socket))
        .map(MountStep::HiddenSocket)
        .filter(|step| !is_covered(step, &steps))
        .collect();
    if covered.len() > SOCKETS_MAX {
        return Err(PlanError::TooManySockets { count: covered.len() });
    }
    steps.extend(covered);
    Ok(steps)
}

/// Lists the entries of haft's home that stay visible. Data and configuration never do, even if they do not exist yet.
fn visible_entries(policy: &SandboxPolicy, is_writable: impl Fn(&Path) -> bool) -> Vec<VisibleEntry> {
    let home = &policy.home;
    let own = policy.own().into_iter().filter(|own| is_within(own, home.root()));
    let (workspaces, caches): (Vec<PathBuf>, Vec<PathBuf>) =
        own.partition(|own| is_within(own, &home.workspace()));
    let workspaces = match policy.neighbours {
        NeighbourVisibility::Visible => vec![home.workspace()],
        NeighbourVisibility::Hidden => workspaces,
    };
    let granted = |path: PathBuf| {
        let name = path.strip_prefix(home.root()).ok()?.to_str()?.to_owned();
        Some(VisibleEntry { name, writable: is_writable(&path) })
    };
    let readable = policy.readable_of_home().iter();
    let readable = readable.map(|name| VisibleEntry { name: (*name).into(), writable: false });
    let all = readable.chain(workspaces.into_iter().chain(caches).filter_map(granted));
    all.filter(|kept| home.root().join(&kept.name).is_dir()).collect()
}

/// Sorts all steps with parents first. Also mounts every directory between a writable root and a path below it onto
/// itself, so that no parent of a protected path can be renamed.
fn in_order(
    writable: &[PathBuf],
    pinned: &[PathBuf],
    frozen: &[PathBuf],
    hidden: &[MountStep],
) -> Vec<MountStep> {
    let mut steps = vec![MountStep::Processes, MountStep::Scratch("/dev/shm".into())];
    steps.extend(DEVICES.iter().map(|device| MountStep::Device(device.into())));
    steps.extend(frozen.iter().cloned().map(MountStep::Frozen));
    steps.extend(hidden.iter().cloned());
    steps.extend(pinned.iter().cloned().map(MountStep::Writable));
    steps.extend(writable.iter().cloned().map(MountStep::Writable));
    let kept_in_place: Vec<PathBuf> = steps.iter().map(|step| step.path().to_path_buf()).collect();
    for path in kept_in_place.iter().filter(|path| !path.starts_with("/dev")) {
        for root in writable.iter().filter(|root| is_within(path, root)) {
            steps.extend(between(root, path).into_iter().map(MountStep::Writable));
        }
    }
    steps.retain(|step| is_mountable(step.path()) && !is_covered(step, hidden));
    steps.sort_by_key(MountStep::order);
    steps.dedup();
    // Remove the writable mount of a path that is also frozen: the read-only mount already protects the name of the
    // path.
    let frozen_paths: Vec<PathBuf> = frozen.to_vec();
    steps.retain(|step| !matches!(step, MountStep::Writable(path) if frozen_paths.contains(path)));
    steps
}

/// Returns the protected names in writable directories. System directories are not included: only root can replace
/// them, and a mount over a whole directory stays in place if a file in the directory is replaced.
fn watched(
    steps: &[MountStep],
    pinned: &[PathBuf],
    writable: &[PathBuf],
    blocked: &[PathBuf],
) -> Vec<PathBuf> {
    let is_protected = |step: &&MountStep| match step {
        MountStep::Frozen(path) => !blocked.contains(path),
        MountStep::HiddenFile(_) | MountStep::HiddenDirectory { .. } => true,
        MountStep::Writable(path) => pinned.contains(path),
        MountStep::Processes
        | MountStep::Device(_)
        | MountStep::Scratch(_)
        | MountStep::HiddenSocket(_)
        | MountStep::Private { .. } => false,
    };
    let paths = steps.iter().filter(is_protected).map(MountStep::path);
    let inside = |path: &&Path| writable.iter().any(|root| path != root && is_within(path, root));
    let mut found: Vec<PathBuf> = paths.filter(inside).map(Path::to_path_buf).collect();
    found.dedup();
    found
}

fn is_mountable(path: &Path) -> bool {
    path.exists()
}

/// Returns true if the step is inside a covered directory that does not keep it visible.
fn is_covered(step: &MountStep, hidden: &[MountStep]) -> bool {
    hidden.iter().any(|cover| match cover {
        MountStep::HiddenDirectory { path, keep } => {
            step.path() != path
                && is_within(step.path(), path)
                && !keep.iter().any(|kept| is_within(step.path(), &path.join(&kept.name)))
        }
        MountStep::Processes
        | MountStep::Writable(_)
        | MountStep::Frozen(_)
        | MountStep::Device(_)
        | MountStep::Scratch(_)
        | MountStep::Private { .. }
        | MountStep::HiddenSocket(_)
        | MountStep::HiddenFile(_) => false,
    })
}

/// Returns the owner of the workspace if haft runs as root in another user's workspace. The command then runs as that
/// user, so the files that it creates belong to that user.
pub(crate) fn identity(workspace: &Path) -> Option<UnixIdentity> {
    let meta = workspace.metadata().ok()?;
    let we_are_root = effective_uid() == 0;
    (we_are_root && meta.uid() != 0).then(|| UnixIdentity { uid: meta.uid(), gid: meta.gid() })
}

/// The reasons why a policy cannot be carried out on this machine. The text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A protected path is below a writable directory but does not exist, so no mount can cover it.
    #[error("the protected path `{}` does not exist but lies in a writable directory, so haft cannot protect it; create it first", .path.display())]
    NameUnprotected { path: PathBuf },
    /// `.git` is a symlink. A mount cannot protect the name of a symlink, so a command could replace the symlink by its
    /// own repository.
    #[error("`{}` is a symlink, so haft cannot protect the git hooks and configuration behind it; replace it by a file with the line `gitdir: {}`, which git follows in the same way", .path.display(), .target.display())]
    DotGitSymlink { path: PathBuf, target: PathBuf },
    #[error("`{}` is a symlink, so haft cannot protect the git hooks and configuration behind it; replace the symlink by its target", .path.display())]
    GitSymlink { path: PathBuf },
    #[error("haft cannot protect `{}`: {reason}; set `sandbox.git: \"writable\"` to run without that protection", .path.display())]
    GitUnprotected { path: PathBuf, reason: String },
    #[error("the path `{}` is not valid UTF-8", .path.display())]
    NotUtf8 { path: PathBuf },
    /// The system cannot limit a command to some unix sockets.
    #[error(
        "haft cannot limit the command to some unix sockets, because this system has no Linux namespaces; set `unixSockets` instead of `sockets`"
    )]
    NoNamedSockets,
    /// Covering this many sockets would take too many mounts.
    #[error(
        "the machine has {count} unix sockets that haft would have to cover, but haft covers at most {SOCKETS_MAX}; set `unixSockets` instead of `sockets`"
    )]
    TooManySockets { count: usize },
    /// The system cannot give a command a different `/tmp`.
    #[error("haft cannot give the command a private /tmp, because this system has no Linux namespaces")]
    NoPrivateTmp,
}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl SandboxPlan {
    /// Returns an empty plan, for tests.
    pub(crate) fn for_tests(mode: SandboxMode) -> Self {
        Self {
            mode,
            workspace: "/".into(),
            writable: Vec::new(),
            steps: Vec::new(),
            hidden: Vec::new(),
            frozen: Vec::new(),
            nested: Vec::new(),
            unprotected_repositories: 0,
            watched: Vec::new(),
            network: false,
            unix_sockets: PlannedSockets::Denied,
            identity: None,
            limits: CommandLimits::default(),
            fingerprint: 0,
        }
    }
}
