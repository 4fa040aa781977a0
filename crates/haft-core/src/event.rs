//! The one stream of what happens. Terminal, logs, accounting and servers are folds over it.

use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::model_provider::{Attempt, ModelAccount};
use crate::provider::Principal;
use crate::result::ToolErrorKind;
use crate::tool::CallId;

/// Something that happened to a call or to a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The call reached its provider.
    ToolStarted {
        id: CallId,
        tool: String,
    },
    ToolProgress {
        id: CallId,
        progress: Progress,
    },
    /// The call ended; also sent for calls that never started. `failure` is `None` for success.
    ToolFinished {
        id: CallId,
        tool: String,
        failure: Option<ToolErrorKind>,
        latency: Duration,
        account: Account,
    },
    /// A request went out to a model.
    ModelStarted {
        id: Arc<str>,
        attempt: Attempt,
    },
    /// One attempt at a model is over; each that started sends exactly one.
    ModelFinished {
        id: Arc<str>,
        attempt: Attempt,
        principal: Principal,
        account: ModelAccount,
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
        }
    }
}

/// What is accounted of a call: sizes and digests, never what was said.
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
}

/// How a running call is getting on.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A piece of the output, as soon as it is there.
    Output(String),
    /// A sentence for a person.
    Message(String),
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
