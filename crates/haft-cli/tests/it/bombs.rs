//! Tests of servers whose compressed replies are small on the wire and large in memory. Each causes a clear error, in
//! bounded memory.

use std::process::Command;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use haft_testkit::{HaftCommand, HaftOutput, TestTree, TestUser};
use serde_json::{Value, json};

use super::mcp::http::{McpHttpRequest, json as mcp_reply, response, serve as http_server};
use super::serve::{listening, send, stop};

/// The size of a decompressed reply, in bytes. It is more than any limit of haft.
const BOMB_BYTES: usize = 200 << 20;

/// The maximum memory of haft, in megabytes. haft needs less; the decompressed reply alone would occupy most of it, and
/// its copies more.
const PEAK_MEGABYTES_MAX: u64 = 250;

/// Returns a reply that begins with this text and continues with zeros, compressed by a real program.
fn packed(beginning: &str) -> Vec<u8> {
    let script = format!("{{ printf '%s' \"$1\"; head -c {BOMB_BYTES} /dev/zero | tr '\\0' 0; }} | gzip -9");
    Command::new("bash").args(["-c", &script, "bash", beginning]).output().unwrap().stdout
}

/// Returns a whole response with this type, whose body is a bomb.
fn bomb(status: &str, media_type: &str) -> Vec<u8> {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    let body = match media_type {
        "text/event-stream" => STREAM.get_or_init(|| packed("data: ")),
        _ => WHOLE.get_or_init(|| packed("{\"a\": 1")),
    };
    assert!(body.len() < BOMB_BYTES / 100, "{}", body.len());
    response(status, &format!("content-type: {media_type}\r\ncontent-encoding: gzip\r\n"), body)
}

fn tree(config: &Value) -> TestTree {
    let tree = TestTree::new(TestUser::Ourselves);
    tree.file("home/haft.json", &config.to_string());
    tree
}

#[track_caller]
fn bounded(command: HaftCommand) -> HaftOutput {
    let (ran, megabytes) = command.output_with_peak_memory();
    assert!(megabytes < PEAK_MEGABYTES_MAX, "{megabytes} MB");
    assert!(ran.stdout.len() + ran.stderr.len() < 10_000, "{}", ran.stdout.len() + ran.stderr.len());
    ran
}

/// Answers as an MCP server without a bomb; `None` for a call.
fn greeting(request: &McpHttpRequest) -> Option<Vec<u8>> {
    let greeting = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}"#;
    if request.method == "GET" {
        Some(response("405 Method Not Allowed", "", b""))
    } else if request.calls("server/discover") {
        Some(response("400 Bad Request", "", b""))
    } else if request.calls("initialize") {
        Some(mcp_reply(request, greeting))
    } else if request.calls("tools/list") {
        Some(mcp_reply(request, r#"{"tools":[{"name":"t"}]}"#))
    } else if request.calls("tools/call") {
        None
    } else {
        Some(response("202 Accepted", "", b""))
    }
}

#[test]
fn bomb_from_an_mcp_server_fails_only_its_call() {
    for media_type in ["application/json", "text/event-stream"] {
        let (url, _asked) =
            http_server(move |request| greeting(request).unwrap_or_else(|| bomb("200 OK", media_type)));
        let tree = tree(&json!({"mcpServers": {"far": {"url": url}}}));
        let ran = bounded(tree.haft(&["call", "--json", "far__t", "{}"])).expect_code(3);
        assert!(ran.stdout.contains("larger than"), "{media_type}: {ran:?}");
    }
}

#[test]
fn bomb_in_the_error_of_an_mcp_server_is_not_read() {
    let (url, _asked) =
        http_server(|request| greeting(request).unwrap_or_else(|| bomb("500 Oops", "application/json")));
    let tree = tree(&json!({"mcpServers": {"far": {"url": url}}}));
    let ran = bounded(tree.haft(&["call", "--json", "far__t", "{}"])).expect_code(3);
    assert!(ran.stdout.contains("500"), "{ran:?}");
}

/// Returns a tree whose model provider answers every request with this bomb.
fn tree_with_model(status: &'static str, media_type: &'static str, delivery: &str) -> TestTree {
    let (url, _asked) = http_server(move |_| bomb(status, media_type));
    let base = url.trim_end_matches("/mcp");
    tree(&json!({"providers": {"work": {
        "baseUrl": base, "apiKey": "k", "delivery": delivery, "maxAttempts": 1,
    }}}))
}

#[test]
fn bomb_from_a_model_is_an_error() {
    let check = |status, media_type, delivery: &str, expected: &str| {
        let tree = tree_with_model(status, media_type, delivery);
        let ran = bounded(tree.haft(&["ask", "-m", "work/m", "hello"]));
        assert!(ran.code != Some(0) && ran.stderr.contains(expected), "{status} {delivery}: {ran:?}");
    };
    check("200 OK", "application/json", "whole", "larger than");
    check("200 OK", "text/event-stream", "streamed", "larger than");
    check("500 Oops", "application/json", "streamed", "server_failed: ");
    check("400 Bad Request", "application/json", "whole", "error: ");
}

#[test]
fn bomb_as_oauth_metadata_is_an_error() {
    for bombed in ["oauth-protected-resource", "oauth-authorization-server"] {
        let (url, _asked) = http_server(move |request| {
            if request.path.contains(bombed) {
                bomb("200 OK", "application/json")
            } else if request.path.contains("well-known") {
                response("404 Not Found", "", b"")
            } else {
                response("401 Unauthorized", "www-authenticate: Bearer\r\n", b"")
            }
        });
        let tree = tree(&json!({"mcpServers": {"far": {"url": url}}}));
        let ran = bounded(tree.haft(&["mcp", "login", "far"])).expect_code(5);
        assert!(ran.stderr.contains("larger than 262144 bytes"), "{bombed}: {ran:?}");
    }
}

/// Returns an access token of this issuer with a signature that no key fits.
fn token_of(issuer: &str) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({"alg": "ES256", "typ": "JWT", "kid": "a"}));
    let claims = part(json!({"iss": issuer, "sub": "s", "aud": "haft", "exp": 4_000_000_000_u64}));
    format!("{head}.{claims}.{}", URL_SAFE_NO_PAD.encode([0; 64]))
}

#[test]
fn bomb_as_issuer_keys_or_discovery_document_is_an_error() {
    for bombed in ["/keys", "/.well-known/openid-configuration"] {
        let (url, asked) = http_server(move |request| {
            if request.path.ends_with(bombed) {
                bomb("200 OK", "application/json")
            } else {
                response("404 Not Found", "", b"")
            }
        });
        let issuer = url.trim_end_matches("/mcp");
        let mut settings = json!({"issuer": issuer, "audience": ["haft"], "scopes": {"haft": ["api"]}});
        if bombed == "/keys" {
            settings["jwksUrl"] = json!(format!("{issuer}/keys"));
        }
        let tree = tree(&json!({"serve": {"issuers": [settings]}}));
        let (child, address) = listening(tree.haft(&["serve", "--address", "127.0.0.1:0"]));
        let reply = send(&address, "GET /v1/models", &token_of(issuer));
        assert!(reply.starts_with("HTTP/1.1 503"), "{bombed}: {reply}");
        assert!(asked.try_iter().any(|request| request.path.ends_with(bombed)));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes / 1024 < PEAK_MEGABYTES_MAX, "{kilobytes} kB");
        stop(child);
    }
}
