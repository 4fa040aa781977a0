//! Tests of gateway profiles: by option, by path and by the name of the client, in both kinds of protocol revisions.

use haft_testkit::{TestTree, eventually};
use serde_json::{Value, json};

use super::http::{GatewayReply, GatewayServer, request};
use super::{McpClient, configure, place, text};

/// The test clients have the names `test` (standard streams) and `t` or `named` (HTTP).
const PROFILES: &str = r#", "tools": {"docs__echo": {"effects": "read-only"}}, "groups": {"echoes": ["*__echo"]},
    "gateway": {"profiles": {
        "docs": {"tools": ["docs__*"]},
        "echoes": {"groups": ["echoes"], "clients": ["te*", "named"]},
        "reading": {"groups": ["up", "docs"], "readOnly": true},
        "found": {"tools": ["docs__echo"], "expose": "search"},
        "nothing": {"tools": []}
    }}"#;

fn configured() -> TestTree {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("docs", "good", &[])], PROFILES);
    place
}

/// Starts clients of both kinds of protocol revisions.
fn clients(place: &TestTree, flags: &[&str]) -> [McpClient; 2] {
    [McpClient::handshake(place, flags, json!({})), McpClient::stateless(place, flags, json!({}))]
}

/// Checks the tools that clients on the standard streams see.
#[track_caller]
fn check(place: &TestTree, flags: &[&str], expected: &[&str]) {
    for mut client in clients(place, flags) {
        assert_eq!(client.names(), expected, "{flags:?}");
    }
}

#[test]
fn option_selects_exactly_one_profile_and_other_options_narrow_it() {
    let place = configured();
    check(&place, &["--profile", "docs"], &["docs__echo", "docs__fail", "docs__slow"]);
    check(&place, &["--profile", "docs", "--tools", "*__echo"], &["docs__echo"]);
    check(&place, &["--profile", "docs", "--group", "up"], &[]);
    check(&place, &["--profile", "docs", "--read-only"], &["docs__echo"]);
    check(&place, &["--profile", "reading"], &["docs__echo"]);
    check(&place, &["--profile", "nothing"], &[]);
    check(&place, &["--profile", "found"], &["tool_call", "tool_describe", "tool_search"]);
    check(
        &place,
        &["--profile", "docs", "--expose", "search"],
        &["tool_call", "tool_describe", "tool_search"],
    );
    for mut client in clients(&place, &["--profile", "docs"]) {
        assert_eq!(text(&client.call("docs__echo", json!({"text": "hi"}))), "echo: hi");
        let id = client.begin("tools/call", json!({"name": "up__echo", "arguments": {"text": "hi"}}));
        let refused = client.reply(id).to_string();
        assert!(!refused.contains("echo: hi"), "{refused}");
    }
}

#[test]
fn unknown_profile_is_a_usage_error_that_names_the_known_ones() {
    let place = configured();
    let ran = place.haft(&["mcp", "serve", "--profile", "none"]).output().expect_code(2);
    let expected = "there is no profile `none`; `gateway.profiles` in haft.json has docs, echoes, found";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn client_gets_the_profile_that_matches_its_name_and_options_narrow_it() {
    let place = configured();
    check(&place, &[], &["docs__echo", "up__echo"]);
    check(&place, &["--tools", "up__*"], &["up__echo"]);
    check(&place, &["--group", "builtin"], &[]);
}

#[test]
fn search_profile_finds_only_its_tools_and_says_so_in_its_instructions() {
    let place = configured();
    let mut client = McpClient::start(&place, &["--profile", "found"]);
    let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let greeted = client.ask("initialize", greeting);
    assert!(greeted["instructions"].as_str().unwrap().contains("tool_search"), "{greeted}");
    let found = client.call("tool_search", json!({"query": "echo"})).to_string();
    assert!(found.contains("docs__echo") && !found.contains("up__echo"), "{found}");
    let call = |name: &str| json!({"name": name, "arguments": {"text": "hi"}});
    assert_eq!(text(&client.call("tool_call", call("docs__echo"))), "echo: hi");
    let refused = client.call("tool_call", call("up__echo")).to_string();
    assert!(!refused.contains("echo: hi"), "{refused}");
}

/// Begins a session at a path, and returns its headers.
fn begin(server: &GatewayServer, path: &str, client: &str) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"},
    });
    let greeted = server.send_to(path, "POST", &[], &request(1, "initialize", &params).to_string());
    assert_eq!(greeted.status(), 200, "{greeted:?}");
    greeted.header("mcp-session-id")
}

fn list(server: &GatewayServer, path: &str, session: &str) -> GatewayReply {
    let body = request(2, "tools/list", &json!({})).to_string();
    server.send_to(path, "POST", &[("Mcp-Session-Id", session)], &body)
}

/// Lists the tools in a protocol revision without sessions.
fn list_stateless(server: &GatewayServer, path: &str, client: &str) -> GatewayReply {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
    });
    let body = request(1, "tools/list", &json!({ "_meta": meta })).to_string();
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    server.send_to(path, "POST", &headers, &body)
}

fn names(reply: &GatewayReply) -> Vec<String> {
    let message = reply.message();
    let tools = message["result"]["tools"].as_array().unwrap_or_else(|| panic!("{message}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn path_selects_a_profile_over_http() {
    let place = configured();
    let serve = ["serve", "--address", "127.0.0.1:0", "--no-auth"];
    let server = GatewayServer::of(place.haft(&serve).start());
    let check = |path: &str, client: &str, expected: &[&str]| {
        let session = begin(&server, path, client);
        assert_eq!(names(&list(&server, path, &session)), expected, "{path} {client}");
        assert_eq!(names(&list_stateless(&server, path, client)), expected, "{path} {client}");
        session
    };
    let docs = check("/mcp/docs", "t", &["docs__echo", "docs__fail", "docs__slow"]);
    check("/mcp/docs", "named", &["docs__echo", "docs__fail", "docs__slow"]);
    check("/mcp/reading", "t", &["docs__echo"]);
    check("/mcp", "named", &["docs__echo", "up__echo"]);
    let all = begin(&server, "/mcp", "t");
    assert!(names(&list(&server, "/mcp", &all)).contains(&"up__slow".to_owned()));

    // A session belongs to its path, so a client cannot leave its profile.
    assert_eq!(list(&server, "/mcp", &docs).status(), 404);
    assert_eq!(list(&server, "/mcp/reading", &docs).status(), 404);
    assert_eq!(list(&server, "/mcp/docs", &all).status(), 404);
    for path in ["/mcp/none", "/mcp/none/more", "/mcp/DOCS"] {
        assert_eq!(list_stateless(&server, path, "t").status(), 404, "{path}");
    }
    let call = json!({"name": "up__echo", "arguments": {"text": "hi"}});
    let body = request(3, "tools/call", &call).to_string();
    let refused = server.send_to("/mcp/docs", "POST", &[("Mcp-Session-Id", &docs)], &body).message();
    assert!(!refused.to_string().contains("echo: hi"), "{refused}");
}

#[test]
fn client_over_http_cannot_see_more_tools_than_an_option_selects() {
    let place = configured();
    let server = GatewayServer::start(&place, &["--no-auth", "--profile", "docs"]);
    assert_eq!(names(&list_stateless(&server, "/mcp", "named")), ["docs__echo", "docs__fail", "docs__slow"]);
    assert_eq!(list_stateless(&server, "/mcp/reading", "t").status(), 404);
    let server = GatewayServer::start(&place, &["--no-auth", "--tools", "*__echo"]);
    assert_eq!(names(&list_stateless(&server, "/mcp/docs", "t")), ["docs__echo"]);
}

#[test]
fn reload_replaces_and_removes_profiles() {
    let place = configured();
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = begin(&server, "/mcp/docs", "t");
    assert_eq!(names(&list(&server, "/mcp/docs", &session)), ["docs__echo", "docs__fail", "docs__slow"]);
    let rewrite = |profiles: &Value| {
        let keys = format!(r#", "gateway": {{"profiles": {profiles}}}"#);
        configure(&place, &[("up", "good", &[]), ("docs", "good", &[])], &keys);
        server.reload();
    };
    rewrite(&json!({"docs": {"tools": ["docs__echo"]}}));
    eventually("the session has the new profile", || {
        names(&list(&server, "/mcp/docs", &session)) == ["docs__echo"]
    });
    rewrite(&json!({}));
    eventually("the profile is gone", || list(&server, "/mcp/docs", &session).status() == 404);
}

#[test]
fn request_without_a_key_is_refused_whether_or_not_the_profile_exists() {
    let place = configured();
    let server = GatewayServer::of(place.haft(&["serve", "--address", "127.0.0.1:0"]).start());
    for path in ["/mcp/docs", "/mcp/none"] {
        assert_eq!(list_stateless(&server, path, "t").status(), 401, "{path}");
    }
}
