//! Responses of several turns: limits, a full context, calls of client and server, and the choice of the model.

use std::time::Duration;

use haft_model_server::{Script, ScriptPart, ScriptStep, ScriptUsage, StepOrder};
use haft_testkit::eventually;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::TestServer;
use super::responses::{ask, events, post, text};
use super::tool_server::ToolServer;

fn add(number: usize) -> ScriptStep {
    ScriptStep::call("docs__add", json!({ "n": number }))
}

fn with_docs(fields: &Value) -> Value {
    let mut body =
        json!({"model": "openai/m", "input": "Add.", "tools": [{"type": "mcp", "server_label": "docs"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Starts a server with an agent whose context window is full after the first reply.
fn small_window(tools: &ToolServer) -> TestServer {
    let agent =
        "---\nmodels: openai/m\ntools: [docs__add]\ncontextWindow: 8192\ncompaction: off\n---\nYou add.\n";
    let full = ScriptUsage { input: 8_100, ..ScriptUsage::default() };
    let script = Script::of([add(1).using(full), ScriptStep::text("Short.")]).in_order(StepOrder::Strict);
    TestServer::configured(script, &tools.config(), &[("adder", agent)])
}

#[test]
fn response_with_disabled_truncation_fails_if_the_context_is_full() {
    let tools = ToolServer::start();
    let server = small_window(&tools);
    let body = json!({"model": "adder", "input": "Go.", "truncation": "disabled"});
    let reply = post(&server, &body);
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["code"]), (400, &json!("context_length_exceeded")), "{error}");
    assert_eq!(error["type"], "invalid_request_error");
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
fn response_with_automatic_truncation_is_incomplete_if_the_context_is_full() {
    let tools = ToolServer::start();
    let server = small_window(&tools);
    let response = ask(&server, &json!({"model": "adder", "input": "Go.", "truncation": "auto"}));
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("context_full"))
    );
}

#[test]
fn response_at_its_maximum_of_tool_calls_is_incomplete_for_this_reason() {
    let tools = ToolServer::start();
    let script = Script::of([add(1), add(2), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let response = ask(&server, &with_docs(&json!({"max_tool_calls": 1})));
    assert_eq!(response["status"], "incomplete", "{response}");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_tool_calls"}));
    assert_eq!((tools.calls().len(), &response["max_tool_calls"]), (1, &json!(1)));
}

#[test]
fn setting_for_parallel_tool_calls_reaches_the_model() {
    let tools = ToolServer::start();
    let script = Script::of([add(1), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let response = ask(&server, &with_docs(&json!({"parallel_tool_calls": false})));
    assert_eq!((text(&response), &response["parallel_tool_calls"]), ("Done.", &json!(false)));
    for request in server.model.requests() {
        assert_eq!(request.body["parallel_tool_calls"], false, "{}", request.raw);
    }
    let response = ask(&server, &with_docs(&json!({})));
    assert_eq!(response["parallel_tool_calls"], true);
}

#[test]
fn server_calls_of_a_turn_run_before_its_client_calls() {
    let tools = ToolServer::start();
    let both = ScriptStep::say([
        ScriptPart::call("weather", json!({"town": "Oslo"})),
        ScriptPart::call("docs__add", json!({"n": 1})),
    ]);
    let script = Script::of([both, ScriptStep::text("Done.")]).in_order(StepOrder::Strict);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let offered = json!([{"type": "mcp", "server_label": "docs"}, {"type": "function", "name": "weather"}]);
    let first = ask(&server, &with_docs(&json!({"tools": offered})));
    assert_eq!((types(&first), &first["status"]), (vec!["mcp_call", "function_call"], &json!("completed")));
    assert_eq!((&first["output"][0]["output"], tools.calls().len()), (&json!("noted"), 1));
    let id = &first["output"][1]["call_id"];
    let output = json!({"type": "function_call_output", "call_id": id, "output": "31 degrees"});
    let more = json!({"tools": offered, "previous_response_id": first["id"], "input": [output]});
    assert_eq!(text(&ask(&server, &with_docs(&more))), "Done.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("noted") && sent.contains("31 degrees"), "{sent}");
    assert_eq!(tools.calls().len(), 1, "the call of the server is not repeated");
}

#[test]
fn fast_model_chooses_the_model_of_a_routed_response() {
    let models = json!({"default": "openai/m", "fast": "openai/small", "complex": "openai/large"});
    let server =
        TestServer::configured(Script::of([ScriptStep::text("complex")]), &json!({"models": models}), &[]);
    let listed = server.get("/v1/models").json();
    assert!(listed["data"].as_array().unwrap().iter().any(|model| model["id"] == "haft/route"), "{listed}");
    let response = ask(&server, &json!({"model": "haft/route", "input": "Prove it."}));
    assert_eq!((&response["model"], text(&response)), (&json!("haft/route"), "complex"));
    let asked = server.model.requests();
    let asked: Vec<&str> = asked.iter().map(|request| request.body["model"].as_str().unwrap()).collect();
    assert_eq!(asked, ["small", "large"]);
}

#[test]
fn calls_of_a_reply_run_one_by_one_if_the_request_forbids_parallel_calls() {
    let looks = || {
        let call = |number: u32| ScriptPart::call("docs__look", json!({ "n": number }));
        Script::of([ScriptStep::say([call(1), call(2), call(3)]), ScriptStep::text("Done.")])
    };
    let run = |tools: &ToolServer, fields: &Value| {
        let server = TestServer::configured(looks(), &tools.config(), &[]);
        let response = ask(&server, &with_docs(fields));
        assert_eq!((text(&response), tools.calls().len()), ("Done.", 3), "{response}");
    };
    // Parallel calls: all calls arrive while none may end.
    let tools = ToolServer::start();
    tools.hold_calls();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("all calls arrive", || tools.calls().len() == 3);
            tools.release_calls();
        });
        run(&tools, &json!({}));
    });
    // Each call is slow, so that calls that do not run one by one would overlap.
    let tools = ToolServer::start();
    tools.slow_down(Duration::from_millis(300));
    run(&tools, &json!({"parallel_tool_calls": false}));
    assert_eq!(tools.most_calls_at_once(), 1);
    assert_eq!(tools.calls(), [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]);
}
