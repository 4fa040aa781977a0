//! Sweeps: decides when a process removes old files, and removes files that have not changed for some time.

use std::collections::HashMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::tree::{named, remove_tree};

/// The number of files that a sweep visits before it pauses.
const STEP_FILES: usize = 256;

/// The pause between two steps. It limits a sweep to a few percent of one core.
pub(crate) const STEP_PAUSE: Duration = Duration::from_millis(10);

/// Pauses a sweep after each step.
#[derive(Debug, Default)]
pub struct SweepPace {
    files: usize,
    paused: Duration,
}

impl SweepPace {
    /// Counts one file, and pauses at the end of a step.
    pub(crate) fn step(&mut self) {
        self.files += 1;
        if self.files.is_multiple_of(STEP_FILES) {
            thread::sleep(STEP_PAUSE);
            self.paused += STEP_PAUSE;
        }
    }

    /// Returns the time of all pauses, in which the sweep used neither the processor nor the disk.
    pub fn paused(&self) -> Duration {
        self.paused
    }
}

/// The time of the last sweep of each directory. It belongs to the process and not to a store, because a server opens
/// one store per session and would otherwise sweep once per session.
static SWEEPS: Mutex<Option<HashMap<PathBuf, Instant>>> = Mutex::new(None);

/// Returns true at most once per interval and directory. The caller sweeps the directory if the result is true.
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
pub(crate) fn remove_unused_directories(root: &Path, keep: Duration, now: SystemTime) {
    let mut pace = SweepPace::default();
    for directory in entries(root) {
        let changed =
            directory.metadata().ok().filter(fs::Metadata::is_dir).and_then(|meta| meta.modified().ok());
        if changed.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|age| age > keep) {
            // Ignore a failure: the next sweep tries again.
            let _ = remove_tree(&directory.path(), &mut pace);
        }
    }
}

/// Lists the entries of a directory; none if it cannot be read.
pub(crate) fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

/// Lists the entries of a directory; none if it does not exist. Returns an error if it cannot be read, because a caller
/// that handles all data of an owner must not overlook any.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.and_then(Iterator::collect).map_err(|error| named(directory, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_directories_without_a_new_entry() {
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
        assert!(is_due(one, Duration::ZERO), "a sweep is due after the interval");
    }
}
