//! Tests of tools that upstream servers run as tasks, for clients with and without tasks.

use std::path::Path;
use std::process::{Command, Stdio};

use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::super::claude_code::accounted_calls;
use super::super::mcp::real::{module, npm};
use super::{McpClient, place, text};

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Configures the server `tasks`, which records the methods that it receives in the workspace.
fn with_tasks(form: &str, fault: &str, keys: &str) -> TestTree {
    let place = place();
    let record = place.path("ws/record").display().to_string();
    let server = place.task_server(form, fault, &record);
    place.file("home/haft.json", &format!("{{\"mcpServers\": {{\"tasks\": {{{server}}}}}{keys}}}"));
    place
}

fn as_task(arguments: Value) -> Value {
    let mut call = json!({"name": "tasks__dig", "task": {"ttl": 60_000}});
    call["arguments"] = arguments;
    call
}

fn accepting(question: &Value, content: Value) -> Value {
    let mut answer = json!({"action": "accept"});
    answer["content"] = content;
    json!({"jsonrpc": "2.0", "id": question["id"], "result": answer})
}

#[test]
fn client_without_tasks_calls_a_tool_whose_server_requires_a_task() {
    let place = with_tasks("core", "none", "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let listed = client.ask("tools/list", json!({}));
    let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "tasks__dig").unwrap();
    assert_eq!(tool["execution"], json!({"taskSupport": "optional"}), "{tool}");
    let mut call = json!({"name": "tasks__dig", "arguments": {"text": "hi"}});
    call["_meta"] = json!({"progressToken": "p"});
    let result = client.ask("tools/call", call);
    assert_eq!(text(&result), "task: hi", "{result}");
    let told: Vec<String> = client.others.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|line| line.contains("digging")), "the status of the task: {told:?}");
    let is_half = |line: &&String| line.contains("\"progress\":1.0,") && line.contains("\"total\":2.0");
    assert!(told.iter().any(|line| is_half(&line)), "the progress of the task: {told:?}");
    client.end();
    assert_eq!(accounted_calls(&place).len(), 1, "one call is accounted");
}

#[test]
fn task_of_a_client_waits_for_the_task_of_the_server() {
    let rules = r#", "policy": {"rules": [{"tool": "tasks__dig", "decision": "ask"}]}"#;
    let place = with_tasks("core", "none", rules);
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let task = client.ask("tools/call", as_task(json!({"ask": true})))["task"].clone();
    assert_eq!(task["status"], "working", "{task}");
    let waits = client.begin("tasks/result", json!({"taskId": task["taskId"]}));
    let approval = client.wait_for("elicitation/create");
    assert!(approval["params"]["message"].as_str().unwrap().contains("tasks__dig"), "{approval}");
    assert!(!place.text("ws/record").contains("tools/call"), "haft makes no call before the approval");
    client.send(&accepting(&approval, json!({"decision": "allow once"})));
    let question = client.wait_for("elicitation/create");
    assert!(question["params"]["message"].as_str().unwrap().contains("Which colour?"), "{question}");
    for asked in [&approval, &question] {
        assert_eq!(asked["params"]["_meta"][RELATED_TASK]["taskId"], task["taskId"], "{asked}");
    }
    client.send(&accepting(&question, json!({"colour": "green"})));
    let result = client.reply(waits)["result"].clone();
    assert!(text(&result).contains("green"), "{result}");
    let own = &result["_meta"][RELATED_TASK]["taskId"];
    assert_eq!(*own, task["taskId"], "the result names the task of the gateway");
}

#[test]
fn call_without_a_task_does_not_show_the_task_of_the_server() {
    let place = with_tasks("core", "none", "");
    let mut client = McpClient::handshake(&place, &[], json!({"elicitation": {}}));
    let call = client.begin("tools/call", json!({"name": "tasks__dig", "arguments": {"ask": true}}));
    let question = client.wait_for("elicitation/create");
    assert_eq!(question["params"]["_meta"][RELATED_TASK], Value::Null, "{question}");
    client.send(&accepting(&question, json!({"colour": "green"})));
    let result = client.reply(call)["result"].clone();
    assert!(text(&result).contains("green"), "{result}");
    assert_eq!(result["_meta"][RELATED_TASK], Value::Null, "{result}");
}

#[test]
fn cancelled_call_or_task_cancels_the_task_of_the_server() {
    let cancelled = |place: &TestTree| place.text("ws/record").contains("tasks/cancel");
    let place = with_tasks("core", "never-ends", "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let task = client.ask("tools/call", as_task(json!({})))["task"].clone();
    eventually("haft polls the task", || {
        place.exists("ws/record") && place.text("ws/record").contains("tasks/get")
    });
    assert!(!cancelled(&place));
    client.ask("tasks/cancel", json!({"taskId": task["taskId"]}));
    eventually("the server gets `tasks/cancel`", || cancelled(&place));

    let place = with_tasks("extension", "never-ends", "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let call = client.begin("tools/call", json!({"name": "tasks__dig", "arguments": {}}));
    eventually("haft polls the task", || {
        place.exists("ws/record") && place.text("ws/record").contains("tasks/get")
    });
    let params = json!({"requestId": call});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    eventually("the server gets `tasks/cancel`", || cancelled(&place));
}

/// The upstream server is a second haft gateway, in the revision without sessions. The outer gateway calls an agent of
/// this inner gateway as a task.
#[test]
fn gateway_behind_a_gateway_runs_its_agent_as_a_task() {
    let steps = [haft_model_server::ScriptStep::text("From within.")];
    let (inner, _server) = super::agents::with_agent(steps, "");
    let outer = place();
    let mut server =
        json!({ "command": haft_testkit::binary().display().to_string(), "args": ["mcp", "serve"] });
    server["env"] = json!({ "HAFT_HOME": inner.path("home").display().to_string() });
    server["writable"] = json!([inner.path("home").display().to_string()]);
    outer.file("home/haft.json", &json!({ "mcpServers": { "inner": server } }).to_string());
    let mut client = McpClient::handshake(&outer, &[], json!({}));
    let result = client.call("inner__agent__helper", json!({"request": "go"}));
    assert_eq!(text(&result), "From within.", "{result}");
}

/// The official TypeScript SDK on both sides of the gateway.
#[test]
fn typescript_client_gets_the_task_of_a_typescript_server() {
    let place = place();
    let server = json!({ "command": "node", "args": [npm("server-everything"), "stdio"] });
    place.file("home/haft.json", &json!({ "mcpServers": { "real": server } }).to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_clients/tasks_v1.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(haft_testkit::binary()).current_dir(place.path("ws")).stdin(Stdio::null());
    let ran = command.env("HAFT_HOME", place.path("home")).env("MCP_SDK", module()).output().unwrap();
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error} {ran:?}"));
    assert_eq!(report["support"], "optional", "{report}");
    assert!(report["plain"].as_str().unwrap().contains("Research Report: plain"), "{report}");
    assert!(report["streamed"].as_str().unwrap().contains("Research Report: python"), "{report}");
    assert!(report["question"].as_str().unwrap().contains("python"), "{report}");
    let statuses = report["statuses"].as_array().unwrap();
    assert!(statuses.contains(&json!("input_required")), "{report}");
}
