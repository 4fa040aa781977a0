//! Reads a recording: lines of every kind, each kept as text until it is parsed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::Problem;
use super::{KIND_HEAD, LINE_BYTES_MAX, RECORDING_BYTES_MAX, RecordingError, VERSION};

/// All lines of a recording file.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    lines: Vec<Line>,
    cut_off: bool,
}

/// One line.
#[derive(Debug)]
pub struct Line {
    /// The line number, from 1.
    pub number: usize,
    pub kind: String,
    text: String,
}

/// The field that every line has.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

impl Recording {
    pub fn read(path: &Path) -> Result<Self, RecordingError> {
        let wrong = |problem| RecordingError::new(path, problem);
        let about = std::fs::metadata(path).map_err(|error| wrong(Problem::Io(error)))?;
        if !about.is_file() {
            return Err(wrong(Problem::NotAFile));
        }
        if about.len() > RECORDING_BYTES_MAX {
            return Err(wrong(Problem::TooLarge { bytes_max: RECORDING_BYTES_MAX }));
        }
        let file = File::open(path).map_err(|error| wrong(Problem::Io(error)))?;
        // Limited again, because the file may grow after the size check.
        Self::read_from(path, BufReader::new(file.take(RECORDING_BYTES_MAX)))
    }

    /// Like [`read`](Self::read), from any reader; the path is used in messages only.
    pub fn read_from(path: &Path, mut from: impl BufRead) -> Result<Self, RecordingError> {
        check_head(path, &mut from)?;
        let mut recording = Self { path: path.to_owned(), lines: Vec::new(), cut_off: false };
        for number in 2.. {
            let Some(bytes) = next_line(path, number, &mut from)? else { break };
            match line(number, &bytes) {
                Ok(line) => recording.lines.push(line),
                // A last line without a newline was cut off when the writing process was killed. All lines before
                // it are whole.
                Err(_) if bytes.last() != Some(&b'\n') => recording.cut_off = true,
                Err(problem) => return Err(RecordingError::line(path, number, problem)),
            }
        }
        Ok(recording)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the last line was incomplete and was skipped.
    pub fn cut_off(&self) -> bool {
        self.cut_off
    }

    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.kind == kind)
    }

    /// Parses a line into the type of its kind.
    pub fn parse<T: DeserializeOwned>(&self, line: &Line) -> Result<T, RecordingError> {
        serde_json::from_str(&line.text).map_err(|error| RecordingError::line(&self.path, line.number, error))
    }
}

fn check_head(path: &Path, from: &mut impl BufRead) -> Result<(), RecordingError> {
    let not_one = || RecordingError::new(path, Problem::NotARecording);
    // A file that is no recording may be one endless line, so only its first 1024 bytes are read.
    let bytes = next_line(path, 1, &mut from.take(1 << 10))?.ok_or_else(not_one)?;
    let head = line(1, &bytes).map_err(|_| not_one())?;
    if head.kind != KIND_HEAD {
        return Err(not_one());
    }
    let Head { version } = serde_json::from_str(&head.text).map_err(|_| not_one())?;
    if version == VERSION {
        return Ok(());
    }
    Err(RecordingError::new(path, Problem::UnknownVersion { found: version }))
}

fn next_line(path: &Path, number: usize, from: &mut impl BufRead) -> Result<Option<Vec<u8>>, RecordingError> {
    let mut bytes = Vec::new();
    let read = from.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut bytes);
    read.map_err(|error| RecordingError::new(path, Problem::Io(error)))?;
    if bytes.len() > LINE_BYTES_MAX {
        let problem = format!("it has more than {LINE_BYTES_MAX} bytes");
        return Err(RecordingError::line(path, number, problem));
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn line(number: usize, bytes: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned())?;
    let Kind { kind } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Line { number, kind, text: text.to_owned() })
}
