//! Finds the calls in what a model wrote.

use haft_core::arguments::Arguments;
use haft_core::conversation::{Body, Part};
use haft_core::model_reply::{ModelReply, StopReason};
use haft_core::tool::{CallId, ToolCall};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CLOSE, OPEN};
use crate::call_id;
use crate::wire::Asked;

/// More calls than this in one reply are a model that repeats itself.
const CALLS_MAX: usize = 64;

/// The reply with its tagged texts as calls. A tag that holds no call stays text.
pub fn read_calls(mut reply: ModelReply, asked: &Asked) -> ModelReply {
    let mut calls = 0;
    let mut parts = Vec::new();
    for part in std::mem::take(&mut reply.parts) {
        match &part.body {
            Body::Text { text, .. } if text.contains(OPEN) => split(text, asked, &mut calls, &mut parts),
            Body::Text { .. }
            | Body::Refusal(_)
            | Body::Image(_)
            | Body::Audio(_)
            | Body::File { .. }
            | Body::Reasoning(_)
            | Body::Call(_)
            | Body::Reply(_)
            | Body::Opaque => parts.push(part),
        }
    }
    reply.parts = parts;
    if calls > 0 && reply.stop == StopReason::EndOfTurn {
        reply.stop = StopReason::ToolCalls;
    }
    reply
}

fn split(text: &str, asked: &Asked, calls: &mut usize, parts: &mut Vec<Part>) {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, tagged)) = rest.split_once(OPEN).filter(|_| *calls < CALLS_MAX) {
        // A model that stops right after its call may leave the end tag out.
        let (inside, after) = tagged.split_once(CLOSE).unwrap_or((tagged, ""));
        plain.push_str(before);
        match call(inside, asked, *calls) {
            Some(call) => {
                push_text(parts, &plain);
                plain.clear();
                parts.push(Part::new(Body::Call(call)));
                *calls += 1;
            }
            None => plain.push_str(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    plain.push_str(rest);
    push_text(parts, &plain);
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.trim().is_empty() {
        parts.push(Part::text(text.trim()));
    }
}

fn call(inside: &str, asked: &Asked, number: usize) -> Option<ToolCall> {
    #[derive(Deserialize)]
    struct Written<'a> {
        name: String,
        #[serde(borrow, alias = "parameters")]
        arguments: Option<&'a RawValue>,
    }
    let written: Written<'_> = serde_json::from_str(inside.trim()).ok()?;
    let arguments = Arguments::from_text(written.arguments.map_or("{}", RawValue::get));
    let id = CallId(call_id::made_up(asked.turn, number));
    Some(ToolCall { id, name: written.name, arguments })
}
