//! The protocol between the engine and the file worker.
//!
//! Both ends are the same binary, so the messages have no version field. Every request gets exactly one reply, in the
//! order of the requests. A client that needs two requests at the same time starts two workers.

use serde::{Deserialize, Serialize};

/// A request to the file worker. Paths are absolute: the caller has already resolved them against the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRequest {
    /// `offset` is the 1-based first line, `limit` the number of lines.
    Read {
        path: String,
        offset: Option<u64>,
        limit: Option<u64>,
        /// The maximum number of bytes to return.
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

/// The level of detail of `introspect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntrospectLevel {
    /// The names of the files, and the readme.
    Overview,
    /// The content of every text file.
    All,
}

/// The text for the model, or the reason why the request failed.
pub type FileReply = Result<FileText, FileError>;

/// The result of a successful request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileText {
    pub text: String,
    /// The number of characters that follow the text but exceed `bytes_max`.
    pub chars_beyond: usize,
    /// The image, if the file contains an image instead of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<FileImage>,
}

/// The image that a file contains, for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileImage {
    pub media_type: String,
    pub base64: String,
}

impl From<String> for FileText {
    fn from(text: String) -> Self {
        Self { text, chars_beyond: 0, image: None }
    }
}

/// The reason why a request failed, as a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    pub kind: FileErrorKind,
    pub message: String,
}

/// The kind of failure: `Denied` if the kernel refuses this request and will refuse it again, `Failed` if another
/// attempt could succeed.
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
