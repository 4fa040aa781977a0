//! The JSON form of events. There is only one: `stream-json`, stored event logs, JSON log lines and accounting all use
//! it.
//!
//! [`EventReader`] turns the [`Event`]s of a run into [`LogEvent`]s, and [`EventEnvelope`] adds the number, time and
//! run of each event. This module neither assigns the numbers nor stores the events; the runtime's event log does.

mod audit;
mod note;
mod reply_parts;
mod schema;

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::ApprovalRequest;
use crate::event::{CallAccount, CallProgress, Event, ToolReference};
use crate::model_error::ModelErrorKind;
use crate::model_event::ModelEvent;
use crate::model_provider::{ModelAccount, ModelAttempt};
use crate::model_reply::TokenUsage;
use crate::position::{OperationId, RunPosition, SessionId};
use crate::result::ToolErrorKind;
use crate::run::event::{CallAnswer, RunEvent, RunStart};
use crate::run::finish::{RunAnswer, RunFinish};
use crate::run::{Compaction, RunNote};

pub use audit::{CallAudit, CallContent, DecisionAudit, ModelAudit, ToolSource};
pub use note::note_text;
use reply_parts::ReplyParts;
pub use schema::schema;

/// An event, with its number, time and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventEnvelope {
    /// The event number, counted from 1 and never reused. A root run and all runs that work for it share one sequence;
    /// log lines and accounting use one sequence per process.
    pub seq: u64,
    /// The time of the event, in milliseconds since 1970. Absent in `stream-json`, because a replay must produce the
    /// same bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The session of the run.
    pub run: String,
    /// The operation that started this run, such as the call of a sub-agent; absent for a root run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// The turn and the kind of event.
    pub event: TurnEvent,
}

/// An event and the turn in which it happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnEvent {
    /// The turn, counted from 1 in each session; 0 for events before the first turn.
    pub turn: u32,
    /// The event; JSON writes its fields next to `turn`.
    #[serde(flatten)]
    pub kind: LogEvent,
}

impl EventEnvelope {
    /// Creates the envelope of an event that happened at `place`.
    pub fn new(seq: u64, at: Option<u64>, place: RunPosition, kind: LogEvent) -> Self {
        Self {
            seq,
            at,
            run: place.session.to_string(),
            parent: place.parent.map(|OperationId(number)| number),
            event: TurnEvent { turn: place.turn, kind },
        }
    }
}

/// An event in a run. New kinds and fields may be added; existing ones never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogEvent {
    /// A run begins, or continues after a restart.
    RunStarted {
        /// The chain of agents, from the agent that was asked first to the agent of this run.
        agents: Vec<String>,
        /// The model, as `provider/model`.
        model: String,
        /// The names of the tools that the model sees.
        tools: Vec<String>,
    },
    /// The run asks the model for a reply. A retry after an unusable reply emits this event too.
    TurnStarted,
    /// The model wrote more text.
    TextDelta {
        /// The new text, to be appended to earlier deltas of the turn.
        text: String,
    },
    /// The provider showed more of the model's reasoning.
    ReasoningDelta {
        /// The new text, to be appended to earlier deltas of the turn.
        text: String,
    },
    /// The provider showed more of a summary of the model's reasoning.
    ReasoningSummaryDelta {
        /// The number of the paragraph, counted from 0 in each reply.
        part: u32,
        /// The new text, to be appended to earlier deltas of the paragraph.
        text: String,
    },
    /// The model wrote more of a refusal, in its own words.
    RefusalDelta {
        /// The new text, to be appended to earlier deltas of the turn.
        text: String,
    },
    /// The model's text cites web pages. The event follows the text.
    Citations {
        /// The cited pages, in the order in which they arrived.
        citations: Vec<LogCitation>,
    },
    /// One attempt to call a model ended. Each retry and each fallback model is a separate attempt.
    ModelFinished {
        /// The model, as `provider/model`.
        model: String,
        /// The number of the attempt, counted from 1 for each provider and model.
        attempt: u32,
        /// The name of a [`ModelErrorKind`]; `None` for success.
        error_kind: Option<String>,
        /// The duration of the attempt to call the model.
        latency_ms: u64,
        /// The token usage; `None` if the provider did not report it.
        usage: Option<LogUsage>,
        /// The cost, in billionths of a US dollar; `None` if the usage or the price is unknown.
        cost_nano_usd: Option<u64>,
        /// The audit fields. Only a reader made by [`EventReader::with_audit`] sets them, for log lines and accounting;
        /// otherwise `None`.
        #[serde(flatten)]
        audit: Option<Box<ModelAudit>>,
    },
    /// The model requested a call.
    ToolCall {
        /// The id that the model gave the call. All other events of the call have the same id.
        id: String,
        /// The tool name as the model wrote it.
        tool: String,
        /// The arguments as the model wrote them.
        arguments: String,
    },
    /// The call reached its tool.
    ToolStarted {
        /// The id that the model gave the call.
        id: String,
        /// The operation id of the call. If the call starts a sub-agent, the sub-agent's events have this id as
        /// `parent`.
        operation: u64,
        /// The exposed name of the tool.
        tool: String,
        /// The time that the call spent in queues and waiting for approval.
        waited_ms: u64,
        /// The origin of the tool. Only a reader made by [`EventReader::with_audit`] sets it, for log lines; otherwise
        /// empty.
        #[serde(flatten)]
        source: ToolSource,
    },
    /// The running tool reported output or a message.
    ToolProgress {
        /// The id that the model gave the call.
        id: String,
        /// The new output, or a message for the user.
        text: String,
    },
    /// The call ended with this result for the model.
    ToolResult {
        /// The id that the model gave the call.
        id: String,
        /// The tool name as the model wrote it.
        tool: String,
        /// True if the call failed.
        is_error: bool,
        /// The name of a [`ToolErrorKind`]; `None` for success.
        error_kind: Option<String>,
        /// The text that the model gets: the output, or the error message.
        text: String,
        /// The time since the call was requested.
        latency_ms: u64,
    },
    /// A record of a finished call: sizes and decisions.
    ToolFinished {
        /// The id that the model gave the call.
        id: String,
        /// The operation id of the call.
        operation: u64,
        /// The exposed name, or the written name if the tool is unknown.
        tool: String,
        /// The name of a [`ToolErrorKind`]; `None` for success.
        error_kind: Option<String>,
        /// The time since the call was requested.
        latency_ms: u64,
        /// True if the call reached its tool.
        executed: bool,
        /// True if the cache answered the call.
        cached: bool,
        /// The length of the arguments, in bytes.
        bytes_in: u64,
        /// The size of the output, or of the error message of a failed call, in bytes.
        bytes_out: u64,
        /// The audit fields. Only a reader made by [`EventReader::with_audit`] sets them, for log lines and accounting;
        /// otherwise `None`.
        #[serde(flatten)]
        audit: Option<Box<CallAudit>>,
        /// The content of the call, for log lines. Only a reader made by [`EventReader::with_audit`] sets it, and only
        /// if the operator enabled content capture.
        #[serde(flatten)]
        content: Option<Box<CallContent>>,
    },
    /// The run waits for a decision about a call.
    ApprovalRequested {
        /// The id under which the caller sends the decision.
        approval: String,
        /// The exposed name of the tool.
        tool: String,
        /// The arguments after repair.
        arguments: Value,
        /// The rule that requires approval, in words for the user.
        why: String,
    },
    /// A pending approval was decided.
    ApprovalDecided {
        /// The id from the event `approval_requested`.
        approval: String,
        /// True if the call is allowed, false if it is refused.
        allowed: bool,
    },
    /// The run made a decision that a person may want to know about.
    Note {
        /// The name of a [`RunNote`], or `alarm` if the answer may be wrong.
        kind: String,
        /// The note as a sentence for a person.
        text: String,
        /// The reported progress. It is present only for notes of the kind `status`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<Value>,
        /// The name of an [`UnusableText`](crate::run::UnusableText): the use of the text of an unusable reply. It is
        /// present only for notes of the kind `asked_again`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<String>,
    },
    /// The run made its conversation smaller before the next model request.
    ContextCompacted {
        /// The size of the next request before compaction, in tokens.
        before_tokens: u64,
        /// The size of the next request after compaction, in tokens, by haft's own count.
        after_tokens: u64,
        /// The kind of content that was removed from the conversation: `outputs` or `turns`.
        scope: String,
        /// The number of outputs or messages that were removed.
        items: u64,
        /// The kind of text that replaces old turns: `model` for a summary that a model wrote, `list` for a plain list
        /// of the calls; `None` if only outputs were removed.
        summary: Option<String>,
    },
    /// The last event of a run. A sub-agent's run has its own.
    RunFinished {
        /// The name of the finish reason, such as `completed` or `max_turns`.
        finish: String,
        /// The answer as text; absent if the run ended without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
}

/// A web page that a text of the model cites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCitation {
    /// The URL of the page.
    pub url: String,
    /// The title of the page; absent if the provider sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The start of the text that the page supports, in characters of all text deltas since the last `turn_started`.
    pub start: u64,
    /// The end of this text; the character at this position is not a part of it.
    pub end: u64,
}

/// The tokens of one model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogUsage {
    /// All input tokens, including those from the cache.
    pub input_tokens: u64,
    /// All output tokens, including reasoning.
    pub output_tokens: u64,
    /// The part of the input that the provider read from its cache.
    pub cache_read_tokens: u64,
    /// The part of the input that the provider wrote to its cache.
    pub cache_write_tokens: u64,
    /// The part of the output that is reasoning.
    pub reasoning_tokens: u64,
}

impl From<TokenUsage> for LogUsage {
    fn from(usage: TokenUsage) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_write_tokens: usage.cache_write,
            reasoning_tokens: usage.reasoning,
        }
    }
}

impl LogEvent {
    /// Describes an approval request for readers of the log.
    pub fn approval_requested(request: &ApprovalRequest) -> Self {
        Self::ApprovalRequested {
            approval: request.id.to_string(),
            tool: request.tool.clone(),
            arguments: Value::Object(request.arguments.clone()),
            why: request.why.clone(),
        }
    }

    /// Returns the event without any text that a model, a tool or a person wrote, for logs and accounting. Returns
    /// `None` for an event that consists of such text.
    #[must_use]
    pub fn without_content(mut self) -> Option<Self> {
        match &mut self {
            Self::TextDelta { .. }
            | Self::ReasoningDelta { .. }
            | Self::ReasoningSummaryDelta { .. }
            | Self::RefusalDelta { .. }
            | Self::Citations { .. }
            | Self::ToolProgress { .. }
            | Self::ToolCall { .. }
            | Self::ToolResult { .. }
            | Self::ApprovalRequested { .. } => return None,
            Self::Note { text, status, .. } => {
                text.clear();
                *status = None;
            }
            Self::RunFinished { answer, .. } => *answer = None,
            Self::ToolFinished { content, .. } => *content = None,
            Self::RunStarted { .. }
            | Self::TurnStarted
            | Self::ModelFinished { .. }
            | Self::ToolStarted { .. }
            | Self::ApprovalDecided { .. }
            | Self::ContextCompacted { .. } => {}
        }
        Some(self)
    }
}

/// Converts [`Event`]s to [`LogEvent`]s. Remembers the parts of each unfinished reply, because a delta identifies its
/// part by index only.
#[derive(Debug, Default)]
pub struct EventReader {
    replies: HashMap<SessionId, ReplyParts>,
    detail: AuditDetail,
}

/// Selects the event fields that an [`EventReader`] fills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum AuditDetail {
    /// Fills only the fields that readers of a run's events may see.
    #[default]
    Plain,
    /// Fills all fields, for the operator.
    Audit,
}

impl EventReader {
    /// Creates a reader that also fills the audit fields and the captured content of calls, for log lines and
    /// accounting.
    pub fn with_audit() -> Self {
        Self { detail: AuditDetail::Audit, ..Self::default() }
    }

    /// Converts an event and returns it with its position. Returns `None` for an event that is not part of the log.
    pub fn read(&mut self, event: &Event) -> Option<(RunPosition, LogEvent)> {
        let (place, mut kind) = self.read_plain(event)?;
        match self.detail {
            AuditDetail::Plain => {}
            AuditDetail::Audit => kind.add_audit(event),
        }
        Some((place, kind))
    }

    fn read_plain(&mut self, event: &Event) -> Option<(RunPosition, LogEvent)> {
        match event {
            Event::Run { place, event } => Some((*place, self.run_event(*place, event)?)),
            Event::ModelFinished { place, attempt, account, .. } => {
                Some((*place, attempted(attempt, account)))
            }
            Event::ToolProgress {
                operation,
                progress: CallProgress::Output(text) | CallProgress::Message(text),
            } => {
                let id = operation.call.0.clone();
                Some((operation.place, LogEvent::ToolProgress { id, text: text.clone() }))
            }
            Event::ToolProgress { operation, progress: CallProgress::Amount(amount) } => {
                let id = operation.call.0.clone();
                Some((operation.place, LogEvent::ToolProgress { id, text: amount.text() }))
            }
            Event::ToolStarted { operation, tool, waited } => {
                let started = LogEvent::ToolStarted {
                    id: operation.call.0.clone(),
                    operation: operation.id.0,
                    tool: tool.name().to_owned(),
                    waited_ms: millis(*waited),
                    source: ToolSource::default(),
                };
                Some((operation.place, started))
            }
            Event::ToolFinished { operation, tool, failure, latency, account, .. } => {
                let finished = finished(&operation.call.0, operation.id, tool, (*failure, *latency), account);
                Some((operation.place, finished))
            }
            Event::ToolProgress { progress: CallProgress::Part { .. }, .. } | Event::ModelStarted { .. } => {
                None
            }
        }
    }

    fn run_event(&mut self, place: RunPosition, event: &RunEvent) -> Option<LogEvent> {
        Some(match event {
            RunEvent::Began(RunStart { path, model, tools, .. }) => {
                LogEvent::RunStarted { agents: path.clone(), model: model.clone(), tools: tools.clone() }
            }
            RunEvent::Asked => LogEvent::TurnStarted,
            RunEvent::Model(ModelEvent::Noted(note)) if note.is_alarm() => {
                LogEvent::Note { kind: "alarm".into(), text: note.to_string(), status: None, reply: None }
            }
            RunEvent::Model(event) => return self.replies.entry(place.session).or_default().read(event),
            RunEvent::Called(call) => LogEvent::ToolCall {
                id: call.id.0.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.as_text().to_owned(),
            },
            RunEvent::Answered(CallAnswer { call, name, failure, text, latency }) => LogEvent::ToolResult {
                id: call.0.clone(),
                tool: name.clone(),
                is_error: failure.is_some(),
                error_kind: failure.map(|kind| kind.name().to_owned()),
                text: text.clone(),
                latency_ms: millis(*latency),
            },
            RunEvent::Noted(note) => noted(note),
            RunEvent::Finished { finish, .. } => {
                self.replies.remove(&place.session);
                run_finished(finish)
            }
        })
    }
}

fn attempted(attempt: &ModelAttempt, account: &ModelAccount) -> LogEvent {
    LogEvent::ModelFinished {
        model: format!("{}/{}", attempt.provider, attempt.model),
        attempt: attempt.number,
        error_kind: account.failure.map(|kind: ModelErrorKind| kind.name().to_owned()),
        latency_ms: millis(account.latency),
        usage: account.usage.map(LogUsage::from),
        cost_nano_usd: account.cost.map(|cost| cost.nano_usd),
        audit: None,
    }
}

fn finished(
    id: &str,
    operation: OperationId,
    tool: &ToolReference,
    (failure, latency): (Option<ToolErrorKind>, Duration),
    account: &CallAccount,
) -> LogEvent {
    LogEvent::ToolFinished {
        id: id.to_owned(),
        operation: operation.0,
        tool: tool.name().to_owned(),
        error_kind: failure.map(|kind| kind.name().to_owned()),
        latency_ms: millis(latency),
        executed: account.executed,
        cached: account.cached,
        bytes_in: account.bytes_in as u64,
        bytes_out: account.bytes_out as u64,
        audit: None,
        content: None,
    }
}

fn noted(note: &RunNote) -> LogEvent {
    if let RunNote::Compacted(compaction) = note {
        return compacted(compaction);
    }
    let status = match note {
        RunNote::Status(status) => Some(serde_json::json!({
            "status": status.state.name(), "done": status.done, "pending": status.pending, "now": status.now,
            "ready_for_final_report": status.ready_for_final_report,
            "need_to_run_more_tools": status.need_to_run_more_tools,
        })),
        RunNote::Refused { .. }
        | RunNote::AskedAgain { .. }
        | RunNote::Circling { .. }
        | RunNote::FinalTurn(_)
        | RunNote::Compacted(_)
        | RunNote::CompactionFault { .. }
        | RunNote::ToolsFound(_)
        | RunNote::ToolsAppended(_) => None,
    };
    let reply = match note {
        RunNote::AskedAgain { text, .. } => Some(text.name().to_owned()),
        RunNote::Status(_)
        | RunNote::Refused { .. }
        | RunNote::Circling { .. }
        | RunNote::FinalTurn(_)
        | RunNote::Compacted(_)
        | RunNote::CompactionFault { .. }
        | RunNote::ToolsFound(_)
        | RunNote::ToolsAppended(_) => None,
    };
    LogEvent::Note { kind: note.name().to_owned(), text: note_text(note), status, reply }
}

fn compacted(compaction: &Compaction) -> LogEvent {
    let Compaction { before_tokens, after_tokens, scope, items, summary } = *compaction;
    LogEvent::ContextCompacted {
        before_tokens,
        after_tokens,
        scope: scope.name().to_owned(),
        items,
        summary: summary.map(|author| author.name().to_owned()),
    }
}

fn run_finished(finish: &RunFinish) -> LogEvent {
    LogEvent::RunFinished {
        finish: finish.reason.name().to_owned(),
        answer: finish.answer.as_ref().map(RunAnswer::text),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
