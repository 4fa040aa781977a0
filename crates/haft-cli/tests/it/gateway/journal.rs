//! Tests of the journal that records the calls of clients.

use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::http::{GatewayServer, request};
use super::{McpClient, configure, place, text};

const FILE: &str = "home/data/gateway-calls.jsonl";

fn lines(place: &TestTree) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path(FILE)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn journal_contains_each_call_that_reached_its_tool_and_its_outcome() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("dies", "exits-mid-call", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    client.call("up__echo", json!({"text": "hi"}));
    client.call("dies__echo", json!({"text": "x".repeat(100_000)}));
    client.error("tools/call", json!({"name": "up__nothing", "arguments": {}}));
    client.end();
    let found: Vec<[String; 3]> = lines(&place)
        .iter()
        .map(|line| ["type", "tool", "outcome"].map(|key| line[key].as_str().unwrap_or_default().to_owned()))
        .collect();
    let expected = [
        ["begun", "up__echo", ""],
        ["ended", "", "ok"],
        ["begun", "dies__echo", ""],
        ["ended", "", "unavailable"],
    ];
    assert_eq!(
        found,
        expected.map(|line| line.map(str::to_owned)),
        "an invalid call does not reach its tool"
    );
    let lines = lines(&place);
    assert_eq!(
        (&lines[0]["arguments"], &lines[0]["principal"]),
        (&json!(r#"{"text":"hi"}"#), &json!("local"))
    );
    assert_eq!(lines[0]["call"], lines[1]["call"]);
    assert_eq!(lines[2]["arguments"].as_str().unwrap().len(), 16 << 10, "long arguments are truncated");
}

#[test]
fn cancelled_call_has_ended_in_the_journal() {
    let place = place();
    configure(&place, &[("up", "never-answers", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    let id = client.begin("tools/call", json!({"name": "up__echo", "arguments": {}}));
    eventually("the call has begun", || !lines(&place).is_empty());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    eventually("the call has ended", || lines(&place).len() == 2);
    let [begun, ended] = &lines(&place)[..] else { panic!("two lines") };
    assert_eq!((&ended["type"], &ended["outcome"]), (&json!("ended"), &json!("cancelled")), "{ended}");
    assert_eq!(ended["call"], begun["call"]);
}

#[test]
fn call_of_a_killed_gateway_has_begun_but_not_ended() {
    let place = place();
    configure(&place, &[("up", "never-answers", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    client.begin("tools/call", json!({"name": "up__echo", "arguments": {}}));
    while lines(&place).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    let types: Vec<Value> = lines(&place).iter().map(|line| line["type"].clone()).collect();
    assert_eq!(types, ["begun"]);
}

#[test]
fn tool_does_not_run_if_the_journal_cannot_be_written() {
    let place = place();
    configure(&place, &[], "");
    std::fs::create_dir_all(place.path(FILE)).unwrap();
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let refused = client.call("bash", json!({"command": "touch ran"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text(&refused).contains("the call was not made"), "{refused}");
    assert!(!place.path("ws/ran").exists());
}

#[test]
fn deletion_of_a_principal_removes_its_calls_from_the_journal() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let keys = ["anna", "ben"].map(|name| {
        let created = place.haft(&["keys", "create", name, "--tenant", "acme"]).output().expect_code(0);
        format!("Bearer {}", created.stdout.trim())
    });
    let server = GatewayServer::start(&place, &[]);
    for key in &keys {
        let session = server.session(&[("Authorization", key)]);
        let headers = [("Authorization", key.as_str()), ("Mcp-Session-Id", &session)];
        let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
        let called = server.post(&headers, &request(2, "tools/call", &call));
        assert_eq!(called.status(), 200);
    }
    drop(server);
    let of = |name: &str| {
        lines(&place).iter().filter(|line| line["principal"].as_str().unwrap().ends_with(name)).count()
    };
    assert_eq!((of("anna"), of("ben")), (2, 2));
    place.haft(&["store", "delete", "--principal", "acme/anna", "--yes"]).output().expect_code(0);
    assert_eq!((of("anna"), of("ben")), (0, 2));
}
