//! Responses of several turns: limits, a full context, calls of client and server, and the choice of the model.

use haft_model_server::{Script, ScriptStep, StepOrder};
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::TestServer;
use super::responses::{ask, events, post};
use super::tool_server::ToolServer;

fn add(number: usize) -> ScriptStep {
    ScriptStep::call("docs__add", json!({ "n": number }))
}

/// Starts a server with an agent whose context window has space for a few tool outputs.
fn small_window(tools: &ToolServer) -> TestServer {
    let agent =
        "---\nmodels: openai/m\ntools: [docs__add]\ncontextWindow: 8192\ncompaction: off\n---\nYou add.\n";
    tools.answer_with(&"one two three four ".repeat(220));
    let script = Script::of((0..20).map(add)).in_order(StepOrder::Strict);
    TestServer::configured(script, &tools.config(), &[("adder", agent)])
}

#[test]
fn full_context_fails_a_response_with_disabled_truncation() {
    let tools = ToolServer::start();
    let server = small_window(&tools);
    let body = json!({"model": "adder", "input": "Go.", "truncation": "disabled"});
    let reply = post(&server, &body);
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["code"]), (400, &json!("context_length_exceeded")), "{error}");
    assert_eq!((&error["type"], tools.calls().len() > 2), (&json!("invalid_request_error"), true), "{error}");
    let server = small_window(&tools);
    let body = json!({"model": "adder", "input": "Go.", "truncation": "disabled", "stream": true});
    let streamed = events(&post(&server, &body));
    let kinds: Vec<&str> = streamed.iter().rev().take(2).map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["response.failed", "error"]);
    let last: Value = serde_json::from_str(&streamed.last().unwrap().1).unwrap();
    assert_eq!(last["response"]["error"]["code"], "context_length_exceeded");
    assert!(types(&last["response"]).contains(&"mcp_call"), "the partial output is kept: {last}");
}

#[test]
fn full_context_ends_a_response_with_automatic_truncation_as_incomplete() {
    let tools = ToolServer::start();
    let server = small_window(&tools);
    let response = ask(&server, &json!({"model": "adder", "input": "Go.", "truncation": "auto"}));
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("context_full"))
    );
}
