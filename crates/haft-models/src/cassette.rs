//! Recordings of what models were asked and what they answered, and a provider that answers from one.
//!
//! A recording is a file of JSON lines. The first says which form it has; every other has a `kind`, and readers pass over
//! kinds that they do not know, so that a run may write more into the same file. A line of kind `model` is one exchange: the
//! request in no provider's words, and the reply as it arrived. [`Recorder`] writes such lines around any provider,
//! [`Replayer`] answers from them on any. Start reading at [`Tape`], then [`Recorder`]; what makes two requests the same is
//! in `normal.rs`.

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

/// The form that is written, and the only one that is read. It changes with the stored types and with what
/// `normal.rs` makes of a request.
pub const VERSION: u32 = 2;

/// The kind of the first line.
const KIND_HEAD: &str = "recording";

/// The kind of an exchange with a model.
pub const KIND_MODEL: &str = "model";

/// The largest recording that is written or read.
pub const RECORDING_BYTES_MAX: u64 = 256 << 20;

/// The longest line of one: a request with its reply.
pub const LINE_BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests;
