//! Tests with hostile servers: they flood, send endless requests and huge replies, and lie. Each can harm only its own
//! call, within limits.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haft_testkit::{HaftOutput, TestTree};
use serde_json::{Value, json};

use super::server_requests::at_a_terminal;
use super::{McpCallStream, configure, echo, http, tree};

/// The memory limit of haft in these tests. haft normally needs less; ten million parsed zeros would exceed the
/// limit.
const MEMORY: &str = "--data=700000000";

fn called(mode: &str) -> HaftOutput {
    let tree = tree();
    configure(&tree, mode, &[], "");
    tree.haft(&["call", "bad__echo", r#"{"text": "hi"}"#]).through(&["prlimit", MEMORY]).output()
}

#[test]
fn results_and_lists_of_many_tiny_items_are_bounded() {
    let ran = called("pieces").expect_code(0);
    assert!(ran.stdout.contains("kept") && ran.stdout.len() < 2_000_000, "{}", ran.stdout.len());
    let ran = called("structured").expect_code(3);
    assert!(ran.stdout.contains("structured content is larger than 8388608 bytes"), "{ran:?}");
    assert_eq!(called("batch").expect_code(0).stdout, "echo: hi\n");
    let ran = called("list-of-nothing").expect_code(42);
    assert!(ran.stderr.contains("bad__echo"), "{ran:?}");
}

#[test]
fn duplicate_response_is_ignored() {
    let tree = tree();
    configure(&tree, "answers-twice", &[], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    for _ in 0..3 {
        let answer = stream.ask("bad__echo", "{}");
        assert!(answer.contains("the first") && !answer.contains("the second"), "{answer}");
    }
    stream.end();
}

#[test]
fn floods_of_stderr_and_notifications_do_not_break_a_call() {
    for mode in ["long-id", "stderr-flood", "progress-flood", "change-storm"] {
        assert_eq!(called(mode).expect_code(0).stdout, "echo: hi\n", "{mode}");
    }
    let tree = tree();
    configure(&tree, "stderr-flood", &[], "");
    echo(&tree).expect_code(0);
    let log = tree.path("home/data/mcp/bad.log").metadata().unwrap().len();
    assert!(log <= 70_000, "{log}");
}

#[test]
fn endless_tool_list_pagination_ends() {
    for mode in ["pages-for-ever", "same-page-for-ever", "same-names"] {
        assert_eq!(called(mode).expect_code(0).stdout, "echo: hi\n", "{mode}");
    }
}

#[test]
fn malformed_handshake_fails_with_a_specific_error() {
    for (mode, expected) in [
        ("huge-greeting", "the limit is 1048576"),
        ("strange-version", "which haft does not support"),
        ("strange-greeting", "haft cannot parse the MCP server's handshake response"),
        ("strange-list", "haft cannot parse the tool list"),
    ] {
        let ran = called(mode).expect_code(5);
        assert!(ran.stderr.contains(expected) && ran.stderr.len() < 4_000, "{mode}: {ran:?}");
    }
}

#[test]
fn long_server_text_is_truncated_and_has_no_escapes() {
    let tree = tree();
    configure(&tree, "long-words", &[], "");
    let ran = tree.haft(&["mcp", "test", "bad"]).output().expect_code(0);
    assert!(ran.stdout.len() < 4_000 && !ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    let tried = tree.haft(&["mcp", "test", "bad", "--json"]).output().expect_code(0).stdout;
    let tried: Value = serde_json::from_str(&tried).unwrap();
    assert_eq!(tried["instructions"].as_str().unwrap().chars().count(), 4_001);
    configure(&tree, "rude-error", &[], "");
    let ran = echo(&tree).expect_code(3);
    assert!(ran.stdout.len() + ran.stderr.len() < 20_000, "{}", ran.stdout.len());
}

/// Covers the results of a server, and the output that the server writes before it exits.
#[test]
fn server_text_reaches_the_terminal_without_escapes() {
    let tree = tree();
    configure(&tree, "echoes", &[], "");
    let steers = |shown: &str| shown.contains("\u{1b}]0;") || shown.contains('\u{7}');
    let text = r#"{"text": "\u001b]0;owned\u0007"}"#;
    let ran = tree.haft(&["call", "bad__echo", text]).output().expect_code(0);
    assert!(steers(&ran.stdout), "a pipe gets the text unchanged");
    let answered = at_a_terminal(&tree, &["call", "bad__echo", text]);
    let says = r#"["-c", "printf '\\033]0;owned\\007\\n' >&2; exit 3"]"#;
    let dies = format!(r#"{{"mcpServers": {{"dies": {{"command": "bash", "args": {says}}}}}}}"#);
    tree.file("home/haft.json", &dies);
    let commands: [&[&str]; 3] = [&["call", "dies__echo"], &["mcp", "test", "dies"], &["tools"]];
    let told = commands.map(|words| at_a_terminal(&tree, words));
    for shown in told.iter().chain([&answered]) {
        assert!(shown.contains("]0;owned") && !steers(shown), "{shown:?}");
    }
}

#[test]
fn number_of_server_requests_per_call_is_limited() {
    let tree = tree();
    configure(&tree, "pesters", &[], "");
    assert_eq!(echo(&tree).expect_code(0).stdout, "32\n");
    configure(&tree, "modern", &[], "");
    let ran = tree.haft(&["call", "bad__echo", r#"{"many": true}"#]).output().expect_code(3);
    assert!(ran.stdout.contains("more than 16 input requests at once"), "{ran:?}");
}

/// Calls a tool of a server at a URL.
fn call_far(tree: &TestTree, address: &str, keys: &str) -> HaftOutput {
    tree.file(
        "home/haft.json",
        &format!("{{\"mcpServers\": {{\"far\": {{\"url\": \"{address}\"{keys}}}}}}}"),
    );
    tree.haft(&["call", "far__t", "{}"]).through(&["prlimit", MEMORY]).output()
}

/// Returns the response of a well-behaved server; `None` for a call.
fn good(request: &http::McpHttpRequest) -> Option<Vec<u8>> {
    let tools = r#"{"tools":[{"name":"t"}]}"#;
    let greeting = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{}}"#;
    if request.calls("server/discover") {
        Some(http::response("400 Bad Request", "", b""))
    } else if request.calls("initialize") {
        Some(http::json(request, greeting))
    } else if request.calls("tools/list") {
        Some(http::json(request, tools))
    } else if request.calls("tools/call") {
        None
    } else {
        Some(http::response("202 Accepted", "", b""))
    }
}

#[test]
fn comment_only_sse_stream_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let Some(request) = http::read(&stream) else { return };
                let mut stream = &stream;
                if let Some(answer) = good(&request) {
                    return drop(stream.write_all(&answer));
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
                while stream.write_all(&b": nothing to say\n\n".repeat(1000)).is_ok() {}
            });
        }
    });
    let tree = tree();
    let ran = call_far(&tree, &address, r#", "requestTimeout": 500"#).expect_code(124);
    assert!(ran.stderr.contains("neither a result nor progress for 500 ms"), "{ran:?}");
}

#[test]
fn oversized_session_id_is_rejected() {
    let (address, _asked) = http::serve(|request| {
        if request.calls("initialize") {
            let headers =
                format!("content-type: application/json\r\nmcp-session-id: {}\r\n", "s".repeat(100_000));
            return http::response("200 OK", &headers, b"{}");
        }
        good(request).unwrap_or_default()
    });
    let ran = call_far(&tree(), &address, "").expect_code(5);
    assert!(ran.stderr.contains("session id has 100000 bytes"), "{ran:?}");
}

#[test]
fn sse_stream_that_always_closes_is_not_reopened_endlessly() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let (address, _asked) = http::serve(move |request| {
        if request.method == "GET" {
            count.fetch_add(1, Ordering::Relaxed);
            return http::response("200 OK", "content-type: text/event-stream\r\n", b"retry: 0\n\n");
        }
        good(request).unwrap_or_else(|| {
            // This would be enough time for a hundred streams without a limit.
            std::thread::sleep(Duration::from_secs(2));
            http::json(request, r#"{"content":[{"type":"text","text":"done"}]}"#)
        })
    });
    assert_eq!(call_far(&tree(), &address, "").expect_code(0).stdout, "done\n");
    let opened = opened.load(Ordering::Relaxed);
    assert!((1..=5).contains(&opened), "{opened}");
}

#[test]
fn unread_replies_to_server_pings_are_bounded() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&waiting);
    let (address, _asked) = http::serve(move |request| {
        if request.body.contains("\"result\":{}") || request.body.contains("\"error\":") {
            count.fetch_add(1, Ordering::Relaxed);
            // The server never responds to this request.
            std::thread::sleep(Duration::from_secs(20));
        }
        good(request).unwrap_or_else(|| {
            let ping = |number| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":\"p{number}\",\"method\":\"ping\"}}\n\n");
            let pings = (0..5000).map(ping).collect::<Vec<_>>().concat();
            let result = json!({ "jsonrpc": "2.0", "id": request.id().parse::<u64>().unwrap(), "result": { "content": [] } });
            let body = format!("{pings}data: {result}\n\n");
            http::response("200 OK", "content-type: text/event-stream\r\n", body.as_bytes())
        })
    });
    call_far(&tree(), &address, "").expect_code(0);
    let waiting = waiting.load(Ordering::Relaxed);
    assert!(waiting <= 64, "{waiting}");
}

#[test]
fn oauth_metadata_url_without_tls_is_rejected() {
    for place_named in ["file:///etc/passwd", "http://169.254.169.254/latest/meta-data", "gopher://h/x"] {
        let (address, _asked) = http::serve(move |_| {
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{place_named}\"\r\n");
            http::response("401 Unauthorized", &challenge, b"")
        });
        let ran = call_far(&tree(), &address, "").expect_code(5);
        assert!(ran.stderr.contains("does not use https, so haft refuses it"), "{place_named}: {ran:?}");
    }
}

#[test]
fn client_secret_is_sent_only_to_the_configured_issuer() {
    let (address, asked) = http::serve(|request| {
        if request.path.contains("oauth-protected-resource") {
            return http::response("404 Not Found", "", b"");
        }
        if request.path.contains("oauth-authorization-server") {
            let host = format!("http://{}", request.headers["host"]);
            let about = json!({ "issuer": host, "token_endpoint": format!("{host}/token") });
            return http::response(
                "200 OK",
                "content-type: application/json\r\n",
                about.to_string().as_bytes(),
            );
        }
        http::response("401 Unauthorized", "www-authenticate: Bearer\r\n", b"")
    });
    let keys = r#", "oauth": {"grant": "clientCredentials", "clientId": "id", "clientSecret": "s3cret", "issuer": "https://as.example"}"#;
    let ran = call_far(&tree(), &address, keys).expect_code(5);
    assert!(ran.stderr.contains("an authorization server other than `oauth.issuer`"), "{ran:?}");
    let sent: Vec<http::McpHttpRequest> = asked.try_iter().collect();
    assert!(!sent.is_empty() && sent.iter().all(|request| !request.path.contains("token")), "{sent:?}");
}
