//! Reads a recording. This module reads only the type and the session of each line; the caller parses the rest with
//! [`Recording::parse`].

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::RecordingProblem;
use super::{
    LINE_BYTES_MAX, RECORDING_BYTES_MAX, RecordingError, TYPE_EXCHANGE, TYPE_HEAD, VERSION, VERSION_OLDEST,
};

/// The line types that had a different name in version 2.
const RENAMED: [(&str, &str); 7] = [
    ("model", TYPE_EXCHANGE),
    ("typed", "sources"),
    ("run", "session"),
    ("step", "told"),
    ("abort", "told"),
    ("tool", "event"),
    ("aside", "attempt"),
];

/// All lines of a recording file.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    lines: Vec<RecordingLine>,
    cut_off: bool,
}

/// One line in a recording.
#[derive(Debug)]
pub struct RecordingLine {
    /// The line number, counted from 1.
    pub number: usize,
    /// The type of the line.
    pub kind: String,
    /// The session to whose journal this line belongs; `None` for lines that are only in a recording.
    pub journal: Option<String>,
    text: String,
}

/// The fields by which a reader finds the lines that it parses.
#[derive(Deserialize)]
struct RecordingEnvelope {
    #[serde(rename = "type")]
    kind: String,
    journal: Option<String>,
}

/// The same fields in version 2 of the format.
#[derive(Deserialize)]
struct RecordingEnvelopeV2 {
    kind: String,
}

#[derive(Deserialize)]
struct RecordingHead {
    #[serde(rename = "type", alias = "kind")]
    kind: String,
    version: u32,
}

impl Recording {
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let wrong = |problem| RecordingError::new(path, problem);
        let about = std::fs::metadata(path).map_err(|error| wrong(RecordingProblem::Io(error)))?;
        if !about.is_file() {
            return Err(wrong(RecordingProblem::NotAFile));
        }
        if about.len() > RECORDING_BYTES_MAX {
            return Err(wrong(RecordingProblem::TooLarge { bytes_max: RECORDING_BYTES_MAX }));
        }
        let file = File::open(path).map_err(|error| wrong(RecordingProblem::Io(error)))?;
        // Limit the number of bytes again, because the file may grow after the size check.
        Self::read_from(path, BufReader::new(file.take(RECORDING_BYTES_MAX)))
    }

    /// Works like [`read`](Self::read), but with any reader. The path is used only in messages.
    pub fn read_from(path: &Path, mut from: impl BufRead) -> Result<Self, RecordingError> {
        let version = version(path, &mut from)?;
        let mut recording = Self { path: path.to_owned(), lines: Vec::new(), cut_off: false };
        for number in 2.. {
            let Some(bytes) = next_line(path, number, &mut from)? else { break };
            match line(version, number, &bytes) {
                Ok(line) => recording.lines.push(line),
                // A last line without a newline was cut off when the writing process was killed. All lines before it
                // are complete.
                Err(_) if bytes.last() != Some(&b'\n') => recording.cut_off = true,
                Err(problem) => return Err(RecordingError::line(path, number, problem)),
            }
        }
        Ok(recording)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the last line was incomplete and was skipped.
    pub fn cut_off(&self) -> bool {
        self.cut_off
    }

    pub fn lines(&self) -> &[RecordingLine] {
        &self.lines
    }

    pub fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a RecordingLine> {
        self.lines.iter().filter(move |line| line.kind == kind)
    }

    /// Returns the journal lines of one session, in the form of its session file.
    pub fn journal(&self, session: &str) -> String {
        let lines = self.lines.iter().filter(|line| line.journal.as_deref() == Some(session));
        lines.flat_map(|line| [line.text.trim_end(), "\n"]).collect()
    }

    /// Parses a line.
    pub fn parse<T: DeserializeOwned>(&self, line: &RecordingLine) -> Result<T, RecordingError> {
        serde_json::from_str(&line.text).map_err(|error| RecordingError::line(&self.path, line.number, error))
    }
}

/// Reads the version from the first line.
fn version(path: &Path, from: &mut impl BufRead) -> Result<u32, RecordingError> {
    let not_one = || RecordingError::new(path, RecordingProblem::NotARecording);
    // Read only the first 1024 bytes, because a file that is not a recording may be one endless line.
    let bytes = next_line(path, 1, &mut from.take(1 << 10))?.ok_or_else(not_one)?;
    let RecordingHead { kind, version } = serde_json::from_slice(&bytes).map_err(|_| not_one())?;
    if kind != TYPE_HEAD {
        return Err(not_one());
    }
    if (VERSION_OLDEST..=VERSION).contains(&version) {
        return Ok(version);
    }
    Err(RecordingError::new(path, RecordingProblem::UnknownVersion { found: version }))
}

fn next_line(path: &Path, number: usize, from: &mut impl BufRead) -> Result<Option<Vec<u8>>, RecordingError> {
    let mut bytes = Vec::new();
    let read = from.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut bytes);
    read.map_err(|error| RecordingError::new(path, RecordingProblem::Io(error)))?;
    if bytes.len() > LINE_BYTES_MAX {
        let problem = format!("the line has more than {LINE_BYTES_MAX} bytes");
        return Err(RecordingError::line(path, number, problem));
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn line(version: u32, number: usize, bytes: &[u8]) -> Result<RecordingLine, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the line is not UTF-8 text".to_owned())?;
    let envelope = if version == 2 { old_envelope(text) } else { serde_json::from_str(text) };
    let RecordingEnvelope { kind, journal } = envelope.map_err(|error| error.to_string())?;
    Ok(RecordingLine { number, kind, journal, text: text.to_owned() })
}

fn old_envelope(text: &str) -> serde_json::Result<RecordingEnvelope> {
    let RecordingEnvelopeV2 { kind } = serde_json::from_str(text)?;
    let renamed = RENAMED.iter().find(|(old, _)| *old == kind).map(|(_, new)| (*new).to_owned());
    Ok(RecordingEnvelope { kind: renamed.unwrap_or(kind), journal: None })
}
