//! The interface between the code that sends a model request and the provider that answers it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;

use crate::event::{Event, EventSink};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_event::ModelEvent;
use crate::model_reply::TokenUsage;
use crate::model_request::ModelRequest;
use crate::position::RunPosition;
use crate::price::Cost;
use crate::provider::Principal;

/// A reply while it streams. The stream ends after [`ModelEvent::Finished`] or after an error, whichever comes first.
pub type ReplyStream<'a> = BoxStream<'a, Result<ModelEvent, ModelError>>;

/// Sends requests to models. A request does not start before the caller polls the stream. Dropping the stream cancels
/// the request at once: it closes the connection and kills any child process.
pub trait ModelProvider: Send + Sync {
    /// Returns the provider name that configuration, messages and usage records use.
    fn name(&self) -> &str;

    /// Sends a request. Once the stream has yielded an event, the provider must not retry, because it cannot take an
    /// event back. The context is cheap to clone. The stream does not borrow the context, so a provider that wraps
    /// another one may pass its own context.
    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_>;
}

impl<P: ModelProvider + ?Sized> ModelProvider for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        (**self).ask(request, cx)
    }
}

impl<P: ModelProvider + ?Sized> ModelProvider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        (**self).ask(request, cx)
    }
}

/// The metadata of a request, and the sink for the events of its attempts.
#[derive(Clone)]
pub struct ModelContext {
    /// The id of the request in events and usage records. All attempts of the request share it.
    pub id: Arc<str>,
    /// The principal that pays for the request.
    pub principal: Principal,
    /// The session and turn that the request belongs to.
    pub place: RunPosition,
    events: Arc<dyn EventSink>,
}

impl ModelContext {
    /// Creates a context with the default session and turn. Use [`at`](Self::at) to set others.
    pub fn new(id: impl Into<Arc<str>>, principal: Principal, events: Arc<dyn EventSink>) -> Self {
        Self { id: id.into(), principal, place: RunPosition::default(), events }
    }

    /// Sets the session and turn of the request.
    #[must_use]
    pub fn at(self, place: RunPosition) -> Self {
        Self { place, ..self }
    }

    /// Returns a copy of the context whose events pass through another sink first.
    #[must_use]
    pub fn through(&self, between: impl FnOnce(Arc<dyn EventSink>) -> Arc<dyn EventSink>) -> Self {
        Self { events: between(Arc::clone(&self.events)), ..self.clone() }
    }

    /// Emits the start of an attempt. Every provider calls this for every attempt.
    pub fn attempt_started(&self, attempt: &ModelAttempt) {
        self.events.emit(Event::ModelStarted {
            id: self.id.clone(),
            place: self.place,
            attempt: attempt.clone(),
        });
    }

    /// Emits the end of an attempt, including one that was cancelled.
    pub fn attempt_finished(&self, attempt: &ModelAttempt, account: ModelAccount) {
        self.events.emit(Event::ModelFinished {
            id: self.id.clone(),
            place: self.place,
            attempt: attempt.clone(),
            principal: self.principal.clone(),
            account,
        });
    }
}

impl fmt::Debug for ModelContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelContext").field("id", &self.id).finish_non_exhaustive()
    }
}

/// One attempt to call one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAttempt {
    /// The configured name of the provider.
    pub provider: Arc<str>,
    /// The provider's own name for the model.
    pub model: Arc<str>,
    /// The number of the attempt, counted from 1 for each provider and model.
    pub number: u32,
}

/// The figures of an attempt. They never include the content of the request or reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAccount {
    /// The kind of error; `None` for success.
    pub failure: Option<ModelErrorKind>,
    /// The time from the start of the attempt to its end.
    pub latency: Duration,
    /// The time until the first event of the reply.
    pub first_event: Option<Duration>,
    /// The token usage; `None` if it is unknown. If a provider over HTTP does not report the usage, haft estimates it
    /// by length, so that budgets are still enforced.
    pub usage: Option<TokenUsage>,
    /// The cost; `None` if the usage or the price is unknown.
    pub cost: Option<Cost>,
    /// The step that follows the attempt: the end of the request, or a retry.
    pub next: AttemptFollowUp,
}

/// The step after an attempt to call a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFollowUp {
    /// The caller receives the reply or its error.
    Nothing,
    /// The same model receives the request again after this delay.
    Retry {
        /// The time until the next attempt.
        after: Duration,
    },
}
