//! Tests of the order of stream frames, as each provider documents it.

use haft_model_server::{ModelServer, ResponsePace, Script, ScriptPart, ScriptStep};
use serde_json::{Value, json};

use crate::connection::post;

/// Returns the frames of a reply with reasoning, text and a call, each in one delta.
fn frames(path: &str, body: &Value) -> Vec<Value> {
    let parts = [
        ScriptPart::reasoning("hm", "s"),
        ScriptPart::Text("Hello".to_owned()),
        ScriptPart::call("f", json!({ "a": 1 })),
    ];
    let whole = ResponsePace { delta_characters: Some(100), ..ResponsePace::default() };
    let server = ModelServer::start(Script::of([ScriptStep::say(parts).at_pace(whole)])).unwrap();
    let body = post(&server, path, body).body();
    let lines = body.lines().filter(|line| !line.is_empty() && !line.starts_with("event: "));
    let values =
        lines.map(|line| line.strip_prefix("data: ").unwrap_or(line)).filter(|line| *line != "[DONE]");
    values.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn chat() -> Value {
    json!({ "model": "m", "stream": true, "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] })
}

#[test]
fn responses_stream_opens_and_closes_every_item_and_part() {
    let frames = frames("/v1/responses", &json!({ "model": "m", "stream": true, "input": "Hi" }));
    assert_eq!(
        types(&frames),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<usize> = frames
        .iter()
        .map(|frame| usize::try_from(frame["sequence_number"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(numbers, (0..frames.len()).collect::<Vec<_>>());
    let items: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["type"] == "response.output_item.done")
        .map(|frame| &frame["item"])
        .collect();
    assert_eq!(
        json!(items),
        frames[18]["response"]["output"],
        "the last event repeats the items of the earlier events"
    );
}

#[test]
fn anthropic_stream_opens_and_closes_every_block() {
    let frames = frames("/v1/messages", &chat());
    let block = |deltas: usize| {
        [vec!["content_block_start"], vec!["content_block_delta"; deltas], vec!["content_block_stop"]]
            .concat()
    };
    let expected =
        [vec!["message_start", "ping"], block(2), block(1), block(2), vec!["message_delta", "message_stop"]];
    assert_eq!(types(&frames), expected.concat());
}

#[test]
fn chat_stream_names_a_call_once_and_ends_with_the_finish_reason() {
    let frames = frames("/v1/chat/completions", &chat());
    let choices: Vec<&Value> = frames.iter().map(|frame| &frame["choices"][0]).collect();
    assert_eq!(choices[1]["delta"], json!({ "reasoning_content": "hm" }));
    assert_eq!(choices[2]["delta"], json!({ "content": "Hello" }));
    assert_eq!(choices[3]["delta"]["tool_calls"][0]["id"], "call_0_0");
    assert_eq!(
        choices[4]["delta"],
        json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "{\"a\":1}" } }] })
    );
    let reasons: Vec<&Value> = choices.iter().map(|choice| &choice["finish_reason"]).collect();
    assert_eq!(json!(reasons), json!([null, null, null, null, null, "tool_calls"]));
}

#[test]
fn gemini_stream_has_the_signature_in_the_part_after_the_thought() {
    let body = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] });
    let frames = frames("/v1beta/models/m:streamGenerateContent?alt=sse", &body);
    let parts: Vec<&Value> =
        frames.iter().map(|frame| &frame["candidates"][0]["content"]["parts"][0]).collect();
    let expected = json!([
        { "text": "hm", "thought": true },
        { "text": "Hello", "thoughtSignature": "s" },
        { "functionCall": { "name": "f", "args": { "a": 1 } } },
        { "text": "" },
    ]);
    assert_eq!(json!(parts), expected);
    let reasons: Vec<&Value> = frames.iter().map(|frame| &frame["candidates"][0]["finishReason"]).collect();
    assert_eq!(json!(reasons), json!([null, null, null, "STOP"]));
}

#[test]
fn ollama_stream_sets_done_only_in_the_last_line() {
    let frames = frames("/api/chat", &chat());
    let done: Vec<&Value> = frames.iter().map(|frame| &frame["done"]).collect();
    assert_eq!(json!(done), json!([false, false, false, true]));
    assert_eq!(frames[2]["message"]["tool_calls"][0]["function"]["name"], "f");
    assert_eq!(frames[3]["eval_count"], 5);
}
