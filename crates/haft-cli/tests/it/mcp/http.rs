//! Tests of remote servers: streamable HTTP for protocol revisions with and without a handshake, and every kind of
//! failure.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use super::tree;
use haft_testkit::{HaftOutput, TestTree};

/// A received HTTP request.
#[derive(Debug, Clone)]
pub(crate) struct McpHttpRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl McpHttpRequest {
    pub(crate) fn calls(&self, method: &str) -> bool {
        self.body.contains(&format!("\"method\":\"{method}\""))
    }

    pub(crate) fn id(&self) -> String {
        let after = self.body.split("\"id\":").nth(1).unwrap_or("0");
        after.chars().take_while(char::is_ascii_digit).collect()
    }
}

/// Starts a server whose responses the test determines. Returns its address and a channel with the received requests.
pub(crate) fn serve(
    answer: impl Fn(&McpHttpRequest) -> Vec<u8> + Send + Sync + 'static,
) -> (String, mpsc::Receiver<McpHttpRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    let answer = std::sync::Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (tell, answer) = (tell.clone(), std::sync::Arc::clone(&answer));
            std::thread::spawn(move || {
                let Some(request) = read(&stream) else { return };
                let _ = tell.send(request.clone());
                let _ = (&stream).write_all(&answer(&request));
            });
        }
    });
    (address, told)
}

pub(crate) fn read(stream: &TcpStream) -> Option<McpHttpRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(McpHttpRequest { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

pub(crate) fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn json(request: &McpHttpRequest, result: &str) -> Vec<u8> {
    let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", request.id());
    response("200 OK", "content-type: application/json\r\n", body.as_bytes())
}

const TOOLS: &str = r#"{"tools":[{"name":"echo","annotations":{"readOnlyHint":true}},{"name":"change"}]}"#;
const TEXT: &str = r#"{"content":[{"type":"text","text":"from afar"}]}"#;

const GREETING: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}"#;

/// Starts a server with a handshake. It is well-behaved, except for its response to calls.
fn legacy(
    call: impl Fn(&McpHttpRequest) -> Vec<u8> + Send + Sync + 'static,
) -> (String, mpsc::Receiver<McpHttpRequest>) {
    serve(move |request| {
        if request.method == "GET" {
            response("405 Method Not Allowed", "", b"")
        } else if request.calls("server/discover") {
            response("400 Bad Request", "", b"Bad Request")
        } else if request.calls("initialize") {
            let answer = String::from_utf8(json(request, GREETING)).unwrap();
            answer.replacen("\r\n", "\r\nmcp-session-id: s1\r\n", 1).into_bytes()
        } else if request.calls("tools/list") {
            json(request, TOOLS)
        } else if request.calls("tools/call") {
            call(request)
        } else {
            response("202 Accepted", "", b"")
        }
    })
}

fn configure(tree: &TestTree, url: &str, more: &str) {
    let config = format!("{{\"mcpServers\": {{\"far\": {{\"url\": \"{url}\"{more}}}}}}}");
    tree.file("home/haft.json", &config);
}

fn call(tree: &TestTree, tool: &str) -> HaftOutput {
    tree.haft(&["call", "--json", tool, "{}"]).output()
}

#[test]
fn calls_after_initialize_send_the_session_id_and_the_protocol_version() {
    let tree = tree();
    let (url, asked) = legacy(|request| json(request, TEXT));
    configure(&tree, &url, r#", "headers": {"Authorization": "Bearer ${TOKEN}"}"#);
    let run = tree.haft(&["call", "far__echo", "{}"]).env("TOKEN", "t0k");
    assert_eq!(run.output().expect_code(0).stdout, "from afar\n");
    let asked: Vec<McpHttpRequest> = asked.try_iter().collect();
    let called = asked.iter().find(|request| request.calls("tools/call")).unwrap();
    assert_eq!(called.headers["mcp-session-id"], "s1");
    assert_eq!(called.headers["mcp-protocol-version"], "2025-06-18");
    assert_eq!(called.headers["authorization"], "Bearer t0k");
    let farewell = asked.iter().find(|request| request.method == "DELETE").unwrap();
    assert_eq!(farewell.headers["mcp-session-id"], "s1");
}

#[test]
fn credentials_are_not_sent_to_a_same_named_server() {
    let tree = tree();
    let (theirs, asked) = legacy(|request| json(request, TEXT));
    configure(&tree, "https://mine.example/mcp", r#", "headers": {"Authorization": "Bearer ${TOKEN}"}"#);
    tree.file("ws/.mcp.json", &format!("{{\"mcpServers\": {{\"far\": {{\"url\": \"{theirs}\"}}}}}}"));
    tree.haft(&["trust", "--yes"]).env("TOKEN", "t0k").output().expect_code(0);
    tree.haft(&["call", "far__echo", "{}"]).env("TOKEN", "t0k").output().expect_code(0);
    let asked: Vec<McpHttpRequest> = asked.try_iter().collect();
    assert!(!asked.is_empty() && asked.iter().all(|request| !request.headers.contains_key("authorization")));
}

/// haft sends credentials neither to a redirect target on another host, nor to an SSE `endpoint` on another host.
#[test]
fn credentials_do_not_follow_redirects_to_another_host() {
    let (thief, stolen) = serve(|request| json(request, TEXT));
    let redirect = format!("location: {thief}\r\n");
    let (redirects, _asked) = serve(move |_| response("307 Temporary Redirect", &redirect, b""));
    let (names, _asked) = {
        let event = format!("event: endpoint\ndata: {thief}\n\n");
        serve(move |_| response("200 OK", "content-type: text/event-stream\r\n", event.as_bytes()))
    };
    for (url, expected) in
        [(redirects, "does not follow redirects"), (names.replace("/mcp", "/sse"), "on another host")]
    {
        let tree = tree();
        configure(&tree, &url, r#", "headers": {"Authorization": "Bearer t0k"}"#);
        let ran = tree.haft(&["mcp", "test", "far"]).output().expect_code(5);
        assert!(ran.stdout.contains(expected), "{url}: {}", ran.stdout);
    }
    assert_eq!(stolen.try_iter().count(), 0);
}

#[test]
fn requests_without_handshake_contain_version_and_capabilities() {
    let tree = tree();
    let (url, asked) = serve(|request| {
        if request.calls("server/discover") {
            let found = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#;
            json(request, found)
        } else if request.calls("tools/list") {
            json(request, TOOLS)
        } else {
            let body = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{TEXT}}}\n\n", request.id());
            response("200 OK", "content-type: text/event-stream\r\n", body.as_bytes())
        }
    });
    configure(&tree, &url, "");
    let ran = call(&tree, "far__echo").expect_code(0);
    assert!(ran.stdout.contains("from afar") && ran.stdout.contains("2026-07-28"), "{}", ran.stdout);
    let asked: Vec<McpHttpRequest> = asked.try_iter().collect();
    assert!(asked.iter().all(|request| !request.calls("initialize") && request.method == "POST"));
    let called = asked.iter().find(|request| request.calls("tools/call")).unwrap();
    assert_eq!(called.headers["mcp-protocol-version"], "2026-07-28");
    assert_eq!(
        (called.headers["mcp-method"].as_str(), called.headers["mcp-name"].as_str()),
        ("tools/call", "echo")
    );
    assert!(called.body.contains("io.modelcontextprotocol/clientCapabilities"), "{}", called.body);
}

/// The server refuses the old handshake in one of two ways: with the error of its new revision, or with 404.
#[test]
fn stale_cached_protocol_revision_is_detected_again() {
    let unsupported = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}"#;
    for (status, body) in [("400 Bad Request", unsupported), ("404 Not Found", "nothing here")] {
        let tree = tree();
        let left = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let has_left = std::sync::Arc::clone(&left);
        let (url, _asked) = serve(move |request| {
            let modern = has_left.load(std::sync::atomic::Ordering::SeqCst);
            match () {
                () if request.method == "GET" => response("405 Method Not Allowed", "", b""),
                () if request.calls("server/discover") && modern => {
                    json(request, r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#)
                }
                () if request.calls("server/discover") => response("400 Bad Request", "", b"no"),
                () if request.calls("initialize") && modern => response(status, "", body.as_bytes()),
                () if request.calls("initialize") => json(request, GREETING),
                () if request.calls("tools/list") => json(request, TOOLS),
                () if request.calls("tools/call") => json(request, TEXT),
                () => response("202 Accepted", "", b""),
            }
        });
        configure(&tree, &url, "");
        assert!(call(&tree, "far__echo").expect_code(0).stdout.contains("2025-06-18"));
        left.store(true, std::sync::atomic::Ordering::SeqCst);
        let ran = call(&tree, "far__echo").expect_code(0);
        assert!(ran.stdout.contains("2026-07-28"), "{status}: {}", ran.stdout);
        assert!(tree.text("home/data/mcp/far.json").contains("2026-07-28"));
    }
}

#[test]
fn each_http_failure_has_a_specific_error() {
    let gzip_bomb = bomb();
    let cases: Vec<(&str, &str, Vec<u8>, &str)> = vec![
        ("401 Unauthorized", "", b"no".to_vec(), "set an `Authorization`"),
        ("429 Too Many Requests", "retry-after: 7\r\n", Vec::new(), "retry after 7"),
        ("500 Internal Server Error", "", b"oops".to_vec(), "500"),
        ("200 OK", "content-type: text/html\r\n", b"<html>".to_vec(), "text/html"),
        ("200 OK", "content-type: application/json\r\n", b"<html>".to_vec(), "not a JSON-RPC message"),
        ("200 OK", "content-type: application/json\r\ncontent-encoding: gzip\r\n", gzip_bomb, "larger than"),
        ("404 Not Found", "", b"gone".to_vec(), "ends every session"),
        ("302 Found", "location: http://elsewhere.invalid/mcp\r\n", Vec::new(), "elsewhere.invalid"),
        // If haft followed the redirect, the request would become a GET, whose response cannot answer a call.
        ("301 Moved Permanently", "location: /mcp/\r\n", Vec::new(), "/mcp/` (301 Moved Permanently)"),
        (
            "307 Temporary Redirect",
            "location: http://elsewhere.invalid/mcp\r\n",
            Vec::new(),
            "elsewhere.invalid",
        ),
        (
            "200 OK",
            "content-type: text/event-stream\r\n",
            b"data: {\"jsonrpc\"".to_vec(),
            "before it sent its reply",
        ),
    ];
    for (status, headers, body, expected) in cases {
        let tree = tree();
        let (url, _asked) = legacy(move |_| response(status, headers, &body));
        configure(&tree, &url, "");
        let ran = call(&tree, "far__change");
        assert_ne!(ran.code, Some(0), "{status}");
        assert!(ran.stdout.contains(expected), "{status} {headers}: {}{}", ran.stdout, ran.stderr);
    }
}

/// A server that received the request may have executed the call; a server that haft never reached has not executed it.
#[test]
fn lost_reply_of_mutating_call_is_unknown_outcome() {
    let check = |answer: &'static [u8], tool: &str, expected: &str, words: &str| {
        let tree = tree();
        let (url, _asked) = legacy(|_| answer.to_vec());
        configure(&tree, &url, "");
        let ran = call(&tree, tool);
        assert!(ran.stdout.contains(&format!("\"error_kind\": \"{expected}\"")), "{words}: {}", ran.stdout);
        assert!(ran.stdout.contains(words), "{}", ran.stdout);
    };
    check(b"", "far__change", "unknown_outcome", "closed the connection before its reply was complete");
    check(b"", "far__echo", "unavailable", "closed the connection before its reply was complete");
    let half = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    check(half, "far__change", "unknown_outcome", "closed the connection before its reply was complete");
    let stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nid: 1\nretry: 1\ndata:\n\n";
    let gateway = b"HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    check(gateway, "far__change", "unknown_outcome", "a gateway in front of the server answered 504");
    // haft cannot resume the stream to get the result, because the server refuses this request with 405.
    check(stream, "far__change", "unknown_outcome", "405 Method Not Allowed");
}

#[test]
fn interrupt_sends_cancelled_and_deletes_the_session() {
    let tree = tree();
    let (url, asked) = legacy(|_| {
        std::thread::sleep(std::time::Duration::from_secs(20));
        Vec::new()
    });
    configure(&tree, &url, "");
    let mut child = tree.haft(&["call", "far__change", "{}"]).start();
    let asked = || asked.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    while !asked().calls("tools/call") {}
    haft_testkit::send_signal(child.id(), haft_testkit::libc::SIGINT);
    // Earlier messages may arrive late, so skip them. If the expected message never arrives, the test fails by a
    // timeout.
    while !asked().calls("notifications/cancelled") {}
    while asked().method != "DELETE" {}
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn call_to_a_vanished_server_fails_with_unavailable() {
    let tree = tree();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(request) = read(&stream) else { continue };
            let answer = match () {
                () if request.calls("initialize") => json(&request, GREETING),
                () if request.calls("tools/list") => json(&request, TOOLS),
                () if request.calls("tools/call") => json(&request, TEXT),
                () => response("400 Bad Request", "", b""),
            };
            (&stream).write_all(&answer).unwrap();
            if request.calls("tools/call") {
                return;
            }
        }
    });
    configure(&tree, &url, "");
    let mut stream = super::McpCallStream::open(&tree, &[]);
    assert!(stream.ask("far__change", "{}").contains("from afar"));
    server.join().unwrap();
    let refused = stream.ask("far__change", "{}");
    assert!(refused.contains("\"unavailable\"") && refused.contains("cannot be reached"), "{refused}");
    stream.end();
}

/// Returns 64 MiB of zeros, compressed with gzip.
fn bomb() -> Vec<u8> {
    let script = "import gzip,sys; sys.stdout.buffer.write(gzip.compress(b'0'*(64<<20)))";
    std::process::Command::new("python3").args(["-c", script]).output().unwrap().stdout
}

#[test]
fn traceparent_is_in_the_header_and_the_message() {
    let tree = tree();
    let (url, asked) = legacy(|request| json(request, TEXT));
    configure(&tree, &url, "");
    call(&tree, "far__echo").expect_code(0);
    let asked: Vec<McpHttpRequest> =
        asked.try_iter().filter(|request| request.body.contains("\"id\"")).collect();
    for request in &asked {
        let parent = &request.headers["traceparent"];
        assert!(request.body.contains(&format!("\"traceparent\":\"{parent}\"")), "{request:?}");
        assert_eq!(parent.split('-').map(str::len).collect::<Vec<_>>(), [2, 32, 16, 2], "{parent}");
    }
    assert!(asked.len() >= 3, "{asked:?}");
}

#[test]
fn broken_reply_stream_resumes_with_last_event_id() {
    let tree = tree();
    let waiting = std::sync::Mutex::new(String::new());
    let (url, asked) = serve(move |request| {
        let stream =
            |body: String| response("200 OK", "content-type: text/event-stream\r\n", body.as_bytes());
        if request.headers.contains_key("last-event-id") {
            let id = waiting.lock().unwrap().clone();
            return stream(format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{TEXT}}}\n\n"));
        }
        if request.method == "GET" {
            return response("405 Method Not Allowed", "", b"");
        }
        match () {
            () if request.calls("server/discover") => response("400 Bad Request", "", b"no"),
            () if request.calls("initialize") => json(request, GREETING),
            () if request.calls("tools/list") => json(request, TOOLS),
            () if request.calls("tools/call") => {
                *waiting.lock().unwrap() = request.id();
                stream("id: e-7\nretry: 10\ndata:\n\n".into())
            }
            () => response("202 Accepted", "", b""),
        }
    });
    configure(&tree, &url, "");
    let ran = call(&tree, "far__change").expect_code(0);
    assert!(ran.stdout.contains("from afar"), "{ran:?}");
    let asked: Vec<McpHttpRequest> = asked.try_iter().collect();
    let resumed: Vec<&McpHttpRequest> =
        asked.iter().filter(|request| request.headers.contains_key("last-event-id")).collect();
    assert_eq!((resumed.len(), resumed[0].headers["last-event-id"].as_str()), (1, "e-7"));
    assert_eq!(
        asked.iter().filter(|request| request.calls("tools/call")).count(),
        1,
        "haft calls the tool once"
    );
}

#[test]
fn forgotten_session_is_reopened_and_the_call_retried() {
    for status in ["404 Not Found", "400 Bad Request"] {
        let tree = tree();
        let forgotten = std::sync::atomic::AtomicBool::new(false);
        let (url, asked) = legacy(move |request| {
            if forgotten.swap(true, std::sync::atomic::Ordering::SeqCst) {
                return json(request, TEXT);
            }
            response(status, "", b"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":\"No valid session ID\"},\"id\":null}")
        });
        configure(&tree, &url, "");
        let ran = call(&tree, "far__change").expect_code(0);
        assert!(ran.stdout.contains("from afar"), "{status}: {}", ran.stdout);
        assert_eq!(asked.try_iter().filter(|request| request.calls("initialize")).count(), 2);
    }
}

#[test]
fn mcp_login_fails_if_the_server_requires_no_login() {
    let tree = tree();
    let (url, _asked) = legacy(|request| json(request, TEXT));
    configure(&tree, &url, "");
    let ran = tree.haft(&["mcp", "login", "far"]).output().expect_code(5);
    let expected = "the MCP server does not require a login\nhint: `haft mcp test far`";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn unreachable_server_warns_and_other_tools_work() {
    let tree = tree();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    configure(&tree, &format!("http://{free}/mcp?key=s3cret"), "");
    let ran = tree.haft(&["tools"]).output().expect_code(0);
    assert!(ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("s3cret") && ran.stdout.contains("bash"), "{}", ran.stderr);
}
