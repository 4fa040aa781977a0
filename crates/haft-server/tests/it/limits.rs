//! Tests of key limits, failed logins, the access log and metrics, over real HTTP.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use haft_model_server::{ErrorResponse, ResponsePace, Script, ScriptStep, ScriptUsage};
use haft_server::OperatorLog;
use haft_store::api_keys::{KeyLimits, KeyScope};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::fixture::{Reply, ServerOptions, TestServer, limited_key, scoped_key};
use crate::open_responses::data;
use crate::responses::{self, events, long_history};
use crate::tool_server::ToolServer;

fn text(text: &str) -> Script {
    Script::of([ScriptStep::text(text)])
}

fn post(server: &TestServer, key: &str) -> Reply {
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(key);
    server.send(with_body(request, &json!({"model": "helper", "input": "Hi"})))
}

fn with_body(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn request_beyond_the_limit_is_refused_until_the_allowance_refills() {
    let server = TestServer::start(text("Hello."));
    let limits = KeyLimits { requests_per_minute: Some(2), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let get = || server.send(server.without_key(Method::GET, "/v1/models").bearer_auth(&key));
    for remaining in ["1", "0"] {
        let reply = get();
        assert_eq!((reply.status, header(&reply, "x-ratelimit-remaining-requests")), (200, remaining));
        assert_eq!(header(&reply, "x-ratelimit-limit-requests"), "2");
    }
    let refused = get();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    let after: u64 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=30).contains(&after), "{after}");
    assert!(header(&refused, "x-request-id").starts_with("req_"), "{refused:?}");
    assert!(header(&refused, "x-ratelimit-reset-requests").ends_with('s'), "{refused:?}");
    assert_eq!(server.get("/v1/models").status, 200, "other keys are not affected");
}

#[test]
fn tokens_of_a_response_count_towards_the_limit_for_the_next_one() {
    let usage = ScriptUsage { input: 900, output: 200, ..ScriptUsage::default() };
    let server = TestServer::start(Script::of([ScriptStep::text("Hello.").using(usage)]));
    let limits = KeyLimits { tokens_per_minute: Some(1_000), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let first = post(&server, &key);
    assert_eq!((first.status, header(&first, "x-ratelimit-limit-tokens")), (200, "1000"), "{}", first.text);
    let second = post(&server, &key);
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS, "{}", second.text);
    assert_eq!(header(&second, "x-ratelimit-remaining-tokens"), "0");
    assert!(second.text.contains("tokens"), "{}", second.text);
    let list = server.send(server.without_key(Method::GET, "/v1/responses").bearer_auth(&key));
    assert_eq!(list.status, 200, "a request without a model needs no tokens");
}

#[test]
fn tokens_of_a_compaction_count_towards_the_limit_of_its_key() {
    let usage = ScriptUsage { input: 900, output: 200, ..ScriptUsage::default() };
    let server = TestServer::start(Script::of([ScriptStep::text("Summary: foxes.").using(usage)]));
    let limits = KeyLimits { tokens_per_minute: Some(1_000), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let body = json!({"model": "openai/m", "input": long_history(12)});
    let request = server.without_key(Method::POST, "/v1/responses/compact").bearer_auth(&key);
    let compacted = server.send(with_body(request, &body));
    assert_eq!(compacted.status, 200, "{}", compacted.text);
    let second = post(&server, &key);
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS, "{}", second.text);
}

#[test]
fn rate_limit_of_a_model_provider_is_passed_on_with_its_time() {
    let check = |error: ErrorResponse, expected: &str| {
        let server = TestServer::start(Script::of((0..16).map(|_| ScriptStep::fail(error.clone()))));
        let body = |stream: bool| json!({"model": "openai/m", "input": "x", "stream": stream});
        let reply = responses::post(&server, &body(false));
        assert_eq!((reply.status, header(&reply, "retry-after")), (429, expected), "{}", reply.text);
        assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
        let streamed = data(&events(&responses::post(&server, &body(true))));
        let error = streamed.iter().find(|event| event["type"] == "error").unwrap();
        assert_eq!(error["error"]["headers"]["retry-after"], expected, "{error}");
        let request = server.request(Method::POST, "/v1/responses/compact");
        let history = json!({"model": "openai/m", "input": long_history(12)});
        let compacted = server.send(with_body(request, &history));
        assert_eq!((compacted.status, header(&compacted, "retry-after")), (429, expected), "{compacted:?}");
        assert_eq!(compacted.json()["error"]["code"], "rate_limit_exceeded");
    };
    // haft does not wait 300 seconds for a retry of its own, so the client gets the time of the provider.
    check(ErrorResponse::new(429, "slow down").retry_after(300), "300");
    let no_quota =
        ErrorResponse { kind: Some("insufficient_quota".into()), ..ErrorResponse::new(429, "no quota") };
    check(no_quota, "60");
}

#[test]
fn number_of_responses_in_progress_is_limited() {
    let slow = ResponsePace { first_byte_milliseconds: 1_000, ..ResponsePace::default() };
    let server = TestServer::start(Script::of([ScriptStep::text("Hello.").at_pace(slow)]));
    let limits = KeyLimits { concurrent_responses: Some(2), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let background = || {
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&key);
        server.send(with_body(request, &json!({"model": "helper", "input": "Hi", "background": true})))
    };
    let (one, two) = (background(), background());
    assert_eq!((one.status, two.status), (200, 200), "{} {}", one.text, two.text);
    let third = background();
    assert_eq!(third.status, StatusCode::TOO_MANY_REQUESTS, "{}", third.text);
    assert!(third.text.contains("concurrent responses") && header(&third, "retry-after") == "5", "{third:?}");
    let id = one.json()["id"].as_str().unwrap().to_owned();
    haft_testkit::eventually("the responses end", || {
        let path = format!("/v1/responses/{id}");
        server.send(server.without_key(Method::GET, &path).bearer_auth(&key)).json()["status"] == "completed"
    });
    haft_testkit::eventually("a slot is free", || background().status == 200);
}

/// The number of calls that a client sends at the same time.
const PARALLEL_CALLS: usize = 1_000;

/// Sends the calls at the same time, and returns their replies without the text.
fn send_at_once(server: &TestServer, call: impl Fn() -> RequestBuilder) -> Vec<Reply> {
    let replies =
        server.executor.block_on(futures_util::future::join_all((0..PARALLEL_CALLS).map(|_| call().send())));
    let reply = |reply: Result<reqwest::Response, reqwest::Error>| {
        let reply = reply.unwrap();
        Reply { status: reply.status().as_u16(), headers: reply.headers().clone(), text: String::new() }
    };
    replies.into_iter().map(reply).collect()
}

/// Checks that all refused calls got status 429 and the time to wait, and returns the number of the others.
#[track_caller]
fn accepted(replies: &[Reply]) -> usize {
    let (accepted, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    for reply in refused {
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(header(reply, "retry-after").parse::<u64>().unwrap() >= 1, "{reply:?}");
    }
    accepted.len()
}

#[test]
fn thousand_parallel_calls_stay_within_the_limits_of_their_key() {
    haft_testkit::raise_file_limit();
    let pace = ResponsePace { first_byte_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Late.").at_pace(pace)]);
    let serve = json!({"maxConnections": PARALLEL_CALLS + 16});
    let config = json!({"models": {"default": "openai/m"}, "serve": serve});
    let server = TestServer::configured(script, &config, &[]);
    let client = reqwest::Client::new();

    let key = limited_key(&server.store, KeyLimits { requests_per_minute: Some(60), ..KeyLimits::default() });
    let began = Instant::now();
    let url = format!("{}/v1/models", server.url);
    let answered = accepted(&send_at_once(&server, || client.get(&url).bearer_auth(&key)));
    // One request per second becomes available while the calls arrive.
    let refilled = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((60..=60 + refilled).contains(&answered), "{answered}");

    let key = limited_key(&server.store, KeyLimits { concurrent_responses: Some(5), ..KeyLimits::default() });
    let url = format!("{}/v1/responses", server.url);
    let body = json!({"model": "openai/m", "input": "Hi", "background": true});
    let started = accepted(&send_at_once(&server, || with_body(client.post(&url).bearer_auth(&key), &body)));
    assert_eq!(started, 5);
}

#[test]
fn key_that_has_reached_its_cost_limit_is_refused_even_after_a_restart() {
    let usage = ScriptUsage { input: 900_000, output: 200_000, ..ScriptUsage::default() };
    let price = json!({"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0});
    let config = json!({"models": {"default": "openai/m", "settings": {"openai/m": {"price": price}}}});
    let agent = "---\ndescription: Answers.\nmodels: openai/m\ntools: []\n---\nYou answer.\n";
    let script = Script::of([ScriptStep::text("Hello.").using(usage)]);
    let mut server = TestServer::configured(script, &config, &[("helper", agent)]);
    let limits = KeyLimits { nano_usd_per_month: Some(1_000_000_000), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    assert_eq!(post(&server, &key).status, 200, "the response that reaches the limit ends");
    for _ in 0..2 {
        let refused = post(&server, &key);
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
        assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
        assert_eq!(header(&refused, "x-should-retry"), "false");
        let after: u64 = header(&refused, "retry-after").parse().unwrap();
        assert!((1..=31 * 86_400).contains(&after), "{after}");
        server.restart();
    }
    assert_eq!(post(&server, &server.key).status, 200, "other keys are not affected");
}

#[test]
fn websocket_messages_need_a_valid_key_and_count_as_requests() {
    let server = TestServer::start(text("Hello."));
    // The handshake of the WebSocket counts as a request too.
    let limits = KeyLimits { requests_per_minute: Some(2), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let create = || json!({"type": "response.create", "model": "helper", "input": "Hi"});
    let seen = server.executor.block_on(converse(&server.url, &key, &[create(), create()], || {}));
    assert_eq!(seen[0]["type"], "response.completed", "{seen:?}");
    let error = &seen[1]["error"];
    assert_eq!(
        (&seen[1]["status"], &error["code"]),
        (&json!(429), &json!("rate_limit_exceeded")),
        "{seen:?}"
    );
    assert_eq!(error["headers"]["x-ratelimit-remaining-requests"], "0", "{seen:?}");
    let after: u64 = error["headers"]["retry-after"].as_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    let revoke = || {
        let ids: Vec<String> = server.store.load().unwrap().all().iter().map(|key| key.id.clone()).collect();
        server.store.revoke(&ids).unwrap();
    };
    let seen = server.executor.block_on(converse(&server.url, &server.key, &[create(), create()], revoke));
    assert_eq!(
        (&seen[0]["type"], &seen[1]["status"]),
        (&json!("response.completed"), &json!(401)),
        "{seen:?}"
    );
}

#[test]
fn websocket_is_refused_after_a_rotation_without_overlap() {
    let server = TestServer::start(text("Hello."));
    let create = || json!({"type": "response.create", "model": "helper", "input": "Hi"});
    let rotate = || {
        for key in server.store.load().unwrap().all() {
            server.store.rotate(&key.id, 0).unwrap().unwrap();
        }
    };
    let seen = server.executor.block_on(converse(&server.url, &server.key, &[create(), create()], rotate));
    assert_eq!(
        (&seen[0]["type"], &seen[1]["status"]),
        (&json!("response.completed"), &json!(401)),
        "{seen:?}"
    );
}

/// Starts a server whose model takes a minute to reply.
fn slow() -> TestServer {
    let pace = ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() };
    TestServer::start(Script::of([ScriptStep::text("Late.").at_pace(pace)]))
}

#[test]
fn websocket_response_counts_among_the_responses_in_progress() {
    let server = slow();
    let limits = KeyLimits { concurrent_responses: Some(1), ..KeyLimits::default() };
    let key = limited_key(&server.store, limits);
    let socket = server.executor.block_on(async {
        let mut socket = connect(&server.url, &key).await;
        socket.send(Message::text(CREATE)).await.unwrap();
        // The first event comes when the response has begun.
        socket.next().await.unwrap().unwrap();
        socket
    });
    let background = || {
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&key);
        server.send(with_body(request, &json!({"model": "helper", "input": "Hi", "background": true})))
    };
    let refused = background();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text);
    assert!(refused.text.contains("concurrent responses"), "{}", refused.text);
    drop(socket);
    haft_testkit::eventually("a slot is free", || background().status == 200);
}

#[test]
fn websocket_with_too_many_waiting_requests_is_closed() {
    let server = slow();
    let ended = server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        // One request is in progress, and 16 requests may wait.
        for _ in 0..18 {
            // Ignore an error: it means that the server has already closed the connection.
            let _ = socket.send(Message::text(CREATE)).await;
        }
        let until_end = async { while let Some(Ok(_)) = socket.next().await {} };
        tokio::time::timeout(Duration::from_secs(20), until_end).await
    });
    assert!(ended.is_ok(), "the connection stays open");
    let seen = server.executor.block_on(async {
        let mut socket = connect(&server.url, &server.key).await;
        let _ = socket.send(Message::text("x".repeat(49 << 20))).await;
        socket.next().await
    });
    assert!(!matches!(seen, Some(Ok(Message::Text(_)))), "a message that is too large gets no answer");
}

const CREATE: &str = r#"{"type": "response.create", "model": "helper", "input": "Hi"}"#;

pub(crate) async fn connect(url: &str, key: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    let url = format!("{}/v1/responses", url.replace("http", "ws"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

/// Sends messages over one WebSocket and returns the last event of each. Runs `between` after the first message.
pub(crate) async fn converse(url: &str, key: &str, messages: &[Value], between: impl Fn()) -> Vec<Value> {
    let mut socket = connect(url, key).await;
    let mut last = Vec::new();
    for message in messages {
        socket.send(Message::text(message.to_string())).await.unwrap();
        loop {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            if ["response.completed", "error"].contains(&event["type"].as_str().unwrap()) {
                last.push(event);
                break;
            }
        }
        between();
    }
    last
}

#[test]
fn refused_scope_on_a_websocket_is_audited() {
    let server = TestServer::start(text("Hello."));
    let tools = json!([{"type": "haft:bash"}]);
    let create = json!({"type": "response.create", "model": "openai/m", "input": "Hi", "tools": tools});
    let seen = server.executor.block_on(converse(&server.url, &server.key, &[create], || {}));
    assert_eq!((&seen[0]["status"], &seen[0]["error"]["code"]), (&json!(403), &json!("insufficient_scope")));
    let lines = server.data_lines("audit.jsonl");
    let denied = lines.iter().find(|line| line["event"] == "authz.denied").unwrap();
    assert_eq!((&denied["target"], &denied["principal"]), (&json!("/v1/responses"), &json!("default/local")));
    assert!(denied["detail"].as_str().unwrap().contains("builtin-tools"), "{denied}");
}

#[test]
fn wrong_keys_of_one_address_are_limited_but_a_valid_key_still_works() {
    let server = TestServer::start(text("Hello."));
    let wrong = || server.send(server.without_key(Method::GET, "/v1/models").bearer_auth("haft_wrong"));
    let statuses: Vec<u16> = (0..12).map(|_| wrong().status).collect();
    assert_eq!(statuses, [[401; 10].as_slice(), &[429, 429]].concat());
    let after: u64 = header(&wrong(), "retry-after").parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(server.get("/v1/models").status, 200);
}

#[test]
fn every_request_has_one_access_line_without_secrets() {
    let server = TestServer::start(text("Hello."));
    let replies = [
        post(&server, &server.key),
        server.get("/v1/models?api_key=canary-secret"),
        server.send(server.without_key(Method::GET, "/nowhere")),
        server.send(server.without_key(Method::GET, "/v1/models").bearer_auth("canary-secret")),
        server.send(server.without_key(Method::GET, &format!("/{}", "x".repeat(5_000)))),
    ];
    let lines = server.data_lines("access.jsonl");
    assert_eq!(lines.len(), replies.len());
    for (line, reply) in lines.iter().zip(&replies) {
        assert_eq!(line["request"], header(reply, "x-request-id"));
        assert_eq!(
            (line["status"].as_u64(), &line["address"]),
            (Some(reply.status.into()), &json!("127.0.0.1"))
        );
    }
    assert_eq!((&lines[0]["method"], &lines[0]["path"]), (&json!("POST"), &json!("/v1/responses")));
    assert_eq!(lines[0]["principal"], "default/local");
    assert!(lines[0]["key"].as_str().unwrap().starts_with("key_"), "{}", lines[0]);
    assert!(lines[3]["principal"].is_null(), "{}", lines[3]);
    assert_eq!(lines[4]["path"].as_str().unwrap().len(), 200, "a client cannot fill the log with one path");
    assert!(!format!("{lines:?}").contains("canary"), "{lines:?}");
}

#[test]
fn refusals_and_deletions_are_audited_without_secrets() {
    let server = TestServer::start(text("Hello."));
    let no_api = scoped_key(&server.store, &[KeyScope::Admin]);
    let refused =
        server.send(server.without_key(Method::GET, "/v1/models?k=canary").bearer_auth("haft_canary"));
    assert_eq!(refused.status, 401);
    assert_eq!(server.send(server.without_key(Method::GET, "/v1/models").bearer_auth(&no_api)).status, 403);
    assert_eq!(server.get("/metrics").status, 403);
    let id = post(&server, &server.key).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    assert_eq!(server.send(server.request(Method::DELETE, &path)).status, 200);
    let lines = server.data_lines("audit.jsonl");
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let expected = ["server.started", "auth.failed", "authz.denied", "authz.denied", "resource.deleted"];
    assert_eq!(events, expected, "{lines:?}");
    assert_eq!((&lines[1]["address"], &lines[1]["target"]), (&json!("127.0.0.1"), &json!("/v1/models")));
    assert_eq!(lines[1]["request"], header(&refused, "x-request-id"));
    assert!(lines[2]["detail"].as_str().unwrap().contains("`api`"), "{}", lines[2]);
    assert!(lines[2]["key"].as_str().unwrap().starts_with("key_"), "{}", lines[2]);
    assert_eq!((&lines[4]["principal"], &lines[4]["target"]), (&json!("default/local"), &json!(path)));
    assert!(!format!("{lines:?}").contains("canary"), "{lines:?}");
}

#[test]
fn client_that_guesses_keys_cannot_fill_the_audit_log() {
    let server = TestServer::start(text("Hello."));
    for _ in 0..30 {
        server.send(server.without_key(Method::GET, "/v1/models").bearer_auth("haft_wrong"));
    }
    let failed = server.data_lines("audit.jsonl").into_iter().filter(|line| line["event"] == "auth.failed");
    assert_eq!(failed.count(), 10, "the audit log contains only the refusals with status 401");
}

#[test]
fn wrong_keys_at_the_metrics_are_limited_counted_and_audited_like_on_other_routes() {
    let server = TestServer::start(text("Hello."));
    let show = |key: &str| server.send(server.without_key(Method::GET, "/metrics").bearer_auth(key));
    let statuses: Vec<u16> = (0..12).map(|_| show("haft_wrong").status).collect();
    assert_eq!(statuses, [[401; 10].as_slice(), &[429, 429]].concat());
    let wait: u64 = header(&show("haft_wrong"), "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let other_route = server.without_key(Method::GET, "/v1/models").bearer_auth("haft_wrong");
    assert_eq!(server.send(other_route).status, 429, "all routes share the limit of an address");
    let failed = server.data_lines("audit.jsonl").into_iter().filter(|line| line["event"] == "auth.failed");
    assert_eq!(failed.count(), 10, "as many as are answered with 401");
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let metrics = show(&admin);
    assert!(metrics.text.contains("haft_failed_logins_total 14\n"), "{}", metrics.text);
    let lines = server.data_lines("access.jsonl");
    assert_eq!(lines.last().unwrap()["principal"], "default/local", "{lines:?}");
}

#[test]
fn metrics_count_requests_runs_models_and_refusals() {
    let usage = ScriptUsage { input: 30, output: 7, ..ScriptUsage::default() };
    let server = TestServer::start(Script::of([ScriptStep::text("Hello.").using(usage)]));
    assert_eq!(post(&server, &server.key).status, 200);
    let limits = KeyLimits { requests_per_minute: Some(0), ..KeyLimits::default() };
    assert_eq!(post(&server, &limited_key(&server.store, limits)).status, 429);
    server.send(server.without_key(Method::GET, "/v1/models"));
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let metrics = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin));
    assert_eq!(
        (metrics.status, header(&metrics, "content-type")),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    for row in [
        r#"haft_http_requests_total{route="/v1/responses",status="200"} 1"#,
        r#"haft_http_requests_total{route="/v1/responses",status="429"} 1"#,
        r#"haft_http_requests_total{route="/v1/models",status="401"} 1"#,
        r#"haft_rate_limited_total{limit="requests"} 1"#,
        "haft_failed_logins_total 1",
        "haft_responses_active 0",
        "haft_runs_started_total 1",
        r#"haft_runs_finished_total{reason="completed"} 1"#,
        r#"haft_model_requests_total{outcome="ok"} 1"#,
        r#"haft_tokens_total{kind="input"} 30"#,
        r#"haft_tokens_total{kind="output"} 7"#,
    ] {
        assert!(metrics.text.contains(&format!("{row}\n")), "{row} is not in\n{}", metrics.text);
    }
}

#[test]
fn metrics_show_the_states_of_configured_mcp_servers() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["mcpServers"]["dead"] = json!({"url": "http://127.0.0.1:9/mcp"});
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done.")]);
    let server = TestServer::configured(script, &config, &[]);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let metrics = || server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin)).text;
    let row = |name: &str, state: &str, count: u64| {
        format!("haft_mcp_servers{{server=\"{name}\",state=\"{state}\"}} {count}\n")
    };
    let before = metrics();
    for state in ["configured", "starting", "ready", "failed"] {
        assert!(before.contains(&row("docs", state, 0)), "{before}");
    }
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "never"});
    let request = server.request(Method::POST, "/v1/responses");
    let body = json!({"model": "openai/m", "input": "Hi", "tools": [tool]});
    assert_eq!(server.send(with_body(request, &body)).status, 200);
    let after = metrics();
    assert!(after.contains(&row("docs", "ready", 1)), "{after}");
    assert!(after.contains(&row("dead", "ready", 0)), "{after}");
}

#[test]
fn metrics_need_a_key_with_the_scope_admin() {
    let server = TestServer::start(text("Hello."));
    assert_eq!(server.get("/metrics").status, 403);
    assert_eq!(server.send(server.without_key(Method::GET, "/metrics")).status, 401);
}

#[test]
fn model_provider_that_keeps_failing_is_skipped_and_the_metrics_show_it() {
    let dead = json!({"kind": "compatible", "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k"});
    let config =
        json!({"providers": {"dead": dead}, "models": {"default": "dead/m", "fallback": ["openai/m"]}});
    let server = TestServer::configured(text("Hello."), &config, &[]);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let metrics = || server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin)).text;
    let row = |provider: &str, state: &str| {
        format!("haft_model_provider_circuit{{provider=\"{provider}\",state=\"{state}\"}} 1\n")
    };
    // Send them at once, because each of them retries.
    let ask = || with_body(server.request(Method::POST, "/v1/responses"), &json!({"input": "Hi"})).send();
    let replies = server.executor.block_on(futures_util::future::join_all((0..5).map(|_| ask())));
    assert!(replies.into_iter().all(|reply| reply.unwrap().status() == 200));
    let after = metrics();
    assert!(after.contains(&row("dead", "open")) && after.contains(&row("openai", "closed")), "{after}");
}

#[test]
fn operator_is_warned_once_about_each_unknown_field() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&warnings);
    let log = OperatorLog::new(move |message| written.lock().unwrap().push(message.to_owned()));
    let options = ServerOptions { log, ..ServerOptions::default() };
    let server = TestServer::with_options(text("Hello."), options);
    for _ in 0..2 {
        let request = server.request(Method::POST, "/v1/responses");
        let body = json!({"model": "helper", "input": "Hi", "shiny": 1, "user": "u"});
        assert_eq!(server.send(with_body(request, &body)).status, 200);
    }
    let expected = "a request has the field `shiny`, which this version does not know and ignores";
    assert_eq!(*warnings.lock().unwrap(), [expected]);
}
