//! Tests of the gateway over HTTP: sessions, headers, keys and principals.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use haft_testkit::{TestTree, eventually, libc, processes_with, send_signal, unique_marker};
use serde_json::{Value, json};

use super::hostile::memory_mib;
use super::{configure, place};

/// A gateway over HTTP, stopped when dropped.
pub(super) struct GatewayServer {
    /// The server process; `None` if another value owns the process and stops it.
    child: Option<Child>,
    address: String,
}

impl GatewayServer {
    pub(super) fn start(place: &TestTree, flags: &[&str]) -> Self {
        Self::at(place, "127.0.0.1:0", flags)
    }

    pub(super) fn at(place: &TestTree, address: &str, flags: &[&str]) -> Self {
        let words = [&["mcp", "serve", "--http", address], flags].concat();
        Self::of(place.haft(&words).start())
    }

    pub(super) fn of(mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child: Some(child), address: line.trim().trim_start_matches("http://").to_owned() }
    }

    /// Returns a size from the status of the process, in MiB.
    pub(super) fn memory_mib(&self, field: &str) -> u64 {
        memory_mib(self.child.as_ref().unwrap(), field)
    }

    /// Stops the server, and returns its standard error output.
    pub(super) fn stop(mut self) -> String {
        let mut child = self.child.take().unwrap();
        send_signal(child.id(), libc::SIGTERM);
        let mut reported = String::new();
        child.stderr.take().unwrap().read_to_string(&mut reported).unwrap();
        child.wait().unwrap();
        reported
    }

    /// Returns a value for a running server whose process another value owns and stops.
    pub(super) fn listening_at(address: &str) -> Self {
        Self { child: None, address: address.to_owned() }
    }

    /// Asks the server to read its files again.
    pub(super) fn reload(&self) {
        send_signal(self.child.as_ref().unwrap().id(), libc::SIGHUP);
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> GatewayReply {
        self.send_to("/mcp", method, headers, body)
    }

    /// Gets a path without a key.
    pub(super) fn get(&self, path: &str) -> GatewayReply {
        self.send_to(path, "GET", &[], "")
    }

    pub(super) fn send_to(
        &self,
        path: &str,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> GatewayReply {
        let mut text = String::new();
        self.open(path, method, headers, body).read_to_string(&mut text).unwrap();
        GatewayReply(text)
    }

    /// Sends a request, and returns the stream of its response.
    pub(super) fn open(&self, path: &str, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n");
        head.push_str("Accept: application/json, text/event-stream\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&["Host: ", &self.address, "\r\n"].concat());
        }
        for (name, value) in headers {
            head.push_str(&[name, ": ", value, "\r\n"].concat());
        }
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        stream
    }

    pub(super) fn post(&self, headers: &[(&str, &str)], body: &Value) -> GatewayReply {
        self.send("POST", headers, &body.to_string())
    }

    /// Opens the stream of a session for messages that belong to no request, and returns its lines.
    pub(super) fn listen(&self, headers: &[(&str, &str)]) -> Lines<BufReader<TcpStream>> {
        let mut lines = BufReader::new(self.open("/mcp", "GET", headers, "")).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
        lines
    }

    /// Makes the handshake, and returns the id of the session.
    pub(super) fn session(&self, headers: &[(&str, &str)]) -> String {
        let greeted = self.post(headers, &initialize());
        assert_eq!(greeted.status(), 200, "{}", greeted.0);
        greeted.header("mcp-session-id")
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            send_signal(child.id(), libc::SIGTERM);
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
pub(super) struct GatewayReply(String);

impl GatewayReply {
    pub(super) fn of(text: String) -> Self {
        Self(text)
    }

    /// Returns a header without a change of its case.
    pub(super) fn header_as_sent(&self, name: &str) -> String {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(": "));
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.0)).1.to_owned()
    }

    pub(super) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").unwrap().1
    }

    pub(super) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap_or_else(|| panic!("{}", self.0)).parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> String {
        let line = self
            .0
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix(&format!("{name}: ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// Returns the last message of the body, as JSON or as an event.
    pub(super) fn message(&self) -> Value {
        let body = self.0.split_once("\r\n\r\n").unwrap().1;
        let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or(body);
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", self.0))
    }
}

pub(super) fn initialize() -> Value {
    request(
        1,
        "initialize",
        &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
    )
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Sends a request of a protocol revision without sessions, with its headers.
pub(super) fn stateless(
    server: &GatewayServer,
    method: &str,
    mut params: Value,
    headers: &[(&str, &str)],
) -> GatewayReply {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let own = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    server.post(&[&own, headers].concat(), &request(1, method, &params))
}

#[test]
fn stateless_call_must_repeat_its_arguments_in_the_headers_that_the_tool_asks_for() {
    let place = place();
    configure(&place, &[("up", "headers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth", "--tools", "up__echo"]);
    let call = |tool: &str, text: &Value, headers: &[(&str, &str)]| {
        let params = json!({"name": tool, "arguments": {"text": text}});
        stateless(&server, "tools/call", params, &[&[("Mcp-Name", tool)], headers].concat())
    };
    let accepted =
        [(json!("zürich"), Some("=?base64?esO8cmljaA==?=")), (json!("hi"), Some("hi")), (Value::Null, None)];
    for (text, header) in accepted {
        let header = header.map(|value| ("Mcp-Param-Text", value));
        let called = call("up__echo", &text, header.as_slice());
        assert_eq!(called.status(), 200, "{text} {header:?}");
        assert!(called.message()["result"]["content"][0]["text"].as_str().unwrap().starts_with("echo: "));
    }
    let two = [("Mcp-Param-Text", "hi"), ("Mcp-Param-Text", "hi")];
    for headers in [&[][..], &[("Mcp-Param-Text", "ho")], &[("Mcp-Param-Text", "=?base64?aGk?=")], &two] {
        let refused = call("up__echo", &json!("hi"), headers);
        assert_eq!(
            (refused.status(), &refused.message()["error"]["code"]),
            (400, &json!(-32020)),
            "{headers:?}"
        );
    }
    // The schema of a tool that the client cannot see stays hidden.
    let hidden = call("up__fail", &json!("hi"), &[]).message();
    assert!(!hidden.to_string().to_lowercase().contains("mcp-param"), "{hidden}");
    // A request in a session needs no such headers.
    let session = server.session(&[]);
    let params = json!({"name": "up__echo", "arguments": {"text": "hi"}});
    let called = server.post(&[("Mcp-Session-Id", &session)], &request(2, "tools/call", &params)).message();
    assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
}

#[test]
fn clients_with_and_without_handshake_list_and_call_tools_over_http() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let own = [("Mcp-Session-Id", session.as_str())];
    let told = server.post(&own, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(told.status(), 202);
    let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
    let called = server.post(&own, &request(2, "tools/call", &call)).message();
    assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
    // A call that takes longer gets a stream, which contains its progress.
    let slow = json!({"name": "up__slow", "arguments": {}, "_meta": {"progressToken": "p"}});
    let slow = server.post(&own, &request(3, "tools/call", &slow));
    assert_eq!(slow.header("content-type"), "text/event-stream");
    assert!(slow.0.contains("notifications/progress"), "{}", slow.0);
    assert_eq!(slow.message()["id"], 3);
    let called = stateless(&server, "tools/call", call, &[("Mcp-Name", "up__echo")]).message();
    assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
    assert_eq!(called["result"]["resultType"], "complete");
    assert_eq!(server.send("DELETE", &own, "").status(), 204);
    assert_eq!(server.post(&own, &request(4, "ping", &json!({}))).status(), 404);
}

#[test]
fn headers_that_contradict_the_body_are_refused() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let call = || json!({"name": "bash", "arguments": {"command": "touch made"}});
    let wrong = stateless(&server, "tools/call", call(), &[("Mcp-Name", "read")]);
    assert_eq!((wrong.status(), &wrong.message()["error"]["code"]), (400, &json!(-32020)));
    assert_eq!(stateless(&server, "tools/call", call(), &[]).status(), 400);
    assert!(!place.path("ws/made").exists());
    let unknown = stateless(&server, "tools/dance", json!({}), &[]);
    assert_eq!((unknown.status(), &unknown.message()["error"]["code"]), (404, &json!(-32601)));
    let version =
        server.post(&[("MCP-Protocol-Version", "1999-01-01")], &request(1, "tools/list", &json!({})));
    assert_eq!((version.status(), &version.message()["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(server.post(&[], &request(1, "tools/list", &json!({}))).status(), 400);
    assert_eq!(server.send("POST", &[], "garbage").status(), 400);
    assert_eq!(server.send("GET", &[], "").status(), 405);
}

#[test]
fn requests_with_a_foreign_origin_or_host_header_are_refused() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let refused = |headers: &[(&str, &str)]| server.post(headers, &initialize()).status();
    assert_eq!(refused(&[("Origin", "https://evil.example")]), 403);
    assert_eq!(refused(&[("Host", "evil.example")]), 421);
    assert_eq!(refused(&[]), 200);
}

#[test]
fn requests_count_against_the_limit_of_their_key() {
    let place = place();
    configure(&place, &[], "");
    let created = place.haft(&["keys", "create", "k", "--requests-per-minute", "2"]).output().expect_code(0);
    let key = format!("Bearer {}", created.stdout.trim());
    let server = GatewayServer::start(&place, &[]);
    let post = || server.post(&[("Authorization", &key)], &initialize());
    assert_eq!(post().header("x-ratelimit-remaining-requests"), "1");
    assert_eq!(post().status(), 200);
    let refused = post();
    assert_eq!(refused.status(), 429, "{}", refused.0);
    let after: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&after), "{after}");
}

#[test]
fn principal_cannot_use_the_session_or_workspace_of_another_principal() {
    let place = place();
    configure(&place, &[], "");
    let key = |name: &str| {
        let created = place
            .haft(&["keys", "create", name, "--tenant", name, "--scope", "api", "--scope", "builtin-tools"])
            .output()
            .expect_code(0);
        format!("Bearer {}", created.stdout.trim())
    };
    let (anna, bert) = (key("anna"), key("bert"));
    let server = GatewayServer::start(&place, &[]);
    assert_eq!(server.post(&[], &initialize()).status(), 401);
    let session = server.session(&[("Authorization", &anna)]);
    let call = |key: &str, command: &str| {
        let headers = [("Authorization", key), ("Mcp-Session-Id", session.as_str())];
        server.post(
            &headers,
            &request(7, "tools/call", &json!({"name": "bash", "arguments": {"command": command}})),
        )
    };
    assert_eq!(call(&bert, "true").status(), 404, "a principal cannot use the session of another principal");
    let made = call(&anna, "echo secret > mine; pwd").message();
    let directory =
        made["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{made}")).trim().to_owned();
    assert!(
        directory.contains("anna") && !directory.starts_with(place.path("ws").to_str().unwrap()),
        "{directory}"
    );
    let other = server.session(&[("Authorization", &bert)]);
    let headers = [("Authorization", bert.as_str()), ("Mcp-Session-Id", other.as_str())];
    let read = json!({"name": "bash", "arguments": {"command": format!("cat {directory}/mine")}});
    let read = server.post(&headers, &request(8, "tools/call", &read)).message();
    assert!(!read.to_string().contains("secret"), "{read}");
}

#[test]
fn key_without_the_scope_builtin_tools_sees_no_builtin_tools() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let created = place.haft(&["keys", "create", "ci"]).output().expect_code(0);
    let key = format!("Bearer {}", created.stdout.trim());
    let server = GatewayServer::start(&place, &[]);
    let session = server.session(&[("Authorization", &key)]);
    let own = [("Authorization", key.as_str()), ("Mcp-Session-Id", session.as_str())];
    let listed = server.post(&own, &request(2, "tools/list", &json!({}))).message();
    assert!(listed.to_string().contains("up__echo") && !listed.to_string().contains("\"bash\""), "{listed}");
    let call = json!({"name": "bash", "arguments": {"command": "true"}});
    let called = server.post(&own, &request(3, "tools/call", &call)).message();
    assert_ne!(called["result"]["isError"], Value::Null, "{called}");
}

#[test]
fn haft_serve_offers_the_gateway_at_the_path_mcp() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0", "--no-auth"]).start());
    let session = server.session(&[]);
    let listed =
        server.post(&[("Mcp-Session-Id", &session)], &request(2, "tools/list", &json!({}))).message();
    assert!(listed.to_string().contains("up__echo"), "{listed}");
    // Every process on the machine can reach a server without keys, so the API and its gateway offer no shell on such a
    // server.
    assert!(!listed.to_string().contains("\"bash\""), "{listed}");
}

#[test]
fn tool_that_an_administrator_turned_off_is_neither_listed_nor_called() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let created = place.haft(&["keys", "create", "root", "--scope", "admin", "--scope", "api"]).output();
    let key = format!("Bearer {}", created.expect_code(0).stdout.trim());
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0"]).start());
    let session = server.session(&[("Authorization", &key)]);
    let own = [("Authorization", key.as_str()), ("Mcp-Session-Id", session.as_str())];
    let list = || server.post(&own, &request(2, "tools/list", &json!({}))).message().to_string();
    assert!(list().contains("up__echo"), "{}", list());
    let switch = |body: &str| server.send_to("/api/v1/tools/up__echo", "PUT", &own[..1], body);
    let off = switch(r#"{"active": false}"#);
    assert_eq!((off.status(), &off.message()["active"]), (200, &json!(false)), "{}", off.0);
    assert!(!list().contains("up__echo"), "{}", list());
    let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
    let refused = server.post(&own, &request(3, "tools/call", &call)).message().to_string();
    assert!(refused.contains("turned off this tool") && !refused.contains("echo: hi"), "{refused}");
    assert_eq!(switch(r#"{"active": true}"#).message()["active"], true);
    assert!(list().contains("up__echo"), "{}", list());
    let called = server.post(&own, &request(4, "tools/call", &call)).message();
    assert_eq!(called["result"]["content"][0]["text"], "echo: hi", "{called}");
}

#[test]
fn metrics_show_the_upstream_servers_of_the_gateway() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("down", "never-greets", &[])], "");
    let created = place.haft(&["keys", "create", "root", "--scope", "admin", "--scope", "api"]).output();
    let key = format!("Bearer {}", created.expect_code(0).stdout.trim());
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0"]).start());
    let login = [("Authorization", key.as_str())];
    let has_row = |name: &str, state: &str, count: u64| {
        let row = format!("haft_mcp_gateway_servers{{server=\"{name}\",state=\"{state}\"}} {count}");
        server.send_to("/metrics", "GET", &login, "").0.contains(&row)
    };
    assert!(has_row("up", "ready", 0) && has_row("down", "ready", 0), "no client has connected");
    let session = server.session(&login);
    let own = [login[0], ("Mcp-Session-Id", session.as_str())];
    let listed = server.post(&own, &request(2, "tools/list", &json!({}))).message();
    assert!(listed.to_string().contains("up__echo"), "{listed}");
    eventually("the servers are counted", || has_row("up", "ready", 1) && has_row("down", "ready", 0));
}

#[test]
fn gateway_without_haft_serve_has_no_api_routes() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    assert_eq!((server.get("/v1/models").status(), server.get("/healthz").status()), (404, 200));
}

/// The maximum number of lines that a stream may still send after the key was revoked. The gateway announces a changed
/// list at most once per second.
const LINES_MAX: usize = 60;

#[test]
fn stream_of_notifications_ends_after_its_key_was_revoked() {
    let place = place();
    // The server announces a changed list all the time.
    configure(&place, &[("up", "restless", &[])], "");
    let created = place.haft(&["keys", "create", "k", "--json"]).output().expect_code(0);
    let created: Value = serde_json::from_str(&created.stdout).unwrap();
    let key = format!("Bearer {}", created["key"].as_str().unwrap_or_else(|| panic!("{created}")));
    let server = GatewayServer::start(&place, &[]);
    let login = [("Authorization", key.as_str())];
    let session = server.session(&login);
    let own = [login[0], ("Mcp-Session-Id", session.as_str())];
    server.post(&own, &request(2, "tools/list", &json!({})));
    let mut of_session = server.listen(&own);
    let mut params = json!({"notifications": {"toolsListChanged": true}});
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [login[0], ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    let body = request(1, "subscriptions/listen", &params).to_string();
    let mut of_request = BufReader::new(server.open("/mcp", "POST", &headers, &body)).lines();
    for stream in [&mut of_session, &mut of_request] {
        assert!(stream.any(|line| line.unwrap().contains("tools/list_changed")));
    }
    place.haft(&["keys", "revoke", created["id"].as_str().unwrap()]).output().expect_code(0);
    for stream in [of_session, of_request] {
        assert!(stream.take(LINES_MAX).count() < LINES_MAX, "the stream continues");
    }
}

#[test]
fn cancellation_of_an_unknown_request_over_http_changes_nothing() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [server.session(&[]), server.session(&[])];
    let own = |session: usize| [("Mcp-Session-Id", sessions[session].as_str())];
    let fifo = place.path("ws/fifo");
    let call = |id: u64, command: &str| {
        request(id, "tools/call", &json!({"name": "bash", "arguments": {"command": command}}))
    };
    let mut running = server.open("/mcp", "POST", &own(0), &call(7, "mkfifo fifo && cat fifo").to_string());
    eventually("the call runs", || fifo.exists());
    let cancel = |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    for id in [json!(8), json!("7"), json!(null), json!({})] {
        assert_eq!(server.post(&own(0), &cancel(id)).status(), 202);
    }
    // Another session, and a client without a session, have no request with this id.
    assert_eq!(server.post(&own(1), &cancel(json!(7))).status(), 202);
    let stateless = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "notifications/cancelled")];
    assert_eq!(server.post(&stateless, &cancel(json!(7))).status(), 202);
    assert_eq!(server.post(&own(0), &call(9, "echo released > fifo")).message()["id"], 9);
    let mut reply = String::new();
    running.read_to_string(&mut reply).unwrap();
    let reply = GatewayReply::of(reply).message();
    assert_eq!(reply["result"]["content"][0]["text"].as_str().map(str::trim), Some("released"), "{reply}");
}

#[test]
fn call_without_a_session_ends_when_its_client_disconnects() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let marker = unique_marker();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({"command": format!("sleep 3600 # {marker}")});
    let call = json!({"name": "bash", "arguments": arguments, "_meta": meta});
    let body = request(1, "tools/call", &call).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: bash\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    eventually("the command runs", || !processes_with(&marker).is_empty());
    drop(stream);
    eventually("the command ends", || processes_with(&marker).is_empty());
    assert_eq!(server.post(&[], &initialize()).status(), 200, "the server accepts new clients");
}

#[test]
fn overlong_http_message_is_refused() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    // Send one byte more than the limit, so that the gateway reads the whole body before it refuses the request.
    assert_eq!(server.send("POST", &[], &"x".repeat((32 << 20) + 1)).status(), 413);
    assert_eq!(server.post(&[], &initialize()).status(), 200);
}

#[test]
fn no_upstream_server_outlives_the_gateway() {
    let place = place();
    let marker = unique_marker();
    configure(&place, &[("up", "good", &[&marker])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let call = json!({"name": "up__echo", "arguments": {}});
    server.post(&[("Mcp-Session-Id", &session)], &request(2, "tools/call", &call));
    assert!(!processes_with(&marker).is_empty());
    drop(server);
    assert!(processes_with(&marker).is_empty());
}

#[test]
fn clients_with_equal_request_ids_get_their_own_replies() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let (one, two) = (server.session(&[]), server.session(&[]));
    let call = |session: &str, tool: &str, text: &str| {
        let call = json!({"name": tool, "arguments": {"text": text}});
        server.post(&[("Mcp-Session-Id", session)], &request(5, "tools/call", &call)).message()
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| call(&one, "up__slow", "one"));
        for number in 0..5 {
            let reply = call(&two, "up__echo", &format!("two {number}"));
            assert_eq!(reply["result"]["content"][0]["text"], format!("echo: two {number}"), "{reply}");
        }
        let reply = slow.join().unwrap();
        assert_eq!(reply["result"]["content"][0]["text"], "echo: one", "{reply}");
    });
}

#[test]
fn client_that_does_not_read_a_stream_loses_only_that_stream() {
    let place = place();
    configure(&place, &[("up", "loud", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let own = [("Mcp-Session-Id", session.as_str())];
    let watched = json!({"uri": "haft:up/note://1"});
    server.post(&own, &request(2, "resources/subscribe", &watched));
    server.post(&own, &request(3, "tools/list", &json!({})));
    let listen = || {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let head = [
            "GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nHost: ",
            &server.address,
            "\r\nMcp-Session-Id: ",
            &session,
            "\r\n\r\n",
        ];
        stream.write_all(head.concat().as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().unwrap().unwrap();
        (status, lines)
    };
    let (status, unread) = listen();
    assert_eq!(status, "HTTP/1.1 200 OK");
    let began = Instant::now();
    let call = json!({"name": "up__echo", "arguments": {}});
    let called = server.post(&own, &request(4, "tools/call", &call)).message();
    assert_eq!(called["result"]["content"][0]["text"], "loud", "{called}");
    assert_eq!(server.post(&own, &request(5, "ping", &json!({}))).status(), 200);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // The unread stream has ended, so another one can be opened. It reports the changes that the client may have
    // missed.
    let (status, mut lines) = listen();
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(lines.any(|line| line.unwrap().contains("notifications/resources/updated")));
    drop(unread);
}
