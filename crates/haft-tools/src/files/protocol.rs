//! What the engine asks of the file worker, and what it is told.
//!
//! These types are a boundary of their own: both ends are the same binary, so they carry no version. Every request
//! gets exactly one reply, in the order of the requests; a client that wants two at once starts two workers.

use serde::{Deserialize, Serialize};

/// One thing to do to a file. Paths are absolute: the caller has already resolved them against the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRequest {
    /// `offset` is the 1-based first line, `limit` the number of lines.
    Read {
        path: String,
        offset: Option<u64>,
        limit: Option<u64>,
        /// How much of it is wanted.
        bytes_max: usize,
    },
    Write {
        path: String,
        content: String,
    },
    Edit {
        path: String,
        old_string: String,
        new_string: String,
        replace_all: bool,
    },
    Introspect {
        path: String,
        level: IntrospectLevel,
    },
}

/// How deep `introspect` looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntrospectLevel {
    /// The names of the files, and the readme.
    Overview,
    /// The content of every text file.
    All,
}

/// The text for the model, or why there is none.
pub type FileReply = Result<FileText, FileError>;

/// What a request gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileText {
    pub text: String,
    /// Characters after it that were not wanted.
    pub chars_beyond: usize,
}

impl From<String> for FileText {
    fn from(text: String) -> Self {
        Self { text, chars_beyond: 0 }
    }
}

/// Why a request was not carried out, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    pub kind: FileErrorKind,
    pub message: String,
}

/// Whether trying again elsewhere could help (`Failed`), or the kernel will refuse again (`Denied`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileErrorKind {
    Denied,
    Failed,
}

impl FileError {
    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self { kind: FileErrorKind::Denied, message: message.into() }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { kind: FileErrorKind::Failed, message: message.into() }
    }
}
