//! A reply while it is being written. Every wire's stream becomes these, and a reply is a fold over them.

use crate::conversation::{Annotation, Mark, Media};
use crate::model_reply::{ReplyNote, StopReason, Usage};
use crate::tool::CallId;

/// Something that happened to a reply. `index` is the part's place in the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The first event; the provider's own names for the reply and the model that writes it.
    Started {
        id: Option<String>,
        model: Option<String>,
    },
    PartStarted {
        index: usize,
        part: PartStart,
        mark: Option<Mark>,
    },
    PartDelta {
        index: usize,
        delta: Delta,
    },
    /// The part is complete. A mark that only now is whole replaces the one before.
    PartFinished {
        index: usize,
        mark: Option<Mark>,
    },
    /// What is known of the usage so far; a later one replaces it.
    Usage(Usage),
    Noted(ReplyNote),
    /// The last event.
    Finished {
        stop: StopReason,
    },
}

/// Which part begins.
#[derive(Debug, Clone, PartialEq)]
pub enum PartStart {
    Text,
    Refusal,
    Reasoning,
    Call {
        id: CallId,
        name: String,
    },
    /// Media comes whole.
    Image(Media),
    Audio(Media),
    File {
        name: Option<String>,
        media: Media,
    },
    Opaque,
}

/// What is added to a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More text, reasoning or refusal; call arguments in the model's own bytes.
    Text(String),
    Annotation(Annotation),
}
