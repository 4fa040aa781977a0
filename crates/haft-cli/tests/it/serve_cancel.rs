//! Tests of responses that are cancelled, or whose client disconnects, while a command runs in the real sandbox.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_model_server::ScriptStep;
use haft_testkit::{eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::serve::stop;
use super::serve_workspaces::{WorkspaceServer, bash};

/// The maximum time until the command of a stopped response is gone. It is usually a few milliseconds. The command itself
/// records how long it runs, so a test that is slow to look does not make this time longer.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The file in which the command writes the time, in milliseconds since 1970, as long as it runs.
const BEAT_FILE: &str = "beat";

/// Starts a server whose model runs a long command with the marker in its command line.
fn server(marker: &str) -> WorkspaceServer {
    let command = format!(
        ": {marker}; for _ in {{1..30000}}; do date +%s%3N >> {BEAT_FILE}; sleep 0.02; done; echo survived"
    );
    let conversations: [(&str, &[ScriptStep]); 1] = [("wait", &[bash(&command)])];
    WorkspaceServer::start(&json!({}), &conversations)
}

/// Returns the last time at which a command ran.
fn last_beat(server: &WorkspaceServer) -> Option<Duration> {
    let workspaces = std::fs::read_dir(server.tree.path("home/workspace/acme")).ok()?;
    let files = workspaces.map(|workspace| workspace.unwrap().path().join(BEAT_FILE));
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    // The last line is incomplete if the command was killed while it wrote.
    let last = |text: String| text.rsplit_once('\n')?.0.lines().last()?.parse().ok();
    texts.filter_map(last).max().map(Duration::from_millis)
}

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Waits until the command has written a time after `since`, which shows that it was still running then.
fn wait_for_beat(server: &WorkspaceServer, since: Duration) {
    eventually("the command runs", || last_beat(server).is_some_and(|beat| beat > since));
}

/// Waits until the command has gone, and checks that this many calls are recorded as cancelled.
#[track_caller]
fn check_stopped(server: &WorkspaceServer, key: &str, marker: &str, since: Duration, calls: usize) {
    eventually("the command is gone", || processes_with(marker).is_empty());
    let ran = last_beat(server).unwrap().saturating_sub(since);
    assert!(ran < STOP_MAX, "the command was stopped only after {ran:?}");
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
    let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
    let times = data.filter_map(|data| serde_json::from_str::<Value>(data).ok()?["at"].as_u64());
    let ended = Duration::from_millis(times.max().unwrap()).saturating_sub(since);
    assert!(ended < STOP_MAX, "the run ended only after {ended:?}: {events}");
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
    wait_for_beat(&server, Duration::ZERO);
    let since = now();
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
        let begun = now();
        let body = json!({"model": "worker", "input": "wait", "stream": stream}).to_string();
        let mut client = TcpStream::connect(&server.address).unwrap();
        let head = format!("POST /v1/responses HTTP/1.1\r\nHost: {}\r\n", server.address);
        let head = format!("{head}Authorization: Bearer {key}\r\nContent-Type: application/json\r\n");
        write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        wait_for_beat(&server, begun);
        if stream {
            client.read_exact(&mut [0; 64]).unwrap();
        }
        let since = now();
        drop(client);
        check_stopped(&server, &key, &marker, since, calls);
    }
    stop(server.child);
}
