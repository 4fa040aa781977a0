//! The stored form of a streamed reply and of a model error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::conversation::{StoredAnnotation, StoredMark, StoredMedia};
use super::{StoredError, names};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_event::{ModelEvent, PartDelta, PartStart};
use crate::model_reply::{ReplyNote, StopReason, TokenUsage};
use crate::tool::CallId;

/// One event of a streamed reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredEvent(StoredEventKind);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredEventKind {
    Started {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    Part {
        index: usize,
        start: StoredStart,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<StoredMark>,
    },
    Text {
        index: usize,
        more: String,
    },
    Summary {
        index: usize,
        more: String,
    },
    SummaryBreak {
        index: usize,
    },
    Annotation {
        index: usize,
        more: StoredAnnotation,
    },
    PartEnd {
        index: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<StoredMark>,
    },
    Usage(StoredUsage),
    Note(StoredNote),
    End(StoredStop),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredStart {
    Text,
    Refusal,
    Reasoning,
    Call { id: String, name: String },
    Image(StoredMedia),
    Audio(StoredMedia),
    File { name: Option<String>, media: StoredMedia },
    Opaque,
}

/// The token usage of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredUsage {
    input: u64,
    output: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    cache_read: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    cache_write: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    reasoning: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredNote {
    CallIdGiven { id: String },
    UnknownStopReason { reason: String },
    UnknownPart { kind: String },
    NoEnd,
    Empty,
    PromptCut { read_tokens: u64, sent_tokens_min: u64 },
    NotSaid { what: String, instead: String },
    EventSkipped { reason: String },
    CallRepaired { name: String, how: String },
    CallUnread { problem: String },
    SteppedIn { failed: String, problem: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredStop {
    EndOfTurn,
    ToolCalls,
    Length,
    StopSequence,
    Refusal,
    Filtered,
    Paused,
    CutOff,
    Other(String),
}

/// The error of a model request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredModelError {
    kind: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl StoredEvent {
    /// Converts an event for storage.
    pub fn of(event: &ModelEvent) -> Self {
        Self(StoredEventKind::of(event))
    }

    /// Restores the event. Fails for damaged media and unknown names.
    pub fn into_event(self) -> Result<ModelEvent, StoredError> {
        self.0.into_event()
    }
}

impl StoredEventKind {
    fn of(event: &ModelEvent) -> Self {
        match event {
            ModelEvent::Started { id, model } => Self::Started { id: id.clone(), model: model.clone() },
            ModelEvent::PartStarted { index, part, mark } => Self::Part {
                index: *index,
                start: StoredStart::of(part),
                mark: mark.as_ref().map(StoredMark::of),
            },
            ModelEvent::PartDelta { index, delta: PartDelta::Text(text) } => {
                Self::Text { index: *index, more: text.clone() }
            }
            ModelEvent::PartDelta { index, delta: PartDelta::Summary(text) } => {
                Self::Summary { index: *index, more: text.clone() }
            }
            ModelEvent::PartDelta { index, delta: PartDelta::SummaryBreak } => {
                Self::SummaryBreak { index: *index }
            }
            ModelEvent::PartDelta { index, delta: PartDelta::Annotation(annotation) } => {
                Self::Annotation { index: *index, more: StoredAnnotation::of(annotation) }
            }
            ModelEvent::PartFinished { index, mark } => {
                Self::PartEnd { index: *index, mark: mark.as_ref().map(StoredMark::of) }
            }
            ModelEvent::Usage(usage) => Self::Usage(StoredUsage::of(usage)),
            ModelEvent::Noted(note) => Self::Note(StoredNote::of(note)),
            ModelEvent::Finished { stop } => Self::End(StoredStop::of(stop)),
        }
    }

    fn into_event(self) -> Result<ModelEvent, StoredError> {
        Ok(match self {
            Self::Started { id, model } => ModelEvent::Started { id, model },
            Self::Part { index, start, mark } => ModelEvent::PartStarted {
                index,
                part: start.into_start()?,
                mark: mark.map(StoredMark::into_mark).transpose()?,
            },
            Self::Text { index, more } => ModelEvent::PartDelta { index, delta: PartDelta::Text(more) },
            Self::Summary { index, more } => ModelEvent::PartDelta { index, delta: PartDelta::Summary(more) },
            Self::SummaryBreak { index } => ModelEvent::PartDelta { index, delta: PartDelta::SummaryBreak },
            Self::Annotation { index, more } => {
                ModelEvent::PartDelta { index, delta: PartDelta::Annotation(more.into_annotation()?) }
            }
            Self::PartEnd { index, mark } => {
                ModelEvent::PartFinished { index, mark: mark.map(StoredMark::into_mark).transpose()? }
            }
            Self::Usage(usage) => ModelEvent::Usage(usage.into_usage()),
            Self::Note(note) => ModelEvent::Noted(note.into_note()),
            Self::End(stop) => ModelEvent::Finished { stop: stop.into_stop() },
        })
    }
}

impl StoredStart {
    fn of(part: &PartStart) -> Self {
        match part {
            PartStart::Text => Self::Text,
            PartStart::Refusal => Self::Refusal,
            PartStart::Reasoning => Self::Reasoning,
            PartStart::Call { id, name } => Self::Call { id: id.0.clone(), name: name.clone() },
            PartStart::Image(media) => Self::Image(StoredMedia::of(media)),
            PartStart::Audio(media) => Self::Audio(StoredMedia::of(media)),
            PartStart::File { name, media } => {
                Self::File { name: name.clone(), media: StoredMedia::of(media) }
            }
            PartStart::Opaque => Self::Opaque,
        }
    }

    fn into_start(self) -> Result<PartStart, StoredError> {
        Ok(match self {
            Self::Text => PartStart::Text,
            Self::Refusal => PartStart::Refusal,
            Self::Reasoning => PartStart::Reasoning,
            Self::Call { id, name } => PartStart::Call { id: CallId(id), name },
            Self::Image(media) => PartStart::Image(media.into_media()?),
            Self::Audio(media) => PartStart::Audio(media.into_media()?),
            Self::File { name, media } => PartStart::File { name, media: media.into_media()? },
            Self::Opaque => PartStart::Opaque,
        })
    }
}

impl StoredUsage {
    /// Converts the token counts for storage.
    pub fn of(usage: &TokenUsage) -> Self {
        let TokenUsage { input, output, cache_read, cache_write, reasoning } = *usage;
        Self { input, output, cache_read, cache_write, reasoning }
    }

    /// Restores the token counts.
    pub fn into_usage(self) -> TokenUsage {
        let Self { input, output, cache_read, cache_write, reasoning } = self;
        TokenUsage { input, output, cache_read, cache_write, reasoning }
    }
}

impl StoredNote {
    fn of(note: &ReplyNote) -> Self {
        match note.clone() {
            ReplyNote::CallIdGiven { id } => Self::CallIdGiven { id },
            ReplyNote::UnknownStopReason { reason } => Self::UnknownStopReason { reason },
            ReplyNote::UnknownPart { kind } => Self::UnknownPart { kind },
            ReplyNote::NoEnd => Self::NoEnd,
            ReplyNote::Empty => Self::Empty,
            ReplyNote::PromptCut { read_tokens, sent_tokens_min } => {
                Self::PromptCut { read_tokens, sent_tokens_min }
            }
            ReplyNote::FeatureDropped { what, instead } => Self::NotSaid { what, instead },
            ReplyNote::EventSkipped { reason } => Self::EventSkipped { reason },
            ReplyNote::CallRepaired { name, how } => Self::CallRepaired { name, how },
            ReplyNote::CallUnread { problem } => Self::CallUnread { problem },
            ReplyNote::FallbackUsed { failed, problem } => Self::SteppedIn { failed, problem },
        }
    }

    fn into_note(self) -> ReplyNote {
        match self {
            Self::CallIdGiven { id } => ReplyNote::CallIdGiven { id },
            Self::UnknownStopReason { reason } => ReplyNote::UnknownStopReason { reason },
            Self::UnknownPart { kind } => ReplyNote::UnknownPart { kind },
            Self::NoEnd => ReplyNote::NoEnd,
            Self::Empty => ReplyNote::Empty,
            Self::PromptCut { read_tokens, sent_tokens_min } => {
                ReplyNote::PromptCut { read_tokens, sent_tokens_min }
            }
            Self::NotSaid { what, instead } => ReplyNote::FeatureDropped { what, instead },
            Self::EventSkipped { reason } => ReplyNote::EventSkipped { reason },
            Self::CallRepaired { name, how } => ReplyNote::CallRepaired { name, how },
            Self::CallUnread { problem } => ReplyNote::CallUnread { problem },
            Self::SteppedIn { failed, problem } => ReplyNote::FallbackUsed { failed, problem },
        }
    }
}

impl StoredStop {
    pub(super) fn of(stop: &StopReason) -> Self {
        match stop {
            StopReason::EndOfTurn => Self::EndOfTurn,
            StopReason::ToolCalls => Self::ToolCalls,
            StopReason::Length => Self::Length,
            StopReason::StopSequence => Self::StopSequence,
            StopReason::Refusal => Self::Refusal,
            StopReason::Filtered => Self::Filtered,
            StopReason::Paused => Self::Paused,
            StopReason::CutOff => Self::CutOff,
            StopReason::Other(word) => Self::Other(word.clone()),
        }
    }

    pub(super) fn into_stop(self) -> StopReason {
        match self {
            Self::EndOfTurn => StopReason::EndOfTurn,
            Self::ToolCalls => StopReason::ToolCalls,
            Self::Length => StopReason::Length,
            Self::StopSequence => StopReason::StopSequence,
            Self::Refusal => StopReason::Refusal,
            Self::Filtered => StopReason::Filtered,
            Self::Paused => StopReason::Paused,
            Self::CutOff => StopReason::CutOff,
            Self::Other(word) => StopReason::Other(word),
        }
    }
}

impl StoredModelError {
    /// Converts an error for storage.
    pub fn of(error: &ModelError) -> Self {
        let ModelError { kind, message, retry_after } = error;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { kind: kind.name().into(), message: message.clone(), retry_after_ms: retry_after.map(millis) }
    }

    /// Restores the error. Fails for an unknown kind.
    pub fn into_error(self) -> Result<ModelError, StoredError> {
        let kind = names::find("model error", &ModelErrorKind::ALL, ModelErrorKind::name, &self.kind)?;
        let retry_after = self.retry_after_ms.map(Duration::from_millis);
        Ok(ModelError { kind, message: self.message, retry_after })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "`skip_serializing_if` calls the function with a reference"
)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
