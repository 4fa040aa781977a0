//! A reply under construction. Numbers the parts, generates missing call ids, and emits events.

use std::collections::HashSet;

use haft_core::conversation::{Annotation, ModelApiFormat, UrlCitation, WireIdentity};
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::model_reply::{CALLS_PER_REPLY_MAX, ReplyNote, StopReason, TokenUsage};
use haft_core::tool::CallId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bounded_json::FrameText;
use crate::call_id;
use crate::wire::DecodeContext;

/// The index of a call that is skipped; see [`ReplyDraft::has_room_for_calls`]. Content for this index is dropped.
pub(crate) const LEFT_OUT: usize = usize::MAX;

/// The maximum number of notes about one reply. In a broken stream, every event could add a note.
const NOTES_MAX: usize = CALLS_PER_REPLY_MAX + 100;

/// A kind of text (answer or reasoning) that continues until another part starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextChannel {
    Text,
    Reasoning,
    Refusal,
}

/// The type field of an item.
#[derive(Deserialize)]
struct TypedItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<FrameText<'a>>,
}

/// The reply that a decoder builds, and the events that have not been taken yet.
#[derive(Debug)]
pub(crate) struct ReplyDraft {
    format: ModelApiFormat,
    decode_context: DecodeContext,
    events: Vec<ModelEvent>,
    parts: usize,
    calls: usize,
    notes: usize,
    call_ids: HashSet<String>,
    flowing: Option<(TextChannel, usize)>,
    last_text: Option<usize>,
    /// The text of the last text part, for a format that counts the positions of citations in bytes.
    counted_text: Option<String>,
    stop: Option<StopReason>,
    started: bool,
    ended: bool,
}

impl ReplyDraft {
    pub(crate) fn new(format: ModelApiFormat, decode_context: &DecodeContext) -> Self {
        Self {
            format,
            decode_context: *decode_context,
            events: Vec::new(),
            parts: 0,
            calls: 0,
            notes: 0,
            call_ids: HashSet::new(),
            flowing: None,
            last_text: None,
            counted_text: None,
            stop: None,
            started: false,
            ended: false,
        }
    }

    /// Keeps the text, so that [`chars_of`](Self::chars_of) can convert positions.
    pub(crate) fn counting_bytes(self) -> Self {
        Self { counted_text: Some(String::new()), ..self }
    }

    /// Converts a position in the last text part from bytes to characters.
    pub(crate) fn chars_of(&self, bytes: u64) -> u64 {
        let text = self.counted_text.as_deref().unwrap_or_default();
        let end = usize::try_from(bytes).unwrap_or(usize::MAX);
        text[..text.floor_char_boundary(end)].chars().count() as u64
    }

    pub(crate) fn decode_context(&self) -> &DecodeContext {
        &self.decode_context
    }

    /// Emits `Started` once. Chat servers repeat id and model in every chunk; only those in the first chunk are used.
    pub(crate) fn start(&mut self, id: Option<&str>, model: Option<&str>) {
        if !std::mem::replace(&mut self.started, true) {
            let named = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
            self.events.push(ModelEvent::Started { id: named(id), model: named(model) });
        }
    }

    pub(crate) fn open(&mut self, part: PartStart, mark: Option<WireIdentity>) -> usize {
        self.stop_flow();
        self.start(None, None);
        let index = self.parts;
        self.parts += 1;
        if part == PartStart::Text {
            self.last_text = Some(index);
            self.counted_text.iter_mut().for_each(String::clear);
        }
        self.events.push(ModelEvent::PartStarted { index, part, mark });
        index
    }

    /// Returns false if the reply has the maximum number of calls. Then a decoder must skip further calls before it
    /// parses or stores their arguments.
    pub(crate) fn has_room_for_calls(&self) -> bool {
        self.calls < CALLS_PER_REPLY_MAX
    }

    /// Skips an item if it is a call and the reply has the maximum number of calls. In this case only the type of the
    /// item is parsed.
    pub(crate) fn skips_call(&mut self, raw: &RawValue, is_call: impl Fn(&str) -> bool) -> bool {
        if self.has_room_for_calls() {
            return false;
        }
        let skips = serde_json::from_str(raw.get())
            .is_ok_and(|TypedItem { kind }: TypedItem<'_>| kind.is_some_and(|kind| is_call(&kind)));
        self.skip_calls(usize::from(skips));
        skips
    }

    /// Counts calls that the reply skips.
    pub(crate) fn skip_calls(&mut self, count: usize) {
        self.calls = self.calls.saturating_add(count);
    }

    /// Starts a call. A call without an id, or with the id of an earlier call, gets a generated id. Returns
    /// [`LEFT_OUT`] if the reply has the maximum number of calls.
    pub(crate) fn open_call(&mut self, id: Option<&str>, name: &str, mark: Option<WireIdentity>) -> usize {
        if !self.has_room_for_calls() {
            self.skip_calls(1);
            return LEFT_OUT;
        }
        let provider_id = id.filter(|id| !id.is_empty() && !self.call_ids.contains(*id)).map(str::to_owned);
        let is_given = provider_id.is_some();
        let id =
            provider_id.unwrap_or_else(|| call_id::generate_call_id(self.decode_context.turn, self.calls));
        self.calls += 1;
        self.call_ids.insert(id.clone());
        let index = self.open(PartStart::Call { id: CallId(id.clone()), name: name.to_owned() }, mark);
        // Calls from Gemini and Ollama usually have no ids, so a generated id is not worth a note.
        if !is_given && !matches!(self.format, ModelApiFormat::Gemini | ModelApiFormat::Ollama) {
            self.note(ReplyNote::CallIdGiven { id });
        }
        index
    }

    pub(crate) fn add(&mut self, index: usize, text: &str) {
        if !text.is_empty() && index != LEFT_OUT {
            if self.last_text == Some(index) {
                self.counted_text.iter_mut().for_each(|counted| counted.push_str(text));
            }
            self.events.push(ModelEvent::PartDelta { index, delta: PartDelta::Text(text.to_owned()) });
        }
    }

    /// Appends text to a summary of the reasoning.
    pub(crate) fn add_summary(&mut self, index: usize, text: &str) {
        if !text.is_empty() {
            self.events.push(ModelEvent::PartDelta { index, delta: PartDelta::Summary(text.to_owned()) });
        }
    }

    /// Begins the next paragraph of a summary.
    pub(crate) fn break_summary(&mut self, index: usize) {
        self.events.push(ModelEvent::PartDelta { index, delta: PartDelta::SummaryBreak });
    }

    pub(crate) fn annotate(&mut self, index: usize, annotation: Annotation) {
        if index != LEFT_OUT {
            self.events.push(ModelEvent::PartDelta { index, delta: PartDelta::Annotation(annotation) });
        }
    }

    /// Adds an annotation to the last text part, and starts a text part if there is none.
    pub(crate) fn annotate_text(&mut self, annotation: Annotation) {
        let index = self.last_text.unwrap_or_else(|| self.open(PartStart::Text, None));
        self.annotate(index, annotation);
    }

    pub(crate) fn close(&mut self, index: usize, mark: Option<WireIdentity>) {
        if index != LEFT_OUT {
            self.events.push(ModelEvent::PartFinished { index, mark });
        }
    }

    /// Appends text that arrived without a part index.
    pub(crate) fn flow(&mut self, flow: TextChannel, text: &str) {
        self.flow_with_state(flow, text, None);
    }

    /// Works like `flow`, for text with state that the provider expects back in the next request.
    pub(crate) fn flow_with_state(&mut self, flow: TextChannel, text: &str, state: Option<&str>) {
        if !text.is_empty() {
            let index = self.flow_part(flow, state);
            self.add(index, text);
        }
    }

    /// Returns the part to which text without an index is appended. Starts a new part if another part came in between.
    pub(crate) fn flow_part(&mut self, flow: TextChannel, state: Option<&str>) -> usize {
        match self.flowing {
            Some((current, index)) if current == flow => index,
            _ => {
                let part = match flow {
                    TextChannel::Text => PartStart::Text,
                    TextChannel::Reasoning => PartStart::Reasoning,
                    TextChannel::Refusal => PartStart::Refusal,
                };
                let index = self.open(part, self.mark(None, state));
                self.flowing = Some((flow, index));
                index
            }
        }
    }

    pub(crate) fn stop_flow(&mut self) {
        self.stop_flow_with(None);
    }

    /// Ends the current text part. `mark` is the identity that arrived at the end of the text, such as a signature.
    pub(crate) fn stop_flow_with(&mut self, mark: Option<WireIdentity>) {
        if let Some((_, index)) = self.flowing.take() {
            self.close(index, mark);
        }
    }

    pub(crate) fn usage(&mut self, usage: TokenUsage) {
        self.events.push(ModelEvent::Usage(usage));
    }

    pub(crate) fn note(&mut self, note: ReplyNote) {
        self.notes += 1;
        if self.notes <= NOTES_MAX {
            self.events.push(ModelEvent::Noted(note));
        }
    }

    pub(crate) fn stop(&mut self, stop: StopReason) {
        if let StopReason::Other(reason) = &stop {
            self.note(ReplyNote::UnknownStopReason { reason: reason.clone() });
        }
        self.stop = Some(stop);
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns true if no part was started yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts == 0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Ends the reply and determines its stop reason. Some servers report "stop" for tool calls, and some report no
    /// stop reason.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.start(None, None);
        self.stop_flow();
        if self.calls > CALLS_PER_REPLY_MAX {
            let calls = self.calls;
            let reason =
                format!("the reply has {calls} calls; haft keeps only the first {CALLS_PER_REPLY_MAX}");
            self.note(ReplyNote::EventSkipped { reason });
        }
        let stop = match self.stop.take() {
            Some(StopReason::EndOfTurn) if self.calls > 0 => StopReason::ToolCalls,
            Some(stop) => stop,
            None => {
                self.note(ReplyNote::NoEnd);
                StopReason::CutOff
            }
        };
        if self.parts == 0 && matches!(stop, StopReason::EndOfTurn | StopReason::CutOff) {
            self.note(ReplyNote::Empty);
        }
        self.events.push(ModelEvent::Finished { stop });
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&mut self) -> Vec<ModelEvent> {
        std::mem::take(&mut self.events)
    }

    /// Ends the reply and returns all its events.
    pub(crate) fn into_events(mut self) -> Vec<ModelEvent> {
        self.end();
        self.events
    }

    pub(crate) fn mark(&self, id: Option<&str>, state: Option<&str>) -> Option<WireIdentity> {
        (id.is_some() || state.is_some()).then(|| WireIdentity {
            format: self.format,
            id: id.map(str::to_owned),
            state: state.map(Into::into),
        })
    }

    pub(crate) fn annotation(&self, json: &str, citations: Vec<UrlCitation>) -> Annotation {
        Annotation { format: self.format, json: json.into(), citations }
    }
}
