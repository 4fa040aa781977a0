//! The number and total size of all entries, in a file whose lock is also the lock of the cache.
//!
//! Without this file, each `put` would have to examine every file to enforce the limits.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use haft_fs::file_lock;
use serde::{Deserialize, Serialize};

/// The name of the usage file, which is next to the directories of the tenants.
const NAME: &str = "usage.json";

/// The maximum number of bytes that are read. The file contains three numbers.
const TEXT_BYTES_MAX: u64 = 4096;

/// The maximum wait for the lock. A process holds it for about a millisecond, unless it is stopped or sweeps.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(100);

/// The number and size of the cached entries of all tenants. A sweep counts the entries again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CacheUsage {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// The time of the last sweep by any process.
    pub(super) swept_ms: u64,
}

/// The minimum time between two sweeps, over all processes.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

impl CacheUsage {
    pub(super) fn with(self, bytes: u64) -> Self {
        Self { entries: self.entries + 1, bytes: self.bytes.saturating_add(bytes), ..self }
    }

    pub(super) fn without(self, bytes: u64) -> Self {
        let entries = self.entries.saturating_sub(1);
        Self { entries, bytes: self.bytes.saturating_sub(bytes), ..self }
    }

    /// Returns true if the last sweep is recent. Ignores a time in the future, which comes from a wrong clock.
    pub(super) fn is_recent(&self, now_ms: u64) -> bool {
        let since = now_ms.checked_sub(self.swept_ms).map(Duration::from_millis);
        since.is_some_and(|since| since < SWEEP_INTERVAL)
    }
}

/// The lock of the cache. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct UsageFile(File);

impl UsageFile {
    /// Waits a short time for the lock; returns `None` if another process holds it.
    pub(super) fn lock(root: &Path) -> io::Result<Option<Self>> {
        let file = file_lock::open_lock_file(&root.join(NAME))?;
        Ok(file_lock::lock_within(&file, LOCK_WAIT_MAX)?.then_some(Self(file)))
    }

    /// Returns `None` for a new file, and for a file that a crash left incomplete. The caller then counts the entries.
    pub(super) fn read(&mut self) -> Option<CacheUsage> {
        let mut text = String::new();
        self.0.seek(SeekFrom::Start(0)).ok()?;
        (&self.0).take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(super) fn write(&mut self, usage: CacheUsage) -> io::Result<()> {
        let text = serde_json::to_vec(&usage)?;
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(&text)
    }
}
