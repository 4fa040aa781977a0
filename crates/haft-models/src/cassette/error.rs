//! The errors of writing and reading recordings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{VERSION, VERSION_OLDEST};

/// An error about a recording file, for the operator who named the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct RecordingError {
    pub path: PathBuf,
    pub problem: RecordingProblem,
}

/// The reason for a `RecordingError`, as a sentence about the file.
#[derive(Debug, thiserror::Error)]
pub enum RecordingProblem {
    #[error("the file exists already, and a recording is never overwritten")]
    Exists,
    #[error("{0}")]
    Io(io::Error),
    #[error("the path is not a file")]
    NotAFile,
    #[error("the file has more than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    #[error("the file is not a recording")]
    NotARecording,
    #[error(
        "the recording has version {found}, but this version of haft reads versions {VERSION_OLDEST} to {VERSION}"
    )]
    UnknownVersion { found: u32 },
    #[error("haft cannot read line {line}: {problem}")]
    BadLine { line: usize, problem: String },
    #[error("the recording contains no exchange with a model")]
    NoModel,
    #[error("the recording contains no run")]
    NoRun,
    #[error("the recording contains no journal for the session of this run")]
    NoJournal,
    #[error("haft cannot read the journal in the recording: {problem}")]
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
