//! A policy turned into steps: what the launcher is told, worked out before it starts.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::check::blocklist;
use crate::git::git_paths;
use crate::path::{between, is_within};
use crate::policy::Policy;
use crate::system::effective_uid;
use haft_core::home::Home;
use haft_core::settings::limits::Limits;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{Access, GitMetadata};

/// Everything the launcher needs to know. Two equal plans make equal sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) mode: SandboxMode,
    pub(crate) workspace: PathBuf,
    pub(crate) writable: Vec<PathBuf>,
    /// For the mount namespace, parents before children.
    pub(crate) steps: Vec<Step>,
    /// For Landlock alone, when there is no mount namespace.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) frozen: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) unix_sockets: bool,
    pub(crate) identity: Option<Identity>,
    pub(crate) limits: Limits,
}

/// Whom the command runs as, when that is not ourselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// One thing to put in place in the new mount namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// A fresh `/proc` that shows only the processes of the call.
    Processes,
    /// Bound over itself, writable. Also what pins a name: a mount point cannot be renamed.
    Writable(PathBuf),
    /// Bound over itself, read-only.
    Frozen(PathBuf),
    /// A device file that opens; all others do not.
    Device(PathBuf),
    /// An empty directory of the call's own.
    Scratch(PathBuf),
    /// Covered by something that cannot be opened.
    HiddenFile(PathBuf),
    /// Covered by an empty directory, in which only `keep` is seen again.
    HiddenDirectory { path: PathBuf, keep: Vec<Kept> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) writable: bool,
}

impl Step {
    fn path(&self) -> &Path {
        match self {
            Step::Processes => Path::new("/proc"),
            Step::Writable(path)
            | Step::Frozen(path)
            | Step::Device(path)
            | Step::Scratch(path)
            | Step::HiddenFile(path)
            | Step::HiddenDirectory { path, .. } => path,
        }
    }

    /// Parents before children; on one path what denies comes last, and so lies on top.
    fn order(&self) -> (usize, u8) {
        let strictness = match self {
            Step::Processes | Step::Writable(_) | Step::Device(_) | Step::Scratch(_) => 0,
            Step::Frozen(_) => 1,
            Step::HiddenFile(_) | Step::HiddenDirectory { .. } => 2,
        };
        (self.path().components().count(), strictness)
    }
}

/// What is usable in `/dev`.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

impl Plan {
    /// Looks at what exists and decides the steps.
    pub(crate) fn of(policy: &Policy) -> Result<Self, PlanError> {
        let writable = granted(policy);
        let git = match policy.git {
            GitMetadata::Frozen => git_paths(&policy.workspace, &writable)?,
            GitMetadata::Writable => crate::git::GitPaths::default(),
        };
        let frozen = [git.frozen, policy.frozen.clone(), blocked_within(&writable)].concat();
        let frozen: Vec<PathBuf> = frozen.into_iter().filter(|path| path.exists()).collect();
        let hidden = hidden_steps(policy, &writable)?;
        let plan = Self {
            mode: policy.mode,
            workspace: policy.workspace.clone(),
            steps: in_order(&writable, &git.pinned, &frozen, &hidden),
            hidden: policy.hidden(),
            frozen: [frozen, vec![policy.home.root().to_path_buf()]].concat(),
            writable,
            network: policy.network == Access::Allow,
            unix_sockets: policy.unix_sockets == Access::Allow,
            identity: identity(&policy.workspace),
            limits: policy.limits.clone(),
        };
        plan.refuse_unspeakable()
    }

    /// The plan travels as JSON, which carries only UTF-8.
    fn refuse_unspeakable(self) -> Result<Self, PlanError> {
        let odd = self
            .steps
            .iter()
            .map(Step::path)
            .chain([self.workspace.as_path()])
            .find(|path| path.to_str().is_none());
        match odd {
            Some(path) => Err(PlanError::NotUtf8 { path: path.to_path_buf() }),
            None => Ok(self),
        }
    }
}

fn granted(policy: &Policy) -> Vec<PathBuf> {
    match policy.mode {
        SandboxMode::Sandbox | SandboxMode::Rx => policy.writable_roots(),
        SandboxMode::Rwx => top_directories(),
    }
}

/// Everything but `/` itself, where a link such as `/bin` could be replaced by one to elsewhere.
fn top_directories() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> =
        directories.map(|entry| entry.path()).filter(|path| path != Path::new("/proc")).collect();
    found.sort();
    found
}

/// The blocklist where it meets what is granted; deny wins.
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

fn hidden_steps(policy: &Policy, writable: &[PathBuf]) -> Result<Vec<Step>, PlanError> {
    let home = policy.home.root();
    let is_writable = |path: &Path| writable.iter().any(|root| is_within(path, root));
    let mut steps = Vec::new();
    if home.is_dir() {
        steps.push(Step::HiddenDirectory { path: home.into(), keep: kept(&policy.home, is_writable) });
    } else if is_writable(home) {
        return Err(PlanError::NameUnprotected { path: home.into() });
    }
    for path in policy.hidden().into_iter().filter(|path| !is_within(path, home)) {
        if path.is_dir() {
            steps.push(Step::HiddenDirectory { path, keep: Vec::new() });
        } else if path.exists() {
            steps.push(Step::HiddenFile(path));
        } else if policy.protected.contains(&path) && is_writable(&path) {
            return Err(PlanError::NameUnprotected { path });
        }
    }
    Ok(steps)
}

/// What of home is seen: never its data or configuration, whether they exist or not.
fn kept(home: &Home, is_writable: impl Fn(&Path) -> bool) -> Vec<Kept> {
    let readable = Home::READABLE.iter().map(|name| Kept { name: (*name).into(), writable: false });
    let workspace = Kept { name: "workspace".into(), writable: is_writable(&home.workspace()) };
    readable.chain([workspace]).filter(|kept| home.root().join(&kept.name).is_dir()).collect()
}

/// All steps, parents first, with a pin on every directory between a writable root and what it must not lose.
fn in_order(writable: &[PathBuf], pinned: &[PathBuf], frozen: &[PathBuf], hidden: &[Step]) -> Vec<Step> {
    let mut steps = vec![Step::Processes, Step::Scratch("/dev/shm".into())];
    steps.extend(DEVICES.iter().map(|device| Step::Device(device.into())));
    steps.extend(frozen.iter().cloned().map(Step::Frozen));
    steps.extend(hidden.iter().cloned());
    steps.extend(pinned.iter().cloned().map(Step::Writable));
    steps.extend(writable.iter().cloned().map(Step::Writable));
    let kept_in_place: Vec<PathBuf> = steps.iter().map(|step| step.path().to_path_buf()).collect();
    for path in kept_in_place.iter().filter(|path| !path.starts_with("/dev")) {
        for root in writable.iter().filter(|root| is_within(path, root)) {
            steps.extend(between(root, path).into_iter().map(Step::Writable));
        }
    }
    steps.retain(|step| is_mountable(step.path()) && !is_covered(step, hidden));
    steps.sort_by_key(Step::order);
    steps.dedup();
    // A pin on a path that is frozen anyway would be mounted for nothing.
    let frozen_paths: Vec<PathBuf> = frozen.to_vec();
    steps.retain(|step| !matches!(step, Step::Writable(path) if frozen_paths.contains(path)));
    steps
}

fn is_mountable(path: &Path) -> bool {
    path.exists()
}

/// Whether the step lies in a directory that is covered, and is not kept in it.
fn is_covered(step: &Step, hidden: &[Step]) -> bool {
    hidden.iter().any(|cover| match cover {
        Step::HiddenDirectory { path, keep } => {
            step.path() != path
                && is_within(step.path(), path)
                && !keep.iter().any(|kept| is_within(step.path(), &path.join(&kept.name)))
        }
        Step::Processes
        | Step::Writable(_)
        | Step::Frozen(_)
        | Step::Device(_)
        | Step::Scratch(_)
        | Step::HiddenFile(_) => false,
    })
}

/// Run by root on somebody's workspace, the command is that somebody: files it makes are theirs.
pub(crate) fn identity(workspace: &Path) -> Option<Identity> {
    let meta = workspace.metadata().ok()?;
    let we_are_root = effective_uid() == 0;
    (we_are_root && meta.uid() != 0).then(|| Identity { uid: meta.uid(), gid: meta.gid() })
}

/// Why a policy cannot be carried out here. Written for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// A protected name does not exist below a writable directory, and so cannot be covered.
    NameUnprotected {
        path: PathBuf,
    },
    GitSymlink {
        path: PathBuf,
    },
    GitUnprotected {
        path: PathBuf,
        reason: String,
    },
    NotUtf8 {
        path: PathBuf,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameUnprotected { path } => write!(
                f,
                "`{}` does not exist but lies in a writable directory, so it cannot be protected\nhint: create it first",
                path.display()
            ),
            Self::GitSymlink { path } => write!(
                f,
                "`{}` is a symlink, so the git hooks and configuration behind it cannot be protected\nhint: --git writable gives that protection up",
                path.display()
            ),
            Self::GitUnprotected { path, reason } => write!(
                f,
                "`{}` cannot be protected: {reason}\nhint: --git writable gives that protection up",
                path.display()
            ),
            Self::NotUtf8 { path } => write!(f, "`{}` is not a UTF-8 path", path.display()),
        }
    }
}

impl std::error::Error for PlanError {}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl Plan {
    /// A plan with nothing in it, for tests of what is made from one.
    pub(crate) fn for_tests(mode: SandboxMode) -> Self {
        Self {
            mode,
            workspace: "/".into(),
            writable: Vec::new(),
            steps: Vec::new(),
            hidden: Vec::new(),
            frozen: Vec::new(),
            network: false,
            unix_sockets: false,
            identity: None,
            limits: Limits::default(),
        }
    }
}
