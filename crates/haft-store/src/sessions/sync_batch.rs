//! Syncs the journals of ended runs together.
//!
//! A sync of a new file can make the file system write its own journal, which may take longer than a short run. The
//! first sync of a batch does this for all its files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for which a batch collects the journals of ended runs before it syncs them. If the machine crashes within
/// this time, the final records of these runs may be lost.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of journals in a batch. The batch is synced early when it is full.
const BATCH_FILES_MAX: usize = 4096;

/// The batch of journals that are synced next. Clones share the batch.
#[derive(Debug, Clone, Default)]
pub struct SyncBatch(Arc<Mutex<BatchState>>);

#[derive(Debug, Default)]
struct BatchState {
    files: BTreeSet<PathBuf>,
    /// True while a task waits for the end of the interval.
    is_timed: bool,
}

/// The work that the caller must do after it has added a file to the batch.
#[derive(Debug, PartialEq, Eq)]
enum BatchStep {
    /// Nothing: a task already waits for the end of the interval.
    Wait,
    StartTimer,
    SyncNow,
}

impl BatchState {
    fn add(&mut self, file: PathBuf) -> BatchStep {
        self.files.insert(file);
        if self.files.len() >= BATCH_FILES_MAX {
            return BatchStep::SyncNow;
        }
        if std::mem::replace(&mut self.is_timed, true) { BatchStep::Wait } else { BatchStep::StartTimer }
    }
}

impl SyncBatch {
    /// Syncs a file and its directory at the end of the interval. Must be called inside a tokio runtime.
    pub(super) fn add(&self, file: PathBuf) {
        let step = self.state().add(file);
        let batch = self.clone();
        match step {
            BatchStep::Wait => {}
            BatchStep::StartTimer => drop(tokio::spawn(async move {
                tokio::time::sleep(BATCH_INTERVAL).await;
                batch.state().is_timed = false;
                batch.sync().await;
            })),
            BatchStep::SyncNow => drop(tokio::spawn(async move { batch.sync().await })),
        }
    }

    /// Syncs all files of the batch now.
    pub async fn sync(&self) {
        let files = std::mem::take(&mut self.state().files);
        if !files.is_empty() {
            // Ignore a failure: the runs have ended, and nothing depends on their journals.
            let _ = tokio::task::spawn_blocking(move || sync_all(&files)).await;
        }
    }

    /// Returns the files that wait for the sync.
    #[cfg(test)]
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.state().files.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs every file, then every directory once. A file that was removed in the meantime needs no sync.
fn sync_all(files: &BTreeSet<PathBuf>) {
    for file in files {
        let _ = File::open(file).and_then(|file| file.sync_data());
    }
    let directories: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    for directory in directories {
        let _ = sync_directory(directory);
    }
}

/// Makes the entries of a directory durable. Otherwise, a new file may be missing after a crash of the machine.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sync_batch_is_synced_at_once() {
        let mut batch = BatchState::default();
        assert_eq!(batch.add("0".into()), BatchStep::StartTimer);
        for number in 1..BATCH_FILES_MAX - 1 {
            assert_eq!(batch.add(number.to_string().into()), BatchStep::Wait);
        }
        assert_eq!(batch.add("1".into()), BatchStep::Wait, "a file already in the batch waits");
        assert_eq!(batch.add("last".into()), BatchStep::SyncNow);
    }

    #[tokio::test]
    async fn sync_ignores_removed_files() {
        let directory = tempfile::tempdir().unwrap();
        let (kept, removed) = (directory.path().join("kept"), directory.path().join("gone/removed"));
        std::fs::write(&kept, "x").unwrap();
        let batch = SyncBatch::default();
        batch.add(kept);
        batch.add(removed);
        batch.sync().await;
        assert!(batch.files().is_empty());
    }
}
