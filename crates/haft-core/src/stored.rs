//! The stored form of model requests, replies and tool outputs, for snapshots of runs, recordings, journals and caches.
//!
//! The types in this module exist only for storage. Each has a function `of` that converts a value, and a function
//! `into_…` that converts it back into an equal value. A file that contains such types must have a format version,
//! which must change whenever the types change.

mod conversation;
mod event;
mod model_reply;
mod names;
mod output;
mod request;

pub(crate) use conversation::StoredCall;
pub use conversation::{StoredMessage, StoredReply};
pub use event::{StoredEvent, StoredModelError, StoredUsage};
pub use model_reply::StoredModelReply;
pub use names::find;
pub use output::StoredToolOutput;
pub use request::{StoredRequest, StoredTool, StoredToolChoice};

/// The reason why stored data cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// The name of an enum value is unknown.
    #[error("the stored data has an unknown {what} `{found}`; a newer version of haft may have written it")]
    UnknownWord {
        /// The kind of value, such as `model error`.
        what: &'static str,
        /// The unknown name in the stored data.
        found: String,
    },
    /// Two parts of the data contradict each other.
    #[error("the stored data is damaged: {problem}")]
    Broken {
        /// A description of the parts that contradict each other.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
