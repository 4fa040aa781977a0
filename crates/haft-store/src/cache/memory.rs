//! Cached outputs in memory, for programs without a disk and for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::cache_store::{CacheEntry, CacheKey, CacheLease, CacheLimits, CacheStore};
use haft_core::output_store::StoreError;

use super::clock_ms;

/// A cache store in memory. The runtimes of one process may share the store.
#[derive(Debug)]
pub struct MemoryCache {
    limits: CacheLimits,
    entries: Mutex<HeldEntries>,
    /// One lock for each call that is in progress.
    leases: Mutex<HashMap<CacheKey, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct HeldEntries {
    by_key: HashMap<CacheKey, HeldEntry>,
    bytes: u64,
}

#[derive(Debug)]
struct HeldEntry {
    entry: CacheEntry,
    bytes: u64,
}

impl MemoryCache {
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, entries: Mutex::default(), leases: Mutex::default() }
    }

    fn get_now(&self, key: &CacheKey) -> Option<CacheEntry> {
        let entries = self.lock();
        let found = entries.by_key.get(key)?;
        (clock_ms() < found.entry.expires_ms).then(|| found.entry.clone())
    }

    fn put_now(&self, key: CacheKey, entry: CacheEntry) -> Result<(), serde_json::Error> {
        // Count the length of the JSON text, so that a limit means the same as for files.
        let bytes = serde_json::to_vec(&entry.output)?.len() as u64;
        let CacheLimits { entries_max, bytes_max } = self.limits;
        let mut entries = self.lock();
        entries.remove(&key);
        if bytes > bytes_max || entries_max == 0 {
            return Ok(());
        }
        entries.remove_expired(clock_ms());
        while entries.by_key.len() as u64 >= entries_max || entries.bytes + bytes > bytes_max {
            let Some(first) = entries.first_to_expire() else { break };
            entries.remove(&first);
        }
        entries.bytes += bytes;
        entries.by_key.insert(key, HeldEntry { entry, bytes });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HeldEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldEntries {
    fn remove(&mut self, key: &CacheKey) {
        if let Some(removed) = self.by_key.remove(key) {
            self.bytes -= removed.bytes;
        }
    }

    fn remove_expired(&mut self, now_ms: u64) {
        self.by_key.retain(|_, entries| now_ms < entries.entry.expires_ms);
        self.bytes = self.by_key.values().map(|entries| entries.bytes).sum();
    }

    fn first_to_expire(&self) -> Option<CacheKey> {
        let first = self.by_key.iter().min_by_key(|(key, entries)| (entries.entry.expires_ms, *key));
        first.map(|(key, _)| key.clone())
    }
}

impl CacheStore for MemoryCache {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<CacheEntry>, StoreError>> {
        Box::pin(async move { Ok(self.get_now(&key)) })
    }

    fn put(&self, key: CacheKey, entry: CacheEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let unavailable =
                |error: serde_json::Error| StoreError::Unavailable { reason: error.to_string() };
            self.put_now(key, entry).map_err(unavailable)
        })
    }

    fn lease(&self, key: CacheKey) -> BoxFuture<'_, Result<CacheLease, StoreError>> {
        let lock = {
            let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
            // A lock with only one reference has no holder and no waiting caller.
            leases.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(leases.entry(key).or_default())
        };
        Box::pin(async move { Ok(CacheLease::holding(lock.lock_owned().await)) })
    }
}
