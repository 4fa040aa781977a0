//! Model requests that an MCP server makes through us.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::conversation::Conversation;
use crate::event::EventSink;
use crate::model_reply::StopReason;
use crate::place::{OperationId, Place};
use crate::provider::CallContext;
use crate::run::context::RunContext;
use crate::run::scope::RunScope;

/// Asks a model on behalf of a server.
pub trait Sampler: Send + Sync {
    /// The server gets the error text. Dropping the future ends the request to the model.
    fn sample<'a>(&'a self, wanted: Sample, caller: &'a Caller) -> BoxFuture<'a, Result<Sampled, String>>;
}

/// One request, within the operator's limits.
#[derive(Debug)]
pub struct Sample {
    pub server: String,
    /// As `provider/model`; without it the sampler chooses.
    pub model: Option<String>,
    pub system: String,
    pub conversation: Conversation,
    pub output_tokens_max: u32,
    pub temperature: Option<f64>,
    pub stop: Vec<String>,
}

/// The model's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    pub model: String,
    pub text: String,
    pub stop: StopReason,
}

/// The call that a server works for when it asks for something. Its run pays, and its principal answers.
#[derive(Clone)]
pub struct Caller {
    pub run: Arc<RunContext>,
    pub operation: OperationId,
    pub place: Place,
    /// Budget and deadline of the run; none for a call that stands alone.
    pub scope: Option<Arc<RunScope>>,
    /// Receives the events of work that is done for the call, and adds up its cost.
    pub events: Arc<dyn EventSink>,
}

impl Caller {
    pub fn of(cx: &CallContext) -> Self {
        let operation = cx.operation();
        Self {
            run: Arc::clone(&cx.run),
            operation: operation.id,
            place: operation.place,
            scope: cx.scope.clone(),
            events: Arc::clone(cx.events()),
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("operation", &self.operation).finish_non_exhaustive()
    }
}
