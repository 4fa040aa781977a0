//! The caches of the MCP servers that work for principals other than the local user: one directory for each principal,
//! with a subdirectory for each server.
//!
//! Principals share no cache, because a server executes programs from its cache: a server that works for one principal
//! could plant code that then runs for another. The modification time of the directory is the last use. Its lock is
//! shared by the servers that use it, and no server can open the directory itself, only its own subdirectory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::file_lock;

use crate::sweep::{self, SweepPace};
use crate::tenant::directory_of;
use crate::workspaces::{remove_retired, rename_retired};

/// The caches of all principals except the local user.
#[derive(Debug, Clone)]
pub struct ServerCaches {
    root: PathBuf,
}

/// The caches of one principal. No sweep removes them while the lock exists.
#[derive(Debug)]
pub struct OpenCaches {
    /// The directory in which each server has its own subdirectory.
    pub directory: PathBuf,
    pub lock: File,
}

impl ServerCaches {
    pub fn of(home: &Home) -> Self {
        Self { root: home.tenant_caches() }
    }

    /// Opens the caches of a principal, and creates their directory if it does not exist.
    pub fn open(&self, owner: &Principal) -> io::Result<OpenCaches> {
        let directory = self.directory(owner);
        loop {
            fs::create_dir_all(&directory)?;
            let lock = match File::open(&directory) {
                // A sweep has renamed the directory in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            // A sweep holds the lock only while it renames the directory.
            lock.lock_shared()?;
            if is_at(&lock, &directory)? {
                lock.set_modified(SystemTime::now())?;
                return Ok(OpenCaches { directory, lock });
            }
        }
    }

    /// Removes the caches that no server has used for this time.
    pub fn sweep(&self, keep: Duration, now: SystemTime, pace: &mut SweepPace) {
        for tenant in sweep::entries(&self.root) {
            for owner in sweep::entries(&tenant.path()) {
                // Ignore a failure: the next sweep tries again.
                let _ = retire(&owner.path(), keep, now);
                pace.step();
            }
            remove_retired(&tenant.path(), pace);
        }
    }

    pub(crate) fn directory(&self, owner: &Principal) -> PathBuf {
        self.root.join(directory_of(owner.tenant())).join(directory_of(owner.subject()))
    }
}

/// Renames an unused directory, so that a new server begins with an empty cache and need not wait for the removal.
fn retire(directory: &Path, keep: Duration, now: SystemTime) -> io::Result<()> {
    let file = File::open(directory)?;
    // A use in the future counts as recent, because it means that the clock was set back.
    let is_recent = now.duration_since(file.metadata()?.modified()?).map_or(true, |age| age <= keep);
    if is_recent || !file_lock::try_lock(&file)? {
        return Ok(());
    }
    rename_retired(directory)
}

/// Returns true if the path still leads to the open directory.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.ino() == file.metadata()?.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn each_principal_has_its_own_caches_which_expire_when_no_server_uses_them() {
        let directory = tempfile::tempdir().unwrap();
        let caches = ServerCaches::of(&Home::at(directory.path()));
        let open = |tenant, subject| caches.open(&Principal::new(tenant, subject, "k")).unwrap();
        let (anna, bert, other) = (open("acme", "anna"), open("acme", "bert"), open("other", "anna"));
        let paths = [&anna, &bert, &other].map(|open| open.directory.clone());
        assert!(paths[0] != paths[1] && paths[0] != paths[2] && paths[1] != paths[2], "{paths:?}");
        fs::create_dir_all(paths[0].join("docs/npm")).unwrap();
        drop((anna, bert));
        caches.sweep(HOUR, SystemTime::now(), &mut SweepPace::default());
        assert!(paths.iter().all(|path| path.exists()), "caches used in the last hour are kept");
        caches.sweep(HOUR, SystemTime::now() + 2 * HOUR, &mut SweepPace::default());
        assert!(!paths[0].exists() && !paths[1].exists());
        assert_eq!(sweep::entries(paths[0].parent().unwrap()).count(), 0, "no file is left");
        assert!(paths[2].exists(), "a cache in use is kept");
    }
}
