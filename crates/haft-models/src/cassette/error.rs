//! Errors of writing and reading recordings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{VERSION, VERSION_OLDEST};

/// An error about a recording file, written for the operator who named it.
#[derive(Debug)]
pub struct RecordingError {
    pub path: PathBuf,
    pub problem: RecordingProblem,
}

/// The reason of a `RecordingError`.
#[derive(Debug)]
pub enum RecordingProblem {
    Exists,
    Io(io::Error),
    NotAFile,
    TooLarge { bytes_max: u64 },
    NotARecording,
    UnknownVersion { found: u32 },
    BadLine { line: usize, problem: String },
    NoModel,
    NoRun,
    NoJournal,
    BadJournal { problem: String },
}

impl RecordingError {
    pub(super) fn new(path: &Path, problem: RecordingProblem) -> Self {
        Self { path: path.to_owned(), problem }
    }

    pub fn line(path: &Path, line: usize, problem: impl fmt::Display) -> Self {
        Self::new(path, RecordingProblem::BadLine { line, problem: problem.to_string() })
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            RecordingProblem::Exists => {
                write!(f, "{path} exists already, and a recording is never overwritten")
            }
            RecordingProblem::Io(error) => write!(f, "{path}: {error}"),
            RecordingProblem::NotAFile => write!(f, "{path} is not a file"),
            RecordingProblem::TooLarge { bytes_max } => write!(f, "{path} has more than {bytes_max} bytes"),
            RecordingProblem::NotARecording => write!(f, "{path} is not a recording"),
            RecordingProblem::UnknownVersion { found } => {
                write!(
                    f,
                    "{path} has version {found}, but this program reads versions {VERSION_OLDEST} to {VERSION}"
                )
            }
            RecordingProblem::BadLine { line, problem } => {
                write!(f, "{path}: line {line} cannot be read: {problem}")
            }
            RecordingProblem::NoModel => write!(f, "{path} contains no exchange with a model"),
            RecordingProblem::NoRun => write!(f, "{path} contains no run"),
            RecordingProblem::NoJournal => write!(f, "{path} contains no journal of this session"),
            RecordingProblem::BadJournal { problem } => {
                write!(f, "{path}: its journal cannot be read: {problem}")
            }
        }
    }
}

impl std::error::Error for RecordingError {}
