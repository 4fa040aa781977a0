//! Request and stream settings of tools over HTTP.

use std::time::Duration;

use super::method::Method;

/// The methods whose operations become tools when the operator names none.
pub const METHODS_DEFAULT: [Method; 5] =
    [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// Whether deprecated operations are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeprecatedOperations {
    /// Deprecated operations become no tools.
    LeftOut,
    /// Deprecated operations become tools like any other.
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
pub struct StreamSettings {
    /// The framing of the events in the body.
    pub mode: StreamMode,
    /// Removed from the start of every line of a JSON stream.
    pub line_prefix: String,
    /// The field that holds the type of an event.
    pub discriminator_field: String,
    /// The type of the event that ends the stream.
    pub done_value: String,
    /// The field of the last event that holds the answer. Without it the collected tokens are the answer.
    pub answer_field: String,
    /// The type of the events that hold a piece of the answer.
    pub token_value: String,
    /// The field of these events that holds the piece.
    pub token_field: String,
    /// The longest time for the whole stream.
    pub timeout: Duration,
    /// The most bytes that are read from the stream.
    pub bytes_max: usize,
}

/// The framing of a stream of JSON events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// One JSON value per line.
    JsonStream,
    /// Server-sent events with JSON data.
    Sse,
}

impl Default for StreamSettings {
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
