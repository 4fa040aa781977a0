//! Checks that the server rejects the requests that a provider rejects.

use haft_model_server::{
    ModelServer, RequestExpectation, RequestOutcome, RequestToolChoice, Script, ScriptStep,
};
use serde_json::{Value, json};

use crate::connection::{post, post_text};

/// Checks that a server with a permissive script still rejects this request, with this message.
#[track_caller]
fn check(path: &str, body: &Value, words: &str) {
    let server = ModelServer::start(Script::of([ScriptStep::text("one"), ScriptStep::text("two")])).unwrap();
    let came = post(&server, path, body);
    assert_eq!(came.status, 400, "{}", came.body());
    assert!(came.body().contains(words), "{}", came.body());
    assert!(matches!(&server.requests()[0].outcome, RequestOutcome::Refused(why) if why.contains(words)));
}

fn call(id: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } })
}

#[test]
fn chat_completions_reject_unpaired_calls_and_results() {
    let check = |messages: &Value, words: &str| {
        check("/v1/chat/completions", &json!({ "model": "m", "messages": messages }), words);
    };
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call("a"), call("b")] });
    let result = json!({ "role": "tool", "tool_call_id": "a", "content": "1" });
    check(&json!([calls, result]), "these calls have no tool result: b");
    check(&json!([result]), "a tool result names the call `a`, which does not exist");
    check(&json!([calls, result, result]), "the call `a` has a second tool result");
    let object = json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": {} } });
    check(&json!([{ "role": "assistant", "tool_calls": [object] }]), "arguments` must be a string");
    check(&json!([{ "role": "assistant", "content": null }]), "needs `content` or `tool_calls`");
}

#[test]
fn chat_completions_reject_empty_missing_or_misnamed_tools() {
    let base = |more: Value| {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let path = "/v1/chat/completions";
    check(path, &base(json!({ "tools": [] })), "[] is too short - 'tools'");
    check(path, &base(json!({ "tool_choice": "auto" })), "only allowed when 'tools' are specified");
    let named = json!([{ "type": "function", "function": { "name": "a.b" } }]);
    check(path, &base(json!({ "tools": named })), "tool name `a.b` must match");
}

#[test]
fn responses_reject_results_without_calls() {
    let output = json!({ "type": "function_call_output", "call_id": "a", "output": "1" });
    let body = json!({ "model": "m", "input": [output] });
    check("/v1/responses", &body, "a tool result names the call `a`, which does not exist");
}

#[test]
fn anthropic_rejects_requests_that_its_documentation_forbids() {
    let base = |messages: Value| json!({ "model": "m", "max_tokens": 9, "messages": messages });
    let user = json!({ "role": "user", "content": "Hi" });
    let turn = json!({ "role": "assistant", "content": [
        { "type": "tool_use", "id": "a", "name": "f", "input": {} },
    ] });
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": "1" });
    let text = json!({ "type": "text", "text": "so" });
    let path = "/v1/messages";
    check(path, &json!({ "model": "m", "messages": [user] }), "max_tokens: field required");
    check(path, &base(json!([turn])), "the first message must use the user role");
    check(path, &base(json!([user, turn])), "these calls have no tool result: a");
    let late = json!([user, turn, { "role": "user", "content": [text, result] }]);
    check(path, &base(late), "tool_result blocks must come first");
    let unsigned = json!({ "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm" }] });
    check(path, &base(json!([user, unsigned])), "thinking.signature: field required");
    let marked = json!({ "type": "text", "text": "so", "cache_control": { "type": "ephemeral" } });
    let many = json!([{ "role": "user", "content": [marked, marked, marked, marked, marked] }]);
    check(path, &base(many), "a maximum of 4 blocks with cache_control");
}

#[test]
fn gemini_rejects_unknown_fields_and_unpaired_function_responses() {
    let path = "/v1beta/models/m:generateContent";
    let user = json!({ "role": "user", "parts": [{ "text": "Hi" }] });
    let called = json!({ "functionCall": { "name": "f", "args": {} } });
    let answer = json!({ "functionResponse": { "name": "f", "response": { "result": 1 } } });
    let twice =
        json!([user, { "role": "model", "parts": [called, called] }, { "role": "user", "parts": [answer] }]);
    check(path, &json!({ "contents": twice }), "number of function response parts is equal");
    check(path, &json!({ "contents": [user], "messages": [] }), "Unknown name");
    check(
        path,
        &json!({ "contents": [user], "tools": [{ "functionDeclarations": [] }] }),
        "should not be empty",
    );
    let strict = json!({ "name": "f", "parameters": { "type": "object", "additionalProperties": false } });
    let body = json!({ "contents": [user], "tools": [{ "functionDeclarations": [strict] }] });
    check(path, &body, "function_declarations[0].parameters: unknown name");
}

#[test]
fn ollama_rejects_string_arguments() {
    let message = json!({ "role": "assistant", "content": "", "tool_calls": [call("a")] });
    check("/api/chat", &json!({ "model": "m", "messages": [message] }), "cannot unmarshal string");
}

#[test]
fn body_that_is_not_a_json_object_is_rejected() {
    let deep = "[".repeat(100_000);
    for path in PATHS {
        for (body, words) in
            [("{\"model\":", "not JSON"), (deep.as_str(), "not JSON"), ("\"hi\"", "not an object")]
        {
            let server = ModelServer::start(Script::of([ScriptStep::text("one")])).unwrap();
            let came = post_text(&server, path, body);
            assert_eq!(came.status, 400, "{path}");
            assert!(came.body().contains(words), "{path}: {}", came.body());
        }
    }
}

const PATHS: [&str; 5] =
    ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models/m:generateContent", "/api/chat"];

#[test]
fn failed_expectation_reports_every_difference() {
    let expect = RequestExpectation {
        tools: Some(vec!["read".to_owned()]),
        tool_choice: Some(RequestToolChoice::Required),
        system: Some("be brief".to_owned()),
        body_contains: vec!["seed".to_owned()],
        ..RequestExpectation::default()
    };
    let server = ModelServer::start(Script::of([ScriptStep::text("no").expecting(expect)])).unwrap();
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let came = post(&server, "/v1/chat/completions", &body);
    assert_eq!(came.status, 400);
    let told = [
        "the list of offered tools should be [\\\"read\\\"]; found []",
        "the tool choice should be Required; found Auto",
        "the system text should contain `be brief`; found ``",
        "the request body should contain `seed`",
    ];
    for words in told {
        assert!(came.body().contains(words), "{words}: {}", came.body());
    }
}
