//! The trait of stores that hold the event logs of runs.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::event_log::EventEnvelope;
use crate::output_store::StoreError;
use crate::position::SessionId;
use crate::run::journal::Epoch;

/// The key of everything that is stored of a run. The tenant comes first, so that no query can reach another tenant's rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The tenant of the principal that owns the run.
    pub tenant: String,
    /// The session of the root run.
    pub run: SessionId,
}

/// Keeps the events of stored runs, in the order of their numbers. One writer at a time appends to a log: the process
/// that holds the claim of the run's journal.
pub trait EventStore: Send + Sync {
    /// Makes the process with this claim the writer, and returns the number of the last stored event; 0 when there is
    /// none. From then on, events of writers with an older claim are not part of the log.
    fn claim<'a>(&'a self, key: &'a RunKey, epoch: Epoch) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Appends events whose numbers follow those that are stored. A crash of the machine may lose them; a crash of the
    /// process does not. Fails with [`StoreError::Fenced`] if another process has claimed the log since.
    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        epoch: Epoch,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns the number of the last stored event; 0 when there is none.
    fn last<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Returns up to `count` events, starting with the number `from`; empty when there are none yet.
    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: u64,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<EventEnvelope>, StoreError>>;
}
