//! Event logs as files: one line per event, one file per run.

use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore, RunKey};
use haft_core::home::Home;
use haft_core::output_store::StoreError;

use crate::sweep;
use crate::tenant::directory_of;

/// The number of events between two index entries, so that a reader in the middle of a long log need not scan it all.
const INDEX_EVERY: u64 = 256;

/// The bytes at the end of a log that are read to find its last event; more when that event is larger. A process that
/// was fenced writes one more batch of events at most, which is smaller.
const TAIL_BYTES: u64 = 256 << 10;

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
}

impl FileEvents {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("events"), index: Mutex::default(), lengths: Mutex::default() }
    }

    /// Removes the log of a run. A log that does not exist is no error.
    pub fn remove(&self, key: &RunKey) -> io::Result<()> {
        lock(&self.index).remove(key);
        lock(&self.lengths).remove(key);
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
        let path = self.path(key);
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, &**event)?;
            lines.push(b'\n');
        }
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = path.parent().unwrap_or(&self.root);
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                open()?
            }
            opened => opened?,
        };
        // One write, so that a crash leaves at most one incomplete line, which readers skip.
        file.write_all(&lines)?;
        self.check_length(key, file.metadata()?.len(), lines.len() as u64)
    }

    /// Fails if another process has written to the log since the last append of this one: it continues the run, and
    /// this process must stop writing.
    fn check_length(&self, key: &RunKey, length: u64, added: u64) -> io::Result<()> {
        let mut lengths = lock(&self.lengths);
        match lengths.insert(key.clone(), length) {
            Some(before) if before + added != length => {
                Err(io::Error::other("another process continues the run and writes its events"))
            }
            Some(_) | None => Ok(()),
        }
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
mod tests {
    use haft_core::event_log::LogEvent;
    use haft_core::position::{RunPosition, SessionId};

    use super::*;

    fn event(seq: u64) -> Arc<EventEnvelope> {
        let text = LogEvent::TextDelta { text: format!("{seq}") };
        Arc::new(EventEnvelope::new(seq, Some(seq), RunPosition::first(SessionId(1)), text))
    }

    fn fixture() -> (tempfile::TempDir, FileEvents, RunKey) {
        let directory = tempfile::tempdir().unwrap();
        let events = FileEvents::of(&Home::at(directory.path()));
        (directory, events, RunKey { tenant: "local".into(), run: SessionId(1) })
    }

    #[tokio::test]
    async fn events_can_be_read_from_any_sequence_number() {
        let (_directory, events, key) = fixture();
        let all: Vec<_> = (1..=1_000).map(event).collect();
        for part in all.chunks(7) {
            events.append(&key, part).await.unwrap();
        }
        for (from, count) in [(1, 3), (500, 10), (999, 10), (257, 1), (1_001, 5), (1, 2_000), (600, 2)] {
            let read: Vec<u64> =
                events.read(&key, from, count).await.unwrap().iter().map(|event| event.seq).collect();
            let expected: Vec<u64> = (from..=1_000).take(count).collect();
            assert_eq!(read, expected, "{from} {count}");
        }
    }

    #[tokio::test]
    async fn fenced_process_cannot_append_events() {
        let (directory, old, key) = fixture();
        old.append(&key, &[event(1), event(2)]).await.unwrap();
        let new = FileEvents::of(&Home::at(directory.path()));
        assert_eq!(new.last(&key).await.unwrap(), 2);
        new.append(&key, &[event(1_003)]).await.unwrap();
        old.append(&key, &[event(3), event(4)]).await.unwrap_err();
        let read = async |from| -> Vec<u64> {
            new.read(&key, from, 10).await.unwrap().iter().map(|event| event.seq).collect()
        };
        assert_eq!(read(1).await, [1, 2, 1_003]);
        assert_eq!(read(3).await, [1_003]);
        let third = FileEvents::of(&Home::at(directory.path()));
        assert_eq!(third.last(&key).await.unwrap(), 1_003, "no number is used twice");
    }

    #[tokio::test]
    async fn incomplete_last_line_and_other_tenants_are_skipped() {
        let (_directory, events, key) = fixture();
        events.append(&key, &[event(1)]).await.unwrap();
        let mut file = OpenOptions::new().append(true).open(events.path(&key)).unwrap();
        file.write_all(b"{\"seq\":2,\"ru").unwrap();
        assert_eq!(events.read(&key, 1, 10).await.unwrap().len(), 1);
        assert_eq!(events.last(&key).await.unwrap(), 1);
        let other = RunKey { tenant: "../local".into(), ..key };
        assert_eq!(events.read(&other, 1, 10).await.unwrap(), []);
        assert_eq!(events.last(&other).await.unwrap(), 0);
    }
}
