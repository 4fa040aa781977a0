//! Tests of clients that send a request again after their connection was cut: tools run only once.

use std::thread;

use haft_model_server::{Script, ScriptStep};
use haft_testkit::{CutProxy, eventually};
use serde_json::{Value, json};

use super::fixture::TestServer;
use super::responses::python_with;
use super::tool_server::ToolServer;

/// Runs a part of the Python program through a proxy that cuts the connection while the tool runs. Returns the output of
/// the program and the requests that the client sent, one for each connection.
fn cut_during_a_call(part: &str, tools: &ToolServer) -> (Value, Vec<String>) {
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Noted.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let proxy = CutProxy::start(&server.url);
    tools.hold_calls();
    let url = proxy.url();
    let seen = thread::scope(|scope| {
        // This value of `SERVER` replaces the URL of the server that `python_with` sets.
        let client = scope.spawn(|| python_with(&server, part, &[("SERVER", &url), ("MODEL", "openai/m")]));
        eventually("the tool has begun", || tools.calls().len() == 1);
        proxy.cut();
        eventually("the client has connected again", || proxy.requests().len() == 2);
        tools.release_calls();
        client.join().unwrap()
    });
    (seen, proxy.requests())
}

/// Returns the value of a header in the text of a request.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let lines = request.lines().take_while(|line| !line.is_empty());
    let mut headers = lines.filter_map(|line| line.split_once(": "));
    headers.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn official_client_retries_after_a_cut_connection_and_the_tool_runs_once() {
    let tools = ToolServer::start();
    let (seen, requests) = cut_during_a_call("retry", &tools);
    assert_eq!(
        (&seen["text"], &seen["types"]),
        (&json!("Noted."), &json!(["mcp_call", "message"])),
        "{seen}"
    );
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
    let sent: Vec<_> = requests
        .iter()
        .map(|text| (header(text, "x-stainless-retry-count"), header(text, "idempotency-key")))
        .collect();
    assert_eq!(sent, [(Some("0"), Some("note-1")), (Some("1"), Some("note-1"))]);
}

#[test]
fn automatic_retry_without_an_idempotency_key_does_not_run_the_tool_again() {
    let tools = ToolServer::start();
    let (seen, requests) = cut_during_a_call("retry_without_key", &tools);
    assert_eq!(seen["code"], "retry_repeats_tools", "{seen}");
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
    let sent: Vec<_> = requests.iter().map(|text| header(text, "x-stainless-retry-count")).collect();
    assert_eq!(sent, [Some("0"), Some("1")], "the client does not retry the refusal");
}

#[test]
fn repeated_request_after_a_cut_stream_gets_the_whole_stream_and_the_tool_runs_once() {
    let tools = ToolServer::start();
    let (seen, _) = cut_during_a_call("stream_retry", &tools);
    let attempts = seen["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{seen}");
    assert_ne!(attempts[0]["error"], Value::Null, "the client reports the cut: {seen}");
    let kinds = |attempt: &Value| attempt["kinds"].as_array().unwrap().clone();
    let (cut, whole) = (kinds(&attempts[0]), kinds(&attempts[1]));
    assert!(!cut.is_empty() && whole.starts_with(&cut), "{seen}");
    assert_eq!(whole.last(), Some(&json!("response.completed")), "{seen}");
    assert_eq!(attempts[0]["ids"][0], attempts[1]["ids"][0]);
    assert_eq!(seen["again"].as_array().unwrap().last(), Some(&json!("response.completed")), "{seen}");
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
}
