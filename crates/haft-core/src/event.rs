//! The one stream of what happens. Terminal, logs, op tree, accounting and telemetry are folds over it.

use std::sync::Arc;
use std::time::Duration;

use crate::approval::Answer;
use crate::digest::Digest;
use crate::model_provider::{Attempt, ModelAccount};
use crate::name::ToolName;
use crate::naming::ToolIdentity;
use crate::place::{Operation, Place};
use crate::provider::Principal;
use crate::result::ToolErrorKind;
use crate::rules::Decision;
use crate::run::event::RunEvent;

/// The longest sentence that a progress event carries.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The largest piece of output that a progress event carries; of a larger one the end is kept, which is the newest.
pub const PROGRESS_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Something that happened to a call or to a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The call reached its provider, so long after it was asked.
    ToolStarted {
        operation: Arc<Operation>,
        tool: ToolSeen,
        waited: Duration,
    },
    ToolProgress {
        operation: Arc<Operation>,
        progress: Progress,
    },
    /// The call ended; also sent for calls that never started. `failure` is `None` for success.
    ToolFinished {
        operation: Arc<Operation>,
        tool: ToolSeen,
        failure: Option<ToolErrorKind>,
        /// Since the call was asked.
        latency: Duration,
        account: Account,
        /// What was said, where the operator wants that told; `None` everywhere else.
        said: Option<Arc<Said>>,
    },
    /// A request went out to a model.
    ModelStarted {
        id: Arc<str>,
        place: Place,
        attempt: Attempt,
    },
    /// One attempt at a model is over; each that started sends exactly one.
    ModelFinished {
        id: Arc<str>,
        place: Place,
        attempt: Attempt,
        principal: Principal,
        account: ModelAccount,
    },
    /// Something happened in a run. It holds what is said, so records pass it over.
    Run {
        place: Place,
        event: Arc<RunEvent>,
    },
}

impl Event {
    /// The stable name of the event on every wire.
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

    /// The call it is about; none for what happens to a request to a model.
    pub fn operation(&self) -> Option<&Arc<Operation>> {
        match self {
            Event::ToolStarted { operation, .. }
            | Event::ToolProgress { operation, .. }
            | Event::ToolFinished { operation, .. } => Some(operation),
            Event::ModelStarted { .. } | Event::ModelFinished { .. } | Event::Run { .. } => None,
        }
    }
}

/// The tool of a call, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSeen {
    /// What the asker wrote, shortened: nothing has been found by that name, or nobody has looked yet.
    Written(String),
    Known(Arc<KnownTool>),
}

impl ToolSeen {
    /// The exposed name, else what was written.
    pub fn name(&self) -> &str {
        match self {
            ToolSeen::Written(name) => name,
            ToolSeen::Known(tool) => tool.exposed.as_str(),
        }
    }

    pub fn known(&self) -> Option<&KnownTool> {
        match self {
            ToolSeen::Written(_) => None,
            ToolSeen::Known(tool) => Some(tool),
        }
    }
}

/// A tool as those who watch are told of it. Shared by all its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    pub exposed: ToolName,
    pub identity: ToolIdentity,
    pub description: Arc<str>,
}

/// What is accounted of a call: sizes, digests and who decided, never what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub principal: Principal,
    /// Whether the provider was reached.
    pub executed: bool,
    /// Whether the answer was kept from an equal call.
    pub cached: bool,
    pub bytes_in: usize,
    pub bytes_out: usize,
    /// Of the arguments as they were written.
    pub arguments: Digest,
    /// `None` when the call ended before anybody decided about it.
    pub verdict: Option<Verdict>,
}

/// Who decided whether a call may be made, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    /// The text of the rule that decided; `None` when it was the default, or that nothing could be decided.
    pub rule: Option<Arc<str>>,
    /// What became of an `ask`.
    pub consent: Option<Consent>,
}

/// How a call that must be asked about got its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// It was given for good before.
    Remembered,
    Answered {
        approver: &'static str,
        answer: Answer,
    },
    /// There was nobody to ask.
    Nobody,
}

/// The words of a call, each cut to what the operator lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub arguments: String,
    pub result: String,
}

/// How a running call is getting on.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A piece of the output, as soon as it is there.
    Output(String),
    /// A sentence for a person.
    Message(String),
    /// How much is done, from nought to one, and what is being done.
    Part { fraction: f64, message: Option<String> },
}

impl Progress {
    /// No larger than an event may be. A fraction that is no number says nothing.
    pub fn bounded(self) -> Option<Self> {
        match self {
            Progress::Output(text) => Some(Progress::Output(newest(text))),
            Progress::Message(text) => Some(Progress::Message(sentence(text))),
            Progress::Part { fraction, message } => match (fraction.is_finite(), message.map(sentence)) {
                (true, message) => Some(Progress::Part { fraction: fraction.clamp(0.0, 1.0), message }),
                (false, Some(message)) => Some(Progress::Message(message)),
                (false, None) => None,
            },
        }
    }

    /// The bytes of text that it carries.
    pub fn bytes(&self) -> usize {
        match self {
            Progress::Output(text) | Progress::Message(text) => text.len(),
            Progress::Part { message, .. } => message.as_ref().map_or(0, String::len),
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

/// Takes events. `emit` must return at once: who needs to do slow work keeps a bounded queue of its own.
pub trait EventSink: Send + Sync {
    fn emit(&self, event: Event);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _: Event) {}
}

/// Several who watch the same; each gets every event, in the order they stand here.
#[derive(Clone, Default)]
pub struct Watchers(pub Vec<Arc<dyn EventSink>>);

impl EventSink for Watchers {
    fn emit(&self, event: Event) {
        if let [others @ .., last] = self.0.as_slice() {
            for sink in others {
                sink.emit(event.clone());
            }
            last.emit(event);
        }
    }
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watchers({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_cut_to_what_an_event_carries() {
        let check = |progress: Progress, expected: Option<Progress>| assert_eq!(progress.bounded(), expected);
        let part = |fraction: f64, message: Option<&str>| Progress::Part {
            fraction,
            message: message.map(str::to_owned),
        };
        check(Progress::Message("half".into()), Some(Progress::Message("half".into())));
        check(part(0.5, Some("half")), Some(part(0.5, Some("half"))));
        check(part(7.0, None), Some(part(1.0, None)));
        check(part(-1.0, None), Some(part(0.0, None)));
        check(part(f64::NAN, Some("half")), Some(Progress::Message("half".into())));
        check(part(f64::INFINITY, None), None);
    }

    #[test]
    fn of_a_long_sentence_the_beginning_is_kept_and_of_a_long_output_the_end() {
        let long = format!("first{}last", "é".repeat(PROGRESS_OUTPUT_BYTES_MAX));
        let Some(Progress::Message(message)) = Progress::Message(long.clone()).bounded() else { panic!() };
        assert!(message.starts_with("first") && message.len() <= PROGRESS_MESSAGE_BYTES_MAX);
        let Some(Progress::Output(output)) = Progress::Output(long).bounded() else { panic!() };
        assert!(output.ends_with("last") && output.len() <= PROGRESS_OUTPUT_BYTES_MAX);
        assert!(output.len() > PROGRESS_OUTPUT_BYTES_MAX - 4);
    }
}
