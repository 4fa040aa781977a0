//! Event logs in memory, for programs that store nothing on disk. They are lost when the process ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore, RunKey};
use haft_core::output_store::StoreError;
use haft_core::run::journal::Epoch;

/// The maximum number of event logs in memory. At this number, a new log replaces the log that was written least
/// recently.
const LOGS_MAX: usize = 10_000;

/// Event logs in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryEvents(Arc<Mutex<LogTable>>);

#[derive(Default)]
struct LogTable {
    logs: HashMap<RunKey, MemoryLog>,
    /// The number of appends so far. It orders the logs by their last append.
    appends: u64,
}

#[derive(Default)]
struct MemoryLog {
    events: Vec<Arc<EventEnvelope>>,
    /// The epoch of the writer's claim; 0 before the first claim.
    epoch: u64,
    last_append: u64,
}

impl MemoryEvents {
    fn claim_now(&self, key: &RunKey, epoch: Epoch) -> Result<u64, StoreError> {
        let mut table = self.table();
        let log = table.written_by(key, epoch)?;
        Ok(log.events.last().map_or(0, |event| event.seq))
    }

    fn append_now(
        &self,
        key: &RunKey,
        epoch: Epoch,
        events: &[Arc<EventEnvelope>],
    ) -> Result<(), StoreError> {
        self.table().written_by(key, epoch)?.events.extend(events.iter().cloned());
        Ok(())
    }

    fn last_now(&self, key: &RunKey) -> u64 {
        let table = self.table();
        table.logs.get(key).and_then(|log| log.events.last()).map_or(0, |event| event.seq)
    }

    fn read_now(&self, key: &RunKey, from: u64, count: usize) -> Vec<EventEnvelope> {
        let table = self.table();
        let events = table.logs.get(key).map_or(&[][..], |log| &log.events);
        let begin = events.partition_point(|event| event.seq < from);
        events.iter().skip(begin).take(count).map(|event| EventEnvelope::clone(event)).collect()
    }

    fn table(&self) -> MutexGuard<'_, LogTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogTable {
    /// Returns the log for a writer, and fences writers with an older claim.
    fn written_by(&mut self, key: &RunKey, epoch: Epoch) -> Result<&mut MemoryLog, StoreError> {
        self.make_room(key);
        self.appends += 1;
        let last_append = self.appends;
        let log = self.logs.entry(key.clone()).or_default();
        if epoch.0 < log.epoch {
            return Err(StoreError::Fenced);
        }
        (log.epoch, log.last_append) = (epoch.0, last_append);
        Ok(log)
    }

    fn make_room(&mut self, key: &RunKey) {
        if self.logs.len() < LOGS_MAX || self.logs.contains_key(key) {
            return;
        }
        let oldest = self.logs.iter().min_by_key(|(_, log)| log.last_append).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.logs.remove(&oldest);
        }
    }
}

impl EventStore for MemoryEvents {
    fn claim<'a>(&'a self, key: &'a RunKey, epoch: Epoch) -> BoxFuture<'a, Result<u64, StoreError>> {
        let claimed = self.claim_now(key, epoch);
        Box::pin(async move { claimed })
    }

    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        epoch: Epoch,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let appended = self.append_now(key, epoch, events);
        Box::pin(async move { appended })
    }

    fn last<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        let last = self.last_now(key);
        Box::pin(async move { Ok(last) })
    }

    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: u64,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<EventEnvelope>, StoreError>> {
        let events = self.read_now(key, from, count);
        Box::pin(async move { Ok(events) })
    }
}

impl fmt::Debug for MemoryEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEvents").field("logs", &self.table().logs.len()).finish()
    }
}
