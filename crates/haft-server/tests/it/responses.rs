//! `POST /v1/responses`, with the official Python client and with plain HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use haft_model_server::{
    ErrorResponse, RequestExpectation, RequestOutcome, ResponseFault, ResponsePace, Script, ScriptPart,
    ScriptStep, StepOrder,
};
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::types;
use super::fixture::{Reply, TestServer, key};
use super::open_responses::{check_response, check_stream, data};

fn answering(text: &str) -> TestServer {
    TestServer::start(Script::of([0, 1, 2].map(|turn| ScriptStep::text(text).at_turn(turn))))
}

/// Runs a part of the Python program against the server.
pub(crate) fn python(server: &TestServer, part: &str, model: &str) -> Value {
    python_with(server, part, &[("MODEL", model)])
}

/// Runs a part of the Python program with additional environment variables.
pub(crate) fn python_with(server: &TestServer, part: &str, variables: &[(&str, &str)]) -> Value {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/openai_responses.py");
    let ran = Command::new(interpreter())
        .args([program, part])
        .env_clear()
        .envs([("SERVER", &*server.url), ("KEY", &*server.key)])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// Returns the path of the Python interpreter with the SDKs.
pub(crate) fn interpreter() -> PathBuf {
    tools("python").join("bin/python3")
}

/// Returns the directory of a package that `xtask` installs next to the build products.
pub(crate) fn tools(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().map(|place| place.join("tools").join(name));
    let installed = places.find(|place| place.join("installed.txt").is_file());
    installed.unwrap_or_else(|| panic!("`{name}` is not installed; run `cargo xtask install`"))
}

pub(crate) fn post(server: &TestServer, body: &Value) -> Reply {
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    server.send(request.body(body.to_string()))
}

pub(crate) fn ask(server: &TestServer, body: &Value) -> Value {
    let reply = post(server, body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    check_response(&reply.json());
    reply.json()
}

pub(crate) fn text(response: &Value) -> &str {
    let items = response["output"].as_array().unwrap();
    items.last().and_then(|item| item["content"][0]["text"].as_str()).unwrap_or_default()
}

/// Checks the events of a stream, and returns the name and the data of each.
#[track_caller]
pub(crate) fn events(reply: &Reply) -> Vec<(String, String)> {
    events_of(&reply.text)
}

/// Works like [`events`], for the text of a stream.
#[track_caller]
pub(crate) fn events_of(text: &str) -> Vec<(String, String)> {
    assert!(text.ends_with("data: [DONE]\n\n") && !text.contains('\r'), "{text}");
    let blocks = text.split_terminator("\n\n").filter(|block| block.starts_with("event: "));
    let event = |block: &str| {
        let (name, data) = block.split_once('\n').unwrap();
        (name["event: ".len()..].to_owned(), data.strip_prefix("data: ").unwrap().to_owned())
    };
    let events: Vec<_> = blocks.map(event).collect();
    let data = data(&events);
    for ((name, _), data) in events.iter().zip(&data) {
        assert_eq!(data["type"], **name);
    }
    check_stream(&data);
    events
}

/// Checks that the client's types lack only the fields that the Open Responses specification adds.
#[track_caller]
pub(crate) fn check_extras(seen: &Value) {
    let is_known = |path: &&Value| {
        let name = path.as_str().and_then(|path| path.rsplit('.').next());
        matches!(name, Some("presence_penalty" | "frequency_penalty" | "store"))
    };
    let extras: Vec<&Value> =
        seen["extras"].as_array().unwrap().iter().filter(|path| !is_known(path)).collect();
    assert!(extras.is_empty(), "{extras:?}");
}

#[test]
fn official_client_has_a_type_for_every_field_of_an_answer() {
    let server = answering("Hello there.");
    let seen = python(&server, "create", "openai/m");
    assert_eq!((seen["text"].as_str(), seen["status"].as_str()), (Some("Hello there."), Some("completed")));
    assert_eq!(seen["metadata"], json!({"a": "b"}));
    assert_eq!(seen["usage"]["total_tokens"], 15);
    check_extras(&seen);
    let sent = server.model.requests().last().unwrap().body.to_string();
    for words in ["Be brief.", "Answer in English.", "Hello.", "Again."] {
        assert!(sent.contains(words), "{words} is not in {sent}");
    }
    assert!(!sent.contains("Relative paths"), "a plain model gets no text of haft: {sent}");
}

#[test]
fn client_runs_functions_and_their_outputs_continue_the_conversation() {
    let steps = [
        ScriptStep::call("weather", json!({"town": "Oslo"})),
        ScriptStep::text("31 degrees in Oslo.").expecting(RequestExpectation {
            body_contains: vec!["31 degrees".into()],
            ..RequestExpectation::default()
        }),
    ];
    let server = TestServer::start(Script::of(steps));
    let seen = python(&server, "functions", "openai/m");
    assert_eq!(seen["call"], json!(["function_call", "weather", {"town": "Oslo"}, "completed"]));
    assert_eq!((&seen["text"], &seen["previous"]), (&json!("31 degrees in Oslo."), &json!(true)));
    check_extras(&seen);
}

#[test]
fn official_client_accepts_the_stream_and_accumulates_it() {
    let seen = python(&answering("Streamed text."), "stream", "openai/m");
    assert_eq!(seen["text"], "Streamed text.");
    let kinds: Vec<&str> =
        seen["kinds"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("response.created", "response.completed"));
    assert!(kinds.contains(&"response.output_text.delta"), "{kinds:?}");
    check_extras(&seen);
}

#[test]
fn stored_responses_are_read_listed_and_deleted() {
    let seen = python(&answering("Kept."), "stored", "helper");
    let expected = json!({"same": true, "items": [["message", "Keep this."]], "gone": 404, "kept": 404});
    assert_eq!(seen, expected);
}

#[test]
fn invalid_field_gets_status_400_and_an_error_that_names_it() {
    let seen = python(&answering("x"), "errors", "openai/m");
    let expected = json!({
        "model": ["model", "model_not_found"], "previous": ["previous_response_id", "previous_response_not_found"],
        "output": ["input[0].call_id", null], "choice": ["tool_choice", null],
    });
    assert_eq!(seen, expected);
}

#[test]
fn malformed_and_oversized_bodies_are_refused() {
    let server = answering("x");
    let send = |body: String| {
        let request =
            server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        server.send(request.body(body))
    };
    for body in ["", "{", "[]", "{\"input\": \"x\"} x"] {
        let reply = send(body.to_owned());
        assert_eq!(
            (reply.status, &reply.json()["error"]["type"]),
            (400, &json!("invalid_request_error")),
            "{body}"
        );
    }
    assert_eq!(send(format!("{{\"input\":\"{}\"}}", "x".repeat(49 << 20))).status, 413);
    assert_eq!(send("[".repeat(100_000)).status, 400);
    assert_eq!(send(format!("{{\"input\": \"x\", \"temperature\": {}}}", "7".repeat(40 << 20))).status, 400);
    assert_eq!(send(r#"{"input": "\ud800"}"#.to_owned()).status, 400);
}

/// Most clients send the whole body before they read the reply.
#[test]
fn client_that_sends_a_whole_oversized_body_can_read_the_refusal() {
    const BODY_BYTES: usize = 60 << 20;
    let server = answering("x");
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {BODY_BYTES}\r\nConnection: close\r\n\r\n",
        server.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    for sent in 0..BODY_BYTES / piece.len() {
        let written = stream.write_all(&piece);
        assert!(written.is_ok(), "the server closed the connection after {sent} MiB: {written:?}");
    }
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
}

#[test]
fn stream_events_have_the_order_and_ids_of_the_specification() {
    let steps = [ScriptStep::say([
        ScriptPart::reasoning("Thinking.", "state"),
        ScriptPart::Text("Let me see.".into()),
        ScriptPart::call("weather", json!({"town": "Oslo"})),
    ])];
    let server = TestServer::start(Script::of(steps));
    let tools = json!([{"type": "function", "name": "weather"}]);
    let reply = post(&server, &json!({"model": "openai/m", "input": "x", "stream": true, "tools": tools}));
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    assert_eq!(reply.headers["x-accel-buffering"], "no");
    let events = events(&reply);
    let data: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    for (number, ((name, _), data)) in events.iter().zip(&data).enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
    }
    let last = &data.last().unwrap()["response"];
    let types: Vec<&str> =
        last["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types.last(), Some(&"function_call"), "{types:?}");
    assert_eq!(last["status"], "completed");
    let stored = server.get(&format!("/v1/responses/{}", last["id"].as_str().unwrap())).json();
    assert_eq!(stored, *last, "the stored response is the one that was streamed");
}

#[test]
fn conversation_can_branch_and_outlives_its_first_response() {
    let steps = [ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")];
    let server = TestServer::start(Script::of(steps));
    let first = ask(&server, &json!({"model": "openai/m", "input": "a"}));
    let next = |previous: &Value, input: &str| {
        ask(&server, &json!({"model": "openai/m", "input": input, "previous_response_id": previous["id"]}))
    };
    let (left, right) = (next(&first, "b"), next(&first, "c"));
    assert_eq!((text(&left), text(&right)), ("Two.", "Two."));
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(server.send(server.request(Method::DELETE, &path)).json()["deleted"], true);
    assert_eq!(text(&next(&right, "d")), "Three.");
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(
        sent.contains("\"c\"") && !sent.contains("\"b\""),
        "a branch does not contain the other branch: {sent}"
    );
}

#[test]
fn objects_of_another_subject_are_not_found() {
    let server = answering("Secret.");
    let response = ask(&server, &json!({"model": "openai/m", "input": "a"}));
    let id = response["id"].as_str().unwrap();
    for (tenant, subject) in [("default", "eve"), ("other", "local")] {
        let eve = key(&server.store, tenant, subject, None);
        let status = |method: Method, path: &str| {
            server.send(server.without_key(method, path).bearer_auth(&eve)).status
        };
        assert_eq!(status(Method::GET, &format!("/v1/responses/{id}")), 404);
        assert_eq!(status(Method::GET, &format!("/v1/responses/{id}/input_items")), 404);
        assert_eq!(status(Method::DELETE, &format!("/v1/responses/{id}")), 404);
        assert_eq!(status(Method::POST, &format!("/v1/responses/{id}/cancel")), 404);
        let list = server.without_key(Method::GET, "/v1/responses").bearer_auth(&eve);
        assert_eq!(server.send(list).json()["data"], json!([]));
        let body = json!({"model": "openai/m", "input": "x", "previous_response_id": id}).to_string();
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&eve);
        let reply = server.send(request.header("content-type", "application/json").body(body));
        assert_eq!(reply.json()["error"]["code"], "previous_response_not_found");
    }
}

#[test]
fn agent_keeps_its_prompt_and_needs_the_scope_for_builtin_tools() {
    let agents = [
        ("helper", "---\nmodels: openai/m\ntools: []\n---\nYou help.\n"),
        ("coder", "---\nmodels: openai/m\ntools: [bash]\n---\nYou code.\n"),
        ("everything", "---\nmodels: openai/m\n---\nYou do all.\n"),
        ("command", "---\nmodels: [openai/m, claude-code/sonnet]\ntools: []\n---\nYou have tools.\n"),
    ];
    let server = TestServer::configured(Script::of([ScriptStep::text("Done.")]), &json!({}), &agents);
    let response = ask(&server, &json!({"model": "helper", "input": "x", "instructions": "In French."}));
    assert_eq!(text(&response), "Done.");
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(sent.contains("You help.") && sent.contains("In French."), "{sent}");
    // Claude Code has its own shell and file tools, so a request that may use it needs the scope for built-in tools
    // too.
    for model in ["coder", "everything", "command", "claude-code/sonnet"] {
        assert_eq!(post(&server, &json!({"model": model, "input": "x"})).status, 403, "{model}");
    }
    let own = json!({"model": "openai/m", "input": "x", "tools": [{"type": "haft:bash"}]});
    assert_eq!(post(&server, &own).status, 403);
    for path in ["../../etc/passwd", "/etc/passwd", "helper.md", "./agents/helper.md"] {
        let reply = post(&server, &json!({"model": path, "input": "x"}));
        assert!(
            (400..=500).contains(&reply.status) && !reply.text.contains("root:"),
            "{path}: {}",
            reply.text
        );
        assert_ne!(reply.status, 200, "{path}");
    }
}

#[test]
fn model_failure_is_reported_as_an_http_error_or_a_stream_event() {
    let steps = || (0..8).map(|_| ScriptStep::fail(ErrorResponse::new(400, "no")));
    let server = TestServer::start(Script::of(steps()));
    let reply = post(&server, &json!({"model": "openai/m", "input": "x"}));
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (500, &json!("model_error")),
        "{}",
        reply.text
    );
    let server = TestServer::start(Script::of(steps()));
    let events = events(&post(&server, &json!({"model": "openai/m", "input": "x", "stream": true})));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[names.len() - 2..], ["error", "response.failed"]);
}

#[test]
fn failed_response_keeps_the_text_from_before_the_model_died() {
    let cut = ResponseFault::Cut { after_frames: 6, and_bytes: 9 };
    let step = || ScriptStep::text(&"words ".repeat(100)).with_fault(cut.clone());
    let server = TestServer::start(Script::of((0..8).map(|_| step())));
    let streamed = events(&post(&server, &json!({"model": "openai/m", "input": "x", "stream": true})));
    let (name, data) = streamed.last().unwrap();
    assert_eq!(name, "response.failed");
    let failed: Value = serde_json::from_str(data).unwrap();
    let stored = server.get(&format!("/v1/responses/{}", failed["response"]["id"].as_str().unwrap())).json();
    for response in [&failed["response"], &stored] {
        assert_eq!(response["status"], "failed", "{response}");
        assert!(text(response).starts_with("words "), "{response}");
        assert_eq!(response["output"][0]["status"], "incomplete", "{response}");
    }
}

#[test]
fn answer_matches_the_json_schema_of_the_text_format() {
    let server =
        TestServer::start(Script::of([ScriptStep::say([ScriptPart::Json(json!({"town": "Oslo"}))])]));
    let schema = json!({"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]});
    let format = json!({"type": "json_schema", "name": "place", "schema": schema});
    let response = ask(&server, &json!({"model": "openai/m", "input": "x", "text": {"format": format}}));
    assert_eq!(serde_json::from_str::<Value>(text(&response)).unwrap(), json!({"town": "Oslo"}));
    assert_eq!(response["text"]["format"]["schema"], schema);
}

#[test]
fn skipped_tools_and_unknown_fields_are_listed_in_a_header() {
    let server = answering("x");
    let body = json!({"model": "openai/m", "input": "x", "tools": [{"type": "web_search"}], "shiny": 1});
    let reply = post(&server, &body);
    let warnings = reply.headers["haft-warnings"].to_str().unwrap();
    assert!(warnings.contains("web_search") && warnings.contains("shiny"), "{warnings}");
}

#[test]
fn header_names_every_ignored_field_even_with_an_odd_name() {
    let server = answering("x");
    let tool = json!({"type": "function", "name": "f", "defer_loading": true});
    let body = json!({
        "model": "openai/m", "input": "x", "tools": [tool], "moderation": {"model": "m"}, "größe": 1,
        "line\nbreak": 1, "x".repeat(100_000): 1, "user": "u", "prompt_cache_key": "k",
    });
    let reply = post(&server, &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let warnings = reply.headers["haft-warnings"].to_str().unwrap();
    for name in ["moderation", "tools[0].defer_loading", "gr\\u{f6}\\u{df}e", "line\\u{a}break", "`xxx"] {
        assert!(warnings.contains(name), "{name} is not in {warnings}");
    }
    assert!(warnings.len() < 1_000 && !warnings.contains("user"), "{warnings}");
    for path in ["/v1/responses/compact", "/v1/responses/input_tokens"] {
        let reply = send(&server, path, &server.key, &body);
        assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("moderation"), "{path}: {reply:?}");
    }
}

pub(crate) fn poll(server: &TestServer, id: &str, until: &str) -> Value {
    let path = format!("/v1/responses/{id}");
    let mut response = Value::Null;
    eventually(&format!("{id} is {until}"), || {
        response = server.get(&path).json();
        response["status"] == until
    });
    check_response(&response);
    response
}

#[test]
fn background_response_can_be_polled_followed_and_replayed() {
    let server = answering("Worked in the background.");
    let started = ask(&server, &json!({"model": "openai/m", "input": "x", "background": true}));
    assert_eq!((&started["status"], &started["background"]), (&json!("in_progress"), &json!(true)));
    let id = started["id"].as_str().unwrap();
    let response = poll(&server, id, "completed");
    assert_eq!(text(&response), "Worked in the background.");
    let all = events(&server.get(&format!("/v1/responses/{id}?stream=true")));
    let rest = events(&server.get(&format!("/v1/responses/{id}?stream=true&starting_after=1")));
    assert_eq!((all[0].0.as_str(), &all[2..]), ("response.created", &rest[..]));
    let streamed = json!({"model": "openai/m", "input": "x", "background": true, "stream": true});
    let streamed = events(&post(&server, &streamed));
    let kinds = |events: &[(String, String)]| events.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&streamed), kinds(&all), "a stream and its replay are the same");
    let foreground = ask(&server, &json!({"model": "openai/m", "input": "x"}));
    let path = format!("/v1/responses/{}?stream=true", foreground["id"].as_str().unwrap());
    assert_eq!(server.get(&path).status, 400);
}

#[test]
fn reader_of_a_background_response_selects_the_padding_of_its_stream() {
    let server = answering("Padded.");
    let create = |server: &TestServer, padded: bool| {
        let options = json!({"include_obfuscation": padded});
        let body = json!({"model": "openai/m", "input": "x", "background": true, "stream_options": options});
        let id = ask(server, &body)["id"].as_str().unwrap().to_owned();
        poll(server, &id, "completed");
        id
    };
    let created = [(create(&server, true), true), (create(&server, false), false)];
    for (id, padded) in &created {
        let deltas = |query: &str| {
            let all = events(&server.get(&format!("/v1/responses/{id}?stream=true{query}")));
            let deltas = all.into_iter().filter(|(name, _)| name == "response.output_text.delta");
            deltas.map(|(_, data)| data.contains("\"obfuscation\"")).collect::<Vec<_>>()
        };
        assert_eq!(deltas(""), [*padded]);
        assert_eq!(
            (deltas("&include_obfuscation=true"), deltas("&include_obfuscation=false")),
            (vec![true], vec![false])
        );
    }
    let path = format!("/v1/responses/{}", created[0].0);
    for (query, param) in [
        ("stream=yes", "stream"),
        ("stream=", "stream"),
        ("include_obfuscation=1", "include_obfuscation"),
        ("stream=true&starting_after=x", "starting_after"),
    ] {
        let reply = server.get(&format!("{path}?{query}"));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{query}");
    }
    assert_eq!(server.get(&format!("{path}?stream=false")).json()["status"], "completed");
}

/// Starts a server whose model takes a minute to reply.
fn slow() -> TestServer {
    let pace = ResponsePace { between_milliseconds: 60_000, ..ResponsePace::default() };
    TestServer::start(Script::of([ScriptStep::text("Late.").at_pace(pace)]))
}

#[test]
fn cancelling_a_background_response_stops_its_run() {
    let server = slow();
    let started = ask(&server, &json!({"model": "openai/m", "input": "x", "background": true}));
    let id = started["id"].as_str().unwrap();
    let follow_up = json!({"model": "openai/m", "input": "y", "previous_response_id": id});
    assert_eq!(post(&server, &follow_up).json()["error"]["param"], "previous_response_id");
    let cancelled = server.send(server.request(Method::POST, &format!("/v1/responses/{id}/cancel"))).json();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(poll(&server, id, "cancelled"), cancelled);
}

#[test]
fn response_in_progress_of_another_subject_is_not_found() {
    let server = slow();
    let started = ask(&server, &json!({"model": "openai/m", "input": "x", "background": true}));
    let path = format!("/v1/responses/{}", started["id"].as_str().unwrap());
    for (tenant, subject) in [("default", "eve"), ("other", "local")] {
        let eve = key(&server.store, tenant, subject, None);
        let status = |method: Method, path: &str| {
            server.send(server.without_key(method, path).bearer_auth(&eve)).status
        };
        assert_eq!(status(Method::GET, &path), 404);
        assert_eq!(status(Method::GET, &format!("{path}?stream=true")), 404);
        assert_eq!(status(Method::POST, &format!("{path}/cancel")), 404);
        assert_eq!(status(Method::DELETE, &path), 404);
    }
    assert_eq!(server.get(&path).json()["status"], "in_progress");
}

#[test]
fn deleted_background_response_stays_deleted() {
    let server = slow();
    let first = ask(&server, &json!({"model": "openai/m", "input": "Go.", "background": true}));
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    eventually("the model gets the request", || !server.model.requests().is_empty());
    assert_eq!(server.send(server.request(Method::DELETE, &path)).status, 200);
    eventually("the run of the response has ended", || {
        server.model.requests().iter().any(|request| request.outcome == RequestOutcome::Abandoned)
    });
    assert_eq!(server.get(&path).status, 404, "the end of the run does not store the response again");
}

#[test]
fn disconnected_client_cancels_its_response() {
    let server = slow();
    let body = json!({"model": "openai/m", "input": "x", "stream": true}).to_string();
    let request =
        server.request(Method::POST, "/v1/responses").header("content-type", "application/json").body(body);
    let response = server.executor.block_on(async {
        let mut response = request.send().await.unwrap();
        assert!(response.chunk().await.unwrap().is_some());
        response
    });
    // Wait for the model request: a run that is cancelled before has no request to abort.
    eventually("the model gets the request", || !server.model.requests().is_empty());
    drop(response);
    eventually("haft closes the request to the model", || {
        server.model.requests().iter().any(|request| request.outcome == RequestOutcome::Abandoned)
    });
}

#[test]
fn two_requests_with_one_idempotency_key_get_the_same_response() {
    let server = answering("Once.");
    let send = |key: &str, stream: bool| {
        let body = json!({"model": "openai/m", "input": "x", "stream": stream}).to_string();
        let request =
            server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        server.send(request.header("idempotency-key", key).body(body))
    };
    let (first, second, other) = (send("a", false).json(), send("a", false).json(), send("b", false).json());
    assert_eq!(first["id"], second["id"]);
    assert_ne!(first["id"], other["id"]);
    assert_eq!((first, server.model.requests().len()), (second, 2));
    assert_eq!(send("", false).status, 400);
    let wrong = json!({"model": "openai/m", "input": "x", "previous_response_id": "resp_none"}).to_string();
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    assert_eq!(server.send(request.header("idempotency-key", "c").body(wrong)).status, 400);
    assert_eq!(send("c", false).status, 200, "a request that started nothing does not use up its key");
    let reused = send("a", true);
    assert_eq!((reused.status, &reused.json()["error"]["code"]), (400, &json!("idempotency_key_reused")));
    assert_eq!(server.model.requests().len(), 3);
}

#[test]
fn idempotency_key_belongs_to_one_principal_for_one_day() {
    let server = answering("Once.");
    let send = |secret: &str| {
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(secret);
        let request = request.header("content-type", "application/json").header("idempotency-key", "a");
        server.send(request.body(json!({"model": "openai/m", "input": "x"}).to_string())).json()
    };
    let own = send(&server.key);
    assert_ne!(send(&key(&server.store, "default", "eve", None))["id"], own["id"]);
    assert_ne!(send(&key(&server.store, "other", "local", None))["id"], own["id"]);
    assert_eq!(send(&server.key), own);
    server.make_old(&own);
    assert_ne!(send(&server.key)["id"], own["id"], "the key is valid for a day");
}

#[test]
fn idempotency_key_of_a_response_in_progress_is_refused_for_another_body() {
    let server = slow();
    let send = |input: &str| {
        let body = json!({"model": "openai/m", "input": input, "background": true, "stream": true});
        let request =
            server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        let request = request.header("idempotency-key", "a").body(body.to_string());
        server.executor.block_on(async { request.send().await.unwrap().status().as_u16() })
    };
    assert_eq!((send("x"), send("y"), send("x")), (200, 400, 200));
    assert_eq!(server.get("/v1/responses").json()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn item_references_name_items_of_stored_responses_of_the_same_owner() {
    let server = answering("The answer is four.");
    let first = ask(&server, &json!({"model": "openai/m", "input": "Two and two?"}));
    let input = server.get(&format!("/v1/responses/{}/input_items", first["id"].as_str().unwrap())).json();
    let refer = |id: &Value| json!({"type": "item_reference", "id": id});
    let items = [
        refer(&input["data"][0]["id"]),
        json!({"id": first["output"][0]["id"]}),
        json!({"role": "user", "content": "Sure?"}),
    ];
    ask(&server, &json!({"model": "openai/m", "input": items}));
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(sent.contains("Two and two?") && sent.contains("The answer is four."), "{sent}");
    let body = json!({"model": "openai/m", "input": items});
    let eve = key(&server.store, "default", "eve", None);
    let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(&eve);
    let foreign = server.send(request.header("content-type", "application/json").body(body.to_string()));
    assert_eq!((foreign.status, &foreign.json()["error"]["param"]), (400, &json!("input[0].id")));
    for id in ["", "msg_1", "item_../../../etc/passwd/aaaaaaaaaaaaaaaaaaaaaaaaaa", "msg_é"] {
        let reply = post(&server, &json!({"model": "openai/m", "input": [refer(&json!(id))]}));
        assert_eq!(reply.json()["error"]["param"], "input[0].id", "{id}: {}", reply.text);
    }
}

#[test]
fn item_references_name_items_that_a_client_added_to_a_conversation() {
    let server = answering("Noted.");
    let message = |text: &str| json!({"role": "user", "content": text});
    let made =
        send(&server, "/v1/conversations", &server.key, &json!({"items": [message("First fact.")]})).json();
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    for text in ["Second fact.", "Third fact."] {
        send(&server, &path, &server.key, &json!({"items": [message(text)]}));
    }
    let listed = server.get(&path).json()["data"].as_array().unwrap().clone();
    let refer = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let input: Vec<Value> = listed.iter().map(refer).collect();
    ask(&server, &json!({"model": "openai/m", "input": input}));
    let sent = server.model.requests().last().unwrap().raw.clone();
    for text in ["First fact.", "Second fact.", "Third fact."] {
        assert!(sent.contains(text), "{text}: {sent}");
    }
    let eve = key(&server.store, "default", "eve", None);
    let foreign = send(&server, "/v1/responses", &eve, &json!({"model": "openai/m", "input": input}));
    assert_eq!((foreign.status, &foreign.json()["error"]["code"]), (400, &json!("item_not_found")));
}

#[test]
fn conversation_keeps_the_items_of_references_whose_response_is_deleted() {
    let server = answering("The answer is four.");
    let first = ask(&server, &json!({"model": "openai/m", "input": "Two and two?"}));
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let question = server.get(&format!("{path}/input_items")).json()["data"][0]["id"].clone();
    // A reference may have no type.
    let bare = json!({"items": [{"id": question}]});
    let created = send(&server, "/v1/conversations", &server.key, &bare).json();
    let id = created["id"].as_str().unwrap();
    let answer = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let ask_in =
        |input: Value| ask(&server, &json!({"model": "openai/m", "input": input, "conversation": id}));
    let second = ask_in(json!([answer, {"role": "user", "content": "Sure?"}]));
    assert_eq!(server.send(server.request(Method::DELETE, &path)).status, 200);
    ask_in(json!("Really?"));
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(sent.contains("Two and two?") && sent.matches("The answer is four.").count() == 2, "{sent}");
    let inputs = server.get(&format!("/v1/responses/{}/input_items", second["id"].as_str().unwrap())).json();
    assert_eq!(inputs["data"][1]["type"], "message", "{inputs}");
    let gone =
        send(&server, &format!("/v1/conversations/{id}/items"), &server.key, &json!({"items": [answer]}));
    let error = gone.json()["error"].clone();
    assert_eq!(
        (gone.status, &error["param"], &error["code"]),
        (400, &json!("items[0].id"), &json!("item_not_found"))
    );
}

#[test]
fn service_tier_padding_and_truncation_have_an_effect_or_a_warning() {
    let server = answering("Hello there.");
    let body = json!({
        "model": "openai/m", "input": "x", "stream": true, "stream_options": {"include_obfuscation": true},
        "include": ["haft.warnings"], "service_tier": "priority", "truncation": "auto",
    });
    let reply = post(&server, &body);
    assert!(reply.headers["haft-warnings"].to_str().unwrap().contains("priority"));
    let data: Vec<Value> =
        events(&reply).iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    let deltas: Vec<&Value> =
        data.iter().filter(|data| data["type"] == "response.output_text.delta").collect();
    let padded = |data: &&Value| {
        let bytes = ["delta", "obfuscation"].map(|name| data[name].as_str().unwrap().len());
        bytes.iter().sum::<usize>() % 32 == 0
    };
    assert!(!deltas.is_empty() && deltas.iter().all(padded), "{deltas:?}");
    let last = &data.last().unwrap()["response"];
    assert_eq!(last["output"][0]["type"], "haft:warning");
    assert!(last["output"][0]["message"].as_str().unwrap().contains("priority"));
    assert_eq!((&last["service_tier"], &last["truncation"]), (&json!("default"), &json!("auto")));
    let plain = ask(&server, &json!({"model": "openai/m", "input": "x"}));
    assert_eq!(plain["truncation"], "disabled");
    assert_eq!(ask(&server, &json!({"model": "helper", "input": "x"}))["truncation"], "auto");
}

#[test]
fn official_client_ignores_haft_events_and_can_turn_them_off() {
    let agents = [("clock", "---\nmodels: openai/m\ntools: [current_date]\n---\nYou know the date.\n")];
    let steps = [ScriptStep::call("current_date", json!({})), ScriptStep::text("It is today.")];
    let server = TestServer::configured(Script::of(steps), &json!({}), &agents);
    let seen = python(&server, "own_events", "clock");
    let own = json!(["haft:tool_call.in_progress", "haft:tool_call.completed"]);
    assert_eq!((&seen["plain"], &seen["helper"], &seen["strict"]), (&own, &own, &json!([])));
    assert_eq!(seen["texts"], json!(["It is today.", "It is today.", "It is today."]));
    let request = server.request(Method::POST, "/v1/responses").header("haft-events", "some");
    let request = request.header("content-type", "application/json").body("{}");
    assert_eq!(server.send(request).json()["error"]["param"], "haft-events");
}

#[test]
fn tool_calls_of_an_agent_run_on_the_server_and_become_items() {
    let agents = [("clock", "---\nmodels: openai/m\ntools: [current_date]\n---\nYou know the date.\n")];
    let steps = [ScriptStep::call("current_date", json!({})), ScriptStep::text("It is today.")];
    let server = TestServer::configured(Script::of(steps), &json!({}), &agents);
    let response = ask(&server, &json!({"model": "clock", "input": "x"}));
    let items = response["output"].as_array().unwrap();
    let types: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["haft:tool_call", "message"], "{response}");
    assert_eq!((&items[0]["name"], &items[0]["status"]), (&json!("current_date"), &json!("completed")));
    assert!(items[0]["output"].as_str().is_some_and(|output| output.contains("20")), "{}", items[0]);
    let replayed = json!({"model": "clock", "input": [items[0], {"role": "user", "content": "And?"}]});
    assert_eq!(text(&ask(&server, &replayed)), "It is today.");
}

#[test]
fn input_tokens_grow_with_the_input() {
    let server = answering("x");
    let count = |input: &str| {
        let body = json!({"model": "openai/m", "input": input}).to_string();
        let request = server.request(Method::POST, "/v1/responses/input_tokens");
        let reply = server.send(request.header("content-type", "application/json").body(body)).json();
        assert_eq!(reply["object"], "response.input_tokens");
        reply["input_tokens"].as_u64().unwrap()
    };
    assert!(count(&"word ".repeat(1000)) > count("word") + 500);
}

#[test]
fn conversation_collects_the_items_of_its_responses() {
    let server = answering("You are Ann.");
    let seen = python(&server, "conversations", "openai/m");
    let items = json!([
        ["message", "user", "I am Ann."],
        ["message", "user", "Who am I?"],
        ["message", "assistant", "You are Ann."],
    ]);
    assert_eq!(seen["items"], items);
    assert_eq!((&seen["text"], &seen["conversation"]), (&json!("You are Ann."), &json!(true)));
    assert_eq!((&seen["one"], &seen["left"]), (&json!("I am Ann."), &json!(3)));
    let (demo, other) = (json!({"topic": "demo"}), json!({"topic": "other"}));
    assert_eq!(seen["metadata"], json!([demo, other, other]));
    assert_eq!((&seen["deleted"], &seen["gone"]), (&json!(true), &json!(404)));
    assert!(server.model.requests()[0].raw.contains("I am Ann."));
}

#[test]
fn conversation_with_warning_items_gets_further_responses() {
    let server = answering("Hello there.");
    let created = send(&server, "/v1/conversations", &server.key, &json!({})).json();
    let body = |input: &str| {
        json!({
            "model": "openai/m", "input": input, "conversation": created["id"],
            "include": ["haft.warnings"], "service_tier": "flex",
        })
    };
    let first = ask(&server, &body("One."));
    assert_eq!(types(&first), ["haft:warning", "message"]);
    assert_eq!(types(&ask(&server, &body("Two."))), ["haft:warning", "message"]);
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("One.") && sent.contains("Two.") && !sent.contains("flex"), "{sent}");
    let output = first["output"].as_array().unwrap().clone();
    let input = [output, vec![json!({"role": "user", "content": "Three."})]].concat();
    ask(&server, &json!({"model": "openai/m", "input": input}));
}

#[test]
fn conversations_of_another_subject_are_not_found_on_any_route() {
    let server = answering("x");
    let send = |method: &Method, path: &str, key: &str, body: &Value| {
        let request = server.without_key(method.clone(), path).bearer_auth(key);
        match *method {
            Method::POST => {
                server.send(request.header("content-type", "application/json").body(body.to_string()))
            }
            _ => server.send(request),
        }
    };
    let message = json!({"role": "user", "content": "secret"});
    let created = send(&Method::POST, "/v1/conversations", &server.key, &json!({"items": [message]})).json();
    let path = format!("/v1/conversations/{}", created["id"].as_str().unwrap());
    let items = format!("{path}/items");
    let item = server.get(&items).json()["data"][0]["id"].as_str().unwrap().to_owned();
    let routes = [
        (Method::GET, path.clone(), Value::Null),
        (Method::POST, path.clone(), json!({"metadata": {"a": "b"}})),
        (Method::GET, items.clone(), Value::Null),
        (Method::POST, items.clone(), json!({"items": [message]})),
        (Method::GET, format!("{items}/{item}"), Value::Null),
        (Method::DELETE, format!("{items}/{item}"), Value::Null),
        (Method::DELETE, path.clone(), Value::Null),
    ];
    for (tenant, subject) in [("default", "eve"), ("other", "local")] {
        let eve = key(&server.store, tenant, subject, None);
        for (method, path, body) in &routes {
            let reply = send(method, path, &eve, body);
            assert_eq!(reply.status, 404, "{tenant}/{subject} {method} {path}: {}", reply.text);
            assert!(!reply.text.contains("secret"), "{}", reply.text);
        }
        let response = json!({"model": "openai/m", "input": "x", "conversation": created["id"]});
        assert_eq!(send(&Method::POST, "/v1/responses", &eve, &response).status, 404);
    }
    // The requests have changed nothing, and the owner may send each of them.
    let left = server.get(&items).json();
    assert_eq!(left["data"].as_array().unwrap().len(), 1, "{left}");
    for (method, path, body) in &routes {
        let reply = send(method, path, &server.key, body);
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text);
    }
}

#[test]
fn conversation_gets_at_most_20_items_in_one_request() {
    let server = answering("x");
    let created = send(&server, "/v1/conversations", &server.key, &json!({})).json();
    let path = format!("/v1/conversations/{}/items", created["id"].as_str().unwrap());
    let many: Vec<Value> = (0..21).map(|_| json!({"role": "user", "content": "x"})).collect();
    assert_eq!(send(&server, &path, &server.key, &json!({"items": many[1..]})).status, 200);
    let refused = send(&server, &path, &server.key, &json!({"items": many}));
    assert_eq!(refused.json()["error"]["param"], "items");
}

#[test]
fn full_conversation_gets_no_items_and_its_responses_report_this() {
    let server = answering("x");
    let created = send(&server, "/v1/conversations", &server.key, &json!({})).json();
    let id = created["id"].as_str().unwrap();
    let file = server.data().join("conversations/default").join(format!("{id}.json"));
    let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let warning = |n: u32| json!({"type": "haft:warning", "id": format!("hw_{n}"), "message": "x"});
    record["items"] = (1..10_000).map(warning).collect();
    std::fs::write(&file, record.to_string()).unwrap();
    let response = post(&server, &json!({"model": "openai/m", "input": "x", "conversation": id}));
    assert_eq!((response.status, &response.json()["conversation"]), (200, &json!(null)), "{response:?}");
    assert!(response.headers["haft-warnings"].to_str().unwrap().contains("conversation"), "{response:?}");
    let items = format!("/v1/conversations/{id}/items");
    let add = |items_of: &[Value]| send(&server, &items, &server.key, &json!({"items": items_of}));
    let message = json!({"role": "user", "content": "x"});
    let refused = add(&[message.clone(), message.clone()]);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("items")), "{refused:?}");
    assert_eq!(add(std::slice::from_ref(&message)).status, 200, "the last item");
    assert_eq!(add(&[message]).status, 400);
}

#[test]
fn conversation_gets_no_items_beyond_its_byte_limit() {
    let server = answering("x");
    let large = json!({"items": [{"role": "user", "content": "x".repeat(17 << 20)}]});
    let created = send(&server, "/v1/conversations", &server.key, &large);
    assert_eq!(created.status, 200, "{}", created.text);
    let items = format!("/v1/conversations/{}/items", created.json()["id"].as_str().unwrap());
    let refused = send(&server, &items, &server.key, &large);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("items")));
    assert!(refused.text.contains("33554432 bytes"), "{}", refused.text);
    let larger = json!({"items": [{"role": "user", "content": "x".repeat(33 << 20)}]});
    assert_eq!(send(&server, "/v1/conversations", &server.key, &larger).status, 400);
}

#[test]
fn conversations_need_free_disk_and_a_tenant_below_its_quota() {
    let server = |serve: &Value| {
        let config = json!({"models": {"default": "openai/m"}, "serve": serve});
        TestServer::configured(Script::of([ScriptStep::text("x")]), &config, &[])
    };
    let refusals = |server: &TestServer, id: &str, status: u16, code: &str| {
        let item = json!({"role": "user", "content": "x"});
        for (path, body) in [
            ("/v1/conversations".to_owned(), json!({})),
            (format!("/v1/conversations/{id}"), json!({"metadata": {}})),
            (format!("/v1/conversations/{id}/items"), json!({"items": [item]})),
        ] {
            let refused = send(server, &path, &server.key, &body);
            assert_eq!(
                (refused.status, &refused.json()["error"]["code"]),
                (status, &json!(code)),
                "{path}: {}",
                refused.text
            );
        }
    };
    refusals(&server(&json!({"minFreeDiskPercent": 100})), "conv_1", 503, "disk_full");
    let mut small = server(&json!({"tenantMaxBytes": 1}));
    let created = send(&small, "/v1/conversations", &small.key, &json!({})).json();
    // The server measures the tenants when it starts.
    small.restart();
    let create = || send(&small, "/v1/conversations", &small.key, &json!({})).status;
    eventually("the tenant is over its quota", || create() == 429);
    let id = created["id"].as_str().unwrap();
    refusals(&small, id, 429, "tenant_quota_exceeded");
    let path = format!("/v1/conversations/{id}");
    assert_eq!(small.send(small.request(Method::DELETE, &path)).status, 200, "a deletion is always possible");
}

#[test]
fn request_with_too_many_items_or_tools_is_refused() {
    let server = answering("x");
    let items = |count: usize| vec![json!({"role": "user", "content": "x"}); count];
    let tools = |count: usize| {
        let tool = |n| json!({"type": "function", "name": format!("f{n}")});
        (0..count).map(tool).collect::<Vec<_>>()
    };
    let check = |body: Value, param: &str| {
        let refused = post(&server, &body);
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (400, &json!(param)),
            "{}",
            refused.text
        );
    };
    check(json!({"model": "openai/m", "input": items(1_001)}), "input");
    check(json!({"model": "openai/m", "input": "x", "tools": tools(129)}), "tools");
    ask(&server, &json!({"model": "openai/m", "input": items(1_000), "tools": tools(128)}));
}

/// Runs a part of the JavaScript program against the server.
fn javascript(server: &TestServer, part: &str) -> Value {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/openai_responses.mjs");
    let path = std::env::var("PATH").unwrap_or_default();
    let packages = tools("clients").to_string_lossy().into_owned();
    let variables =
        [("SERVER", &*server.url), ("KEY", &*server.key), ("PACKAGES", &*packages), ("PATH", &*path)];
    let ran = Command::new("node").args([program, part]).env_clear().envs(variables).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

#[test]
fn official_javascript_client_creates_streams_and_deletes() {
    let calls = [ScriptStep::call("weather", json!({}))];
    let script = Script::of([ScriptStep::text("Hello.")]).about("Use a function", calls);
    let seen = javascript(&TestServer::start(script), "create");
    let expected = json!({
        "text": "Hello.", "streamed": "Hello.", "last": "response.completed", "same": true, "gone": 404,
        "called": "function_call",
    });
    assert_eq!(seen, expected);
}

/// Starts a server whose model answers `Parse this.` with an object, and never answers `Block`.
fn parsing() -> TestServer {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let oslo = ScriptStep::say([ScriptPart::Json(json!({"town": "Oslo", "degrees": 31.5}))]);
    let script = Script::of([ScriptStep::text("Hello.")]).about("Parse this.", [oslo]);
    TestServer::start(script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]))
}

#[test]
fn official_clients_parse_structured_output_into_typed_objects() {
    let server = parsing();
    let place = json!({"town": "Oslo", "degrees": 31.5});
    let seen = python(&server, "parse", "openai/m");
    assert_eq!(seen, json!({"parsed": [place, place], "types": ["Place", "Place"]}));
    assert_eq!(javascript(&server, "parse"), json!({"parsed": place, "streamed": place}));
    let sent = server.model.requests().last().unwrap().body.to_string();
    assert!(sent.contains("degrees") && sent.contains("json_schema"), "the model gets the schema: {sent}");
}

#[test]
fn official_clients_cancel_a_background_response() {
    let server = parsing();
    let seen = python(&server, "cancel", "openai/m");
    let statuses = json!(["in_progress", "cancelled", "cancelled", "cancelled"]);
    assert_eq!((&seen["statuses"], &seen["refused"]), (&statuses, &json!(400)), "{seen}");
    assert_eq!(seen["missing"], 404, "{seen}");
    check_extras(&seen);
    let expected =
        json!({"started": "in_progress", "cancelled": "cancelled", "again": "cancelled", "same": true});
    assert_eq!(javascript(&server, "cancel"), expected);
}

#[test]
fn official_javascript_client_uses_every_route_of_conversations() {
    let server = answering("You are Ann.");
    let seen = javascript(&server, "conversations");
    let expected = json!({
        "text": "You are Ann.", "added": 1, "one": "I am Ann.", "left": 3, "deleted": true, "gone": 404,
        "items": [["user", "I am Ann."], ["user", "Who am I?"], ["assistant", "You are Ann."]],
        "metadata": [{"topic": "demo"}, {"topic": "other"}],
    });
    assert_eq!(seen, expected);
}

#[test]
fn official_javascript_client_chains_responses_on_a_websocket() {
    let server = answering("Answer.");
    let seen = javascript(&server, "websocket");
    assert_eq!(seen, json!({"texts": ["Answer.", "Answer."], "linked": true, "errors": []}));
    let second = &server.model.requests()[1].raw;
    assert!(second.contains("One.") && second.contains("Two."), "{second}");
}

#[test]
fn websocket_chains_unstored_responses_and_forgets_them_after_an_error() {
    let server = answering("Answer.");
    let seen = python(&server, "websocket", "openai/m");
    assert_eq!(seen["texts"], json!(["Answer.", "Answer.", "Answer.", "Answer."]));
    let missing = "previous_response_not_found";
    assert_eq!(seen["errors"], json!(["invalid_request_error", missing, missing]));
    let second = &server.model.requests()[1].raw;
    assert!(second.contains("One.") && second.contains("Two."), "{second}");
    assert_eq!(server.get("/v1/responses").json()["data"], json!([]), "the server stores no response");
}

/// Returns a conversation of many turns, as input items.
pub(crate) fn long_history(turns: usize) -> Vec<Value> {
    let turn = |at: usize| {
        let words = "The quick brown fox jumps over the lazy dog. ".repeat(20);
        [
            json!({"role": "user", "content": format!("Question {at}. {words}")}),
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": format!("Answer {at}. {words}"), "annotations": []}]}),
        ]
    };
    (0..turns).flat_map(turn).chain([json!({"role": "user", "content": "What next?"})]).collect()
}

/// Returns the script of a model that gives these replies one after the other.
fn in_order(steps: &[ScriptStep]) -> Script {
    Script { order: StepOrder::Strict, steps: steps.to_vec(), ..Script::default() }
}

fn send(server: &TestServer, path: &str, key: &str, body: &Value) -> Reply {
    let request = server.without_key(Method::POST, path).bearer_auth(key);
    server.send(request.header("content-type", "application/json").body(body.to_string()))
}

#[test]
fn compacted_conversation_is_encrypted_for_its_owner_and_can_be_continued() {
    let steps = [ScriptStep::text("Summary: the fox asked 12 questions."), ScriptStep::text("Onward.")];
    let mut server = TestServer::start(in_order(&steps));
    let body = json!({"model": "openai/m", "input": long_history(12)});
    let compacted = send(&server, "/v1/responses/compact", &server.key, &body);
    assert_eq!(compacted.status, 200, "{}", compacted.text);
    let unnamed = send(&server, "/v1/responses/compact", &server.key, &json!({"input": "x"}));
    assert_eq!((unnamed.status, &unnamed.json()["error"]["param"]), (400, &json!("model")));
    let compacted = compacted.json();
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["usage"]["total_tokens"].is_u64(), "{compacted}");
    let item = compacted["output"][0].clone();
    assert_eq!((types(&compacted), item["type"].as_str()), (vec!["compaction"], Some("compaction")));
    // Search for a text with a space, because the encoded bytes can contain any three letters.
    assert!(!compacted.to_string().contains("the fox"), "sealed: {compacted}");
    server.restart();
    let next = json!({"model": "openai/m", "store": false, "input": [item, {"role": "user", "content": "And then?"}]});
    assert_eq!(text(&ask(&server, &next)), "Onward.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("the fox asked 12 questions") && sent.contains("And then?"), "{sent}");
    assert!(!sent.contains("Answer 3."), "the request contains no old turns: {sent}");
    let eve = key(&server.store, "default", "eve", None);
    let foreign = send(&server, "/v1/responses", &eve, &next);
    assert_eq!(foreign.json()["error"]["param"], "input[0].encrypted_content", "{}", foreign.text);
    for wrong in [json!(""), json!("haft1.00000000.AAAA"), json!("gAAAAAB")] {
        let item = json!({"type": "compaction", "encrypted_content": wrong});
        let reply = post(&server, &json!({"model": "openai/m", "input": [item]}));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!("input[0].encrypted_content"))
        );
    }
}

#[test]
fn short_conversation_is_encrypted_without_a_summary() {
    let server = answering("Blue.");
    let body = json!({"model": "openai/m", "input": "My favourite colour is blue."});
    let compacted = send(&server, "/v1/responses/compact", &server.key, &body).json();
    let mut input = compacted["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "Which one?"}));
    ask(&server, &json!({"model": "openai/m", "input": input}));
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("My favourite colour is blue."), "{sent}");
}

#[test]
fn context_management_compacts_a_conversation_above_its_threshold() {
    let steps = ["Summary: foxes.", "Onward.", "Still here.", "Short.", "Shorter."].map(ScriptStep::text);
    let server = TestServer::start(in_order(&steps));
    let with = |threshold: u64, input: Value| {
        let compaction = json!([{"type": "compaction", "compact_threshold": threshold}]);
        json!({"model": "openai/m", "input": input, "context_management": compaction})
    };
    let first = ask(&server, &with(1_000, long_history(12).into()));
    assert_eq!((types(&first), text(&first)), (vec!["compaction", "message"], "Onward."), "{first}");
    assert_eq!(first["usage"]["total_tokens"], 30, "the tokens of the summary count too: {first}");
    let next = json!({"model": "openai/m", "input": "More.", "previous_response_id": first["id"]});
    assert_eq!(text(&ask(&server, &next)), "Still here.");
    let sent = server.model.requests().last().unwrap().raw.clone();
    assert!(sent.contains("Summary: foxes.") && !sent.contains("Answer 3."), "{sent}");
    let asked = server.model.requests().len();
    ask(&server, &with(1_000_000, long_history(2).into()));
    assert_eq!(server.model.requests().len(), asked + 1, "below the threshold there is no summary");
    let short = ask(&server, &with(1, json!("Too short for a summary.")));
    assert_eq!(types(&short), ["message"], "nothing was compacted: {short}");
    for wrong in
        [json!({}), json!([{"type": "other"}]), json!([{"type": "compaction", "compact_threshold": 0}])]
    {
        let reply = post(&server, &json!({"model": "openai/m", "input": "x", "context_management": wrong}));
        assert_eq!(reply.status, 400, "{}", reply.text);
    }
}
