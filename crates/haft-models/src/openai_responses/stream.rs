//! Decodes a streamed response. Separate events add, fill and finish its items.

use std::collections::HashSet;

use haft_core::conversation::ModelApiFormat;
use haft_core::internal_tools::tool_search::TOOL_SEARCH;
use haft_core::model_error::ModelError;
use haft_core::model_event::PartStart;
use haft_core::model_reply::{CALLS_PER_REPLY_MAX, ReplyNote, StopReason};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{self, ResponsesContent, ResponsesItem, ResponsesObject};
use crate::bounded_json::FrameText;
use crate::draft::ReplyDraft;
use crate::stream::FrameReader;
use crate::wire::DecodeContext;
use crate::{bounded_json, failure};

/// Decodes the events of a Responses API stream into a reply draft.
pub(super) struct ResponsesStreamReader {
    draft: ReplyDraft,
    open: Vec<OpenPart>,
    /// The ids of finished items. A server may repeat the event that finishes an item.
    done: HashSet<String>,
    /// The indexes of calls that the reply leaves out.
    skipped: HashSet<u64>,
    refused: bool,
}

/// The maximum number of unfinished parts at the same time. The number is limited, because each event searches all
/// unfinished parts for its own part.
const OPEN_PARTS_MAX: usize = 2 * CALLS_PER_REPLY_MAX;

/// A part whose content is still arriving, with the indices that identify the part in the stream.
struct OpenPart {
    output: u64,
    content: u64,
    part: usize,
    kind: OpenPartKind,
    /// The number of text bytes and annotations received so far. They show if the final item has content that was not
    /// streamed.
    bytes: usize,
    annotations: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPartKind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

/// A stream event of any type. Its type determines which fields are present.
#[derive(Debug, Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<FrameText<'a>>,
    #[serde(default)]
    output_index: u64,
    #[serde(default)]
    content_index: u64,
    #[serde(default)]
    summary_index: u64,
    #[serde(borrow)]
    item_id: Option<FrameText<'a>>,
    delta: Option<FrameText<'a>>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<ResponsesContent<'a>>,
    #[serde(borrow)]
    annotation: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<ResponsesObject<'a>>,
}

impl ResponsesStreamReader {
    pub(super) fn new(decode_context: &DecodeContext) -> Self {
        let draft = ReplyDraft::new(ModelApiFormat::OpenaiResponses, decode_context);
        Self { draft, open: Vec::new(), done: HashSet::new(), skipped: HashSet::new(), refused: false }
    }

    fn event(&mut self, data: &str) -> Result<(), ModelError> {
        if self.open.len() > OPEN_PARTS_MAX {
            return Err(bounded_json::malformed(format!(
                "the reply has more than {OPEN_PARTS_MAX} unfinished items"
            )));
        }
        let event: ResponsesEvent<'_> = bounded_json::read_frame(data)?;
        let kind = event.kind.as_deref().unwrap_or_default();
        let delta = event.delta.as_deref().unwrap_or_default();
        match kind {
            "response.created" => self.start(&event),
            "response.output_item.added" => self.item_added(&event)?,
            "response.content_part.added" => self.content_added(&event),
            "response.output_text.delta" => self.text(&event, OpenPartKind::Text, delta),
            "response.refusal.delta" => self.text(&event, OpenPartKind::Refusal, delta),
            "response.reasoning_text.delta" | "response.reasoning.delta" => self.reasoning(&event, delta),
            "response.reasoning_summary_text.delta" => self.summary(&event, delta),
            "response.function_call_arguments.delta" => self.arguments(&event, delta),
            "response.output_text.annotation.added" => self.annotation(&event),
            "response.output_item.done" => self.item_done(&event)?,
            "response.completed" | "response.incomplete" | "response.failed" => self.response_end(&event)?,
            "error" => return Err(failure::inside(&bounded_json::read::<Value>(data.as_bytes())?)),
            // Ignore progress events, repetitions of streamed content, and unknown event types.
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, event: &ResponsesEvent<'_>) {
        if let Some(response) = &event.response {
            self.draft.start(response.id.as_deref(), response.model.as_deref());
        }
    }

    fn item_added(&mut self, event: &ResponsesEvent<'_>) -> Result<(), ModelError> {
        let Some(raw) = event.item else { return Ok(()) };
        let item: ResponsesItem<'_> = bounded_json::read_raw(raw)?;
        let mark = self.draft.mark(item.id.as_deref(), item.namespace.as_deref());
        let (part, kind) = match item.kind.as_deref() {
            Some("function_call") if !self.draft.has_room_for_calls() => {
                // `insert` returns true only once for each item. This matters because the event that finishes the item
                // reaches this point too, and must not count the call again.
                self.draft.skip_calls(usize::from(self.skipped.insert(event.output_index)));
                return Ok(());
            }
            Some("function_call") => {
                let name = item.name.as_deref().unwrap_or_default();
                (self.draft.open_call(item.call_id.as_deref(), name, mark), OpenPartKind::Call)
            }
            Some("tool_search_call") if item.call_id.is_some() => {
                (self.draft.open_call(item.call_id.as_deref(), TOOL_SEARCH, mark), OpenPartKind::Call)
            }
            Some("reasoning") => (self.draft.open(PartStart::Reasoning, mark), OpenPartKind::Reasoning),
            // A message starts with its content; other items are decoded when they are complete.
            _ => return Ok(()),
        };
        self.open.push(OpenPart {
            output: event.output_index,
            content: 0,
            part,
            kind,
            bytes: 0,
            annotations: 0,
        });
        Ok(())
    }

    fn content_added(&mut self, event: &ResponsesEvent<'_>) {
        let kind = match event.part.as_ref().and_then(|part| part.kind.as_deref()) {
            Some("output_text") => OpenPartKind::Text,
            Some("refusal") => OpenPartKind::Refusal,
            _ => return,
        };
        self.open_part(event, kind);
    }

    fn open_part_place(&self, event: &ResponsesEvent<'_>, kind: OpenPartKind) -> Option<usize> {
        self.open.iter().position(|open| {
            (open.output, open.content, open.kind) == (event.output_index, event.content_index, kind)
        })
    }

    /// Returns the index of the text or refusal part of an event, and starts the part if it was not announced.
    fn open_part(&mut self, event: &ResponsesEvent<'_>, kind: OpenPartKind) -> usize {
        if let Some(place) = self.open_part_place(event, kind) {
            return place;
        }
        let start = if kind == OpenPartKind::Refusal { PartStart::Refusal } else { PartStart::Text };
        self.refused |= kind == OpenPartKind::Refusal;
        let mark = self.draft.mark(event.item_id.as_deref(), None);
        let part = self.draft.open(start, mark);
        let (output, content) = (event.output_index, event.content_index);
        self.open.push(OpenPart { output, content, part, kind, bytes: 0, annotations: 0 });
        self.open.len() - 1
    }

    fn text(&mut self, event: &ResponsesEvent<'_>, kind: OpenPartKind, delta: &str) {
        let place = self.open_part(event, kind);
        self.add(place, delta);
    }

    fn add(&mut self, place: usize, delta: &str) {
        self.draft.add(self.open[place].part, delta);
        self.open[place].bytes += delta.len();
    }

    fn place_of(&self, event: &ResponsesEvent<'_>, kind: OpenPartKind) -> Option<usize> {
        self.open.iter().position(|open| open.output == event.output_index && open.kind == kind)
    }

    /// Appends reasoning. Each of its parts becomes a paragraph.
    fn reasoning(&mut self, event: &ResponsesEvent<'_>, delta: &str) {
        let Some(place) = self.place_of(event, OpenPartKind::Reasoning) else { return };
        if event.content_index > self.open[place].content {
            self.open[place].content = event.content_index;
            self.add(place, "\n\n");
        }
        self.add(place, delta);
    }

    /// Appends to a summary of the reasoning. Each of its parts becomes a paragraph.
    fn summary(&mut self, event: &ResponsesEvent<'_>, delta: &str) {
        let Some(place) = self.place_of(event, OpenPartKind::Reasoning) else { return };
        let open = &mut self.open[place];
        if event.summary_index > open.content {
            open.content = event.summary_index;
            self.draft.break_summary(open.part);
        }
        self.draft.add_summary(open.part, delta);
        open.bytes += delta.len();
    }

    fn arguments(&mut self, event: &ResponsesEvent<'_>, delta: &str) {
        if let Some(place) = self.place_of(event, OpenPartKind::Call) {
            self.add(place, delta);
        }
    }

    fn annotation(&mut self, event: &ResponsesEvent<'_>) {
        if let Some(annotation) = event.annotation {
            let place = self.open_part(event, OpenPartKind::Text);
            self.annotate(place, annotation);
        }
    }

    fn annotate(&mut self, place: usize, annotation: &RawValue) {
        response::annotate(&mut self.draft, self.open[place].part, annotation);
        self.open[place].annotations += 1;
    }

    /// Finishes an item. Content that was not streamed is taken from the whole item, and reasoning is kept exactly as
    /// it is in the item.
    fn item_done(&mut self, event: &ResponsesEvent<'_>) -> Result<(), ModelError> {
        let Some(raw) = event.item else { return Ok(()) };
        let item: ResponsesItem<'_> = bounded_json::read_raw(raw)?;
        if item.id.as_deref().is_some_and(|id| !self.done.insert(id.to_owned())) {
            return Ok(());
        }
        let kind = item.kind.as_deref().unwrap_or_default();
        let mut state = None;
        match kind {
            "message" => {
                self.fill_message(event, &item);
                state = item.phase.as_deref();
            }
            "function_call" => {
                self.announce(event, OpenPartKind::Call)?;
                self.fill(event, OpenPartKind::Call, &item.arguments_text());
                state = item.namespace.as_deref();
            }
            "tool_search_call" if item.call_id.is_some() => {
                self.announce(event, OpenPartKind::Call)?;
                self.fill(event, OpenPartKind::Call, &item.arguments_text());
            }
            "reasoning" => {
                self.announce(event, OpenPartKind::Reasoning)?;
                self.fill_reasoning(event, &item);
                state = Some(raw.get());
            }
            _ => {
                let mark = self.draft.mark(item.id.as_deref(), Some(raw.get()));
                let part = self.draft.open(PartStart::Opaque, mark);
                self.draft.close(part, None);
                self.draft.note(ReplyNote::UnknownPart { kind: kind.to_owned() });
            }
        }
        let mark = self.draft.mark(item.id.as_deref(), state);
        let (done, open) =
            std::mem::take(&mut self.open).into_iter().partition(|open| open.output == event.output_index);
        self.open = open;
        let done: Vec<OpenPart> = done;
        for part in &done {
            self.draft.close(part.part, mark.clone());
        }
        Ok(())
    }

    /// Starts an item if it was not started yet. Some servers send an item only when it is complete.
    fn announce(&mut self, event: &ResponsesEvent<'_>, kind: OpenPartKind) -> Result<(), ModelError> {
        if self.place_of(event, kind).is_none() { self.item_added(event) } else { Ok(()) }
    }

    fn fill(&mut self, event: &ResponsesEvent<'_>, kind: OpenPartKind, whole: &str) {
        if let Some(place) = self.place_of(event, kind).filter(|place| self.open[*place].bytes == 0) {
            self.add(place, whole);
        }
    }

    fn fill_reasoning(&mut self, event: &ResponsesEvent<'_>, item: &ResponsesItem<'_>) {
        let place = self.place_of(event, OpenPartKind::Reasoning);
        if let Some(place) = place.filter(|place| self.open[*place].bytes == 0) {
            response::write_reasoning(&mut self.draft, self.open[place].part, item);
        }
    }

    fn fill_message(&mut self, event: &ResponsesEvent<'_>, item: &ResponsesItem<'_>) {
        let was_streamed = self.open.iter().any(|open| open.output == event.output_index && open.bytes > 0);
        for (number, piece) in (0_u64..).zip(item.content.iter().flatten()) {
            let kind = if piece.refusal.is_some() { OpenPartKind::Refusal } else { OpenPartKind::Text };
            let event = ResponsesEvent {
                content_index: number,
                item_id: item.id.clone(),
                ..ResponsesEvent::at(event.output_index)
            };
            if !was_streamed {
                let place = self.open_part(&event, kind);
                self.add(place, piece.refusal.as_deref().or(piece.text.as_deref()).unwrap_or_default());
            }
            self.fill_annotations(&event, kind, piece);
        }
    }

    /// Adds the citations from the final text, unless they were streamed one by one.
    fn fill_annotations(
        &mut self,
        event: &ResponsesEvent<'_>,
        kind: OpenPartKind,
        piece: &ResponsesContent<'_>,
    ) {
        let Some(place) = self.open_part_place(event, kind) else { return };
        if self.open[place].annotations == 0 {
            for annotation in piece.annotations.iter().flatten() {
                self.annotate(place, annotation);
            }
        }
    }

    fn response_end(&mut self, event: &ResponsesEvent<'_>) -> Result<(), ModelError> {
        let Some(response) = &event.response else {
            return Err(bounded_json::malformed("the last stream event has no `response`"));
        };
        self.draft.start(response.id.as_deref(), response.model.as_deref());
        self.close_all();
        // If the stream delivered no items, use those in the final event, because some servers send the items only
        // there.
        if self.draft.is_empty() {
            self.refused |= response::write_items(&mut self.draft, response)?;
        }
        response::end(&mut self.draft, response, self.refused.then_some(StopReason::Refusal))?;
        self.draft.end();
        Ok(())
    }

    fn close_all(&mut self) {
        for open in std::mem::take(&mut self.open) {
            self.draft.close(open.part, None);
        }
    }
}

impl ResponsesEvent<'_> {
    fn at(output_index: u64) -> Self {
        Self {
            kind: None,
            output_index,
            content_index: 0,
            summary_index: 0,
            item_id: None,
            delta: None,
            item: None,
            part: None,
            annotation: None,
            response: None,
        }
    }
}

impl FrameReader for ResponsesStreamReader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        self.event(frame)
    }

    fn end(&mut self) {
        self.close_all();
        self.draft.end();
    }

    fn draft(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }
}
