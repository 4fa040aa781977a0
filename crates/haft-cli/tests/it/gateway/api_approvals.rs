//! Tests of approvals through the native API of `haft serve`, for clients at `/mcp` that cannot show forms.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use haft_model_server::ScriptStep;
use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::agents::{bash, with_agent};
use super::http::{GatewayReply, GatewayServer, request};
use super::http_upstream::{read, respond};
use super::operator::{ClientSession, message, open_stateless_with, text};
use super::tasks::{HttpClient, allowing};
use super::{configure, place};

/// All calls of `bash` need approval, and at most one of them runs at a time.
const ASK: &str = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]},
    "queues": {"one": {"maxConcurrency": 1}}, "tools": {"bash": {"queue": "one"}}"#;

/// Creates an API key with these scopes.
fn key(place: &TestTree, (tenant, name): (&str, &str), scopes: &[&str]) -> String {
    let mut words = vec!["keys", "create", name, "--tenant", tenant, "--subject", "me"];
    words.extend(scopes.iter().flat_map(|scope| ["--scope", *scope]));
    format!("Bearer {}", place.haft(&words).output().expect_code(0).stdout.trim())
}

/// `haft serve` with the keys of a client, of a person who may approve its calls, and of another tenant.
struct ApprovalServer {
    place: TestTree,
    server: GatewayServer,
    client: String,
    approver: String,
    stranger: String,
    admin: String,
}

impl ApprovalServer {
    fn start(serve: &str) -> Self {
        let place = place();
        configure(&place, &[], &format!(r#"{ASK}, "serve": {serve}"#));
        Self::on(place)
    }

    fn on(place: TestTree) -> Self {
        let client = key(&place, ("acme", "client"), &["api", "builtin-tools"]);
        let approver = key(&place, ("acme", "approver"), &["api", "approvals"]);
        let stranger = key(&place, ("other", "stranger"), &["api", "approvals", "admin"]);
        let admin = key(&place, ("ops", "admin"), &["admin"]);
        let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0"]).start());
        Self { place, server, client, approver, stranger, admin }
    }

    fn session(&self) -> ClientSession<'_> {
        ClientSession::begin(&self.server, Some(&self.client))
    }

    fn listed(&self, key: &str) -> Vec<Value> {
        let reply = self.server.send_to("/api/v1/approvals", "GET", &[("Authorization", key)], "");
        assert_eq!(reply.status(), 200, "{reply:?}");
        reply.message()["data"].as_array().unwrap().clone()
    }

    /// Waits until this number of requests wait, and returns them.
    fn waiting(&self, count: usize) -> Vec<Value> {
        eventually("the requests wait", || self.listed(&self.approver).len() == count);
        self.listed(&self.approver)
    }

    fn decide(&self, key: &str, request: &Value, body: &Value) -> GatewayReply {
        let path = format!("/api/v1/approvals/{}", request["id"].as_str().unwrap());
        self.server.send_to(&path, "POST", &[("Authorization", key)], &body.to_string())
    }

    fn metric(&self, name: &str) -> f64 {
        let reply = self.server.send_to("/metrics", "GET", &[("Authorization", &self.admin)], "");
        let row = reply.body().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        row.unwrap_or_else(|| panic!("{name}: {}", reply.body())).parse().unwrap()
    }

    /// Returns the outcomes of the approval requests, as the audit log contains them.
    fn audited(&self) -> Vec<Value> {
        let log = self.place.text("home/data/audit.jsonl");
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let decided = lines.filter(|line| line["event"] == "approval.decided");
        decided.map(|line| line["detail"].clone()).collect()
    }
}

fn reply(stream: TcpStream) -> Value {
    message(stream, String::new())
}

#[test]
fn call_waits_until_a_key_with_the_scope_approves_it() {
    let server = ApprovalServer::start("{}");
    let session = server.session();
    let first = session.open_call(2, "echo first");
    let waiting = server.waiting(1);
    let second = open_stateless_with(&server.server, "echo second", &[("Authorization", &server.client)]);
    let waiting = [waiting, server.waiting(2)[1..].to_vec()].concat();
    let one = &waiting[0];
    assert_eq!((&one["name"], &one["server_label"]), (&json!("bash"), &json!("haft")), "{one}");
    assert_eq!((&one["arguments"]["command"], &one["client"]), (&json!("echo first"), &json!("t")), "{one}");
    assert_eq!((&one["response"], &one["needs_scope"]), (&Value::Null, &json!(true)), "{one}");
    assert!(one["expires_ms"].as_u64() > one["since_ms"].as_u64(), "{one}");
    assert!((server.metric("haft_approvals_pending") - 2.0).abs() < 0.5);
    assert!(server.metric("haft_approvals_oldest_age_seconds") > 0.0);

    assert_eq!(server.listed(&server.stranger), [] as [Value; 0], "another tenant sees no request");
    let approve = json!({"approve": true});
    assert_eq!(server.decide(&server.stranger, one, &approve).status(), 404);
    assert_eq!(server.listed(&server.client).len(), 2, "the client sees its own requests");
    let own = server.decide(&server.client, one, &approve);
    assert_eq!((own.status(), &own.message()["error"]["code"]), (403, &json!("insufficient_scope")));
    assert_eq!(server.decide(&server.approver, one, &json!({"approve": 1})).status(), 400);
    assert_eq!(server.waiting(2).len(), 2, "a refused decision changes nothing");

    // The second call ends while the first call waits for its approval, so a waiting call does not occupy the only slot
    // of the queue.
    let decided = server.decide(&server.approver, &waiting[1], &approve);
    assert_eq!((decided.status(), &decided.message()["approve"]), (200, &json!(true)), "{decided:?}");
    assert_eq!(text(&reply(second)).trim(), "second");
    server.decide(&server.approver, one, &approve);
    assert_eq!(text(&reply(first)).trim(), "first");
    assert_eq!(server.listed(&server.approver), [] as [Value; 0]);
    assert_eq!(server.decide(&server.approver, one, &approve).status(), 404, "a decision is final");
    assert!(server.metric("haft_approvals_pending") < 0.5);
    assert_eq!(server.audited(), ["approved", "approved"]);
}

#[test]
fn denied_call_is_not_made() {
    let server = ApprovalServer::start("{}");
    let call = server.session().open_call(2, "touch made");
    let waiting = server.waiting(1);
    assert_eq!(server.decide(&server.approver, &waiting[0], &json!({"approve": false})).status(), 200);
    let denied = reply(call);
    assert_eq!(denied["result"]["isError"], true, "{denied}");
    assert!(text(&denied).contains("the user refused this call"), "{denied}");
    assert_eq!(server.audited(), ["denied"]);
}

#[test]
fn call_without_a_decision_expires_and_is_denied() {
    let server = ApprovalServer::start(r#"{"approvalTimeout": "2s"}"#);
    let denied = server.session().call("touch made");
    assert_eq!(denied["result"]["isError"], true, "{denied}");
    assert!(text(&denied).contains("had no answer within `serve.approvalTimeout`"), "{denied}");
    assert_eq!(server.listed(&server.approver), [] as [Value; 0]);
    assert!(server.metric("haft_approvals_expired_total") > 0.5);
    assert_eq!(server.audited(), ["expired"]);
}

#[test]
fn approval_request_is_withdrawn_if_its_client_cancels_or_disconnects() {
    let server = ApprovalServer::start("{}");
    let session = server.session();
    let gone = |waiting: &[Value]| {
        server.waiting(0);
        let late = server.decide(&server.approver, &waiting[0], &json!({"approve": true}));
        assert_eq!(late.status(), 404, "{late:?}");
    };

    let cancelled = session.open_call(2, "touch first");
    let waiting = server.waiting(1);
    session.notify("notifications/cancelled", &json!({"requestId": 2}));
    gone(&waiting);
    drop(cancelled);

    let closed = session.open_call(3, "touch second");
    let waiting = server.waiting(1);
    drop(closed);
    gone(&waiting);

    let stateless = open_stateless_with(&server.server, "touch third", &[("Authorization", &server.client)]);
    let waiting = server.waiting(1);
    drop(stateless);
    gone(&waiting);

    assert_eq!(server.audited(), ["cancelled", "cancelled", "cancelled"]);
    let listing = session.open_call(4, "ls -A");
    server.decide(&server.approver, &server.waiting(1)[0], &json!({"approve": true}));
    let listed = reply(listing);
    assert!(["first", "second", "third"].iter().all(|name| !text(&listed).contains(name)), "{listed}");
}

#[test]
fn approval_request_of_an_agent_or_a_task_reaches_the_api() {
    let steps = [bash("echo inside"), ScriptStep::text("Made.")];
    let (place, _model) = with_agent([&steps[..], &steps[..]].concat(), ASK);
    let server = ApprovalServer::on(place);
    let headers = [("Authorization", server.client.as_str())];
    let session = server.server.session(&headers);
    let own = [headers[0], ("Mcp-Session-Id", session.as_str())];
    let mut call = json!({"name": "agent__helper", "arguments": {"request": "go"}});
    let stream = server.server.open("/mcp", "POST", &own, &request(2, "tools/call", &call).to_string());
    let waiting = server.waiting(1);
    assert_eq!(waiting[0]["arguments"]["command"], "echo inside");
    server.decide(&server.approver, &waiting[0], &json!({"approve": true}));
    assert_eq!(text(&reply(stream)), "Made.");
    call["task"] = json!({"ttl": 60_000});
    let begun = server.server.post(&own, &request(3, "tools/call", &call)).message();
    let task = begun["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{begun}");
    // The request that started the task already has its reply, but the task still waits for the approval.
    let waiting = server.waiting(1);
    server.decide(&server.approver, &waiting[0], &json!({"approve": false}));
    let ended = server.server.post(&own, &request(4, "tasks/result", &json!({"taskId": task}))).message();
    assert_eq!(text(&ended), "Made.");
    assert_eq!(server.audited(), ["approved", "denied"]);
}

#[test]
fn webhook_names_the_call_without_its_arguments() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (seen, delivered) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (_, body) = read(&stream).unwrap();
        respond(&stream, "204 No Content", "", "").unwrap();
        seen.send(body).unwrap();
    });
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let server =
        ApprovalServer::start(&json!({"approvalWebhook": {"url": url, "secret": secret}}).to_string());
    let session = server.session();
    let call = session.open_call(2, "echo 7654321");
    let waiting = server.waiting(1);
    let body = delivered.recv().unwrap();
    assert!(!body.contains("7654321"), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["type"], &body["data"]["tenant"]), (&json!("approval.requested"), &json!("acme")));
    let asked = &body["data"]["requests"][0];
    assert_eq!((&asked["id"], &asked["name"]), (&waiting[0]["id"], &json!("bash")), "{body}");
    server.decide(&server.approver, &waiting[0], &json!({"approve": true}));
    assert_eq!(text(&reply(call)).trim(), "7654321");
}

#[test]
fn server_without_the_approvals_api_denies_the_call_at_once() {
    let place = place();
    configure(
        &place,
        &[("up", "good", &[])],
        r#", "policy": {"rules": [{"tool": "up__echo", "decision": "ask"}]}"#,
    );
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let session = server.session(&[]);
    let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
    let denied = server.post(&[("Mcp-Session-Id", &session)], &request(2, "tools/call", &call)).message();
    assert!(text(&denied).contains("no user is available"), "{denied}");
}

/// A call of `bash`.
fn shell_call(command: &str) -> Value {
    request(3, "tools/call", &json!({"name": "bash", "arguments": {"command": command}}))
}

/// Without the check of the scope, each client could approve its own calls: it would declare support for forms, and
/// send the answer itself.
#[test]
fn client_with_forms_needs_the_scope_to_approve_its_call() {
    let server = ApprovalServer::start("{}");
    let client = HttpClient::connect(&server.server, &server.client);
    let mut stream =
        server.server.open("/mcp", "POST", &client.headers(), &shell_call("echo done").to_string());
    let waiting = server.waiting(1);
    server.decide(&server.approver, &waiting[0], &json!({"approve": true}));
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(!response.contains("elicitation/create"), "{response}");
    assert_eq!(text(&GatewayReply::of(response).message()).trim(), "done");

    let mut call = shell_call("touch made");
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let headers = [
        ("Authorization", server.client.as_str()),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "bash"),
    ];
    let stream = server.server.open("/mcp", "POST", &headers, &call.to_string());
    let waiting = server.waiting(1);
    server.decide(&server.approver, &waiting[0], &json!({"approve": false}));
    let denied = reply(stream);
    assert!(text(&denied).contains("the user refused this call"), "{denied}");

    let entitled = key(&server.place, ("acme", "entitled"), &["api", "builtin-tools", "approvals"]);
    let client = HttpClient::connect(&server.server, &entitled);
    let (question, mut stream) = client.until(&shell_call("echo done"), "elicitation/create");
    assert_eq!(server.server.post(&client.headers(), &allowing(&question)).status(), 202);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("done"), "{rest}");
    assert_eq!(server.audited(), ["approved", "denied"], "the other call did not reach the API");
}

#[test]
fn client_with_forms_cannot_approve_its_call_at_a_server_without_keys() {
    let place = place();
    configure(
        &place,
        &[("up", "good", &[])],
        r#", "policy": {"rules": [{"tool": "up__echo", "decision": "ask"}]}"#,
    );
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let client = HttpClient::connect(&server, "");
    let call = request(3, "tools/call", &json!({"name": "up__echo", "arguments": {"text": "hi"}}));
    let stream = server.open("/mcp", "POST", &client.headers(), &call.to_string());
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("\"jsonrpc\"")).unwrap();
    assert!(first.contains("no user is available"), "{first}");
}
