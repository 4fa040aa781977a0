//! Plants secrets at every input of `haft serve`, triggers its error replies, and checks that no reply, file, metric and
//! message on standard error contains a secret.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_model_server::{ErrorResponse, ModelServer, ResponseFault, Script, ScriptStep};
use haft_testkit::{TestTree, TestUser, eventually, reveals};
use serde_json::{Value, json};

use super::mcp::http::{McpHttpRequest, json as mcp_reply, response, serve as http_server};
use super::serve::{listening, stop};

/// The API key of the model provider.
const PROVIDER_KEY: &str = "canary-of-the-provider+1f9a=";
/// The header that haft sends to the MCP server.
const MCP_KEY: &str = "canary-of-the-mcp-server+77c2=";
/// The header that haft sends to the HTTP API.
const REST_KEY: &str = "canary-of-the-http-api+90e4=";
/// The bytes of the secret of the webhook. Its receiver refuses every request.
const WEBHOOK_KEY: &str = "canary-of-the-webhook+b3d8=";
/// A key of a client that the server does not know.
const WRONG_KEY: &str = "canary-of-a-wrong-client+52cc=";

/// The longest wait for a reply.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// A server with secrets in its configuration, and everything that it has sent to clients.
struct PlantedServer {
    tree: TestTree,
    child: Child,
    address: String,
    /// The key of a client, which is a secret too.
    key: String,
    /// The key of an administrator.
    admin: String,
    sent: Vec<String>,
    /// The requests that the receiver of the webhook got.
    deliveries: Receiver<McpHttpRequest>,
    _model: ModelServer,
}

/// The model repeats its key in all its errors.
fn script() -> Script {
    let echoed = format!("the key {PROVIDER_KEY} ({}) is wrong", STANDARD.encode(PROVIDER_KEY));
    let failure = |status: u16| ScriptStep::fail(ErrorResponse::new(status, &echoed));
    let page = ErrorResponse { raw: Some(format!("<p>{echoed}</p>")), ..ErrorResponse::new(500, "") };
    let late = ResponseFault::ErrorEvent { after_frames: 2, error: ErrorResponse::new(500, &echoed) };
    let late = || ScriptStep::text("The beginning of an answer.").with_fault(late.clone());
    let repeated = |step: ScriptStep| vec![step; 6];
    Script::default()
        .about("unauthorized", repeated(failure(401)))
        .about("unavailable", repeated(failure(500)))
        .about("error page", repeated(ScriptStep::fail(page)))
        .about("late error", repeated(late()))
        .about(
            "failing tools",
            [
                ScriptStep::call("docs__refused", json!({})),
                ScriptStep::call("docs__broken", json!({})),
                ScriptStep::call("rest__it", json!({})),
                ScriptStep::text("All tools failed."),
            ],
        )
        .about("approval", [ScriptStep::call("docs__refused", json!({}))])
}

/// The MCP server repeats its headers in all its errors.
fn mcp_answer(request: &McpHttpRequest) -> Vec<u8> {
    let header = request.headers.get("authorization").cloned().unwrap_or_default();
    let greeting = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}"#;
    if request.method == "GET" {
        response("405 Method Not Allowed", "", header.as_bytes())
    } else if request.calls("server/discover") {
        response("400 Bad Request", "", header.as_bytes())
    } else if request.calls("initialize") {
        mcp_reply(request, greeting)
    } else if request.calls("tools/list") {
        mcp_reply(request, r#"{"tools":[{"name":"refused"},{"name":"broken"}]}"#)
    } else if request.calls("tools/call") && request.body.contains("refused") {
        let error = json!({"code": -32000, "message": format!("no entry with {header}"), "data": header});
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id());
        response("200 OK", "content-type: application/json\r\n", body.as_bytes())
    } else if request.calls("tools/call") {
        response("500 Oops", "", format!("your header was {header}").as_bytes())
    } else {
        response("202 Accepted", "", b"")
    }
}

impl PlantedServer {
    fn start() -> Self {
        let tree = TestTree::new(TestUser::Ourselves);
        let model = ModelServer::start(script()).unwrap();
        let (mcp, _) = http_server(mcp_answer);
        let (api, _) = http_server(|request| {
            let body = format!("your header was {:?}", request.headers.get("x-api-key"));
            response("500 Oops", "", body.as_bytes())
        });
        let (receiver, deliveries) =
            http_server(|request| response("500 Oops", "", format!("{:?}", request.headers).as_bytes()));
        let rest = json!({
            "description": "It", "method": "GET", "url": api, "headers": {"X-Api-Key": "${REST_CANARY}"},
        });
        let config = json!({
            "models": {"default": "work/m"},
            "providers": {"work": {
                "baseUrl": format!("{}/v1", model.url()), "apiKey": "${PROVIDER_CANARY}", "maxAttempts": 1,
            }},
            "mcpServers": {"docs": {"url": mcp, "headers": {"Authorization": "Bearer ${MCP_CANARY}"}}},
            "restTools": {"it": rest},
            "serve": {"approvalWebhook": {"url": receiver, "secret": "${WEBHOOK_CANARY}"}},
        });
        tree.file("home/haft.json", &config.to_string());
        tree.directory("home/agents");
        let agent = "---\ndescription: Works.\nmodels: work/m\ntools: [docs__refused, docs__broken, rest__it]\n---\nYou work.\n";
        tree.file("home/agents/worker.md", agent);
        let key = created(&tree, &["client", "--scope", "api"]);
        let admin = created(&tree, &["boss", "--scope", "api", "--scope", "admin"]);
        let command = tree.haft(&["serve", "--address", "127.0.0.1:0"]);
        let (child, address) = listening(
            command
                .env("PROVIDER_CANARY", PROVIDER_KEY)
                .env("MCP_CANARY", MCP_KEY)
                .env("REST_CANARY", REST_KEY)
                .env("WEBHOOK_CANARY", &format!("whsec_{}", STANDARD.encode(WEBHOOK_KEY))),
        );
        Self { tree, child, address, key, admin, sent: Vec::new(), deliveries, _model: model }
    }

    /// Sends a request and returns the whole reply. `lines` are further header lines.
    fn send_as(&mut self, key: &str, what: &str, lines: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(REPLY_MAX)).unwrap();
        let length = if lines.contains("Content-Length") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let host =
            if lines.contains("Host: ") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let head = format!("{what} HTTP/1.1\r\n{host}Authorization: Bearer {key}\r\n{lines}{length}");
        stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let reply = String::from_utf8_lossy(&reply).into_owned();
        self.sent.push(reply.clone());
        reply
    }

    fn post(&mut self, body: &Value) -> String {
        self.post_with("", body)
    }

    fn post_with(&mut self, lines: &str, body: &Value) -> String {
        let lines = format!("Content-Type: application/json\r\n{lines}");
        self.send_as(&self.key.clone(), "POST /v1/responses", &lines, &body.to_string())
    }

    /// Sends a message over a WebSocket, and reads until the response has ended.
    fn exchange_over_websocket(&mut self, body: &Value) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(REPLY_MAX)).unwrap();
        let head = format!(
            "GET /v1/responses HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.address, self.key
        );
        stream.write_all(head.as_bytes()).unwrap();
        let text = body.to_string();
        // A text frame of a client: the length has 16 bits, and the mask consists of zeros.
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        let frame = [&[0x81, 0xfe][..], &length, &[0; 4], text.as_bytes()].concat();
        stream.write_all(&frame).unwrap();
        let (mut seen, mut piece) = (String::new(), [0; 4096]);
        let ends = ["response.failed", "response.completed", "\"type\":\"error\""];
        while !ends.iter().any(|end| seen.contains(end)) {
            let count = stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "the connection closed early: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        self.sent.push(seen.clone());
        seen
    }

    /// Stops the server, and checks everything that it has written.
    fn check(mut self) {
        let admin = self.admin.clone();
        let metrics = self.send_as(&admin, "GET /metrics", "", "");
        assert!(metrics.contains("haft_"), "{metrics}");
        let mut texts = std::mem::take(&mut self.sent);
        texts.push(stop(self.child));
        files(&self.tree.path("home"), &mut texts);
        let secrets = [PROVIDER_KEY, MCP_KEY, REST_KEY, WEBHOOK_KEY, WRONG_KEY, &self.key, &self.admin];
        for text in &texts {
            for secret in secrets {
                assert!(!reveals(text, secret), "{secret} is in: {text}");
            }
        }
    }
}

fn created(tree: &TestTree, words: &[&str]) -> String {
    tree.haft(&[&["keys", "create"], words].concat()).output().expect_code(0).stdout.trim().to_owned()
}

/// Reads all files below a directory.
fn files(directory: &Path, texts: &mut Vec<String>) {
    for path in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files(&path, texts);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            texts.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&bytes)));
        }
    }
}

#[test]
fn refused_requests_reveal_no_secret() {
    let mut server = PlantedServer::start();
    let (key, admin) = (server.key.clone(), server.admin.clone());
    let limited = created(&server.tree, &["limited", "--requests-per-minute", "1"]);
    let json_type = "Content-Type: application/json\r\n";
    let body = json!({"model": "work/m", "input": "unauthorized"}).to_string();
    let once = json!({"model": "work/m", "input": "unauthorized", "store": false}).to_string();
    let keyed = format!("{json_type}Idempotency-Key: a\r\n");
    let post = "POST /v1/responses";
    let in_query = format!("GET /v1/models?api_key={key}");
    let rows: [(&str, &str, &str, &str, &str); 15] = [
        ("400", &key, post, json_type, &format!("{{\"model\": \"{key}\"")),
        (
            "400",
            &key,
            post,
            json_type,
            &format!("{{\"model\": \"work/m\", \"input\": \"{key}\", \"tools\": 7}}"),
        ),
        ("401", WRONG_KEY, post, json_type, &body),
        ("401", "", &in_query, "", ""),
        ("403", &key, "GET /metrics", "", ""),
        ("403", &key, post, &format!("{json_type}Origin: https://evil.example\r\n"), &body),
        ("421", &key, post, &format!("{json_type}Host: evil.example\r\n"), &body),
        ("404", &key, "GET /v1/responses/resp_none", "", ""),
        ("500", &key, post, &keyed, &once),
        ("409", &key, post, &keyed, &once),
        ("413", &key, post, &format!("{json_type}Expect: 100-continue\r\nContent-Length: 99000000\r\n"), ""),
        ("415", &key, post, "Content-Type: text/plain\r\n", &body),
        ("400", &admin, "PUT /api/v1/tools/bash", json_type, &format!("{{\"active\": \"{admin}\"}}")),
        ("404", &limited, "GET /v1/responses/resp_none", "", ""),
        ("429", &limited, "GET /v1/responses/resp_none", "", ""),
    ];
    let mut statuses = BTreeSet::new();
    for (status, key, what, lines, body) in rows {
        let reply = server.send_as(key, what, lines, body);
        let found = reply.split(' ').nth(1).unwrap_or_default().to_owned();
        assert_eq!(found, status, "{what}: {reply}");
        statuses.insert(found);
    }
    for status in ["400", "401", "403", "404", "409", "413", "415", "429", "500"] {
        assert!(statuses.contains(status), "{status}");
    }
    assert!(!server.sent.iter().any(|reply| reveals(reply, &limited)));
    server.check();
}

#[test]
fn errors_of_a_model_reveal_no_secret_in_any_form_of_response() {
    let mut server = PlantedServer::start();
    for input in ["unauthorized", "unavailable", "error page", "late error"] {
        let whole = server.post(&json!({"model": "work/m", "input": input}));
        assert!(whole.contains("\"error\":{"), "{input}: {whole}");
        let streamed = server.post(&json!({"model": "work/m", "input": input, "stream": true}));
        assert!(streamed.contains("\"error\":{"), "{input}: {streamed}");
        let message = json!({"type": "response.create", "model": "work/m", "input": input, "store": false});
        let seen = server.exchange_over_websocket(&message);
        assert!(seen.contains("error"), "{input}: {seen}");
        let begun = server.post(&json!({"model": "work/m", "input": input, "background": true}));
        let (_, begun) = begun.split_once("\r\n\r\n").unwrap();
        let begun: Value = serde_json::from_str(begun).unwrap();
        let path = format!("GET /v1/responses/{}", begun["id"].as_str().unwrap());
        let key = server.key.clone();
        eventually("the response fails", || {
            server.send_as(&key, &path, "", "").contains("\"status\":\"failed\"")
        });
    }
    server.check();
}

#[test]
fn errors_of_tools_and_of_the_webhook_reveal_no_secret() {
    let mut server = PlantedServer::start();
    let request = json!({"model": "worker", "input": "failing tools", "stream": true});
    let reply = server.post(&request);
    assert!(reply.contains("All tools failed."), "{reply}");
    assert!(reply.contains("no entry with") && reply.contains("HTTP 500"), "{reply}");
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    let reply = server.post(&json!({"model": "work/m", "input": "approval", "tools": [tool]}));
    assert!(reply.contains("mcp_approval_request"), "{reply}");
    eventually("the receiver refuses a delivery", || server.deliveries.try_recv().is_ok());
    server.check();
}
