//! The number and size of all entries, in a file that also serves as the lock of the cache.
//!
//! Without it, each `put` would have to look at every file to keep the limits.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The name of the file, beside the directories of tenants.
const NAME: &str = "usage.json";

/// The longest text that is read. The file holds three numbers.
const TEXT_BYTES_MAX: u64 = 4096;

/// A process holds the lock for about a millisecond. One that holds it for longer than all tries is stopped or sweeps.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The entries of all tenants together. A sweep counts them again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CacheUsage {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// The time of the last sweep by any process.
    pub(super) swept_ms: u64,
}

/// The time between two sweeps of all processes together.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

impl CacheUsage {
    pub(super) fn with(self, bytes: u64) -> Self {
        Self { entries: self.entries + 1, bytes: self.bytes.saturating_add(bytes), ..self }
    }

    pub(super) fn without(self, bytes: u64) -> Self {
        let entries = self.entries.saturating_sub(1);
        Self { entries, bytes: self.bytes.saturating_sub(bytes), ..self }
    }

    /// Returns true if the last sweep is recent. One in the future was made under a wrong clock.
    pub(super) fn is_recent(&self, now_ms: u64) -> bool {
        let since = now_ms.checked_sub(self.swept_ms).map(Duration::from_millis);
        since.is_some_and(|since| since < SWEEP_INTERVAL)
    }
}

/// The lock of the cache. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct UsageFile(File);

impl UsageFile {
    /// Waits for the lock a short time; `None` if another process keeps it.
    pub(super) fn lock(root: &Path) -> io::Result<Option<Self>> {
        let path = root.join(NAME);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        for _ in 0..LOCK_TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self(file))),
                Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns `None` for a new file, and for one that a crash left incomplete. The caller then counts.
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
