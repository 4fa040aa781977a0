//! Builds spans from events, with the names and attributes of the OpenTelemetry conventions for generative AI.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::agent_spans::AgentSpans;
use super::settings::remote_context;
use haft_core::event::{CallAccount, CapturedContent, Event, EventSink, ToolReference};
use haft_core::model_provider::{ModelAccount, ModelAttempt};
use haft_core::position::{CallOperation, OperationId, RunPosition, SessionId};
use haft_core::provider::ProviderKind;
use haft_core::result::ToolErrorKind;
use haft_core::run::event::RunEvent;
use haft_core::trace_context::TraceContext;
use haft_tools::mcp::TraceParents;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

/// The maximum number of open spans, which can be parents of others. Beyond this limit, a span is created when its call
/// ends.
const OPEN_MAX: usize = 10_000;

/// The maximum number of bytes of a tool's description in a span.
const DESCRIPTION_BYTES_MAX: usize = 1 << 10;

/// The spans of a call in progress.
#[derive(Debug, Clone)]
struct OpenSpans {
    call: Context,
    /// The request to the MCP server, inside the call.
    request: Option<Context>,
}

impl OpenSpans {
    /// Returns the innermost span, which is the parent of all spans that the call creates.
    fn innermost(&self) -> &Context {
        self.request.as_ref().unwrap_or(&self.call)
    }
}

/// Creates one span for each call and, for a tool of an MCP server, one for the request to the server.
#[derive(Debug)]
pub(super) struct CallSpans {
    tracer: SdkTracer,
    /// The parent span of the whole program.
    parent: Context,
    /// The spans of calls in progress. Every call that starts also ends, so this map does not grow without bound.
    open: Mutex<HashMap<OperationId, OpenSpans>>,
    agents: AgentSpans,
    /// The spans of the callers of runs that have not begun yet, and of compactions without a run.
    callers: Mutex<HashMap<SessionId, Context>>,
}

impl CallSpans {
    pub(super) fn new(provider: &SdkTracerProvider, parent: Context) -> Self {
        Self {
            tracer: provider.tracer("haft"),
            parent,
            open: Mutex::default(),
            agents: AgentSpans::default(),
            callers: Mutex::default(),
        }
    }

    fn begin(&self, operation: &CallOperation, tool: &ToolReference, ago: Duration) -> Context {
        let now = SystemTime::now();
        let builder = SpanBuilder::from_name(name(tool))
            .with_kind(SpanKind::Internal)
            .with_start_time(now.checked_sub(ago).unwrap_or(now))
            .with_attributes(of_call(operation, tool));
        let above = self.above(operation.place);
        let span = self.tracer.build_with_context(builder, &above);
        above.with_span(span)
    }

    /// Starts the span of the request to an MCP server; returns `None` for tools from other sources.
    fn begin_request(&self, call: &Context, tool: &ToolReference) -> Option<Context> {
        let tool = tool.known().filter(|tool| tool.identity.kind == ProviderKind::Mcp)?;
        let name = tool.identity.tool.as_str();
        let builder = SpanBuilder::from_name(format!("tools/call {name}"))
            .with_kind(SpanKind::Client)
            .with_attributes([
                KeyValue::new("mcp.method.name", "tools/call"),
                KeyValue::new("gen_ai.tool.name", name.to_owned()),
                KeyValue::new("haft.mcp.server", tool.identity.namespace.as_str().to_owned()),
            ]);
        Some(call.with_span(self.tracer.build_with_context(builder, call)))
    }

    /// Emits the span of a model request at its end. A model request has no child spans, so its span need not be open
    /// earlier.
    fn tell_model(&self, place: RunPosition, attempt: &ModelAttempt, account: &ModelAccount) {
        let now = SystemTime::now();
        let builder = SpanBuilder::from_name(format!("chat {}", attempt.model))
            .with_kind(SpanKind::Client)
            .with_start_time(now.checked_sub(account.latency).unwrap_or(now))
            .with_attributes(of_attempt(place, attempt, account));
        let above = self.above(place);
        let context = above.with_span(self.tracer.build_with_context(builder, &above));
        if let Some(kind) = account.failure {
            context.span().set_status(Status::error(kind.name()));
        }
        context.span().end();
    }

    /// Returns the parent span for a position: the run of its session, or the call that the session works for.
    fn above(&self, place: RunPosition) -> Context {
        self.agents.of(place).unwrap_or_else(|| self.above_run(place))
    }

    /// Returns the parent span for a run: the call that it works for, or the run that handed over its request. For
    /// model requests before a run or without one, returns the span of the caller.
    fn above_run(&self, place: RunPosition) -> Context {
        let call = place.parent.and_then(|parent| Some(self.open().get(&parent)?.innermost().clone()));
        call.or_else(|| self.agents.of(place))
            .or_else(|| self.callers().get(&place.session).cloned())
            .unwrap_or_else(|| self.parent.clone())
    }

    fn tell_run(&self, place: RunPosition, event: &RunEvent) {
        match event {
            RunEvent::Began(began) => {
                // Release the lock first, because `above_run` takes it again.
                let caller = self.callers().remove(&place.session);
                let above = caller.unwrap_or_else(|| self.above_run(place));
                self.agents.begin(&self.tracer, &above, place, began);
            }
            RunEvent::Finished { finish, .. } => self.agents.end(place, finish),
            RunEvent::Asked
            | RunEvent::Model(_)
            | RunEvent::Called(_)
            | RunEvent::Answered(_)
            | RunEvent::Noted(_) => {}
        }
    }

    fn keep_open(&self, operation: OperationId, spans: OpenSpans) {
        let mut open = self.open();
        if open.len() < OPEN_MAX {
            open.insert(operation, spans);
        }
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<SessionId, Context>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<OperationId, OpenSpans>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for CallSpans {
    fn emit(&self, event: Event) {
        match &event {
            Event::ToolStarted { operation, tool, waited } => {
                let call = self.begin(operation, tool, *waited);
                let request = self.begin_request(&call, tool);
                self.keep_open(operation.id, OpenSpans { call, request });
            }
            Event::ToolProgress { .. } | Event::ModelStarted { .. } => {}
            Event::Run { place, event } => self.tell_run(*place, event),
            Event::ModelFinished { place, attempt, account, .. } => self.tell_model(*place, attempt, account),
            Event::ToolFinished { operation, tool, failure, latency, account, content } => {
                let begun = self.open().remove(&operation.id);
                let OpenSpans { call, request } = begun.unwrap_or_else(|| OpenSpans {
                    call: self.begin(operation, tool, *latency),
                    request: None,
                });
                if let Some(request) = request {
                    end_request(&request, *failure);
                }
                end(&call, *failure, account, content.as_deref());
            }
        }
    }
}

impl TraceParents for CallSpans {
    fn of(&self, operation: &CallOperation) -> Option<String> {
        let context = self.open().get(&operation.id)?.innermost().clone();
        let span = context.span().span_context().clone();
        let sampled = span.trace_flags().to_u8();
        span.is_valid().then(|| format!("00-{}-{}-{sampled:02x}", span.trace_id(), span.span_id()))
    }

    fn adopt(&self, session: SessionId, caller: &TraceContext) {
        let mut callers = self.callers();
        // A run that fails before it begins never removes its entry, so the number of entries must be limited.
        if callers.len() >= OPEN_MAX {
            callers.clear();
        }
        callers.insert(session, remote_context(Some(caller.parent()), caller.state()));
    }

    fn release(&self, session: SessionId) {
        self.callers().remove(&session);
    }
}

fn end_request(context: &Context, failure: Option<ToolErrorKind>) {
    let span = context.span();
    if let Some(kind) = failure {
        span.set_attribute(KeyValue::new("error.type", kind.name()));
        span.set_status(Status::error(kind.row().message));
    }
    span.end();
}

fn end(
    context: &Context,
    failure: Option<ToolErrorKind>,
    account: &CallAccount,
    captured: Option<&CapturedContent>,
) {
    let span = context.span();
    span.set_attributes(of_account(account));
    span.set_attributes(captured.map(content_attributes).into_iter().flatten());
    if let Some(kind) = failure {
        span.set_attribute(KeyValue::new("error.type", kind.name()));
        // Use the fixed text of the error kind: the message of the call may contain secrets or content.
        span.set_status(Status::error(kind.row().message));
    }
    span.end();
}

/// Returns the span name. Leaves out a tool name that the model invented, because span names must have low cardinality.
fn name(tool: &ToolReference) -> String {
    match tool {
        ToolReference::Written(_) => "execute_tool".into(),
        ToolReference::Known(tool) => format!("execute_tool {}", tool.exposed),
    }
}

fn of_call(operation: &CallOperation, tool: &ToolReference) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", "execute_tool"),
        KeyValue::new("gen_ai.tool.name", tool.name().to_owned()),
        KeyValue::new("gen_ai.tool.type", "function"),
        KeyValue::new("gen_ai.tool.call.id", operation.call.0.clone()),
        KeyValue::new("gen_ai.conversation.id", operation.place.session.to_string()),
    ];
    if let Some(known) = tool.known() {
        let description = &known.description[..known.description.floor_char_boundary(DESCRIPTION_BYTES_MAX)];
        attributes.extend([
            KeyValue::new("gen_ai.tool.description", description.to_owned()),
            KeyValue::new("haft.tool.kind", known.identity.kind.name()),
            KeyValue::new("haft.tool.namespace", known.identity.namespace.as_str().to_owned()),
        ]);
    }
    attributes
}

fn of_attempt(place: RunPosition, attempt: &ModelAttempt, account: &ModelAccount) -> Vec<KeyValue> {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.provider.name", provider_name(&attempt.provider)),
        KeyValue::new("gen_ai.request.model", attempt.model.to_string()),
        KeyValue::new("gen_ai.conversation.id", place.session.to_string()),
        KeyValue::new("haft.turn", i64::from(place.turn)),
        KeyValue::new("haft.model.attempt", i64::from(attempt.number)),
    ];
    attributes.extend(account.usage.into_iter().flat_map(|usage| {
        [
            KeyValue::new("gen_ai.usage.input_tokens", count(usage.input)),
            KeyValue::new("gen_ai.usage.output_tokens", count(usage.output)),
            KeyValue::new("gen_ai.usage.cache_read.input_tokens", count(usage.cache_read)),
            KeyValue::new("gen_ai.usage.cache_creation.input_tokens", count(usage.cache_write)),
        ]
    }));
    attributes.extend(
        account
            .first_event
            .map(|time| KeyValue::new("gen_ai.response.time_to_first_chunk", time.as_secs_f64())),
    );
    attributes
        .extend(account.cost.map(|cost| KeyValue::new("haft.model.cost_nano_usd", count(cost.nano_usd))));
    attributes.extend(account.failure.map(|kind| KeyValue::new("error.type", kind.name())));
    attributes
}

/// Returns the value of the OpenTelemetry attribute `gen_ai.provider.name` for a provider.
pub(super) fn provider_name(provider: &str) -> String {
    let known = match provider {
        "openai" | "openai-responses" => "openai",
        "gemini" => "gcp.gemini",
        "azure" => "azure.ai.openai",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        "claude-code" => "anthropic",
        other => other,
    };
    known.to_owned()
}

fn of_account(account: &CallAccount) -> [KeyValue; 4] {
    let bytes = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    [
        KeyValue::new("haft.call.executed", account.executed),
        KeyValue::new("haft.call.cached", account.cached),
        KeyValue::new("haft.call.bytes_in", bytes(account.bytes_in)),
        KeyValue::new("haft.call.bytes_out", bytes(account.bytes_out)),
    ]
}

fn content_attributes(content: &CapturedContent) -> [KeyValue; 2] {
    [
        KeyValue::new("gen_ai.tool.call.arguments", content.arguments.clone()),
        KeyValue::new("gen_ai.tool.call.result", content.result.clone()),
    ]
}
