//! The directory of one provider that runs the `claude` command. It holds the sessions of the command.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use haft_sandbox::Home;

/// The file with the user's login. The command updates it in place.
pub(super) const LOGIN: &str = ".credentials.json";

/// The files of the user's configuration that the command reads. The command can change only the login file.
const LINKED: [&str; 10] = [
    LOGIN,
    "CLAUDE.md",
    "agents",
    "commands",
    "output-styles",
    "plugins",
    "rules",
    "settings.json",
    "settings.local.json",
    "skills",
];

/// The prefix of the directory names. Cache directories of MCP servers are in the same parent directory, but their
/// names never begin with a dot.
const PREFIX: &str = ".claude-code-";

/// An open directory in haft's cache. Dropping it removes the directory.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    /// The lock on the directory. The kernel releases it when this process ends, so that other processes know that the
    /// directory is abandoned.
    _lock: File,
}

/// The name of a directory that this process is about to create in the cache. While the claim exists, no other process
/// removes abandoned directories. Otherwise another process could remove the new directory before this process has
/// locked it.
#[derive(Debug)]
pub(super) struct DirectoryClaim {
    pub(super) name: String,
    _all: File,
}

impl DirectoryClaim {
    /// Removes the directories of processes that were killed, and chooses a name for a new one.
    pub(super) fn new(home: &Home) -> io::Result<Self> {
        let caches = home.caches();
        fs::create_dir_all(&caches)?;
        let all = File::open(&caches)?;
        all.lock()?;
        remove_abandoned(&caches);
        Ok(Self { name: format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()), _all: all })
    }
}

impl RunDirectory {
    /// Opens and locks the directory that was created for the claim.
    pub(super) fn open(home: &Home, claim: &DirectoryClaim) -> io::Result<Self> {
        let path = home.cache(&claim.name);
        let lock = File::open(&path)?;
        lock.try_lock().map_err(io::Error::from)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates links in the directory to the files of the user's configuration.
    pub(super) fn link_configuration(&self, users: &Path) -> io::Result<()> {
        let users = users.canonicalize()?;
        let mut present = LINKED.iter().filter(|name| users.join(name).exists());
        present.try_for_each(|name| symlink(users.join(name), self.path.join(name)))
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories that no process has locked. They contain conversations.
fn remove_abandoned(caches: &Path) {
    for entry in fs::read_dir(caches).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let path = entry.path();
        if is_ours && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let made = |name: &str| {
            fs::create_dir_all(home.cache(name)).unwrap();
            home.cache(name)
        };
        let claim = DirectoryClaim::new(&home).unwrap();
        made(&claim.name);
        let used = RunDirectory::open(&home, &claim).unwrap();
        drop(claim);
        let abandoned = made(&DirectoryClaim::new(&home).unwrap().name);
        fs::write(abandoned.join("session.jsonl"), "text").unwrap();
        let server = made("claude-code-server");
        drop(DirectoryClaim::new(&home).unwrap());
        assert!(used.path().exists() && server.exists() && !abandoned.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
