//! Clients that disconnect before their response ends: the run is cancelled, and the response is stored as cancelled.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt as _, StreamExt as _};
use haft_model_server::{RequestOutcome, ResponsePace, Script, ScriptStep};
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::fixture::TestServer;
use super::limits::connect;
use super::tool_server::ToolServer;

/// The maximum time until a server answers, even on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server whose model sends the first words of its answer and then pauses.
fn pausing() -> TestServer {
    let pace = ResponsePace {
        chunk_bytes: Some(600),
        delta_characters: Some(6),
        between_milliseconds: 600_000,
        ..ResponsePace::default()
    };
    TestServer::start(Script::of([ScriptStep::text(&"Words ".repeat(100)).at_pace(pace)]))
}

/// Sends a request over a new connection.
fn send(server: &TestServer, body: &Value) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    let body = body.to_string();
    let head =
        format!("POST /v1/responses HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}", server.key);
    let head = format!("{head}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(format!("{head}{body}").as_bytes()).unwrap();
    client
}

/// Reads a stream until it contains a text, and returns the id of the response.
fn read_until(client: &mut TcpStream, text: &str) -> String {
    let (mut read, mut bytes) = (String::new(), [0; 4096]);
    while !read.contains(text) {
        let length = client.read(&mut bytes).unwrap();
        assert!(length > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    let start = read.find("resp_").unwrap();
    read[start..start + "resp_".len() + 32].to_owned()
}

/// The maximum time until a run whose client has gone ends, by the times of its events.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Returns the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Waits until the only run of the server has ended, and checks that it ended soon after this time.
#[track_caller]
fn check_end(server: &TestServer, since: Duration) {
    let run = || server.get("/api/v1/runs").json()["data"][0].clone();
    eventually("the run has ended", || run()["status"] == "ended");
    let events = server.get(&format!("/api/v1/runs/{}/events", run()["id"].as_str().unwrap())).text;
    let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
    let times = data.filter_map(|data| serde_json::from_str::<Value>(data).ok()?["at"].as_u64());
    let ended = Duration::from_millis(times.max().unwrap()).saturating_sub(since);
    assert!(ended < STOP_MAX, "the run ended only after {ended:?}: {events}");
}

fn wait_for_abandoned_request(server: &TestServer) {
    eventually("haft closes the request to the model", || {
        server.model.requests().iter().any(|request| request.outcome == RequestOutcome::Abandoned)
    });
}

/// Waits until the only response of the server is stored, and returns it.
fn stored(server: &TestServer) -> Value {
    let list = || server.get("/v1/responses").json()["data"].clone();
    eventually("the response is stored", || list().as_array().is_some_and(|all| !all.is_empty()));
    list()[0].clone()
}

/// Returns the targets of the audit lines about clients that disconnected.
fn disconnects(server: &TestServer) -> Vec<Value> {
    let lines = server.data_lines("audit.jsonl").into_iter();
    lines.filter(|line| line["event"] == "client.disconnected").map(|line| line["target"].clone()).collect()
}

/// Returns the access lines of requests whose client disconnected before the reply.
fn unanswered(server: &TestServer) -> Vec<Value> {
    server.data_lines("access.jsonl").into_iter().filter(|line| line["status"] == 499).collect()
}

#[test]
fn disconnect_in_the_middle_of_a_stream_is_recorded_with_the_output_so_far() {
    let server = pausing();
    let mut client = send(&server, &json!({"model": "openai/m", "input": "Go.", "stream": true}));
    let id = read_until(&mut client, "response.output_text.delta");
    let since = now();
    drop(client);
    wait_for_abandoned_request(&server);
    check_end(&server, since);
    let response = stored(&server);
    assert_eq!((&response["id"], &response["status"]), (&json!(id), &json!("cancelled")), "{response}");
    let message = &response["output"][0];
    assert_eq!(message["status"], "incomplete", "{response}");
    assert!(message["content"][0]["text"].as_str().unwrap().starts_with("Words"), "{response}");
    assert_eq!(server.get(&format!("/v1/responses/{id}")).json(), response);
    assert_eq!(disconnects(&server), [json!(id)]);
    assert_eq!(unanswered(&server), [] as [Value; 0], "the reply of a stream has begun");
    let next =
        json!({"model": "openai/m", "input": "Again.", "previous_response_id": id, "background": true});
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    assert_eq!(server.send(request.body(next.to_string())).status, 200, "the client can continue from it");
}

#[test]
fn disconnect_before_a_json_reply_is_recorded() {
    let server = pausing();
    let client = send(&server, &json!({"model": "openai/m", "input": "Go."}));
    eventually("the model gets the request", || !server.model.requests().is_empty());
    drop(client);
    wait_for_abandoned_request(&server);
    let response = stored(&server);
    assert_eq!(response["status"], "cancelled", "{response}");
    assert_eq!(disconnects(&server), [response["id"].clone()]);
    let lines = unanswered(&server);
    assert_eq!((lines.len(), &lines[0]["path"]), (1, &json!("/v1/responses")), "{lines:?}");
    assert_eq!(lines[0]["principal"], "default/local", "{lines:?}");
}

#[test]
fn disconnect_during_a_tool_call_is_recorded() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let script = || Script::of([ScriptStep::call("docs__look", json!({"n": 1})), ScriptStep::text("Done.")]);
    for stream in [true, false] {
        let server = TestServer::configured(script(), &tools.config(), &[]);
        let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
        let before = tools.calls().len();
        let body = json!({"model": "openai/m", "input": "Look.", "tools": [tool], "stream": stream});
        let client = send(&server, &body);
        eventually("the tool runs", || tools.calls().len() > before);
        drop(client);
        let response = stored(&server);
        assert_eq!(response["status"], "cancelled", "{response}");
        let call = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_call");
        assert_eq!(call.unwrap()["name"], "look", "{response}");
        assert_eq!(disconnects(&server), [response["id"].clone()]);
        assert_eq!(server.model.requests().len(), 1, "no further turn");
    }
}

#[test]
fn disconnect_stores_nothing_for_a_request_with_store_false() {
    let server = pausing();
    for stream in [true, false] {
        let body = json!({"model": "openai/m", "input": "Canary.", "stream": stream, "store": false});
        let before = server.model.requests().len();
        let client = send(&server, &body);
        eventually("the model gets the request", || server.model.requests().len() > before);
        drop(client);
        eventually("the disconnect is recorded", || disconnects(&server).len() == 1 + before);
        eventually("haft closes the request to the model", || {
            server.model.requests().iter().all(|request| request.outcome == RequestOutcome::Abandoned)
        });
    }
    assert_eq!(server.get("/v1/responses").json()["data"], json!([]));
    assert_eq!(server.files_with("Canary."), [] as [String; 0]);
}

#[test]
fn conversation_gets_no_items_of_a_response_whose_client_disconnected() {
    let server = pausing();
    let create = server.request(Method::POST, "/v1/conversations").header("content-type", "application/json");
    let conversation = server.send(create.body("{}")).json()["id"].as_str().unwrap().to_owned();
    let body = json!({"model": "openai/m", "input": "Go.", "conversation": conversation, "stream": true});
    let mut client = send(&server, &body);
    read_until(&mut client, "response.output_text.delta");
    drop(client);
    let response = stored(&server);
    assert_eq!((&response["status"], &response["conversation"]), (&json!("cancelled"), &Value::Null));
    let items = server.get(&format!("/v1/conversations/{conversation}/items")).json();
    assert_eq!(items["data"], json!([]), "a repeated request would otherwise add its input twice");
}

#[test]
fn disconnected_websocket_is_recorded() {
    let server = pausing();
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let create = json!({"type": "response.create", "model": "openai/m", "input": "Go."});
        socket.send(Message::text(create.to_string())).await.unwrap();
        while !socket.next().await.unwrap().unwrap().to_text().unwrap().contains("output_text.delta") {}
    });
    wait_for_abandoned_request(&server);
    let response = stored(&server);
    assert_eq!(response["status"], "cancelled", "{response}");
    assert_eq!(disconnects(&server), [response["id"].clone()]);
}

#[test]
fn client_that_reads_its_response_to_the_end_does_not_count_as_disconnected() {
    let server = TestServer::start(Script::of([ScriptStep::text("Hello.")]));
    for stream in [true, false] {
        let mut client = send(&server, &json!({"model": "openai/m", "input": "Hi.", "stream": stream}));
        // Some clients close the connection at the last event, before `[DONE]`.
        read_until(&mut client, if stream { "event: response.completed" } else { "\"completed\"" });
    }
    assert_eq!(server.get("/v1/responses").json()["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(disconnects(&server), [] as [Value; 0]);
}
