//! Event logs in files: one line per event, one file per run. [`MemoryEvents`] keeps them in memory instead.
//!
//! A process that continues a run writes a claim with its epoch into the file, and its events contain the epoch.
//! Readers skip events whose epoch is older than the newest claim before them. A writer appends, and then checks for a
//! newer claim; a claimant writes its claim, and then reads. So either the writer finds the claim and stops, or the
//! claimant continues the numbers after the writer's events. No number is used twice or left out.
//!
//! If an append fails, readers of that process get the events from memory, with numbers that are not in the file. A
//! mark beside the file then keeps the next process from using these numbers again: that process skips `UNSTORED_MAX`
//! numbers, and readers see a gap.

mod memory;
mod tail;

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore, RunKey};
use haft_core::home::Home;
use haft_core::output_store::StoreError;
use haft_core::principal::Principal;
use haft_core::run::journal::Epoch;
use haft_fs::private_file;

use crate::sweep;
use crate::tenant::directory_of;

pub use memory::MemoryEvents;
use tail::{LogLines, LogPosition};

/// The number of events between two index entries. With the index, a reader in the middle of a long log need not scan
/// all of it.
const INDEX_EVERY: u64 = 256;

/// The maximum number of logs whose files stay open. It is small, because a server with thousands of runs needs its
/// descriptors for connections.
const OPEN_MAX: usize = 16;

/// The maximum number of events that a process numbers after its store has failed.
const UNSTORED_MAX: u64 = 1 << 32;

/// The maximum number of logs whose index and end are kept in memory.
const LOGS_MAX: usize = 4_096;

/// The directory of all event logs.
#[derive(Debug)]
pub struct FileEvents {
    root: PathBuf,
    /// The index of each log that was read: file positions before some of its events, in ascending order. A read starts
    /// at the nearest position.
    index: Mutex<HashMap<RunKey, Vec<LogPosition>>>,
    /// The end of each log that this process writes, after its last append.
    ends: Mutex<HashMap<RunKey, LogPosition>>,
    /// The files of the most recently written logs, because a run writes its log several times in each turn.
    open: Mutex<VecDeque<(RunKey, Arc<File>)>>,
}

impl FileEvents {
    pub fn of(home: &Home) -> Self {
        Self {
            root: home.data().join("events"),
            index: Mutex::default(),
            ends: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Removes the log of a run. It is not an error if the log does not exist.
    pub fn remove(&self, key: &RunKey) -> io::Result<()> {
        lock(&self.index).remove(key);
        lock(&self.ends).remove(key);
        self.close(key);
        for path in self.files_of(key) {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes logs of the local user that have not been written for this time. The logs of other tenants have their own
    /// limits ([`TenantData`](crate::retention::TenantData)), and a suspended run of theirs still needs its log.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        let local = self.root.join(directory_of(Principal::local().tenant()));
        sweep::remove_unchanged(sweep::entries(&local), keep, now);
    }

    /// Returns the files of the log of a run, which need not exist.
    pub(crate) fn files_of(&self, key: &RunKey) -> [PathBuf; 2] {
        [self.mark_path(key), self.path(key)]
    }

    fn path(&self, key: &RunKey) -> PathBuf {
        self.root.join(directory_of(&key.tenant)).join(format!("{}.jsonl", key.run))
    }

    fn mark_path(&self, key: &RunKey) -> PathBuf {
        self.path(key).with_extension("unstored")
    }

    /// Marks the numbers from `first` on as used after the store has failed, because the process continues to number
    /// events without the store.
    fn mark_failed<T>(&self, key: &RunKey, first: u64, outcome: &Result<T, StoreError>) {
        if let Err(StoreError::Unavailable { .. }) = outcome {
            // Ignore the error: if haft cannot write the mark either, there is no other place for it.
            let _ = self.mark_unstored(key, first);
        }
    }

    /// Writes the mark: a symbolic link whose target is the number, because a full disk has no block for the content of
    /// a file, but a short link needs none.
    fn mark_unstored(&self, key: &RunKey, first: u64) -> io::Result<()> {
        let mark = self.mark_path(key);
        let new = mark.with_extension(format!("unstored-{}", uuid::Uuid::new_v4().simple()));
        symlink(first.to_string(), &new)?;
        std::fs::rename(&new, &mark).inspect_err(|_| drop(std::fs::remove_file(&new)))
    }

    /// Returns the highest number that an unstored event may have; `None` if all events were stored.
    fn last_unstored(&self, key: &RunKey) -> Option<u64> {
        let target = std::fs::read_link(self.mark_path(key)).ok()?;
        let first = target.to_str()?.parse::<u64>().ok()?;
        Some(first.saturating_add(UNSTORED_MAX))
    }

    /// Fences older writers. Returns the number of the last event before the claim; readers skip the events of an older
    /// writer after the claim.
    fn claim_now(&self, key: &RunKey, epoch: Epoch) -> Result<u64, StoreError> {
        self.known_end(key).check(epoch)?;
        let claim = tail::claim_lines(epoch, self.last_unstored(key));
        self.write(key, &claim).map_err(unavailable)?;
        let end = self.find_end(key).map_err(unavailable)?;
        end.check(epoch)?;
        Ok(end.last)
    }

    fn append_now(
        &self,
        key: &RunKey,
        epoch: Epoch,
        events: &[Arc<EventEnvelope>],
    ) -> Result<(), StoreError> {
        let before = self.known_end(key);
        before.check(epoch)?;
        let lines = tail::event_lines(epoch, events).map_err(unavailable)?;
        let mut written = self.write(key, &lines).map_err(unavailable)?;
        if written.nlink() == 0 {
            // Another process has removed the log since the last append.
            self.close(key);
            lock(&self.ends).remove(key);
            written = self.write(key, &lines).map_err(unavailable)?;
        }
        let last = events.last().map_or(before.last, |event| event.seq);
        if before.offset + lines.len() as u64 == written.len() {
            lock(&self.ends).insert(key.clone(), LogPosition { offset: written.len(), epoch, last });
            return Ok(());
        }
        // Another process has written to the log: a process that this one fenced, or a process that fenced this one.
        let mut end = self.find_end(key).map_err(unavailable)?;
        if end.check(epoch).is_ok() && end.last != last {
            // Another process died while it wrote its claim, and our first event was appended to its incomplete line.
            self.write(key, &[tail::LINE_BREAK, &lines].concat()).map_err(unavailable)?;
            end = self.find_end(key).map_err(unavailable)?;
        }
        end.check(epoch)?;
        if end.last == last {
            Ok(())
        } else {
            Err(unavailable(io::Error::other("another program also writes to the event log of the run")))
        }
    }

    /// Writes all lines at once, so that a crash leaves at most one incomplete line, which readers skip.
    fn write(&self, key: &RunKey, lines: &[u8]) -> io::Result<Metadata> {
        let file = self.file(key)?;
        (&*file).write_all(lines)?;
        file.metadata()
    }

    fn file(&self, key: &RunKey) -> io::Result<Arc<File>> {
        let mut open = self.open();
        if let Some((_, file)) = open.iter().find(|(of, _)| of == key) {
            return Ok(Arc::clone(file));
        }
        let path = self.path(key);
        let opened = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let file = Arc::new(private_file::creating_parent_dir(&path, opened)?);
        if open.len() >= OPEN_MAX {
            open.pop_front();
        }
        open.push_back((key.clone(), Arc::clone(&file)));
        Ok(file)
    }

    fn close(&self, key: &RunKey) {
        self.open().retain(|(open, _)| open != key);
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<(RunKey, Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_now(&self, key: &RunKey, from: u64, count: usize) -> io::Result<Vec<EventEnvelope>> {
        let file = match OpenOptions::new().read(true).open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut lines = LogLines::from(file, self.position_before(key, from))?;
        let mut events = Vec::new();
        while events.len() < count {
            let before = lines.position();
            let Some(seq) = lines.next_event()? else { break };
            if seq.is_multiple_of(INDEX_EVERY) {
                self.remember(key, before);
            }
            if seq >= from {
                // Skip a line that cannot be parsed although it is complete: only a crash of the machine can damage it.
                events.extend(serde_json::from_slice::<EventEnvelope>(lines.line()).ok());
            }
        }
        Ok(events)
    }

    /// Returns the last known end of the log.
    fn known_end(&self, key: &RunKey) -> LogPosition {
        lock(&self.ends).get(key).copied().unwrap_or_default()
    }

    /// Finds the end of the log. Starts to read at the last known end.
    fn find_end(&self, key: &RunKey) -> io::Result<LogPosition> {
        let known = self.known_end(key);
        let file = match File::open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(known),
            Err(error) => return Err(error),
        };
        let mut lines = LogLines::from(file, known)?;
        while lines.next_event()?.is_some() {}
        lock(&self.ends).insert(key.clone(), lines.position());
        Ok(lines.position())
    }

    fn position_before(&self, key: &RunKey, from: u64) -> LogPosition {
        let index = lock(&self.index);
        let known = index.get(key).map_or(&[][..], Vec::as_slice);
        let at = known.partition_point(|position| position.last < from);
        at.checked_sub(1).map_or_else(LogPosition::default, |at| known[at])
    }

    fn remember(&self, key: &RunKey, before: LogPosition) {
        let mut index = lock(&self.index);
        let known = index.entry(key.clone()).or_default();
        if known.last().is_none_or(|last| last.last < before.last) {
            known.push(before);
        }
    }
}

impl EventStore for FileEvents {
    fn claim<'a>(&'a self, key: &'a RunKey, epoch: Epoch) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let claimed = self.claim_now(key, epoch);
            self.mark_failed(key, self.known_end(key).last + 1, &claimed);
            claimed
        })
    }

    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        epoch: Epoch,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let stored = self.append_now(key, epoch, events);
            if let Some(first) = events.first() {
                self.mark_failed(key, first.seq, &stored);
            }
            stored
        })
    }

    fn last<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move { self.find_end(key).map(|end| end.last).map_err(unavailable) })
    }

    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: u64,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<EventEnvelope>, StoreError>> {
        Box::pin(async move { self.read_now(key, from, count).map_err(unavailable) })
    }
}

fn lock<T>(map: &Mutex<HashMap<RunKey, T>>) -> MutexGuard<'_, HashMap<RunKey, T>> {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    // Clear a map that has become too large. Both maps may lose their entries at any time, because haft can read the
    // values from the files again.
    if map.len() > LOGS_MAX {
        map.clear();
    }
    map
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable { reason: error.to_string() }
}

#[cfg(test)]
mod tests;
