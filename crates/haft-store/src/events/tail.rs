//! Reads the lines of an event log in a file, and decides which of them belong to the log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::sync::Arc;

use haft_core::event_log::EventEnvelope;
use haft_core::output_store::StoreError;
use haft_core::run::journal::Epoch;

/// A position between two lines of a log, with the values that decide if the next line belongs to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPosition {
    pub(super) offset: u64,
    /// The newest claim before this position.
    pub(super) epoch: Epoch,
    /// The number of the last event before this position.
    pub(super) last: u64,
}

impl Default for LogPosition {
    fn default() -> Self {
        Self { offset: 0, epoch: Epoch::FIRST, last: 0 }
    }
}

impl LogPosition {
    /// Returns an error if a writer with this claim is fenced.
    pub(super) fn check(self, epoch: Epoch) -> Result<(), StoreError> {
        if self.epoch > epoch { Err(StoreError::Fenced) } else { Ok(()) }
    }

    /// Moves past a line. Returns true if the line is an event of the log, and false if it comes from a fenced writer.
    fn pass(&mut self, line: &[u8]) -> bool {
        match LogLine::of(line) {
            Some(LogLine::Event { seq, epoch }) if epoch >= self.epoch && self.may_follow(seq, epoch) => {
                (self.epoch, self.last) = (epoch, seq);
                true
            }
            Some(LogLine::Claim { epoch, after }) => {
                if epoch > self.epoch {
                    (self.epoch, self.last) = (epoch, self.last.max(after));
                }
                false
            }
            Some(LogLine::Event { .. }) | None => false,
        }
    }

    /// Returns true if an event with this number may come next. Numbers are consecutive. Older versions wrote no
    /// claims. When such a version took over a run, it skipped a million numbers, so that events of the fenced process
    /// had lower numbers.
    fn may_follow(self, seq: u64, epoch: Epoch) -> bool {
        // A log that another process has removed may begin with any number.
        if epoch == Epoch::FIRST || self.last == 0 { seq > self.last } else { seq == self.last + 1 }
    }
}

enum LogLine {
    Event {
        seq: u64,
        epoch: Epoch,
    },
    /// The claim of a writer, whose events have numbers above `after`.
    Claim {
        epoch: Epoch,
        after: u64,
    },
}

impl LogLine {
    /// Parses only the beginning and the end of a line. Returns `None` for a line that a crash cut off.
    fn of(line: &[u8]) -> Option<Self> {
        let fields = line.strip_suffix(b"}")?;
        if let Some(claim) = fields.strip_prefix(br#"{"claim":"#) {
            let mut parts = claim.split(|byte| *byte == b',');
            let epoch = Epoch(number(parts.next()?)?);
            let after = parts.next().map_or(Some(0), |after| number(after.strip_prefix(br#""after":"#)?))?;
            return Some(Self::Claim { epoch, after });
        }
        let rest = fields.strip_prefix(br#"{"seq":"#)?;
        let seq = number(rest.split(|byte| *byte == b',').next()?)?;
        Some(Self::Event { seq, epoch: last_field(fields).unwrap_or(Epoch::FIRST) })
    }
}

/// Returns the epoch of a line, which is its last field. In a line without an epoch, the last field is the object
/// `event`.
fn last_field(fields: &[u8]) -> Option<Epoch> {
    let at = fields.iter().rposition(|byte| !byte.is_ascii_digit())? + 1;
    let (before, digits) = fields.split_at(at);
    before.ends_with(br#"},"epoch":"#).then(|| number(digits).map(Epoch))?
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the lines of events. Lines of the first writer have no epoch, as in older versions. Lines of any other
/// writer begin with a line break, because a fenced writer may have left an incomplete line.
pub(super) fn event_lines(epoch: Epoch, events: &[Arc<EventEnvelope>]) -> io::Result<Vec<u8>> {
    let mut lines = if epoch == Epoch::FIRST { Vec::new() } else { LINE_BREAK.to_vec() };
    for event in events {
        serde_json::to_writer(&mut lines, &**event)?;
        if epoch > Epoch::FIRST {
            lines.pop();
            write!(lines, r#","epoch":{}}}"#, epoch.0)?;
        }
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Ends an incomplete line of another writer. No event ends with `#`, so the line becomes invalid even if only its line
/// end was missing. This is correct, because the append of that writer never succeeded.
pub(super) const LINE_BREAK: &[u8] = b"#\n";

/// Returns the line of a claim. `after` is the highest number that an unstored event may have.
pub(super) fn claim_lines(epoch: Epoch, after: Option<u64>) -> Vec<u8> {
    let after = after.map(|after| format!(",\"after\":{after}")).unwrap_or_default();
    let claim = format!("{{\"claim\":{}{after}}}\n", epoch.0);
    [LINE_BREAK, claim.as_bytes()].concat()
}

/// Reads the events of a log, starting at a position.
pub(super) struct LogLines {
    reader: BufReader<File>,
    position: LogPosition,
    line: Vec<u8>,
}

impl LogLines {
    pub(super) fn from(mut file: File, position: LogPosition) -> io::Result<Self> {
        file.seek(SeekFrom::Start(position.offset))?;
        Ok(Self { reader: BufReader::new(file), position, line: Vec::new() })
    }

    /// Moves past the next event and returns its number; `None` at the end of the complete lines.
    pub(super) fn next_event(&mut self) -> io::Result<Option<u64>> {
        loop {
            self.line.clear();
            let bytes = self.reader.read_until(b'\n', &mut self.line)?;
            if self.line.pop_if(|last| *last == b'\n').is_none() {
                return Ok(None);
            }
            self.position.offset += bytes as u64;
            if self.position.pass(&self.line) {
                return Ok(Some(self.position.last));
            }
        }
    }

    /// Returns the line of the last event.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    pub(super) fn position(&self) -> LogPosition {
        self.position
    }
}
