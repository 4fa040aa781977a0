//! Tests of the gateway after SIGHUP: open sessions and new ones see the new tools and agents.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::http::{GatewayServer, request};
use super::{configure, place};

/// The maximum time until a client learns of a change, even on a busy machine.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(30);

fn agent(place: &TestTree, name: &str) {
    let text = format!("---\ndescription: Helps.\nmodels: openai/m\ntools: []\n---\nYou are {name}.\n");
    place.file(&format!("home/agents/{name}.md"), &text);
}

fn tools(server: &GatewayServer, session: &str) -> String {
    server.post(&[("Mcp-Session-Id", session)], &request(2, "tools/list", &json!({}))).message().to_string()
}

fn call(server: &GatewayServer, session: &str, name: &str) -> Value {
    let call = json!({"name": name, "arguments": {"text": "hi"}});
    server.post(&[("Mcp-Session-Id", session)], &request(3, "tools/call", &call)).message()
}

/// Checks both commands that serve the gateway over HTTP: `haft serve`, and `haft mcp serve --http`.
#[test]
fn open_and_new_sessions_see_the_tools_and_agents_of_a_reload() {
    for words in [&["serve", "--address"], &["mcp", "serve", "--http"][..]] {
        let (place, first, second) = (place(), unique_marker(), unique_marker());
        configure(&place, &[("old", "good", &[&first])], "");
        let server = GatewayServer::of(place.haft(&[words, &["127.0.0.1:0", "--no-auth"]].concat()).start());
        let session = server.session(&[]);
        let before = tools(&server, &session);
        assert!(before.contains("old__echo") && !before.contains("agent__"), "{before}");
        let own = [("Mcp-Session-Id", session.as_str())];
        let stream = server.open("/mcp", "GET", &own, "");
        stream.set_read_timeout(Some(NOTIFIED_WITHIN)).unwrap();
        let mut notified = BufReader::new(stream).lines();

        configure(&place, &[("new", "good", &[&second])], "");
        agent(&place, "helper");
        server.reload();
        let changed = "notifications/tools/list_changed";
        assert!(notified.any(|line| line.unwrap().contains(changed)), "{words:?}");
        for session in [&session, &server.session(&[])] {
            let now = tools(&server, session);
            assert!(now.contains("new__echo") && now.contains("agent__helper"), "{words:?}: {now}");
            assert!(!now.contains("old__echo"), "{words:?}: {now}");
            let called = call(&server, session, "new__echo");
            assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{words:?}: {called}");
            let called = call(&server, session, "old__echo").to_string();
            assert!(!called.contains("echo: hi"), "{words:?}: {called}");
        }
        drop(server);
        assert!(processes_with(&first).is_empty() && processes_with(&second).is_empty());
    }
}

#[test]
fn rules_of_a_reload_apply_to_open_sessions() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let session = server.session(&[]);
    let called = call(&server, &session, "up__echo");
    assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
    let rules = r#", "policy": {"rules": [{"tool": "up__*", "decision": "deny"}]}"#;
    configure(&place, &[("up", "good", &[])], rules);
    server.reload();
    eventually("the new rule denies the call", || {
        !call(&server, &session, "up__echo").to_string().contains("echo: hi")
    });
}

#[test]
fn reload_of_an_invalid_file_changes_no_tools() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    agent(&place, "helper");
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let session = server.session(&[]);
    let before = tools(&server, &session);
    assert!(before.contains("up__echo") && before.contains("agent__helper"), "{before}");
    let refusals = |count: usize| {
        let audit = || std::fs::read_to_string(place.path("home/data/audit.jsonl")).unwrap_or_default();
        eventually("the reload was refused", || audit().matches("config.refused").count() == count);
    };
    place.file("home/agents/helper.md", "---\nmaxTurns: many\n---\nx\n");
    configure(&place, &[("other", "good", &[])], "");
    server.reload();
    refusals(1);
    agent(&place, "helper");
    configure(&place, &[("other", "good", &[])], ", \"models\": 7");
    server.reload();
    refusals(2);
    assert_eq!(tools(&server, &session), before);
    assert!(tools(&server, &server.session(&[])).contains("up__echo"));
}

#[test]
fn call_in_progress_keeps_its_tools_during_a_reload() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let session = server.session(&[]);
    assert!(tools(&server, &session).contains("up__slow"));
    let slow = json!({"name": "up__slow", "arguments": {"text": "hi"}, "_meta": {"progressToken": "p"}});
    let own = [("Mcp-Session-Id", session.as_str())];
    let stream = server.open("/mcp", "POST", &own, &request(4, "tools/call", &slow).to_string());
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.any(|line| line.unwrap().contains("notifications/progress")), "the call has begun");
    configure(&place, &[], "");
    server.reload();
    eventually("the tool is gone", || !tools(&server, &session).contains("up__slow"));
    assert!(lines.any(|line| line.unwrap().contains("echo: hi")), "the call has its result");
}
