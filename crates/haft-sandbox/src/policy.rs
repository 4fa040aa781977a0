//! The operator's policy for one workspace. Model output never changes a policy.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::passwd;
use crate::path::{self, is_within};
use crate::plan::identity;
use crate::secrets::{default_secrets, runtime_secrets, system_secrets};
use crate::system::effective_uid;
use haft_core::home::Home;
use haft_core::settings::limits::CommandLimits;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess, SandboxBinding};

/// The operator's decision for one workspace. Its paths are stored in resolved form: symlinks followed, `.` and `..`
/// removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPolicy {
    pub(crate) mode: SandboxMode,
    pub(crate) workspace: PathBuf,
    pub(crate) home: Home,
    /// The writable directories in addition to the workspace and `/tmp`.
    pub(crate) writable: Vec<PathBuf>,
    /// Paths that are neither readable nor writable in the modes `workspace` and `network`. The list is shared, because
    /// a server has thousands of policies with the same hundred paths.
    pub(crate) secrets: Arc<Vec<PathBuf>>,
    /// Secrets that the operator named. Unlike the default secrets, these may be inside the workspace.
    pub(crate) operator_secrets: Vec<PathBuf>,
    /// Paths that are neither readable nor writable in any mode.
    pub(crate) protected: Vec<PathBuf>,
    /// Paths that stay readable but are never writable, even inside a writable directory.
    pub(crate) frozen: Vec<PathBuf>,
    pub(crate) git: GitMetadata,
    pub(crate) neighbours: NeighbourVisibility,
    /// The directory that the command sees as `/tmp`; `None` for the machine's own `/tmp`.
    pub(crate) tmp: Option<PathBuf>,
    /// The home directory in which the command sees only the policy's own directories; `None` if the policy covers no
    /// home directory.
    pub(crate) covered_home: Option<PathBuf>,
    /// The user's home directory, if the operator allows it as a workspace. The home directory may be granted although
    /// it contains secrets and haft's own home, which stay hidden.
    home_workspace: Option<PathBuf>,
    pub(crate) network: ResourceAccess,
    pub(crate) unix_sockets: ResourceAccess,
    /// The sockets that the command may connect to, even if `unix_sockets` denies all others.
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) environment: Vec<OsString>,
    pub(crate) variables: Vec<PolicyVariable>,
    pub(crate) limits: CommandLimits,
}

/// The visibility of other workspaces in haft's home, next to the policy's own workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeighbourVisibility {
    Visible,
    Hidden,
}

/// A variable with the value that the operator set. `Debug` omits the value because it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PolicyVariable {
    pub(crate) name: OsString,
    pub(crate) value: OsString,
}

impl fmt::Debug for PolicyVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SandboxPolicy {
    /// Builds the default policy of a mode for a workspace. Hides the secrets of the user whose home is `user_home`.
    pub fn new(
        mode: SandboxMode,
        workspace: &Path,
        home: &Home,
        user_home: Option<&Path>,
    ) -> Result<Self, PolicyError> {
        Self::new_with_readable(mode, workspace, home, user_home, &[])
    }

    /// Builds the default policy, but first removes `readable` from the list of secrets, then checks that the workspace
    /// exposes no secret of the list.
    pub fn new_with_readable(
        mode: SandboxMode,
        workspace: &Path,
        home: &Home,
        user_home: Option<&Path>,
        readable: &[PathBuf],
    ) -> Result<Self, PolicyError> {
        let policy = Self::unchecked(mode, workspace, home, user_home, readable)?;
        policy.refuse_exposing(&policy.workspace)?;
        Ok(policy)
    }

    /// Builds the default policy, but also allows the user's home directory as the workspace.
    pub fn new_allowing_home(
        mode: SandboxMode,
        workspace: &Path,
        home: &Home,
        user_home: Option<&Path>,
        readable: &[PathBuf],
    ) -> Result<Self, PolicyError> {
        let mut policy = Self::unchecked(mode, workspace, home, user_home, readable)?;
        policy.home_workspace = user_home.map(path::resolve);
        policy.refuse_exposing(&policy.workspace)?;
        Ok(policy)
    }

    /// Builds a policy without the check that its workspace exposes no secrets.
    fn unchecked(
        mode: SandboxMode,
        workspace: &Path,
        home: &Home,
        user_home: Option<&Path>,
        readable: &[PathBuf],
    ) -> Result<Self, PolicyError> {
        let workspace = existing_directory(workspace)?;
        // If haft runs as root in another user's workspace, the command runs as that user and could read that user's
        // secrets.
        let owner_home = identity(&workspace)
            .and_then(|owner| passwd::entry(owner.uid))
            .map(|(_, home)| PathBuf::from(home));
        let homes = user_home.into_iter().chain(owner_home.as_deref());
        let owner = identity(&workspace).map(|owner| owner.uid);
        let runtime = [Some(effective_uid()), owner].into_iter().flatten().flat_map(runtime_secrets);
        let secrets = homes.flat_map(default_secrets).chain(runtime).chain(system_secrets());
        let secrets = shared(path::resolve_all(secrets));
        let mut policy = Self {
            mode,
            workspace,
            home: Home::at(&path::resolve(home.root())),
            writable: Vec::new(),
            secrets,
            operator_secrets: Vec::new(),
            protected: Vec::new(),
            frozen: Vec::new(),
            git: GitMetadata::Frozen,
            neighbours: NeighbourVisibility::Visible,
            tmp: None,
            covered_home: None,
            home_workspace: None,
            network: if mode == SandboxMode::Workspace {
                ResourceAccess::Deny
            } else {
                ResourceAccess::Allow
            },
            unix_sockets: if mode == SandboxMode::Full {
                ResourceAccess::Allow
            } else {
                ResourceAccess::Deny
            },
            sockets: Vec::new(),
            environment: Vec::new(),
            variables: Vec::new(),
            limits: CommandLimits::default(),
        };
        for path in readable {
            policy = policy.readable(path)?;
        }
        Ok(policy)
    }

    /// Builds a policy for another command with its own mode and workspace. Copies the protections and the limits, but
    /// none of the extra grants. A covered home stays covered except in `full`, which the operator chooses for a
    /// program that needs access to the home.
    pub fn derive(&self, mode: SandboxMode, workspace: &Path) -> Result<Self, PolicyError> {
        let mut policy = Self::unchecked(mode, workspace, &self.home, None, &[])?;
        // The base policy decides which secrets of the machine are hidden.
        let system = path::resolve_all(system_secrets());
        let own = policy.secrets.iter().filter(|secret| !system.contains(secret));
        policy.secrets = shared(own.chain(self.secrets.iter()).cloned().collect());
        policy.operator_secrets.clone_from(&self.operator_secrets);
        policy.protected.clone_from(&self.protected);
        policy.frozen.clone_from(&self.frozen);
        policy.neighbours = self.neighbours;
        policy.tmp.clone_from(&self.tmp);
        policy.covered_home = match mode {
            SandboxMode::Workspace | SandboxMode::Network => self.covered_home.clone(),
            SandboxMode::Full => None,
        };
        policy.home_workspace.clone_from(&self.home_workspace);
        policy.limits = self.limits.clone();
        policy.refuse_exposing(&policy.workspace)?;
        policy.refuse_in_tmp(&policy.workspace)?;
        Ok(policy)
    }

    /// Grants write access to one more directory.
    pub fn writable(mut self, directory: &Path) -> Result<Self, PolicyError> {
        let directory = existing_directory(directory)?;
        self.refuse_exposing(&directory)?;
        self.refuse_in_tmp(&directory)?;
        self.writable.push(directory);
        Ok(self)
    }

    /// Grants write access to one file, but not to its directory. The file may be a secret.
    pub fn writable_file(mut self, file: &Path) -> Result<Self, PolicyError> {
        let real = file.canonicalize().map_err(|_| PolicyError::Missing { path: file.into() })?;
        if is_within(&real, self.home.root()) {
            return Err(PolicyError::ExposesHome { path: real, home: self.home.root().into() });
        }
        Arc::make_mut(&mut self.secrets).retain(|secret| *secret != real);
        self.writable.push(real);
        Ok(self)
    }

    /// Creates `cache/NAME` in haft's home and grants write access to it. Each server has its own cache, so that no
    /// server can change another server's downloads.
    pub fn cache(self, name: &str) -> Result<Self, PolicyError> {
        let directory = self.home.cache(name);
        self.cache_at(&directory)
    }

    /// Creates a directory in haft's cache and grants write access to it.
    pub fn cache_at(mut self, directory: &Path) -> Result<Self, PolicyError> {
        let unusable =
            |error: io::Error| PolicyError::Unreadable { path: directory.into(), reason: error.to_string() };
        std::fs::create_dir_all(directory).map_err(unusable)?;
        // The command runs as the owner of the workspace, so the cache must belong to that user.
        if let Some(owner) = identity(&self.workspace) {
            std::os::unix::fs::chown(directory, Some(owner.uid), Some(owner.gid)).map_err(unusable)?;
        }
        self.writable.push(existing_directory(directory)?);
        Ok(self)
    }

    /// Removes a path from the list of secrets, together with every secret below the path and every secret that
    /// contains the path.
    fn readable(mut self, path: &Path) -> Result<Self, PolicyError> {
        let path = path::resolve(path);
        if is_within(&path, self.home.root()) && !is_within(&path, &self.home.workspace()) {
            return Err(PolicyError::ExposesHome { path, home: self.home.root().into() });
        }
        let stays = |secret: &PathBuf| !is_within(secret, &path) && !is_within(&path, secret);
        Arc::make_mut(&mut self.secrets).retain(stays);
        Ok(self)
    }

    /// Hides one more path in the modes `workspace` and `network`. The path may be inside the workspace, but must not
    /// contain it.
    pub fn hide(mut self, path: &Path) -> Result<Self, PolicyError> {
        let secret = path::resolve(path);
        if is_within(&self.workspace, &secret) {
            return Err(PolicyError::ExposesSecret { path: self.workspace, secret });
        }
        self.operator_secrets.push(secret);
        Ok(self)
    }

    /// Adds a path that is neither readable nor writable in any mode.
    pub fn protect(mut self, path: &Path) -> Self {
        self.protected.push(path::resolve(path));
        self
    }

    /// Adds a path that stays readable but is never writable.
    pub fn freeze(mut self, path: &Path) -> Self {
        self.frozen.push(path::resolve(path));
        self
    }

    /// Hides all other workspaces in haft's home, because they belong to other principals, and the operator's agents.
    #[must_use]
    pub fn hide_neighbours(mut self) -> Self {
        self.neighbours = NeighbourVisibility::Hidden;
        self
    }

    /// Shows this directory as `/tmp`, so that commands under this policy share no temporary files with other commands
    /// on the machine. The directory is created if it does not exist. The sandbox can enforce such a policy only with
    /// namespaces.
    pub fn private_tmp(mut self, directory: &Path) -> Result<Self, PolicyError> {
        let unusable = |error: io::Error| PolicyError::Unreadable {
            path: directory.to_path_buf(),
            reason: error.to_string(),
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable)?;
        // The command runs as the owner of the workspace, so the directory must belong to that user.
        if let Some(owner) = identity(&self.workspace) {
            std::os::unix::fs::chown(directory, Some(owner.uid), Some(owner.gid)).map_err(unusable)?;
        }
        self.tmp = Some(existing_directory(directory)?);
        self.own().iter().try_for_each(|own| self.refuse_in_tmp(own))?;
        Ok(self)
    }

    /// Hides everything in a home directory except the workspace and the other directories that the policy grants.
    #[must_use]
    pub fn cover_home(mut self, user_home: &Path) -> Self {
        // Do not cover `/`, which is the home directory of some services.
        let user_home = path::resolve(user_home);
        self.covered_home = (user_home != Path::new("/")).then_some(user_home);
        self
    }

    pub fn network(mut self, access: ResourceAccess) -> Self {
        self.network = access;
        self
    }

    pub fn unix_sockets(mut self, access: ResourceAccess) -> Self {
        self.unix_sockets = access;
        self
    }

    /// Lets the command connect to one unix socket. Other programs' sockets that exist when the command starts stay
    /// unreachable. The sandbox can enforce such a policy only with namespaces.
    pub fn socket(mut self, socket: &Path) -> Result<Self, PolicyError> {
        let socket = path::resolve(socket);
        if is_within(&socket, self.home.root()) {
            return Err(PolicyError::ExposesHome { path: socket, home: self.home.root().into() });
        }
        self.sockets.push(socket);
        Ok(self)
    }

    pub fn git(mut self, git: GitMetadata) -> Self {
        self.git = git;
        self
    }

    /// Passes one more variable from haft's own environment to the command.
    pub fn environment(mut self, name: impl Into<OsString>) -> Self {
        self.environment.push(name.into());
        self
    }

    /// Sets a variable to a fixed value, which overrides haft's own environment.
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push(PolicyVariable { name: name.into(), value: value.into() });
        self
    }

    pub fn limits(mut self, limits: CommandLimits) -> Self {
        self.limits = limits;
        self
    }

    pub fn mode(&self) -> SandboxMode {
        self.mode
    }

    /// Returns the parts of the policy to which an approval is bound.
    pub fn confinement(&self) -> SandboxBinding {
        SandboxBinding { mode: self.mode, network: self.network }
    }

    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the directories in which the modes `workspace` and `network` allow writes. The workspace is first.
    pub fn writable_roots(&self) -> Vec<PathBuf> {
        let mut roots = vec![self.workspace.clone(), path::resolve(Path::new("/tmp"))];
        roots.extend(self.writable.iter().cloned());
        roots
    }

    /// Returns the paths to hide. haft's own data, configuration and caches and the protected paths are hidden in every
    /// mode; the user's secrets are hidden except in `full`.
    pub(crate) fn hidden(&self) -> Vec<PathBuf> {
        let mut hidden = vec![self.home.data(), self.home.config(), self.home.caches()];
        hidden.extend(self.protected.iter().cloned());
        match self.mode {
            SandboxMode::Workspace | SandboxMode::Network => {
                hidden.extend(self.secrets.iter().chain(&self.operator_secrets).cloned());
            }
            SandboxMode::Full => {}
        }
        match self.neighbours {
            NeighbourVisibility::Visible => {}
            // A private `/tmp` needs mounts, and these mounts hide haft's whole home, so the other workspaces need not
            // be listed. A server has too many workspaces to list them for each command, and each new workspace would
            // change the fingerprint of the plan.
            NeighbourVisibility::Hidden if self.tmp.is_some() => {}
            NeighbourVisibility::Hidden => add_neighbours(&self.home.workspace(), &self.own(), &mut hidden),
        }
        hidden
    }

    /// Returns true if the path is in another workspace in haft's home, even if that workspace does not exist.
    pub(crate) fn is_neighbour(&self, path: &Path) -> bool {
        self.neighbours == NeighbourVisibility::Hidden
            && is_within(path, &self.home.workspace())
            && !self.own().iter().any(|own| is_within(path, own) || is_within(own, path))
    }

    /// Returns true if the path is in the covered home directory, but not in the policy's own directories or in haft's
    /// readable directories.
    pub(crate) fn is_in_covered_home(&self, path: &Path) -> bool {
        let readable = self.readable_of_home().iter().map(|name| self.home.root().join(name));
        let visible: Vec<PathBuf> = self.own().into_iter().chain(readable).collect();
        self.covered_home.as_ref().is_some_and(|home| is_within(path, home))
            && !visible.iter().any(|own| is_within(path, own) || is_within(own, path))
    }

    /// Returns the directories in haft's home that commands may read. A policy that hides other workspaces belongs to
    /// a principal that must not read the operator's agents. Skills stay readable: the server shows their texts to every
    /// key, and their MCP servers may be programs in their directories.
    pub(crate) fn readable_of_home(&self) -> &'static [&'static str] {
        match self.neighbours {
            NeighbourVisibility::Visible => &Home::READABLE,
            NeighbourVisibility::Hidden => &["skills"],
        }
    }

    /// Returns the directories that belong to this policy.
    pub(crate) fn own(&self) -> Vec<PathBuf> {
        [vec![self.workspace.clone()], self.writable.clone()].concat()
    }

    /// Returns the directories whose repositories are protected: the workspace, and the other directories that the
    /// operator granted. Server caches are not included, because package managers configure the repositories that they
    /// download.
    pub fn granted_by_operator(&self) -> Vec<PathBuf> {
        let caches = self.home.caches();
        self.own().into_iter().filter(|own| !is_within(own, &caches)).collect()
    }

    /// Rejects a directory below `/tmp` if the command sees a different `/tmp`.
    fn refuse_in_tmp(&self, directory: &Path) -> Result<(), PolicyError> {
        let is_hidden = self.tmp.is_some() && is_within(directory, &path::resolve(Path::new("/tmp")));
        if is_hidden { Err(PolicyError::InPrivateTmp { path: directory.into() }) } else { Ok(()) }
    }

    /// Rejects a directory that contains, or is inside, haft's home or a secret, because a grant covers everything
    /// below it. Only the workspace inside haft's home may be granted, and the user's home directory if the operator
    /// allows it.
    fn refuse_exposing(&self, directory: &Path) -> Result<(), PolicyError> {
        let path = directory.to_path_buf();
        if directory == Path::new("/") {
            return Err(PolicyError::WholeFileSystem);
        }
        let home = self.home.root();
        let contains =
            |path: &Path| self.home_workspace.as_deref() != Some(directory) && is_within(path, directory);
        let inside_home = is_within(directory, home) && !is_within(directory, &self.home.workspace());
        if contains(home) || inside_home {
            return Err(PolicyError::ExposesHome { path, home: home.into() });
        }
        match self.secrets.iter().find(|secret| contains(secret) || is_within(directory, secret)) {
            Some(secret) => Err(PolicyError::ExposesSecret { path, secret: secret.clone() }),
            None => Ok(()),
        }
    }
}

/// Returns the secrets list of the previous policy in this process if it is equal to `secrets`, so that both policies
/// share one list.
fn shared(secrets: Vec<PathBuf>) -> Arc<Vec<PathBuf>> {
    static LAST: Mutex<Option<Arc<Vec<PathBuf>>>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some(last) if **last == secrets => Arc::clone(last),
        Some(_) | None => Arc::clone(last.insert(Arc::new(secrets))),
    }
}

/// Adds the entries of a directory that do not belong to the policy. A directory that contains the policy's workspace
/// is not added, but its other entries are.
fn add_neighbours(directory: &Path, own: &[PathBuf], hidden: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if own.contains(&path) {
            continue;
        }
        if own.iter().any(|own| is_within(own, &path)) {
            add_neighbours(&path, own, hidden);
        } else {
            hidden.push(path);
        }
    }
}

fn existing_directory(path: &Path) -> Result<PathBuf, PolicyError> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => PolicyError::Missing { path: path.into() },
        _ => PolicyError::Unreadable { path: path.into(), reason: error.to_string() },
    })?;
    if real.is_dir() { Ok(real) } else { Err(PolicyError::NotADirectory { path: path.into() }) }
}

/// The reasons why a policy cannot be built. The text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("directory `{}` does not exist", .path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is not a directory", .path.display())]
    NotADirectory { path: PathBuf },
    #[error("haft cannot use directory `{}`: {reason}", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("haft cannot grant access to `/`, the whole file system; choose a directory")]
    WholeFileSystem,
    /// The directory is in `/tmp`, which the command does not see.
    #[error("directory `{}` lies in /tmp, but commands of this run have a private /tmp; choose a directory outside /tmp", .path.display())]
    InPrivateTmp { path: PathBuf },
    #[error("access to `{}` would expose haft's own home `{}`", .path.display(), .home.display())]
    ExposesHome { path: PathBuf, home: PathBuf },
    #[error("access to `{}` would expose the secret `{}`; to allow this, add the path of the secret to `sandbox.readable`", .path.display(), .secret.display())]
    ExposesSecret { path: PathBuf, secret: PathBuf },
}

#[cfg(test)]
mod tests;
