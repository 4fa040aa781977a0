//! Tests of calls that are tasks, in both kinds of protocol revisions.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

use haft_model_server::{ResponsePace, ScriptStep};
use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::agents::{bash, with_agent};
use super::http::{GatewayServer, initialize, request};
use super::{McpClient, text};

/// Returns the capabilities of a client that supports tasks and forms.
fn with_tasks() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn ask_agent(client: &mut McpClient) -> String {
    let task = client.call("agent__helper", json!({"request": "go"}));
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    task["taskId"].as_str().unwrap().to_owned()
}

/// Waits until the task has this status.
fn until(client: &mut McpClient, id: &str, status: &str) -> Value {
    let mut last = Value::Null;
    eventually(status, || {
        last = client.ask("tasks/get", json!({"taskId": id}));
        assert!(last["status"] == status || last["status"] == "working", "{last}");
        last["status"] == status
    });
    last
}

#[test]
fn agent_call_becomes_a_task_if_the_client_supports_tasks() {
    let rules = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;
    let steps = [bash("echo inside > made.txt"), ScriptStep::text("Made.")];
    let (place, _server) = with_agent(steps, rules);
    let mut client = McpClient::stateless(&place, &[], with_tasks());
    let id = ask_agent(&mut client);
    let waits = until(&mut client, &id, "input_required");
    let (name, question) = waits["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert!(question["params"]["message"].as_str().unwrap().contains("echo inside"), "{question}");
    let answer = json!({"action": "accept", "content": {"decision": "allow once"}});
    let acknowledged = client.ask("tasks/update", json!({"taskId": id, "inputResponses": {name: answer}}));
    assert_eq!(acknowledged["resultType"], "complete");
    let done = until(&mut client, &id, "completed");
    assert_eq!(text(&done["result"]), "Made.", "{done}");
    assert!(place.exists("ws/made.txt"));
    assert_eq!(client.error("tasks/get", json!({"taskId": "other"})), -32_602);
    client.meta.as_mut().unwrap()["io.modelcontextprotocol/clientCapabilities"] = json!({});
    assert_eq!(client.error("tasks/get", json!({"taskId": id})), -32_021);
}

#[test]
fn agent_call_becomes_a_task_on_request_in_the_revision_with_a_handshake() {
    let rules = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;
    let steps = [bash("echo inside > made.txt"), ScriptStep::text("Made.")];
    let (place, _server) = with_agent(steps, rules);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let call = json!({"name": "agent__helper", "arguments": {"request": "go"}, "task": {"ttl": 60_000}});
    let task = client.ask("tools/call", call)["task"].clone();
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)), "{task}");
    let named = json!({"taskId": task["taskId"]});
    assert_eq!(client.ask("tasks/list", json!({}))["tasks"][0]["taskId"], task["taskId"]);
    eventually("the agent asks", || client.ask("tasks/get", named.clone())["status"] == "input_required");
    let waits = client.begin("tasks/result", named.clone());
    let question = client.wait_for("elicitation/create");
    let answer = json!({"action": "accept", "content": {"decision": "allow once"}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    let result = client.reply(waits)["result"].clone();
    assert_eq!(text(&result), "Made.", "{result}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], named, "{result}");
    assert!(place.exists("ws/made.txt"));
    assert_eq!(client.ask("tasks/get", named.clone())["status"], "completed");
    assert_eq!(client.error("tasks/cancel", named), -32_602, "a completed task cannot be cancelled");
    assert_eq!(client.error("tasks/result", json!({"taskId": "other"})), -32_602);
    let plain = json!({"name": "bash", "arguments": {"command": "true"}, "task": {}});
    assert_eq!(client.error("tools/call", plain), -32_601, "a built-in tool cannot be a task");
}

#[test]
fn task_reports_its_progress_until_it_ends() {
    let (place, _server) = with_agent(makes_a_file(), ASKING);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let mut call = call_as_task(60_000);
    call["_meta"] = json!({"progressToken": "call"});
    let task = client.ask("tools/call", call)["task"].clone();
    let named = json!({"taskId": task["taskId"]});
    eventually("the agent asks", || client.ask("tasks/get", named.clone())["status"] == "input_required");
    let state = client.ask("tasks/get", named.clone());
    assert!(state["statusMessage"].as_str().is_some_and(|message| !message.is_empty()), "{state}");
    client.others.clear();
    let mut waiting = named.clone();
    waiting["_meta"] = json!({"progressToken": "result"});
    let waits = client.begin("tasks/result", waiting);
    let question = client.wait_for("elicitation/create");
    client.send(&allowing(&question));
    assert_eq!(text(&client.reply(waits)["result"]), "Made.");
    // The second request to the model follows the answer.
    for token in ["call", "result"] {
        let texts = client.others.iter().filter(|message| message["params"]["progressToken"] == token);
        let texts: Vec<String> = texts.map(|message| message["params"]["message"].to_string()).collect();
        assert!(texts.iter().any(|text| text.contains("asking the model")), "{token}: {texts:?}");
    }
    assert_eq!(client.ask("tasks/get", named)["statusMessage"], Value::Null);
}

#[test]
fn task_is_found_by_requests_with_other_capabilities() {
    let (place, _server) = with_agent(makes_a_file(), ASKING);
    let mut client = McpClient::stateless(&place, &[], with_tasks());
    let id = ask_agent(&mut client);
    let waits = until(&mut client, &id, "input_required");
    assert!(waits["statusMessage"].as_str().is_some_and(|message| !message.is_empty()), "{waits}");
    let tasks_only = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    client.meta.as_mut().unwrap()["io.modelcontextprotocol/clientCapabilities"] = tasks_only;
    let found = client.ask("tasks/get", json!({"taskId": id}));
    assert_eq!(found["status"], "input_required", "{found}");
}

#[test]
fn cancelled_task_with_handshake_stops_with_all_its_processes() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let call = json!({"name": "agent__helper", "arguments": {"request": "go"}, "task": {}});
    let task = client.ask("tools/call", call)["task"].clone();
    assert_eq!(task["ttl"], 90_000_000, "the work may take a day, and the result is kept for another hour");
    eventually("the agent runs its command", || !processes_with(&marker).is_empty());
    let named = json!({"taskId": task["taskId"]});
    assert_eq!(client.ask("tasks/cancel", named.clone())["status"], "cancelled");
    eventually("the command ends", || processes_with(&marker).is_empty());
    assert_eq!(client.error("tasks/result", named), -32_602);
}

#[test]
fn cancelled_task_stops_with_all_its_processes() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let mut client = McpClient::stateless(&place, &[], with_tasks());
    let id = ask_agent(&mut client);
    eventually("the agent runs its command", || !processes_with(&marker).is_empty());
    client.ask("tasks/cancel", json!({"taskId": id}));
    assert_eq!(client.ask("tasks/get", json!({"taskId": id}))["status"], "cancelled");
    eventually("the command ends", || processes_with(&marker).is_empty());
}

/// Rules under which the agent asks before it calls `bash`.
const ASKING: &str = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;

/// The steps of an agent that makes a file.
fn makes_a_file() -> [ScriptStep; 2] {
    [bash("echo inside > made.txt"), ScriptStep::text("Made.")]
}

fn call_as_task(ttl: u64) -> Value {
    json!({"name": "agent__helper", "arguments": {"request": "go"}, "task": {"ttl": ttl}})
}

pub(super) fn allowing(question: &Value) -> Value {
    let answer = json!({"action": "accept", "content": {"decision": "allow once"}});
    json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})
}

#[test]
fn question_is_asked_again_after_the_waiting_request_was_cancelled() {
    let (place, _server) = with_agent(makes_a_file(), ASKING);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let task = client.ask("tools/call", call_as_task(60_000))["task"].clone();
    let named = json!({"taskId": task["taskId"]});
    let first = client.begin("tasks/result", named.clone());
    let question = client.wait_for("elicitation/create");
    let cancelled = json!({"requestId": first});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    let withdrawn = client.wait_for("notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"], "haft withdraws the question");
    assert_eq!(client.ask("tasks/get", named.clone())["status"], "input_required");
    let second = client.begin("tasks/result", named);
    let question = client.wait_for("elicitation/create");
    client.send(&allowing(&question));
    let result = client.reply(second)["result"].clone();
    assert_eq!(text(&result), "Made.", "{result}");
    assert!(place.exists("ws/made.txt"));
}

/// A client that can answer questions over HTTP.
pub(super) struct HttpClient<'a> {
    server: &'a GatewayServer,
    key: String,
    session: String,
}

impl<'a> HttpClient<'a> {
    pub(super) fn connect(server: &'a GatewayServer, key: &str) -> Self {
        let mut greeting = initialize();
        greeting["params"]["capabilities"] = json!({"elicitation": {}});
        let greeted = server.post(&[("Authorization", key)], &greeting);
        Self { server, key: key.to_owned(), session: greeted.header("mcp-session-id") }
    }

    pub(super) fn headers(&self) -> [(&str, &str); 2] {
        [("Authorization", &self.key), ("Mcp-Session-Id", &self.session)]
    }

    fn ask(&self, method: &str, params: &Value) -> Value {
        self.server.post(&self.headers(), &request(2, method, params)).message()
    }

    /// Sends a request, and returns the first message on its stream that contains the text.
    pub(super) fn until(&self, body: &Value, text: &str) -> (Value, BufReader<TcpStream>) {
        let stream = self.server.open("/mcp", "POST", &self.headers(), &body.to_string());
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = String::new();
            assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended without `{text}`");
            if let Some(data) = line.strip_prefix("data: ").filter(|data| data.contains(text)) {
                return (serde_json::from_str(data).unwrap(), stream);
            }
        }
    }
}

#[test]
fn question_is_asked_again_after_the_client_has_connected_again() {
    let (place, _server) = with_agent(makes_a_file(), ASKING);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let lost = HttpClient::connect(&server, "");
    let task = lost.ask("tools/call", &call_as_task(60_000))["result"]["task"].clone();
    let waits = request(3, "tasks/result", &json!({"taskId": task["taskId"]}));
    let (_, stream) = lost.until(&waits, "elicitation/create");
    drop(stream);
    assert_eq!(server.send("DELETE", &lost.headers(), "").status(), 204);
    let client = HttpClient::connect(&server, "");
    let (question, mut stream) = client.until(&waits, "elicitation/create");
    assert_eq!(server.post(&client.headers(), &allowing(&question)).status(), 202);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("Made."), "{rest}");
}

#[test]
fn agent_ends_with_its_task_even_if_its_client_has_disconnected() {
    let marker = unique_marker();
    let (place, _server) = with_agent([bash(&format!("sleep 3600 # {marker}"))], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let client = HttpClient::connect(&server, "");
    let task = client.ask("tools/call", &call_as_task(1))["result"]["task"].clone();
    assert_eq!(task["ttl"], 5_000, "the lifetime has a minimum: {task}");
    eventually("the agent runs its command", || !processes_with(&marker).is_empty());
    assert_eq!(server.send("DELETE", &client.headers(), "").status(), 204);
    assert!(!processes_with(&marker).is_empty(), "a task outlives the session of its client");
    eventually("the command ends", || processes_with(&marker).is_empty());
}

#[test]
fn older_protocol_revisions_have_no_tasks() {
    let (place, _server) = with_agent([ScriptStep::text("All done.")], "");
    let mut client = McpClient::start(&place, &[]);
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let greeted = client.ask("initialize", hello);
    assert_eq!(
        (&greeted["protocolVersion"], &greeted["capabilities"]["tasks"]),
        (&json!("2025-06-18"), &Value::Null)
    );
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
        assert_eq!(client.error(method, json!({"taskId": "t"})), -32_601, "{method}");
    }
    let result = client.ask("tools/call", call_as_task(60_000));
    assert_eq!(text(&result), "All done.", "`task` is an unknown field: {result}");
    let params = json!({"name": "bash", "arguments": {"command": "echo hi"}, "task": "unknown"});
    assert!(text(&client.ask("tools/call", params)).contains("hi"));
}

fn key(place: &TestTree, tenant: &str) -> String {
    let words = ["keys", "create", tenant, "--tenant", tenant, "--scope", "api", "--scope", "builtin-tools"];
    format!("Bearer {}", place.haft(&words).output().expect_code(0).stdout.trim())
}

#[test]
fn task_is_unknown_to_another_principal() {
    let (place, _server) = with_agent([ScriptStep::text("All done.")], "");
    let (anna, bert) = (key(&place, "anna"), key(&place, "bert"));
    let server = GatewayServer::start(&place, &[]);
    let (anna, bert) = (HttpClient::connect(&server, &anna), HttpClient::connect(&server, &bert));
    let task = anna.ask("tools/call", &call_as_task(60_000))["result"]["task"].clone();
    let named = json!({"taskId": task["taskId"]});
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let error = bert.ask(method, &named)["error"].clone();
        assert_eq!(error["code"], -32_602, "{method}: {error}");
        assert_eq!(
            error,
            bert.ask(method, &json!({"taskId": "other"}))["error"],
            "haft reports the task as unknown"
        );
    }
    assert_eq!(bert.ask("tasks/list", &json!({}))["result"]["tasks"], json!([]));
    assert_eq!(anna.ask("tasks/list", &json!({}))["result"]["tasks"][0]["taskId"], task["taskId"]);
    assert_eq!(text(&anna.ask("tasks/result", &named)["result"]), "All done.");
}

#[test]
fn server_without_keys_does_not_list_the_tasks_of_its_clients() {
    let (place, _server) = with_agent([ScriptStep::text("All done.")], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let offered = server.post(&[], &initialize()).message()["result"]["capabilities"]["tasks"].clone();
    assert_eq!(offered, json!({"cancel": {}, "requests": {"tools": {"call": {}}}}));
    let client = HttpClient::connect(&server, "");
    let task = client.ask("tools/call", &call_as_task(60_000))["result"]["task"].clone();
    assert_eq!(client.ask("tasks/list", &json!({}))["error"]["code"], -32_601);
    let result = client.ask("tasks/result", &json!({"taskId": task["taskId"]}));
    assert_eq!(
        text(&result["result"]),
        "All done.",
        "a client that knows the id can read the task: {result}"
    );
}

#[test]
fn question_stays_with_the_task_that_asks_it() {
    let slow = ResponsePace { first_byte_milliseconds: 1_000, ..ResponsePace::default() };
    let [ask, end] = makes_a_file();
    let (place, _server) = with_agent([ask.at_pace(slow), end], ASKING);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    // A call without a task, and then two tasks. All three ask after the last one has begun.
    let plain = client.begin("tools/call", json!({"name": "agent__helper", "arguments": {"request": "go"}}));
    let tasks = [(); 2].map(|()| client.ask("tools/call", call_as_task(60_000))["task"]["taskId"].clone());
    let question = client.wait_for("elicitation/create");
    client.send(&allowing(&question));
    assert_eq!(text(&client.reply(plain)["result"]), "Made.");
    for task in tasks {
        let named = json!({"taskId": task});
        eventually("the task asks", || client.ask("tasks/get", named.clone())["status"] == "input_required");
        let waits = client.begin("tasks/result", named);
        let question = client.wait_for("elicitation/create");
        client.send(&allowing(&question));
        assert_eq!(text(&client.reply(waits)["result"]), "Made.");
    }
}
