//! Tests of key limits for the agents that MCP clients call, with the real binary.

use std::thread;

use haft_model_server::{ModelServer, ResponsePace, Script, ScriptStep, ScriptUsage};
use haft_testkit::{TestTree, TestUser, eventually, libc, send_signal};
use serde_json::{Value, json};

use super::serve::stop;
use super::serve_workspaces::{WorkspaceServer, command};

const AGENT: &str = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";

/// The usage of each model reply. With the price of one dollar per million tokens, a reply costs one dollar.
const USAGE: ScriptUsage =
    ScriptUsage { input: 900_000, output: 100_000, cache_read: 0, cache_write: 0, reasoning: 0 };

/// The time until the model replies to a request with the text `slow`, in milliseconds.
const SLOW_MS: u64 = 3_000;

/// The words of a command that serves the gateway.
type ServeWords<'a> = &'a [&'a str];

const SERVERS: [ServeWords<'static>; 2] =
    [&["serve", "--address", "127.0.0.1:0"], &["mcp", "serve", "--http", "127.0.0.1:0"]];

/// An MCP server whose tool asks the model of its client.
const ASKER: &str = r#"
import json, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "asker", "version": "1"}})
    elif method == "tools/list":
        send(id=id, result={"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        message = {"role": "user", "content": {"type": "text", "text": "Hello"}}
        send(id="s", method="sampling/createMessage", params={"messages": [message], "maxTokens": 100})
        reply = next(m for m in map(json.loads, sys.stdin) if m.get("id") == "s")
        text = reply["result"]["content"]["text"] if "result" in reply else json.dumps(reply["error"])
        send(id=id, result={"content": [{"type": "text", "text": text}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "unknown method"})
"#;

fn start(words: ServeWords<'_>) -> WorkspaceServer {
    start_in(TestTree::new(TestUser::Ourselves), words, &json!({}))
}

fn start_in(tree: TestTree, words: ServeWords<'_>, servers: &Value) -> WorkspaceServer {
    let price = json!({"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0});
    let models = json!({"default": "openai/m", "settings": {"openai/m": {"price": price}}});
    tree.directory("home/agents");
    tree.file("home/haft.json", &json!({"models": models, "mcpServers": servers}).to_string());
    tree.file("home/agents/worker.md", AGENT);
    let pace = ResponsePace { first_byte_milliseconds: SLOW_MS, ..ResponsePace::default() };
    let reply = || ScriptStep::text("done").using(USAGE);
    let script = Script::of([reply()]).about("slow", [reply().at_pace(pace)]);
    let model = ModelServer::start(script).unwrap();
    let (child, address) = super::serve::listening(command(&tree, &model, words));
    WorkspaceServer { tree, child, address, model }
}

fn limited_key(server: &WorkspaceServer, limit: &[&str]) -> String {
    let words = ["keys", "create", "limited", "--scope", "api"];
    server.tree.haft(&[&words, limit].concat()).output().expect_code(0).stdout.trim().to_owned()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Returns the seconds after which the error of a refused call tells the client to try again.
#[track_caller]
fn wait_of(refused: &Value, limit: &str) -> u64 {
    assert_eq!(refused["isError"], true, "{refused}");
    let text = text(refused);
    assert!(text.contains(limit), "{text}");
    let seconds = text.split("try again in ").nth(1).and_then(|rest| rest.split(' ').next());
    seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn agent_calls_over_mcp_are_refused_at_the_token_and_cost_limits_of_the_key() {
    for words in SERVERS {
        let server = start(words);
        let tokens = limited_key(&server, &["--tokens-per-minute", "500000"]);
        let cost = limited_key(&server, &["--usd-per-month", "1"]);
        for key in [&tokens, &cost] {
            assert_eq!(text(&server.call_agent(key, "first")), "done", "{words:?}");
        }
        let wait = wait_of(&server.call_agent(&tokens, "second"), "limit of tokens per minute");
        assert!((1..=61).contains(&wait), "{wait}");
        let wait = wait_of(&server.call_agent(&cost, "second"), "cost limit for this month");
        assert!((1..=31 * 86_400).contains(&wait), "{wait}");
        assert_eq!(server.model.requests().len(), 2, "a refused call sends no model request");
        let other = limited_key(&server, &[]);
        assert_eq!(text(&server.call_agent(&other, "third")), "done", "other keys are not affected");
        stop(server.child);
    }
}

#[test]
fn agent_calls_over_mcp_count_as_concurrent_responses_of_the_key() {
    for words in SERVERS {
        let server = start(words);
        let key = limited_key(&server, &["--concurrent-responses", "1"]);
        thread::scope(|scope| {
            let slow = scope.spawn(|| server.call_agent(&key, "slow"));
            eventually("the slow run asks the model", || server.model.requests().len() == 1);
            let refused = server.call_agent(&key, "second");
            assert_eq!(wait_of(&refused, "limit of concurrent responses"), 5);
            if words[0] == "serve" {
                let refused = server.post(&key, &json!({"model": "worker", "input": "third"}));
                assert!(refused.head.starts_with("HTTP/1.1 429"), "{}", refused.body);
            }
            assert_eq!(text(&slow.join().unwrap()), "done");
        });
        assert_eq!(text(&server.call_agent(&key, "fourth")), "done", "the ended run frees its place");
        stop(server.child);
    }
}

#[test]
fn agent_call_over_mcp_is_refused_while_the_server_stops() {
    let mut server = start(SERVERS[0]);
    let key = limited_key(&server, &[]);
    thread::scope(|scope| {
        let slow = scope.spawn(|| server.post(&key, &json!({"model": "worker", "input": "slow"})));
        eventually("the slow run asks the model", || server.model.requests().len() == 1);
        send_signal(server.child.id(), libc::SIGTERM);
        eventually("the server stops", || server.read(&key, "/readyz").starts_with("HTTP/1.1 503"));
        let refused = server.call_agent(&key, "second");
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text(&refused).contains("the server is stopping"), "{refused}");
        assert_eq!(slow.join().unwrap().body["status"], "completed", "the server waits for the slow run");
    });
    assert_eq!(server.model.requests().len(), 1, "the refused call sends no model request");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn mcp_calls_are_audited_and_counted() {
    for words in SERVERS {
        let tree = TestTree::new(TestUser::Ourselves);
        let script = tree.file("outside/asker.py", ASKER);
        let sampling = json!({"model": "openai/m", "approval": "allow"});
        let asker =
            json!({"command": "python3", "args": [script], "startup": "required", "sampling": sampling});
        let server = start_in(tree, words, &json!({ "asker": asker }));
        let key = limited_key(&server, &["--usd-per-month", "1"]);
        let called = server.call_tool(&key, "asker__ask", &json!({}));
        assert_eq!(text(&called), "done", "{words:?}");
        wait_of(&server.call_agent(&key, "second"), "cost limit for this month");
        let audit = std::fs::read_to_string(server.tree.path("home/data/audit.jsonl")).unwrap();
        let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_tool: Vec<&Value> = lines.iter().filter(|line| line["target"] == "asker__ask").collect();
        assert_eq!((of_tool.len(), &of_tool[0]["event"]), (1, &json!("tool.executed")), "{audit}");
        assert_eq!(of_tool[0]["principal"], "default/limited");
        if words[0] == "serve" {
            let admin = server.tree.haft(&["keys", "create", "admin", "--scope", "admin"]).output();
            let metrics = server.read(admin.expect_code(0).stdout.trim(), "/metrics");
            for row in [
                r#"haft_tool_calls_total{tool="asker__ask",outcome="ok"} 1"#,
                r#"haft_model_requests_total{outcome="ok"} 1"#,
            ] {
                assert!(metrics.contains(row), "{row}: {metrics}");
            }
        }
        stop(server.child);
    }
}
