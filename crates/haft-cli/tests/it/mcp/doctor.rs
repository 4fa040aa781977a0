//! Tests that `haft doctor` tries every server, and reports the server as ready or gives a reason and a hint.

use serde_json::Value;

use super::tree;
use haft_testkit::{GuardedServer, eventually};

#[test]
fn doctor_reports_each_server_with_reason_and_hint() {
    let tree = tree();
    let guarded = GuardedServer::start();
    let good = tree.misbehaving_server("good", &[]);
    let ends = tree.misbehaving_server("exits-at-once", &[]);
    let unset = r#""command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}"#;
    let config = format!(
        "{{\"mcpServers\": {{\"good\": {{{good}}}, \"ends\": {{{ends}}}, \"unset\": {{{unset}}}, \"off\": {{{ends}, \"enabled\": false}}, \"far\": {{\"url\": \"{0}\"}}, \"shown\": {{\"url\": \"{0}\", \"headers\": {{\"Authorization\": \"Bearer old\"}}}}}}}}",
        guarded.url()
    );
    tree.file("home/haft.json", &config);
    let ran = tree.haft(&["doctor", "--json"]).output().expect_code(5);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let of = |name: &str| {
        let servers = found["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!((&of("good")["ready"], &of("good")["tools"]), (&true.into(), &3.into()), "{found}");
    assert!(of("ends")["reason"].as_str().unwrap().contains("no licence found"), "{found}");
    assert!(of("unset")["reason"].as_str().unwrap().contains("NOT_SET_ANYWHERE"), "{found}");
    assert!(of("far")["hint"].as_str().unwrap().contains("haft mcp login far"), "{found}");
    // A server with a configured credential header needs no login, so the hint names the header.
    assert_eq!(of("shown")["hint"], "check `mcpServers.shown.headers`", "{found}");
    assert_eq!(of("off"), Value::Null);
    let told = tree.haft(&["doctor"]).output().expect_code(5).stdout;
    assert!(told.contains("server     good: ready") && told.contains("server     ends: not ready"), "{told}");
}

#[test]
fn doctor_exits_0_when_all_servers_are_ready() {
    let tree = tree();
    super::configure(&tree, "good", &[], "");
    // On a busy machine a server may need more than one attempt.
    eventually("`haft doctor` finds no problem", || tree.haft(&["doctor"]).output().code == Some(0));
}
