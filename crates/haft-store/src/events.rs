//! Event logs as files: one line per event, one file per run. [`MemoryEvents`] keeps them in memory instead.

mod memory;

use std::collections::{HashMap, VecDeque};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore, RunKey};
use haft_core::home::Home;
use haft_core::output_store::StoreError;
use haft_fs::private_file;

use crate::sweep;
use crate::tenant::directory_of;

pub use memory::MemoryEvents;

/// The number of events between two index entries, so that a reader in the middle of a long log need not scan it all.
const INDEX_EVERY: u64 = 256;

/// The bytes at the end of a log that are read to find its last event; more when that event is larger. A process that
/// was fenced writes one more batch of events at most, which is smaller.
const TAIL_BYTES: u64 = 256 << 10;

/// The number of logs whose files stay open. Few, because a server with thousands of runs needs its descriptors for
/// connections.
const OPEN_MAX: usize = 16;

/// The number of logs whose index and length are kept in memory.
const LOGS_MAX: usize = 4_096;

/// The directory of all event logs.
#[derive(Debug)]
pub struct FileEvents {
    root: PathBuf,
    /// For each log that was read: event numbers and their file offsets, in ascending order.
    index: Mutex<HashMap<RunKey, Vec<(u64, u64)>>>,
    /// For each log that this process writes: its length after the last append.
    lengths: Mutex<HashMap<RunKey, u64>>,
    /// The files of the logs that were written last. A run writes its log several times in each turn.
    open: Mutex<VecDeque<(RunKey, Arc<File>)>>,
}

impl FileEvents {
    pub fn of(home: &Home) -> Self {
        Self {
            root: home.data().join("events"),
            index: Mutex::default(),
            lengths: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Removes the log of a run. A log that does not exist is no error.
    pub fn remove(&self, key: &RunKey) -> io::Result<()> {
        lock(&self.index).remove(key);
        lock(&self.lengths).remove(key);
        self.close(key);
        match std::fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes logs that were not written for this long.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        let of_tenants = sweep::entries(&self.root).flat_map(|tenant| sweep::entries(&tenant.path()));
        sweep::remove_unchanged(of_tenants, keep, now);
    }

    fn path(&self, key: &RunKey) -> PathBuf {
        self.root.join(directory_of(&key.tenant)).join(format!("{}.jsonl", key.run))
    }

    fn append_now(&self, key: &RunKey, events: &[Arc<EventEnvelope>]) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, &**event)?;
            lines.push(b'\n');
        }
        let mut written = self.write(key, &lines)?;
        if written.nlink() == 0 {
            // Another process removed the log since the last append.
            self.close(key);
            written = self.write(key, &lines)?;
        }
        let own = events.last().map_or(0, |event| event.seq);
        let length = written.len();
        let before = lock(&self.lengths).insert(key.clone(), length);
        let is_alone = before.is_none_or(|before| before + lines.len() as u64 == length);
        // Another process has written. If its numbers are lower, it was fenced and wrote its last batch; otherwise it
        // continues the run, and this process must stop writing.
        if is_alone || self.last_now(key)? == own {
            return Ok(());
        }
        Err(io::Error::other("another process continues the run and writes its events"))
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
        let file = match opened() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_file::create_parent_dir(&path)?;
                opened()?
            }
            opened => opened?,
        };
        let file = Arc::new(file);
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
        let mut offset = self.offset_before(key, from);
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(offset))?;
        let (mut events, mut line) = (Vec::new(), Vec::new());
        let mut highest = 0;
        while events.len() < count {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            // Skip a line that a crash cut short, and one of a fenced process behind those of its successor: the
            // successor leaves out numbers, so the older process has lower ones.
            if let Ok(event) = serde_json::from_slice::<EventEnvelope>(&line)
                && event.seq > highest
            {
                highest = event.seq;
                self.remember(key, event.seq, offset);
                if event.seq >= from {
                    events.push(event);
                }
            }
            offset += bytes as u64;
        }
        Ok(events)
    }

    /// Returns the highest number at the end of the log. It need not be in the last line: a fenced process may have
    /// written a few events behind those of its successor.
    fn last_now(&self, key: &RunKey) -> io::Result<u64> {
        let mut file = match OpenOptions::new().read(true).open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let length = file.seek(SeekFrom::End(0))?;
        // From now on this process writes the log.
        lock(&self.lengths).insert(key.clone(), length);
        let mut window = TAIL_BYTES;
        loop {
            let start = length.saturating_sub(window);
            file.seek(SeekFrom::Start(start))?;
            let mut tail = Vec::new();
            (&mut file).take(length - start).read_to_end(&mut tail)?;
            let complete = tail.split(|byte| *byte == b'\n').rev().skip(1);
            match complete.filter_map(seq_of).max() {
                Some(seq) => return Ok(seq),
                None if start == 0 => return Ok(0),
                None => window *= 8,
            }
        }
    }

    fn offset_before(&self, key: &RunKey, from: u64) -> u64 {
        let index = lock(&self.index);
        let known = index.get(key).map_or(&[][..], Vec::as_slice);
        let at = known.partition_point(|(seq, _)| *seq <= from);
        at.checked_sub(1).map_or(0, |at| known[at].1)
    }

    fn remember(&self, key: &RunKey, seq: u64, offset: u64) {
        if !seq.is_multiple_of(INDEX_EVERY) {
            return;
        }
        let mut index = lock(&self.index);
        let known = index.entry(key.clone()).or_default();
        if known.last().is_none_or(|(last, _)| *last < seq) {
            known.push((seq, offset));
        }
    }
}

impl EventStore for FileEvents {
    fn last<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move { self.last_now(key).map_err(unavailable) })
    }

    fn append<'a>(
        &'a self,
        key: &'a RunKey,
        events: &'a [Arc<EventEnvelope>],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.append_now(key, events).map_err(unavailable) })
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

/// Returns the number of an event, which is the first field of its line.
fn seq_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.split(|byte| *byte == b',').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn lock<T>(map: &Mutex<HashMap<RunKey, T>>) -> MutexGuard<'_, HashMap<RunKey, T>> {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    // Both maps only save work or detect a rare case, so a long-lived process may forget them.
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
