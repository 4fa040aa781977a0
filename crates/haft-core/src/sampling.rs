//! Sampling: model requests that an MCP server sends through haft.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::conversation::Conversation;
use crate::event::EventSink;
use crate::model_reply::StopReason;
use crate::position::{OperationId, RunPosition};
use crate::provider::CallContext;
use crate::run::context::RunContext;
use crate::run::scope::RunScope;
use crate::tool::CallId;

/// Sends model requests on behalf of a server.
pub trait Sampler: Send + Sync {
    /// Sends the request to the model and returns its reply. The server gets the error text. Dropping the future
    /// cancels the request.
    fn sample<'a>(
        &'a self,
        wanted: SamplingRequest,
        caller: &'a OriginatingCall,
    ) -> BoxFuture<'a, Result<SamplingReply, String>>;
}

/// One sampling request of an MCP server, within the operator's limits.
#[derive(Debug)]
pub struct SamplingRequest {
    /// The name of the requesting MCP server.
    pub server: String,
    /// The model, as `provider/model`; `None` if the sampler chooses.
    pub model: Option<String>,
    /// The instructions before the first message; empty for none.
    pub system: String,
    /// The messages that the server sent.
    pub conversation: Conversation,
    /// The maximum number of tokens in the reply, already limited by the configuration.
    pub output_tokens_max: u32,
    /// The temperature; `None` for the provider's default.
    pub temperature: Option<f64>,
    /// Texts that end the reply; empty for none.
    pub stop: Vec<String>,
}

/// The model's reply to a sampling request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingReply {
    /// The model that answered, in the form that the server gets.
    pub model: String,
    /// The text of the reply.
    pub text: String,
    /// The reason why the model stopped.
    pub stop: StopReason,
}

/// The call on whose behalf a server sends a request. The run of this call pays for the request, and its principal
/// answers.
#[derive(Clone)]
pub struct OriginatingCall {
    /// The context of the run that makes the call.
    pub run: Arc<RunContext>,
    /// The id of the call.
    pub call: CallId,
    /// The operation of the call, which is the parent of the request in events.
    pub operation: OperationId,
    /// The session and turn of the call.
    pub place: RunPosition,
    /// The budget and deadline of the run; `None` for a call outside a run.
    pub scope: Option<Arc<RunScope>>,
    /// Receives the events of work that is done for the call, and adds up its cost.
    pub events: Arc<dyn EventSink>,
}

impl OriginatingCall {
    /// Returns the call that the provider is executing.
    pub fn of(cx: &CallContext) -> Self {
        let operation = cx.operation();
        Self {
            run: Arc::clone(&cx.run),
            operation: operation.id,
            place: operation.place,
            call: operation.call.clone(),
            scope: cx.scope.clone(),
            events: Arc::clone(cx.events()),
        }
    }
}

impl fmt::Debug for OriginatingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginatingCall").field("operation", &self.operation).finish_non_exhaustive()
    }
}
