//! A reply while it streams. Each wire format decodes its stream into these events, and a reply is a fold over them.

use crate::conversation::{Annotation, Mark, Media};
use crate::model_reply::{ReplyNote, StopReason, Usage};
use crate::tool::CallId;

/// One event of a streamed reply. `index` is the index of the part in the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The first event, with the provider's own ids of the reply and of the model.
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
    /// The part is complete. A mark here replaces the one from `PartStarted`, which may have been incomplete.
    PartFinished {
        index: usize,
        mark: Option<Mark>,
    },
    /// The usage as known so far; a later event replaces it.
    Usage(Usage),
    Noted(ReplyNote),
    /// The last event.
    Finished {
        stop: StopReason,
    },
}

/// The kind of a new part.
#[derive(Debug, Clone, PartialEq)]
pub enum PartStart {
    Text,
    Refusal,
    Reasoning,
    Call {
        id: CallId,
        name: String,
    },
    /// Media arrives as a whole, without deltas.
    Image(Media),
    Audio(Media),
    File {
        name: Option<String>,
        media: Media,
    },
    Opaque,
}

/// An addition to a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More text, reasoning or refusal, or more of a call's arguments, byte for byte as the model wrote them.
    Text(String),
    Annotation(Annotation),
}
