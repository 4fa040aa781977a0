//! Responses of several turns: limits, a full context, calls of client and server, and the choice of the model.

use std::time::Duration;

use haft_model_server::{Script, ScriptPart, ScriptStep, ScriptStop, ScriptUsage, StepOrder};
use haft_testkit::eventually;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::TestServer;
use super::open_responses::{check_stream, data};
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
        "---\nmodels: openai/m\ntools: [docs__add]\ncontextTokens: 8192\ncompaction: off\n---\nYou add.\n";
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
    assert_eq!(text(&response), "Done.", "the model answers in a last turn without tools");
    assert_eq!(response["output"].as_array().unwrap().last().unwrap()["status"], "completed");
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
    // Check that the calls run in parallel: all of them arrive at the tool server while it lets none of them end.
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

fn in_order(steps: impl IntoIterator<Item = ScriptStep>) -> Script {
    Script::of(steps).in_order(StepOrder::Strict)
}

fn cut(text: &str) -> ScriptStep {
    ScriptStep::text(text).stopping(ScriptStop::Length)
}

/// Returns the response to a request as one object, and the last object of its stream.
fn both_forms(start: impl Fn() -> TestServer, body: &Value) -> [Value; 2] {
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let stream = data(&events(&post(&start(), &streamed)));
    check_stream(&stream);
    [ask(&start(), body), stream.last().unwrap()["response"].clone()]
}

/// Checks that the output is one message with this text and this status.
#[track_caller]
fn check_message(response: &Value, expected: &str, status: &str) {
    let output = response["output"].as_array().unwrap();
    let messages: Vec<&Value> = output.iter().filter(|item| item["type"] == "message").collect();
    let found: Vec<(&str, &str)> = messages
        .iter()
        .map(|item| (item["content"][0]["text"].as_str().unwrap(), item["status"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(expected, status)], "{response}");
    assert_eq!(output.last().unwrap()["type"], "message", "{response}");
}

#[test]
fn reply_that_continues_at_the_token_limit_is_one_message() {
    let whole = || TestServer::start(in_order([cut("half "), ScriptStep::text("and whole")]));
    let body = json!({"model": "openai/m", "input": "x"});
    for response in both_forms(whole, &body) {
        check_message(&response, "half and whole", "completed");
        assert_eq!(response["status"], "completed");
    }
    let twice = || TestServer::start(in_order([cut("one "), cut("two")]));
    for response in both_forms(twice, &body) {
        check_message(&response, "one two", "incomplete");
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    }
}

#[test]
fn reasoning_of_a_continued_reply_does_not_split_its_message() {
    let start = || {
        let half = [ScriptPart::reasoning("First.", "s"), ScriptPart::Text("half ".into())];
        let rest = [ScriptPart::reasoning("Then.", "t"), ScriptPart::Text("and whole".into())];
        let half = ScriptStep::say(half).stopping(ScriptStop::Length);
        TestServer::start(in_order([half, ScriptStep::say(rest)]))
    };
    for model in ["openai/m", "openai-responses/m"] {
        for response in both_forms(start, &json!({"model": model, "input": "x"})) {
            assert_eq!(types(&response), ["reasoning", "message"], "{model}");
            check_message(&response, "half and whole", "completed");
        }
    }
}

#[test]
fn reply_is_not_continued_beyond_the_max_output_tokens_of_the_request() {
    let start = || TestServer::start(in_order([cut("half "), ScriptStep::text("and whole")]));
    let body = json!({"model": "openai/m", "input": "x", "max_output_tokens": 16});
    for response in both_forms(start, &body) {
        check_message(&response, "half ", "incomplete");
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    }
    let server = start();
    ask(&server, &body);
    assert_eq!(server.model.requests().len(), 1);
    let agent = json!({"model": "helper", "input": "x", "max_output_tokens": 16});
    check_message(&ask(&start(), &agent), "half ", "incomplete");
}

#[test]
fn reply_that_the_provider_filters_is_incomplete() {
    let start = || TestServer::start(in_order([ScriptStep::text("half ").stopping(ScriptStop::Blocked)]));
    for response in both_forms(start, &json!({"model": "openai/m", "input": "x"})) {
        assert_eq!(response["status"], "incomplete", "{response}");
        assert_eq!(response["incomplete_details"], json!({"reason": "content_filter"}));
        check_message(&response, "half ", "incomplete");
    }
}

#[test]
fn response_at_the_maximum_of_turns_is_incomplete_for_this_reason() {
    let tools = ToolServer::start();
    let agent = "---\nmodels: openai/m\ntools: [docs__add]\nmaxTurns: 2\n---\nYou add.\n";
    let script = in_order([add(1), add(2), ScriptStep::text("As far as I got.")]);
    let server = TestServer::configured(script, &tools.config(), &[("adder", agent)]);
    let response = ask(&server, &json!({"model": "adder", "input": "Go."}));
    assert_eq!(response["incomplete_details"], json!({"reason": "max_turns"}), "{response}");
    assert_eq!((text(&response), tools.calls().len()), ("As far as I got.", 1));
    assert_eq!(response["output"].as_array().unwrap().last().unwrap()["status"], "completed");
}

#[test]
fn maximum_of_tool_calls_counts_calls_of_server_and_client() {
    let tools = ToolServer::start();
    let mixed = ScriptStep::say([
        ScriptPart::call("weather", json!({"town": "Oslo"})),
        ScriptPart::call("docs__add", json!({"n": 1})),
        ScriptPart::call("docs__add", json!({"n": 2})),
    ]);
    let server = TestServer::configured(in_order([mixed]), &tools.config(), &[]);
    let offered = json!([{"type": "mcp", "server_label": "docs"}, {"type": "function", "name": "weather"}]);
    let response = ask(&server, &with_docs(&json!({"tools": offered, "max_tool_calls": 2})));
    assert_eq!(types(&response), ["mcp_call", "function_call"], "{response}");
    assert_eq!((tools.calls(), &response["status"]), (vec![json!({"n": 1})], &json!("completed")));
}

#[test]
fn client_gets_every_function_call_of_a_reply() {
    let calls = (0..12).map(|number| ScriptPart::call("weather", json!({"town": number})));
    let server = TestServer::start(in_order([ScriptStep::say(calls)]));
    let tools = json!([{"type": "function", "name": "weather"}]);
    let response = ask(&server, &json!({"model": "openai/m", "input": "x", "tools": tools}));
    assert_eq!(types(&response), ["function_call"; 12], "{response}");
}

/// A request for JSON by a model that has a tool, so that the provider does not enforce the format.
fn typed() -> Value {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    json!({
        "model": "openai/m", "input": "x", "tools": [{"type": "function", "name": "f"}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
    })
}

#[test]
fn rejected_text_is_not_in_the_output_of_a_response_with_a_json_schema() {
    let good = "{\"n\": 1}";
    let rows = [
        vec![ScriptStep::text("{\"n\": \"one\"}"), ScriptStep::text(good)],
        vec![cut("{\"n\":"), ScriptStep::text(" 1}")],
        vec![ScriptStep::text("No JSON."), ScriptStep::text(good)],
    ];
    for steps in rows {
        let start = || TestServer::start(in_order(steps.clone()));
        for response in both_forms(start, &typed()) {
            check_message(&response, good, "completed");
            assert_eq!(response["status"], "completed");
        }
    }
}

#[test]
fn text_before_a_call_is_shown_in_a_response_with_a_json_schema() {
    let look = ScriptStep::say([ScriptPart::Text("I look.".into()), ScriptPart::call("f", json!({}))]);
    let response = ask(&TestServer::start(in_order([look])), &typed());
    assert_eq!(types(&response), ["message", "function_call"]);
    assert_eq!(response["output"][0]["content"][0]["text"], "I look.");
}

#[test]
fn json_of_a_model_without_tools_is_streamed_as_it_arrives() {
    let parts = ["{\"n\":", " 1}"].map(|part| ScriptPart::Text(part.into()));
    let server = TestServer::start(in_order([ScriptStep::say(parts)]));
    let mut body = typed();
    body["tools"] = json!([]);
    body["stream"] = json!(true);
    let stream = data(&events(&post(&server, &body)));
    check_stream(&stream);
    let deltas = stream.iter().filter(|event| event["type"] == "response.output_text.delta").count();
    assert!(deltas > 1, "{stream:?}");
}
