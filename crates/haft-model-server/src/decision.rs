//! Computes the complete response to a request, without a clock or a network.

use serde_json::Value;

use crate::authentication::admit;
use crate::fault::{ErrorResponse, apply_fault, body_of};
use crate::model_rules;
use crate::models;
use crate::openai_responses::response_id;
use crate::pace::{ResponseChunk, ResponsePace};
use crate::parsed_request::{ParsedRequest, ResponseDelivery};
use crate::placeholders::recalled;
use crate::request_log::RequestOutcome;
use crate::router::RequestParts;
use crate::script::{Script, ScriptStep};
use crate::script_progress::ScriptProgress;
use crate::wire::{ApiFormat, ApiRequest, PathParameters, RequestTarget, ScriptedReply};

/// The average number of bytes in a token.
const BYTES_PER_TOKEN: u64 = 4;

/// A response that is ready to be sent.
#[derive(Debug)]
pub(crate) struct PlannedResponse {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) pace: ResponsePace,
    pub(crate) pieces: Vec<ResponseChunk>,
    /// The outcome to record when the whole response has been sent.
    pub(crate) outcome: RequestOutcome,
}

/// A received HTTP request, with its number.
#[derive(Debug)]
pub(crate) struct ReceivedRequest<'a> {
    pub(crate) parts: &'a RequestParts,
    pub(crate) body: &'a str,
    pub(crate) serial: usize,
}

/// Checks a request, then chooses its response from the script.
pub(crate) fn decide(
    script: &Script,
    progress: &mut ScriptProgress,
    incoming: &ReceivedRequest,
) -> PlannedResponse {
    let format = incoming.parts.format;
    let decided = admit(format, script.key.as_deref(), &incoming.parts.headers, &incoming.parts.uri)
        .and_then(|()| match &incoming.parts.target {
            RequestTarget::Models => Ok(listed(format, script)),
            RequestTarget::Turn(address) => turn(script, progress, incoming, address.clone()),
        });
    decided.unwrap_or_else(|failure| refused(format, &failure))
}

fn listed(format: ApiFormat, script: &Script) -> PlannedResponse {
    let list = models::list(format, script).to_string();
    answered("application/json", ResponsePace::default(), vec![ResponseChunk::Bytes(list.into_bytes())])
}

fn turn(
    script: &Script,
    progress: &mut ScriptProgress,
    incoming: &ReceivedRequest,
    address: PathParameters,
) -> Result<PlannedResponse, ErrorResponse> {
    let format = incoming.parts.format;
    let bad_request = |complaint: String| ErrorResponse::new(400, &complaint);
    let (request, asked) = read(progress, incoming, address).map_err(bad_request)?;
    let tokens = (incoming.body.len() as u64).div_ceil(BYTES_PER_TOKEN);
    if let Some(window) = script.context_window.filter(|window| tokens > *window) {
        return Err(bad_request(format!(
            "the request has {tokens} tokens; the context window has {window} tokens"
        )));
    }
    let step = choose(script, progress, incoming, &asked).map_err(bad_request)?;
    if let Some(failure) = &step.fail {
        return Ok(failed(format, step.pace, failure));
    }
    if request.body["store"] != false {
        progress.remember(response_id(incoming.serial), &asked);
    }
    let (turn, serial, chat_reasoning) = (asked.talk.turns, incoming.serial, script.chat_reasoning);
    let mut step = recalled(step, &asked);
    if script.context_window.is_some() {
        step.usage.input = tokens;
    }
    let step = &step;
    let reply = ScriptedReply { step, asked: &asked, request: &request.body, turn, serial, chat_reasoning };
    Ok(planned_reply(format, &reply))
}

fn read(
    progress: &ScriptProgress,
    incoming: &ReceivedRequest,
    address: PathParameters,
) -> Result<(ApiRequest, ParsedRequest), String> {
    let body: Value = serde_json::from_str(incoming.body)
        .map_err(|error| format!("the request body is not JSON: {error}"))?;
    if !body.is_object() {
        return Err("the request body is not an object".to_owned());
    }
    let beta = incoming.parts.headers.contains_key("anthropic-beta");
    let request = ApiRequest { address, body, beta };
    let format = incoming.parts.format;
    let mut asked = format.wire().read(&request)?;
    model_rules::check(format, &request)?;
    progress.restore_conversation(&mut asked)?;
    Ok((request, asked))
}

fn choose<'a>(
    script: &'a Script,
    progress: &mut ScriptProgress,
    incoming: &ReceivedRequest,
    asked: &ParsedRequest,
) -> Result<&'a ScriptStep, String> {
    let step = progress.next(script, incoming.parts.format, asked)?;
    let unmet_expectations = step.expect.unmet_expectations(asked, incoming.body);
    if unmet_expectations.is_empty() {
        Ok(step)
    } else {
        Err(format!("the script expected a different request: {}", unmet_expectations.join("; ")))
    }
}

fn planned_reply(format: ApiFormat, reply: &ScriptedReply) -> PlannedResponse {
    let (wire, step) = (format.wire(), reply.step);
    let (content_type, frames) = match reply.asked.delivery {
        ResponseDelivery::Whole => ("application/json", vec![wire.whole(reply).to_string()]),
        ResponseDelivery::Streamed => {
            let comments = format.comments(step.pace.comments);
            (format.stream_type(), comments.into_iter().chain(wire.stream(reply)).collect())
        }
    };
    // In a whole response, the provider's error replaces the body, because only a stream can contain an error event.
    let error = |failure: &ErrorResponse| match reply.asked.delivery {
        ResponseDelivery::Whole => vec![wire.error(failure).to_string()],
        ResponseDelivery::Streamed => wire.error_event(reply, failure),
    };
    let pieces = step.pace.pieces(apply_fault(frames, step.fault.as_ref(), error));
    answered(content_type, step.pace, pieces)
}

fn answered(content_type: &'static str, pace: ResponsePace, pieces: Vec<ResponseChunk>) -> PlannedResponse {
    let outcome = RequestOutcome::Answered(200);
    PlannedResponse { status: 200, content_type, retry_after_seconds: None, pace, pieces, outcome }
}

fn failed(format: ApiFormat, pace: ResponsePace, failure: &ErrorResponse) -> PlannedResponse {
    let body = body_of(failure, |failure| format.wire().error(failure));
    let content_type = if failure.raw.is_some() { "text/html" } else { "application/json" };
    PlannedResponse {
        status: failure.status,
        content_type,
        retry_after_seconds: failure.retry_after_seconds,
        pace,
        pieces: vec![ResponseChunk::Bytes(body.into_bytes())],
        outcome: RequestOutcome::Answered(failure.status),
    }
}

fn refused(format: ApiFormat, failure: &ErrorResponse) -> PlannedResponse {
    PlannedResponse {
        outcome: RequestOutcome::Refused(failure.message.clone()),
        ..failed(format, ResponsePace::default(), failure)
    }
}
