//! Calls of responses that are not stored, which wait for the client's approval. The client keeps the run, encrypted,
//! and sends it back with its answers.

use std::thread::sleep;
use std::time::Duration;

use haft_model_server::{Script, ScriptPart, ScriptStep, StepOrder};
use haft_store::api_keys::KeyScope;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::{audited, code, types};
use super::fixture::{Reply, TestServer, key, scoped_key};
use super::responses::{ask, post, python, text};
use super::steer::SteeringClient;
use super::tool_server::ToolServer;

/// A word that all messages of a test contain.
const MARKER: &str = "qxmarkerzv";

fn script() -> Script {
    let call = ScriptStep::call("docs__add", json!({"n": 1, "text": MARKER}));
    Script::of([call, ScriptStep::text("Done."), ScriptStep::text("Bye.")])
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn request(input: &[Value]) -> Value {
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    let mut body = json!({"model": "openai/m", "store": false, "tools": [tool]});
    body["input"] = input.into();
    body
}

fn answer(item: &Value, approve: bool) -> Value {
    json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve})
}

/// Returns the items of a response.
fn output(response: &Value) -> Vec<Value> {
    response["output"].as_array().unwrap().clone()
}

fn history(first: &Value, more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    [user(MARKER)].into_iter().chain(output(first)).chain(more).collect()
}

fn last(response: &Value) -> Value {
    output(response).last().unwrap().clone()
}

#[test]
fn approved_call_of_an_unstored_response_is_made_once_and_leaves_no_files() {
    for (is_restarted, include) in
        [(false, json!([])), (true, json!([])), (false, json!(["reasoning.encrypted_content"]))]
    {
        let tools = ToolServer::start();
        let mut server = TestServer::configured(script(), &tools.config(), &[]);
        let mut body = request(&[user(MARKER)]);
        body["include"] = include.clone();
        let first = ask(&server, &body);
        assert_eq!(types(&first), ["reasoning", "mcp_approval_request"], "{first}");
        assert_eq!(tools.calls().len(), 0);
        if is_restarted {
            server.restart();
        }
        let mut body = request(&history(&first, [answer(&last(&first), true)]));
        body["include"] = include.clone();
        let second = ask(&server, &body);
        assert_eq!((text(&second), tools.calls().len()), ("Done.", 1));
        let call = output(&second).into_iter().find(|item| item["type"] == "mcp_call").unwrap();
        assert_eq!(call["approval_request_id"], last(&first)["id"], "{second}");
        if is_restarted {
            server.restart();
        }
        let again = post(&server, &body);
        assert_eq!((again.status, code(&again)), (409, json!("approval_request_used")), "{}", again.text);
        let other = post(&server, &request(&history(&first, [answer(&last(&first), false)])));
        assert_eq!(code(&other), "approval_request_used", "the opposite decision is refused too");
        let more = [answer(&last(&first), true)].into_iter().chain(output(&second)).chain([user("Thanks.")]);
        let third = ask(&server, &request(&history(&first, more)));
        assert_eq!((text(&third), tools.calls().len()), ("Bye.", 1));
        let sent = server.model.requests().last().unwrap().raw.clone();
        assert_eq!(sent.matches("noted").count(), 1, "the model sees the call once: {sent}");
        assert_eq!(server.files_with(MARKER), [""; 0], "include {include}");
        assert_eq!(server.get("/v1/responses").json()["data"], json!([]));
        assert_eq!(audited(&server, "approval.decided").len(), 1);
    }
}

#[test]
fn denied_call_of_an_unstored_response_is_not_made() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let first = ask(&server, &request(&[user(MARKER)]));
    let second = ask(&server, &request(&history(&first, [answer(&last(&first), false)])));
    assert_eq!((types(&second), text(&second)), (vec!["message"], "Done."));
    assert_eq!(tools.calls(), [] as [Value; 0]);
}

#[test]
fn call_is_not_made_if_the_use_of_its_approval_cannot_be_stored() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let first = ask(&server, &request(&[user(MARKER)]));
    // Put a file in the place of the directory. A read-only directory would not be enough, because root can write to
    // every directory.
    let marks = server.data().join("approvals-used");
    std::fs::write(&marks, "").unwrap();
    let approved = request(&history(&first, [answer(&last(&first), true)]));
    let refused = post(&server, &approved);
    assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (503, "60"));
    assert!(!refused.text.contains(&*marks.to_string_lossy()), "{}", refused.text);
    assert_eq!(tools.calls(), [] as [Value; 0]);
    std::fs::remove_file(&marks).unwrap();
    assert_eq!((text(&ask(&server, &approved)), tools.calls().len()), ("Done.", 1));
}

fn error(reply: &Reply) -> (u16, Value) {
    (reply.status, code(reply))
}

#[test]
fn answer_with_a_changed_foreign_or_missing_run_is_refused_and_uses_up_no_approval() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let first = ask(&server, &request(&[user(MARKER)]));
    let item = last(&first);
    let good = request(&history(&first, [answer(&item, true)]));
    let mut changed = good.clone();
    let sealed = changed["input"][1]["encrypted_content"].as_str().unwrap();
    let middle = sealed.len() / 2;
    let letter = if sealed.as_bytes()[middle] == b'A' { "B" } else { "A" };
    changed["input"][1]["encrypted_content"] =
        format!("{}{letter}{}", &sealed[..middle], &sealed[middle + 1..]).into();
    assert_eq!(error(&post(&server, &changed)), (400, json!("invalid_encrypted_content")));
    let eve = key(&server.store, "default", "eve", None);
    let foreign = server.without_key(Method::POST, "/v1/responses").bearer_auth(eve);
    let foreign = foreign.header("content-type", "application/json").body(good.to_string());
    assert_eq!(error(&server.send(foreign)), (400, json!("invalid_encrypted_content")));
    for (name, value) in [("arguments", "{\"n\":2}"), ("name", "look"), ("server_label", "other")] {
        let mut other = good.clone();
        other["input"][2][name] = value.into();
        assert_eq!(error(&post(&server, &other)), (400, json!("approval_request_changed")), "{name}");
    }
    let missing = request(&[user(MARKER), item.clone(), answer(&item, true)]);
    assert_eq!(error(&post(&server, &missing)), (400, json!("approval_request_not_found")));
    let unknown = json!({"id": item["id"].as_str().unwrap().replace("000", "00f")});
    let unknown = request(&history(&first, [answer(&unknown, true)]));
    assert_eq!(error(&post(&server, &unknown)), (400, json!("approval_request_not_found")));
    let mut stored = good.clone();
    stored["store"] = true.into();
    let stored = post(&server, &stored);
    assert_eq!((stored.status, &stored.json()["error"]["param"]), (400, &json!("store")));
    assert_eq!(tools.calls(), [] as [Value; 0], "no refused answer makes a call");
    assert_eq!(text(&ask(&server, &good)), "Done.");
    assert_eq!(tools.calls(), [json!({"n": 1, "text": MARKER})]);
}

#[test]
fn approval_request_of_an_unstored_response_expires() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["serve"] = json!({"approvalTimeout": "1s"});
    let server = TestServer::configured(script(), &config, &[]);
    let first = ask(&server, &request(&[user(MARKER)]));
    // Wait one second longer than the timeout, because the creation time of a response has no fraction of a second.
    sleep(Duration::from_millis(2_010));
    let late = post(&server, &request(&history(&first, [answer(&last(&first), true)])));
    assert_eq!(error(&late), (400, json!("approval_request_expired")), "{}", late.text);
    assert_eq!(tools.calls(), [] as [Value; 0]);
}

#[test]
fn approvals_of_an_unstored_response_can_be_answered_one_by_one() {
    let tools = ToolServer::start();
    let calls = [1, 2].map(|n| ScriptPart::call("docs__add", json!({ "n": n })));
    let script = Script::of([ScriptStep::say(calls), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let first = ask(&server, &request(&[user(MARKER)]));
    assert_eq!(types(&first), ["reasoning", "mcp_approval_request", "mcp_approval_request"]);
    let items = output(&first);
    let input = history(&first, [answer(&items[1], true)]);
    let second = ask(&server, &request(&input));
    assert_eq!((types(&second), tools.calls().len()), (vec!["reasoning", "mcp_approval_request"], 0));
    let rest = output(&second).into_iter().chain([answer(&last(&second), true)]);
    assert_eq!(text(&ask(&server, &request(&input.into_iter().chain(rest).collect::<Vec<_>>()))), "Done.");
    assert_eq!(tools.calls().len(), 2);
    let both = request(&history(&first, [answer(&items[1], true), answer(&items[2], true)]));
    assert_eq!(
        error(&post(&server, &both)),
        (409, json!("approval_request_used")),
        "an older copy of the run is refused"
    );
    assert_eq!(tools.calls().len(), 2, "each approved call is made once");
}

#[test]
fn websocket_remembers_an_unstored_run_that_waits_for_approval() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let mut client = SteeringClient::connect(&server, &server.key);
    client.create(request(&[user(MARKER)]));
    let first = client.response("response.completed");
    let mut body = request(&[answer(&last(&first), true)]);
    body["previous_response_id"] = first["id"].clone();
    client.create(body);
    let second = client.response("response.completed");
    assert_eq!((text(&second), tools.calls().len()), ("Done.", 1));
    let mut body = request(&[user("Thanks.")]);
    body["previous_response_id"] = second["id"].clone();
    client.create(body);
    assert_eq!(text(&client.response("response.completed")), "Bye.");
}

/// An agent whose sub-agent calls a tool that the operator's rules ask about.
#[test]
fn sub_agent_waits_for_approval_in_an_unstored_response() {
    const CHIEF: &str =
        "---\ndescription: Leads.\nmodels: openai/m\ntools: []\nagents: [clerk]\n---\nYou lead.\n";
    const CLERK: &str =
        "---\ndescription: Adds notes.\nmodels: openai/m\ntools: [\"docs__*\"]\n---\nYou add.\n";
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["policy"] = json!({"rules": [{"tool": "docs__*", "decision": "ask"}]});
    let steps = vec![
        ScriptStep::call("agent__clerk", json!({"request": MARKER})),
        ScriptStep::call("docs__add", json!({"n": 1})),
        ScriptStep::text("Added."),
        ScriptStep::text("Done."),
    ];
    let script = Script { order: StepOrder::Strict, steps, ..Script::default() };
    let mut server = TestServer::configured(script, &config, &[("chief", CHIEF), ("clerk", CLERK)]);
    let secret = scoped_key(&server.store, &[KeyScope::Api, KeyScope::Approvals]);
    let send = |server: &TestServer, input: Vec<Value>| {
        let body = json!({"model": "chief", "store": false, "input": input});
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&secret);
        server.send(request.header("content-type", "application/json").body(body.to_string()))
    };
    let first = send(&server, vec![user(MARKER)]).json();
    let item = last(&first);
    assert_eq!((&item["type"], &item["name"]), (&json!("mcp_approval_request"), &json!("add")), "{first}");
    server.restart();
    let second = send(&server, history(&first, [answer(&item, true)])).json();
    assert_eq!((text(&second), tools.calls().len()), ("Done.", 1), "{second}");
    assert_eq!(server.files_with(MARKER), [""; 0]);
}

#[test]
fn official_client_answers_an_approval_request_of_an_unstored_response() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    let seen = python(&server, "stateless_approvals", "openai/m");
    let expected = json!({
        "types": ["reasoning", "mcp_approval_request"], "linked": true, "texts": ["Done.", "Bye."], "extras": [],
    });
    assert_eq!((seen, tools.calls().len()), (expected, 1));
}
