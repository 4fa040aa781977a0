//! Fallback models, which are used when the first model fails.

use std::fmt::{self, Write as _};

use futures_util::{StreamExt, stream};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_reply::ReplyNote;
use haft_core::model_request::ModelRequest;

use crate::provider_circuit::{Admission, FAILURES_MAX, ProviderCircuit, ProviderOutcome, SKIP_TIME};

/// A provider with fallbacks, each with its own model. haft tries the models in order until one of them starts a reply.
/// It skips a provider that keeps failing, but always asks the last one.
pub struct FallbackProvider {
    first: Box<dyn ModelProvider>,
    circuit: ProviderCircuit,
    then: Vec<(Box<dyn ModelProvider>, String)>,
    /// The circuits of the fallbacks, in the same order.
    circuits: Vec<ProviderCircuit>,
}

/// A model that haft asks, with the circuit of its provider.
struct AskedModel<'a> {
    provider: &'a dyn ModelProvider,
    model: String,
    circuit: &'a ProviderCircuit,
}

impl FallbackProvider {
    pub fn new(first: Box<dyn ModelProvider>, then: Vec<(Box<dyn ModelProvider>, String)>) -> Self {
        let circuits = then.iter().map(|_| ProviderCircuit::default()).collect();
        Self { first, circuit: ProviderCircuit::default(), then, circuits }
    }

    /// Shares the circuits of the first provider and of its fallbacks, in this order, with other runs.
    #[must_use]
    pub fn with_circuits(mut self, shared: Vec<ProviderCircuit>) -> Self {
        let own = std::iter::once(&mut self.circuit).chain(&mut self.circuits);
        own.zip(shared).for_each(|(own, shared)| *own = shared);
        self
    }

    /// Returns the first reply that starts, or the last error. Both report the models that failed before.
    async fn begin(&self, request: ModelRequest, cx: ModelContext) -> StartedReply<'_> {
        let (mut asked, fallbacks) = self.models(&request.model);
        let mut failures = Vec::new();
        for next in fallbacks {
            let problem = match asked.circuit.admit() {
                Admission::Skip => skipped(),
                Admission::Ask => {
                    let begun = asked.ask(&request, &cx).await;
                    match &begun.first {
                        Err(error) if helps(error.kind) => error.message.clone(),
                        Ok(_) | Err(_) => return begun.after(failures),
                    }
                }
            };
            failures.push((format!("{}/{}", asked.provider.name(), asked.model), problem));
            asked = next;
        }
        // No other model is left, so ask this one even if its provider keeps failing. If its pause is over, this request
        // is the trial.
        asked.circuit.admit();
        asked.ask(&request, &cx).await.after(failures)
    }

    /// Returns the first model, which the request names, and the fallbacks.
    fn models(&self, first: &str) -> (AskedModel<'_>, Vec<AskedModel<'_>>) {
        let then = self.then.iter().zip(&self.circuits).map(|((provider, model), circuit)| AskedModel {
            provider: &**provider,
            model: model.clone(),
            circuit,
        });
        let first = AskedModel { provider: &*self.first, model: first.to_owned(), circuit: &self.circuit };
        (first, then.collect())
    }
}

impl<'a> AskedModel<'a> {
    /// Waits until the reply starts or fails, and records the outcome in the circuit of the provider.
    async fn ask(&self, request: &ModelRequest, cx: &ModelContext) -> StartedReply<'a> {
        let request = ModelRequest { model: self.model.clone(), ..request.clone() };
        let begun = StartedReply::of(self.provider.ask(request, cx)).await;
        self.circuit.note(match &begun.first {
            Ok(_) => ProviderOutcome::Answered,
            Err(error) => ProviderOutcome::of(error.kind),
        });
        begun
    }
}

fn skipped() -> String {
    format!(
        "haft does not ask this provider for {} s, because its last {FAILURES_MAX} requests failed",
        SKIP_TIME.as_secs()
    )
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
        f.debug_struct("FallbackProvider")
            .field("first", &self.first.name())
            .field("then", &then)
            .finish_non_exhaustive()
    }
}
