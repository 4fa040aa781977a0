//! Reads the lines of a session with a size limit, and names the line that cannot be read.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use super::line::{Line, VERSION, VERSION_OLDEST, Versioned};

/// The size of a read. Most journals are larger than the default of 8 KB.
const READ_BYTES: usize = 64 << 10;

/// The reason lines cannot be used. Line numbers start at one.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// The first line is missing.
    Empty,
    /// Another version of this program wrote the session.
    Version {
        found: Option<u32>,
    },
    Line {
        number: usize,
        problem: String,
    },
    /// The lines contradict each other.
    Broken {
        problem: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Empty => f.write_str("it has no first line"),
            Self::Version { found: Some(found) } => write!(
                f,
                "it has version {found}, this program reads versions {VERSION_OLDEST} to {VERSION}; use the program that wrote it"
            ),
            Self::Version { found: None } => f.write_str("its first line is not that of a session"),
            Self::Line { number, problem } => write!(f, "line {number}: {problem}"),
            Self::Broken { problem } => f.write_str(problem),
        }
    }
}

impl std::error::Error for ReadError {}

/// The lines of one session. An incomplete last line is skipped: its write never finished.
#[derive(Debug)]
pub struct Lines<R> {
    text: BufReader<R>,
    number: usize,
    /// The last line, without its end. Lines share the memory.
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub fn of(file: R) -> Self {
        Self { text: BufReader::with_capacity(READ_BYTES, file), number: 0, line: Vec::new() }
    }

    fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        if self.next_bytes()?.is_none() {
            return Ok(None);
        }
        self.parse_last().map(Some)
    }

    /// Reads the next line without parsing it.
    pub(super) fn next_bytes(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.line.clear();
        self.text.read_until(b'\n', &mut self.line).map_err(ReadError::Io)?;
        if self.line.pop() != Some(b'\n') {
            return if self.number == 0 { Err(ReadError::Empty) } else { Ok(None) };
        }
        self.number += 1;
        Ok(Some(&self.line))
    }

    /// Parses the line that `next_bytes` read last.
    pub(super) fn parse_last(&self) -> Result<Line, ReadError> {
        if self.number == 1 {
            check_version(&self.line)?;
        }
        let number = self.number;
        let unreadable = |error: serde_json::Error| ReadError::Line { number, problem: error.to_string() };
        serde_json::from_slice(&self.line).map_err(unreadable)
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Result<Line, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

fn check_version(first: &[u8]) -> Result<(), ReadError> {
    let found = serde_json::from_slice::<Versioned>(first).ok().and_then(|first| first.version);
    let is_known = found.is_some_and(|version| (VERSION_OLDEST..=VERSION).contains(&version));
    if is_known { Ok(()) } else { Err(ReadError::Version { found }) }
}
