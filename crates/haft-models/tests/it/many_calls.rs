//! Replies with far more calls than a run makes.

use haft_core::conversation::ModelApiFormat;
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::{CALLS_PER_REPLY_MAX, ModelReply};
use haft_models::DecodeContext;
use serde_json::{Value, json};

use crate::fixture::{fold, read_stream, wire};

const CALLS: usize = 100_000;

/// This number is smaller than for a whole reply, because a test build needs more time for each frame.
const STREAMED_CALLS: usize = 20_000;

fn whole(format: ModelApiFormat, calls: usize) -> Vec<u8> {
    let list = |call: &dyn Fn(usize) -> Value| Value::Array((0..calls).map(call).collect());
    let chat = |n: usize| json!({"id": format!("c{n}"), "function": {"name": "f", "arguments": "{}"}});
    let body = match format {
        ModelApiFormat::OpenaiChat => {
            json!({"choices": [{"message": {"content": "text", "tool_calls": list(&chat)}, "finish_reason": "stop"}]})
        }
        ModelApiFormat::OpenaiResponses => {
            let mut output = list(
                &|n| json!({"type": "function_call", "call_id": format!("c{n}"), "name": "f", "arguments": "{}"}),
            );
            let text = json!({"type": "message", "content": [{"type": "output_text", "text": "text"}]});
            output.as_array_mut().unwrap().push(text);
            json!({"status": "completed", "output": output})
        }
        ModelApiFormat::Anthropic => {
            let mut content =
                list(&|n| json!({"type": "tool_use", "id": format!("c{n}"), "name": "f", "input": {}}));
            content.as_array_mut().unwrap().push(json!({"type": "text", "text": "text"}));
            json!({"content": content, "stop_reason": "tool_use"})
        }
        ModelApiFormat::Gemini => {
            let mut parts = list(&|_| json!({"functionCall": {"name": "f", "args": {}}}));
            parts.as_array_mut().unwrap().push(json!({"text": "text"}));
            json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
        }
        ModelApiFormat::Ollama => {
            let calls = list(&|_| json!({"function": {"name": "f", "arguments": {}}}));
            json!({"message": {"content": "text", "tool_calls": calls}, "done": true})
        }
    };
    body.to_string().into_bytes()
}

/// Returns a stream with one frame per step of a call, as providers send it.
fn streamed(format: ModelApiFormat, calls: usize) -> Vec<u8> {
    let frames = |n: usize| match format {
        ModelApiFormat::OpenaiChat => vec![
            json!({"choices": [{"delta": {"tool_calls": [{"index": n, "id": format!("c{n}"), "function": {"name": "f", "arguments": ""}}]}}]}),
            json!({"choices": [{"delta": {"tool_calls": [{"index": n, "function": {"arguments": "{}"}}]}}]}),
        ],
        ModelApiFormat::OpenaiResponses => {
            let item = json!({"type": "function_call", "id": format!("i{n}"), "call_id": format!("c{n}"), "name": "f", "arguments": "{}"});
            vec![
                json!({"type": "response.output_item.added", "output_index": n, "item": item}),
                json!({"type": "response.function_call_arguments.delta", "output_index": n, "delta": "{}"}),
                json!({"type": "response.output_item.done", "output_index": n, "item": item}),
            ]
        }
        ModelApiFormat::Anthropic => vec![
            json!({"type": "content_block_start", "index": n, "content_block": {"type": "tool_use", "id": format!("c{n}"), "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": n, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
            json!({"type": "content_block_stop", "index": n}),
        ],
        ModelApiFormat::Gemini => {
            vec![
                json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}),
            ]
        }
        ModelApiFormat::Ollama => {
            vec![json!({"message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}})]
        }
    };
    let last = match format {
        ModelApiFormat::OpenaiChat => json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
        ModelApiFormat::OpenaiResponses => {
            json!({"type": "response.completed", "response": {"status": "completed", "output": []}})
        }
        ModelApiFormat::Anthropic => json!({"type": "message_stop"}),
        ModelApiFormat::Gemini => json!({"candidates": [{"finishReason": "STOP"}]}),
        ModelApiFormat::Ollama => json!({"done": true}),
    };
    let frame = |frame: Value| match format {
        ModelApiFormat::Ollama => format!("{frame}\n"),
        ModelApiFormat::OpenaiChat
        | ModelApiFormat::OpenaiResponses
        | ModelApiFormat::Anthropic
        | ModelApiFormat::Gemini => format!("data: {frame}\n\n"),
    };
    (0..calls).flat_map(frames).chain([last]).map(frame).collect::<String>().into_bytes()
}

fn check(reply: &ModelReply, calls: usize, from: &str) {
    assert_eq!(reply.calls().count(), CALLS_PER_REPLY_MAX, "{from}");
    let notes: Vec<String> = reply.notes.iter().map(ToString::to_string).collect();
    let expected = format!("the reply has {calls} calls; haft keeps only the first {CALLS_PER_REPLY_MAX}");
    assert_eq!(
        notes.iter().filter(|note| note.ends_with(&expected)).count(),
        1,
        "{from}: {:?}",
        notes.last()
    );
}

#[test]
fn whole_reply_with_100_000_calls_keeps_only_the_first_thousand() {
    for format in ModelApiFormat::ALL {
        let asked = DecodeContext { turn: 1, ..DecodeContext::default() };
        let reply = wire(format).decode(&whole(format, CALLS), &asked).unwrap();
        check(&reply, CALLS, format.name());
        assert_eq!(reply.text(), "text", "{}", format.name());
    }
}

/// The decoder emits no event for a call that is left out, so later code does not parse, store or count the call.
#[test]
fn stream_with_20_000_calls_has_events_only_for_the_first_thousand() {
    for format in ModelApiFormat::ALL {
        let events = read_stream(wire(format), [streamed(format, STREAMED_CALLS).as_slice()]);
        let of_calls = |event: &&ModelEvent| {
            matches!(
                event,
                ModelEvent::PartStarted { .. }
                    | ModelEvent::PartDelta { .. }
                    | ModelEvent::PartFinished { .. }
            )
        };
        let count = events.iter().filter(of_calls).count();
        assert_eq!(count, 3 * CALLS_PER_REPLY_MAX, "{}", format.name());
        assert!(events.len() < 6 * CALLS_PER_REPLY_MAX + 100, "{}: {}", format.name(), events.len());
        check(&fold(events), STREAMED_CALLS, format.name());
    }
}
