//! Caches call outputs for a limited time, so that an equal call need not run again.
//!
//! A general cache crate would lack single flight: equal concurrent calls reach the provider once, and if the leading
//! call fails or is cancelled, the next waiting call becomes the leader. A store that other processes share may back
//! the memory cache. Only the leading call reads the store, so a hit in memory costs the same with and without a store.

mod backing;
mod lru;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::cache_store::CacheStore;
use haft_core::digest::Digest;
use haft_core::output::ToolOutput;
use haft_core::provider::ProviderKind;
use haft_core::run::context::RawResults;
use tokio::sync::{Mutex as Baton, OwnedMutexGuard};
use tokio::time::Instant;

use crate::size::output_bytes;
pub(crate) use backing::{StoreLookup, StoreSlot};
use lru::{CachedOutput, Lru, SharedOutput};

/// The capacity of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// The maximum number of outputs. A new output replaces the least recently used one.
    pub entries_max: usize,
    /// The maximum size of all outputs together, in bytes. A larger output is not cached.
    pub bytes_max: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { entries_max: 1024, bytes_max: 64 * 1024 * 1024 }
    }
}

/// Selects whether the cache may answer a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheUse {
    /// The tool's policy decides if the cache may answer the call.
    #[default]
    Use,
    /// The call always reaches the provider, and cached outputs stay unchanged.
    Bypass,
}

/// The form of an output that a call needs. A cached output that lacks this form does not answer the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeededForm {
    /// The content is enough.
    Content,
    /// The caller passes on the JSON text of the server.
    ServerText,
}

impl NeededForm {
    /// Returns the form that a call to this kind of provider needs. Only outputs of MCP servers have a JSON text of the
    /// server.
    pub(crate) fn of(kind: ProviderKind, results: RawResults) -> Self {
        match (kind, results) {
            (ProviderKind::Mcp, RawResults::Kept) => Self::ServerText,
            (ProviderKind::Mcp, RawResults::Dropped)
            | (
                ProviderKind::Builtin | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client,
                RawResults::Kept | RawResults::Dropped,
            ) => Self::Content,
        }
    }

    /// Returns the part of a cached output that the call needs, or `None` if this part is missing.
    fn take(self, output: ToolOutput) -> Option<ToolOutput> {
        match self {
            Self::Content => Some(ToolOutput { raw: None, ..output }),
            Self::ServerText => output.raw.is_some().then_some(output),
        }
    }
}

/// The cached outputs and the calls in flight. Clones share both. Orchestrators of several runs may share one cache,
/// because the key includes the principal and the workspace.
#[derive(Clone)]
pub struct Cache {
    memory: CacheMemory,
    store: Option<Arc<dyn CacheStore>>,
}

#[derive(Debug, Clone)]
struct CacheMemory(Arc<Mutex<CacheState>>);

#[derive(Debug)]
struct CacheState {
    lru: Lru,
    flights: HashMap<Digest, SingleFlight>,
    /// The locks of finished single flights. Later flights reuse them instead of allocating new ones.
    spare: Vec<Arc<Baton<Option<CachedOutput>>>>,
}

impl CacheState {
    /// Keeps the lock of a finished single flight, so that a later flight need not allocate one.
    fn reuse(&mut self, mut baton: Arc<Baton<Option<CachedOutput>>>) {
        if self.spare.len() < SPARE_BATONS_MAX
            && let Some(unshared) = Arc::get_mut(&mut baton)
        {
            *unshared.get_mut() = None;
            self.spare.push(baton);
        }
    }
}

/// A single flight: a call in progress, and the equal calls that wait for its output.
#[derive(Debug)]
struct SingleFlight {
    /// The number of leading and waiting calls. The last one to leave removes the flight.
    seats: usize,
    /// The call that holds this lock is the leader. Waiting calls get the lock in order of arrival and find the output
    /// in it.
    baton: Arc<Baton<Option<CachedOutput>>>,
}

/// The maximum number of locks of finished single flights that are kept for reuse.
const SPARE_BATONS_MAX: usize = 16;

/// The maximum TTL, so that adding it to the clock cannot overflow.
const TTL_MAX: Duration = Duration::from_hours(10 * 365 * 24);

impl Cache {
    /// Creates an empty cache.
    pub fn new(config: CacheConfig) -> Self {
        let (flights, spare) = (HashMap::new(), Vec::new());
        let state = CacheState { lru: Lru::new(config), flights, spare };
        Self { memory: CacheMemory(Arc::new(Mutex::new(state))), store: None }
    }

    /// Adds a store behind the memory cache. Existing clones do not get the store.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn CacheStore>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Returns a cache with the same memory and without the store.
    #[must_use]
    pub fn without_store(&self) -> Self {
        Self { store: None, ..self.clone() }
    }

    /// Returns the fill level of the cache and the number of calls in flight.
    pub fn snapshot(&self) -> CacheSnapshot {
        let state = self.memory.lock();
        CacheSnapshot { entries: state.lru.entries(), bytes: state.lru.bytes(), flights: state.flights.len() }
    }

    /// Returns the output of an equal call, or the right to make the call. Waits while an equal call is in flight.
    pub(crate) async fn look_up(&self, key: Digest, form: NeededForm) -> CacheLookup {
        // Release the lock before the output is copied.
        let cached = self.memory.lock().lru.get(&key, Instant::now());
        if let Some(output) = cached.and_then(|cached| form.take(cached.to_output())) {
            return CacheLookup::Hit(output);
        }
        let (seat, baton) = self.memory.join_flight(key);
        let baton = baton.lock_owned().await;
        let cached = baton.as_ref().filter(|cached| cached.is_fresh(Instant::now()));
        match cached.and_then(|cached| form.take(cached.output.to_output())) {
            Some(output) => CacheLookup::Hit(output),
            None => CacheLookup::Lead(FlightLeader { baton, seat }),
        }
    }

    /// Returns the store slot for a call's output, or `None` if there is no store or no digest of the tool's source.
    pub(crate) fn slot(
        &self,
        tenant: &str,
        call: Digest,
        ttl: Duration,
        source: impl FnOnce() -> Option<Digest>,
    ) -> Option<StoreSlot> {
        let store = self.store.as_ref()?;
        Some(StoreSlot::new(Arc::clone(store), tenant, (call, source()?), ttl))
    }
}

impl CacheMemory {
    fn join_flight(&self, key: Digest) -> (FlightMember, Arc<Baton<Option<CachedOutput>>>) {
        let mut state = self.lock();
        let CacheState { flights, spare, .. } = &mut *state;
        let new = || SingleFlight { seats: 0, baton: spare.pop().unwrap_or_default() };
        let flight = flights.entry(key).or_insert_with(new);
        flight.seats += 1;
        let baton = Arc::clone(&flight.baton);
        (FlightMember { memory: self.clone(), key }, baton)
    }

    /// Returns true if the output fits into the cache or another call waits for it.
    fn is_wanted(&self, key: &Digest, bytes: usize) -> bool {
        let state = self.lock();
        state.lru.takes(bytes) || state.flights.get(key).is_some_and(|flight| flight.seats > 1)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(CacheConfig::default())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// The fill level of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSnapshot {
    /// The number of cached outputs, including expired ones that were not removed yet.
    pub entries: usize,
    /// The size of all cached outputs together, in bytes.
    pub bytes: usize,
    /// The number of calls in flight whose output equal calls would get.
    pub flights: usize,
}

/// The result of a cache lookup.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    Hit(ToolOutput),
    Lead(FlightLeader),
}

/// The right to make a call for all equal waiting calls. If it is dropped without an output, the next waiting call gets
/// this right.
#[derive(Debug)]
pub(crate) struct FlightLeader {
    // Fields drop in this order: the next waiting call must get the lock before the drop of `seat` can remove the
    // flight.
    baton: OwnedMutexGuard<Option<CachedOutput>>,
    seat: FlightMember,
}

impl FlightLeader {
    /// Caches the output. Waiting calls get it even if it is too large for the cache.
    pub(crate) fn keep(mut self, output: &ToolOutput, ttl: Duration) {
        let bytes = output_bytes(output);
        // Do not copy an output that is too large for the cache and for which no call waits.
        if !self.seat.memory.is_wanted(&self.seat.key, bytes) {
            return;
        }
        let cached = CachedOutput {
            output: SharedOutput::of(output),
            bytes,
            expires: Instant::now() + ttl.min(TTL_MAX),
        };
        self.seat.memory.lock().lru.put(self.seat.key, cached.clone());
        *self.baton = Some(cached);
    }
}

/// One call of a single flight: the leading call, or a call that waits for the leader's output.
#[derive(Debug)]
struct FlightMember {
    memory: CacheMemory,
    key: Digest,
}

impl Drop for FlightMember {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        if let Some(flight) = state.flights.get_mut(&self.key) {
            flight.seats -= 1;
            if flight.seats == 0
                && let Some(flight) = state.flights.remove(&self.key)
            {
                state.reuse(flight.baton);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use haft_core::output::RawResult;
    use serde_json::value::RawValue;

    use super::*;

    #[tokio::test]
    async fn output_without_the_server_text_answers_only_callers_that_need_the_content() {
        let cache = Cache::default();
        let key = Digest::of_text("call");
        let output = ToolOutput::text("done");
        let raw = RawResult(RawValue::from_string("{}".into()).unwrap().into());
        let with_text = ToolOutput { raw: Some(raw), ..output.clone() };
        let minute = Duration::from_mins(1);
        let lead = |found: CacheLookup| match found {
            CacheLookup::Lead(lead) => lead,
            CacheLookup::Hit(output) => panic!("{output:?}"),
        };
        let hit = |found: CacheLookup| match found {
            CacheLookup::Hit(output) => output,
            CacheLookup::Lead(_) => panic!("the cache has no output"),
        };
        lead(cache.look_up(key, NeededForm::Content).await).keep(&output, minute);
        assert_eq!(hit(cache.look_up(key, NeededForm::Content).await), output);
        lead(cache.look_up(key, NeededForm::ServerText).await).keep(&with_text, minute);
        assert_eq!(hit(cache.look_up(key, NeededForm::ServerText).await), with_text);
        assert_eq!(hit(cache.look_up(key, NeededForm::Content).await), output, "without the text");
        let form = |kind| NeededForm::of(kind, RawResults::Kept);
        assert_eq!(
            [form(ProviderKind::Mcp), form(ProviderKind::Rest)],
            [NeededForm::ServerText, NeededForm::Content]
        );
    }
}
