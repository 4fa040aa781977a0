//! The store behind the cache. It outlives the process, and other processes share it.
//!
//! A store never fails a call: an error, a long wait and an unreadable entry all count as a miss. Of equal calls of
//! several processes at once, one is made, as long as the store works.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::cache_store::{CacheEntry, CacheKey, CacheLease, CacheStore};
use haft_core::digest::Digest;
use haft_core::output::ToolOutput;
use haft_core::stored::StoredToolOutput;
use tokio::time::{Instant, timeout};

/// The longest wait for the store, in each direction. A disk answers within milliseconds; a network disk that hangs must
/// not take the time of the call.
const STORE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A read takes at most this part of the time that a call has left, so that the call can still be made.
const READ_PARTS: u32 = 4;

/// A call waits at most this part of its time for the same call of another process. Then it is made twice.
const LEASE_PARTS: u32 = 2;

/// A stored output and the rest of its time.
type StoreHit = (ToolOutput, Duration);

/// The store failed or did not answer in time.
struct StoreDown;

/// The result of looking into the store.
pub(crate) enum StoreLookup {
    Hit(StoreHit),
    /// The call is made here. Other processes wait as long as the lease lives.
    Lead(CacheLease),
}

/// The place of one call's output in the store.
#[derive(Clone)]
pub(crate) struct StoreSlot {
    store: Arc<dyn CacheStore>,
    key: CacheKey,
    ttl: Duration,
}

impl StoreSlot {
    /// `source` is the digest of the tool's source. The key also includes the TTL: an operator who shortens it must not get
    /// outputs that were stored for longer.
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

    /// Returns the stored output and the rest of its time, or the right to make the call for all processes. Waits while
    /// another process makes it. `time_left` is that of the call, which keeps a part of it for the call itself.
    pub(crate) async fn look_up(&self, time_left: Duration) -> StoreLookup {
        let began = Instant::now();
        match self.read(time_left).await {
            Ok(Some(hit)) => return StoreLookup::Hit(hit),
            Ok(None) => {}
            // A store that does not work must not take more of the call's time.
            Err(StoreDown) => return StoreLookup::Lead(CacheLease::shared()),
        }
        let wait = time_left.saturating_sub(began.elapsed()) / LEASE_PARTS;
        let Ok(Ok(lease)) = timeout(wait, self.store.lease(self.key.clone())).await else {
            return StoreLookup::Lead(CacheLease::shared());
        };
        // The process that had the lease may have stored the output.
        match self.read(time_left.saturating_sub(began.elapsed())).await {
            Ok(Some(hit)) => StoreLookup::Hit(hit),
            Ok(None) | Err(StoreDown) => StoreLookup::Lead(lease),
        }
    }

    async fn read(&self, time_left: Duration) -> Result<Option<StoreHit>, StoreDown> {
        let wait = STORE_WAIT_MAX.min(time_left / READ_PARTS);
        let read = timeout(wait, self.store.get(self.key.clone())).await;
        let entry = read.map_err(|_| StoreDown)?.map_err(|_| StoreDown)?;
        Ok(entry.and_then(|entry| self.fresh(entry)))
    }

    fn fresh(&self, entry: CacheEntry) -> Option<StoreHit> {
        let CacheEntry { output, expires_ms } = entry;
        let left = Duration::from_millis(expires_ms.checked_sub(clock_ms())?);
        // More time than the TTL means that the clock was set back since.
        let is_fresh = !left.is_zero() && left <= self.ttl;
        is_fresh.then(|| output.into_output().ok()).flatten().map(|output| (output, left))
    }

    /// Stores an output, unless only its session could read it.
    pub(crate) async fn write(self, output: &ToolOutput, time_left: Duration) {
        let Some(output) = StoredToolOutput::of(output) else { return };
        let entry = CacheEntry { output, expires_ms: clock_ms().saturating_add(millis(self.ttl)) };
        // A failed write is a later miss.
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
