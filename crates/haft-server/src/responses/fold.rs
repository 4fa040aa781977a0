//! Folds the event log of a run into the items of a response and the events of its stream. Pure: it does no IO and
//! reads no clock.
//!
//! Streamed responses and responses without a stream use the same fold, so that both have the same items with the same
//! ids. An id is derived from the response id and the position of the item, so a stream that is read again has the same
//! ids.

use std::collections::HashMap;

use haft_core::approval::ApprovalId;
use haft_core::event_log::{EventEnvelope, LogCitation, LogEvent, LogUsage};
use haft_core::position::{RunPosition, SessionId};
use haft_core::result::ToolErrorKind;
use haft_core::run::UnusableText;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::without_delimiters;
use haft_runtime::PendingApproval;
use haft_store::responses::WaitingApproval;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::approvals::ITEM_PREFIX;
use super::mcp_error;
use super::object::{OwnEvents, ResponseEnd, ResponseHead, usage_object};
use super::open_text::{OpenText, PartChange, TextKind, annotation};
use super::request::{DeltaPadding, TurnSealing};
use super::sealed_run;
use super::tool_origin::McpOrigin;

/// One event of the stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StreamEvent {
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl StreamEvent {
    /// Restores an event from its stored data.
    pub(crate) fn of_data(data: Value) -> Self {
        Self { kind: data["type"].as_str().unwrap_or_default().to_owned(), data }
    }

    /// Returns the event as one block of server-sent events. Its lines end with LF: some clients lose events with CRLF.
    pub(crate) fn sse(&self) -> String {
        format!("event: {}\ndata: {}\n\n", self.kind, self.data)
    }
}

/// The server label of tools that belong to no MCP server, for items that require a label.
const OWN_LABEL: &str = "haft";

/// The maximum number of progress events of one call. A command that prints for hours must not fill the stream.
const PROGRESS_EVENTS_MAX: u32 = 100;

/// The maximum size of the text in a progress event, in bytes.
const PROGRESS_BYTES_MAX: usize = 4 << 10;

/// The padding unit, in bytes: the length of a delta with its padding is a multiple of this number.
const PADDED_BYTES: usize = 32;

/// The state of a response while its run is in progress.
#[derive(Debug)]
pub(crate) struct ResponseFold {
    head: ResponseHead,
    output: Vec<Value>,
    /// The text item that deltas are appended to; `None` if no text is in progress. It is always the last item of the
    /// output.
    open: Option<OpenText>,
    /// Calls that the model requested and that have not begun, because they may still need approval.
    requested: HashMap<String, RequestedCall>,
    /// The calls that the server runs, by the id that the model gave the call.
    running: HashMap<String, RunningToolCall>,
    stream: FoldedStream,
    usage: Option<LogUsage>,
    /// The text of the last message.
    last_text: String,
    text_release: TextRelease,
    /// The text of this turn that is not shown yet.
    held: HeldText,
    /// The length of the model's text in this turn, in characters. Citations count their positions in this text. If the
    /// turn continues the text of the previous turn, the length includes that text.
    turn_chars: u64,
    /// The length of the earlier text that this turn continues, in characters. The model's citations in this turn count
    /// from the end of the earlier text.
    continued_chars: u64,
    tool_began: bool,
    /// The index of the output item for the encrypted turn; `None` if the output has no such item or the item is
    /// complete.
    unsealed: Option<usize>,
    next_turn: NextTurn,
    /// True if reasoning is left out, because a repeated or continued message is open and stays the last item.
    skips_reasoning: bool,
}

/// The relation of the next turn to the open text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum NextTurn {
    /// The turn begins a new text.
    #[default]
    New,
    /// The turn repeats the text, because another process continued the run, or because the run could not use the
    /// reply.
    Repeated,
    /// The turn continues the text, which reached the limit on output tokens.
    Continued,
}

/// Selects when the response shows the text of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextRelease {
    AtOnce,
    /// The text is shown after the run has accepted the reply. The answer must be JSON, and a model provider does not
    /// enforce JSON if the model has tools, so the run may reject the text. A client that joins the texts of all
    /// messages, as the SDKs do, would then get no valid JSON.
    WhenAccepted,
}

/// Text of the model that is not shown yet, with its citations.
#[derive(Debug, Default)]
struct HeldText {
    text: String,
    citations: Vec<LogCitation>,
}

/// The events of the stream that have not been taken yet.
#[derive(Debug, Default)]
struct FoldedStream {
    events: Vec<StreamEvent>,
    /// The number of the next event.
    sequence: u64,
    /// True if the stream of the response has no readers.
    is_silent: bool,
}

impl FoldedStream {
    /// Adds an event. Builds its data only if the stream has readers, because this is a large part of the cost of a
    /// response.
    fn push(&mut self, kind: &str, data: impl FnOnce() -> Value) {
        if self.is_silent {
            return;
        }
        let mut fields = Map::new();
        fields.insert("type".into(), kind.into());
        fields.insert("sequence_number".into(), self.sequence.into());
        self.sequence += 1;
        if let Value::Object(data) = data() {
            fields.extend(data);
        }
        self.events.push(StreamEvent { kind: kind.to_owned(), data: Value::Object(fields) });
    }
}

#[derive(Debug, Clone)]
struct RequestedCall {
    tool: String,
    arguments: String,
    /// The id of the approval request that allowed the call; `None` if no approval request of an earlier response was
    /// about it.
    approval: Option<String>,
}

/// A call that the server runs.
#[derive(Debug, Clone, Copy)]
struct RunningToolCall {
    /// The position of the item of the call.
    index: usize,
    /// The number of progress events so far.
    progress_events: u32,
}

/// The end of a call that the server ran.
#[derive(Debug, Clone, Copy)]
enum CallOutcome<'a> {
    Output(&'a str),
    /// `kind` is the name of a [`ToolErrorKind`]; `None` if the call has no result.
    Failed {
        kind: Option<&'a str>,
        text: &'a str,
    },
}

impl ResponseFold {
    pub(crate) fn new(head: ResponseHead) -> Self {
        Self {
            usage: head.compaction_usage,
            head,
            output: Vec::new(),
            open: None,
            requested: HashMap::new(),
            running: HashMap::new(),
            stream: FoldedStream::default(),
            last_text: String::new(),
            text_release: TextRelease::AtOnce,
            held: HeldText::default(),
            turn_chars: 0,
            continued_chars: 0,
            tool_began: false,
            unsealed: None,
            next_turn: NextTurn::New,
            skips_reasoning: false,
        }
    }

    /// Turns off stream events, for a response whose client gets only the final object.
    pub(crate) fn without_events(&mut self) {
        self.stream.is_silent = true;
    }

    pub(crate) fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// Returns true if a tool of the server has begun. A repeated request could then repeat the effect of the tool.
    pub(crate) fn tool_began(&self) -> bool {
        self.tool_began
    }

    /// Returns the first events of the stream. If the run waits in the run queue, these are only the events up to
    /// `response.queued`, and [`begin`](Self::begin) returns the events that follow.
    pub(crate) fn start(&mut self) -> Vec<StreamEvent> {
        self.push_status("response.created", self.head.first_status());
        if self.head.is_queued {
            self.push_status("response.queued", "queued");
            return self.take_events();
        }
        self.begin()
    }

    fn push_status(&mut self, kind: &'static str, status: &'static str) {
        let head = &self.head;
        self.stream.push(kind, || json!({"response": head.open_object(status, Vec::new(), None)}));
    }

    /// Returns the events between the start of the run and the first item.
    pub(crate) fn begin(&mut self) -> Vec<StreamEvent> {
        self.push_status("response.in_progress", "in_progress");
        for item in self.head.first_items() {
            self.add_whole(item);
        }
        if self.head.sealing == TurnSealing::On {
            self.add_unsealed();
        }
        self.take_events()
    }

    /// Adds an item that will contain the encrypted turn, still without its content, unless such an item is already in
    /// progress.
    fn add_unsealed(&mut self) {
        if self.unsealed.is_none() {
            let index = self.output.len();
            self.unsealed = Some(index);
            self.add(self.head.sealed_item(index, None));
        }
    }

    /// Completes the item for encrypted content.
    pub(crate) fn seal(&mut self, encrypted: &str) -> Vec<StreamEvent> {
        let Some(index) = self.unsealed.take() else { return Vec::new() };
        let item = self.head.sealed_item(index, Some(encrypted));
        self.done(index, item);
        self.take_events()
    }

    /// Adds the item for an encrypted run, even if the client did not ask for encrypted items. The item comes before the
    /// approval requests, because clients expect these at the end.
    pub(crate) fn await_run(&mut self) -> Vec<StreamEvent> {
        self.close_text("completed");
        self.add_unsealed();
        self.take_events()
    }

    /// Returns the approval requests among the items.
    pub(crate) fn approval_items(&self) -> Vec<Value> {
        sealed_run::approval_items(&self.output)
    }

    /// Applies an event of the run. Events of sub-agents only add to the usage.
    pub(crate) fn apply(&mut self, envelope: &EventEnvelope) -> Vec<StreamEvent> {
        if let LogEvent::ModelFinished { usage: Some(usage), .. } = &envelope.event.kind {
            self.usage = Some(added(self.usage, *usage));
        }
        if envelope.parent.is_none() {
            self.apply_own(envelope);
        }
        self.take_events()
    }

    fn apply_own(&mut self, envelope: &EventEnvelope) {
        match &envelope.event.kind {
            LogEvent::TextDelta { text } => self.message_delta(text),
            LogEvent::RefusalDelta { text } => self.delta(TextKind::Refusal, text),
            LogEvent::ReasoningDelta { text } => self.reasoning_delta(TextKind::Reasoning, text),
            LogEvent::ReasoningSummaryDelta { part, text } => {
                self.reasoning_delta(TextKind::Summary(*part), text);
            }
            LogEvent::Citations { citations } => self.add_citations(citations),
            LogEvent::Note { reply: Some(reply), .. } => self.settle_unusable(reply),
            LogEvent::TurnStarted => self.begin_turn(),
            LogEvent::RunStarted { tools, .. } => {
                let is_checked = self.head.wants_json() && !tools.is_empty();
                self.text_release = if is_checked { TextRelease::WhenAccepted } else { TextRelease::AtOnce };
                self.restart();
            }
            LogEvent::ToolCall { id, tool, arguments } => self.request_call(envelope, id, tool, arguments),
            LogEvent::ToolStarted { id, .. } => {
                self.tool_began = true;
                self.begin_call(id);
            }
            LogEvent::ToolResult { id, error_kind: Some(kind), .. }
                if kind == ToolErrorKind::ApprovalPending.name() =>
            {
                self.requested.remove(id);
            }
            LogEvent::ToolResult { id, is_error, error_kind, text, .. } => {
                self.begin_call(id);
                let text = without_delimiters(text);
                self.end_call(
                    id,
                    if *is_error {
                        CallOutcome::Failed { kind: error_kind.as_deref(), text }
                    } else {
                        CallOutcome::Output(text)
                    },
                );
            }
            LogEvent::ToolProgress { id, text } => self.report_progress(id, text),
            LogEvent::ModelFinished { .. }
            | LogEvent::ToolFinished { .. }
            | LogEvent::ApprovalRequested { .. }
            | LogEvent::ApprovalDecided { .. }
            | LogEvent::Note { .. }
            | LogEvent::ContextCompacted { .. }
            | LogEvent::RunFinished { .. } => {}
        }
    }

    /// Completes the text of the turn before, unless this turn repeats or continues it.
    fn begin_turn(&mut self) {
        match std::mem::take(&mut self.next_turn) {
            NextTurn::New => {
                self.close_text("completed");
                self.continued_chars = 0;
                self.skips_reasoning = false;
            }
            NextTurn::Repeated | NextTurn::Continued => {
                self.skips_reasoning = self.open.as_ref().is_some_and(|open| open.kind == TextKind::Message);
            }
        }
        self.turn_chars = self.continued_chars;
    }

    fn message_delta(&mut self, text: &str) {
        self.skips_reasoning = false;
        match self.text_release {
            TextRelease::AtOnce => self.show_message(text),
            TextRelease::WhenAccepted => self.held.text.push_str(text),
        }
    }

    fn show_message(&mut self, text: &str) {
        self.delta(TextKind::Message, text);
        self.turn_chars += text.chars().count() as u64;
    }

    fn reasoning_delta(&mut self, kind: TextKind, text: &str) {
        if !self.skips_reasoning {
            self.delta(kind, text);
        }
    }

    fn add_citations(&mut self, citations: &[LogCitation]) {
        if self.held.text.is_empty() {
            self.cite(citations);
        } else {
            self.held.citations.extend_from_slice(citations);
        }
    }

    /// Shows the held text.
    fn release_text(&mut self) {
        let HeldText { text, citations } = std::mem::take(&mut self.held);
        if !text.is_empty() {
            self.show_message(&text);
            self.cite(&citations);
        }
    }

    /// Prepares for the next turn after a reply that the run could not use. `use_of_text` is the name of an
    /// [`UnusableText`].
    fn settle_unusable(&mut self, use_of_text: &str) {
        match UnusableText::from_name(use_of_text) {
            Some(UnusableText::Continued) => {
                self.open.iter_mut().for_each(OpenText::keep);
                self.continued_chars = self.turn_chars;
                self.next_turn = NextTurn::Continued;
            }
            Some(UnusableText::Replaced) if self.held.text.is_empty() => self.restart(),
            // A message cannot be taken back, so text that is already shown stays in the output.
            Some(UnusableText::Replaced | UnusableText::Unused) | None => self.held = HeldText::default(),
        }
    }

    fn take_events(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.stream.events)
    }

    /// Drops the text of the interrupted reply, because the model repeats the reply. The item stays open for the
    /// repeated text, because a client may have seen the item.
    fn restart(&mut self) {
        self.held = HeldText::default();
        if let Some(open) = &mut self.open {
            open.clear();
            self.next_turn = NextTurn::Repeated;
        }
    }

    /// Adds items for the calls that the client must approve. Returns the calls as records to store.
    pub(crate) fn approval_requests(
        &mut self,
        pending: &[PendingApproval],
        needs_scope: bool,
    ) -> (Vec<StreamEvent>, Vec<WaitingApproval>) {
        self.close_text("completed");
        let mut waiting = Vec::new();
        for approval in pending {
            let id = self.item_id(ITEM_PREFIX, self.output.len());
            let McpOrigin { label, name } = self
                .head
                .origins
                .find(&approval.tool)
                .unwrap_or_else(|| McpOrigin { label: OWN_LABEL.to_owned(), name: approval.tool.clone() });
            let item = json!({
                "type": "mcp_approval_request", "id": id, "server_label": label, "name": name,
                "arguments": approval.arguments.to_string(),
            });
            self.add_whole(item);
            waiting.push(WaitingApproval {
                item: id,
                approval: approval.id.to_string(),
                arguments: approval.arguments.clone(),
                needs_scope,
                expired: false,
                approved: None,
            });
        }
        (self.take_events(), waiting)
    }

    /// Adds items for the calls that the client runs.
    pub(crate) fn client_calls(&mut self, calls: &[ToolCall]) -> Vec<StreamEvent> {
        self.close_text("completed");
        for call in calls {
            self.client_call(call);
        }
        self.take_events()
    }

    fn client_call(&mut self, call: &ToolCall) {
        let index = self.output.len();
        let (id, arguments) = (self.item_id("fc", index), call.arguments.as_text());
        let item = |arguments: &str, status: &str| {
            json!({
                "type": "function_call", "id": id, "call_id": call.id.0, "name": call.name, "arguments": arguments,
                "status": status,
            })
        };
        let place = || json!({"item_id": id, "output_index": index});
        let padding = self.head.padding;
        self.add(item("", "in_progress"));
        self.stream.push("response.function_call_arguments.delta", || {
            padded(with(place(), "delta", arguments), arguments, padding)
        });
        self.stream.push("response.function_call_arguments.done", || {
            with(with(place(), "arguments", arguments), "name", call.name.as_str())
        });
        self.done(index, item(arguments, "completed"));
    }

    /// Ends the response. Returns the final object and the events up to the last one.
    pub(crate) fn end(&mut self, end: &ResponseEnd) -> (Value, Vec<StreamEvent>) {
        // The previous process ended after the answer was complete but before the event log contained all of it:
        // replace the incomplete text with the answer.
        if let (NextTurn::Repeated, Some(answer)) = (self.next_turn, &end.answer) {
            let kept = self.open.as_ref().map_or("", |open| open.text.as_str());
            let rest = answer.strip_prefix(kept).unwrap_or(answer).to_owned();
            self.delta(TextKind::Message, &rest);
        }
        let status = end.text_status();
        self.close_text(status);
        // If the run ended early, some calls may have no result. Report them as failed, because clients expect that
        // every item ends.
        let left: Vec<String> = self.running.keys().cloned().collect();
        for id in left {
            let text = "the response ended before this call finished";
            self.end_call(&id, CallOutcome::Failed { kind: None, text });
        }
        // An answer that the model gave through a tool was not streamed as text, so add it as a message.
        if let Some(answer) = end.answer.as_ref().filter(|answer| !is_same_answer(answer, &self.last_text)) {
            self.delta(TextKind::Message, answer);
            self.close_text(status);
        }
        // A failed response has no turn to continue from, but every item that began must end.
        if let Some(index) = self.unsealed.take() {
            let item = with(self.output[index].clone(), "status", "incomplete");
            self.done(index, item);
        }
        let (output, usage) = (std::mem::take(&mut self.output), self.usage());
        let response = self.head.ended_object(output, usage, end);
        if let Some(error) = &end.error {
            // Send both forms in one object: the specification nests the error, and the SDK types expect flat fields.
            self.stream.push("error", || {
                let (code, message) = (error.code, &error.message);
                let mut nested = json!({"type": error.kind, "code": code, "message": message, "param": null});
                if let Some(seconds) = error.retry_after_s {
                    nested["headers"] = json!({"retry-after": seconds.to_string()});
                }
                json!({"code": code, "message": message, "param": null, "error": nested})
            });
        }
        let kind = match end.status {
            "failed" => "response.failed",
            // There is no event type for a cancelled response, but the stream must have a last event.
            "incomplete" | "cancelled" => "response.incomplete",
            _ => "response.completed",
        };
        self.stream.push(kind, || json!({"response": &response}));
        (response, self.take_events())
    }

    fn delta(&mut self, kind: TextKind, text: &str) {
        self.open_text(kind);
        let index = self.output.len().saturating_sub(1);
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let (head, open) = (&self.head, &*open);
        self.stream.push(kind.delta_event(head.event_options.reasoning), || {
            let data = with(kind.with_logprobs(open.place(head, index)), "delta", text);
            // The types of the SDKs have no padding for refusals.
            let padding = if kind == TextKind::Refusal { DeltaPadding::Off } else { head.padding };
            padded(data, text, padding)
        });
    }

    /// Opens the text of a delta, unless it is open already.
    fn open_text(&mut self, kind: TextKind) {
        match self.open.as_ref().map(|open| open.kind) {
            Some(open) if open == kind => return,
            // The paragraphs of a summary belong to the same item.
            Some(TextKind::Summary(_)) if matches!(kind, TextKind::Summary(_)) => {
                self.close_part();
                self.open.iter_mut().for_each(|open| open.next_paragraph(kind));
            }
            Some(_) | None => {
                self.close_text("completed");
                let open = OpenText::new(kind, self.turn_chars);
                self.add(open.empty_item(&self.head, self.output.len()));
                self.open = Some(open);
            }
        }
        let index = self.output.len().saturating_sub(1);
        let Some(open) = &self.open else { return };
        let head = &self.head;
        self.stream.push(kind.part_event(PartChange::Added), || {
            with(open.place(head, index), "part", open.empty_part())
        });
    }

    /// Adds citations to the open message. Skips citations of a message that is complete already, because a client
    /// accepts no changes of complete items.
    fn cite(&mut self, citations: &[LogCitation]) {
        let index = self.output.len().saturating_sub(1);
        let Some(open) = self.open.as_mut().filter(|open| open.kind == TextKind::Message) else { return };
        let moved = |citation: &LogCitation| LogCitation {
            start: citation.start + self.continued_chars,
            end: citation.end + self.continued_chars,
            ..citation.clone()
        };
        let first_char = open.first_char;
        for citation in citations.iter().map(moved).filter(|citation| citation.start >= first_char) {
            let (number, annotation) = (open.annotations.len(), annotation(&citation, open.first_char));
            open.annotations.push(annotation.clone());
            let (head, open) = (&self.head, &*open);
            self.stream.push("response.output_text.annotation.added", || {
                let place = with(open.place(head, index), "annotation_index", number);
                with(place, "annotation", annotation)
            });
        }
    }

    /// Ends the open part of the open item.
    fn close_part(&mut self) {
        let index = self.output.len().saturating_sub(1);
        let Some(open) = &self.open else { return };
        let (head, kind) = (&self.head, open.kind);
        self.stream.push(kind.done_event(head.event_options.reasoning), || {
            with(kind.with_logprobs(open.place(head, index)), kind.text_field(), open.text.as_str())
        });
        self.stream
            .push(kind.part_event(PartChange::Done), || with(open.place(head, index), "part", open.part()));
    }

    fn close_text(&mut self, status: &str) {
        self.release_text();
        self.close_part();
        let Some(open) = self.open.take() else { return };
        let index = self.output.len().saturating_sub(1);
        self.done(index, open.whole_item(&self.head, index, status));
        if open.kind == TextKind::Message {
            self.last_text = open.text;
        }
    }

    /// Records a requested call. A call that continues after a restart already has its item.
    fn request_call(&mut self, envelope: &EventEnvelope, id: &str, tool: &str, arguments: &str) {
        if self.running.contains_key(id) {
            return;
        }
        let session = Uuid::parse_str(&envelope.run).map(|session| SessionId(session.as_u128()));
        let approval = session.ok().and_then(|session| {
            let place = RunPosition { turn: envelope.event.turn, ..RunPosition::first(session) };
            self.head.approved.get(&ApprovalId::of_call(place, &CallId(id.to_owned()))).cloned()
        });
        let call = RequestedCall { tool: tool.to_owned(), arguments: arguments.to_owned(), approval };
        self.requested.insert(id.to_owned(), call);
        self.close_text("completed");
    }

    /// Adds an output item for a requested call that has no item yet.
    fn begin_call(&mut self, id: &str) {
        let Some(RequestedCall { tool, arguments, approval }) = self.requested.remove(id) else { return };
        self.close_text("completed");
        let index = self.output.len();
        self.running.insert(id.to_owned(), RunningToolCall { index, progress_events: 0 });
        let mut item = self.server_item(index, &tool, &arguments, "in_progress");
        if let Some(approval) = approval {
            item["approval_request_id"] = approval.into();
        }
        let is_mcp = item["type"] == "mcp_call";
        let place = json!({"item_id": item["id"], "output_index": index});
        self.add(item);
        if is_mcp {
            self.stream.push("response.mcp_call.in_progress", || place.clone());
            self.stream.push("response.mcp_call_arguments.delta", || {
                with(place.clone(), "delta", arguments.as_str())
            });
            self.stream.push("response.mcp_call_arguments.done", || with(place, "arguments", arguments));
        } else {
            self.push_own("haft:tool_call.in_progress", || place);
        }
    }

    /// Adds a `haft:` event, unless the client accepts only the events of the API.
    fn push_own(&mut self, kind: &str, data: impl FnOnce() -> Value) {
        match self.head.event_options.own {
            OwnEvents::On => self.stream.push(kind, data),
            OwnEvents::Off => {}
        }
    }

    /// Passes on output of a running call, up to a maximum number of events. The item of the ended call has the whole
    /// output.
    fn report_progress(&mut self, id: &str, text: &str) {
        let Some(call) = self.running.get_mut(id) else { return };
        if call.progress_events >= PROGRESS_EVENTS_MAX {
            return;
        }
        call.progress_events += 1;
        let index = call.index;
        let item = self.output[index]["id"].clone();
        let shown = &text[..text.floor_char_boundary(PROGRESS_BYTES_MAX)];
        self.push_own("haft:tool_call.progress", || {
            json!({
                "item_id": item, "output_index": index, "delta": shown, "truncated": shown.len() < text.len(),
            })
        });
    }

    fn end_call(&mut self, id: &str, outcome: CallOutcome<'_>) {
        let Some(RunningToolCall { index, .. }) = self.running.remove(id) else { return };
        let mut item = self.output[index].clone();
        let is_mcp = item["type"] == "mcp_call";
        let (status, field, value) = match outcome {
            CallOutcome::Output(text) => ("completed", "output", text.into()),
            CallOutcome::Failed { kind, text } if is_mcp => {
                ("failed", "error", mcp_error::object(kind, text))
            }
            CallOutcome::Failed { text, .. } => ("failed", "error", text.into()),
        };
        item["status"] = status.into();
        item[field] = value;
        let place = || json!({"item_id": item["id"], "output_index": index});
        if is_mcp {
            self.stream.push(&format!("response.mcp_call.{status}"), place);
        } else {
            self.push_own(&format!("haft:tool_call.{status}"), place);
        }
        self.done(index, item);
    }

    /// Returns the item of a call that the server runs. MCP tools have OpenAI's item type; other tools have an item
    /// type of haft.
    fn server_item(&self, index: usize, tool: &str, arguments: &str, status: &str) -> Value {
        match self.head.origins.find(tool) {
            Some(McpOrigin { label, name }) => json!({
                "type": "mcp_call", "id": self.item_id("mcp", index), "server_label": label, "name": name,
                "arguments": arguments, "status": status, "output": null, "error": null,
                "approval_request_id": null,
            }),
            None => json!({
                "type": "haft:tool_call", "id": self.item_id("ht", index), "name": tool, "arguments": arguments,
                "status": status, "output": null, "error": null,
            }),
        }
    }

    /// Adds an item that is already complete.
    fn add_whole(&mut self, item: Value) {
        let index = self.output.len();
        self.add(item.clone());
        if item["type"] == "mcp_list_tools" {
            let end = if item["error"].is_null() { "completed" } else { "failed" };
            let place = json!({"item_id": item["id"], "output_index": index});
            self.stream.push("response.mcp_list_tools.in_progress", || place.clone());
            self.stream.push(&format!("response.mcp_list_tools.{end}"), || place);
        }
        self.done(index, item);
    }

    fn add(&mut self, item: Value) {
        let index = self.output.len();
        self.stream.push("response.output_item.added", || json!({"output_index": index, "item": &item}));
        self.output.push(item);
    }

    fn done(&mut self, index: usize, item: Value) {
        self.stream.push("response.output_item.done", || json!({"output_index": index, "item": &item}));
        self.output[index] = item;
    }

    fn item_id(&self, prefix: &str, index: usize) -> String {
        item_id(&self.head, prefix, index)
    }

    fn usage(&self) -> Value {
        let usage = self.usage.unwrap_or(LogUsage {
            input_tokens: 0,
            output_tokens: 0,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            reasoning_tokens: 0,
        });
        usage_object(usage)
    }
}

/// Returns true if the streamed text is already the answer. A JSON answer is compared as a value, because the run
/// writes it without the white space of the model.
fn is_same_answer(answer: &str, text: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    answer.trim() == text.trim() || value(answer).is_some_and(|answer| Some(answer) == value(text))
}

pub(super) fn item_id(head: &ResponseHead, prefix: &str, index: usize) -> String {
    let of_response = head.id.trim_start_matches("resp_");
    format!("{prefix}_{of_response}{index:04x}")
}

pub(super) fn with(mut data: Value, name: &str, value: impl Into<Value>) -> Value {
    data[name] = value.into();
    data
}

/// The events whose deltas are padded.
const PADDED_EVENTS: [&str; 4] = [
    "response.output_text.delta",
    "response.reasoning_text.delta",
    "response.reasoning.delta",
    "response.function_call_arguments.delta",
];

/// Returns true if events of this type have padding when the client asks for it.
pub(super) fn can_be_padded(kind: &str) -> bool {
    PADDED_EVENTS.contains(&kind)
}

/// Adds or removes the padding of an event that [`can_be_padded`].
pub(super) fn repadded(mut data: Value, padding: DeltaPadding) -> Value {
    if let Value::Object(fields) = &mut data {
        fields.remove(PADDING);
    }
    let delta = data["delta"].as_str().unwrap_or_default().to_owned();
    padded(data, &delta, padding)
}

/// The field of an event with its padding.
const PADDING: &str = "obfuscation";

/// Adds a field that pads the delta to a multiple of [`PADDED_BYTES`], if the client asks for it. The padding is not
/// random, because a replayed stream must be the same.
fn padded(data: Value, delta: &str, padding: DeltaPadding) -> Value {
    if padding == DeltaPadding::Off {
        return data;
    }
    let missing = delta.len().next_multiple_of(PADDED_BYTES) - delta.len();
    with(data, PADDING, "x".repeat(missing))
}

fn added(before: Option<LogUsage>, more: LogUsage) -> LogUsage {
    let Some(before) = before else { return more };
    LogUsage {
        input_tokens: before.input_tokens + more.input_tokens,
        output_tokens: before.output_tokens + more.output_tokens,
        cache_read_tokens: before.cache_read_tokens + more.cache_read_tokens,
        cache_write_tokens: before.cache_write_tokens + more.cache_write_tokens,
        reasoning_tokens: before.reasoning_tokens + more.reasoning_tokens,
    }
}

#[cfg(test)]
mod tests {
    use haft_core::name::{Namespace, ToolName};
    use haft_core::naming::ToolIdentity;
    use haft_core::position::{RunPosition, SessionId};
    use haft_core::provider::ProviderKind;

    use super::super::object::EventOptions;
    use super::super::tool_origin::ToolOrigins;
    use super::*;

    fn fold() -> ResponseFold {
        let echo = Map::new();
        let origins = ToolOrigins::new(vec!["docs".to_owned()], |name| {
            Some(ToolIdentity {
                kind: ProviderKind::Mcp,
                namespace: Namespace::sanitize("docs"),
                tool: ToolName::sanitize(name.strip_prefix("docs__")?),
            })
        });
        ResponseFold::new(ResponseHead {
            id: "resp_1".into(),
            created_s: 5,
            model: "m".into(),
            echo,
            origins,
            approved: HashMap::new(),
            padding: DeltaPadding::Off,
            warnings: Vec::new(),
            compacted: None,
            listed: Vec::new(),
            sealing: TurnSealing::Off,
            compaction_usage: None,
            is_queued: false,
            event_options: EventOptions::default(),
        })
    }

    fn started(id: &str, tool: &str) -> LogEvent {
        let source = haft_core::event_log::ToolSource::default();
        LogEvent::ToolStarted { id: id.into(), operation: 1, tool: tool.into(), waited_ms: 0, source }
    }

    fn envelope(event: LogEvent) -> EventEnvelope {
        EventEnvelope::new(1, None, RunPosition::first(SessionId(1)), event)
    }

    fn text(text: &str) -> LogEvent {
        LogEvent::TextDelta { text: text.into() }
    }

    fn call(id: &str, tool: &str) -> LogEvent {
        LogEvent::ToolCall { id: id.into(), tool: tool.into(), arguments: "{\"a\":1}".into() }
    }

    fn result(id: &str, is_error: bool) -> LogEvent {
        LogEvent::ToolResult {
            id: id.into(),
            tool: "t".into(),
            is_error,
            error_kind: is_error.then(|| ToolErrorKind::Failed.name().to_owned()),
            text: "out".into(),
            latency_ms: 1,
        }
    }

    /// Folds the events. Returns the whole stream and the final object, which must be the same without a stream.
    fn run(events: Vec<LogEvent>, client: &[ToolCall], end: &ResponseEnd) -> (Value, Vec<StreamEvent>) {
        let mut silent = fold();
        silent.without_events();
        let without_stream = feed(silent, events.clone(), client, end);
        let (response, stream) = feed(fold(), events, client, end);
        assert_eq!(without_stream, (response.clone(), Vec::new()));
        (response, stream)
    }

    fn feed(
        mut fold: ResponseFold,
        events: Vec<LogEvent>,
        client: &[ToolCall],
        end: &ResponseEnd,
    ) -> (Value, Vec<StreamEvent>) {
        let mut stream = fold.start();
        for event in events {
            stream.extend(fold.apply(&envelope(event)));
        }
        if !client.is_empty() {
            stream.extend(fold.client_calls(client));
        }
        let (response, last) = fold.end(end);
        stream.extend(last);
        (response, stream)
    }

    fn kinds(stream: &[StreamEvent]) -> Vec<&str> {
        stream.iter().map(|event| event.kind.trim_start_matches("response.")).collect()
    }

    /// Checks the rules that the stream readers of OpenAI's SDKs rely on.
    #[track_caller]
    fn check_rules(stream: &[StreamEvent], response: &Value) {
        assert_eq!(stream[0].kind, "response.created");
        let mut known: HashMap<u64, (Value, Value)> = HashMap::new();
        let mut done = 0;
        for (number, event) in stream.iter().enumerate() {
            let data = &event.data;
            assert_eq!(
                (data["sequence_number"].as_u64(), &data["type"]),
                (Some(number as u64), &json!(event.kind))
            );
            let index = data["output_index"].as_u64();
            match (event.kind.as_str(), index) {
                ("response.output_item.added", Some(index)) => {
                    let identity = (data["item"]["type"].clone(), data["item"]["id"].clone());
                    assert!(known.insert(index, identity).is_none(), "{index} twice");
                }
                ("response.output_item.done", Some(index)) => {
                    assert_eq!(known[&index], (data["item"]["type"].clone(), data["item"]["id"].clone()));
                    assert_eq!(response["output"][usize::try_from(index).unwrap()], data["item"]);
                    done += 1;
                }
                (_, Some(index)) => assert_eq!(known[&index].1, data["item_id"], "{}", event.kind),
                (_, None) => {}
            }
            let id = data["response"].get("id");
            assert!(id.is_none_or(|id| *id == response["id"]), "{}: {}", event.kind, data["response"]);
        }
        assert_eq!(done, known.len(), "each added item has a done event");
        assert_eq!(known.len(), response["output"].as_array().unwrap().len());
        assert_eq!(stream.last().unwrap().data["response"], *response);
    }

    #[test]
    fn streamed_text_is_one_message_with_events_in_the_specified_order() {
        let (response, stream) =
            run(vec![LogEvent::TurnStarted, text("Hel"), text("lo")], &[], &ResponseEnd::completed());
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(kinds(&stream), expected);
        check_rules(&stream, &response);
        assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
        assert_eq!(response["status"], "completed");
    }

    #[test]
    fn reasoning_text_and_each_parallel_call_are_separate_items() {
        let events = vec![
            LogEvent::ReasoningDelta { text: "Hm.".into() },
            text("I look."),
            call("a", "docs__find"),
            call("b", "note"),
            started("a", "docs__find"),
            started("b", "note"),
            result("b", false),
            result("a", true),
            LogEvent::TurnStarted,
            text("Done."),
        ];
        let (response, stream) = run(events, &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let items = response["output"].as_array().unwrap();
        let types: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["reasoning", "message", "mcp_call", "haft:tool_call", "message"]);
        assert_eq!(
            (&items[2]["status"], &items[2]["error"], &items[2]["name"]),
            (
                &json!("failed"),
                &json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "out"}]}),
                &json!("find")
            )
        );
        assert_eq!((&items[3]["status"], &items[3]["output"]), (&json!("completed"), &json!("out")));
        assert!(kinds(&stream).contains(&"mcp_call.failed"));
        let of_note = |event: &&StreamEvent| event.data["item_id"] == items[3]["id"];
        let own: Vec<&str> = stream.iter().filter(of_note).map(|event| event.kind.as_str()).collect();
        assert_eq!(own, ["haft:tool_call.in_progress", "haft:tool_call.completed"]);
    }

    fn summary(part: u32, text: &str) -> LogEvent {
        LogEvent::ReasoningSummaryDelta { part, text: text.into() }
    }

    fn citation(start: u64, end: u64) -> LogEvent {
        let title = (start > 0).then(|| "t".to_owned());
        LogEvent::Citations { citations: vec![LogCitation { url: "u".into(), title, start, end }] }
    }

    #[test]
    fn summary_text_and_refusal_are_separate_items_with_their_own_parts() {
        let events = vec![
            LogEvent::TurnStarted,
            summary(0, "Fir"),
            summary(0, "st."),
            summary(1, "Second."),
            text("Yes, "),
            text("but"),
            LogEvent::RefusalDelta { text: "No.".into() },
        ];
        let (response, stream) = run(events, &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let paragraph = |text: &str| json!({"type": "summary_text", "text": text});
        let items = &response["output"];
        assert_eq!(items[0]["summary"], json!([paragraph("First."), paragraph("Second.")]));
        assert_eq!(items[1]["content"][0]["text"], "Yes, but");
        assert_eq!(items[2]["content"], json!([{"type": "refusal", "refusal": "No."}]));
        let of_part = |number: u64| {
            let of_it = stream.iter().filter(|event| event.data["summary_index"] == number);
            of_it
                .map(|event| event.kind.trim_start_matches("response.reasoning_summary_"))
                .collect::<Vec<_>>()
        };
        assert_eq!(of_part(0), ["part.added", "text.delta", "text.delta", "text.done", "part.done"]);
        assert_eq!(of_part(1), ["part.added", "text.delta", "text.done", "part.done"]);
    }

    #[test]
    fn citations_count_from_the_start_of_their_message_and_not_of_the_turn() {
        let events = vec![
            LogEvent::TurnStarted,
            text("Grüße. "),
            citation(0, 6),
            LogEvent::ReasoningDelta { text: "Hm.".into() },
            text("Zwei."),
            citation(7, 11),
            citation(0, 6),
            LogEvent::TurnStarted,
            text("Drei."),
            citation(2, 4),
        ];
        let (response, stream) = run(events, &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let cited = |item: usize| response["output"][item]["content"][0]["annotations"].clone();
        let annotation = |title: &str, start: u64, end: u64| {
            let place = json!({"type": "url_citation", "url": "u", "start_index": start, "end_index": end});
            with(place, "title", title)
        };
        assert_eq!(
            cited(0),
            json!([annotation("u", 0, 6)]),
            "a page without a title has its URL as the title"
        );
        assert_eq!(cited(2), json!([annotation("t", 0, 4)]), "the first message is complete");
        assert_eq!(cited(3), json!([annotation("t", 2, 4)]));
        assert_eq!(kinds(&stream).iter().filter(|kind| **kind == "output_text.annotation.added").count(), 3);
    }

    #[test]
    fn restart_drops_the_summary_and_the_citations_of_the_interrupted_reply() {
        let resumed = || LogEvent::RunStarted { agents: Vec::new(), model: "m".into(), tools: Vec::new() };
        let first = vec![LogEvent::TurnStarted, summary(0, "One."), summary(1, "Tw"), resumed()];
        let again = vec![LogEvent::TurnStarted, summary(0, "One."), summary(1, "Two.")];
        let (response, stream) = run([first, again].concat(), &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let texts = response["output"][0]["summary"].as_array().unwrap();
        assert_eq!(texts.iter().map(|part| &part["text"]).collect::<Vec<_>>(), ["One.", "Two."]);
        let first = vec![LogEvent::TurnStarted, text("Zero "), citation(0, 4), resumed()];
        let again = vec![LogEvent::TurnStarted, text("Zero one"), citation(5, 8)];
        let (response, stream) = run([first, again].concat(), &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let part = &response["output"][0]["content"][0];
        assert_eq!((&part["text"], part["annotations"].as_array().unwrap().len()), (&json!("Zero one"), 1));
        assert_eq!(
            (&part["annotations"][0]["start_index"], &part["annotations"][0]["end_index"]),
            (&json!(5), &json!(8))
        );
    }

    #[test]
    fn refusal_deltas_have_no_padding_because_the_sdks_do_not_know_it() {
        let mut fold = fold();
        fold.head.padding = DeltaPadding::On;
        let events = vec![summary(0, "s"), LogEvent::RefusalDelta { text: "No.".into() }];
        let (_, stream) = feed(fold, events, &[], &ResponseEnd::completed());
        let has_padding = |kind: &str| {
            let event = stream.iter().find(|event| event.kind == kind).unwrap();
            event.data.get("obfuscation").is_some()
        };
        assert!(
            has_padding("response.reasoning_summary_text.delta") && !has_padding("response.refusal.delta")
        );
    }

    #[test]
    fn progress_events_are_limited_in_number_and_size_and_can_be_turned_off() {
        let progress = |text: &str| LogEvent::ToolProgress { id: "a".into(), text: text.into() };
        let long = "ü".repeat(PROGRESS_BYTES_MAX);
        let mut events = vec![progress("before"), call("a", "note"), started("a", "note"), progress(&long)];
        events.extend((0..2 * PROGRESS_EVENTS_MAX).map(|_| progress("more")));
        events.push(result("a", true));
        events.push(progress("after"));
        let (response, stream) = run(events.clone(), &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let reports: Vec<&Value> = stream
            .iter()
            .filter(|event| event.kind == "haft:tool_call.progress")
            .map(|event| &event.data)
            .collect();
        assert_eq!(reports.len(), PROGRESS_EVENTS_MAX as usize);
        assert_eq!(reports[0]["delta"].as_str().unwrap().len(), PROGRESS_BYTES_MAX);
        assert_eq!((&reports[0]["truncated"], &reports[1]["truncated"]), (&json!(true), &json!(false)));
        assert_eq!(
            (&reports[1]["delta"], &reports[1]["item_id"]),
            (&json!("more"), &response["output"][0]["id"])
        );
        assert!(kinds(&stream).contains(&"haft:tool_call.failed"));
        let mut strict = fold();
        strict.head.event_options.own = OwnEvents::Off;
        let (same, stream) = feed(strict, events, &[], &ResponseEnd::completed());
        assert_eq!(same, response);
        assert!(stream.iter().all(|event| event.kind.starts_with("response.")), "{:?}", kinds(&stream));
    }

    #[test]
    fn approval_request_is_followed_by_a_call_item_that_names_it() {
        let (place, call_id) = (RunPosition::first(SessionId(1)), CallId("a".into()));
        let pending = PendingApproval {
            id: ApprovalId::of_call(place, &call_id),
            tool: "docs__find".into(),
            arguments: json!({"a": 1}),
            prefix: None,
            rules: Vec::new(),
            why: "w".into(),
        };
        let mut first = fold();
        let mut stream = first.start();
        let waits = LogEvent::ToolResult {
            id: "a".into(),
            tool: "docs__find".into(),
            is_error: true,
            error_kind: Some("approval_pending".into()),
            text: "waits".into(),
            latency_ms: 1,
        };
        for event in [text("I look."), call("a", "docs__find"), waits] {
            stream.extend(first.apply(&envelope(event)));
        }
        let (events, waiting) = first.approval_requests(std::slice::from_ref(&pending), true);
        stream.extend(events);
        let (response, last) = first.end(&ResponseEnd::completed());
        stream.extend(last);
        check_rules(&stream, &response);
        let item = &response["output"][1];
        let expected = json!({
            "type": "mcp_approval_request", "id": "mcpr_10001", "server_label": "docs", "name": "find",
            "arguments": "{\"a\":1}",
        });
        assert_eq!((item, response["output"].as_array().unwrap().len()), (&expected, 2));
        assert!(!first.tool_began(), "the response starts no tool");
        assert_eq!((waiting[0].item.as_str(), waiting[0].needs_scope), ("mcpr_10001", true));
        let mut second = fold();
        second.head.approved.insert(pending.id, waiting[0].item.clone());
        let mut stream = second.start();
        for event in [call("a", "docs__find"), started("a", "docs__find"), result("a", false)] {
            stream.extend(second.apply(&envelope(event)));
        }
        let (response, last) = second.end(&ResponseEnd::completed());
        stream.extend(last);
        check_rules(&stream, &response);
        assert_eq!(response["output"][0]["approval_request_id"], "mcpr_10001");
    }

    #[test]
    fn restart_repeats_no_item_and_drops_the_interrupted_text() {
        let resumed = || LogEvent::RunStarted { agents: Vec::new(), model: "m".into(), tools: Vec::new() };
        let events = vec![
            resumed(),
            LogEvent::TurnStarted,
            call("a", "note"),
            started("a", "note"),
            resumed(),
            call("a", "note"),
            result("a", true),
            LogEvent::TurnStarted,
            text("The answer is fo"),
            resumed(),
            LogEvent::TurnStarted,
            text("The answer is 4."),
        ];
        let (response, stream) = run(events, &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let items = response["output"].as_array().unwrap();
        assert_eq!(items.len(), 2, "{items:?}");
        assert_eq!(items[1]["content"][0]["text"], "The answer is 4.");
    }

    fn unusable(reply: &str) -> LogEvent {
        LogEvent::Note {
            kind: "asked_again".into(),
            text: "n".into(),
            status: None,
            reply: Some(reply.into()),
        }
    }

    fn resumed(tools: &[&str]) -> LogEvent {
        let tools = tools.iter().map(|name| (*name).to_owned()).collect();
        LogEvent::RunStarted { agents: Vec::new(), model: "m".into(), tools }
    }

    #[test]
    fn restart_during_a_continuation_keeps_the_first_part_of_the_text() {
        let first = vec![LogEvent::TurnStarted, text("half "), citation(0, 4), unusable("continued")];
        let rest = vec![LogEvent::TurnStarted, text("and whole"), citation(4, 9)];
        let cut = vec![LogEvent::TurnStarted, text("and wh"), citation(0, 3), resumed(&[])];
        let end = ResponseEnd { answer: Some("half and whole".into()), ..ResponseEnd::completed() };
        let again = [first.clone(), cut.clone(), rest.clone()].concat();
        let rows = [[first.clone(), rest].concat(), again, [first, cut].concat()];
        for events in rows {
            let (response, stream) = run(events, &[], &end);
            check_rules(&stream, &response);
            let items = response["output"].as_array().unwrap();
            let part = &items[0]["content"][0];
            assert_eq!((items.len(), &part["text"]), (1, &json!("half and whole")), "{items:?}");
            let places: Vec<(u64, u64)> = part["annotations"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| (one["start_index"].as_u64().unwrap(), one["end_index"].as_u64().unwrap()))
                .collect();
            assert!(places.starts_with(&[(0, 4)]) && places[1..].iter().all(|place| *place == (9, 14)));
        }
    }

    #[test]
    fn repeated_reply_replaces_the_text_of_an_unusable_reply() {
        let think = || LogEvent::ReasoningDelta { text: "Hm.".into() };
        let first = vec![LogEvent::TurnStarted, think(), text("The answer is fo"), unusable("replaced")];
        let events = [first, vec![LogEvent::TurnStarted, think(), text("The answer is 4.")]].concat();
        let (response, stream) = run(events, &[], &ResponseEnd::completed());
        check_rules(&stream, &response);
        let items = response["output"].as_array().unwrap();
        let texts: Vec<&Value> = items.iter().map(|item| &item["content"][0]["text"]).collect();
        assert_eq!(texts, ["Hm.", "The answer is 4."]);
    }

    #[test]
    fn text_of_a_reply_with_a_checked_format_is_shown_when_the_run_accepts_it() {
        let json = |tools: &[&str], events: Vec<LogEvent>| {
            let mut fold = fold();
            fold.head.echo.insert("text".into(), json!({"format": {"type": "json_object"}}));
            let events = [vec![resumed(tools), LogEvent::TurnStarted], events].concat();
            let (response, stream) = feed(fold, events, &[], &ResponseEnd::completed());
            check_rules(&stream, &response);
            let texts = response["output"].as_array().unwrap().iter();
            let texts: Vec<String> =
                texts.filter_map(|item| item["content"][0]["text"].as_str().map(str::to_owned)).collect();
            texts
        };
        let retried = |use_of_text: &str| {
            vec![text("ba"), text("d"), unusable(use_of_text), LogEvent::TurnStarted, text("{}")]
        };
        assert_eq!(json(&["f"], retried("replaced")), ["{}"]);
        assert_eq!(json(&["f"], retried("unused")), ["{}"]);
        assert_eq!(json(&[], retried("replaced")), ["{}"]);
        assert_eq!(json(&["f"], retried("continued")), ["bad{}"]);
        let called = vec![text("I look."), call("a", "note"), LogEvent::TurnStarted, text("{}")];
        assert_eq!(json(&["f"], called), ["I look.", "{}"]);
    }

    #[test]
    fn answer_completed_before_a_crash_replaces_the_interrupted_text() {
        let resumed = LogEvent::RunStarted { agents: Vec::new(), model: "m".into(), tools: Vec::new() };
        let end = ResponseEnd { answer: Some("All of it.".into()), ..ResponseEnd::completed() };
        let (response, stream) = run(vec![LogEvent::TurnStarted, text("All o"), resumed], &[], &end);
        check_rules(&stream, &response);
        let items = response["output"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["content"][0]["text"]), (1, &json!("All of it.")));
    }

    #[test]
    fn calls_that_the_client_runs_are_the_last_items_of_a_completed_response() {
        let calls = [ToolCall::new("call_1", "weather", &json!({"town": "Oslo"}))];
        let (response, stream) = run(vec![text("Let me see.")], &calls, &ResponseEnd::completed());
        check_rules(&stream, &response);
        let item = &response["output"][1];
        assert_eq!(
            (&item["type"], &item["call_id"], &item["status"]),
            (&json!("function_call"), &json!("call_1"), &json!("completed"))
        );
        assert_eq!(item["arguments"], "{\"town\":\"Oslo\"}");
        assert_eq!(response["status"], "completed");
    }

    #[test]
    fn failed_response_keeps_its_partial_output() {
        let end = ResponseEnd::failed("server_error", "server_error", "the provider died");
        let (response, stream) = run(vec![text("Par"), call("a", "note")], &[], &end);
        check_rules(&stream, &response);
        assert_eq!(response["status"], "failed");
        assert_eq!(response["error"], json!({"code": "server_error", "message": "the provider died"}));
        assert_eq!(response["output"][0]["content"][0]["text"], "Par");
        assert_eq!(kinds(&stream)[stream.len() - 2..], ["error", "failed"]);
    }

    #[test]
    fn answer_given_through_a_tool_becomes_a_message() {
        let end = ResponseEnd { answer: Some("{\"a\":1}".into()), ..ResponseEnd::completed() };
        let (response, stream) = run(Vec::new(), &[], &end);
        check_rules(&stream, &response);
        assert_eq!(response["output"][0]["content"][0]["text"], "{\"a\":1}");
        for streamed in ["{\"a\":1}", " {\n  \"a\": 1\n}\n"] {
            let (response, _) = run(vec![text(streamed)], &[], &end);
            assert_eq!(response["output"].as_array().unwrap().len(), 1, "{streamed}");
        }
        let (response, _) = run(vec![text("{\"a\":2}")], &[], &end);
        assert_eq!(response["output"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn usage_includes_sub_agents_but_the_output_omits_their_text() {
        let usage = LogUsage {
            input_tokens: 10,
            output_tokens: 5,
            cache_read_tokens: 3,
            cache_write_tokens: 0,
            reasoning_tokens: 2,
        };
        let finished = LogEvent::ModelFinished {
            model: "m".into(),
            attempt: 1,
            error_kind: None,
            latency_ms: 1,
            usage: Some(usage),
            cost_nano_usd: None,
            audit: None,
        };
        let mut fold = fold();
        fold.apply(&envelope(finished.clone()));
        for event in [finished, text("inner")] {
            let mut below = envelope(event);
            below.parent = Some(7);
            assert_eq!(fold.apply(&below), []);
        }
        let (response, _) = fold.end(&ResponseEnd::completed());
        let usage = &response["usage"];
        assert_eq!((&usage["input_tokens"], &usage["total_tokens"]), (&json!(20), &json!(30)));
        assert_eq!(usage["input_tokens_details"]["cached_tokens"], 6);
        assert_eq!(response["output"], json!([]));
    }

    #[test]
    fn sse_event_is_one_block_without_carriage_returns() {
        let event = StreamEvent { kind: "x".into(), data: json!({"text": "a\r\nb"}) };
        assert_eq!(event.sse(), "event: x\ndata: {\"text\":\"a\\r\\nb\"}\n\n");
    }
}
