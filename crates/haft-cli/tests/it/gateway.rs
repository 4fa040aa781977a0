//! Tests of `haft mcp serve`: all tools as one MCP server, through the real binary.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use haft_testkit::{TestTree, TestUser};
use serde_json::{Value, json};

mod agents;
mod api_approvals;
mod approvals;
mod hostile;
mod http;
mod http_upstream;
mod isolation;
mod journal;
mod logins;
mod matrix;
mod oauth;
mod operator;
mod passed;
mod profiles;
mod programs;
mod protocol;
mod reload;
mod rug_pull;
mod sdk;
mod search;
mod tasks;
mod upstream_tasks;

fn place() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

/// Configures upstream servers (name, mode of the test server, arguments), and adds further keys to the configuration.
fn configure(place: &TestTree, servers: &[(&str, &str, &[&str])], keys: &str) {
    let entry = |(name, mode, args): &(&str, &str, &[&str])| {
        format!("\"{name}\": {{{}}}", place.misbehaving_server(mode, args))
    };
    let servers: Vec<String> = servers.iter().map(entry).collect();
    place.file("home/haft.json", &format!("{{\"mcpServers\": {{{}}}{keys}}}", servers.join(", ")));
}

/// A client that writes lines and reads lines.
struct McpClient {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    next: u64,
    /// The metadata that every request of a protocol revision without sessions contains.
    meta: Option<Value>,
    /// Messages other than the reply to the last request.
    others: Vec<Value>,
}

impl McpClient {
    fn start(place: &TestTree, flags: &[&str]) -> Self {
        let mut child = place.haft(&[&["mcp", "serve"], flags].concat()).start();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take();
        Self { child, input, output, next: 0, meta: None, others: Vec::new() }
    }

    /// Starts a client that has made the handshake.
    fn handshake(place: &TestTree, flags: &[&str], capabilities: Value) -> Self {
        let mut client = Self::start(place, flags);
        let mut params = json!({
            "protocolVersion": "2025-11-25",
            "clientInfo": {"name": "test", "version": "1"},
        });
        params["capabilities"] = capabilities;
        let greeted = client.ask("initialize", params);
        assert_eq!(greeted["protocolVersion"], "2025-11-25", "{greeted}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// Starts a client of a protocol revision without sessions.
    fn stateless(place: &TestTree, flags: &[&str], capabilities: Value) -> Self {
        let mut client = Self::start(place, flags);
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        client.meta = Some(meta);
        client
    }

    fn line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        input.write_all(b"\n").unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    /// Sends a request without waiting for its reply, and returns its id.
    fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if let Some(meta) = &self.meta {
            for (key, value) in meta.as_object().unwrap() {
                params["_meta"][key] = value.clone();
            }
        }
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn receive(&mut self) -> Value {
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap()
    }

    /// Waits for the reply to a request; keeps other messages.
    fn reply(&mut self, id: u64) -> Value {
        if let Some(at) = self.others.iter().position(|message| message["id"] == id) {
            return self.others.remove(at);
        }
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.others.push(message);
        }
    }

    /// Waits for a request or notification from the server; keeps other messages.
    fn wait_for(&mut self, method: &str) -> Value {
        if let Some(at) = self.others.iter().position(|message| message["method"] == method) {
            return self.others.remove(at);
        }
        loop {
            let message = self.receive();
            if message["method"] == method {
                return message;
            }
            self.others.push(message);
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let reply = self.reply(id);
        reply.get("result").unwrap_or_else(|| panic!("{reply}")).clone()
    }

    fn error(&mut self, method: &str, params: Value) -> i64 {
        let id = self.begin(method, params);
        let reply = self.reply(id);
        reply["error"]["code"].as_i64().unwrap_or_else(|| panic!("{reply}"))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({"name": tool});
        params["arguments"] = arguments;
        self.ask("tools/call", params)
    }

    fn names(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes the input, and returns the exit code.
    fn end(mut self) -> i32 {
        drop(self.input.take());
        self.child.wait().unwrap().code().unwrap()
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
