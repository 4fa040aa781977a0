//! Fallback models, which are used when the first model fails.

use std::fmt::{self, Write as _};

use futures_util::{StreamExt, stream};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_reply::ReplyNote;
use haft_core::model_request::ModelRequest;

/// A provider with fallbacks, each with its own model. haft tries the models in order until one of them starts a reply.
pub struct FallbackProvider {
    first: Box<dyn ModelProvider>,
    then: Vec<(Box<dyn ModelProvider>, String)>,
}

impl FallbackProvider {
    pub fn new(first: Box<dyn ModelProvider>, then: Vec<(Box<dyn ModelProvider>, String)>) -> Self {
        Self { first, then }
    }

    /// Returns the first reply that starts, or the last error. Both report the models that failed before.
    async fn begin(&self, request: ModelRequest, cx: ModelContext) -> StartedReply<'_> {
        let mut asked = format!("{}/{}", self.first.name(), request.model);
        let mut begun = StartedReply::of(self.first.ask(request.clone(), &cx)).await;
        let mut failures = Vec::new();
        for (provider, model) in &self.then {
            match &begun.first {
                Err(error) if helps(error.kind) => failures.push((asked, error.message.clone())),
                Ok(_) | Err(_) => break,
            }
            let request = ModelRequest { model: model.clone(), ..request.clone() };
            asked = format!("{}/{model}", provider.name());
            begun = StartedReply::of(provider.ask(request, &cx)).await;
        }
        begun.after(failures)
    }
}

impl ModelProvider for FallbackProvider {
    fn name(&self) -> &str {
        self.first.name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        stream::once(self.begin(request, cx.clone())).flat_map(StartedReply::into_stream).boxed()
    }
}

/// A reply stream whose first item has been read.
pub(crate) struct StartedReply<'a> {
    pub(crate) first: Result<ModelEvent, ModelError>,
    notes: Vec<ModelEvent>,
    rest: ReplyStream<'a>,
}

impl<'a> StartedReply<'a> {
    pub(crate) async fn of(mut replies: ReplyStream<'a>) -> Self {
        let nothing = || Err(ModelError::new(ModelErrorKind::Malformed, "the model provider sent no reply"));
        let first = replies.next().await.unwrap_or_else(nothing);
        Self { first, notes: Vec::new(), rest: replies }
    }

    /// Adds the models that failed before this one, with their errors.
    fn after(mut self, failures: Vec<(String, String)>) -> Self {
        if let Err(error) = &mut self.first {
            for (failed, problem) in &failures {
                let _ = write!(error.message, "; before that, {failed} failed: {problem}");
            }
        }
        let note = |(failed, problem)| ModelEvent::Noted(ReplyNote::FallbackUsed { failed, problem });
        self.notes.extend(failures.into_iter().map(note));
        self
    }

    pub(crate) fn into_stream(self) -> ReplyStream<'a> {
        let Self { first, notes, rest } = self;
        let notes = if first.is_ok() { notes } else { Vec::new() };
        // Put the notes after the first event, so that the reply still starts with `Started`.
        stream::iter([first]).chain(stream::iter(notes.into_iter().map(Ok))).chain(rest).boxed()
    }
}

/// Returns true if another model may succeed after this error. An invalid request fails everywhere, and after a
/// cancellation the caller no longer waits.
fn helps(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Unauthorized
        | ModelErrorKind::Forbidden
        | ModelErrorKind::UnknownModel
        | ModelErrorKind::ContextTooLong
        | ModelErrorKind::ToolsUnsupported
        | ModelErrorKind::RequestTooLarge
        | ModelErrorKind::RateLimited
        | ModelErrorKind::QuotaExhausted
        | ModelErrorKind::Overloaded
        | ModelErrorKind::ServerFailed
        | ModelErrorKind::Unreachable
        | ModelErrorKind::Timeout
        | ModelErrorKind::Blocked
        | ModelErrorKind::Malformed
        | ModelErrorKind::ReplyTooLarge => true,
        ModelErrorKind::InvalidRequest | ModelErrorKind::NotRecorded | ModelErrorKind::Cancelled => false,
    }
}

impl fmt::Debug for FallbackProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let then: Vec<_> = self.then.iter().map(|(provider, model)| (provider.name(), model)).collect();
        f.debug_struct("FallbackProvider").field("first", &self.first.name()).field("then", &then).finish()
    }
}
