//! Tests of approvals and elicitation requests through the client.

use serde_json::{Value, json};

use super::{McpClient, configure, place, text};

const ASK: &str = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;

fn accept(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

#[test]
fn client_with_a_handshake_approves_by_elicitation() {
    let place = place();
    configure(&place, &[], ASK);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let run = |client: &mut McpClient, answer: Value| {
        let id = client.begin("tools/call", json!({"name": "bash", "arguments": {"command": "echo done"}}));
        let question = client.wait_for("elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("echo done"), "{question}");
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        client.reply(id)["result"].clone()
    };
    assert_eq!(text(&run(&mut client, accept("allow once"))).trim(), "done");
    for refusal in [accept("deny"), json!({"action": "decline"}), json!({"action": "cancel"}), json!(7)] {
        let refused = run(&mut client, refusal);
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text(&refused).contains("the user refused"), "{refused}");
    }
    assert_eq!(text(&run(&mut client, accept("always allow this exact call"))).trim(), "done");
    // The approval is remembered, so haft does not ask again.
    let again = client.call("bash", json!({"command": "echo done"}));
    assert_eq!(text(&again).trim(), "done");
}

#[test]
fn client_without_sessions_approves_in_a_second_request() {
    let place = place();
    configure(&place, &[], ASK);
    let mut client = McpClient::stateless(&place, &[], json!({"elicitation": {"form": {}}}));
    let call = json!({"name": "bash", "arguments": {"command": "echo done"}});
    let asked = client.ask("tools/call", call.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["question"]["method"], "elicitation/create");
    let with = |state: &Value, answers: Value| {
        let mut call = call.clone();
        call["requestState"] = state.clone();
        call["inputResponses"] = answers;
        call
    };
    let state = &asked["requestState"];
    // The state is valid only for the same call, and only once. Without an answer, the question is asked again.
    let mut other = with(state, json!({"question": accept("allow once")}));
    other["arguments"]["command"] = "echo other".into();
    assert_eq!(client.error("tools/call", other), -32_602);
    let again = client.ask("tools/call", with(state, json!({})));
    assert_eq!(again["inputRequests"], asked["inputRequests"], "{again}");
    assert_eq!(client.error("tools/call", with(state, json!({"question": accept("allow once")}))), -32_602);
    let state = &again["requestState"];
    assert_eq!(
        client.error("tools/call", with(&json!("forged"), json!({"question": accept("allow once")}))),
        -32_602
    );
    let done = client.ask("tools/call", with(state, json!({"question": accept("allow once")})));
    assert_eq!((text(&done).trim(), &done["resultType"]), ("done", &json!("complete")));
    assert_eq!(client.error("tools/call", with(state, json!({"question": accept("allow once")}))), -32_602);
    let asked = client.ask("tools/call", call.clone());
    let denied =
        client.ask("tools/call", with(&asked["requestState"], json!({"question": {"action": "decline"}})));
    assert_eq!(denied["isError"], true, "{denied}");
}

/// A client with a timeout would otherwise give up while its user reads the question.
#[test]
fn client_gets_a_heartbeat_while_its_call_waits_for_approval() {
    let place = place();
    configure(&place, &[], ASK);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let call =
        json!({"name": "bash", "arguments": {"command": "echo done"}, "_meta": {"progressToken": "p"}});
    let id = client.begin("tools/call", call);
    let question = client.wait_for("elicitation/create");
    // The call waits, and no other event of the call can cause progress.
    let beat = client.wait_for("notifications/progress");
    assert_eq!(beat["params"]["progressToken"], "p", "{beat}");
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept("allow once")}));
    assert_eq!(text(&client.reply(id)["result"]).trim(), "done");
}

#[test]
fn client_without_elicitation_gets_the_reason_and_a_hint() {
    let place = place();
    configure(&place, &[], ASK);
    let clients = [
        McpClient::handshake(&place, &[], json!({})),
        McpClient::stateless(&place, &[], json!({})),
        McpClient::handshake(&place, &[], json!({"elicitation": {"url": {}}})),
    ];
    for mut client in clients {
        let denied = client.call("bash", json!({"command": "echo done"}));
        assert_eq!(denied["isError"], true);
        let told = text(&denied);
        assert!(
            told.contains("needs approval") && told.contains("hint: use a client that can show forms"),
            "{told}"
        );
        assert!(told.contains(r#"{"decision":"allow","tool":"bash"}"#), "{told}");
    }
}

#[test]
fn upstream_elicitation_reaches_clients_with_and_without_handshake() {
    for server in ["asks-person", "modern"] {
        let place = place();
        configure(&place, &[("up", server, &[])], "");
        let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
        client.names();
        let id = client.begin("tools/call", json!({"name": "up__slow", "arguments": {}}));
        let question = client.wait_for("elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("up: Which colour?"), "{question}");
        let answer = json!({"action": "accept", "content": {"colour": "green"}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        let result = client.reply(id);
        assert!(text(&result["result"]).contains("green"), "{result}");
        client.end();

        let mut client = McpClient::stateless(&place, &[], json!({"elicitation": {}}));
        client.names();
        let asked = client.call("up__slow", json!({}));
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        // The gateway passes on the key under which the server sent its question.
        let key = if server == "modern" { "colour" } else { "question" };
        assert_eq!(asked["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [key]);
        let mut again = json!({"name": "up__slow", "arguments": {}, "requestState": asked["requestState"]});
        again["inputResponses"] = json!({key: {"action": "accept", "content": {"colour": "green"}}});
        let done = client.ask("tools/call", again);
        assert!(text(&done).contains("green"), "{done}");
    }
}

#[test]
fn capabilities_of_each_stateless_request_decide_about_its_questions() {
    let place = place();
    configure(&place, &[("up", "asks-person", &[])], ASK);
    let calls = [
        (json!({"name": "bash", "arguments": {"command": "echo done"}}), "no user is available"),
        (json!({"name": "up__echo", "arguments": {}}), "decline"),
    ];
    let kinds = [json!({}), json!({"elicitation": {}})];
    for order in [[0, 1], [1, 0]] {
        let mut client = McpClient::stateless(&place, &[], json!({}));
        for kind in order {
            client.meta.as_mut().unwrap()["io.modelcontextprotocol/clientCapabilities"] = kinds[kind].clone();
            for (call, refusal) in &calls {
                let result = client.ask("tools/call", call.clone());
                if kind == 1 {
                    assert_eq!(result["resultType"], "input_required", "{order:?}: {result}");
                } else {
                    assert_eq!(result["resultType"], "complete", "{order:?}: {result}");
                    assert!(!text(&result).contains("done"), "{order:?}: {result}");
                    assert!(result.to_string().contains(refusal), "{order:?}: {result}");
                }
            }
        }
    }
}

#[test]
fn approval_that_the_client_cannot_show_is_not_reported_as_a_refusal() {
    let place = place();
    configure(&place, &[], ASK);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let id = client.begin("tools/call", json!({"name": "bash", "arguments": {"command": "echo done"}}));
    let question = client.wait_for("elicitation/create");
    let error = json!({"code": -32601, "message": "no forms here"});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
    let denied = client.reply(id)["result"].clone();
    let told = text(&denied);
    assert!(
        told.contains("the client answered the question with an error") && told.contains("hint: "),
        "{told}"
    );
    assert!(!told.contains("the user refused"), "{told}");
}
