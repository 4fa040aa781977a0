//! Responses that are not stored: no data is left on the disk, and clients continue them with encrypted items.

use haft_model_server::{Script, ScriptPart, ScriptStep, StepOrder};
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::{Reply, TestServer, key};
use super::responses::{ask, post, python, text};
use super::tool_server::ToolServer;

/// A word that every text of a test contains.
const MARKER: &str = "qxmarkerzv";

/// A model whose reasoning is opaque: clients must send its state back, and cannot read it.
const MODEL: &str = "openai-responses/m";

fn in_order(steps: Vec<ScriptStep>) -> Script {
    Script { order: StepOrder::Strict, steps, ..Script::default() }
}

fn opaque(state: &str, then: ScriptPart) -> ScriptStep {
    ScriptStep::say([ScriptPart::Redacted(state.into()), then])
}

fn sealed_request(input: &Value) -> Value {
    json!({"model": MODEL, "store": false, "include": ["reasoning.encrypted_content"], "input": input})
}

#[test]
fn official_client_chains_unstored_responses() {
    let call = |town: &str| ScriptPart::call("weather", json!({"town": town}));
    let server = TestServer::start(in_order(vec![
        opaque("state-1", call("Oslo")),
        opaque("state-2", ScriptPart::Text("31 degrees.".into())),
        opaque("state-3", call("Paris")),
        opaque("state-4", ScriptPart::Text("7 degrees.".into())),
    ]));
    let seen = python(&server, "stateless", MODEL);
    assert_eq!(seen["texts"], json!(["31 degrees.", "", "7 degrees."]));
    assert_eq!(seen["extras"], json!([]));
    let last = server.model.requests().last().unwrap().raw.clone();
    for state in ["state-1", "state-2", "state-3"] {
        assert_eq!(last.matches(state).count(), 1, "{state} goes back to the model once: {last}");
    }
    assert_eq!(last.matches("\"function_call\"").count(), 2, "{last}");
    assert_eq!(server.get("/v1/responses").json()["data"], json!([]), "the server stores no response");
}

#[test]
fn unstored_response_leaves_no_text_on_the_disk() {
    let tools = ToolServer::start();
    tools.answer_with(&format!("{MARKER} ").repeat(40_000));
    let mut config = tools.config();
    config["tools"] = json!({"docs__look": {"cache": "1h"}});
    let steps = vec![
        ScriptStep::call("docs__look", json!({"n": 1})),
        ScriptStep::text(MARKER),
        ScriptStep::call("docs__look", json!({"n": 2})),
        ScriptStep::text(MARKER),
    ];
    let server = TestServer::configured(in_order(steps), &config, &[]);
    let conversation = server.send(
        server
            .request(Method::POST, "/v1/conversations")
            .header("content-type", "application/json")
            .body("{}"),
    );
    let body = |store: bool| {
        json!({
            "model": "openai/m", "input": MARKER, "store": store, "instructions": MARKER,
            "metadata": {"word": MARKER}, "include": ["reasoning.encrypted_content"],
            "conversation": conversation.json()["id"], "tools": [{"type": "mcp", "server_label": "docs"}],
        })
    };
    let response = ask(&server, &body(false));
    assert_eq!(types(&response), ["reasoning", "mcp_call", "message"], "{response}");
    assert_eq!(server.files_with(MARKER), [""; 0]);
    // Send the same request with `store: true`, to prove that the search above would find its traces.
    ask(&server, &body(true));
    let left = server.files_with(MARKER).join("\n");
    for place in ["/responses/", "/outputs/", "/tenant-sessions/", "/events/", "/conversations/", "/cache/"] {
        assert!(left.contains(place), "{place} is not in {left}");
    }
}

fn error(reply: &Reply) -> (u16, Value, Value) {
    let error = &reply.json()["error"];
    (reply.status, error["param"].clone(), error["code"].clone())
}

#[test]
fn sealed_turn_is_accepted_only_if_unchanged_and_from_its_owner() {
    let mut server = TestServer::start(in_order(vec![
        opaque("state-1", ScriptPart::Text("One.".into())),
        opaque("state-2", ScriptPart::Text("Two.".into())),
    ]));
    let first = ask(&server, &sealed_request(&"Count.".into()));
    assert_eq!(types(&first), ["reasoning", "message"]);
    let item = first["output"][0].clone();
    let next = |item: &Value| {
        sealed_request(
            &json!([{"role": "user", "content": "Count."}, item, {"role": "user", "content": "On."}]),
        )
    };
    let expected = (400, json!("input[1].encrypted_content"), json!("invalid_encrypted_content"));
    let eve = key(&server.store, "default", "eve", None);
    let foreign = server.without_key(Method::POST, "/v1/responses").bearer_auth(eve);
    let foreign = foreign.header("content-type", "application/json").body(next(&item).to_string());
    assert_eq!(error(&server.send(foreign)), expected);
    let sealed = item["encrypted_content"].as_str().unwrap();
    let changed = |at: usize| {
        let mut bytes = sealed.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    for wrong in [changed(sealed.len() - 3), changed(20), String::new(), "gAAAAABo".into()] {
        let item = json!({"type": "reasoning", "summary": [], "encrypted_content": wrong});
        assert_eq!(error(&post(&server, &next(&item))), expected, "{wrong}");
    }
    let asked = server.model.requests().len();
    assert_eq!(asked, 1, "no wrong item reaches the model");
    server.restart();
    assert_eq!(text(&ask(&server, &next(&item))), "Two.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(
        sent.contains("state-1") && sent.contains("One."),
        "the sealed item alone contains the turn: {sent}"
    );
}

#[test]
fn error_about_unreadable_encryption_keys_contains_no_path() {
    let server = TestServer::start(in_order(vec![opaque("s", ScriptPart::Text("One.".into()))]));
    let item = ask(&server, &sealed_request(&"Count.".into()))["output"][0].clone();
    std::fs::write(server.data().join("seal-keys.json"), "no json").unwrap();
    let reply = post(&server, &sealed_request(&json!([item])));
    assert_eq!(reply.status, 500);
    let path = server.data().display().to_string();
    assert!(reply.text.contains("seal-keys.json") && !reply.text.contains(&path), "{}", reply.text);
}
