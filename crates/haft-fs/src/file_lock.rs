//! Advisory locks between processes (`flock(2)`). The kernel releases the lock of a file when the file is closed, even
//! if the process was killed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The delay between two attempts to take a lock.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Tries to take the lock of an open file or directory. Returns false while another process holds it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the lock, and waits for it at most `wait_max`. Returns false if another process still holds it after this
/// time. The wait is limited, because a process that was stopped while it held the lock must not block this process
/// forever.
pub fn lock_within(file: &File, wait_max: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + wait_max;
    loop {
        if try_lock(file)? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// Opens a lock file, and creates it with mode 0600 if it is missing. Does not take the lock.
pub fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_holder_gets_the_file_lock_only_after_the_first_closes_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.lock");
        let (first, second) = (open_lock_file(&path).unwrap(), open_lock_file(&path).unwrap());
        assert!(try_lock(&first).unwrap());
        assert!(!try_lock(&second).unwrap());
        assert!(!lock_within(&second, Duration::from_millis(20)).unwrap());
        drop(first);
        assert!(lock_within(&second, Duration::ZERO).unwrap());
    }
}
