//! The directory that is haft's own, and what in it a tool may touch.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::path;

/// `$HAFT_HOME`. Its `data` and its configuration are never shown to a tool; only `workspace` is writable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    pub fn at(root: &Path) -> Self {
        Self { root: path::resolve(root) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Database, sessions, approvals, tokens, outputs.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub fn config(&self) -> PathBuf {
        self.root.join("haft.json")
    }

    /// The default workspace of servers and services, and the only place of home that tools write.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where one server keeps what it downloads. The name is a single component, whatever it says.
    pub fn cache(&self, name: &str) -> PathBuf {
        let name: String = name.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
        let name = if name.chars().all(|c| c == '.') { "_".to_owned() } else { name };
        self.root.join("cache").join(name)
    }

    /// Sub-directories a tool may read.
    pub(crate) const READABLE: [&'static str; 3] = ["agents", "cache", "skills"];

    /// Makes home and its data directory, readable by their owner alone.
    ///
    /// A name can only be masked where something is: a home that does not exist yet, below a directory that a
    /// tool may write, would be the tool's to make.
    pub fn create(&self) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.data())
    }
}
