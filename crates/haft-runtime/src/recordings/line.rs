//! The lines of a run in a recording: journal lines, and lines that only a recording has. A change to the latter
//! requires a new version of the recording format.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::conversation::ToolReply;
use haft_core::event::Event;
use haft_core::model_request::ModelTool;
use haft_core::output::ToolOutput;
use haft_core::position::{CallOperation, RunPosition, SessionId};
use haft_core::provider::Principal;
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::snapshot::{RunSnapshot, StoredInput};
use haft_core::stored::{StoredError, StoredReply, StoredTool, find};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::ToolListChange;
use haft_models::cassette::{StoredAccount, StoredAttempt};
use haft_store::sessions::line::SessionJournalLine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The type of the line that starts a run: the first line of its journal.
pub(super) const TYPE_SESSION: &str = "session";
/// The type of an input of a run: a line of its journal.
pub(super) const TYPE_INPUT: &str = "told";
/// The type of the line with the agents and skills that the spec of the root run refers to.
pub(super) const TYPE_SOURCES: &str = "sources";
/// The type of the line with the tools that the model sees starting with the next step.
pub(super) const TYPE_TOOLS: &str = "tools";
/// The type of a call event, in the order in which watchers saw it.
pub(super) const TYPE_EVENT: &str = "event";
/// The type of a model request for a call outside of the recorded runs, such as sampling for an MCP server.
pub(super) const TYPE_ATTEMPT: &str = "attempt";
/// The type of the result of a call.
pub(super) const TYPE_RESULT: &str = "result";
/// The type of the line with the order in which watchers saw the events.
pub(super) const TYPE_ORDER: &str = "order";
/// The type of the last line, with the total duration and, for a stopped program, its exit code.
pub(super) const TYPE_END: &str = "end";

/// The maximum number of characters of a call id that are stored.
const CALL_CHARS_MAX: usize = 64;

/// A journal line, with the session that it belongs to.
#[derive(Debug, Serialize)]
pub(super) struct JournalLine<'a, T> {
    #[serde(flatten)]
    pub(super) line: &'a T,
    pub(super) journal: &'a str,
}

/// The line that starts a run, as the recorder writes it.
#[derive(Debug, Serialize)]
pub(super) struct SessionLine {
    /// The line of the journal.
    #[serde(flatten)]
    pub(super) line: SessionJournalLine,
    #[serde(flatten)]
    pub(super) start: RecordedStart,
}

/// The fields of the start line that only a recording has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedStart {
    /// The number of the first turn. Turn numbers continue from an earlier session.
    pub turn: u32,
    /// The call that started the run; `None` for the root run and for agents that took over its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_for: Option<RecordedCallId>,
    /// The names of the agents from the root run down to this one.
    pub path: Vec<String>,
    /// The request that the agent was given.
    pub request: String,
    /// The names of the tools that the model sees.
    pub tools: Vec<String>,
    /// The timeout of one model reply.
    pub reply_timeout_ms: u64,
}

/// The line that starts a run, as a replay reads it.
#[derive(Debug, Clone, Deserialize)]
pub struct RunStartLine {
    /// The session of the run. The field is called `id` in the file; version 2 called it `session`.
    #[serde(rename = "id", alias = "session")]
    pub session: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// The stored spec of a root run. Version 2 had it in the line with the sources.
    #[serde(default)]
    pub spec: Value,
    /// The state of the run before its first step.
    pub run: RunSnapshot,
    /// The fields that only a recording has.
    #[serde(flatten)]
    pub start: RecordedStart,
}

/// An input of a run, as a replay reads it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RecordedInputLine {
    /// The session of the run. The field is called `journal` in the file; version 2 called it `session`.
    #[serde(rename = "journal", alias = "session")]
    pub(super) session: String,
    pub(super) told: StoredInput,
}

/// The agents and skills that a replay with live tools needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RecordedSourcesLine {
    pub(super) sources: Option<String>,
    /// In version 2 of the format, the spec and the sources together; in recordings of haft 0.1, a command line.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) order: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecordedToolsLine {
    pub(super) session: String,
    /// The change to the tool list. Recordings of older versions lack this field, and each of their lists replaces all
    /// earlier tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<RecordedToolsChange>,
    #[serde(default)]
    pub(super) tools: Vec<StoredTool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) names: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedToolsChange {
    Appended,
    Found,
}

impl RecordedToolsLine {
    pub(super) fn of(session: String, change: &ToolListChange) -> Self {
        let stored = |tools: &[ModelTool]| tools.iter().map(StoredTool::of).collect();
        let (change, tools, names) = match change {
            ToolListChange::Replaced(tools) => (None, stored(tools), Vec::new()),
            ToolListChange::Appended(tools) => {
                (Some(RecordedToolsChange::Appended), stored(tools), Vec::new())
            }
            ToolListChange::Found(names) => (Some(RecordedToolsChange::Found), Vec::new(), names.clone()),
        };
        Self { session, change, tools, names }
    }

    pub(super) fn into_change(self) -> ToolListChange {
        let tools = self.tools.into_iter().map(StoredTool::into_tool).collect();
        match self.change {
            None => ToolListChange::Replaced(tools),
            Some(RecordedToolsChange::Appended) => ToolListChange::Appended(tools),
            Some(RecordedToolsChange::Found) => ToolListChange::Found(self.names),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RecordedEndLine {
    pub(super) took_us: u64,
    /// The exit code of the program, if a signal or a closed pipe ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped_by: Option<u8>,
}

/// The identity of a call: session, turn and call id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordedCallId {
    session: String,
    turn: u32,
    call: String,
}

impl RecordedCallId {
    /// Builds the identity of a call. The call id is truncated, as it is for event watchers.
    pub fn of(place: RunPosition, call: &CallId) -> Self {
        Self::new(place.session.to_string(), place.turn, &call.0)
    }

    pub(super) fn new(session: String, turn: u32, call: &str) -> Self {
        Self { session, turn, call: call.chars().take(CALL_CHARS_MAX).collect() }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    pub(super) fn call(&self) -> CallId {
        CallId(self.call.clone())
    }
}

impl fmt::Display for RecordedCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call `{}` of turn {}", self.call, self.turn)
    }
}

/// A model request for a call: its start, or its end with the account. The recording omits the messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CallAttemptLine {
    #[serde(flatten)]
    pub(super) which: RecordedCallId,
    /// The session of the model request.
    below: String,
    attempt: StoredAttempt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<StoredAccount>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CallResultLine {
    #[serde(flatten)]
    pub(super) which: RecordedCallId,
    tool: String,
    arguments: String,
    failure: Option<String>,
    reply: StoredReply,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<Value>,
    latency_us: u64,
    executed: bool,
}

impl CallAttemptLine {
    /// Converts the start or end of a model request; returns `None` for any other event.
    pub(super) fn of(which: RecordedCallId, event: &Event) -> Option<Self> {
        let (place, attempt, account) = match event {
            Event::ModelStarted { place, attempt, .. } => (place, attempt, None),
            Event::ModelFinished { place, attempt, account, .. } => (place, attempt, Some(account)),
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::Run { .. } => return None,
        };
        Some(Self {
            which,
            below: place.session.to_string(),
            attempt: StoredAttempt::of(attempt),
            account: account.map(StoredAccount::of),
        })
    }

    /// Returns the event that this line was recorded from.
    pub(super) fn into_event(self, operation: &CallOperation) -> Result<Event, StoredError> {
        let id: Arc<str> = format!("{}/1", self.below).into();
        let session = uuid::Uuid::parse_str(&self.below).unwrap_or_default();
        let place = operation.place.below(SessionId(session.as_u128()), operation.id);
        let attempt = self.attempt.into_attempt();
        Ok(match self.account {
            None => Event::ModelStarted { id, place, attempt },
            Some(account) => {
                let (principal, account) = (Principal::local(), account.into_account()?);
                Event::ModelFinished { id, place, attempt, principal, account }
            }
        })
    }
}

impl CallResultLine {
    pub(super) fn of(place: RunPosition, result: &ToolResult) -> Self {
        let call = &result.call;
        let reply = match &result.outcome {
            Ok(output) => {
                let (id, name, content) = (call.id.clone(), call.name.clone(), output.content.clone());
                ToolReply { call: id, name, content, is_error: false }
            }
            Err(error) => ToolReply::error(call, error.message.clone()),
        };
        Self {
            which: RecordedCallId::of(place, &call.id),
            tool: call.name.clone(),
            arguments: call.arguments.as_text().to_owned(),
            failure: result.error_kind().map(|kind| kind.name().into()),
            reply: StoredReply::of(&reply),
            structured: result.outcome.as_ref().ok().and_then(|output| output.structured.clone()),
            latency_us: micros(result.receipt.latency),
            executed: result.receipt.executed,
        }
    }

    /// Checks that the recorded result belongs to a call with the same tool and arguments. The error describes the
    /// difference.
    pub(super) fn fits(&self, call: &ToolCall) -> Result<(), String> {
        if self.tool != call.name {
            return Err(format!(
                "the recording calls `{}` at this point, but the run calls `{}`",
                self.tool, call.name
            ));
        }
        if self.arguments != call.arguments.as_text() {
            let (was, is) = (&self.arguments, call.arguments.as_text());
            return Err(format!("the call has the arguments {was} in the recording, but {is} in the run"));
        }
        Ok(())
    }

    pub(super) fn into_result(self, call: ToolCall) -> Result<ToolResult, StoredError> {
        let reply = self.reply.into_reply()?;
        let outcome = match &self.failure {
            None => Ok(ToolOutput { content: reply.content, structured: self.structured, raw: None }),
            Some(name) => {
                let text: Vec<String> =
                    reply.content.iter().map(haft_core::output::OutputContent::as_text).collect();
                Err(ToolError::new(kind(name)?, text.join("\n")))
            }
        };
        let receipt = Receipt {
            executed: self.executed,
            latency: Duration::from_micros(self.latency_us),
            ..Receipt::default()
        };
        Ok(ToolResult { call, outcome, receipt })
    }
}

pub(super) fn kind(name: &str) -> Result<ToolErrorKind, StoredError> {
    find("tool error", &ToolErrorKind::ALL, ToolErrorKind::name, name)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
