//! One tool call, with as many rounds of input requests as the server needs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::event::CallProgress;
use haft_core::output::{RawResult, ToolOutput};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::run::context::RawResults;
use haft_core::sampling::OriginatingCall;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::bounded::cut;
use super::content::{self, INPUTS_MAX, InputRequest, InputRequired};
use super::era::ProtocolEra;
use super::host::Host;
use super::in_flight::{InFlight, RequestingCall};
use super::listing::McpToolEntry;
use super::message::{RequestId, RpcError, SESSION_NOT_FOUND};
use super::param_header::encoded;
use super::peer::{PeerError, PeerRequest};
use super::refusal::ServerRequestRefusal;
use super::session::McpSession;
use super::task::{self, ToolTaskSupport};
use super::task_call;
use super::transport::TransportFailure;

/// The maximum number of input request rounds in one call.
const ROUNDS_MAX: usize = 8;

/// The maximum number of characters of a server's method name that an error repeats.
const METHOD_CHARS_MAX: usize = 100;

/// A request that may take several rounds, because the server may ask for input before it returns the result.
pub(super) struct McpExchange<'a> {
    pub(super) method: &'static str,
    /// The members of `params`, without braces.
    pub(super) fields: String,
    /// The headers that only protocol revisions without sessions need.
    pub(super) headers: Vec<(String, String)>,
    pub(super) trace_parent: Option<String>,
    pub(super) patience: Duration,
    /// The call in flight, on whose behalf the server may request input.
    pub(super) in_flight: &'a Arc<InFlight>,
    pub(super) progress: &'a (dyn Fn(CallProgress) + Send + Sync),
}

/// A tool call to send to an MCP server.
pub(super) struct McpToolCall<'a> {
    pub(super) tool: &'a McpToolEntry,
    pub(super) arguments: &'a Map<String, Value>,
    /// The `traceparent` of the call.
    pub(super) trace_parent: Option<String>,
    pub(super) patience: Duration,
    /// The time for which the server should keep a task and its result.
    pub(super) task_ttl: Duration,
    /// The call in flight, on whose behalf the server may request input.
    pub(super) in_flight: &'a Arc<InFlight>,
    pub(super) progress: &'a (dyn Fn(CallProgress) + Send + Sync),
}

/// The reason why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The error that the caller of the tool gets.
    Tool(ToolError),
    /// The server answered with a JSON-RPC error.
    Rpc(RpcError),
    /// The server sent no reply and no progress in time; it may be stuck.
    Silent(Duration),
    /// The server requires authorization, and did not run the tool.
    NeedsAuth(String),
    /// The server does not recognise the session any more, so it did not run the tool; the call may be repeated.
    SessionExpired,
    /// The connection ended during the call: the server may or may not have run the tool.
    Lost(String),
}

/// Calls a tool, and answers the input requests of the server during the call. If the server runs the call as a task,
/// follows the task to its end.
pub(super) async fn call(
    session: &McpSession,
    host: &Host,
    call: &McpToolCall<'_>,
) -> Result<ToolOutput, CallError> {
    let arguments = serde_json::to_string(call.arguments).unwrap_or_else(|_| "{}".into());
    let request = McpExchange {
        method: "tools/call",
        fields: format!(
            "\"name\":{},\"arguments\":{arguments}{}",
            quoted(&call.tool.name),
            task_request(session, call)
        ),
        headers: headers(session, call),
        trace_parent: call.trace_parent.clone(),
        patience: call.patience,
        in_flight: call.in_flight,
        progress: call.progress,
    };
    let (token, raw) = exchange_numbered(session, host, &request).await?;
    let raw = match task::created(&session.era, &raw).map_err(CallError::Tool)? {
        None => raw,
        Some(created) => {
            let progress = session.peer.follow_progress(token);
            task_call::finish((session, host), &request, created, progress).await?
        }
    };
    let results = call.in_flight.caller.run.raw_results;
    match content::read(&raw) {
        Ok(output) => Ok(ToolOutput { raw: raw_result(results, raw), ..output }),
        Err(error) => Err(CallError::Tool(error.with_raw(raw_result(results, raw)))),
    }
}

/// Sends a request, with as many rounds of input requests as the server needs, and returns the complete result.
pub(super) async fn exchange(
    session: &McpSession,
    host: &Host,
    request: &McpExchange<'_>,
) -> Result<Box<RawValue>, CallError> {
    exchange_numbered(session, host, request).await.map(|(_, raw)| raw)
}

/// Sends a request as [`exchange`] does, and also returns the progress token of the last round.
async fn exchange_numbered(
    session: &McpSession,
    host: &Host,
    request: &McpExchange<'_>,
) -> Result<(RequestId, Box<RawValue>), CallError> {
    let mut more = String::new();
    for _ in 0..ROUNDS_MAX {
        let fields = format!("{}{more}", request.fields);
        let mut ask = PeerRequest::new(request.method, fields, request.patience);
        ask.headers.clone_from(&request.headers);
        ask.trace_parent.clone_from(&request.trace_parent);
        ask.progress = Some(request.progress);
        ask.log_level = log_level(session, request.in_flight);
        ask.call = Some(Arc::clone(request.in_flight));
        let (token, raw) = session.peer.request_numbered(ask).await.map_err(failed)?;
        match content::input_required(&raw).map_err(CallError::Tool)? {
            None => return Ok((token, raw)),
            Some(required) => {
                more = inputs(&required, host, request.in_flight).await.map_err(CallError::Tool)?.fields;
            }
        }
    }
    let message =
        format!("the MCP server asked for input more than {ROUNDS_MAX} times, so haft stopped the call");
    Err(CallError::Tool(ToolError::new(ToolErrorKind::Failed, message)))
}

/// Returns the level of log messages that a client of the gateway requests for this call. A server with a handshake
/// sends all levels, and the gateway selects.
fn log_level(session: &McpSession, call: &InFlight) -> Option<&'static str> {
    let OriginatingCall { run, call, .. } = &call.caller;
    match session.era {
        ProtocolEra::Legacy { .. } => None,
        ProtocolEra::Modern => run.relay.as_ref()?.log_level(call),
    }
}

/// Returns a further member of `params` that requests a task. haft requests a task only if the tool requires one,
/// because a plain call needs no polling. haft calls a tool without a task if its server does not declare tasks.
fn task_request(session: &McpSession, call: &McpToolCall<'_>) -> String {
    let has_tasks = session.greeting.core_tasks && task::has_core_tasks(&session.era);
    match call.tool.tasks {
        ToolTaskSupport::Required if has_tasks => {
            format!(",\"task\":{{\"ttl\":{}}}", call.task_ttl.as_millis())
        }
        ToolTaskSupport::Required | ToolTaskSupport::Optional | ToolTaskSupport::Forbidden => String::new(),
    }
}

/// Returns the headers that only protocol revisions without sessions need.
fn headers(session: &McpSession, call: &McpToolCall<'_>) -> Vec<(String, String)> {
    match session.era {
        ProtocolEra::Legacy { .. } => Vec::new(),
        ProtocolEra::Modern => {
            let name = ("mcp-name".to_owned(), encoded(&call.tool.name));
            let params = call.tool.headers.iter().filter_map(|header| header.of(call.arguments));
            std::iter::once(name).chain(params).collect()
        }
    }
}

/// The answers to the input requests of a server.
pub(super) struct InputAnswers {
    /// Members of `params`, with a comma before the first.
    pub(super) fields: String,
    /// The number of requests without an answer.
    pub(super) left_out: usize,
}

/// Returns the answers to the input requests, as members of `params`. Leaves out requests for capabilities that haft
/// did not advertise. A request that haft supports but declines ends the call, because the protocol has no way to
/// report the refusal to the server.
pub(super) async fn inputs(
    required: &InputRequired,
    host: &Host,
    call: &Arc<InFlight>,
) -> Result<InputAnswers, ToolError> {
    let asker = RequestingCall::Call(Arc::clone(call));
    if required.input_requests.more > 0 {
        let message = format!(
            "the MCP server sent more than {INPUTS_MAX} input requests at once, so haft stopped the call"
        );
        return Err(ToolError::new(ToolErrorKind::Failed, message));
    }
    // Answer all requests concurrently, so that a gateway can pass all of them to its client in one reply.
    let pending =
        required.input_requests.members.iter().map(|(key, request)| input(key, request, host, &asker));
    let mut answers = Vec::new();
    for answer in join_all(pending).await {
        answers.extend(answer?);
    }
    let state = required.request_state.as_ref().map(|state| format!(",\"requestState\":{}", state.get()));
    let left_out = required.input_requests.members.len() - answers.len();
    let fields = format!(",\"inputResponses\":{{{}}}{}", answers.join(","), state.unwrap_or_default());
    Ok(InputAnswers { fields, left_out })
}

/// Returns the answer to one input request as a member of `inputResponses`; `None` for a request for a capability that
/// haft did not advertise.
async fn input(
    key: &str,
    InputRequest { method, params }: &InputRequest,
    host: &Host,
    asker: &RequestingCall,
) -> Result<Option<String>, ToolError> {
    match host.answer(method, params.as_deref(), (Some(key), asker)).await {
        Ok(answer) => Ok(Some(format!("{}:{answer}", quoted(key)))),
        Err(ServerRequestRefusal::NotSupported) => Ok(None),
        Err(refusal @ (ServerRequestRefusal::Declined(_) | ServerRequestRefusal::Wrong(_))) => {
            let message = format!(
                "the MCP server sent the request `{}`, and haft refused it: {}",
                cut(method, METHOD_CHARS_MAX),
                refusal.reason()
            );
            Err(ToolError::new(ToolErrorKind::Failed, message))
        }
    }
}

fn raw_result(results: RawResults, raw: Box<RawValue>) -> Option<RawResult> {
    match results {
        RawResults::Dropped => None,
        RawResults::Kept => Some(RawResult(raw.into())),
    }
}

pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

pub(super) fn failed(error: PeerError) -> CallError {
    let failed = |kind, message: String| CallError::Tool(ToolError::new(kind, message));
    match error {
        PeerError::Rpc(error) if error.code == SESSION_NOT_FOUND => CallError::SessionExpired,
        PeerError::Rpc(error) => CallError::Rpc(error),
        PeerError::Silent(patience) => CallError::Silent(patience),
        PeerError::Failed(TransportFailure::SessionExpired) => CallError::SessionExpired,
        PeerError::Failed(TransportFailure::Closed(reason)) => CallError::Lost(reason),
        PeerError::Failed(TransportFailure::NeedsAuth(reason)) => CallError::NeedsAuth(reason),
        PeerError::Failed(
            failure @ (TransportFailure::WrongTransport(_) | TransportFailure::Unreached(_)),
        ) => failed(ToolErrorKind::Unavailable, failure.to_string()),
        PeerError::Failed(failure @ (TransportFailure::TooLarge { .. } | TransportFailure::Broken(_))) => {
            failed(ToolErrorKind::Failed, failure.to_string())
        }
    }
}
