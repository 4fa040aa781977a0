//! The trait of stores that hold the event logs of runs.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::event_log::EventEnvelope;
use crate::output_store::StoreError;
use crate::position::SessionId;
use crate::run::journal::Epoch;

/// The key of all stored data of a run. The tenant comes first, so that no query can reach another tenant's data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The tenant of the principal that owns the run.
    pub tenant: String,
    /// The session of the root run.
    pub run: SessionId,
}

/// Stores the events of runs, in the order of their numbers. Only one writer at a time appends to a log: the process
/// that holds the claim of the run's journal.
pub trait EventStore: Send + Sync {
    /// Makes the process with this claim the writer, and returns the number of the last stored event, or 0 if there is
    /// none. After this, events from writers with an older claim are not part of the log.
    fn claim<'a>(&'a self, key: &'a RunKey, epoch: Epoch) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Appends events. Their numbers must follow the stored ones. A crash of the machine may lose appended events; a
    /// crash of the process does not. Fails with [`StoreError::Fenced`] if another process has claimed the log in the
    /// meantime.
    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        epoch: Epoch,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns the number of the last stored event, or 0 if there is none.
    fn last<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Returns up to `count` events, starting with the number `from`. The list is empty if there are none yet.
    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: u64,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<EventEnvelope>, StoreError>>;
}
