//! Tests of agents as tools of the gateway, with the scripted model server.

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::super::claude_code::accounted_calls;
use super::http::{GatewayServer, initialize, request};
use super::{McpClient, configure, place, text};

/// Returns a test directory with the agent `helper`, and a model that follows the script.
pub(super) fn with_agent(steps: impl IntoIterator<Item = ScriptStep>, keys: &str) -> (TestTree, ModelServer) {
    let place = place();
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let provider = format!(
        r#", "models": {{"default": "openai/m"}}, "providers": {{"openai": {{"baseUrl": "{}/v1", "apiKey": "k"}}}}{keys}"#,
        server.url()
    );
    configure(&place, &[], &provider);
    place.file("home/agents/helper.md", "---\ndescription: Helps with files\ntools: bash\n---\nYou help.\n");
    (place, server)
}

pub(super) fn bash(command: &str) -> ScriptStep {
    ScriptStep::call("bash", json!({ "command": command }))
}

#[test]
fn gateway_agent_reports_its_calls_as_progress_and_accounts_them() {
    let (place, _server) = with_agent([bash("echo from the agent"), ScriptStep::text("All done.")], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    let agent =
        tools.iter().find(|tool| tool["name"] == "agent__helper").unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(agent["description"], "Helps with files");
    let params =
        json!({"name": "agent__helper", "arguments": {"request": "go"}, "_meta": {"progressToken": "p"}});
    let id = client.begin("tools/call", params);
    let reply = client.reply(id);
    assert_eq!(text(&reply["result"]), "All done.", "{reply}");
    let said: Vec<String> = client.others.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("calling the tool `bash`")), "{said:?}");
    client.end();
    let calls: Vec<String> = accounted_calls(&place).into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(calls, ["bash", "agent__helper"], "each call is accounted once");
    let requests = place.text("home/data/accounting.jsonl").matches("\"openai/m\"").count();
    assert_eq!(requests, 2, "each request to the model is accounted once");
    let sessions = place.haft(&["sessions", "list", "--json"]).output().expect_code(0);
    assert!(sessions.stdout.contains("\"calls\": 1"), "{}", sessions.stdout);
}

#[test]
fn approval_inside_an_agent_reaches_the_client() {
    let rules = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;
    let check = |capabilities: Value, decision: Option<&str>, is_made: bool| {
        let steps = [bash("echo inside > made.txt"), ScriptStep::text("Made.")];
        let (place, _server) = with_agent(steps, rules);
        let mut client = McpClient::handshake(&place, &[], capabilities);
        let id = client.begin("tools/call", json!({"name": "agent__helper", "arguments": {"request": "go"}}));
        if let Some(decision) = decision {
            let question = client.wait_for("elicitation/create");
            assert!(question["params"]["message"].as_str().unwrap().contains("echo inside"), "{question}");
            let answer = json!({"action": "accept", "content": {"decision": decision}});
            client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        }
        let reply = client.reply(id);
        assert_eq!(text(&reply["result"]), "Made.", "{reply}");
        assert_eq!(place.exists("ws/made.txt"), is_made);
    };
    check(json!({}), None, false);
    check(json!({"elicitation": {}}), Some("allow once"), true);
    check(json!({"elicitation": {}}), Some("deny"), false);
}

#[test]
fn cancelled_agent_stops_with_all_its_processes() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let id = client.begin("tools/call", json!({"name": "agent__helper", "arguments": {"request": "go"}}));
    eventually("the agent runs its command", || !processes_with(&marker).is_empty());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    eventually("the command ends", || processes_with(&marker).is_empty());
    assert_eq!(client.ask("ping", json!({})), json!({}));
    assert_eq!(client.end(), 0);
}

/// The end of the process would end the command in any case. The test therefore checks that the session records the run
/// as cancelled.
#[test]
fn disconnected_client_ends_its_agents() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.begin("tools/call", json!({"name": "agent__helper", "arguments": {"request": "go"}}));
    eventually("the agent runs its command", || !processes_with(&marker).is_empty());
    assert_eq!(client.end(), 0);
    assert!(processes_with(&marker).is_empty());
    let sessions = place.haft(&["sessions", "list", "--json"]).output().expect_code(0).stdout;
    assert!(sessions.contains("\"state\": \"interrupted\""), "{sessions}");
}

/// In this test, the process continues to run after the client has disconnected.
#[test]
fn closed_session_over_http_ends_its_agents() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let own = [("Mcp-Session-Id", session.as_str())];
    let call = json!({"name": "agent__helper", "arguments": {"request": "go"}});
    std::thread::scope(|scope| {
        scope.spawn(|| server.post(&own, &request(2, "tools/call", &call)));
        eventually("the agent runs its command", || !processes_with(&marker).is_empty());
        assert_eq!(server.send("DELETE", &own, "").status(), 204);
        eventually("the command ends", || processes_with(&marker).is_empty());
    });
    assert_eq!(server.post(&[], &initialize()).status(), 200, "the server accepts new clients");
}
