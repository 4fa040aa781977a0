//! Settings for the requests and streams of HTTP tools.

use std::time::Duration;

use super::method::Method;

/// The methods whose operations become tools if the operator names no methods.
pub const METHODS_DEFAULT: [Method; 5] =
    [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

/// Selects whether deprecated operations are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeprecatedOperations {
    /// Deprecated operations do not become tools.
    LeftOut,
    /// Deprecated operations become tools like any other.
    Kept,
}

/// The encoding of lists and objects in a URL query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryForm {
    /// A list repeats its key; an object is written as JSON text.
    Plain,
    /// Lists and objects use brackets: `key[0][prop]=v`.
    Brackets,
}

/// The settings for reading a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// The framing of the events in the body.
    pub mode: StreamMode,
    /// The prefix that is removed from the start of every line in a JSON stream.
    pub line_prefix: String,
    /// The name of the field that holds the event type.
    pub discriminator_field: String,
    /// The event type that ends the stream.
    pub done_value: String,
    /// The name of the field in the last event that holds the answer. If it is empty, the collected tokens are the
    /// answer.
    pub answer_field: String,
    /// The event type of events that hold a part of the answer.
    pub token_value: String,
    /// The name of the field in such an event that holds the part of the answer.
    pub token_field: String,
    /// The time limit for the whole stream.
    pub timeout: Duration,
    /// The maximum number of bytes that are read from the stream.
    pub bytes_max: usize,
}

/// The framing of JSON events in a stream.
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
