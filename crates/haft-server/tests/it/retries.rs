//! Tests of clients that send a request again after their connection was cut: tools run only once.

use std::thread;

use haft_model_server::{ErrorResponse, ResponsePace, Script, ScriptStep};
use haft_testkit::{CutProxy, eventually};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::fixture::{Reply, TestServer};
use super::responses::{poll, post, python_with, text};
use super::tool_server::ToolServer;

/// Runs a part of the Python program through a proxy that cuts the connection while the tool runs. Returns the output of
/// the program and the requests that the client sent, one for each connection.
fn cut_during_a_call(part: &str, tools: &ToolServer) -> (Value, Vec<String>) {
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Noted.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let proxy = CutProxy::start(&server.url);
    tools.hold_calls();
    let url = proxy.url();
    let seen = thread::scope(|scope| {
        // Pass the URL of the proxy as `SERVER`, in place of the URL that `python_with` sets.
        let client = scope.spawn(|| python_with(&server, part, &[("SERVER", &url), ("MODEL", "openai/m")]));
        eventually("the tool has begun", || tools.calls().len() == 1);
        proxy.cut();
        eventually("the client has connected again", || proxy.requests().len() == 2);
        tools.release_calls();
        client.join().unwrap()
    });
    (seen, proxy.requests())
}

/// Returns the value of a header in the text of a request.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let lines = request.lines().take_while(|line| !line.is_empty());
    let mut headers = lines.filter_map(|line| line.split_once(": "));
    headers.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn official_client_retries_after_a_cut_connection_and_the_tool_runs_once() {
    let tools = ToolServer::start();
    let (seen, requests) = cut_during_a_call("retry", &tools);
    assert_eq!(
        (&seen["text"], &seen["types"]),
        (&json!("Noted."), &json!(["mcp_call", "message"])),
        "{seen}"
    );
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
    let sent: Vec<_> = requests
        .iter()
        .map(|text| (header(text, "x-stainless-retry-count"), header(text, "idempotency-key")))
        .collect();
    assert_eq!(sent, [(Some("0"), Some("note-1")), (Some("1"), Some("note-1"))]);
}

#[test]
fn automatic_retry_without_an_idempotency_key_does_not_run_the_tool_again() {
    let tools = ToolServer::start();
    let (seen, requests) = cut_during_a_call("retry_without_key", &tools);
    assert_eq!(seen["code"], "retry_repeats_tools", "{seen}");
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
    let sent: Vec<_> = requests.iter().map(|text| header(text, "x-stainless-retry-count")).collect();
    assert_eq!(sent, [Some("0"), Some("1")], "the client does not retry the refusal");
}

#[test]
fn repeated_request_after_a_cut_stream_gets_the_whole_stream_and_the_tool_runs_once() {
    let tools = ToolServer::start();
    let (seen, _) = cut_during_a_call("stream_retry", &tools);
    let attempts = seen["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{seen}");
    assert_ne!(attempts[0]["error"], Value::Null, "the client reports the cut: {seen}");
    let kinds = |attempt: &Value| attempt["kinds"].as_array().unwrap().clone();
    let (cut, whole) = (kinds(&attempts[0]), kinds(&attempts[1]));
    assert!(!cut.is_empty() && whole.starts_with(&cut), "{seen}");
    assert_eq!(whole.last(), Some(&json!("response.completed")), "{seen}");
    assert_eq!(attempts[0]["ids"][0], attempts[1]["ids"][0]);
    assert_eq!(seen["again"].as_array().unwrap().last(), Some(&json!("response.completed")), "{seen}");
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
}

/// Returns a request for a response with an idempotency key.
fn keyed(server: &TestServer, url: &str, body: &Value) -> RequestBuilder {
    let request = reqwest::Client::new().request(Method::POST, format!("{url}/v1/responses"));
    let request = request.bearer_auth(&server.key).header("content-type", "application/json");
    request.header("idempotency-key", "note").body(body.to_string())
}

fn send_keyed(server: &TestServer, body: &Value) -> Reply {
    server.send(keyed(server, &server.url, body))
}

/// Returns the header that tells clients whether to retry.
fn should_retry(reply: &Reply) -> Option<&str> {
    reply.headers.get("x-should-retry").map(|value| value.to_str().unwrap())
}

fn noting(tools: &ToolServer) -> (TestServer, Value) {
    let script = Script::of([ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Noted.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let docs = json!([{"type": "mcp", "server_label": "docs"}]);
    (server, json!({"model": "openai/m", "input": "Add a note.", "tools": docs}))
}

#[test]
fn connection_cut_while_the_run_starts_does_not_use_up_the_idempotency_key() {
    for background in [false, true] {
        let tools = ToolServer::start();
        let (server, mut body) = noting(&tools);
        body["background"] = json!(background);
        let proxy = CutProxy::start(&server.url);
        tools.hold_starts();
        let first = server.executor.spawn(keyed(&server, &proxy.url(), &body).send());
        eventually("the run starts", || tools.connections() == 1);
        proxy.cut();
        let cut = || server.data_lines("access.jsonl").iter().any(|line| line["status"] == 499);
        eventually("the server notices the cut", cut);
        assert!(server.executor.block_on(first).unwrap().is_err());
        let second = server.executor.spawn(keyed(&server, &server.url, &body).send());
        tools.release_starts();
        let reply = server.executor.block_on(async { second.await.unwrap().unwrap() });
        assert_eq!(reply.status(), 200, "background: {background}");
        let response: Value =
            server.executor.block_on(async { serde_json::from_str(&reply.text().await.unwrap()).unwrap() });
        let response = poll(&server, response["id"].as_str().unwrap(), "completed");
        assert_eq!(text(&response), "Noted.");
        assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
        assert_eq!(server.get("/v1/responses").json()["data"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn concurrent_requests_with_one_idempotency_key_start_one_response() {
    let tools = ToolServer::start();
    let (server, body) = noting(&tools);
    let proxy = CutProxy::start(&server.url);
    tools.hold_starts();
    let send = || server.executor.spawn(keyed(&server, &proxy.url(), &body).send());
    let first = send();
    eventually("the run starts", || tools.connections() == 1);
    let second = send();
    eventually("the server gets the second request", || {
        proxy.requests().get(1).is_some_and(|sent| sent.contains("Add a note."))
    });
    server.get("/v1/models");
    tools.release_starts();
    let [first, second] = [first, second].map(|reply| {
        server.executor.block_on(async {
            let reply = reply.await.unwrap().unwrap();
            assert_eq!(reply.status(), 200);
            reply.text().await.unwrap()
        })
    });
    assert_eq!(first, second);
    assert_eq!(tools.calls(), [json!({"n": 1})], "one effect");
}

#[test]
fn waiting_request_starts_the_response_if_the_first_start_fails() {
    let tools = ToolServer::start();
    let (server, body) = noting(&tools);
    let mut wrong = body.clone();
    wrong["tool_choice"] = json!({"type": "mcp", "server_label": "docs", "name": "none"});
    let proxy = CutProxy::start(&server.url);
    tools.hold_starts();
    let send = |body: &Value| server.executor.spawn(keyed(&server, &proxy.url(), body).send());
    let first = send(&wrong);
    eventually("the run starts", || tools.connections() == 1);
    let second = send(&body);
    eventually("the server gets the second request", || {
        proxy.requests().get(1).is_some_and(|sent| sent.contains("Add a note."))
    });
    server.get("/v1/models");
    tools.release_starts();
    let statuses = [first, second]
        .map(|reply| server.executor.block_on(async { reply.await.unwrap().unwrap().status().as_u16() }));
    assert_eq!(statuses, [400, 200], "a failed start releases the key");
    assert_eq!(tools.calls(), [json!({"n": 1})]);
}

#[test]
fn repeated_background_request_gets_a_reply_at_once() {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let server = TestServer::start(Script::of([ScriptStep::text("Late.").at_pace(pace)]));
    let body = json!({"model": "openai/m", "input": "x", "background": true});
    let (first, second) = (send_keyed(&server, &body), send_keyed(&server, &body));
    assert_eq!((first.status, first.json()["status"].clone()), (200, json!("in_progress")));
    assert_eq!((second.status, second.json()), (200, first.json()));
}

#[test]
fn repeated_request_of_a_failed_run_gets_the_same_error() {
    let server =
        TestServer::start(Script::of((0..8).map(|_| ScriptStep::fail(ErrorResponse::new(400, "no")))));
    let body = json!({"model": "openai/m", "input": "x"});
    let first = send_keyed(&server, &body);
    assert_eq!((first.status, &first.json()["error"]["type"]), (500, &json!("model_error")), "{first:?}");
    let asked = server.model.requests().len();
    let second = send_keyed(&server, &body);
    assert_eq!((second.status, second.json()), (500, first.json()));
    for reply in [&first, &second] {
        assert_eq!(should_retry(reply), Some("false"), "a retry with the key gets the same error");
    }
    assert_eq!(server.model.requests().len(), asked);
}

#[test]
fn deleted_response_of_an_idempotency_key_is_reported_without_a_retry() {
    let server = TestServer::start(Script::of([ScriptStep::text("Once.")]));
    let body = json!({"model": "openai/m", "input": "x"});
    let path = format!("/v1/responses/{}", send_keyed(&server, &body).json()["id"].as_str().unwrap());
    assert_eq!(server.send(server.request(Method::DELETE, &path)).status, 200);
    let refused = send_keyed(&server, &body);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (409, &json!("idempotency_key_in_use")));
    assert_eq!(should_retry(&refused), Some("false"));
}

#[test]
fn failed_run_tells_clients_not_to_retry_only_if_a_tool_had_begun() {
    let tools = ToolServer::start();
    let fail = || ScriptStep::fail(ErrorResponse::new(400, "no"));
    let call = ScriptStep::call("docs__add", json!({"n": 1}));
    let script = Script::of([call].into_iter().chain((0..8).map(|_| fail()))).about("Fail", [fail(), fail()]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let docs = json!([{"type": "mcp", "server_label": "docs"}]);
    let fails = |input: &str| {
        let reply = post(&server, &json!({"model": "openai/m", "input": input, "tools": docs}));
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (500, &json!("model_error")), "{reply:?}");
        reply
    };
    assert_eq!(should_retry(&fails("Fail at once.")), None);
    assert!(tools.calls().is_empty());
    assert_eq!(should_retry(&fails("Add a note.")), Some("false"));
    assert_eq!(tools.calls().len(), 1);
}
