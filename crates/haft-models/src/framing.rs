//! How replies are cut into events: bytes in pieces of any size become whole events.

pub mod ndjson;
pub mod sse;

pub use ndjson::NdjsonDecoder;
pub use sse::{SseDecoder, SseEvent};

/// The largest single event; a generated image comes in one.
pub const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;
