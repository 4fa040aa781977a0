//! Tests of the example in the README.

use haft_model_server::{ModelServer, Script};
use serde_json::{Value, json};

use crate::connection::post;

fn example() -> String {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("```jsonc\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

fn said(server: &ModelServer, messages: &Value) -> (u16, Value) {
    let tool = json!({ "type": "function", "function": { "name": "weather" } });
    let body = json!({ "model": "small", "messages": messages, "tools": [tool] });
    let came = post(server, "/v1/chat/completions", &body);
    (came.status, serde_json::from_str(&came.body()).unwrap())
}

#[test]
fn readme_example_script_runs_as_described() {
    let server = ModelServer::start(Script::parse(&example()).unwrap()).unwrap();
    let mut messages = json!([{ "role": "user", "content": "How is the weather in Paris and Rome?" }]);
    assert_eq!(said(&server, &messages).0, 429);
    let calls = said(&server, &messages).1["choices"][0]["message"].clone();
    assert_eq!(calls["tool_calls"][1]["function"]["arguments"], "{\"city\":\"Rome\"}");
    let results = ["21", "25"].into_iter().zip(calls["tool_calls"].as_array().unwrap());
    let results =
        results.map(|(text, call)| json!({ "role": "tool", "tool_call_id": call["id"], "content": text }));
    messages.as_array_mut().unwrap().extend([calls.clone()].into_iter().chain(results));
    let (status, answer) = said(&server, &messages);
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!("Rome is warmer.")));
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 80);
    let (_, other) = said(&server, &json!([{ "role": "user", "content": "Hello" }]));
    assert_eq!(other["choices"][0]["message"]["content"], "Ask me about the weather.");
}

#[test]
fn invalid_script_is_rejected_with_the_reason() {
    let check = |text: &str, words: &str| {
        let error = Script::parse(text).unwrap_err();
        assert!(error.contains(words), "{error}");
    };
    check("{", "not JSON");
    check("{}", "the script is empty; add `steps` or `conversations`");
    check("{ \"steps\": [{ \"sya\": [] }] }", "unknown field `sya`");
    check("{ \"steps\": [{ \"say\": [{ \"txt\": \"\" }] }] }", "unknown variant `txt`");
}
