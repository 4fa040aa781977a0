//! Tests that clients which share upstream servers do not get the results of each other.

use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::http::{GatewayServer, request, stateless};
use super::{configure, place};

/// The limit above which haft stores an output.
const SMALL_OUTPUTS: &str = r#", "toolResponseMaxBytes": 2000"#;

const NOT_FOUND: i64 = -32002;

/// Returns the `Authorization` header of a new key that may use the built-in tools.
fn key(place: &TestTree, name: &str) -> String {
    let words = ["keys", "create", name, "--tenant", "acme", "--scope", "api", "--scope", "builtin-tools"];
    format!("Bearer {}", place.haft(&words).output().expect_code(0).stdout.trim())
}

fn large_call() -> Value {
    json!({"name": "bash", "arguments": {"command": "seq 1 10000"}})
}

fn uris(listed: &Value) -> Vec<String> {
    let resources = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
    resources.iter().map(|item| item["uri"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn only_the_session_that_made_a_call_lists_and_reads_its_stored_output() {
    for with_keys in [true, false] {
        let place = place();
        configure(&place, &[], SMALL_OUTPUTS);
        let key = key(&place, "anna");
        let (flags, authorized): (&[&str], &[(&str, &str)]) =
            if with_keys { (&[], &[("Authorization", &key)]) } else { (&["--no-auth"], &[]) };
        let server = GatewayServer::start(&place, flags);
        let sessions = [server.session(authorized), server.session(authorized)];
        let ask = |session: usize, method: &str, params: &Value| {
            let own = [authorized, &[("Mcp-Session-Id", sessions[session].as_str())]].concat();
            server.post(&own, &request(2, method, params)).message()
        };
        ask(0, "tools/call", &large_call());
        let listed = uris(&ask(0, "resources/list", &json!({})));
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(uris(&ask(1, "resources/list", &json!({}))), [""; 0]);
        let read = ask(0, "resources/read", &json!({"uri": listed[0]}));
        assert!(read["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"), "{read:.200}");
        let refused = ask(1, "resources/read", &json!({"uri": listed[0]}));
        assert_eq!(refused["error"]["code"], NOT_FOUND, "{refused:.200}");
        let handle = listed[0].strip_prefix("haft-output:").unwrap();
        let query =
            json!({"name": "tool_output", "arguments": {"handle": handle, "extract": "last 1 lines"}});
        assert_eq!(ask(0, "tools/call", &query)["result"]["isError"], Value::Null);
        let refused = ask(1, "tools/call", &query);
        assert_eq!(refused["result"]["isError"], true, "{refused:.300}");
    }
}

#[test]
fn stored_output_of_a_stateless_request_belongs_to_its_principal() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let keys = [key(&place, "anna"), key(&place, "bert")];
    let server = GatewayServer::start(&place, &[]);
    let ask = |user: usize, method: &str, params: Value, name: &str| {
        let headers = [("Authorization", keys[user].as_str()), ("Mcp-Name", name)];
        let headers = if name.is_empty() { &headers[..1] } else { &headers };
        stateless(&server, method, params, headers).message()
    };
    ask(0, "tools/call", large_call(), "bash");
    let listed = uris(&ask(0, "resources/list", json!({}), ""));
    assert_eq!(listed.len(), 1, "{listed:?}");
    let read = |user: usize| ask(user, "resources/read", json!({"uri": listed[0]}), &listed[0]);
    assert!(read(0)["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"));
    assert_eq!(uris(&ask(1, "resources/list", json!({}), "")), [""; 0]);
    assert_eq!(read(1)["error"]["code"], -32602);
    let session = server.session(&[("Authorization", &keys[0])]);
    let own = [("Authorization", keys[0].as_str()), ("Mcp-Session-Id", session.as_str())];
    let of_session = server.post(&own, &request(2, "resources/list", &json!({}))).message();
    assert_eq!(uris(&of_session), [""; 0]);
}

#[test]
fn stored_outputs_of_clients_are_deleted_with_their_principal() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let session = server.session(&[("Authorization", &key)]);
    let own = [("Authorization", key.as_str()), ("Mcp-Session-Id", session.as_str())];
    server.post(&own, &request(2, "tools/call", &large_call()));
    drop(server);
    let outputs = || {
        let all = std::fs::read_dir(place.path("home/data/outputs/tenant-acme")).unwrap().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with("session-")).count()
    };
    assert_eq!(outputs(), 1);
    // A key without a subject belongs to the subject with the name of the key.
    place.haft(&["store", "delete", "--principal", "acme/anna", "--yes"]).output().expect_code(0);
    assert_eq!(outputs(), 0);
}

#[test]
fn stateless_request_without_keys_reads_a_stored_output_by_its_handle_but_cannot_list_it() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let called = stateless(&server, "tools/call", large_call(), &[("Mcp-Name", "bash")]).message();
    let text = called["result"]["content"].to_string();
    let handle = text.split(['`', '"', ' ', '\\']).find(|word| word.starts_with("session-"));
    let uri = format!("haft-output:{}", handle.unwrap_or_else(|| panic!("{text}")));
    assert_eq!(uris(&stateless(&server, "resources/list", json!({}), &[]).message()), [""; 0]);
    let read = stateless(&server, "resources/read", json!({"uri": uri}), &[("Mcp-Name", &uri)]).message();
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"), "{read:.200}");
}

#[test]
fn log_message_reaches_only_the_session_whose_call_caused_it() {
    let place = place();
    configure(&place, &[("up", "offers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [server.session(&[]), server.session(&[])];
    let mut streams = sessions.each_ref().map(|id| server.listen(&[("Mcp-Session-Id", id)]));
    for (session, text) in [(0, " of one"), (1, " of two")] {
        let call = json!({"name": "up__echo", "arguments": {"text": text}});
        let called = server.post(&[("Mcp-Session-Id", &sessions[session])], &request(2, "tools/call", &call));
        assert_eq!(called.status(), 200);
        let mut lines = streams[session].by_ref().map(Result::unwrap);
        let first = lines.find(|line| line.contains("notifications/message")).unwrap();
        assert!(first.contains(&format!("mind the step{text}")), "{first}");
    }
}
