//! Decides when a process sweeps, and removes files that have not changed for some time.

use std::collections::HashMap;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The time of the last sweep of each directory. It belongs to the process and not to a store, because a server opens
/// one store per session and would otherwise sweep once per session.
static SWEEPS: Mutex<Option<HashMap<PathBuf, Instant>>> = Mutex::new(None);

/// Returns true at most once per interval and directory. The caller then sweeps.
pub fn is_due(directory: &Path, interval: Duration) -> bool {
    let mut sweeps = SWEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let sweeps = sweeps.get_or_insert_default();
    let now = Instant::now();
    if sweeps.get(directory).is_some_and(|last| now.duration_since(*last) < interval) {
        return false;
    }
    sweeps.insert(directory.to_owned(), now);
    true
}

/// Removes the files that have not changed for longer than `keep`.
pub(crate) fn remove_unchanged(files: impl Iterator<Item = DirEntry>, keep: Duration, now: SystemTime) {
    for file in files {
        let changed = file.metadata().and_then(|meta| meta.modified()).ok();
        if changed.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|age| age > keep) {
            // Ignore a failure: the next sweep tries again.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Removes the directories below `root` to which no entry was added for longer than `keep`.
pub fn remove_unused_directories(root: &Path, keep: Duration, now: SystemTime) {
    for directory in entries(root) {
        let changed =
            directory.metadata().ok().filter(fs::Metadata::is_dir).and_then(|meta| meta.modified().ok());
        if changed.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|age| age > keep) {
            let _ = fs::remove_dir_all(directory.path());
        }
    }
}

/// Lists the entries of a directory; none if it cannot be read.
pub(crate) fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_without_a_new_entry_are_removed_with_their_content() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("one/below")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let hour = Duration::from_hours(1);
        remove_unused_directories(root.path(), hour, SystemTime::now());
        assert!(root.path().join("one/below").exists());
        remove_unused_directories(root.path(), hour, SystemTime::now() + 2 * hour);
        assert!(!root.path().join("one").exists() && root.path().join("file").exists());
    }

    #[test]
    fn sweep_of_each_directory_is_due_once_per_interval() {
        let hour = Duration::from_hours(1);
        let (one, other) = (Path::new("/sweep-interval/one"), Path::new("/sweep-interval/other"));
        assert!(is_due(one, hour));
        assert!(!is_due(one, hour));
        assert!(is_due(other, hour));
        assert!(is_due(one, Duration::ZERO), "the interval has passed");
    }
}
