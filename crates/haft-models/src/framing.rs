//! Splits response bodies into events: byte chunks of any size become whole events.

pub mod ndjson;
pub mod sse;

pub use ndjson::NdjsonDecoder;
pub use sse::{SseDecoder, SseEvent};

/// The largest single event, in bytes. A generated image comes in one event.
pub const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;
