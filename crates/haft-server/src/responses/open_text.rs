//! The output item that the text of the model is appended to, and the events about it.

use haft_core::event_log::LogCitation;
use serde_json::{Value, json};

use super::fold::{item_id, with};
use super::object::{ReasoningEventNames, ResponseHead};

/// The kind of a text. Each kind has its own type of content part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Message,
    /// A message in which the model refuses.
    Refusal,
    Reasoning,
    /// A paragraph of a reasoning summary, by its number in the event log.
    Summary(u32),
}

/// An item that is not complete yet.
#[derive(Debug)]
pub(super) struct OpenText {
    pub(super) kind: TextKind,
    /// The text of the item, or of the last paragraph of a summary.
    pub(super) text: String,
    /// The complete paragraphs of a summary.
    paragraphs: Vec<Value>,
    /// The citations of the text, in the form of the API.
    pub(super) annotations: Vec<Value>,
    /// The position of this item's first character in the whole text of the turn.
    pub(super) first_char: u64,
    kept: KeptText,
}

/// The size of the part of an open text that earlier turns wrote. If the model repeats the current turn, this part
/// stays and the rest is removed.
#[derive(Debug, Clone, Copy, Default)]
struct KeptText {
    bytes: usize,
    annotations: usize,
}

impl TextKind {
    /// Returns the type of the event with more text.
    pub(super) fn delta_event(self, names: ReasoningEventNames) -> &'static str {
        match self {
            Self::Message => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
            Self::Reasoning => names.delta(),
            Self::Summary(_) => "response.reasoning_summary_text.delta",
        }
    }

    /// Returns the type of the event with the whole text.
    pub(super) fn done_event(self, names: ReasoningEventNames) -> &'static str {
        match self {
            Self::Message => "response.output_text.done",
            Self::Refusal => "response.refusal.done",
            Self::Reasoning => names.done(),
            Self::Summary(_) => "response.reasoning_summary_text.done",
        }
    }

    /// Returns the type of the event that adds a part to the item, or completes it.
    pub(super) fn part_event(self, change: PartChange) -> &'static str {
        match (self, change) {
            (Self::Summary(_), PartChange::Added) => "response.reasoning_summary_part.added",
            (Self::Summary(_), PartChange::Done) => "response.reasoning_summary_part.done",
            (Self::Message | Self::Refusal | Self::Reasoning, PartChange::Added) => {
                "response.content_part.added"
            }
            (Self::Message | Self::Refusal | Self::Reasoning, PartChange::Done) => {
                "response.content_part.done"
            }
        }
    }

    /// Returns the name of the field with the text, in content parts and in events with the whole text.
    pub(super) fn text_field(self) -> &'static str {
        match self {
            Self::Refusal => "refusal",
            Self::Message | Self::Reasoning | Self::Summary(_) => "text",
        }
    }

    /// Adds the field that the SDKs require in events with output text.
    pub(super) fn with_logprobs(self, data: Value) -> Value {
        match self {
            Self::Message => with(data, "logprobs", json!([])),
            Self::Refusal | Self::Reasoning | Self::Summary(_) => data,
        }
    }

    fn id_prefix(self) -> &'static str {
        match self {
            Self::Message | Self::Refusal => "msg",
            Self::Reasoning | Self::Summary(_) => "rs",
        }
    }

    fn part(self, text: &str, annotations: &[Value]) -> Value {
        match self {
            Self::Message => {
                json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": []})
            }
            Self::Refusal => json!({"type": "refusal", "refusal": text}),
            Self::Reasoning => json!({"type": "reasoning_text", "text": text}),
            Self::Summary(_) => json!({"type": "summary_text", "text": text}),
        }
    }
}

/// A change of a part of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartChange {
    Added,
    Done,
}

impl OpenText {
    /// Creates an item without text. `first_char` is the length of the text of the turn so far, in characters.
    pub(super) fn new(kind: TextKind, first_char: u64) -> Self {
        Self {
            kind,
            text: String::new(),
            paragraphs: Vec::new(),
            annotations: Vec::new(),
            first_char,
            kept: KeptText::default(),
        }
    }

    /// Keeps the text so far, because the next turn continues it.
    pub(super) fn keep(&mut self) {
        self.kept = KeptText { bytes: self.text.len(), annotations: self.annotations.len() };
    }

    /// Removes the text of this turn, because the model repeats the turn from its beginning.
    pub(super) fn clear(&mut self) {
        if self.kept.bytes > 0 {
            self.text.truncate(self.kept.bytes);
            self.annotations.truncate(self.kept.annotations);
            return;
        }
        let kind = match self.kind {
            TextKind::Summary(_) => TextKind::Summary(0),
            kind @ (TextKind::Message | TextKind::Refusal | TextKind::Reasoning) => kind,
        };
        *self = Self::new(kind, 0);
    }

    /// Completes a paragraph of a summary and begins the next one.
    pub(super) fn next_paragraph(&mut self, kind: TextKind) {
        let complete = self.part();
        self.paragraphs.push(complete);
        self.text.clear();
        self.kind = kind;
    }

    /// Returns the fields of an event that identify the open part.
    pub(super) fn place(&self, head: &ResponseHead, index: usize) -> Value {
        let place = json!({"item_id": self.id(head, index), "output_index": index});
        match self.kind {
            TextKind::Message | TextKind::Refusal | TextKind::Reasoning => with(place, "content_index", 0),
            TextKind::Summary(_) => with(place, "summary_index", self.paragraphs.len()),
        }
    }

    /// Returns the open part as it begins.
    pub(super) fn empty_part(&self) -> Value {
        self.kind.part("", &[])
    }

    /// Returns the open part with its text.
    pub(super) fn part(&self) -> Value {
        self.kind.part(&self.text, &self.annotations)
    }

    /// Returns the item as it begins.
    pub(super) fn empty_item(&self, head: &ResponseHead, index: usize) -> Value {
        self.item(head, index, &[], "in_progress")
    }

    /// Returns the item with all its parts.
    pub(super) fn whole_item(&self, head: &ResponseHead, index: usize, status: &str) -> Value {
        let parts: Vec<Value> = self.paragraphs.iter().cloned().chain([self.part()]).collect();
        self.item(head, index, &parts, status)
    }

    fn item(&self, head: &ResponseHead, index: usize, parts: &[Value], status: &str) -> Value {
        let id = self.id(head, index);
        match self.kind {
            TextKind::Message | TextKind::Refusal => json!({
                "type": "message", "id": id, "status": status, "role": "assistant", "content": parts,
            }),
            TextKind::Reasoning => json!({
                "type": "reasoning", "id": id, "summary": [], "content": parts, "status": status,
            }),
            TextKind::Summary(_) => {
                json!({"type": "reasoning", "id": id, "summary": parts, "status": status})
            }
        }
    }

    fn id(&self, head: &ResponseHead, index: usize) -> String {
        item_id(head, self.kind.id_prefix(), index)
    }
}

/// Returns a citation in the form of the API. `first_char` is the position of the message in the text of the turn.
pub(super) fn annotation(citation: &LogCitation, first_char: u64) -> Value {
    let LogCitation { url, title, start, end } = citation;
    json!({
        "type": "url_citation", "url": url,
        // The API requires a title.
        "title": title.as_ref().unwrap_or(url),
        "start_index": start.saturating_sub(first_char), "end_index": end.saturating_sub(first_char),
    })
}
