//! Reads the lines of a session with a size limit. Errors name the line that cannot be read.

use std::io::{self, BufRead, BufReader, Read};

use haft_core::run::journal::Epoch;

use super::line::{JournalVersion, SessionJournalLine, VERSION, VERSION_OLDEST};

/// The size of a read, in bytes. Most journals are larger than the default of 8 KB.
const READ_BYTES: usize = 64 << 10;

/// The reason why the lines of a session cannot be used. Line numbers start at one.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}")]
    Io(io::Error),
    /// The first line is missing.
    #[error("the journal is empty")]
    Empty,
    /// The first line has no version.
    #[error("the first line of the journal is not a session header")]
    NoHeader,
    /// Another version of this program wrote the session.
    #[error(
        "the session has version {found}, but this version of haft reads versions {VERSION_OLDEST} to \
         {VERSION}; use the version that wrote the session"
    )]
    Version { found: u32 },
    #[error("line {number} of the journal is not valid: {problem}")]
    Line { number: usize, problem: String },
    /// The lines contradict each other, so that haft cannot compute the state of the session.
    #[error("{problem}")]
    Broken { problem: String },
}

/// The valid lines of one session.
///
/// Each claim of the journal has an epoch, which all lines of the claim contain, except the lines of the first claim. A
/// line with an older epoch than the newest claim before it is invalid: its writer was fenced, and the next holder did
/// not see the line. An incomplete last line is skipped, because its write never finished. Empty lines are skipped too,
/// because a takeover writes a line end after a line that may be incomplete.
#[derive(Debug)]
pub struct JournalLines<R> {
    text: BufReader<R>,
    number: usize,
    /// The size of the complete lines so far, in bytes.
    bytes: u64,
    epoch: Epoch,
    /// The last line, without its newline. The buffer is reused for each line.
    line: Vec<u8>,
}

/// The beginning of a line that claims a journal.
const CLAIM: &[u8] = br#"{"type":"resumed","#;

/// Returns the epoch of a line, and true if the line is a claim.
pub(super) fn epoch_of(line: &[u8]) -> (Epoch, bool) {
    (Epoch(epoch_field(line).unwrap_or(Epoch::FIRST.0)), line.starts_with(CLAIM))
}

/// Returns the field `epoch`, which is the last one. No other text can look like it: quotes inside a string are
/// escaped, and a nested object would end with two braces.
fn epoch_field(line: &[u8]) -> Option<u64> {
    let rest = line.strip_suffix(b"}")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = rest.split_at(rest.len() - digits);
    rest.ends_with(br#","epoch":"#).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

impl<R: Read> JournalLines<R> {
    pub fn of(file: R) -> Self {
        let text = BufReader::with_capacity(READ_BYTES, file);
        Self { text, number: 0, bytes: 0, epoch: Epoch::FIRST, line: Vec::new() }
    }

    /// Returns the epoch of the newest claim so far.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the size of the complete lines so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn next_line(&mut self) -> Result<Option<SessionJournalLine>, ReadError> {
        if self.next_bytes()?.is_none() {
            return Ok(None);
        }
        self.parse_last().map(Some)
    }

    /// Reads the next valid line, without parsing it.
    pub(super) fn next_bytes(&mut self) -> Result<Option<&[u8]>, ReadError> {
        loop {
            self.line.clear();
            let bytes = self.text.read_until(b'\n', &mut self.line).map_err(ReadError::Io)?;
            if self.line.pop() != Some(b'\n') {
                return if self.number == 0 { Err(ReadError::Empty) } else { Ok(None) };
            }
            self.number += 1;
            self.bytes += bytes as u64;
            if self.number == 1 || self.counts() {
                return Ok(Some(&self.line));
            }
        }
    }

    fn counts(&mut self) -> bool {
        let (epoch, is_claim) = epoch_of(&self.line);
        if is_claim && epoch > self.epoch {
            self.epoch = epoch;
            return true;
        }
        let is_old_claim = is_claim && epoch != Epoch::FIRST;
        epoch == self.epoch && !is_old_claim && !self.line.is_empty()
    }

    /// Parses the line that `next_bytes` read last.
    pub(super) fn parse_last(&self) -> Result<SessionJournalLine, ReadError> {
        if self.number == 1 {
            check_version(&self.line)?;
        }
        let number = self.number;
        let unreadable = |error: serde_json::Error| ReadError::Line { number, problem: error.to_string() };
        serde_json::from_slice(&self.line).map_err(unreadable)
    }
}

impl<R: Read> Iterator for JournalLines<R> {
    type Item = Result<SessionJournalLine, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

fn check_version(first: &[u8]) -> Result<(), ReadError> {
    let found = serde_json::from_slice::<JournalVersion>(first).ok().and_then(|first| first.version);
    match found {
        Some(version) if (VERSION_OLDEST..=VERSION).contains(&version) => Ok(()),
        Some(found) => Err(ReadError::Version { found }),
        None => Err(ReadError::NoHeader),
    }
}
