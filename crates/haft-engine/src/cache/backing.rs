//! The store behind the cache. It outlives the process, and other processes share it.
//!
//! A store never makes a call fail: an error, a timeout and an unreadable entry are all treated as a miss. If several
//! processes make equal calls at once, only one reaches the provider, unless the store fails.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::cache_store::{CacheEntry, CacheKey, CacheLease, CacheStore};
use haft_core::digest::Digest;
use haft_core::output::ToolOutput;
use haft_core::stored::StoredToolOutput;
use tokio::time::{Instant, timeout};

use super::NeededForm;

/// The maximum time to wait for the store, for each read and write. A local disk answers within milliseconds; a network
/// disk that hangs must not use up the call's time.
const STORE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A read takes at most the call's remaining time divided by this number, so that the call can still be made.
const READ_PARTS: u32 = 4;

/// A call waits for an equal call of another process at most its remaining time divided by this number. After that,
/// both processes make the call.
const LEASE_PARTS: u32 = 2;

/// A stored output and the time until it expires.
type StoreHit = (ToolOutput, Duration);

/// The store failed or did not answer in time.
struct StoreDown;

/// The result of a lookup in the store.
pub(crate) enum StoreLookup {
    Hit(StoreHit),
    /// The store has no output: this process makes the call and holds the lease. Other processes wait until the lease
    /// is dropped.
    Lead(CacheLease),
}

/// The slot for one call's output in the store.
#[derive(Clone)]
pub(crate) struct StoreSlot {
    store: Arc<dyn CacheStore>,
    key: CacheKey,
    ttl: Duration,
}

impl StoreSlot {
    /// Creates the slot. `source` is the digest of the tool's source. The key also includes the TTL: an operator who
    /// shortens the TTL must not get outputs that were stored with a longer one.
    pub(super) fn new(
        store: Arc<dyn CacheStore>,
        tenant: &str,
        (call, source): (Digest, Digest),
        ttl: Duration,
    ) -> Self {
        let ttl_ms = millis(ttl).to_le_bytes();
        let call = Digest::of_parts([&call.bytes()[..], source.bytes(), &ttl_ms]);
        Self { store, key: CacheKey { tenant: tenant.to_owned(), call }, ttl }
    }

    /// Returns the stored output and the time until it expires, or the right to make the call for all processes. Waits
    /// while another process makes the call. `time_left` is the call's remaining time; a part of it stays reserved for
    /// the call itself.
    pub(crate) async fn look_up(&self, form: NeededForm, time_left: Duration) -> StoreLookup {
        let began = Instant::now();
        match self.read(form, time_left).await {
            Ok(Some(hit)) => return StoreLookup::Hit(hit),
            Ok(None) => {}
            // A store that fails must not use more of the call's time.
            Err(StoreDown) => return StoreLookup::Lead(CacheLease::shared()),
        }
        let wait = time_left.saturating_sub(began.elapsed()) / LEASE_PARTS;
        let Ok(Ok(lease)) = timeout(wait, self.store.lease(self.key.clone())).await else {
            return StoreLookup::Lead(CacheLease::shared());
        };
        // The process that held the lease may have stored the output.
        match self.read(form, time_left.saturating_sub(began.elapsed())).await {
            Ok(Some(hit)) => StoreLookup::Hit(hit),
            Ok(None) | Err(StoreDown) => StoreLookup::Lead(lease),
        }
    }

    async fn read(&self, form: NeededForm, time_left: Duration) -> Result<Option<StoreHit>, StoreDown> {
        let wait = STORE_WAIT_MAX.min(time_left / READ_PARTS);
        let read = timeout(wait, self.store.get(self.key.clone())).await;
        let entry = read.map_err(|_| StoreDown)?.map_err(|_| StoreDown)?;
        let hit = entry.and_then(|entry| self.fresh(entry));
        Ok(hit.and_then(|(output, left)| Some((form.take(output)?, left))))
    }

    fn fresh(&self, entry: CacheEntry) -> Option<StoreHit> {
        let CacheEntry { output, expires_ms } = entry;
        let left = Duration::from_millis(expires_ms.checked_sub(clock_ms())?);
        // If the remaining time is longer than the TTL, the clock has been set back since the entry was stored.
        let is_fresh = !left.is_zero() && left <= self.ttl;
        is_fresh.then(|| output.into_output().ok()).flatten().map(|output| (output, left))
    }

    /// Stores an output, unless only its own session could read it.
    pub(crate) async fn write(self, output: &ToolOutput, time_left: Duration) {
        let Some(output) = StoredToolOutput::of(output) else { return };
        let entry = CacheEntry { output, expires_ms: clock_ms().saturating_add(millis(self.ttl)) };
        // Ignore a failed write: it only causes a later miss.
        let _ = timeout(STORE_WAIT_MAX.min(time_left), self.store.put(self.key, entry)).await;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.min(super::TTL_MAX).as_millis()).unwrap_or(u64::MAX)
}

/// Reads the wall clock, because processes share no other clock.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for StoreSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSlot").field("key", &self.key).finish_non_exhaustive()
    }
}
