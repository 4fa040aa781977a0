//! The directory that is haft's own, and which of its parts a tool may touch.

use std::path::{Path, PathBuf};

/// `$HAFT_HOME`. Tools never see its `data` and its configuration, and write only its `workspace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// Takes the path as it is given; the sandbox resolves symbolic links when it makes a policy.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the directory itself, as it was given to [`at`](Self::at).
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Sessions, approvals, tokens, accounting, outputs, cached outputs.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Returns the path of the operator's configuration file, which need not exist.
    pub fn config(&self) -> PathBuf {
        self.root.join("haft.json")
    }

    /// Returns the default workspace of servers and services, the only directory of home that tools may write.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Returns the download cache of one server. The name becomes a single path component.
    pub fn cache(&self, name: &str) -> PathBuf {
        let name: String = name.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
        let name = if name.chars().all(|c| c == '.') { "_".to_owned() } else { name };
        self.caches().join(name)
    }

    /// Returns the directory of all caches. A process sees only its own one.
    pub fn caches(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Returns the directory whose subdirectories replace `/tmp` for commands of principals other than the local user,
    /// one per principal.
    pub fn private_tmps(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Sub-directories that a tool may read.
    pub const READABLE: [&'static str; 2] = ["agents", "skills"];
}
