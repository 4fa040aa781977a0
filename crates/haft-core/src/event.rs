//! The events of all calls, model requests and runs, in a single stream. Terminal output, logs, the operation tree,
//! accounting and telemetry are all computed from it.

use std::sync::Arc;
use std::time::Duration;

use crate::approval::ApprovalAnswer;
use crate::digest::Digest;
use crate::model_provider::{ModelAccount, ModelAttempt};
use crate::name::{QueueName, ToolName};
use crate::naming::ToolIdentity;
use crate::position::{CallOperation, RunPosition};
use crate::provider::Principal;
use crate::result::ToolErrorKind;
use crate::rules::PermissionDecision;
use crate::run::event::RunEvent;

/// The maximum length of the message in a progress event, in bytes.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The maximum length of the output in a progress event, in bytes. A longer output is shortened to its end, which is
/// the newest part.
pub const PROGRESS_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// An event of a call, a model request or a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The call reached its provider. `waited` is the time since it was requested.
    ToolStarted {
        /// The call and its position, shared by all events of the call.
        operation: Arc<CallOperation>,
        /// The tool that runs. It is always known at this point.
        tool: ToolReference,
        /// The time that the call spent in queues and waiting for approval, before the provider got it.
        waited: Duration,
    },
    /// A running call reported progress. A provider may send any number of these events.
    ToolProgress {
        /// The call and its position, shared by all events of the call.
        operation: Arc<CallOperation>,
        /// The progress since the last progress event.
        progress: CallProgress,
    },
    /// The call ended. Calls that never started emit this event too.
    ToolFinished {
        /// The call and its position, shared by all events of the call.
        operation: Arc<CallOperation>,
        /// The tool, if the name in the call could be resolved.
        tool: ToolReference,
        /// The kind of error; `None` for success.
        failure: Option<ToolErrorKind>,
        /// The time since the call was requested.
        latency: Duration,
        /// The audit data of the call: sizes, digests and decisions.
        account: CallAccount,
        /// The content of the call, if the operator enabled content capture.
        content: Option<Arc<CapturedContent>>,
    },
    /// An attempt to call a model started.
    ModelStarted {
        /// The id of the request; all its attempts share it.
        id: Arc<str>,
        /// The session and turn of the request.
        place: RunPosition,
        /// The provider, the model and the number of the attempt.
        attempt: ModelAttempt,
    },
    /// An attempt to call a model ended. Each started attempt emits exactly one such event.
    ModelFinished {
        /// The id of the request; all its attempts share it.
        id: Arc<str>,
        /// The session and turn of the request.
        place: RunPosition,
        /// The provider, the model and the number of the attempt.
        attempt: ModelAttempt,
        /// The principal that pays for the attempt.
        principal: Principal,
        /// The tokens, cost and latency of the attempt.
        account: ModelAccount,
    },
    /// An event of a run. It may contain messages and tool output, so audit records leave it out.
    Run {
        /// The session and turn of the run.
        place: RunPosition,
        /// The event, shared by all sinks.
        event: Arc<RunEvent>,
    },
}

impl Event {
    /// Returns the stable name that all wire formats use.
    pub fn name(&self) -> &'static str {
        match self {
            Event::ToolStarted { .. } => "tool_started",
            Event::ToolProgress { .. } => "tool_progress",
            Event::ToolFinished { .. } => "tool_finished",
            Event::ModelStarted { .. } => "model_started",
            Event::ModelFinished { .. } => "model_finished",
            Event::Run { .. } => "run",
        }
    }

    /// Returns the call of the event, or `None` if the event belongs to a model or a run.
    pub fn operation(&self) -> Option<&Arc<CallOperation>> {
        match self {
            Event::ToolStarted { operation, .. }
            | Event::ToolProgress { operation, .. }
            | Event::ToolFinished { operation, .. } => Some(operation),
            Event::ModelStarted { .. } | Event::ModelFinished { .. } | Event::Run { .. } => None,
        }
    }
}

/// The tool of a call, if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolReference {
    /// The name that the model wrote, truncated. No tool has this name, or the name has not been resolved yet.
    Written(String),
    /// The name was resolved to a tool of the catalog.
    Known(Arc<KnownTool>),
}

impl ToolReference {
    /// Returns the exposed name, or the written name if the tool is unknown.
    pub fn name(&self) -> &str {
        match self {
            ToolReference::Written(name) => name,
            ToolReference::Known(tool) => tool.exposed.as_str(),
        }
    }

    /// Returns the tool; `None` if the name was not resolved.
    pub fn known(&self) -> Option<&KnownTool> {
        match self {
            ToolReference::Written(_) => None,
            ToolReference::Known(tool) => Some(tool),
        }
    }
}

/// A tool as events describe it, shared by all its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    /// The name under which the model sees the tool.
    pub exposed: ToolName,
    /// The tool's provider, and its name at this provider.
    pub identity: ToolIdentity,
    /// The description for the model, from the tool's definition.
    pub description: Arc<str>,
}

/// The audit data of a call: sizes, digests and decisions, never content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAccount {
    /// The principal that the call was made for.
    pub principal: Principal,
    /// True if the call reached the provider.
    pub executed: bool,
    /// True if the cache answered the call.
    pub cached: bool,
    /// True if the output may contain text from untrusted sources; see
    /// [`UntrustedReads`](crate::run::untrusted::UntrustedReads).
    pub untrusted: bool,
    /// The length of the arguments as the model wrote them, in bytes.
    pub bytes_in: usize,
    /// The size of the output, or of the error message of a failed call, in bytes.
    pub bytes_out: usize,
    /// The digest of the arguments as the model wrote them.
    pub arguments: Digest,
    /// The permission decision; `None` if the call ended before it.
    pub verdict: Option<PolicyDecision>,
    /// The queue in which the call took a slot.
    pub queue: Option<QueueName>,
    /// The handle under which the output was stored. If there are several, this is the first one.
    pub handle: Option<Arc<str>>,
}

/// The permission decision about a call, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The result of the operator's rules, before any approval.
    pub decision: PermissionDecision,
    /// The text of the deciding rule; `None` if the default applied or if the rules could not decide.
    pub rule: Option<Arc<str>>,
    /// The outcome of the approval request, if the decision was `ask`.
    pub consent: Option<ApprovalOutcome>,
}

/// The outcome of an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalOutcome {
    /// A stored grant, which is an earlier approval, allowed the call.
    Remembered,
    /// An approver was asked and answered.
    Answered {
        /// The name of the approver; see [`Approver::name`](crate::approval::Approver::name).
        approver: &'static str,
        /// The answer of the approver, which may defer the decision.
        answer: ApprovalAnswer,
    },
    /// The run had no approver who may decide about the call.
    NoApprover,
}

/// The content of a call, truncated to the capture limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedContent {
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// The output, or the error message.
    pub result: String,
}

/// The progress of a running call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallProgress {
    /// A new part of the tool's output.
    Output(String),
    /// A message of the tool for the user.
    Message(String),
    /// The completed fraction, from zero to one, with a description of the current work.
    Part {
        /// The completed fraction of the call's work, from zero to one.
        fraction: f64,
        /// The current work, if the tool describes it.
        message: Option<String>,
    },
    /// The completed amount, in the unit of an MCP server.
    Amount(ProgressAmount),
}

/// The completed amount of a call's work, in a unit that its server chose.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressAmount {
    /// The completed amount.
    pub done: f64,
    /// The amount of the whole work, if the server knows it.
    pub total: Option<f64>,
    /// The current work, if the server describes it.
    pub message: Option<String>,
}

impl ProgressAmount {
    /// Returns the amount and the message as text, such as `1/3 reading`.
    pub fn text(&self) -> String {
        let amount = match self.total {
            Some(total) => format!("{}/{total}", self.done),
            None => self.done.to_string(),
        };
        match self.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
            Some(message) => format!("{amount} {message}"),
            None => amount,
        }
    }

    /// Truncates the message. Returns `None` if the amount is not finite and there is no message.
    fn bounded(self) -> Option<CallProgress> {
        let message = self.message.map(sentence);
        if !self.done.is_finite() {
            return message.map(CallProgress::Message);
        }
        let total = self.total.filter(|total| total.is_finite());
        Some(CallProgress::Amount(Self { total, message, ..self }))
    }
}

impl CallProgress {
    /// Truncates the progress to the size limits. Returns `None` if the fraction is not finite and there is no message.
    pub fn bounded(self) -> Option<Self> {
        match self {
            CallProgress::Output(text) => Some(CallProgress::Output(newest(text))),
            CallProgress::Message(text) => Some(CallProgress::Message(sentence(text))),
            CallProgress::Part { fraction, message } => match (fraction.is_finite(), message.map(sentence)) {
                (true, message) => Some(CallProgress::Part { fraction: fraction.clamp(0.0, 1.0), message }),
                (false, Some(message)) => Some(CallProgress::Message(message)),
                (false, None) => None,
            },
            CallProgress::Amount(amount) => amount.bounded(),
        }
    }

    /// Returns the size of the text, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            CallProgress::Output(text) | CallProgress::Message(text) => text.len(),
            CallProgress::Part { message, .. } | CallProgress::Amount(ProgressAmount { message, .. }) => {
                message.as_ref().map_or(0, String::len)
            }
        }
    }
}

fn sentence(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(PROGRESS_MESSAGE_BYTES_MAX));
    text
}

fn newest(mut text: String) -> String {
    let too_much = text.len().saturating_sub(PROGRESS_OUTPUT_BYTES_MAX);
    text.drain(..text.ceil_char_boundary(too_much));
    text
}

/// Receives events. `emit` must not block: a sink with slow work uses its own bounded queue.
pub trait EventSink: Send + Sync {
    /// Receives one event. The call that emitted the event waits until this returns. A sink must not panic.
    fn emit(&self, event: Event);
}

/// A sink that drops every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _: Event) {}
}

/// Several sinks. Each receives every event, in this order.
#[derive(Clone, Default)]
pub struct EventSinks(pub Vec<Arc<dyn EventSink>>);

impl EventSink for EventSinks {
    fn emit(&self, event: Event) {
        if let [others @ .., last] = self.0.as_slice() {
            for sink in others {
                sink.emit(event.clone());
            }
            last.emit(event);
        }
    }
}

impl std::fmt::Debug for EventSinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventSinks({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_fractions_are_clamped_and_non_finite_fractions_are_dropped() {
        let check =
            |progress: CallProgress, expected: Option<CallProgress>| assert_eq!(progress.bounded(), expected);
        let part = |fraction: f64, message: Option<&str>| CallProgress::Part {
            fraction,
            message: message.map(str::to_owned),
        };
        check(CallProgress::Message("half".into()), Some(CallProgress::Message("half".into())));
        check(part(0.5, Some("half")), Some(part(0.5, Some("half"))));
        check(part(7.0, None), Some(part(1.0, None)));
        check(part(-1.0, None), Some(part(0.0, None)));
        check(part(f64::NAN, Some("half")), Some(CallProgress::Message("half".into())));
        check(part(f64::INFINITY, None), None);
        let amount = |done: f64, total: Option<f64>, message: Option<&str>| {
            CallProgress::Amount(ProgressAmount { done, total, message: message.map(str::to_owned) })
        };
        check(amount(7.0, Some(3.0), None), Some(amount(7.0, Some(3.0), None)));
        check(amount(7.0, Some(f64::NAN), None), Some(amount(7.0, None, None)));
        check(amount(f64::NAN, None, Some("half")), Some(CallProgress::Message("half".into())));
        check(amount(f64::INFINITY, None, None), None);
    }

    #[test]
    fn long_messages_keep_their_start_and_long_outputs_their_end() {
        let long = format!("first{}last", "é".repeat(PROGRESS_OUTPUT_BYTES_MAX));
        let Some(CallProgress::Message(message)) = CallProgress::Message(long.clone()).bounded() else {
            panic!()
        };
        assert!(message.starts_with("first") && message.len() <= PROGRESS_MESSAGE_BYTES_MAX);
        let Some(CallProgress::Output(output)) = CallProgress::Output(long).bounded() else { panic!() };
        assert!(output.ends_with("last") && output.len() <= PROGRESS_OUTPUT_BYTES_MAX);
        assert!(output.len() > PROGRESS_OUTPUT_BYTES_MAX - 4);
    }
}
