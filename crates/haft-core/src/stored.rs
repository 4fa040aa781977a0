//! What is said to models and by them, as files keep it: snapshots of runs, recordings and journals.
//!
//! The types here are the stored form and nothing else: each is made `of` a value and turned `into` one again, byte for
//! byte. Whoever writes them into a file gives that file a version, which changes when they do.

mod conversation;
mod event;
mod model_reply;
mod names;
mod request;

use std::fmt;

pub use conversation::{StoredCall, StoredMessage, StoredReply};
pub use event::{StoredEvent, StoredModelError, StoredUsage};
pub use model_reply::StoredModelReply;
pub use names::find;
pub use request::{StoredChoice, StoredRequest, StoredTool};

/// Why something stored cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredError {
    /// A word that stands for nothing.
    UnknownWord { what: &'static str, found: String },
    /// Two things in it contradict each other.
    Broken { problem: String },
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownWord { what, found } => {
                write!(f, "it names the {what} `{found}`, which there is not")
            }
            Self::Broken { problem } => write!(f, "it is damaged: {problem}"),
        }
    }
}

impl std::error::Error for StoredError {}

#[cfg(test)]
mod tests;
