//! Tests of other processes of the same user, outside the sandbox: they must not read the memory and the environment of
//! haft, which contain API keys.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use haft_model_server::ScriptStep;
use haft_testkit::{TestTree, TestUser, eventually, libc, send_signal, users};
use serde_json::json;

use super::run::{haft, server};

/// Returns a tree of a user without privileges if possible, because root can read every process.
fn tree() -> TestTree {
    TestTree::new(users().last().copied().unwrap_or(TestUser::Ourselves))
}

/// Checks that a process of the same user cannot read this process, and that it writes no core file.
#[track_caller]
fn check_unreadable(tree: &TestTree, child: &Child) {
    let pid = child.id();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).collect::<Vec<_>>(), ["0", "0", "bytes"]);
    for file in ["environ", "mem", "maps", "fd/0"] {
        let read = tree.unconfined(&format!("head -c 1 < /proc/{pid}/{file}"));
        let is_refused = read.stdout.is_empty() && read.stderr.contains("Permission denied");
        assert!(is_refused || is_root(tree), "{file}: {read:?}");
    }
}

fn is_root(tree: &TestTree) -> bool {
    tree.unconfined("id -u").stdout.trim() == "0"
}

/// Sends a line to a running command, and returns the line that it answers.
fn answer(child: &mut Child, line: &str) -> String {
    child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    answer
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn call_stream_cannot_be_inspected_and_its_sandbox_works() {
    let tree = tree();
    let mut child = tree.haft(&["call", "--stdin"]).start();
    let answered = answer(&mut child, r#"{"id": 1, "tool": "bash", "args": {"command": "echo $((6 * 7))"}}"#);
    assert!(answered.contains("42"), "{answered}");
    check_unreadable(&tree, &child);
    end(child);
}

#[test]
fn stdio_gateway_cannot_be_inspected() {
    let tree = tree();
    let mut child = tree.haft(&["mcp", "serve"]).start();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    assert!(answer(&mut child, &request.to_string()).contains("serverInfo"));
    check_unreadable(&tree, &child);
    end(child);
}

#[test]
fn run_cannot_be_inspected_while_it_runs() {
    let tree = tree();
    let model = server([ScriptStep::call("bash", json!({"command": "touch begun; sleep 60"}))]);
    let mut child = haft(&tree, &model, &["run", "-m", "openai/m", "go"]).start();
    eventually("the command runs", || tree.exists("ws/begun"));
    check_unreadable(&tree, &child);
    send_signal(child.id(), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
