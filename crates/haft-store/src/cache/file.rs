//! Cached outputs in files: `cache/TENANT/DIGEST.json`, one per entry.
//!
//! The modification time of a file is the expiry time of its entry, so a sweep reads no file content. `put` enforces
//! the limits, and sweeps if no process has swept recently: processes like `haft call` end too soon to sweep in the
//! background.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use haft_core::cache_store::{CacheEntry, CacheKey, CacheLease, CacheLimits, CacheStore};
use haft_core::home::Home;
use haft_core::output_store::StoreError;
use haft_core::stored::StoredToolOutput;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

use super::clock_ms;
use super::usage::{CacheUsage, UsageFile};
use crate::lock_file::LockFile;
use crate::sweep;
use crate::tenant::directory_of;

/// The file store of cached outputs. The value holds only a path and limits, so clones and other processes may use the
/// same directory.
#[derive(Debug, Clone)]
pub struct FileCache {
    root: PathBuf,
    limits: CacheLimits,
}

/// The version of the cache file format. haft does not read files of other versions.
const VERSION: u32 = 1;

/// A full cache frees one eighth of each limit at once, so that most calls of `put` do not list the directory.
const FREED_PARTS: u64 = 8;

/// The minimum and the maximum pause between two checks of the lease of another process. The pauses double.
const LEASE_PAUSE_MIN: Duration = Duration::from_millis(2);
const LEASE_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The age above which a lease file must come from a killed process, because no call takes that long.
const LEASE_KEEP: Duration = Duration::from_hours(60 * 24);

/// The content of a cache file.
#[derive(Serialize, Deserialize)]
struct EntryFile {
    version: u32,
    expires_ms: u64,
    output: StoredToolOutput,
}

/// A cache file in a directory listing.
struct ListedEntry {
    path: PathBuf,
    bytes: u64,
    expires: SystemTime,
}

impl FileCache {
    pub fn of(home: &Home, limits: CacheLimits) -> Self {
        Self { root: home.data().join("cache"), limits }
    }

    /// Removes expired entries. If the cache exceeds its limits, also removes the entries that expire first. Does
    /// nothing while another process uses the cache.
    pub fn sweep(&self) {
        if !self.root.exists() {
            return;
        }
        let tenants = sweep::entries(&self.leases_root());
        let leases = tenants.flat_map(|tenant| sweep::entries(&tenant.path()));
        sweep::remove_unchanged(leases, LEASE_KEEP, SystemTime::now());
        if let Ok(Some(mut lock)) = UsageFile::lock(&self.root) {
            // Ignore a failure: the next sweep tries again.
            let _ = lock.write(self.sweep_locked(self.limits));
        }
    }

    fn get_now(&self, key: &CacheKey) -> io::Result<Option<CacheEntry>> {
        let opened = OpenOptions::new().read(true).custom_flags(NO_LINK).open(self.path(key));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = Vec::new();
        file.take(self.limits.bytes_max).read_to_end(&mut text)?;
        // A file that cannot be parsed is damaged or of another version.
        let entry = serde_json::from_slice::<EntryFile>(&text).ok();
        let entry = entry.filter(|entry| entry.version == VERSION && clock_ms() < entry.expires_ms);
        Ok(entry.map(|EntryFile { output, expires_ms, .. }| CacheEntry { output, expires_ms }))
    }

    fn put_now(&self, key: &CacheKey, entry: CacheEntry) -> io::Result<()> {
        let CacheEntry { output, expires_ms } = entry;
        let text = serde_json::to_vec(&EntryFile { version: VERSION, expires_ms, output })?;
        let (path, bytes) = (self.path(key), text.len() as u64);
        if bytes > self.limits.bytes_max || self.limits.entries_max == 0 {
            return Ok(());
        }
        private_file::create_parent_dir(&path)?;
        let Some(mut lock) = UsageFile::lock(&self.root)? else { return Ok(()) };
        // Add the entry to the totals before it is written, so that after a crash the totals are too high rather than
        // too low.
        let usage = self.with_room(lock.read(), &path, bytes);
        lock.write(usage.with(bytes))?;
        private_file::replace_unsynced_with_time(&path, &text, expiry(expires_ms))
    }

    /// Makes space for one more entry, and returns the usage of the cache without the entry at `path`. Sweeps if the
    /// totals are unknown or old, or if the entry does not fit.
    fn with_room(&self, known: Option<CacheUsage>, path: &Path, bytes: u64) -> CacheUsage {
        let CacheLimits { entries_max, bytes_max } = self.limits;
        let others = |usage: CacheUsage| match path.symlink_metadata() {
            Ok(meta) => usage.without(meta.len()),
            Err(_) => usage,
        };
        let fits = |usage: &CacheUsage| {
            usage.entries < entries_max && usage.bytes.saturating_add(bytes) <= bytes_max
        };
        let known = known.filter(|usage| usage.is_recent(clock_ms())).map(others);
        known.filter(fits).unwrap_or_else(|| {
            others(self.sweep_locked(CacheLimits {
                entries_max: entries_max - (entries_max / FREED_PARTS).max(1),
                bytes_max: bytes_max - (bytes_max / FREED_PARTS).max(bytes),
            }))
        })
    }

    /// Removes expired entries and entries beyond the limits, and counts the rest. Call this method only while holding
    /// the lock: it also removes files that a process left incomplete.
    fn sweep_locked(&self, limits: CacheLimits) -> CacheUsage {
        let now = SystemTime::now();
        let (mut kept, expired): (Vec<_>, Vec<_>) = self.listed().partition(|entry| now < entry.expires);
        expired.iter().for_each(ListedEntry::remove);
        kept.sort_unstable_by(|one, other| (one.expires, &one.path).cmp(&(other.expires, &other.path)));
        let mut usage = CacheUsage {
            entries: kept.len() as u64,
            bytes: kept.iter().map(|entry| entry.bytes).sum(),
            swept_ms: clock_ms(),
        };
        for entry in &kept {
            if usage.entries <= limits.entries_max && usage.bytes <= limits.bytes_max {
                break;
            }
            entry.remove();
            usage.entries -= 1;
            usage.bytes -= entry.bytes;
        }
        usage
    }

    fn listed(&self) -> impl Iterator<Item = ListedEntry> + use<> {
        let tenants = sweep::entries(&self.root).filter(|tenant| tenant.path().is_dir());
        tenants.flat_map(|tenant| sweep::entries(&tenant.path())).filter_map(|file| {
            let meta = file.metadata().ok()?;
            Some(ListedEntry { path: file.path(), bytes: meta.len(), expires: meta.modified().ok()? })
        })
    }

    /// Returns the directory of lock files. It is outside of the cache, because a sweep would treat lock files as
    /// expired entries and remove them.
    fn leases_root(&self) -> PathBuf {
        self.root.with_file_name("cache-leases")
    }

    fn lease_path(&self, key: &CacheKey) -> PathBuf {
        self.leases_root().join(directory_of(&key.tenant)).join(format!("{}.lock", key.call))
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.root.join(directory_of(&key.tenant)).join(format!("{}.json", key.call))
    }
}

impl ListedEntry {
    fn remove(&self) {
        // Ignore a failure: the next sweep tries again.
        let _ = fs::remove_file(&self.path);
    }
}

/// `O_NOFOLLOW`, because the cache itself never creates links.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn expiry(expires_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(expires_ms)).unwrap_or(UNIX_EPOCH)
}

impl CacheStore for FileCache {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<CacheEntry>, StoreError>> {
        let this = self.clone();
        Box::pin(async move { blocking(move || this.get_now(&key)).await })
    }

    fn put(&self, key: CacheKey, entry: CacheEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        let this = self.clone();
        Box::pin(async move { blocking(move || this.put_now(&key, entry)).await })
    }

    fn lease(&self, key: CacheKey) -> BoxFuture<'_, Result<CacheLease, StoreError>> {
        let path = self.lease_path(&key);
        Box::pin(async move {
            let mut pause = LEASE_PAUSE_MIN;
            loop {
                let locked = LockFile::try_lock(&path);
                let locked = locked.map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
                if let Some(lock) = locked {
                    return Ok(CacheLease::holding(lock));
                }
                // Poll instead of blocking a thread in the kernel, which could not be stopped when the call is
                // cancelled.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LEASE_PAUSE_MAX);
            }
        })
    }
}

/// Runs the file access in a blocking thread, because an entry may have many megabytes.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| StoreError::Unavailable { reason: error.to_string() })
}
