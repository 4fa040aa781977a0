//! The seam between whoever asks and whatever answers as a model.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;

use crate::event::{Event, EventSink};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_event::ModelEvent;
use crate::model_reply::Usage;
use crate::model_request::ModelRequest;
use crate::place::Place;
use crate::price::Cost;
use crate::provider::Principal;

/// A reply while it arrives. It ends after [`ModelEvent::Finished`] or after an error, whichever comes first.
pub type ReplyStream<'a> = BoxStream<'a, Result<ModelEvent, ModelError>>;

/// Asks models. Nothing happens before the stream is polled; dropping it ends the request at once: the connection is
/// closed and no process outlives it.
pub trait ModelProvider: Send + Sync {
    /// Who it is, in configuration, messages and accounts.
    fn name(&self) -> &str;

    /// Events that were given are never taken back: after the first, nothing is tried again. The context is cheap to
    /// clone; the reply does not borrow it, so that a provider around another one may give it a context of its own.
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

/// What a provider is told about a request beside what is asked, and how it says what it does.
#[derive(Clone)]
pub struct ModelContext {
    /// Names the request in events and accounts; all its attempts share it.
    pub id: Arc<str>,
    pub principal: Principal,
    /// Whose turn it is.
    pub place: Place,
    events: Arc<dyn EventSink>,
}

impl ModelContext {
    pub fn new(id: impl Into<Arc<str>>, principal: Principal, events: Arc<dyn EventSink>) -> Self {
        Self { id: id.into(), principal, place: Place::default(), events }
    }

    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// The same, with somebody between it and those who watch.
    #[must_use]
    pub fn through(&self, between: impl FnOnce(Arc<dyn EventSink>) -> Arc<dyn EventSink>) -> Self {
        Self { events: between(Arc::clone(&self.events)), ..self.clone() }
    }

    /// The request goes out; every provider says so for every attempt.
    pub fn attempt_started(&self, attempt: &Attempt) {
        self.events.emit(Event::ModelStarted {
            id: self.id.clone(),
            place: self.place,
            attempt: attempt.clone(),
        });
    }

    /// An attempt is over, also one that was given up.
    pub fn attempt_finished(&self, attempt: &Attempt, account: ModelAccount) {
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

/// One try at one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    /// From 1, for this provider and model.
    pub number: u32,
}

/// What is accounted of an attempt: figures, never what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAccount {
    /// `None` for success.
    pub failure: Option<ModelErrorKind>,
    pub latency: Duration,
    /// Until the first event of the reply.
    pub first_event: Option<Duration>,
    pub usage: Option<Usage>,
    /// Unknown without usage or without a price.
    pub cost: Option<Cost>,
    /// What will be done about the failure.
    pub next: Next,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The reply or its error goes to the asker.
    Nothing,
    /// The same model is asked again after this long.
    Retry { after: Duration },
}
