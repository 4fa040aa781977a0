//! Tests of responses that are cancelled, or whose client disconnects, while a command runs in the real sandbox.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use haft_model_server::ScriptStep;
use haft_testkit::{eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::serve::stop;
use super::serve_workspaces::{WorkspaceServer, bash};

/// The maximum time until the command of a stopped response is gone. It is usually a few milliseconds; the rest is for a
/// busy machine.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Starts a server whose model runs a long command with the marker in its command line.
fn server(marker: &str) -> WorkspaceServer {
    let command = format!(": {marker}; sleep 600; echo survived");
    let conversations: [(&str, &[ScriptStep]); 1] = [("wait", &[bash(&command)])];
    WorkspaceServer::start(&json!({}), &conversations)
}

/// Waits until the command has gone, and checks that this many calls are recorded as cancelled.
#[track_caller]
fn check_stopped(server: &WorkspaceServer, key: &str, marker: &str, since: Instant, calls: usize) {
    eventually("the command is gone", || processes_with(marker).is_empty());
    let elapsed = since.elapsed();
    assert!(elapsed < STOP_MAX, "the command was stopped only after {elapsed:?}");
    let runs = || server.get(key, "/api/v1/runs").body;
    eventually("the run has ended", || runs()["data"][0]["status"] == "ended");
    eventually("the call is recorded", || {
        let lines = audit(server);
        let is_cancelled = |line: &&Value| line["target"] == "bash" && line["detail"] == "cancelled";
        lines.iter().filter(is_cancelled).count() == calls
    });
    let id = runs()["data"][0]["id"].as_str().unwrap().to_owned();
    let events = server.read(key, &format!("/api/v1/runs/{id}/events"));
    assert!(events.contains("\"cancelled\""), "{events}");
}

/// Returns the lines of the audit log.
fn audit(server: &WorkspaceServer) -> Vec<Value> {
    let text = server.tree.text("home/data/audit.jsonl");
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn cancelled_response_stops_its_command_and_records_the_cancellation() {
    let marker = unique_marker();
    let server = server(&marker);
    let key = server.key("anna", "acme");
    let started = server.post(&key, &json!({"model": "worker", "input": "wait", "background": true})).body;
    eventually("the command runs", || !processes_with(&marker).is_empty());
    let since = Instant::now();
    let path = format!("/v1/responses/{}/cancel", started["id"].as_str().unwrap());
    let cancelled = server.post_to(&key, &path, &json!({})).body;
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    check_stopped(&server, &key, &marker, since, 1);
    assert!(audit(&server).iter().any(|line| line["event"] == "background.cancelled"));
    stop(server.child);
}

#[test]
fn disconnected_client_stops_the_command_of_its_response() {
    let marker = unique_marker();
    let server = server(&marker);
    let key = server.key("anna", "acme");
    for (calls, stream) in [(1, false), (2, true)] {
        let body = json!({"model": "worker", "input": "wait", "stream": stream}).to_string();
        let mut client = TcpStream::connect(&server.address).unwrap();
        let head = format!("POST /v1/responses HTTP/1.1\r\nHost: {}\r\n", server.address);
        let head = format!("{head}Authorization: Bearer {key}\r\nContent-Type: application/json\r\n");
        write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        eventually("the command runs", || !processes_with(&marker).is_empty());
        if stream {
            client.read_exact(&mut [0; 64]).unwrap();
        }
        let since = Instant::now();
        drop(client);
        check_stopped(&server, &key, &marker, since, calls);
    }
    stop(server.child);
}
