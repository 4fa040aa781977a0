//! Keeps the outputs of calls for a while, so that an equal call need not be made again.
//!
//! Written by hand over a general cache because of the single flight: equal calls at once reach the provider once, and
//! when the one that went ahead is cancelled or fails, the next in line goes ahead in its place.

mod shelf;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::digest::Digest;
use haft_core::output::ToolOutput;
use tokio::sync::{Mutex as Baton, OwnedMutexGuard};
use tokio::time::Instant;

use crate::size::output_bytes;
use shelf::{Kept, Shelf};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    pub entries_max: usize,
    pub bytes_max: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { entries_max: 1024, bytes_max: 64 * 1024 * 1024 }
    }
}

/// Whether a call may be answered from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheUse {
    /// As the tool's policy says.
    #[default]
    Use,
    /// The provider is asked; what is kept stays as it is.
    Bypass,
}

/// What is kept and what is being asked for. Clones share it: orchestrators of several runs may have one cache, because
/// a key says on whose behalf and in which scope a call is made.
#[derive(Clone)]
pub struct Cache(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shelf: Shelf,
    flights: HashMap<Digest, Flight>,
}

/// A call that is being made, and those who wait for its output.
#[derive(Debug)]
struct Flight {
    /// How many lead or wait. The flight is forgotten with the last one.
    seats: usize,
    /// Whoever holds the baton leads. Those who wait get it in the order they came, and find the output in it.
    baton: Arc<Baton<Option<Kept>>>,
}

/// Longer times are cut to this, so that no clock overflows.
const TTL_MAX: Duration = Duration::from_hours(10 * 365 * 24);

impl Cache {
    pub fn new(config: CacheConfig) -> Self {
        Self(Arc::new(Mutex::new(State { shelf: Shelf::new(config), flights: HashMap::new() })))
    }

    /// How much is kept, and how many calls are being made.
    pub fn snapshot(&self) -> CacheSnapshot {
        let state = self.lock();
        CacheSnapshot {
            entries: state.shelf.entries(),
            bytes: state.shelf.bytes(),
            flights: state.flights.len(),
        }
    }

    /// The output of an equal call, else the right to make it. Waits while an equal call is being made.
    pub(crate) async fn look_up(&self, key: Digest) -> Lookup {
        if let Some(kept) = self.lock().shelf.get(&key, Instant::now()) {
            return Lookup::Hit(kept);
        }
        let (seat, baton) = self.take_seat(key);
        let baton = baton.lock_owned().await;
        match baton.as_ref().filter(|kept| kept.is_fresh(Instant::now())) {
            Some(kept) => Lookup::Hit(Arc::clone(&kept.output)),
            None => Lookup::Lead(Lead { baton, seat }),
        }
    }

    fn take_seat(&self, key: Digest) -> (Seat, Arc<Baton<Option<Kept>>>) {
        let mut state = self.lock();
        let new = || Flight { seats: 0, baton: Arc::default() };
        let flight = state.flights.entry(key).or_insert_with(new);
        flight.seats += 1;
        let baton = Arc::clone(&flight.baton);
        (Seat { cache: self.clone(), key }, baton)
    }

    /// Whether an output can be kept, or somebody waits for it.
    fn is_wanted(&self, key: &Digest, bytes: usize) -> bool {
        let state = self.lock();
        state.shelf.takes(bytes) || state.flights.get(key).is_some_and(|flight| flight.seats > 1)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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

/// How much a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSnapshot {
    pub entries: usize,
    pub bytes: usize,
    /// Calls that are being made and would answer others.
    pub flights: usize,
}

/// What the cache says to a call.
#[derive(Debug)]
pub(crate) enum Lookup {
    Hit(Arc<ToolOutput>),
    Lead(Lead),
}

/// The right to make a call on behalf of all who ask the same. Dropped without an output, it goes to the next of them.
#[derive(Debug)]
pub(crate) struct Lead {
    // Dropped first: the next one must have the baton before the seat is given up.
    baton: OwnedMutexGuard<Option<Kept>>,
    seat: Seat,
}

impl Lead {
    /// Keeps the output, and gives it to those who wait even when it is too large to be kept.
    pub(crate) fn keep(mut self, output: &ToolOutput, ttl: Duration) {
        let bytes = output_bytes(output);
        // A copy of what is too large would be made for nobody.
        if !self.seat.cache.is_wanted(&self.seat.key, bytes) {
            return;
        }
        let kept =
            Kept { output: Arc::new(output.clone()), bytes, expires: Instant::now() + ttl.min(TTL_MAX) };
        self.seat.cache.lock().shelf.put(self.seat.key, kept.clone());
        *self.baton = Some(kept);
    }
}

/// Counts one who leads or waits.
#[derive(Debug)]
struct Seat {
    cache: Cache,
    key: Digest,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        if let Some(flight) = state.flights.get_mut(&self.key) {
            flight.seats -= 1;
            if flight.seats == 0 {
                state.flights.remove(&self.key);
            }
        }
    }
}
