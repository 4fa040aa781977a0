//! The lines of a run in a recording. They change only together with the version of recordings.

use std::sync::Arc;
use std::time::Duration;

use haft_core::conversation::ToolReply;
use haft_core::digest::Digest;
use haft_core::event::{Account, Event, Progress, ToolSeen};
use haft_core::output::ToolOutput;
use haft_core::place::Operation;
use haft_core::provider::Principal;
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::snapshot::{RunSnapshot, StoredTold};
use haft_core::stored::{StoredError, StoredReply, find};
use haft_core::tool::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How the run began; the first line of its own.
pub const KIND_RUN: &str = "run";
/// What clock and meters read when the run was asked for its next step.
pub const KIND_STEP: &str = "step";
/// Something a call did, in the order in which it was seen.
pub const KIND_TOOL: &str = "tool";
/// What a call gave.
pub const KIND_RESULT: &str = "result";
/// How long the run took; the last line.
pub const KIND_END: &str = "end";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Beginning {
    pub session: String,
    /// As `provider/model`.
    pub model: String,
    /// The agent that was asked.
    pub path: Vec<String>,
    pub request: String,
    /// Where and by which words it was begun, for whoever wants the same tools.
    pub order: Value,
    pub run: RunSnapshot,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Stepped {
    pub(super) told: StoredTold,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) took_us: u64,
}

/// A call, wherever it was made in the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Which {
    pub(super) turn: u32,
    pub(super) call: String,
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
    /// The run was told.
    Answered,
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

    /// The event that it was; nothing when the driver tells it itself.
    pub(super) fn event(&self, operation: &Arc<Operation>) -> Option<Event> {
        let operation = Arc::clone(operation);
        let progress = |progress| Event::ToolProgress { operation: Arc::clone(&operation), progress };
        Some(match self {
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
            Self::Answered => return None,
        })
    }
}

impl Given {
    pub(super) fn of(turn: u32, result: &ToolResult) -> Self {
        let call = &result.call;
        let reply = match &result.outcome {
            Ok(output) => {
                let (id, name, content) = (call.id.clone(), call.name.clone(), output.content.clone());
                ToolReply { call: id, name, content, is_error: false }
            }
            Err(error) => ToolReply::error(call, error.message.clone()),
        };
        Self {
            which: Which { turn, call: call.id.0.clone() },
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
