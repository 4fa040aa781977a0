//! Tests of agents as tools of the gateway, with the scripted model server.

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::super::claude_code::accounted_calls;
use super::http::{GatewayServer, initialize, request};
use super::{McpClient, configure, place, text};

/// Returns a test directory with the agent `helper`, and a model that follows the script.
pub(super) fn with_agent(steps: impl IntoIterator<Item = ScriptStep>, keys: &str) -> (TestTree, ModelServer) {
    with_agent_and_servers(steps, &[], keys)
}

/// Like [`with_agent`], with upstream servers.
fn with_agent_and_servers(
    steps: impl IntoIterator<Item = ScriptStep>,
    servers: &[(&str, &str, &[&str])],
    keys: &str,
) -> (TestTree, ModelServer) {
    let place = place();
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let provider = format!(
        r#", "models": {{"default": "openai/m"}}, "providers": {{"openai": {{"baseUrl": "{}/v1", "apiKey": "k"}}}}{keys}"#,
        server.url()
    );
    configure(&place, servers, &provider);
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
fn approval_request_of_an_agent_reaches_the_client() {
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

/// Returns the next reply, or the next question.
fn reply_or_question(client: &mut McpClient, id: u64) -> Value {
    loop {
        let message = client.receive();
        if message["id"] == id || message["method"] == "elicitation/create" {
            return message;
        }
    }
}

#[test]
fn server_of_an_agent_asks_only_clients_that_can_show_forms() {
    let steps = || [ScriptStep::call("up__echo", json!({})), ScriptStep::text("Done.")];
    let call = json!({"name": "agent__helper", "arguments": {"request": "go"}});
    let answer = json!({"action": "accept", "content": {"colour": "green"}});
    for (capabilities, is_asked) in
        [(json!({}), false), (json!({"elicitation": {"url": {}}}), false), (json!({"elicitation": {}}), true)]
    {
        let steps = [steps(), steps()].concat();
        let (place, model) = with_agent_and_servers(steps, &[("up", "asks-person", &[])], "");
        let agent = "---\ndescription: Helps\ntools: [up__echo]\n---\nYou help.\n";
        place.file("home/agents/helper.md", agent);
        let mut client = McpClient::handshake(&place, &[], capabilities.clone());
        let id = client.begin("tools/call", call.clone());
        let mut message = reply_or_question(&mut client, id);
        assert_eq!(message["method"] == "elicitation/create", is_asked, "{capabilities}: {message}");
        if is_asked {
            client.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
            message = client.reply(id);
        }
        assert_eq!(text(&message["result"]), "Done.", "{message}");

        let mut client = McpClient::stateless(&place, &[], capabilities.clone());
        let mut result = client.ask("tools/call", call.clone());
        assert_eq!(result["resultType"] == "input_required", is_asked, "{capabilities}: {result}");
        if is_asked {
            result = client.ask("tools/call", answered(&call, &result, &answer));
        }
        assert_eq!(text(&result), "Done.", "{result}");
        let answers = model.requests().iter().filter(|request| request.raw.contains("green")).count();
        assert_eq!(answers, if is_asked { 2 } else { 0 }, "{capabilities}");
    }
}

/// Returns the call again, with the answer to its only question.
fn answered(call: &Value, asked: &Value, answer: &Value) -> Value {
    let mut again = call.clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({});
    again["inputResponses"][key] = answer.clone();
    again
}

/// Repeats a stateless call with an answer and with these members of `_meta`, over stdio and over HTTP. Returns the
/// messages before each reply, and the reply.
fn continued_calls(place: &TestTree, call: &Value, meta: &Value) -> [(String, Value); 2] {
    let allow = json!({"action": "accept", "content": {"decision": "allow once"}});
    let again = |asked: &Value| {
        let mut again = answered(call, asked, &allow);
        again["_meta"] = meta.clone();
        again
    };
    let mut client = McpClient::stateless(place, &[], json!({"elicitation": {}}));
    let asked = client.ask("tools/call", call.clone());
    let done = client.ask("tools/call", again(&asked));
    let over_stdio = client.others.iter().map(ToString::to_string).collect::<String>();

    let server = GatewayServer::start(place, &["--no-auth"]);
    let post = |mut params: Value| {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        let name = params["name"].as_str().unwrap().to_owned();
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", &*name)];
        server.post(&headers, &request(1, "tools/call", &params))
    };
    let asked = post(call.clone()).message()["result"].clone();
    let reply = post(again(&asked));
    [(over_stdio, done), (reply.body().to_owned(), reply.message()["result"].clone())]
}

#[test]
fn repeated_request_gets_the_progress_of_the_call_that_it_continues() {
    let rules = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;
    let steps = [bash("echo inside"), ScriptStep::text("Made.")];
    let (place, _server) = with_agent([&steps[..], &steps[..]].concat(), rules);
    let call = json!({"name": "agent__helper", "arguments": {"request": "go"}});
    for (messages, result) in continued_calls(&place, &call, &json!({"progressToken": "second"})) {
        assert_eq!(text(&result), "Made.", "{result}");
        assert!(messages.contains("\"progressToken\":\"second\""), "{messages}");
        assert!(messages.contains("asking the model"), "{messages}");
    }
}

#[test]
fn repeated_request_gets_the_log_messages_of_the_call_that_it_continues() {
    let place = place();
    let rules = r#", "policy": {"rules": [{"tool": "up__echo", "decision": "ask"}]}"#;
    configure(&place, &[("up", "offers", &[])], rules);
    let call = json!({"name": "up__echo", "arguments": {}});
    let meta = json!({"io.modelcontextprotocol/logLevel": "warning"});
    for (messages, result) in continued_calls(&place, &call, &meta) {
        assert_eq!(result["resultType"], "complete", "{result}");
        assert!(messages.contains("mind the step"), "{messages}");
    }
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
