//! Lock files, which are removed when their holder releases them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use haft_fs::{file_lock, private_file};

/// A locked file. Dropping it removes the file and releases the lock; the kernel releases the lock of a killed process.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
}

impl LockFile {
    /// Locks the file at `path`; returns `None` while another holder has the lock.
    pub(crate) fn try_lock(path: &Path) -> io::Result<Option<Self>> {
        private_file::create_parent_dir(path)?;
        let file = file_lock::open_lock_file(path)?;
        if !file_lock::try_lock(&file).unwrap_or(false) {
            return Ok(None);
        }
        let lock = Self { file, path: path.to_owned() };
        // The previous holder may have removed the file after this process opened it. A lock on a removed file excludes
        // no other process.
        Ok(lock.is_in_place().then_some(lock))
    }

    /// Locks the file at `path`, and waits while another holder has the lock.
    pub(crate) fn lock(path: &Path) -> io::Result<Self> {
        private_file::create_parent_dir(path)?;
        loop {
            let file = file_lock::open_lock_file(path)?;
            file.lock()?;
            let lock = Self { file, path: path.to_owned() };
            // The previous holder may have removed the file while this process waited. Then try again, because a lock
            // on a removed file excludes no other process.
            if lock.is_in_place() {
                return Ok(lock);
            }
        }
    }

    /// Locks a new file and moves it to `path`, in place of the lock file of another holder.
    pub(crate) fn replace(path: &Path) -> io::Result<Self> {
        let temporary = path.with_extension(uuid::Uuid::new_v4().to_string());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file_lock::try_lock(&file)?;
        fs::rename(&temporary, path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Returns true while a process holds the lock of the file at `path`. Removes a file that a killed process left.
    pub(crate) fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        if !file_lock::try_lock(&file).unwrap_or(false) {
            return true;
        }
        drop(Self { file, path: path.to_owned() });
        false
    }

    fn is_in_place(&self) -> bool {
        let inode = |meta: io::Result<fs::Metadata>| meta.ok().map(|meta| meta.ino());
        inode(self.file.metadata()) == inode(self.path.metadata())
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.is_in_place() {
            // Ignore a failure: the file is unlocked, and the next holder removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_has_one_holder_at_a_time_and_is_then_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/x.lock");
        let first = LockFile::try_lock(&path).unwrap().unwrap();
        assert!(LockFile::try_lock(&path).unwrap().is_none() && LockFile::is_held(&path));
        drop(first);
        assert!(!path.exists() && !LockFile::is_held(&path));
        let second = LockFile::try_lock(&path).unwrap().unwrap();
        let third = LockFile::replace(&path).unwrap();
        drop(second);
        assert!(LockFile::is_held(&path), "a replaced holder does not remove the new lock file");
        drop(third);
        fs::write(&path, "").unwrap();
        assert!(!LockFile::is_held(&path) && !path.exists(), "the lock file of a killed process is removed");
    }

    #[test]
    fn two_threads_never_hold_the_lock_at_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 50 {
                        let locked = match taken % 2 {
                            0 => LockFile::try_lock(&path).unwrap(),
                            _ => LockFile::lock(&path).map(Some).unwrap(),
                        };
                        let Some(lock) = locked else { continue };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        taken += 1;
                        drop(lock);
                    }
                });
            }
        });
    }
}
