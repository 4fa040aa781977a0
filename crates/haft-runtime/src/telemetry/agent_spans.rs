//! The spans of runs: one `invoke_agent` span for each session, with the spans of its model requests and calls inside.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::position::{RunPosition, SessionId};
use haft_core::run::event::RunStart;
use haft_core::run::finish::{FinishClass, RunFinish};
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

/// The maximum number of sessions that can be parents of spans. If there are more sessions, haft drops those that have
/// ended, or all of them if none has ended. Later spans then get the parent span of the whole program.
const SESSIONS_MAX: usize = 10_000;

/// The spans of sessions. The span of a root session is kept after its end, because an agent that took over its request
/// belongs to the same trace.
#[derive(Debug, Default)]
pub(super) struct AgentSpans(Mutex<HashMap<SessionId, SessionSpan>>);

#[derive(Debug, Clone)]
struct SessionSpan {
    context: Context,
    has_ended: bool,
}

impl AgentSpans {
    /// Returns the span of a session. If the session has none, returns the span of the session in which the original
    /// request began.
    pub(super) fn of(&self, place: RunPosition) -> Option<Context> {
        let sessions = self.sessions();
        let found = sessions.get(&place.session).or_else(|| sessions.get(&place.origin));
        found.map(|span| span.context.clone())
    }

    pub(super) fn begin(&self, tracer: &SdkTracer, above: &Context, place: RunPosition, began: &RunStart) {
        let agent = began.path.last().map_or("agent", String::as_str);
        let (provider, model) = began.model.split_once('/').unwrap_or(("", began.model.as_str()));
        let builder = SpanBuilder::from_name(format!("invoke_agent {agent}"))
            .with_kind(SpanKind::Internal)
            .with_attributes([
                KeyValue::new("gen_ai.operation.name", "invoke_agent"),
                KeyValue::new("gen_ai.agent.name", agent.to_owned()),
                KeyValue::new("gen_ai.provider.name", super::spans::provider_name(provider)),
                KeyValue::new("gen_ai.request.model", model.to_owned()),
                KeyValue::new("gen_ai.conversation.id", place.session.to_string()),
            ]);
        let context = above.with_span(tracer.build_with_context(builder, above));
        let mut sessions = self.sessions();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, span| !span.has_ended);
        }
        if sessions.len() >= SESSIONS_MAX {
            sessions.clear();
        }
        sessions.insert(place.session, SessionSpan { context, has_ended: false });
    }

    pub(super) fn end(&self, place: RunPosition, finish: &RunFinish) {
        let mut sessions = self.sessions();
        let is_root = place.session == place.origin;
        let span = if is_root {
            sessions.get_mut(&place.session).map(|span| {
                span.has_ended = true;
                span.clone()
            })
        } else {
            sessions.remove(&place.session)
        };
        drop(sessions);
        let Some(SessionSpan { context, .. }) = span else { return };
        let span = context.span();
        span.set_attribute(KeyValue::new("haft.run.finish", finish.reason.name()));
        match finish.reason.row().class {
            FinishClass::Answered => {}
            FinishClass::Limited
            | FinishClass::Budget
            | FinishClass::Interrupted
            | FinishClass::TimedOut
            | FinishClass::Failed => span.set_status(Status::error(finish.reason.name())),
        }
        span.end();
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, SessionSpan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
