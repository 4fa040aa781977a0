//! Tests of misbehaving servers: each causes a clear error, in bounded time and memory.

use std::io::Write;
use std::net::TcpStream;

use haft_model_server::ScriptStep;
use haft_testkit::{HaftOutput, TestTree, TestUser, eventually};
use serde_json::{Value, json};

use super::canned::{CannedServer, answer};
use crate::run::{haft, server};

/// Returns a tree with one tool, `rest__it`.
fn tree(url: &str, more: &Value) -> TestTree {
    let tree = TestTree::new(TestUser::Ourselves);
    let mut tool = json!({ "description": "It", "method": "GET", "url": url });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tree.file("home/haft.json", &json!({ "restTools": { "it": tool } }).to_string());
    tree
}

fn call(tree: &TestTree) -> HaftOutput {
    tree.haft(&["call", "rest__it", "{}"]).output()
}

#[track_caller]
fn check(server: &CannedServer, method: &str, code: i32, fragment: &str) -> HaftOutput {
    let ran = call(&tree(&server.url(), &json!({ "method": method }))).expect_code(code);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains(fragment), "no `{fragment}` in: {said}");
    assert!(said.len() < 10_000, "{}", said.len());
    ran
}

#[test]
fn http_error_reports_status_and_truncated_body() {
    let server = CannedServer::new(answer("404 Not Found", "", &"no such thing ".repeat(10_000)));
    check(&server, "GET", 3, "HTTP 404: no such thing");
}

/// The largest response that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Starts a server that announces a gigabyte and sends without end.
fn endless() -> CannedServer {
    CannedServer::with(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    })
}

#[test]
fn endless_response_is_rejected_at_size_limit() {
    check(&endless(), "GET", 3, "larger than 16777216 bytes");
}

#[test]
fn decompression_bomb_is_rejected_at_size_limit() {
    check(&bomb(), "GET", 3, "larger than 16777216 bytes");
}

fn bomb() -> CannedServer {
    packed("gzip -9", "Content-Encoding: gzip\r\n")
}

/// Starts a server that sends fifty megabytes of zeros, compressed by a real program.
fn packed(program: &str, headers: &str) -> CannedServer {
    let packed = std::process::Command::new("bash")
        .args(["-c", &format!("head -c 52428800 /dev/zero | {program}")])
        .output()
        .unwrap()
        .stdout;
    let head =
        format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", packed.len());
    CannedServer::new([head.into_bytes(), packed].concat())
}

/// haft decompresses a reply at most once, whatever its headers say.
#[test]
fn nested_compression_is_not_unpacked_twice() {
    for headers in [
        "Content-Encoding: gzip\r\n",
        "Content-Encoding: gzip, gzip\r\n",
        "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
    ] {
        let server = packed("gzip -9 | gzip -9", headers);
        let ran = call(&tree(&server.url(), &json!({}))).expect_code(0);
        assert!(ran.stdout.len() < 10_000, "{headers}: {} bytes", ran.stdout.len());
    }
}

#[test]
fn redirects_are_limited_and_stay_on_their_host() {
    let around = CannedServer::new(answer("302 Found", "Location: /again\r\n", ""));
    check(&around, "GET", 3, "redirects more than 5 times");
    let canary = CannedServer::new(answer("200 OK", "", "stolen"));
    let away = CannedServer::new(answer("302 Found", &format!("Location: {}\r\n", canary.url()), ""));
    check(&away, "GET", 4, "does not follow");
    let inside =
        CannedServer::new(answer("307 Temporary", "Location: http://169.254.169.254/latest\r\n", ""));
    check(&inside, "GET", 4, "169.254.169.254");
    assert!(canary.heads().is_empty());
}

#[test]
fn broken_connection_retries_only_get_requests() {
    let silent = || CannedServer::with(|_, _: &mut TcpStream| {});
    let server = silent();
    check(&server, "GET", 5, "the request to");
    assert_eq!(server.heads().len(), 3);
    let server = silent();
    check(&server, "POST", 3, "haft does not know whether the request took effect");
    assert_eq!(server.heads().len(), 1);
    let early = CannedServer::new("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    check(&early, "GET", 3, "broke before the end of the response");
    let nonsense = CannedServer::new("this is no HTTP\r\n\r\n");
    check(&nonsense, "GET", 5, "the request to");
}

#[test]
fn status_503_retries_only_get_requests() {
    let server = CannedServer::with(|before, stream| {
        let busy = answer("503 Busy", "Retry-After: 0\r\n", "");
        let text = if before < 2 { busy } else { answer("200 OK", "", "at last") };
        let _ = stream.write_all(text.as_bytes());
    });
    let ran = check(&server, "GET", 0, "at last");
    assert_eq!(ran.stderr, "");
    assert_eq!(server.heads().len(), 3);
    let busy = CannedServer::new(answer("503 Busy", "Retry-After: 0\r\n", ""));
    check(&busy, "POST", 3, "HTTP 503");
    assert_eq!(busy.heads().len(), 1);
}

#[test]
fn hanging_response_ends_at_the_call_timeout() {
    let server = CannedServer::with(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        std::thread::park();
    });
    let tree = tree(&server.url(), &json!({}));
    tree.haft(&["call", "--timeout", "300ms", "rest__it", "{}"]).output().expect_code(124);
    eventually("the request arrived", || server.heads().len() == 1);
}

/// Configures an OpenAPI document whose only operation declares a JSON response.
fn described(server: &CannedServer) -> TestTree {
    let tree = TestTree::new(TestUser::Ourselves);
    let answer = json!({ "description": "It", "content": { "application/json": { "schema": {} } } });
    let get = json!({ "operationId": "it", "responses": { "200": answer } });
    let api = json!({ "openapi": "3.1.0", "paths": { "/a": { "get": get } } });
    let path = tree.file("home/api.json", &api.to_string());
    let spec = json!({ "spec": path, "baseUrl": server.url() });
    tree.file("home/haft.json", &json!({ "openapiSpecs": { "api": spec } }).to_string());
    tree
}

#[test]
fn html_instead_of_json_is_an_error() {
    let page = answer("200 OK", "Content-Type: text/html; charset=utf-8\r\n", "<html><h1>Please log in</h1>");
    let tree = described(&CannedServer::new(page));
    let ran = tree.haft(&["call", "rest__api_it", "{}"]).output().expect_code(3);
    assert!(ran.stdout.contains("expected JSON; the server answered text/html: <html>"), "{ran:?}");
}

/// The maximum memory of haft for a call with any response, in megabytes: haft keeps a few copies of the bytes that it
/// has read, never the whole response.
const PEAK_MEGABYTES_MAX: u64 = 250;

#[test]
fn hostile_responses_use_bounded_memory() {
    let check = |server: &CannedServer, code: i32| {
        let tree = tree(&server.url(), &json!({}));
        let (ran, megabytes) = tree.haft(&["call", "rest__it", "{}"]).output_with_peak_memory();
        ran.expect_code(code);
        assert!(megabytes < PEAK_MEGABYTES_MAX, "{megabytes} MB");
    };
    check(&endless(), 3);
    check(&bomb(), 3);
    check(&packed("gzip -9 | gzip -9", "Content-Encoding: gzip, gzip\r\n"), 0);
    // Small JSON values take many times the memory of their text.
    let values = format!("[0{}]", ",0".repeat((ANSWER_BYTES_MAX - 100) / 2));
    check(&CannedServer::new(answer("200 OK", "Content-Type: application/json\r\n", &values)), 0);
    let deep = "[".repeat(ANSWER_BYTES_MAX - 100);
    check(&CannedServer::new(answer("200 OK", "Content-Type: application/json\r\n", &deep)), 0);
    let head = format!("X-Long: {}\r\n", "x".repeat(64 << 20));
    check(&CannedServer::new(answer("200 OK", &head, "")), 5);
}

#[test]
fn unreachable_server_is_an_error() {
    let ran = call(&tree("http://127.0.0.1:1/", &json!({}))).expect_code(5);
    assert!(ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
}

#[test]
fn streamed_response_is_assembled() {
    let events = "data: {\"type\":\"token\",\"content\":\"Hel\"}\n\ndata: {\"type\":\"token\",\"content\":\"lo\"}\n\ndata: [DONE]\n\n";
    let server = CannedServer::new(answer("200 OK", "Content-Type: text/event-stream\r\n", events));
    let ran = call(&tree(&server.url(), &json!({ "streaming": { "mode": "sse" } }))).expect_code(0);
    assert_eq!(ran.stdout, "Hello\n");
    let lines = "> {\"type\":\"token\",\"content\":\"a\"}\n> {\"type\":\"done\",\"answer\":\"all\"}\n";
    let server = CannedServer::new(answer("200 OK", "", lines));
    let streaming = json!({ "streaming": { "linePrefix": "> " } });
    assert_eq!(call(&tree(&server.url(), &streaming)).expect_code(0).stdout, "all\n");
    let streaming = json!({ "streaming": { "linePrefix": "> ", "maxBytes": 10 } });
    let ran = call(&tree(&server.url(), &streaming)).expect_code(3);
    assert!(ran.stdout.contains("longer than 10 bytes"), "{}", ran.stdout);
}

#[test]
fn streamed_events_are_reported_as_progress() {
    let events = "data: {\"type\":\"token\",\"content\":\"Hel\"}\n\ndata: {\"type\":\"token\",\"content\":\"lo\"}\n\ndata: [DONE]\n\n";
    let service = CannedServer::new(answer("200 OK", "Content-Type: text/event-stream\r\n", events));
    let tree = tree(&service.url(), &json!({ "streaming": { "mode": "sse" } }));
    let models = server([ScriptStep::call("rest__it", json!({})), ScriptStep::text("done")]);
    let words = ["run", "-m", "openai/m", "--output-format", "stream-json", "go"];
    let ran = haft(&tree, &models, &words).output().expect_code(0);
    let lines = ran.events().into_iter();
    let progress: String = lines
        .filter(|line| line["type"] == "tool_progress")
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(progress, "Hello", "{}", ran.stdout);
}

#[test]
fn secret_header_is_sent_and_never_printed() {
    let server = CannedServer::new(answer("500 Oops", "", "no"));
    let tree = tree(&server.url(), &json!({ "headers": { "Authorization": "Bearer ${TOKEN_OF_IT}" } }));
    let run = |words: &[&str]| {
        let ran = tree.haft(words).env("TOKEN_OF_IT", "s3cret-t0ken").output();
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("s3cret-t0ken"), "{words:?}");
        ran
    };
    run(&["call", "rest__it", "{}", "-v"]).expect_code(3);
    assert!(server.heads()[0].contains("authorization: Bearer s3cret-t0ken"), "{:?}", server.heads());
    run(&["call", "--json", "rest__it", "{}"]).expect_code(3);
    run(&["tools", "--json"]).expect_code(0);
    run(&["rest", "list"]).expect_code(0);
    run(&["config", "show"]).expect_code(0);
    // Without the variable, only this tool is missing.
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert!(
        ran.stderr.contains("haft ignores `restTools.it`: `headers.Authorization`: variable `TOKEN_OF_IT`"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("bash") && !ran.stdout.contains("rest__it"), "{}", ran.stdout);
}

#[test]
fn body_template_expands_variables_and_arguments() {
    let server = CannedServer::new(answer("200 OK", "", "x"));
    let body = json!({ "key": "${KEY_OF_IT}", "n": "${parameters.n}", "list": ["v${KEY_OF_IT:-0}"] });
    let tree = tree(&server.url(), &json!({ "method": "POST", "bodyTemplate": body }));
    let call = || tree.haft(&["call", "rest__it", r#"{"n": "1"}"#]);
    call().env("KEY_OF_IT", "s3cret").output().expect_code(0);
    let sent = server.heads()[0].split("\r\n\r\n").nth(1).map(serde_json::from_str::<Value>);
    assert_eq!(sent.unwrap().unwrap(), json!({ "key": "s3cret", "n": "1", "list": ["vs3cret"] }));
    let unset = call().output();
    assert!(unset.stderr.contains("`bodyTemplate`: variable `KEY_OF_IT` is not set"), "{unset:?}");
    let shown = tree.haft(&["config", "show"]).env("KEY_OF_IT", "s3cret").output().expect_code(0);
    assert!(!format!("{shown:?}").contains("s3cret"));
}

#[test]
fn missing_url_argument_sends_no_request() {
    let server = CannedServer::new(answer("200 OK", "", "x"));
    let tree = tree(&format!("{}/${{parameters.id}}?q=${{parameters.q}}", server.url()), &json!({}));
    let ran = call(&tree).expect_code(42);
    assert!(ran.stderr.contains("id"), "{}", ran.stderr);
    assert!(server.heads().is_empty());
    tree.haft(&["call", "rest__it", r#"{"id": "a/b", "q": "x&y"}"#]).output().expect_code(0);
    assert!(server.heads()[0].starts_with("GET /a%2Fb?q=x%26y HTTP/1.1"), "{:?}", server.heads());
}
