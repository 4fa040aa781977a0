//! The stored form of model requests, replies and tool outputs, for snapshots of runs, recordings, journals and caches.
//!
//! The types here exist only for storage. Each converts `of` a value and back `into` an equal one. A file that contains
//! them must have a format version, which changes when they do.

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

/// The reason why stored data is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// An unknown name of an enum value.
    #[error("the stored data has an unknown {what} `{found}`; a newer version of haft may have written it")]
    UnknownWord {
        /// The kind of value, such as `model error`.
        what: &'static str,
        /// The name in the data.
        found: String,
    },
    /// Two parts of the data contradict each other.
    #[error("the stored data is damaged: {problem}")]
    Broken {
        /// The parts that contradict each other.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
