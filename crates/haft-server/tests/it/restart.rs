//! Tests of background responses whose server stops or is killed, and starts again.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haft_model_server::{ResponsePace, Script, ScriptPart, ScriptStep, StepOrder};
use haft_store::api_keys::KeyLimits;
use haft_testkit::{CutProxy, eventually};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::fixture::{ServerFiles, ServerOptions, TestServer, limited_key, serve_until_killed};
use super::open_responses::check_stream;
use super::responses::{ask, events, events_of, long_history, poll, post, text};
use super::tool_server::ToolServer;

/// The environment variables with which a test configures its server process.
const DIRECTORY: &str = "HAFT_TEST_DIRECTORY";
const MODEL: &str = "HAFT_TEST_MODEL";

fn script() -> Script {
    Script::of([
        ScriptStep::call("docs__add", json!({"n": 1})),
        ScriptStep::say([
            ScriptPart::Text("One more.".into()),
            ScriptPart::call("docs__add", json!({"n": 2})),
        ]),
        ScriptStep::text("All is done."),
    ])
}

fn request() -> Value {
    let tools = json!([{"type": "mcp", "server_label": "docs"}]);
    json!({"model": "openai/m", "input": "Add notes.", "tools": tools, "background": true, "stream": true})
}

/// The server process that the other tests start and kill. Without the environment variables, it does nothing.
#[test]
fn server_process() {
    let (Ok(directory), Ok(model)) = (std::env::var(DIRECTORY), std::env::var(MODEL)) else { return };
    serve_until_killed(directory.as_ref(), model);
}

pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl ServerProcess {
    pub(crate) fn start(files: &ServerFiles) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::server_process", "--nocapture"])
            .env(DIRECTORY, files.directory())
            .env(MODEL, files.model.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.split_once("http://").map(|(_, rest)| format!("http://{rest}")));
        Self { url: url.unwrap(), child }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // SIGKILL: the process cannot write anything before it ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a stream until it has this many events, or ends. Returns the data of the events.
async fn read_events(request: reqwest::RequestBuilder, count: usize) -> Vec<Value> {
    let mut response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let mut read = String::new();
    while read.matches("\n\n").count() < count {
        match response.chunk().await {
            Ok(Some(chunk)) => read.push_str(std::str::from_utf8(&chunk).unwrap()),
            Ok(None) | Err(_) => break,
        }
    }
    let data = read.split("\n\n").filter_map(|block| block.split_once("\ndata: "));
    data.take(count).map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
}

/// The number of events in the stream if the server is not killed.
const EVENTS: usize = 29;

/// The number of threads that run the checks. Most of the time goes to process starts, so threads save time.
const KILLERS: usize = 2;

#[test]
fn server_killed_after_any_event_loses_no_accepted_response_and_repeats_no_call() {
    let tools = ToolServer::start();
    let server = TestServer::configured(script(), &tools.config(), &[]);
    assert_eq!(
        events(&post(&server, &request())).len(),
        EVENTS,
        "the test kills the server after every event"
    );
    std::thread::scope(|scope| {
        for killer in 1..=KILLERS {
            scope.spawn(move || (killer..=EVENTS).step_by(KILLERS).for_each(check_killed_after));
        }
    });
}

/// Kills a server after this many events of a response, starts it again, and checks that the response continues.
fn check_killed_after(count: usize) {
    let executor = tokio::runtime::Runtime::new().unwrap();
    let tools = ToolServer::start();
    let files = ServerFiles::new(script(), &tools.config(), &[]);
    let client = |process: &ServerProcess, method: Method, path: &str| {
        let request = reqwest::Client::new().request(method, format!("{}{path}", process.url));
        request.bearer_auth(&files.key).timeout(Duration::from_mins(1))
    };
    let process = ServerProcess::start(&files);
    let create = client(&process, Method::POST, "/v1/responses");
    let create = create.header("content-type", "application/json").body(request().to_string());
    let seen = executor.block_on(read_events(create, count));
    assert_eq!(seen.len(), count);
    drop(process);
    let id = seen[0]["response"]["id"].as_str().unwrap();
    let process = ServerProcess::start(&files);
    let path = format!("/v1/responses/{id}?stream=true");
    let all = executor.block_on(async {
        // The new process needs a moment to continue the response.
        loop {
            let reply = client(&process, Method::GET, &path).send().await.unwrap();
            if reply.status() == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        read_events(client(&process, Method::GET, &path), usize::MAX).await
    });
    check_stream(&all);
    assert_eq!(seen, all[..count.min(all.len())], "killed after {count} events");
    let last = &all.last().unwrap()["response"];
    assert_eq!((&last["status"], text(last)), (&json!("completed"), "All is done."), "{count}: {last}");
    let numbers: Vec<u64> = all.iter().map(|data| data["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    check_calls(&tools, last, count);
}

/// Checks that each call is made at most once. A call that was not made was interrupted, and the response reports it as
/// failed.
#[track_caller]
fn check_calls(tools: &ToolServer, response: &Value, count: usize) {
    let made = |n: u64| tools.calls().iter().filter(|call| call["n"] == n).count();
    let items = response["output"].as_array().unwrap();
    let failed = items.iter().filter(|item| item["type"] == "mcp_call" && item["status"] == "failed").count();
    let (first, second) = (made(1), made(2));
    assert!(first <= 1 && second <= 1, "killed after {count} events: {:?}", tools.calls());
    assert!(first + second + failed >= 2, "killed after {count} events: {response}");
}

#[test]
fn stopping_server_lets_a_foreground_response_finish() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let mut server = TestServer::configured(script(), &tools.config(), &[]);
    let mut body = request();
    (body["background"], body["stream"]) = (json!(false), json!(false));
    let sent = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    let reply = server.executor.spawn(sent.body(body.to_string()).send());
    eventually("the call has begun", || tools.calls().len() == 1);
    server.stop();
    let ready = || server.send(server.without_key(Method::GET, "/readyz"));
    eventually("the server is not ready", || ready().status == 503);
    assert_eq!(ready().headers["retry-after"], "5");
    let refused = post(&server, &body);
    assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"5".parse().unwrap()));
    tools.release_calls();
    let response: Value = server.executor.block_on(async {
        let reply = reply.await.unwrap().unwrap();
        assert_eq!(reply.status(), 200);
        serde_json::from_str(&reply.text().await.unwrap()).unwrap()
    });
    assert_eq!((&response["status"], text(&response)), (&json!("completed"), "All is done."), "{response}");
    server.stop_and_wait();
}

/// The time that the model needs for a summary. It is longer than the time that a server without work leaves its
/// connections open after it was asked to stop.
const SUMMARY_MILLISECONDS: u64 = 4_000;

#[test]
fn stopping_server_lets_compactions_finish_and_starts_no_new_one() {
    let pace = ResponsePace { first_byte_milliseconds: SUMMARY_MILLISECONDS, ..ResponsePace::default() };
    let summary = || ScriptStep::text("Summary: foxes.").at_pace(pace);
    let script = Script::of([summary(), summary(), ScriptStep::text("Onward.")]);
    let mut server = TestServer::start(script.in_order(StepOrder::Strict));
    let compaction = json!([{"type": "compaction", "compact_threshold": 1_000}]);
    let send = |server: &TestServer, path: &str, body: &Value| {
        let request = server.request(Method::POST, path).header("content-type", "application/json");
        server.executor.spawn(request.body(body.to_string()).send())
    };
    let compact = json!({"model": "openai/m", "input": long_history(12)});
    let whole = json!({"model": "openai/m", "input": long_history(12), "context_management": compaction});
    let replies = [send(&server, "/v1/responses/compact", &compact), send(&server, "/v1/responses", &whole)];
    eventually("the model writes both summaries", || server.model.requests().len() == 2);
    server.stop();
    eventually("the server is not ready", || {
        server.send(server.without_key(Method::GET, "/readyz")).status == 503
    });
    let refused =
        server.executor.block_on(send(&server, "/v1/responses/compact", &compact)).unwrap().unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    let [compacted, response] = replies.map(|reply| {
        let reply = server.executor.block_on(async { reply.await.unwrap().unwrap().text().await.unwrap() });
        serde_json::from_str::<Value>(&reply).unwrap_or_else(|error| panic!("{error}: {reply}"))
    });
    assert_eq!(compacted["output"][0]["type"], "compaction", "{compacted}");
    assert_eq!((&response["status"], text(&response)), (&json!("completed"), "Onward."), "{response}");
    server.stop_and_wait();
}

#[test]
fn response_continues_after_the_server_restarts_during_a_call() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let mut server = TestServer::configured(script(), &tools.config(), &[]);
    let mut body = request();
    body["stream"] = json!(false);
    body["stream_options"] = json!({"include_obfuscation": true});
    let started = ask(&server, &body);
    let id = started["id"].as_str().unwrap().to_owned();
    eventually("the call has begun", || tools.calls().len() == 1);
    server.stop();
    eventually("`/readyz` fails while the server stops", || {
        server.send(server.without_key(Method::GET, "/readyz")).status == 503
    });
    let refused = post(&server, &body);
    assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (503, "5"));
    tools.release_calls();
    server.restart();
    let response = poll(&server, &id, "completed");
    assert_eq!(text(&response), "All is done.");
    assert_eq!(tools.calls(), [json!({"n": 1}), json!({"n": 2})], "the finished call is not repeated");
    let all = events(&server.get(&format!("/v1/responses/{id}?stream=true")));
    assert_eq!(all.last().unwrap().0, "response.completed");
    let deltas: Vec<_> = all.iter().filter(|(name, _)| name == "response.output_text.delta").collect();
    assert!(
        !deltas.is_empty() && deltas.iter().all(|(_, data)| data.contains("\"obfuscation\"")),
        "{deltas:?}"
    );
}

/// Returns a request to a server process. `url` is its address, or the address of a proxy in front of it.
fn process_request(files: &ServerFiles, url: &str, method: Method, path: &str) -> RequestBuilder {
    let request = reqwest::Client::new().request(method, format!("{url}{path}"));
    let request = request.header("content-type", "application/json");
    request.bearer_auth(&files.key).timeout(Duration::from_mins(1))
}

/// Sends a request, and returns the status, the header `x-should-retry` and the body of the reply.
async fn exchanged(request: RequestBuilder) -> (u16, Option<String>, String) {
    let reply = request.send().await.unwrap();
    let retry = reply.headers().get("x-should-retry").map(|value| value.to_str().unwrap().to_owned());
    (reply.status().as_u16(), retry, reply.text().await.unwrap())
}

#[test]
fn keyed_foreground_response_of_a_killed_server_is_reported_as_failed() {
    let executor = tokio::runtime::Runtime::new().unwrap();
    for stream in [false, true] {
        let tools = ToolServer::start();
        tools.hold_calls();
        let files = ServerFiles::new(script(), &tools.config(), &[]);
        let process = ServerProcess::start(&files);
        let mut body = request();
        (body["background"], body["stream"]) = (json!(false), json!(stream));
        let create = |url: &str| {
            let create = process_request(&files, url, Method::POST, "/v1/responses");
            create.header("idempotency-key", "note").body(body.to_string())
        };
        let request = create(&process.url);
        let first = executor.spawn(async move { request.send().await });
        eventually("the call has begun", || tools.calls().len() == 1);
        drop(process);
        drop(first);
        let process = ServerProcess::start(&files);
        let (status, retry, reply) = executor.block_on(exchanged(create(&process.url)));
        if stream {
            let events = events_of(&reply);
            let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
            assert_eq!(
                kinds,
                ["response.created", "response.in_progress", "error", "response.failed"],
                "{reply}"
            );
        } else {
            let error: Value = serde_json::from_str(&reply).unwrap();
            assert_eq!((status, retry.as_deref()), (500, Some("false")), "{error}");
            assert!(error["error"]["message"].as_str().unwrap().contains("the server stopped"), "{error}");
        }
        let list = process_request(&files, &process.url, Method::GET, "/v1/responses");
        let list: Value = serde_json::from_str(&executor.block_on(exchanged(list)).2).unwrap();
        assert_eq!(list["data"][0]["status"], "failed", "{list}");
        assert_eq!(tools.calls().len(), 1, "the call is not repeated");
    }
}

#[test]
fn foreground_response_that_outlasts_the_drain_timeout_is_reported_as_failed() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let drain_timeout = Some(Duration::from_millis(200));
    let options = ServerOptions { drain_timeout, ..ServerOptions::default() };
    let mut server = TestServer::configured_with(script(), &tools.config(), options);
    let mut body = request();
    (body["background"], body["stream"]) = (json!(false), json!(false));
    let create = |server: &TestServer| {
        let request =
            server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        request.header("idempotency-key", "note").body(body.to_string())
    };
    let first = server.executor.spawn(exchanged(create(&server)));
    eventually("the call has begun", || tools.calls().len() == 1);
    server.stop_and_wait();
    let (status, retry, text) = server.executor.block_on(first).unwrap();
    assert_eq!((status, retry.as_deref()), (500, Some("false")), "{text}");
    assert!(text.contains("the server is stopping"), "{text}");
    tools.release_calls();
    server.restart();
    let (status, retry, text) = server.executor.block_on(exchanged(create(&server)));
    assert_eq!((status, retry.as_deref()), (500, Some("false")), "{text}");
    assert_eq!(tools.calls().len(), 1, "the call is not repeated");
}

/// Returns the configuration of a server whose runs start and resume only when the tool server has answered.
fn waiting_for_tools(tools: &ToolServer) -> Value {
    let mut config = tools.config();
    config["mcpServers"]["docs"]["startup"] = json!("required");
    config
}

/// Removes the stored tool lists of all accounts. Runs do not wait for a tool server whose tools are known.
fn forget_tools(files: &ServerFiles) {
    std::fs::remove_dir_all(files.directory().join("home/data/tokens")).unwrap();
}

#[test]
fn response_cancelled_before_the_server_continues_it_makes_no_further_call() {
    let executor = tokio::runtime::Runtime::new().unwrap();
    let tools = ToolServer::start();
    let files = ServerFiles::new(script(), &waiting_for_tools(&tools), &[]);
    let process = ServerProcess::start(&files);
    tools.hold_calls();
    let mut body = request();
    body["stream"] = json!(false);
    let started = [0, 1].map(|_| {
        let create = process_request(&files, &process.url, Method::POST, "/v1/responses");
        let (status, _, reply) = executor.block_on(exchanged(create.body(body.to_string())));
        assert_eq!(status, 200, "{reply}");
        serde_json::from_str::<Value>(&reply).unwrap()["id"].as_str().unwrap().to_owned()
    });
    eventually("both calls have begun", || tools.calls().len() == 2);
    drop(process);
    let (connections, asked) = (tools.connections(), files.model.requests().len());
    forget_tools(&files);
    tools.hold_starts();
    tools.release_calls();
    let process = ServerProcess::start(&files);
    eventually("the server resumes the first run", || tools.connections() > connections);
    let get = |path: &str| {
        let reply = executor.block_on(exchanged(process_request(&files, &process.url, Method::GET, path)));
        serde_json::from_str::<Value>(&reply.2).unwrap()
    };
    let runs = get("/api/v1/runs");
    let listed = runs["data"].as_array().unwrap();
    assert_eq!(listed.len(), started.len(), "{runs}");
    for run in listed {
        assert_eq!(run["status"], "in_progress", "{runs}");
    }
    let proxy = CutProxy::start(&process.url);
    let cancels = started.each_ref().map(|id| {
        let path = format!("/v1/responses/{id}/cancel");
        executor.spawn(exchanged(process_request(&files, &proxy.url(), Method::POST, &path)))
    });
    eventually("the server gets both requests", || {
        proxy.requests().iter().filter(|sent| sent.contains("/cancel")).count() == 2
    });
    get("/v1/models");
    tools.release_starts();
    for cancel in cancels {
        let (status, _, reply) = executor.block_on(cancel).unwrap();
        let response: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!((status, &response["status"]), (200, &json!("cancelled")), "{response}");
    }
    for id in &started {
        assert_eq!(get(&format!("/v1/responses/{id}"))["status"], "cancelled");
    }
    assert_eq!(tools.calls(), [json!({"n": 1}), json!({"n": 1})], "no further call");
    assert_eq!(files.model.requests().len(), asked, "no further model request");
}

#[test]
fn run_cancelled_before_the_server_resumes_it_makes_no_further_call() {
    let executor = tokio::runtime::Runtime::new().unwrap();
    let tools = ToolServer::start();
    let files = ServerFiles::new(script(), &waiting_for_tools(&tools), &[]);
    let process = ServerProcess::start(&files);
    tools.hold_calls();
    let mut body = request();
    body["stream"] = json!(false);
    let create = process_request(&files, &process.url, Method::POST, "/v1/responses");
    executor.block_on(exchanged(create.body(body.to_string())));
    eventually("the call has begun", || tools.calls().len() == 1);
    drop(process);
    let (connections, asked) = (tools.connections(), files.model.requests().len());
    forget_tools(&files);
    tools.hold_starts();
    tools.release_calls();
    let process = ServerProcess::start(&files);
    eventually("the server resumes the run", || tools.connections() > connections);
    let get = |path: &str| {
        let reply = executor.block_on(exchanged(process_request(&files, &process.url, Method::GET, path)));
        serde_json::from_str::<Value>(&reply.2).unwrap()
    };
    let run = get("/api/v1/runs")["data"][0]["id"].as_str().unwrap().to_owned();
    let proxy = CutProxy::start(&process.url);
    let path = format!("/api/v1/runs/{run}/cancel");
    let cancel = executor.spawn(exchanged(process_request(&files, &proxy.url(), Method::POST, &path)));
    eventually("the server gets the request", || {
        proxy.requests().iter().any(|sent| sent.contains("/cancel"))
    });
    get("/v1/models");
    tools.release_starts();
    let (status, _, reply) = executor.block_on(cancel).unwrap();
    assert_eq!(
        (status, serde_json::from_str::<Value>(&reply).unwrap()["status"].clone()),
        (200, json!("ended"))
    );
    assert_eq!(tools.calls(), [json!({"n": 1})], "no further call");
    assert_eq!(files.model.requests().len(), asked, "no further model request");
}

#[test]
fn continued_response_counts_towards_the_concurrent_responses_of_its_key() {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Hello.")]);
    let mut server = TestServer::start(script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]));
    let limited =
        limited_key(&server.store, KeyLimits { concurrent_responses: Some(1), ..KeyLimits::default() });
    let send = |server: &TestServer, path: &str, body: &Value| {
        let request = server.without_key(Method::POST, path).bearer_auth(&limited);
        server.send(request.header("content-type", "application/json").body(body.to_string()))
    };
    let block = json!({"model": "openai/m", "input": "Block", "background": true});
    let id = send(&server, "/v1/responses", &block).json()["id"].as_str().unwrap().to_owned();
    server.restart();
    let ask = |server: &TestServer| {
        send(server, "/v1/responses", &json!({"model": "openai/m", "input": "Hi"})).status
    };
    assert_eq!(ask(&server), 429);
    let cancelled = send(&server, &format!("/v1/responses/{id}/cancel"), &json!({}));
    assert_eq!(cancelled.json()["status"], "cancelled");
    eventually("the slot is free", || ask(&server) == 200);
}
