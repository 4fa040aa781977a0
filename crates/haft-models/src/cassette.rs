//! Recordings of model requests and replies, and a provider that replays one.
//!
//! A recording is a JSON Lines file. Its first line states the format version. Every other line has a `kind`, and
//! readers skip kinds that they do not know, so that a run can write other lines into the same file. A line of kind
//! `model` is one exchange: the request in a provider-neutral form, and the reply as it arrived. [`Recorder`]
//! writes such lines around any provider; [`Replayer`] answers from them. Start reading at [`Tape`], then
//! [`Recorder`]; `normal.rs` decides when two requests count as the same.

mod difference;
mod error;
mod exchange;
mod moment;
mod normal;
mod prints;
mod recorder;
mod recording;
mod replayer;
mod scrub;
mod tape;

pub use error::{Problem, RecordingError};
pub use moment::{StoredAccount, StoredAttempt};
pub use recorder::Recorder;
pub use recording::{Line, Recording};
pub use replayer::{Matching, Replayer};
pub use tape::Tape;

/// The version that is written, and the only one that is read. Raise it when the stored types change, or when
/// `normal.rs` normalizes requests differently.
pub const VERSION: u32 = 2;

/// The kind of the first line.
const KIND_HEAD: &str = "recording";

/// The kind of an exchange with a model.
pub const KIND_MODEL: &str = "model";

/// The largest recording that is written or read, in bytes.
pub const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// The longest line of a recording, in bytes: one request with its reply.
pub const LINE_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
