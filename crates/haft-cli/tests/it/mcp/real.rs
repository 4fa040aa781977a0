//! Tests of widely used third-party servers, called in the sandbox over every transport that they support.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::tree;
use haft_testkit::{TestTree, eventually, processes_with};

/// Returns the path of a file that `cargo xtask install` installed.
fn installed(name: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let places = program.ancestors().map(|tree| tree.join("tools/mcp"));
    let path = places.map(|tree| tree.join(name)).find(|path| path.exists());
    let path = path.unwrap_or_else(|| panic!("{name} is not there; `cargo xtask install` installs it"));
    path.to_str().unwrap().to_owned()
}

pub(crate) fn npm(package: &str) -> String {
    installed(&format!("node_modules/@modelcontextprotocol/{package}/dist/index.js"))
}

/// Returns the directory of the official TypeScript packages.
pub(crate) fn module() -> String {
    installed("node_modules/@modelcontextprotocol")
}

pub(crate) fn python() -> String {
    installed("python/bin/python3")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_servers").join(name)
}

fn configure(tree: &TestTree, server: &Value) {
    tree.file("home/haft.json", &json!({ "mcpServers": { "real": server } }).to_string());
}

/// Tests the server and calls one of its tools.
fn check(server: &Value, (protocol, transport): (&str, &str), call: (&str, Value), expected: &str) {
    let tree = tree();
    let workspace = tree.path("ws");
    tree.file("ws/note.txt", "noted");
    let git = |args: &[&str]| Command::new("git").current_dir(&workspace).args(args).output().unwrap();
    git(&["init", "-q"]);
    let filled = |value: &Value| -> Value {
        serde_json::from_str(&value.to_string().replace("WORKSPACE", workspace.to_str().unwrap())).unwrap()
    };
    configure(&tree, &filled(server));
    let tried = tree.haft(&["mcp", "test", "real", "--json"]).output().expect_code(0).stdout;
    let tried: Value = serde_json::from_str(&tried).unwrap();
    assert_eq!((&tried["protocol"], &tried["transport"]), (&protocol.into(), &transport.into()), "{tried}");
    assert_eq!(tried["skipped"], json!([]), "{tried}");
    let (tool, arguments) = call;
    let called = tree.haft(&["call", &format!("real__{tool}"), &filled(&arguments).to_string()]).output();
    let called = called.expect_code(0);
    assert!(called.stdout.contains(expected), "{tool}: {}", called.stdout);
}

const OLD: (&str, &str) = ("2025-11-25", "stdio");
const NEW: (&str, &str) = ("2026-07-28", "stdio");

#[test]
fn server_everything_works_over_stdio() {
    let server = json!({ "command": "node", "args": [npm("server-everything"), "stdio"] });
    check(&server, OLD, ("echo", json!({ "message": "hi" })), "Echo: hi");
}

#[test]
fn server_filesystem_lists_the_workspace() {
    let server = json!({ "command": "node", "args": [npm("server-filesystem"), "WORKSPACE"] });
    check(&server, OLD, ("list_directory", json!({ "path": "WORKSPACE" })), "note.txt");
}

#[test]
fn server_memory_writes_to_the_workspace() {
    let env = json!({ "MEMORY_FILE_PATH": "WORKSPACE/memory.json" });
    let server = json!({ "command": "node", "args": [npm("server-memory")], "env": env });
    let entity = json!({ "entities": [{ "name": "haft", "entityType": "tool", "observations": ["holds"] }] });
    check(&server, OLD, ("create_entities", entity), "haft");
}

#[test]
fn server_sequential_thinking_accepts_numbers_and_booleans() {
    let server = json!({ "command": "node", "args": [npm("server-sequential-thinking")] });
    let thought =
        json!({ "thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1 });
    check(&server, OLD, ("sequentialthinking", thought), "thoughtNumber");
}

#[test]
fn server_time_works_without_handshake() {
    let server = json!({ "command": python(), "args": ["-m", "mcp_server_time"] });
    check(&server, NEW, ("get_current_time", json!({ "timezone": "Asia/Tokyo" })), "Asia/Tokyo");
}

#[test]
fn server_git_reads_the_workspace() {
    let server = json!({ "command": python(), "args": ["-m", "mcp_server_git"] });
    check(&server, NEW, ("git_status", json!({ "repo_path": "WORKSPACE" })), "note.txt");
}

#[test]
fn server_fetch_reaches_the_network() {
    let page = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 8\r\nconnection: close\r\n\r\nfetched!";
    let (address, _asked) = super::http::serve(|_| page.to_vec());
    let args = json!(["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"]);
    check(
        &json!({ "command": python(), "args": args }),
        NEW,
        ("fetch", json!({ "url": address })),
        "fetched!",
    );
}

/// A server process that ends with the test.
pub(super) struct McpServerProcess(Child);

impl Drop for McpServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server over HTTP, on the loopback interface only.
pub(super) fn everything(way: &str) -> (McpServerProcess, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("node");
    command.args(["--require", fixture("loopback.cjs").to_str().unwrap(), &npm("server-everything"), way]);
    let silent = command.env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = McpServerProcess(silent.spawn().unwrap());
    eventually("the server accepts connections", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (running, port)
}

#[test]
fn server_everything_works_over_streamable_http() {
    let (_running, port) = everything("streamableHttp");
    let server = json!({ "url": format!("http://127.0.0.1:{port}/mcp") });
    check(&server, ("2025-11-25", "http"), ("echo", json!({ "message": "far" })), "Echo: far");
}

#[test]
fn server_everything_over_sse_is_detected() {
    let (_running, port) = everything("sse");
    let server = json!({ "url": format!("http://127.0.0.1:{port}/sse") });
    check(&server, ("2025-11-25", "sse"), ("echo", json!({ "message": "old" })), "Echo: old");
    let unsaid = json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/sse") });
    check(&unsaid, ("2025-11-25", "sse"), ("echo", json!({ "message": "old" })), "Echo: old");
}

#[test]
fn python_websocket_server_works() {
    let mut command = Command::new(python());
    let mut child = command.arg(fixture("websocket.py")).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let _running = McpServerProcess(child);
    let server = json!({ "url": format!("ws://127.0.0.1:{}/mcp", port.trim()) });
    let way = ("2025-06-18", "websocket");
    check(&server, way, ("echo", json!({ "text": "hi" })), "over a socket: hi");
}

#[test]
fn server_everything_leaves_no_process() {
    let tree = tree();
    let marker = haft_testkit::unique_marker();
    configure(&tree, &json!({ "command": "node", "args": [npm("server-everything"), "stdio", marker] }));
    tree.haft(&["call", "real__echo", r#"{"message": "x"}"#]).output().expect_code(0);
    assert!(processes_with(&marker).is_empty());
}
