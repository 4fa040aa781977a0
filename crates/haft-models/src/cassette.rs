//! Recordings of model requests and replies, and a provider that replays one.
//!
//! A recording is a JSON Lines file. Its first line states the format version. Every other line has a `type`, and
//! readers skip types that they do not know, so that a run can write other lines into the same file: those of its
//! journal, for example. A line of type `exchange` is one request to a model, in a provider-neutral form, with the
//! reply as it arrived. [`Recorder`] writes such lines around any provider; [`Replayer`] answers from them. Start
//! reading at [`Tape`], then [`Recorder`]; `normalize.rs` decides when two requests count as the same.

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

/// The version that is written. Raise it when the stored types change, or when `normalize.rs` normalizes requests
/// differently.
pub const VERSION: u32 = 4;

/// The oldest version that can be read. Version 2 named its lines differently and held no journals; versions 2 and 3 had
/// a form of their own for the events of calls.
pub const VERSION_OLDEST: u32 = 2;

/// The type of the first line.
const TYPE_HEAD: &str = "recording";

/// The type of an exchange with a model.
const TYPE_EXCHANGE: &str = "exchange";

/// The largest recording that is written or read, in bytes.
pub const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// The longest line of a recording, in bytes: one request with its reply.
pub const LINE_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
