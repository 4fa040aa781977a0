//! Request and stream settings of tools over HTTP.

use std::time::Duration;

use super::method::Method;

/// The methods whose operations become tools when the operator names none.
pub const METHODS_DEFAULT: [Method; 5] =
    [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// Whether deprecated operations are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deprecated {
    LeftOut,
    Kept,
}

/// The form of lists and objects in the query of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryForm {
    /// A list repeats its key, an object is JSON text.
    Plain,
    /// `key[0][prop]=v`.
    Brackets,
}

/// The settings for reading a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streaming {
    pub mode: StreamMode,
    /// Removed from the start of every line of a JSON stream.
    pub line_prefix: String,
    /// The field that holds the type of an event.
    pub discriminator_field: String,
    pub done_value: String,
    pub answer_field: String,
    pub token_value: String,
    pub token_field: String,
    pub timeout: Duration,
    pub bytes_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    JsonStream,
    Sse,
}

impl Default for Streaming {
    fn default() -> Self {
        Self {
            mode: StreamMode::JsonStream,
            line_prefix: String::new(),
            discriminator_field: "type".into(),
            done_value: "done".into(),
            answer_field: "answer".into(),
            token_value: "token".into(),
            token_field: "content".into(),
            timeout: Duration::from_mins(2),
            bytes_max: 4 * 1024 * 1024,
        }
    }
}
