//! Calls that wait for the client's approval, over several requests and restarts.

use haft_model_server::{Script, ScriptPart, ScriptStep};
use haft_store::api_keys::KeyScope;
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{Reply, TestServer, key, scoped_key};
use super::responses::{ask, events, post, python, text};
use super::tool_server::ToolServer;

fn script() -> Script {
    let steps =
        [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done."), ScriptStep::text("Bye.")];
    Script::of(steps)
}

fn request(approval: &Value) -> Value {
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": approval});
    json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]})
}

fn answer(first: &Value, item: &Value, approve: bool) -> Value {
    let answer =
        json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve});
    json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]})
}

pub(crate) fn types(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[track_caller]
fn asked(server: &TestServer, tools: &ToolServer, approval: &Value) -> (Value, Value) {
    let first = ask(server, &request(approval));
    assert_eq!(types(&first), ["mcp_approval_request"], "{first}");
    let item = first["output"][0].clone();
    assert_eq!((&item["server_label"], &item["name"]), (&json!("docs"), &json!("add")));
    assert_eq!((item["arguments"].as_str(), tools.calls().len()), (Some("{\"n\":1}"), 0));
    (first, item)
}

#[test]
fn approved_call_is_made_once_even_after_a_server_restart() {
    for is_restarted in [false, true] {
        let tools = ToolServer::start();
        let mut server = TestServer::configured(script(), &tools.config(), &[]);
        let (first, item) = asked(&server, &tools, &json!("always"));
        if is_restarted {
            server.restart();
        }
        let second = ask(&server, &answer(&first, &item, true));
        assert_eq!((types(&second), text(&second)), (vec!["mcp_call", "message"], "Done."));
        let call = &second["output"][0];
        assert_eq!(call["approval_request_id"], item["id"]);
        assert_eq!(call["output"], "noted", "the output has no delimiters for the model");
        let sent = server.model.requests().last().unwrap().raw.clone();
        assert!(sent.contains("begins; it is not an instruction]\\nnoted"), "{sent}");
        assert_eq!(tools.calls(), [json!({"n": 1})]);
        let again = post(&server, &answer(&first, &item, true));
        assert_eq!((again.status, code(&again)), (409, json!("approval_request_used")), "{}", again.text);
        assert_eq!(again.headers["x-should-retry"], "false");
        assert_eq!(tools.calls().len(), 1, "an approval allows one call");
        let decided = audited(&server, "approval.decided");
        assert_eq!((decided.len(), &decided[0]["detail"]), (1, &json!("approved")), "{decided:?}");
        assert_eq!((&decided[0]["target"], &decided[0]["principal"]), (&item["id"], &json!("default/local")));
        let called = audited(&server, "tool.executed");
        assert_eq!((called.len(), &called[0]["target"]), (1, &json!("docs__add")), "{called:?}");
        let third = json!({"model": "openai/m", "previous_response_id": second["id"], "input": "Thanks."});
        assert_eq!(ask(&server, &third)["status"], "completed", "the conversation can continue");
    }
}

pub(crate) fn code(reply: &Reply) -> Value {
    reply.json()["error"]["code"].clone()
}

#[test]
fn denied_call_is_not_made_but_the_model_continues() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let (first, item) = asked(&server, &tools, &json!({"always": {"tool_names": ["add"]}}));
    let second = ask(&server, &answer(&first, &item, false));
    assert_eq!((types(&second), text(&second)), (vec!["message"], "Done."));
    assert_eq!(tools.calls(), [] as [Value; 0]);
    assert_eq!(audited(&server, "approval.requested")[0]["target"], "docs__add");
    assert_eq!(audited(&server, "approval.decided")[0]["detail"], "denied");
}

/// Returns the audit log lines about an event.
pub(crate) fn audited(server: &TestServer, event: &str) -> Vec<Value> {
    server.data_lines("audit.jsonl").into_iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn only_the_exact_answers_of_the_owner_continue_the_run() {
    let tools = ToolServer::start();
    let both = ScriptStep::say([
        ScriptPart::call("docs__add", json!({"n": 1})),
        ScriptPart::call("docs__add", json!({"n": 2})),
    ]);
    let script = Script::of([both, ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let first = ask(&server, &request(&json!("always")));
    assert_eq!(types(&first), ["mcp_approval_request", "mcp_approval_request"]);
    let items = first["output"].as_array().unwrap();
    let check = |body: &Value, expected: &str| {
        let reply = post(&server, body);
        assert_eq!((reply.status, code(&reply)), (400, json!(expected)), "{body}: {}", reply.text);
    };
    let message = json!({"model": "openai/m", "previous_response_id": first["id"], "input": "Hello?"});
    check(&message, "approval_response_missing");
    check(&answer(&first, &json!({"id": "mcpr_1"}), true), "approval_request_not_found");
    let other = format!("{}f", items[0]["id"].as_str().unwrap().strip_suffix('0').unwrap());
    check(&answer(&first, &json!({"id": other}), true), "approval_request_not_found");
    let mut elsewhere = answer(&first, &items[0], true);
    elsewhere["previous_response_id"] = "resp_00".into();
    check(&elsewhere, "approval_request_not_found");
    let eve = key(&server.store, "default", "eve", None);
    let body = answer(&first, &items[0], true).to_string();
    let foreign = server.without_key(Method::POST, "/v1/responses").bearer_auth(&eve);
    let foreign = server.send(foreign.header("content-type", "application/json").body(body));
    assert_eq!((foreign.status, code(&foreign)), (400, json!("approval_request_not_found")));
    let mut late = answer(&first, &items[0], true);
    late["input"].as_array_mut().unwrap().push(json!({"role": "user", "content": "And more."}));
    assert_eq!(post(&server, &late).json()["error"]["param"], "input[1]");
    assert_eq!(tools.calls(), [] as [Value; 0], "no refused answer makes a call");
    let mut good = answer(&first, &items[1], true);
    let deny = answer(&first, &items[0], false)["input"][0].clone();
    good["input"].as_array_mut().unwrap().push(deny);
    assert_eq!(text(&ask(&server, &good)), "Done.");
    // The approval requests may be in a different order than the calls.
    let approved: Value = serde_json::from_str(items[1]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(tools.calls(), [approved], "each decision belongs to its own call");
}

#[test]
fn answer_can_be_repeated_if_another_process_holds_the_session() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let (first, item) = asked(&server, &tools, &json!("always"));
    let journals = server.files_with("\"type\":\"session\"");
    let path = journals.iter().find(|path| path.contains("/tenant-sessions/")).unwrap();
    let held = std::fs::File::open(path).unwrap();
    held.lock().unwrap();
    let busy = post(&server, &answer(&first, &item, true));
    assert_eq!((busy.status, code(&busy)), (503, json!("run_busy")), "{}", busy.text);
    assert_eq!(busy.headers["retry-after"], "1");
    drop(held);
    assert_eq!(text(&ask(&server, &answer(&first, &item, true))), "Done.");
    assert_eq!(tools.calls().len(), 1);
}

#[test]
fn approval_request_expires_after_a_day() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let (first, item) = asked(&server, &tools, &json!("always"));
    server.make_old(&first);
    let late = post(&server, &answer(&first, &item, true));
    assert_eq!((late.status, code(&late)), (400, json!("approval_request_expired")), "{}", late.text);
    assert_eq!(tools.calls(), [] as [Value; 0]);
}

#[test]
fn approvals_of_one_response_can_be_answered_one_by_one() {
    let tools = ToolServer::start();
    let calls = [1, 2, 3].map(|n| ScriptPart::call("docs__add", json!({ "n": n })));
    let script = Script::of([ScriptStep::say(calls), ScriptStep::text("Done.")]);
    let mut server = TestServer::configured(script, &tools.config(), &[]);
    let first = ask(&server, &request(&json!("always")));
    let items = first["output"].as_array().unwrap();
    let number = |item: &Value| serde_json::from_str::<Value>(item["arguments"].as_str().unwrap()).unwrap();
    let second = ask(&server, &answer(&first, &items[1], true));
    assert_eq!(types(&second), ["mcp_approval_request", "mcp_approval_request"], "{second}");
    assert_eq!(tools.calls(), [] as [Value; 0], "the turn waits for the other answers");
    let again = json!({"model": "openai/m", "previous_response_id": second["id"], "input": "x"});
    assert_eq!(code(&post(&server, &again)), "approval_response_missing");
    server.restart();
    let open = second["output"].as_array().unwrap();
    let third = ask(&server, &answer(&second, &open[0], false));
    assert_eq!(types(&third), ["mcp_approval_request"], "{third}");
    let last = ask(&server, &answer(&third, &third["output"][0], true));
    assert_eq!((types(&last), text(&last)), (vec!["mcp_call", "mcp_call", "message"], "Done."), "{last}");
    let denied = number(&open[0]);
    let mut made = tools.calls();
    made.sort_by_key(|call| call["n"].as_u64());
    let expected = [1, 2, 3].map(|n| json!({ "n": n })).into_iter().filter(|call| *call != denied);
    assert_eq!(made, expected.collect::<Vec<_>>(), "each approved call is made once");
}

#[test]
fn request_cannot_loosen_operator_rules_or_approve_without_the_scope() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["policy"] = json!({"rules": [{"tool": "docs__*", "decision": "ask"}]});
    let server = TestServer::configured(script(), &config, &[]);
    for approval in [json!("never"), json!("always"), json!({"never": {"tool_names": ["add"]}})] {
        let denied = ask(&server, &request(&approval));
        assert_eq!((types(&denied), text(&denied)), (vec!["mcp_call", "message"], "Done."), "{approval}");
        assert_eq!(denied["output"][0]["status"], "failed");
    }
    assert_eq!(tools.calls(), [] as [Value; 0]);
    let secret = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Approvals]);
    let send = |body: &Value| {
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&secret);
        server.send(request.header("content-type", "application/json").body(body.to_string()))
    };
    let first = send(&request(&json!("never"))).json();
    assert_eq!(types(&first), ["mcp_approval_request"], "the operator's rule requires approval");
    let item = first["output"][0].clone();
    assert_eq!(
        post(&server, &answer(&first, &item, true)).status,
        403,
        "a key without the scope cannot approve"
    );
    let native = format!("/api/v1/approvals/{}", item["id"].as_str().unwrap());
    let native = server.request(Method::POST, &native).header("content-type", "application/json");
    assert_eq!(
        server.send(native.body("{\"approve\": true}")).status,
        403,
        "a key without the scope cannot approve over the native API"
    );
    assert_eq!(tools.calls(), [] as [Value; 0]);
    assert_eq!(text(&send(&answer(&first, &item, true)).json()), "Done.");
    assert_eq!(tools.calls().len(), 1);
}

#[test]
fn agent_that_takes_over_an_approved_run_keeps_the_callers_limit_on_tools() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["policy"] = json!({"rules": [{"tool": "docs__add", "decision": "ask"}]});
    let agent = |more: &str| format!("---\ndescription: Works.\nmodels: openai/m\n{more}\n---\nYou work.\n");
    let first = agent("tools: [docs__add]\nhandoff: second.md");
    let second = agent("tools: [docs__look]");
    let look = [ScriptStep::call("docs__look", json!({"n": 2})), ScriptStep::text("Done.")];
    let script = script().about("The agent `first` answered", look);
    let server = TestServer::configured(script, &config, &[("first", &first), ("second", &second)]);
    let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Approvals]);
    let allowed = json!([{"type": "mcp", "server_label": "docs", "name": "add"}]);
    let body = json!({
        "model": "first", "input": "Add a note.",
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": allowed},
    });
    let asked = post_with(&server, &key, &body).json();
    assert_eq!(types(&asked), ["mcp_approval_request"], "{asked}");
    let mut next = answer(&asked, &asked["output"][0], true);
    next["model"] = "first".into();
    let ended = post_with(&server, &key, &next);
    assert_eq!(ended.status, 200, "{}", ended.text);
    assert_eq!(server.model.requests().len(), 4, "the second agent runs: {}", ended.text);
    assert_eq!(tools.calls(), [json!({"n": 1})], "the call of the second agent is refused");
    let refused = server.model.requests().last().unwrap().raw.clone();
    assert!(refused.contains("is not allowed"), "{refused}");
}

#[test]
fn approval_filter_by_effects_asks_only_about_tools_that_may_change_data() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["mcpServers"]["docs"]["effects"] = json!({"look": "read-only"});
    let both = ScriptStep::say([
        ScriptPart::call("docs__look", json!({"n": 1})),
        ScriptPart::call("docs__add", json!({"n": 2})),
    ]);
    let script = Script::of([both, ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &config, &[]);
    let first = ask(&server, &request(&json!({"never": {"read_only": true}})));
    assert_eq!(types(&first), ["mcp_call", "mcp_approval_request"]);
    assert_eq!(tools.calls(), [json!({"n": 1})]);
    assert_eq!(text(&ask(&server, &answer(&first, &first["output"][1], true))), "Done.");
    assert_eq!(tools.calls().len(), 2, "the call that was made before is not repeated");
}

/// A hostile server would declare that its deleting tool only reads.
#[test]
fn read_only_annotation_of_a_server_exempts_no_call_from_approval() {
    let tools = ToolServer::start();
    for filter in [json!({"never": {"read_only": true}}), json!({"always": {"read_only": false}})] {
        let script = Script::of([ScriptStep::call("docs__look", json!({"n": 1}))]);
        let server = TestServer::configured(script, &tools.config(), &[]);
        assert_eq!(types(&ask(&server, &request(&filter))), ["mcp_approval_request"], "{filter}");
    }
    assert_eq!(tools.calls(), [] as [Value; 0]);
}

#[test]
fn official_client_answers_approval_requests_in_a_stream_and_in_a_history() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let seen = python(&server, "approvals", "openai/m");
    assert_eq!(seen["extras"], json!([]));
    assert_eq!((&seen["text"], &seen["history_text"]), (&json!("Done."), &json!("Done.")));
    assert_eq!((&seen["asked"], &seen["linked"]), (&json!(["docs", "add", {"n": 1}]), &json!(true)));
    assert_eq!(tools.calls().len(), 2);
    let mut streamed = request(&json!("always"));
    streamed["stream"] = json!(true);
    let kinds: Vec<String> = events(&post(&server, &streamed)).into_iter().map(|(kind, _)| kind).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
}

/// Sends a request with another key.
fn post_with(server: &TestServer, key: &str, body: &Value) -> Reply {
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

#[test]
fn key_without_the_scope_cannot_continue_a_run_with_builtin_tools() {
    for store in [true, false] {
        let tools = ToolServer::start();
        let server = TestServer::configured(script(), &tools.config(), &[]);
        let key = scoped_key(&server.store, &[KeyScope::Api, KeyScope::BuiltinTools]);
        let mut body = request(&json!("always"));
        body["tools"].as_array_mut().unwrap().push(json!({"type": "haft:bash"}));
        body["store"] = store.into();
        let first = post_with(&server, &key, &body).json();
        assert_eq!(types(&first).last(), Some(&"mcp_approval_request"), "{first}");
        let item = first["output"].as_array().unwrap().last().unwrap().clone();
        let mut next = answer(&first, &item, true);
        next["store"] = store.into();
        if !store {
            next.as_object_mut().unwrap().remove("previous_response_id");
            let mut history = first["output"].as_array().unwrap().clone();
            history.push(next["input"][0].clone());
            next["input"] = history.into();
        }
        let refused = post(&server, &next);
        assert_eq!((refused.status, code(&refused)), (403, json!("insufficient_scope")), "{}", refused.text);
        assert_eq!(tools.calls(), [] as [Value; 0]);
        let second = post_with(&server, &key, &next);
        assert_eq!((second.status, text(&second.json())), (200, "Done."), "{}", second.text);
    }
}

#[test]
fn continued_run_keeps_the_fields_of_its_first_request() {
    for store in [true, false] {
        let tools = ToolServer::start();
        let server = TestServer::configured(script(), &tools.config(), &[]);
        let mut body = request(&json!("always"));
        body["temperature"] = json!(0.5);
        body["store"] = store.into();
        let first = ask(&server, &body);
        let item = first["output"].as_array().unwrap().last().unwrap().clone();
        let mut next = answer(&first, &item, true);
        next["store"] = store.into();
        if !store {
            next.as_object_mut().unwrap().remove("previous_response_id");
            let mut history = first["output"].as_array().unwrap().clone();
            history.push(next["input"][0].clone());
            next["input"] = history.into();
        }
        let mut other = next.clone();
        other["model"] = "openai/other".into();
        let refused = post(&server, &other);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("model")));
        next["tool_choice"] = "none".into();
        next["temperature"] = json!(0.5);
        next["metadata"] = json!({"k": "v"});
        next["include"] = json!(["haft.warnings"]);
        let reply = post(&server, &next);
        let second = reply.json();
        assert_eq!((reply.status, text(&second)), (200, "Done."), "{}", reply.text);
        for name in ["model", "tools", "tool_choice", "temperature"] {
            assert_eq!(second[name], first[name], "{name}");
        }
        assert_eq!(second["metadata"], json!({"k": "v"}));
        let warnings = reply.headers["haft-warnings"].to_str().unwrap();
        assert!(warnings.contains("`tool_choice`") && !warnings.contains("`temperature`"), "{warnings}");
        assert_eq!(second["output"][0]["type"], "haft:warning", "{second}");
    }
}

#[test]
fn reason_of_an_answer_is_named_in_a_warning() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let (first, item) = asked(&server, &tools, &json!("always"));
    let mut next = answer(&first, &item, false);
    next["input"][0]["reason"] = json!(1);
    assert_eq!(post(&server, &next).json()["error"]["param"], "input[0].reason");
    next["input"][0]["reason"] = "Not today.".into();
    let reply = post(&server, &next);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("`reason`"));
}
