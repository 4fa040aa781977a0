//! Errors of writing and reading recordings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::VERSION;

/// An error about a recording file, written for the operator who named it.
#[derive(Debug)]
pub struct RecordingError {
    pub path: PathBuf,
    pub problem: Problem,
}

/// The reason of a `RecordingError`.
#[derive(Debug)]
pub enum Problem {
    Exists,
    Io(io::Error),
    NotAFile,
    TooLarge { bytes_max: u64 },
    NotARecording,
    UnknownVersion { found: u32 },
    BadLine { line: usize, problem: String },
    NoModel,
    NoRun,
}

impl RecordingError {
    pub(super) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }

    pub fn line(path: &Path, line: usize, problem: impl fmt::Display) -> Self {
        Self::new(path, Problem::BadLine { line, problem: problem.to_string() })
    }
}

impl RecordingError {
    /// Returns the description of the problem without the hint.
    pub fn message(&self) -> String {
        let path = self.path.display();
        match &self.problem {
            Problem::Exists => format!("{path} is there already"),
            Problem::Io(error) => format!("{path}: {error}"),
            Problem::NotAFile => format!("{path} is no file"),
            Problem::TooLarge { bytes_max } => format!("{path} has more than {bytes_max} bytes"),
            Problem::NotARecording => format!("{path} is no recording"),
            Problem::UnknownVersion { found } => {
                format!("{path} has version {found}, this program reads version {VERSION}")
            }
            Problem::BadLine { line, problem } => format!("{path}: line {line} cannot be read: {problem}"),
            Problem::NoModel => format!("{path} holds no exchange with a model"),
            Problem::NoRun => format!("{path} holds no run"),
        }
    }

    pub fn hint(&self) -> &'static str {
        match self.problem {
            Problem::Exists => "a recording is never written over: name another file, or remove it",
            Problem::Io(_) => "check the path and its rights",
            Problem::NotAFile | Problem::NotARecording => "name a file that --record wrote",
            Problem::TooLarge { .. } => "record fewer turns into one file",
            Problem::UnknownVersion { .. } => "record anew, or replay with the program that wrote it",
            Problem::BadLine { .. } => "take the line out, or record anew",
            Problem::NoRun => "name a file that `haft run --record` wrote",
            Problem::NoModel => "it may be of another kind, or it ended before a model was asked",
        }
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message(), self.hint())
    }
}

impl std::error::Error for RecordingError {}
