//! What a turn costs to encode: late in a conversation as early, but for the copy of what was encoded before.

#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use haft_core::arguments::Arguments;
use haft_core::conversation::{Body, Conversation, Message, Part, ToolReply};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::tool::{CallId, ToolCall};
use haft_models::anthropic::Anthropic;
use haft_models::gemini::Gemini;
use haft_models::ollama::Ollama;
use haft_models::openai_chat::{OpenaiChat, dialect};
use haft_models::openai_responses::OpenaiResponses;
use haft_models::{Delivery, Memo, WireFormat};
use serde_json::json;

/// One turn: a model's text and call, and a reply of 2 KB.
fn turn(number: usize) -> [Message; 2] {
    let call = ToolCall {
        id: CallId(format!("call_{number}")),
        name: "read".into(),
        arguments: Arguments::from_text(r#"{"path": "/src/lib.rs", "offset": 10, "limit": 200}"#),
    };
    let reply = ToolReply::text(&call, "a line of a file\n".repeat(120));
    let said = vec![Part::text("I look at the next file."), Part::new(Body::Call(call))];
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
    };
    (0..50).map(tool).collect()
}

/// The last turn of a conversation of `turns`, with everything before it kept.
fn last_turn(bench: &mut Criterion, name: &str, wire: &dyn WireFormat, turns: usize) {
    let tools = tools();
    let after = request(turns, &tools);
    // The same messages, not equal ones, are what a memo knows again.
    let mut before = Conversation::default();
    let all = after.conversation.messages();
    for message in &all[..all.len() - 2] {
        before.push(Message::clone(message)).unwrap();
    }
    let before = ModelRequest { conversation: Arc::new(before), ..after.clone() };
    let mut grown = Conversation::clone(&before.conversation);
    for message in &all[all.len() - 2..] {
        grown.push(Message::clone(message)).unwrap();
    }
    let after = ModelRequest { conversation: Arc::new(grown), ..after };
    let bytes = wire.encode(&after, Delivery::Streamed, &mut Memo::default()).body;
    let mut group = bench.benchmark_group(format!("encode/{name}"));
    group.throughput(Throughput::Bytes(bytes.len() as u64)).sample_size(40);
    let kept = || {
        let mut memo = Memo::default();
        wire.encode(&before, Delivery::Streamed, &mut memo);
        memo
    };
    group.bench_function(format!("turn {turns}"), |bencher| {
        bencher.iter_batched_ref(
            kept,
            |memo| black_box(wire.encode(black_box(&after), Delivery::Streamed, memo)),
            BatchSize::PerIteration,
        );
    });
    group.bench_function(format!("copy of the bytes of turn {turns}"), |bencher| {
        bencher.iter_batched(|| (), |()| black_box(bytes.clone()), BatchSize::PerIteration);
    });
    group.finish();
}

fn encode(bench: &mut Criterion) {
    let chat = OpenaiChat(&dialect::OPENAI);
    let wires: [(&str, &dyn WireFormat); 5] = [
        ("openai_chat", &chat),
        ("openai_responses", &OpenaiResponses),
        ("anthropic", &Anthropic),
        ("gemini", &Gemini),
        ("ollama", &Ollama),
    ];
    for (name, wire) in wires {
        last_turn(bench, name, wire, 10);
        last_turn(bench, name, wire, 1000);
    }
}

criterion_group!(benches, encode);
criterion_main!(benches);
