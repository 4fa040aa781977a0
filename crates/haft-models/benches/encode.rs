//! Measures the cost of encoding one turn. Apart from copying the encoded bytes, this cost must not grow with the
//! conversation.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics at the first error, and prints its results"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::arguments::RawArguments;
use haft_core::conversation::{Conversation, Message, MessagePart, PartBody, ToolReply};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::tool::{CallId, ToolCall};
use haft_models::anthropic::ANTHROPIC;
use haft_models::gemini::GEMINI;
use haft_models::ollama::OLLAMA;
use haft_models::openai_chat::{OpenaiChat, dialect};
use haft_models::openai_responses::OPENAI_RESPONSES;
use haft_models::{EncodeMemo, ReplyDelivery, WireFormat};
use serde_json::json;

/// The maximum ratio of the cost of a late turn to the cost of an early turn. The cost of copying the bytes of the late
/// turn does not count.
const RATIO_MAX: f64 = 1.3;

const ROUNDS: usize = 100;

/// Returns one turn: a text and a call from the model, and a tool result of 2 KB.
fn turn(number: usize) -> [Message; 2] {
    let call = ToolCall {
        id: CallId(format!("call_{number}")),
        name: "read".into(),
        arguments: RawArguments::from_text(r#"{"path": "/src/lib.rs", "offset": 10, "limit": 200}"#),
    };
    let reply = ToolReply::text(&call, "a line of a file\n".repeat(120));
    let said = vec![MessagePart::text("I look at the next file."), MessagePart::new(PartBody::Call(call))];
    [Message::assistant(said), Message::tool(vec![reply])]
}

fn request(turns: usize, tools: &Arc<[ModelTool]>) -> ModelRequest {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("Read everything.")).unwrap();
    for message in (0..turns).flat_map(turn) {
        conversation.push(message).unwrap();
    }
    let mut request = ModelRequest::new("m-1", Arc::new(conversation));
    request.system = "You read files.".repeat(200).into();
    request.tools = tools.clone();
    request
}

fn tools() -> Arc<[ModelTool]> {
    let schema = Arc::new(
        json!({"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}),
    );
    let tool = |number: usize| ModelTool {
        name: format!("tool_{number}"),
        description: "Does something, and says so at some length, as tools do.".into(),
        input_schema: schema.clone(),
        strict: false,
    };
    (0..50).map(tool).collect()
}

/// Returns a request before and after its last turn. Both share their messages, so that the cache of encoded messages
/// recognizes them.
fn grown(turns: usize, tools: &Arc<[ModelTool]>) -> (ModelRequest, ModelRequest) {
    let after = request(turns, tools);
    let known = after.conversation.messages().len() - 2;
    let before = Arc::new(after.conversation.beginning(known).unwrap());
    (ModelRequest { conversation: before, ..after.clone() }, after)
}

/// The shortest times of many measurements. The minimum is used, because other load on the machine can only increase a
/// time.
#[derive(Clone, Copy)]
struct MinimumTimes {
    turn: Duration,
    copy: Duration,
}

fn measure(wire: &dyn WireFormat, turns: usize) -> MinimumTimes {
    let (before, after) = grown(turns, &tools());
    let mut least = MinimumTimes { turn: Duration::MAX, copy: Duration::MAX };
    for _ in 0..ROUNDS {
        let mut memo = EncodeMemo::default();
        drop(wire.encode(&before, ReplyDelivery::Streamed, &mut memo));
        let began = Instant::now();
        let encoded = black_box(wire.encode(black_box(&after), ReplyDelivery::Streamed, &mut memo));
        least.turn = least.turn.min(began.elapsed());
        let began = Instant::now();
        let copy = black_box(encoded.body.clone());
        least.copy = least.copy.min(began.elapsed());
        drop(copy);
    }
    least
}

/// Fails if encoding a late turn costs more than allowed.
fn main() -> ExitCode {
    let chat = OpenaiChat(&dialect::OPENAI);
    let wires: [(&str, &dyn WireFormat); 5] = [
        ("openai_chat", &chat),
        ("openai_responses", &OPENAI_RESPONSES),
        ("anthropic", &ANTHROPIC),
        ("gemini", &GEMINI),
        ("ollama", &OLLAMA),
    ];
    println!(
        "{:<18} {:>10} {:>10} {:>10} {:>10}  of it",
        "format", "turn 10", "turn 1000", "its copy", "allowed"
    );
    let mut worst: f64 = 0.0;
    for (name, wire) in wires {
        let (early, late) = (measure(wire, 10), measure(wire, 1000));
        let allowed = early.turn.mul_f64(RATIO_MAX) + late.copy;
        let part = late.turn.as_secs_f64() / allowed.as_secs_f64();
        worst = worst.max(part);
        let us = |time: Duration| format!("{} us", time.as_micros());
        let (early, turn, copy, allowed) = (us(early.turn), us(late.turn), us(late.copy), us(allowed));
        println!("{name:<18} {early:>10} {turn:>10} {copy:>10} {allowed:>10}  {:.0} %", part * 100.0);
    }
    if worst <= 1.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
