//! Tests of the run queue: waiting runs, tenants that take turns, a full queue, and runs that leave it.

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{Reply, TestServer, key, scoped_key};
use super::responses::{events, poll};
use super::tool_server::ToolServer;

/// Starts a server whose model never completes its reply to a request with the text `Block`.
fn server(runs: usize, waiting_runs: usize) -> TestServer {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Hello.")]);
    let script = script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]);
    let serve = json!({"maxRuns": runs, "maxWaitingRuns": waiting_runs});
    TestServer::configured(script, &json!({"models": {"default": "openai/m"}, "serve": serve}), &[])
}

fn post(server: &TestServer, key: &str, body: &Value) -> Reply {
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

/// Starts a background response and returns it.
#[track_caller]
fn background(server: &TestServer, key: &str, input: &str) -> Value {
    let reply = post(server, key, &json!({"model": "openai/m", "input": input, "background": true}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn cancel(server: &TestServer, key: &str, response: &Value) -> Value {
    let path = format!("/v1/responses/{}/cancel", response["id"].as_str().unwrap());
    server.send(server.without_key(Method::POST, &path).bearer_auth(key)).json()
}

fn metric(server: &TestServer, admin: &str, name: &str) -> String {
    let reply = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(admin));
    let row = reply.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    row.to_owned()
}

fn kinds(reply: &Reply) -> Vec<String> {
    events(reply).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn response_beyond_the_run_limit_waits_and_reports_that_it_is_queued() {
    let server = server(1, 10);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let first = background(&server, &server.key, "Block");
    assert_eq!(first["status"], "in_progress");
    let second = background(&server, &server.key, "Hi");
    assert_eq!(second["status"], "queued");
    assert_eq!(metric(&server, &admin, "haft_runs_running"), "1");
    assert_eq!(metric(&server, &admin, "haft_run_queue_depth"), "1");
    let listed = server.get("/v1/responses").json();
    let status = |response: &Value| {
        let data = listed["data"].as_array().unwrap();
        data.iter().find(|one| one["id"] == response["id"]).map(|one| one["status"].clone())
    };
    assert_eq!((status(&first), status(&second)), (Some(json!("in_progress")), Some(json!("queued"))));
    assert_eq!(cancel(&server, &server.key, &first)["status"], "cancelled");
    let id = second["id"].as_str().unwrap();
    poll(&server, id, "completed");
    let seen = kinds(&server.get(&format!("/v1/responses/{id}?stream=true")));
    assert_eq!(seen[..3], ["response.created", "response.queued", "response.in_progress"]);
    assert_eq!(metric(&server, &admin, "haft_run_queue_depth"), "0");
    assert_ne!(metric(&server, &admin, "haft_run_queue_wait_seconds_total"), "0");
    assert_eq!(metric(&server, &admin, "haft_run_queue_admitted_total"), "2");
}

#[test]
fn tenant_with_many_waiting_runs_does_not_delay_another_tenant() {
    let server = server(1, 100);
    let other = key(&server.store, "acme", "anna", None);
    let blocking = background(&server, &server.key, "Block");
    let waiting: Vec<Value> = (0..20).map(|_| background(&server, &server.key, "Hi")).collect();
    let one = background(&server, &other, "From acme");
    cancel(&server, &server.key, &blocking);
    for response in &waiting {
        poll(&server, response["id"].as_str().unwrap(), "completed");
    }
    let path = format!("/v1/responses/{}", one["id"].as_str().unwrap());
    let ended = server.send(server.without_key(Method::GET, &path).bearer_auth(&other)).json();
    assert_eq!(ended["status"], "completed");
    let asked = server.model.requests();
    let at = asked.iter().position(|request| request.raw.contains("From acme")).unwrap();
    assert_eq!(at, 1, "the run of the other tenant starts directly after the first run");
}

#[test]
fn full_queue_refuses_a_response_and_says_when_to_retry() {
    let server = server(1, 4);
    let keys: Vec<String> =
        ["b", "c", "d"].iter().map(|tenant| key(&server.store, tenant, "s", None)).collect();
    background(&server, &server.key, "Block");
    let waiting = [background(&server, &server.key, "Hi"), background(&server, &server.key, "Hi")];
    let body = json!({"model": "openai/m", "input": "Hi"});
    let refused = post(&server, &server.key, &body);
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (429, &json!("queue_full")),
        "{}",
        refused.text
    );
    assert_eq!(refused.headers["retry-after"], "5");
    background(&server, &keys[0], "Hi");
    background(&server, &keys[1], "Hi");
    let refused = post(&server, &keys[2], &body);
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (503, &json!("queue_full")),
        "{}",
        refused.text
    );
    assert_eq!(refused.headers["retry-after"], "5");
    assert_eq!(
        cancel(&server, &server.key, &waiting[0])["status"],
        "cancelled",
        "a waiting run can be cancelled"
    );
    assert_eq!(
        background(&server, &keys[2], "Hi")["status"],
        "queued",
        "the cancelled run frees its place in the queue"
    );
    assert_eq!(server.model.requests().len(), 1, "no waiting run sends a model request");
}

#[test]
fn waiting_response_leaves_the_queue_when_its_client_disconnects() {
    let server = server(1, 10);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    background(&server, &server.key, "Block");
    for is_streamed in [false, true] {
        let body = json!({"model": "openai/m", "input": "Hi", "stream": is_streamed}).to_string();
        let request = server.request(Method::POST, "/v1/responses");
        let request = request.header("content-type", "application/json").body(body);
        let sent = server.executor.spawn(async move {
            let mut response = request.send().await.unwrap();
            while response.chunk().await.unwrap().is_some() {}
        });
        eventually("the run waits in the queue", || metric(&server, &admin, "haft_run_queue_depth") == "1");
        sent.abort();
        eventually("the run leaves the queue", || metric(&server, &admin, "haft_run_queue_depth") == "0");
    }
    assert_eq!(server.model.requests().len(), 1);
}

#[test]
fn waiting_response_survives_a_restart_with_the_same_events() {
    let mut server = server(1, 10);
    let blocking = background(&server, &server.key, "Block");
    let waiting = background(&server, &server.key, "Hi");
    server.restart();
    let id = waiting["id"].as_str().unwrap().to_owned();
    // Both responses continue, in any order. Only one of them ends without being cancelled.
    assert_eq!(cancel(&server, &server.key, &blocking)["status"], "cancelled");
    poll(&server, &id, "completed");
    let seen = kinds(&server.get(&format!("/v1/responses/{id}?stream=true")));
    assert_eq!(seen[..3], ["response.created", "response.queued", "response.in_progress"]);
    assert_eq!(seen.last().map(String::as_str), Some("response.completed"));
}

#[test]
fn decision_about_a_call_survives_a_restart_in_the_queue() {
    let tools = ToolServer::start();
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let steps = [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Done.")];
    let script = Script::of(steps).about("Block", [ScriptStep::text("Late.").at_pace(pace)]);
    let mut config = tools.config();
    config["serve"] = json!({"maxRuns": 1});
    let mut server = TestServer::configured(script, &config, &[]);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    let asked = json!({"model": "openai/m", "input": "Add.", "tools": [tool]});
    let asked = post(&server, &server.key, &asked).json();
    let blocking = background(&server, &server.key, "Block");
    let request = &asked["output"][0]["id"];
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": request, "approve": true});
    let answer = json!({
        "model": "openai/m", "previous_response_id": asked["id"], "input": [answer], "background": true,
    });
    let decided = post(&server, &server.key, &answer).json();
    assert_eq!(decided["status"], "queued", "{decided}");
    server.restart();
    assert_eq!(cancel(&server, &server.key, &blocking)["status"], "cancelled");
    let ended = poll(&server, decided["id"].as_str().unwrap(), "completed");
    assert_eq!(ended["output"][0]["type"], "mcp_call", "{ended}");
    assert_eq!(tools.calls(), [json!({"n": 1})]);
}
