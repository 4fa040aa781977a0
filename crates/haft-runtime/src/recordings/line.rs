//! The lines of a run in a recording. They change only together with the version of recordings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haft_core::conversation::ToolReply;
use haft_core::digest::Digest;
use haft_core::event::{Account, Event, Progress, ToolSeen};
use haft_core::output::ToolOutput;
use haft_core::place::{Operation, Place, SessionId};
use haft_core::provider::Principal;
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::snapshot::{RunSnapshot, StoredInput};
use haft_core::stored::{StoredError, StoredReply, StoredTool, find};
use haft_core::tool::{CallId, ToolCall};
use haft_models::cassette::{StoredAccount, StoredAttempt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where and by which words the run was begun; the first line of its own.
pub(super) const KIND_TYPED: &str = "typed";
/// How a run began.
pub(super) const KIND_RUN: &str = "run";
/// The tools that a model is shown from the next step on.
pub(super) const KIND_TOOLS: &str = "tools";
/// What clock and meters read when a run was asked for its next step.
pub(super) const KIND_STEP: &str = "step";
/// Something a call did, in the order in which it was seen.
pub(super) const KIND_TOOL: &str = "tool";
/// A model was asked on behalf of a call, by somebody who is no run of ours.
pub(super) const KIND_ASIDE: &str = "aside";
/// What a call gave.
pub(super) const KIND_RESULT: &str = "result";
/// A run was ended from outside.
pub(super) const KIND_ABORT: &str = "abort";
/// In which order all this was seen.
pub(super) const KIND_ORDER: &str = "order";
/// How long it all took, and who ended it; the last line.
pub(super) const KIND_END: &str = "end";

/// How much of the id of a call is worth repeating.
const CALL_CHARS_MAX: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Beginning {
    pub session: String,
    /// Counted on from those of the session before it.
    pub turn: u32,
    /// The call that it works for; nothing for whoever was asked first, and whoever goes on after that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_for: Option<Which>,
    /// As `provider/model`.
    pub model: String,
    /// The agent that was asked.
    pub path: Vec<String>,
    pub request: String,
    /// The names of the tools that the model is shown.
    pub tools: Vec<String>,
    /// How long a model may take for one reply.
    pub reply_timeout_ms: u64,
    pub run: RunSnapshot,
}

/// For whoever wants the same tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Typed {
    pub(super) order: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stepped {
    pub(super) session: String,
    pub(super) told: StoredInput,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Offered {
    pub(super) session: String,
    pub(super) tools: Vec<StoredTool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) took_us: u64,
    /// With which code the program left, where somebody outside ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stopped_by: Option<u8>,
}

/// A call, wherever it was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Which {
    session: String,
    turn: u32,
    call: String,
}

impl Which {
    /// The ids of calls are shortened, as they are for those who watch.
    pub fn of(place: Place, call: &CallId) -> Self {
        let call = call.0.chars().take(CALL_CHARS_MAX).collect();
        Self { session: place.session.to_string(), turn: place.turn, call }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    pub(super) fn call(&self) -> CallId {
        CallId(self.call.clone())
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call `{}` of turn {}", self.call, self.turn)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Happened {
    #[serde(flatten)]
    pub(super) which: Which,
    pub(super) what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Started {
        tool: String,
        waited_us: u64,
    },
    Output(String),
    Message(String),
    Part {
        fraction: f64,
        message: Option<String>,
    },
    Finished {
        tool: String,
        failure: Option<String>,
        latency_us: u64,
        cached: bool,
        bytes_in: usize,
        bytes_out: usize,
    },
}

/// An attempt at a model on behalf of a call: it begins, or it ends and is accounted for. What is said stays with who asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Aside {
    #[serde(flatten)]
    pub(super) which: Which,
    /// The session in which it is asked.
    below: String,
    attempt: StoredAttempt,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<StoredAccount>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Given {
    #[serde(flatten)]
    pub(super) which: Which,
    tool: String,
    arguments: String,
    failure: Option<String>,
    reply: StoredReply,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<Value>,
    latency_us: u64,
    executed: bool,
}

impl What {
    /// Nothing for what is told of anything but a call.
    pub(super) fn of(event: &Event) -> Option<Self> {
        match event {
            Event::ToolStarted { tool, waited, .. } => {
                Some(Self::Started { tool: tool.name().into(), waited_us: micros(*waited) })
            }
            Event::ToolProgress { progress, .. } => Some(match progress {
                Progress::Output(text) => Self::Output(text.clone()),
                Progress::Message(text) => Self::Message(text.clone()),
                Progress::Part { fraction, message } => {
                    Self::Part { fraction: *fraction, message: message.clone() }
                }
            }),
            Event::ToolFinished { tool, failure, latency, account, .. } => Some(Self::Finished {
                tool: tool.name().into(),
                failure: failure.map(|kind| kind.name().into()),
                latency_us: micros(*latency),
                cached: account.cached,
                bytes_in: account.bytes_in,
                bytes_out: account.bytes_out,
            }),
            Event::ModelStarted { .. } | Event::ModelFinished { .. } | Event::Run { .. } => None,
        }
    }

    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Finished { .. })
    }

    /// The event that it was.
    pub(super) fn event(&self, operation: &Arc<Operation>) -> Event {
        let operation = Arc::clone(operation);
        let progress = |progress| Event::ToolProgress { operation: Arc::clone(&operation), progress };
        match self {
            Self::Started { tool, waited_us } => {
                let (tool, waited) = (ToolSeen::Written(tool.clone()), Duration::from_micros(*waited_us));
                Event::ToolStarted { operation, tool, waited }
            }
            Self::Output(text) => progress(Progress::Output(text.clone())),
            Self::Message(text) => progress(Progress::Message(text.clone())),
            Self::Part { fraction, message } => {
                progress(Progress::Part { fraction: *fraction, message: message.clone() })
            }
            Self::Finished { tool, failure, latency_us, cached, bytes_in, bytes_out } => {
                Event::ToolFinished {
                    operation,
                    tool: ToolSeen::Written(tool.clone()),
                    failure: failure.as_deref().map(|name| kind(name).unwrap_or(ToolErrorKind::Failed)),
                    latency: Duration::from_micros(*latency_us),
                    account: Account {
                        principal: Principal::local(),
                        executed: true,
                        cached: *cached,
                        bytes_in: *bytes_in,
                        bytes_out: *bytes_out,
                        arguments: Digest::of_text(""),
                        verdict: None,
                    },
                    said: None,
                }
            }
        }
    }
}

impl Aside {
    /// Nothing for what is told of anything but an attempt.
    pub(super) fn of(which: Which, event: &Event) -> Option<Self> {
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

    /// The event that it was.
    pub(super) fn into_event(self, operation: &Operation) -> Result<Event, StoredError> {
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

impl Given {
    pub(super) fn of(place: Place, result: &ToolResult) -> Self {
        let call = &result.call;
        let reply = match &result.outcome {
            Ok(output) => {
                let (id, name, content) = (call.id.clone(), call.name.clone(), output.content.clone());
                ToolReply { call: id, name, content, is_error: false }
            }
            Err(error) => ToolReply::error(call, error.message.clone()),
        };
        Self {
            which: Which::of(place, &call.id),
            tool: call.name.clone(),
            arguments: call.arguments.as_text().to_owned(),
            failure: result.error_kind().map(|kind| kind.name().into()),
            reply: StoredReply::of(&reply),
            structured: result.outcome.as_ref().ok().and_then(|output| output.structured.clone()),
            latency_us: micros(result.receipt.latency),
            executed: result.receipt.executed,
        }
    }

    /// Whether it is what this call gave; else how the two differ.
    pub(super) fn fits(&self, call: &ToolCall) -> Result<(), String> {
        if self.tool != call.name {
            return Err(format!(
                "the recording has a call of `{}` here, the run makes one of `{}`",
                self.tool, call.name
            ));
        }
        if self.arguments != call.arguments.as_text() {
            let (was, is) = (&self.arguments, call.arguments.as_text());
            return Err(format!("the recording has the arguments {was}, the run has {is}"));
        }
        Ok(())
    }

    pub(super) fn into_result(self, call: ToolCall) -> Result<ToolResult, StoredError> {
        let reply = self.reply.into_reply()?;
        let outcome = match &self.failure {
            None => Ok(ToolOutput { content: reply.content, structured: self.structured }),
            Some(name) => {
                let text: Vec<String> =
                    reply.content.iter().map(haft_core::output::Content::as_text).collect();
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

fn kind(name: &str) -> Result<ToolErrorKind, StoredError> {
    find("tool error", &ToolErrorKind::ALL, ToolErrorKind::name, name)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
