//! Recordings of model requests and replies, and a provider that replays one.
//!
//! A recording is a JSON Lines file. Its first line states the format version. Every other line has a `type`, and
//! readers skip unknown types, because a run writes other lines into the same file, for example its journal. A line of
//! type `exchange` is one request to a model, in a provider-neutral form, with the reply as it arrived. [`Recorder`]
//! writes such lines around any provider; [`Replayer`] answers from them. Start reading at [`Tape`], then [`Recorder`];
//! `normalize.rs` decides when two requests are treated as equal.

mod difference;
mod error;
mod exchange;
mod fingerprint;
mod normalize;
mod recorder;
mod recording;
mod replayer;
mod reply_event;
mod scrub;
mod tape;

pub use error::{RecordingError, RecordingProblem};
pub use recorder::Recorder;
pub use recording::{Recording, RecordingLine};
pub use replayer::{MatchRule, Replayer};
pub use reply_event::{StoredAccount, StoredAttempt};
pub use tape::Tape;

/// The version that is written. Increase it when the stored types change, or when `normalize.rs` normalizes requests
/// differently.
pub const VERSION: u32 = 5;

/// The oldest version that can be read. Version 2 named its lines differently and contained no journals; versions 2 and
/// 3 used a different format for call events; versions 2 to 4 contained no reasoning summaries.
pub const VERSION_OLDEST: u32 = 2;

/// The type of the first line in a recording.
const TYPE_HEAD: &str = "recording";

/// The type of a line with a model request and its reply.
const TYPE_EXCHANGE: &str = "exchange";

/// The maximum size of a recording that is written or read, in bytes.
pub const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// The maximum length of a line in a recording, in bytes. A line holds one request with its reply.
pub const LINE_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
