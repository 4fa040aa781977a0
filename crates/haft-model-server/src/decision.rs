//! Computes the complete response to a request, without clock or network.

use serde_json::Value;

use crate::admission::admit;
use crate::asked::{Asked, Delivery};
use crate::fault::{Failure, befall, body_of};
use crate::models;
use crate::openai_responses::response_id;
use crate::pace::{Pace, Piece};
use crate::progress::Progress;
use crate::recall::recalled;
use crate::recorded::Outcome;
use crate::router::Parts;
use crate::script::{Script, Step};
use crate::wire::{Address, Format, Reply, Request, Target};

/// A response that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) pace: Pace,
    pub(crate) pieces: Vec<Piece>,
    /// The outcome to record once everything was sent.
    pub(crate) outcome: Outcome,
}

/// A request as received, with its number.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a str,
    pub(crate) serial: usize,
}

/// Checks the request first, then follows the script.
pub(crate) fn decide(script: &Script, progress: &mut Progress, incoming: &Incoming) -> Decision {
    let format = incoming.parts.format;
    let decided = admit(format, script.key.as_deref(), &incoming.parts.headers, &incoming.parts.uri)
        .and_then(|()| match &incoming.parts.target {
            Target::Models => Ok(listed(format, script)),
            Target::Turn(address) => turn(script, progress, incoming, address.clone()),
        });
    decided.unwrap_or_else(|failure| refused(format, &failure))
}

fn listed(format: Format, script: &Script) -> Decision {
    let list = models::list(format, script).to_string();
    answered("application/json", Pace::default(), vec![Piece::Bytes(list.into_bytes())])
}

fn turn(
    script: &Script,
    progress: &mut Progress,
    incoming: &Incoming,
    address: Address,
) -> Result<Decision, Failure> {
    let format = incoming.parts.format;
    let bad_request = |complaint: String| Failure::new(400, &complaint);
    let (request, asked) = read(progress, incoming, address).map_err(bad_request)?;
    let step = choose(script, progress, incoming, &asked).map_err(bad_request)?;
    if let Some(failure) = &step.fail {
        return Ok(failed(format, step.pace, failure));
    }
    if request.body["store"] != false {
        progress.remember(response_id(incoming.serial), &asked);
    }
    let (turn, serial, chat_reasoning) = (asked.talk.turns, incoming.serial, script.chat_reasoning);
    let step = &recalled(step, &asked);
    let reply = Reply { step, asked: &asked, request: &request.body, turn, serial, chat_reasoning };
    Ok(said(format, &reply))
}

fn read(progress: &Progress, incoming: &Incoming, address: Address) -> Result<(Request, Asked), String> {
    let body: Value =
        serde_json::from_str(incoming.body).map_err(|error| format!("the body is not JSON: {error}"))?;
    if !body.is_object() {
        return Err("the body is not an object".to_owned());
    }
    let beta = incoming.parts.headers.contains_key("anthropic-beta");
    let request = Request { address, body, beta };
    let mut asked = incoming.parts.format.wire().read(&request)?;
    progress.go_on(&mut asked)?;
    Ok((request, asked))
}

fn choose<'a>(
    script: &'a Script,
    progress: &mut Progress,
    incoming: &Incoming,
    asked: &Asked,
) -> Result<&'a Step, String> {
    let step = progress.next(script, incoming.parts.format, asked)?;
    let complaints = step.expect.complaints(asked, incoming.body);
    if complaints.is_empty() {
        Ok(step)
    } else {
        Err(format!("the script expected another request: {}", complaints.join("; ")))
    }
}

fn said(format: Format, reply: &Reply) -> Decision {
    let (wire, step) = (format.wire(), reply.step);
    let (content_type, frames) = match reply.asked.delivery {
        Delivery::Whole => ("application/json", vec![wire.whole(reply).to_string()]),
        Delivery::Streamed => {
            let comments = format.comments(step.pace.comments);
            (format.stream_type(), comments.into_iter().chain(wire.stream(reply)).collect())
        }
    };
    // In a whole response the provider's error replaces the body; it is no event.
    let error = |failure: &Failure| match reply.asked.delivery {
        Delivery::Whole => vec![wire.error(failure).to_string()],
        Delivery::Streamed => wire.error_event(reply, failure),
    };
    let pieces = step.pace.pieces(befall(frames, step.fault.as_ref(), error));
    answered(content_type, step.pace, pieces)
}

fn answered(content_type: &'static str, pace: Pace, pieces: Vec<Piece>) -> Decision {
    let outcome = Outcome::Answered(200);
    Decision { status: 200, content_type, retry_after_seconds: None, pace, pieces, outcome }
}

fn failed(format: Format, pace: Pace, failure: &Failure) -> Decision {
    let body = body_of(failure, |failure| format.wire().error(failure));
    let content_type = if failure.raw.is_some() { "text/html" } else { "application/json" };
    Decision {
        status: failure.status,
        content_type,
        retry_after_seconds: failure.retry_after_seconds,
        pace,
        pieces: vec![Piece::Bytes(body.into_bytes())],
        outcome: Outcome::Answered(failure.status),
    }
}

fn refused(format: Format, failure: &Failure) -> Decision {
    Decision {
        outcome: Outcome::Refused(failure.message.clone()),
        ..failed(format, Pace::default(), failure)
    }
}
