//! haft's home directory, and its parts that a tool may read or write.

use std::path::{Path, PathBuf};

/// The home directory of haft, `$HAFT_HOME`. Tools can never read its `data` directory and its configuration. They can
/// write only to its `workspace` and to the cache of their own server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// Creates the value for this path. It keeps the path unchanged; the sandbox resolves symbolic links when it makes
    /// a policy.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the home directory, as it was given to [`at`](Self::at).
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of sessions, approvals, tokens, accounting, outputs and cached outputs.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Returns the path of the operator's configuration file. The file may not exist.
    pub fn config(&self) -> PathBuf {
        self.root.join("haft.json")
    }

    /// Returns the default workspace of servers and services. Tools may write to it.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Returns the download cache of one server. The server name becomes a single path component.
    pub fn cache(&self, name: &str) -> PathBuf {
        let name: String = name.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
        let name = if name.chars().all(|c| c == '.') { "_".to_owned() } else { name };
        self.caches().join(name)
    }

    /// Returns the directory that contains all caches. A process sees only its own cache.
    pub fn caches(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Returns the directory that contains the caches of principals other than the local user. No server has a cache of
    /// this name, because the name of a server contains no dot.
    pub fn tenant_caches(&self) -> PathBuf {
        self.caches().join(".tenants")
    }

    /// Returns the directory whose subdirectories replace `/tmp` for commands of principals other than the local user,
    /// one per principal.
    pub fn private_tmps(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The subdirectories of haft's home directory that a tool may read but not write.
    pub const READABLE: [&'static str; 2] = ["agents", "skills"];
}
