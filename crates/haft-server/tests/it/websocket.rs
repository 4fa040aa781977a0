//! WebSocket connections: pings, age, warm-up and stream ids.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_server::WebSocketTimes;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::fixture::{ServerOptions, TestServer};
use super::limits::connect;

fn config() -> Value {
    json!({"models": {"default": "openai/m"}})
}

fn options(websocket: WebSocketTimes) -> ServerOptions {
    ServerOptions { websocket, ..ServerOptions::default() }
}

/// Sends a message, and returns all events up to the end of its response or to an error.
async fn exchange(
    socket: &mut (
             impl futures_util::Sink<Message, Error: std::fmt::Debug>
             + futures_util::Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>>
             + Unpin
         ),
    body: &Value,
) -> Vec<Value> {
    let mut message = json!({"type": "response.create", "model": "openai/m"});
    for (name, value) in body.as_object().unwrap() {
        message[name] = value.clone();
    }
    socket.send(Message::text(message.to_string())).await.unwrap();
    let mut events: Vec<Value> = Vec::new();
    loop {
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
        events.push(serde_json::from_str(&text).unwrap());
        let kind = events.last().unwrap()["type"].as_str().unwrap();
        if ["response.completed", "error"].contains(&kind) {
            return events;
        }
    }
}

#[test]
fn server_pings_a_silent_websocket() {
    let times = WebSocketTimes { ping_interval: Duration::from_millis(20), ..WebSocketTimes::default() };
    let server = TestServer::configured_with(Script::of([]), &config(), options(times));
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        for _ in 0..3 {
            let message = socket.next().await.unwrap().unwrap();
            assert!(message.is_ping(), "{message:?}");
        }
    });
}

#[test]
fn websocket_that_is_too_old_gets_an_error_and_is_closed() {
    let times = WebSocketTimes { age_max: Duration::from_millis(20), ..WebSocketTimes::default() };
    let server = TestServer::configured_with(Script::of([]), &config(), options(times));
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("no text") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["error"]["code"], "websocket_connection_limit_reached", "{event}");
        let next = socket.next().await;
        assert!(!matches!(next, Some(Ok(Message::Text(_)))), "{next:?}");
    });
}

#[test]
fn warm_up_calls_no_model_and_the_next_message_continues_from_it() {
    let server = TestServer::configured(Script::of([ScriptStep::text("Answer.")]), &config(), &[]);
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let body = json!({"generate": false, "input": "Remember the fox.", "instructions": "Be brief."});
        let events = exchange(&mut socket, &body).await;
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "response.completed"]);
        let response = &events[2]["response"];
        assert_eq!((&response["output"], &response["usage"]["total_tokens"]), (&json!([]), &json!(0)));
        assert_eq!(server.model.requests().len(), 0, "a warm-up makes no model request");
        let next = json!({"input": "Go on.", "previous_response_id": response["id"]});
        let events = exchange(&mut socket, &next).await;
        assert_eq!(events.last().unwrap()["type"], "response.completed", "{events:?}");
        let sent = server.model.requests().last().unwrap().raw.clone();
        assert!(sent.contains("Remember the fox.") && sent.contains("Go on."), "{sent}");
        let refused = exchange(&mut socket, &json!({"generate": false, "input": 1})).await;
        assert_eq!(refused[0]["error"]["param"], "input", "{refused:?}");
    });
    assert_eq!(server.get("/v1/responses").json()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn every_event_of_a_request_repeats_its_stream_id() {
    let script = Script::of([ScriptStep::text("One."), ScriptStep::text("Two.")]);
    let server = TestServer::configured(script, &config(), &[]);
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let events = exchange(&mut socket, &json!({"input": "Hi", "stream_id": "s1"})).await;
        assert!(events.len() > 5 && events.iter().all(|event| event["stream_id"] == "s1"), "{events:?}");
        let refused = exchange(&mut socket, &json!({"input": 1, "stream_id": "s2"})).await;
        assert_eq!((&refused[0]["type"], &refused[0]["stream_id"]), (&json!("error"), &json!("s2")));
        let events = exchange(&mut socket, &json!({"input": "Hi"})).await;
        assert!(events.iter().all(|event| event.get("stream_id").is_none()), "{events:?}");
    });
}

#[test]
fn websocket_with_the_beta_header_of_codex_is_accepted() {
    let server = TestServer::configured(Script::of([ScriptStep::text("Answer.")]), &config(), &[]);
    server.executor.block_on(async {
        let url = format!("{}/v1/responses", server.url.replace("http", "ws"));
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {}", server.key).parse().unwrap());
        headers.insert("openai-beta", "responses_websockets=2026-02-06".parse().unwrap());
        let mut socket = tokio_tungstenite::connect_async(request).await.unwrap().0;
        let body =
            json!({"input": "Hi", "store": false, "tools": [{"type": "custom", "name": "apply_patch"}]});
        let events = exchange(&mut socket, &body).await;
        assert_eq!(events.last().unwrap()["response"]["status"], "completed", "{events:?}");
    });
}

#[test]
fn websocket_forgets_its_last_response_only_if_a_refused_message_continues_it() {
    let steps = ["One.", "Two."].map(ScriptStep::text);
    let server = TestServer::configured(Script::of(steps), &config(), &[]);
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let first = exchange(&mut socket, &json!({"input": "Hi", "store": false})).await;
        let id = first.last().unwrap()["response"]["id"].clone();
        let refused = exchange(&mut socket, &json!({"input": 1})).await;
        assert_eq!(refused[0]["type"], "error", "{refused:?}");
        let next = json!({"input": "Go on.", "store": false, "previous_response_id": id});
        let second = exchange(&mut socket, &next).await;
        let id = second.last().unwrap()["response"]["id"].clone();
        assert!(id.is_string(), "{second:?}");
        let mut wrong = json!({"store": false, "previous_response_id": id});
        wrong["input"] = json!([{"type": "function_call_output", "call_id": "none", "output": "x"}]);
        assert_eq!(exchange(&mut socket, &wrong).await[0]["type"], "error");
        let gone = exchange(&mut socket, &json!({"input": "x", "previous_response_id": id})).await;
        assert_eq!(gone[0]["error"]["code"], "previous_response_not_found", "{gone:?}");
    });
}

#[test]
fn websocket_that_is_too_old_refuses_requests_that_wait() {
    let times = WebSocketTimes { age_max: Duration::from_millis(300), ..WebSocketTimes::default() };
    let slow = ResponsePace { first_byte_milliseconds: 1_000, ..ResponsePace::default() };
    let steps = [ScriptStep::text("One.").at_pace(slow), ScriptStep::text("Two.")];
    let server = TestServer::configured_with(Script::of(steps), &config(), options(times));
    server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let message = json!({"type": "response.create", "model": "openai/m", "input": "Hi"}).to_string();
        socket.send(Message::text(message.clone())).await.unwrap();
        socket.send(Message::text(message)).await.unwrap();
        let mut kinds = Vec::new();
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            let event: Value = serde_json::from_str(&text).unwrap();
            kinds.push(event["type"].as_str().unwrap().to_owned());
        }
        assert_eq!(kinds.iter().filter(|kind| *kind == "response.completed").count(), 1, "{kinds:?}");
        assert_eq!(kinds.last().map(String::as_str), Some("error"), "{kinds:?}");
    });
    assert_eq!(server.model.requests().len(), 1);
}
