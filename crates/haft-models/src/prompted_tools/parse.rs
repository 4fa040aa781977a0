//! Finds tool calls in a model's text.

use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::conversation::{MessagePart, PartBody};
use haft_core::model_reply::{ModelReply, ReplyNote, StopReason};
use haft_core::tool::{CallId, ToolCall};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{CLOSE, OPEN};
use crate::call_id;
use crate::wire::DecodeContext;

/// The maximum number of calls in one reply. A reply with more calls comes from a model that repeats itself.
const CALLS_MAX: usize = 64;

/// Returns the reply with its tagged texts converted to calls. A tag without a valid call stays text, and a note
/// reports it.
pub fn read_calls(mut reply: ModelReply, decode_context: &DecodeContext) -> ModelReply {
    let mut found = ParsedText::default();
    for part in std::mem::take(&mut reply.parts) {
        match part.as_text() {
            Some(text) if text.contains(OPEN) => found.split(text, decode_context),
            Some(_) | None => found.parts.push(part),
        }
    }
    reply.parts = found.parts;
    reply.notes.append(&mut found.notes);
    if found.calls > 0 && reply.stop == StopReason::EndOfTurn {
        reply.stop = StopReason::ToolCalls;
    }
    reply
}

/// The message parts and notes found so far.
#[derive(Default)]
struct ParsedText {
    parts: Vec<MessagePart>,
    calls: usize,
    notes: Vec<ReplyNote>,
}

impl ParsedText {
    fn split(&mut self, text: &str, decode_context: &DecodeContext) {
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, tagged)) = rest.split_once(OPEN).filter(|_| self.calls < CALLS_MAX) {
            // Accept a call without its closing tag, because a model that stops right after its call may omit the tag.
            let (inside, after) = tagged.split_once(CLOSE).unwrap_or((tagged, ""));
            plain.push_str(before);
            match written(inside) {
                Ok(ParsedCall { name, arguments, repairs }) => {
                    self.text(&plain);
                    plain.clear();
                    if !repairs.is_empty() {
                        let how = repairs.join(", ");
                        self.notes.push(ReplyNote::CallRepaired { name: name.clone(), how });
                    }
                    let id = CallId(call_id::generate_call_id(decode_context.turn, self.calls));
                    self.parts.push(MessagePart::new(PartBody::Call(ToolCall { id, name, arguments })));
                    self.calls += 1;
                }
                Err(problem) => {
                    self.notes.push(ReplyNote::CallUnread { problem });
                    plain.push_str(&rest[before.len()..rest.len() - after.len()]);
                }
            }
            rest = after;
        }
        plain.push_str(rest);
        self.text(&plain);
    }

    fn text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.parts.push(MessagePart::text(text.trim()));
        }
    }
}

/// A parsed call, with the repairs that it needed.
struct ParsedCall {
    name: String,
    arguments: RawArguments,
    repairs: Vec<&'static str>,
}

/// Parses a call. Valid JSON is parsed strictly, which keeps the model's own bytes; any other text gets the same
/// repairs as tool arguments.
fn written(inside: &str) -> Result<ParsedCall, String> {
    #[derive(Deserialize)]
    struct StrictCall<'a> {
        name: String,
        #[serde(borrow, alias = "parameters")]
        arguments: Option<&'a RawValue>,
    }
    if let Ok(StrictCall { name, arguments }) = serde_json::from_str::<StrictCall<'_>>(inside.trim()) {
        let arguments = RawArguments::from_text(arguments.map_or("{}", RawValue::get));
        return Ok(ParsedCall { name, arguments, repairs: Vec::new() });
    }
    let read = RawArguments::from_text(inside).parse(&ArgumentLimits::default());
    let read = read.map_err(|error| error.to_string())?;
    if read.cut_off() {
        return Err("the JSON of the call is incomplete".into());
    }
    let named = read.object().get("name").and_then(Value::as_str).ok_or("the call has no `name`")?;
    let arguments = ["arguments", "parameters"].iter().find_map(|key| read.object().get(*key));
    let arguments = arguments.map_or_else(|| RawArguments::from_text("{}"), RawArguments::from_value);
    Ok(ParsedCall { name: named.to_owned(), arguments, repairs: read.repairs().to_vec() })
}
