//! Servers at their worst: a clear error, in bounded time and memory.

use std::io::Write;
use std::net::TcpStream;

use haft_testkit::{Place, Ran, User, eventually};
use serde_json::{Value, json};

use super::canned::{Canned, answer};

/// A place with one tool, `rest__it`.
fn place(url: &str, more: &Value) -> Place {
    let place = Place::new(User::Ourselves);
    let mut tool = json!({ "description": "It", "method": "GET", "url": url });
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    place.file("home/haft.json", &json!({ "restTools": { "it": tool } }).to_string());
    place
}

fn call(place: &Place) -> Ran {
    place.haft(&["call", "rest__it", "{}"]).output()
}

#[track_caller]
fn check(server: &Canned, method: &str, code: i32, fragment: &str) -> Ran {
    let ran = call(&place(&server.url(), &json!({ "method": method }))).expect_code(code);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains(fragment), "no `{fragment}` in: {said}");
    assert!(said.len() < 10_000, "{}", said.len());
    ran
}

#[test]
fn an_error_has_its_status_and_a_capped_body() {
    let server = Canned::new(answer("404 Not Found", "", &"no such thing ".repeat(10_000)));
    check(&server, "GET", 3, "HTTP 404: no such thing");
}

#[test]
fn an_endless_answer_is_cut_off() {
    let server = Canned::with(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    check(&server, "GET", 3, "larger than 16777216 bytes");
}

#[test]
fn what_grows_when_it_is_unpacked_is_cut_off() {
    // Fifty megabytes of zeros, packed by a real gzip.
    let packed = std::process::Command::new("bash")
        .args(["-c", "head -c 52428800 /dev/zero | gzip -9"])
        .output()
        .unwrap()
        .stdout;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        packed.len()
    );
    let server = Canned::new([head.into_bytes(), packed].concat());
    check(&server, "GET", 3, "larger than 16777216 bytes");
}

#[test]
fn redirects_end_and_stay_with_their_host() {
    let around = Canned::new(answer("302 Found", "Location: /again\r\n", ""));
    check(&around, "GET", 3, "redirects more than 5 times");
    let canary = Canned::new(answer("200 OK", "", "stolen"));
    let away = Canned::new(answer("302 Found", &format!("Location: {}\r\n", canary.url()), ""));
    check(&away, "GET", 4, "not followed");
    let inside = Canned::new(answer("307 Temporary", "Location: http://169.254.169.254/latest\r\n", ""));
    check(&inside, "GET", 4, "169.254.169.254");
    assert!(canary.heads().is_empty());
}

#[test]
fn a_server_that_breaks_off_is_told_and_only_reads_are_repeated() {
    let silent = || Canned::with(|_, _: &mut TcpStream| {});
    let server = silent();
    check(&server, "GET", 5, "broke off");
    assert_eq!(server.heads().len(), 3);
    let server = silent();
    check(&server, "POST", 3, "it is not known whether the request took effect");
    assert_eq!(server.heads().len(), 1);
    let early = Canned::new("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    check(&early, "GET", 3, "broke off before its end");
    let nonsense = Canned::new("this is no HTTP\r\n\r\n");
    check(&nonsense, "GET", 5, "broke off");
}

#[test]
fn a_busy_server_is_asked_again() {
    let server = Canned::with(|before, stream| {
        let busy = answer("503 Busy", "Retry-After: 0\r\n", "");
        let text = if before < 2 { busy } else { answer("200 OK", "", "at last") };
        let _ = stream.write_all(text.as_bytes());
    });
    let ran = check(&server, "GET", 0, "at last");
    assert_eq!(ran.stderr, "");
    assert_eq!(server.heads().len(), 3);
    let busy = Canned::new(answer("503 Busy", "Retry-After: 0\r\n", ""));
    check(&busy, "POST", 3, "HTTP 503");
    assert_eq!(busy.heads().len(), 1);
}

#[test]
fn a_server_that_hangs_is_left_in_time() {
    let server = Canned::with(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        std::thread::park();
    });
    let place = place(&server.url(), &json!({}));
    place.haft(&["call", "--timeout", "300ms", "rest__it", "{}"]).output().expect_code(124);
    eventually("the request arrived", || server.heads().len() == 1);
}

#[test]
fn nobody_is_there() {
    let ran = call(&place("http://127.0.0.1:1/", &json!({}))).expect_code(5);
    assert!(ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
}

#[test]
fn streams_give_their_answer() {
    let events = "data: {\"type\":\"token\",\"content\":\"Hel\"}\n\ndata: {\"type\":\"token\",\"content\":\"lo\"}\n\ndata: [DONE]\n\n";
    let server = Canned::new(answer("200 OK", "Content-Type: text/event-stream\r\n", events));
    let ran = call(&place(&server.url(), &json!({ "streaming": { "mode": "sse" } }))).expect_code(0);
    assert_eq!(ran.stdout, "Hello\n");
    let lines = "> {\"type\":\"token\",\"content\":\"a\"}\n> {\"type\":\"done\",\"answer\":\"all\"}\n";
    let server = Canned::new(answer("200 OK", "", lines));
    let streaming = json!({ "streaming": { "linePrefix": "> " } });
    assert_eq!(call(&place(&server.url(), &streaming)).expect_code(0).stdout, "all\n");
    let streaming = json!({ "streaming": { "linePrefix": "> ", "maxBytes": 10 } });
    let ran = call(&place(&server.url(), &streaming)).expect_code(3);
    assert!(ran.stdout.contains("longer than 10 bytes"), "{}", ran.stdout);
}

#[test]
fn a_secret_is_sent_and_never_shown() {
    let server = Canned::new(answer("500 Oops", "", "no"));
    let place = place(&server.url(), &json!({ "headers": { "Authorization": "Bearer ${TOKEN_OF_IT}" } }));
    let run = |words: &[&str]| {
        let ran = place.haft(words).env("TOKEN_OF_IT", "s3cret-t0ken").output();
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("s3cret-t0ken"), "{words:?}");
        ran
    };
    run(&["call", "rest__it", "{}", "-v"]).expect_code(3);
    assert!(server.heads()[0].contains("authorization: Bearer s3cret-t0ken"), "{:?}", server.heads());
    run(&["call", "--json", "rest__it", "{}"]).expect_code(3);
    run(&["tools", "--json"]).expect_code(0);
    run(&["rest", "list"]).expect_code(0);
    run(&["config", "show"]).expect_code(0);
    // Without the variable only this tool is missing.
    let ran = place.haft(&["tools"]).output().expect_code(0);
    assert!(
        ran.stderr.contains("restTools.it is left out: `headers.Authorization`: variable `TOKEN_OF_IT`"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("bash") && !ran.stdout.contains("rest__it"), "{}", ran.stdout);
}

#[test]
fn an_argument_that_is_missing_is_told_before_anything_is_sent() {
    let server = Canned::new(answer("200 OK", "", "x"));
    let place = place(&format!("{}/${{parameters.id}}?q=${{parameters.q}}", server.url()), &json!({}));
    let ran = call(&place).expect_code(42);
    assert!(ran.stderr.contains("id"), "{}", ran.stderr);
    assert!(server.heads().is_empty());
    place.haft(&["call", "rest__it", r#"{"id": "a/b", "q": "x&y"}"#]).output().expect_code(0);
    assert!(server.heads()[0].starts_with("GET /a%2Fb?q=x%26y HTTP/1.1"), "{:?}", server.heads());
}
