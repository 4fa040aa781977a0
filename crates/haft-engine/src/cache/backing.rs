//! The store behind the cache. It outlives the process, and other processes share it.
//!
//! A store never fails a call: an error, a long wait and an unreadable entry all count as a miss.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::cache_store::{CacheEntry, CacheKey, CacheStore};
use haft_core::digest::Digest;
use haft_core::output::ToolOutput;
use haft_core::stored::StoredToolOutput;
use tokio::time::timeout;

/// The longest wait for the store, in each direction. A disk answers within milliseconds; a network disk that hangs must
/// not take the time of the call.
const STORE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A read takes at most this part of the time that a call has left, so that the call can still be made.
const READ_PARTS: u32 = 4;

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

    /// Returns the stored output and the rest of its time. `time_left` is that of the call, which keeps most of it.
    pub(crate) async fn read(&self, time_left: Duration) -> Option<(ToolOutput, Duration)> {
        let wait = STORE_WAIT_MAX.min(time_left / READ_PARTS);
        let found = timeout(wait, self.store.get(self.key.clone())).await.ok()?.ok()?;
        let CacheEntry { output, expires_ms } = found?;
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

/// The wall clock, because processes share no other.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for StoreSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSlot").field("key", &self.key).finish_non_exhaustive()
    }
}
