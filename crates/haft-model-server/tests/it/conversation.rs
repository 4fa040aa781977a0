//! Tests of how steps are chosen: turns, concurrent runs, strict order.

use haft_model_server::{
    ErrorResponse, ModelServer, RequestExpectation, RequestOutcome, Script, ScriptStep, StepOrder,
};
use serde_json::{Value, json};

use crate::connection::post;

const RUNS: usize = 8;
const TURNS: usize = 5;

/// Runs several turns and returns the replies.
fn converse(server: &ModelServer, first: &str, turns: usize) -> Vec<String> {
    let mut messages = vec![json!({ "role": "user", "content": first })];
    let mut said = Vec::new();
    for _ in 0..turns {
        let text = ask(server, &messages);
        messages.push(json!({ "role": "assistant", "content": text }));
        messages.push(json!({ "role": "user", "content": "Go on" }));
        said.push(text);
    }
    said
}

fn ask(server: &ModelServer, messages: &[Value]) -> String {
    let came = post(server, "/v1/chat/completions", &json!({ "model": "m", "messages": messages }));
    let answer: Value = serde_json::from_str(&came.body()).unwrap();
    let said = answer["choices"][0]["message"]["content"].as_str().or(answer["error"]["message"].as_str());
    said.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn each_of_several_concurrent_runs_gets_all_steps_and_failures() {
    let turns = (0..TURNS).map(|turn| ScriptStep::text(&format!("turn {turn}")));
    let script = Script::of([ScriptStep::fail(ErrorResponse::new(503, "busy"))].into_iter().chain(turns));
    let server = ModelServer::start(script).unwrap();
    std::thread::scope(|scope| {
        for run in 0..RUNS {
            let server = &server;
            scope.spawn(move || {
                let first = format!("run {run}");
                assert_eq!(converse(server, &first, 1), ["busy"], "{first}");
                let expected: Vec<String> = (0..TURNS).map(|turn| format!("turn {turn}")).collect();
                assert_eq!(converse(server, &first, TURNS), expected, "{first}");
            });
        }
    });
    assert_eq!(server.requests().len(), RUNS * (TURNS + 1));
}

#[test]
fn strict_order_serves_steps_in_sequence_and_then_refuses() {
    let server = ModelServer::start(
        Script::of([ScriptStep::text("a"), ScriptStep::text("b")]).in_order(StepOrder::Strict),
    )
    .unwrap();
    let hello = [json!({ "role": "user", "content": "Hello" })];
    assert_eq!(ask(&server, &hello), "a");
    assert_eq!(ask(&server, &hello), "b");
    let over = "the script is at its end: the script has 2 steps, but this is request 3";
    assert_eq!(ask(&server, &hello), over);
    assert_eq!(server.requests()[2].outcome, RequestOutcome::Refused(over.to_owned()));
}

#[test]
fn several_tool_results_count_as_one_turn_in_every_format() {
    let twice = RequestExpectation {
        tool_results: Some(vec!["1".to_owned(), "2".to_owned()]),
        ..RequestExpectation::default()
    };
    let script = Script::of([ScriptStep::text("first"), ScriptStep::text("second").expecting(twice)]);
    let server = ModelServer::start(script).unwrap();
    for (path, body) in after_two_calls() {
        let came = post(&server, path, &body);
        assert!(came.status == 200 && came.body().contains("second"), "{path}: {}", came.body());
    }
}

/// Returns a request for each format. It follows a turn with text and two calls.
fn after_two_calls() -> [(&'static str, Value); 5] {
    let user = json!({ "role": "user", "content": "Hello" });
    let call =
        |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let spoke = json!({ "role": "assistant", "content": "hm", "tool_calls": [call("a"), call("b")] });
    let chat = json!({ "model": "m", "messages": [user, spoke, result("a", "1"), result("b", "2")] });

    let item = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
    let output =
        |id: &str, text: &str| json!({ "type": "function_call_output", "call_id": id, "output": text });
    let said = json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "hm" }] });
    let items = json!([user, said, item("a"), item("b"), output("a", "1"), output("b", "2")]);

    let tool_use = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let block = |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
    let anthropic = json!([
        user,
        { "role": "assistant", "content": [{ "type": "text", "text": "hm" }, tool_use("a"), tool_use("b")] },
        { "role": "user", "content": [block("a", "1"), block("b", "2")] },
    ]);

    let function = json!({ "functionCall": { "name": "f", "args": {} } });
    let answer = |text: &str| json!({ "functionResponse": { "name": "f", "response": { "result": text } } });
    let gemini = json!([
        { "role": "user", "parts": [{ "text": "Hello" }] },
        { "role": "model", "parts": [{ "text": "hm" }, function, function] },
        { "role": "user", "parts": [answer("1"), answer("2")] },
    ]);

    let named = json!({ "function": { "name": "f", "arguments": {} } });
    let tool = |text: &str| json!({ "role": "tool", "tool_name": "f", "content": text });
    let ollama = json!([user, { "role": "assistant", "content": "hm", "tool_calls": [named, named] }, tool("1"), tool("2")]);
    [
        ("/v1/chat/completions", chat),
        ("/v1/responses", json!({ "model": "m", "input": items })),
        ("/v1/messages", json!({ "model": "m", "max_tokens": 9, "messages": anthropic })),
        ("/v1beta/models/m:generateContent", json!({ "contents": gemini })),
        ("/api/chat", json!({ "model": "m", "stream": false, "messages": ollama })),
    ]
}
