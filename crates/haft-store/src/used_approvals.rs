//! Marks for used approvals, so that no approval is used twice: one small file for each approval. They are needed for
//! runs that are not stored.
//!
//! The name of a file is a keyed digest of the approval, and its content is the time until which the mark is needed. A
//! file therefore says nothing about the run, the principal or the call.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use haft_core::home::Home;
use haft_fs::private_file;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::sweep::{self, SweepPace};

/// The size of the key of the digests, in bytes.
pub const MARK_KEY_BYTES: usize = 32;

/// The name of the file with the key, which is in the same directory as the marks.
const KEY_FILE: &str = "key";

/// The files of all marks.
#[derive(Debug, Clone)]
pub struct UsedApprovalStore {
    directory: PathBuf,
}

impl UsedApprovalStore {
    /// Returns the store in haft's home directory. The first mark creates the directory and the key.
    pub fn of(home: &Home) -> Self {
        Self { directory: home.data().join("approvals-used") }
    }

    /// Returns the key of the digests. Creates it if there is none.
    pub fn key(&self) -> io::Result<[u8; MARK_KEY_BYTES]> {
        let path = self.directory.join(KEY_FILE);
        if !path.try_exists()? {
            self.create_key(&path)?;
        }
        let bytes = fs::read(&path)?;
        // Do not replace a damaged key: the digests of a new key would match no mark.
        let damaged =
            |_| io::Error::other(format!("the key file {} must have {MARK_KEY_BYTES} bytes", path.display()));
        bytes.try_into().map_err(damaged)
    }

    fn create_key(&self, path: &Path) -> io::Result<()> {
        private_file::create_dir_all(&self.directory)?;
        let mut key = [0; MARK_KEY_BYTES];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&key)?;
        file.as_file().sync_all()?;
        // If another process has created a key in the meantime, use the key of that process.
        match file.persist_noclobber(path) {
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
            _ => self.sync_directory(),
        }
    }

    /// Adds a mark, and returns when it is on the disk. Returns false if the mark existed before, even if another
    /// process added it.
    pub fn add(&self, digest: &str, expires_ms: u64) -> io::Result<bool> {
        let path = self.directory.join(digest);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                // Remove a mark whose expiry time could not be written, for example on a full disk: such a mark would
                // never expire.
                let written = self.write_time(file, expires_ms).inspect_err(|_| drop(fs::remove_file(&path)));
                written.map(|()| true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write_time(&self, mut mark: File, expires_ms: u64) -> io::Result<()> {
        mark.write_all(expires_ms.to_string().as_bytes())?;
        mark.sync_all()?;
        self.sync_directory()
    }

    /// Removes the mark of an approval whose run did not start.
    pub fn remove(&self, digest: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(digest))
    }

    /// Returns the number of marks.
    pub fn count(&self) -> io::Result<usize> {
        Ok(self.marks()?.len())
    }

    /// Removes the marks that expired before this time. Keeps a mark whose time cannot be read, because another process
    /// may be writing the mark.
    pub fn sweep(&self, now_ms: u64) -> io::Result<()> {
        let mut pace = SweepPace::default();
        for path in self.marks()? {
            pace.step();
            let expires_ms = fs::read_to_string(&path).ok().and_then(|text| text.parse::<u64>().ok());
            if expires_ms.is_some_and(|expires_ms| expires_ms < now_ms) {
                // Ignore a failure: the next sweep tries again.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    fn marks(&self) -> io::Result<Vec<PathBuf>> {
        let entries = sweep::list(&self.directory)?.into_iter();
        Ok(entries.filter(|entry| entry.file_name() != KEY_FILE).map(|entry| entry.path()).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn used_approval_mark_is_visible_to_other_processes_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        let [store, other] = [(); 2].map(|()| UsedApprovalStore::of(&Home::at(directory.path())));
        assert_eq!(store.count().unwrap(), 0);
        assert_eq!(store.key().unwrap(), other.key().unwrap());
        assert!(store.add("a", 10).unwrap() && store.add("b", 20).unwrap());
        assert!(!other.add("a", 99).unwrap());
        other.sweep(10).unwrap();
        assert_eq!(store.count().unwrap(), 2);
        other.sweep(11).unwrap();
        assert!(!store.add("b", 20).unwrap() && store.add("a", 30).unwrap());
        store.remove("b").unwrap();
        assert!(other.add("b", 20).unwrap());
        for entry in fs::read_dir(&store.directory).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn damaged_key_is_an_error_and_unreadable_approval_mark_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = UsedApprovalStore::of(&Home::at(directory.path()));
        store.key().unwrap();
        fs::write(store.directory.join("a"), "").unwrap();
        store.sweep(u64::MAX).unwrap();
        assert_eq!(store.count().unwrap(), 1);
        fs::write(store.directory.join(KEY_FILE), "short").unwrap();
        assert!(store.key().unwrap_err().to_string().contains("approvals-used/key"));
    }
}
