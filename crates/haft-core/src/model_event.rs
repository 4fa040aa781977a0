//! The events of a streamed reply. Each wire format decodes its stream into these events, and
//! [`ReplyFold`](crate::model_reply::ReplyFold) builds the reply from them.

use crate::conversation::{Annotation, Media, WireIdentity};
use crate::model_reply::{ReplyNote, StopReason, TokenUsage};
use crate::tool::CallId;

/// One event of a streamed reply. `index` is the index of the part in the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The first event. It contains the ids that the provider uses for the reply and for the model.
    Started {
        /// The id that the provider gave the reply; `None` if the provider sends no ids.
        id: Option<String>,
        /// The model that answers, if the provider reports it.
        model: Option<String>,
    },
    /// A new part begins. Parts arrive in order, and `index` starts at 0.
    PartStarted {
        /// The index of the new part.
        index: usize,
        /// The kind of part, with the fields that are known from the start.
        part: PartStart,
        /// The identity of the part in its wire format, such as the provider's id for it; `None` if it has none.
        mark: Option<WireIdentity>,
    },
    /// More content of a part arrived.
    PartDelta {
        /// The index of a part that has started and not finished.
        index: usize,
        /// The content to append to the part.
        delta: PartDelta,
    },
    /// The part is complete. If `mark` is set, it replaces the identity from `PartStarted`, which may have been
    /// incomplete.
    PartFinished {
        /// The index of the part.
        index: usize,
        /// The final identity of the part; `None` keeps the identity from `PartStarted`.
        mark: Option<WireIdentity>,
    },
    /// The token usage of the reply so far. A later usage event replaces this one.
    Usage(TokenUsage),
    /// An anomaly in the stream that did not prevent decoding.
    Noted(ReplyNote),
    /// The last event of the reply.
    Finished {
        /// The reason why the model stopped.
        stop: StopReason,
    },
}

/// The kind of a new part of the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum PartStart {
    /// Text for the reader. It arrives as deltas.
    Text,
    /// The model's refusal, in its own words.
    Refusal,
    /// The model's reasoning, if the provider shows it.
    Reasoning,
    /// A tool call. Its arguments arrive as deltas.
    Call {
        /// The id that the provider gave the call, or an id that haft generated.
        id: CallId,
        /// The tool name as the model wrote it.
        name: String,
    },
    /// An image. Media arrives as a whole, without deltas.
    Image(Media),
    /// A sound. It arrives as a whole, without deltas.
    Audio(Media),
    /// A file. It arrives as a whole, without deltas.
    File {
        /// The file name, if the provider sends one.
        name: Option<String>,
        /// The content of the file.
        media: Media,
    },
    /// Content that only one wire format can express. All of it is in the `mark` of the part.
    Opaque,
}

/// Content that is appended to a part of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartDelta {
    /// More text, reasoning, refusal or call arguments, byte for byte as the model wrote them.
    Text(String),
    /// More of a summary that the provider wrote about the reasoning, instead of the reasoning itself.
    Summary(String),
    /// The next paragraph of the summary begins. In the reply, an empty line separates the paragraphs.
    SummaryBreak,
    /// A citation or other metadata of the text so far.
    Annotation(Annotation),
}
