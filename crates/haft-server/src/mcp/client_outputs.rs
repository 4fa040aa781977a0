//! The stored outputs of one client. Clients that share upstream servers do not share their outputs.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::output_store::{Handle, OutputStore, Spool, StoreEntry, StoreError};
use haft_core::position::SessionId;

/// The maximum number of stored outputs that are listed as resources. Clients can still read older ones.
const STORED_LISTED_MAX: usize = 1_000;

/// Selects the clients that can list and read the outputs of a connection.
#[derive(Debug, Clone)]
pub(super) enum OutputOwner {
    /// Only the client of this connection.
    Connection(Arc<ClientOutputs>),
    /// All clients that share the same opened tools. Used in revisions without sessions, in which a connection ends
    /// with its only request, but its outputs must stay readable.
    Principal,
}

impl OutputOwner {
    /// Returns the owner for a connection that carries many requests of one client.
    pub(super) fn new_connection() -> Self {
        Self::Connection(Arc::default())
    }
}

/// The outputs that were stored for one client, or for all clients of a principal that have no session.
#[derive(Debug)]
pub(super) struct ClientOutputs {
    /// The session under which the output store keeps the outputs.
    pub(super) session: SessionId,
    /// The listed outputs, the oldest first.
    entries: Mutex<Vec<StoreEntry>>,
}

impl Default for ClientOutputs {
    fn default() -> Self {
        Self { session: SessionId(uuid::Uuid::new_v4().as_u128()), entries: Mutex::default() }
    }
}

impl ClientOutputs {
    /// Returns true if the output belongs to this client.
    pub(super) fn has_stored(&self, handle: &Handle) -> bool {
        handle.session() == self.session.to_string()
    }

    /// Adds an output to the list of resources. If the list is full, removes the oldest one from it.
    pub(super) fn add(&self, entry: &StoreEntry) {
        let mut entries = self.entries();
        if entries.len() >= STORED_LISTED_MAX {
            entries.remove(0);
        }
        entries.push(entry.clone());
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<StoreEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output store of a client with a session. It can also read the outputs of tasks, which belong to the principal,
/// because a client may fetch the result of a task in a later session.
pub(super) struct ClientOutputStore {
    pub(super) own: Arc<dyn OutputStore>,
    pub(super) of_tasks: Arc<dyn OutputStore>,
}

impl OutputStore for ClientOutputStore {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        self.own.begin()
    }

    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
        self.own.reopen(entry)
    }

    fn read_range<'a>(
        &'a self,
        handle: &'a Handle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        Box::pin(async move {
            match self.own.read_range(handle, range.clone()).await {
                Err(StoreError::NotFound) => self.of_tasks.read_range(handle, range).await,
                read => read,
            }
        })
    }

    fn delete<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
        self.own.delete(handle)
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.of_tasks.is_empty()
    }
}
