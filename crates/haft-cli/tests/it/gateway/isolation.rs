//! Tests that clients which share upstream servers do not get the results of each other.

use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::{Value, json};

use super::http::{GatewayServer, request, stateless};
use super::{configure, place};

/// The limit above which haft stores an output.
const SMALL_OUTPUTS: &str = r#", "maxToolResponseBytes": 2000"#;

const NOT_FOUND: i64 = -32002;

/// Returns the `Authorization` header of a new key that may use the built-in tools.
fn key(place: &TestTree, name: &str) -> String {
    let words = ["keys", "create", name, "--tenant", "acme", "--scope", "api", "--scope", "builtin-tools"];
    format!("Bearer {}", place.haft(&words).output().expect_code(0).stdout.trim())
}

fn large_call() -> Value {
    json!({"name": "bash", "arguments": {"command": "seq 1 10000"}})
}

fn uris(listed: &Value) -> Vec<String> {
    let resources = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
    resources.iter().map(|item| item["uri"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn only_the_session_that_made_a_call_lists_and_reads_its_stored_output() {
    for with_keys in [true, false] {
        let place = place();
        configure(&place, &[], SMALL_OUTPUTS);
        let key = key(&place, "anna");
        let (flags, authorized): (&[&str], &[(&str, &str)]) =
            if with_keys { (&[], &[("Authorization", &key)]) } else { (&["--no-auth"], &[]) };
        let server = GatewayServer::start(&place, flags);
        let sessions = [server.session(authorized), server.session(authorized)];
        let ask = |session: usize, method: &str, params: &Value| {
            let own = [authorized, &[("Mcp-Session-Id", sessions[session].as_str())]].concat();
            server.post(&own, &request(2, method, params)).message()
        };
        ask(0, "tools/call", &large_call());
        let listed = uris(&ask(0, "resources/list", &json!({})));
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(uris(&ask(1, "resources/list", &json!({}))), [""; 0]);
        let read = ask(0, "resources/read", &json!({"uri": listed[0]}));
        assert!(read["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"), "{read:.200}");
        let refused = ask(1, "resources/read", &json!({"uri": listed[0]}));
        assert_eq!(refused["error"]["code"], NOT_FOUND, "{refused:.200}");
        let handle = listed[0].strip_prefix("haft-output:").unwrap();
        let query =
            json!({"name": "tool_output", "arguments": {"handle": handle, "extract": "last 1 lines"}});
        assert_eq!(ask(0, "tools/call", &query)["result"]["isError"], Value::Null);
        let refused = ask(1, "tools/call", &query);
        assert_eq!(refused["result"]["isError"], true, "{refused:.300}");
    }
}

#[test]
fn stored_output_of_a_stateless_request_belongs_to_its_principal() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let keys = [key(&place, "anna"), key(&place, "bert")];
    let server = GatewayServer::start(&place, &[]);
    let ask = |user: usize, method: &str, params: Value, name: &str| {
        let headers = [("Authorization", keys[user].as_str()), ("Mcp-Name", name)];
        let headers = if name.is_empty() { &headers[..1] } else { &headers };
        stateless(&server, method, params, headers).message()
    };
    ask(0, "tools/call", large_call(), "bash");
    let listed = uris(&ask(0, "resources/list", json!({}), ""));
    assert_eq!(listed.len(), 1, "{listed:?}");
    let read = |user: usize| ask(user, "resources/read", json!({"uri": listed[0]}), &listed[0]);
    assert!(read(0)["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"));
    assert_eq!(uris(&ask(1, "resources/list", json!({}), "")), [""; 0]);
    assert_eq!(read(1)["error"]["code"], -32602);
    let session = server.session(&[("Authorization", &keys[0])]);
    let own = [("Authorization", keys[0].as_str()), ("Mcp-Session-Id", session.as_str())];
    let of_session = server.post(&own, &request(2, "resources/list", &json!({}))).message();
    assert_eq!(uris(&of_session), [""; 0]);
}

#[test]
fn stored_outputs_of_clients_are_deleted_with_their_principal() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let key = key(&place, "anna");
    let server = GatewayServer::start(&place, &[]);
    let session = server.session(&[("Authorization", &key)]);
    let own = [("Authorization", key.as_str()), ("Mcp-Session-Id", session.as_str())];
    server.post(&own, &request(2, "tools/call", &large_call()));
    drop(server);
    let outputs = || {
        let all = std::fs::read_dir(place.path("home/data/outputs/tenant-acme")).unwrap().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with("session-")).count()
    };
    assert_eq!(outputs(), 1);
    // The key `anna` names no subject, so it belongs to the subject with the name of the key.
    place.haft(&["store", "delete", "--principal", "acme/anna", "--yes"]).output().expect_code(0);
    assert_eq!(outputs(), 0);
}

#[test]
fn stateless_requests_read_but_cannot_list_stored_outputs_if_there_are_no_keys() {
    let place = place();
    configure(&place, &[], SMALL_OUTPUTS);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let called = stateless(&server, "tools/call", large_call(), &[("Mcp-Name", "bash")]).message();
    let text = called["result"]["content"].to_string();
    let handle = text.split(['`', '"', ' ', '\\']).find(|word| word.starts_with("session-"));
    let uri = format!("haft-output:{}", handle.unwrap_or_else(|| panic!("{text}")));
    assert_eq!(uris(&stateless(&server, "resources/list", json!({}), &[]).message()), [""; 0]);
    let read = stateless(&server, "resources/read", json!({"uri": uri}), &[("Mcp-Name", &uri)]).message();
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().ends_with("10000\n"), "{read:.200}");
}

#[test]
fn log_message_reaches_only_the_session_whose_call_caused_it() {
    let place = place();
    configure(&place, &[("up", "offers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [server.session(&[]), server.session(&[])];
    let mut streams = sessions.each_ref().map(|id| server.listen(&[("Mcp-Session-Id", id)]));
    for (session, text) in [(0, " of one"), (1, " of two")] {
        let call = json!({"name": "up__echo", "arguments": {"text": text}});
        let called = server.post(&[("Mcp-Session-Id", &sessions[session])], &request(2, "tools/call", &call));
        assert_eq!(called.status(), 200);
        let mut lines = streams[session].by_ref().map(Result::unwrap);
        let first = lines.find(|line| line.contains("notifications/message")).unwrap();
        assert!(first.contains(&format!("mind the step{text}")), "{first}");
    }
}

#[test]
fn log_message_of_a_stateless_request_comes_before_its_reply_and_on_no_other_stream() {
    let place = place();
    configure(&place, &[("up", "offers", &[])], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let other = server.listen(&[("Mcp-Session-Id", &session)]);
    let call = |level: Option<&str>| {
        let mut params = json!({"name": "up__echo", "arguments": {"text": " alone"}});
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/logLevel": level,
        });
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__echo")];
        server.post(&headers, &request(1, "tools/call", &params))
    };
    let streamed = call(Some("info"));
    assert_eq!(streamed.header("content-type"), "text/event-stream");
    let (message, reply) =
        (streamed.body().find("mind the step alone"), streamed.body().find("structuredContent"));
    assert!(message.is_some() && message < reply, "{}", streamed.body());
    assert!(!call(None).body().contains("mind the step"), "the request asks for no messages");
    drop(server);
    let leaked = other.map_while(Result::ok).find(|line| line.contains("mind the step"));
    assert_eq!(leaked, None);
}

#[test]
fn each_principal_has_its_own_upstream_processes() {
    let place = place();
    let marker = unique_marker();
    configure(&place, &[("up", "counts", &[&marker])], "");
    let keys = [key(&place, "anna"), key(&place, "bert")];
    let server = GatewayServer::start(&place, &[]);
    let call = |user: usize| {
        let login = ("Authorization", keys[user].as_str());
        let session = server.session(&[login]);
        let call = json!({"name": "up__echo", "arguments": {}});
        let own = [login, ("Mcp-Session-Id", session.as_str())];
        let called = server.post(&own, &request(2, "tools/call", &call)).message();
        called["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{called}")).to_owned()
    };
    // The server counts its calls. Two sessions of one principal share a process.
    assert_eq!(
        [call(0), call(0), call(1), call(0), call(1)].map(|text| text.replace("call ", "")),
        ["1", "2", "1", "3", "2"]
    );
    assert_eq!(processes_of_server(&marker), 2);
}

/// Returns the number of upstream processes with this marker, not counting those that watch the sandbox.
fn processes_of_server(marker: &str) -> usize {
    let is_server = |id: &i32| {
        std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|words| words.starts_with(b"python3"))
    };
    processes_with(marker).into_iter().filter(is_server).count()
}

#[test]
fn cached_result_never_reaches_another_principal() {
    let place = place();
    let entry = place.misbehaving_server("counts", &[]);
    let server =
        format!(r#"{{{entry}, "effects": {{"echo": "read-only"}}, "toolsCache": {{"echo": "1h"}}}}"#);
    place.file("home/haft.json", &format!(r#"{{"mcpServers": {{"up": {server}}}}}"#));
    let keys = [key(&place, "anna"), key(&place, "bert")];
    // The server counts its calls, so the number shows which call a result comes from.
    let ask = |server: &GatewayServer, login: &[(&str, &str)], text: &str| {
        let session = server.session(login);
        let own = [login, &[("Mcp-Session-Id", session.as_str())]].concat();
        let call = json!({"name": "up__echo", "arguments": {"text": text}});
        let called = server.post(&own, &request(2, "tools/call", &call)).message();
        called["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{called}")).to_owned()
    };
    let server = GatewayServer::start(&place, &[]);
    let anna = |text: &str| ask(&server, &[("Authorization", &keys[0])], text);
    let bert = |text: &str| ask(&server, &[("Authorization", &keys[1])], text);
    assert_eq!([anna("a"), anna("b"), anna("b")], ["call 1", "call 2", "call 2"]);
    assert_eq!([bert("b"), bert("b")], ["call 1", "call 1"], "the first call of this principal");
    drop(server);
    // Without keys, all clients are one principal.
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let other = |text: &str| ask(&server, &[], text);
    assert_eq!([other("a"), other("b"), other("b")], ["call 1", "call 2", "call 2"]);
}

#[test]
fn untrusted_text_restricts_only_the_session_that_read_it_even_after_a_reload() {
    let place = place();
    configure(&place, &[("up", "good", &[])], r#", "policy": {"afterUntrusted": "deny"}"#);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let sessions = [server.session(&[]), server.session(&[])];
    let call = |session: usize, tool: &str| {
        let params = json!({"name": tool, "arguments": {"text": "hi"}});
        let own = [("Mcp-Session-Id", sessions[session].as_str())];
        server.post(&own, &request(2, "tools/call", &params)).message()["result"].to_string()
    };
    assert!(call(0, "up__echo").contains("echo: hi"));
    let refused = call(0, "up__echo");
    assert!(refused.contains("has read untrusted text from `up__echo`"), "{refused}");
    assert!(call(1, "up__echo").contains("echo: hi"), "the other session has read nothing");
    configure(
        &place,
        &[("up", "good", &[]), ("new", "good", &[])],
        r#", "policy": {"afterUntrusted": "deny"}"#,
    );
    server.reload();
    eventually("the reload", || server_tools(&server, &sessions[0]).contains("new__echo"));
    for session in [0, 1] {
        let refused = call(session, "new__echo");
        assert!(refused.contains("has read untrusted text from `up__echo`"), "{refused}");
    }
}

fn server_tools(server: &GatewayServer, session: &str) -> String {
    server.post(&[("Mcp-Session-Id", session)], &request(3, "tools/list", &json!({}))).message().to_string()
}

#[test]
fn untrusted_text_restricts_all_stateless_requests_of_a_principal() {
    let place = place();
    configure(&place, &[("up", "good", &[])], r#", "policy": {"afterUntrusted": "deny"}"#);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let call = |capabilities: serde_json::Value| {
        let mut call = request(1, "tools/call", &json!({"name": "up__echo", "arguments": {"text": "hi"}}));
        call["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__echo")];
        server.post(&headers, &call).message()["result"].to_string()
    };
    assert!(call(json!({})).contains("echo: hi"));
    // Other capabilities open other tools, but the principal is the same.
    for capabilities in [json!({}), json!({"roots": {}})] {
        let refused = call(capabilities);
        assert!(refused.contains("has read untrusted text"), "{refused}");
    }
}
