//! Event logs in memory, for programs that store nothing on disk. They end with the process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore, RunKey};
use haft_core::output_store::StoreError;

/// The number of logs that are kept. Beyond it, a new one replaces the one that was written least recently.
const LOGS_MAX: usize = 10_000;

/// Event logs in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryEvents(Arc<Mutex<LogTable>>);

#[derive(Default)]
struct LogTable {
    logs: HashMap<RunKey, MemoryLog>,
    /// The number of appends so far, which orders logs by their last one.
    appends: u64,
}

#[derive(Default)]
struct MemoryLog {
    events: Vec<Arc<EventEnvelope>>,
    last_append: u64,
}

impl MemoryEvents {
    /// Fails if the log holds later events: another writer continues the run, and it left out numbers for this one.
    fn append_now(&self, key: &RunKey, events: &[Arc<EventEnvelope>]) -> Result<(), StoreError> {
        let mut table = self.table();
        table.make_room(key);
        table.appends += 1;
        let last_append = table.appends;
        let log = table.logs.entry(key.clone()).or_default();
        let first = events.first().map_or(u64::MAX, |event| event.seq);
        if log.events.last().is_some_and(|last| first <= last.seq) {
            let reason = "another writer continues the run and writes its events";
            return Err(StoreError::Unavailable { reason: reason.into() });
        }
        log.events.extend(events.iter().cloned());
        log.last_append = last_append;
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
    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let appended = self.append_now(key, events);
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
