//! Tests of the protocol with well-behaved clients, for revisions with and without a handshake.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use haft_testkit::{processes_with, unique_marker};
use serde_json::{Value, json};

use super::http::{GatewayServer, request};
use super::{McpClient, configure, place, text};

#[test]
fn client_and_server_may_use_different_protocol_revisions() {
    for server in ["good", "modern"] {
        let place = place();
        configure(&place, &[("up", server, &[])], "");
        let clients: [fn(&haft_testkit::TestTree) -> McpClient; 2] = [
            |place| McpClient::handshake(place, &[], json!({})),
            |place| McpClient::stateless(place, &[], json!({})),
        ];
        for client in clients {
            let mut client = client(&place);
            let names = client.names();
            assert!(names.contains(&"bash".into()) && names.contains(&"up__echo".into()), "{names:?}");
            assert!(names.is_sorted(), "{names:?}");
            let echoed = client.call("up__echo", json!({"text": "hi"}));
            assert_eq!(text(&echoed), "echo: hi", "{server}");
            let is_modern = client.meta.is_some();
            assert_eq!(echoed.get("resultType").is_some(), is_modern, "{echoed}");
            let failed = client.call("up__fail", json!({}));
            if server == "good" {
                assert_eq!((text(&failed), &failed["isError"]), ("it went wrong", &json!(true)));
            }
            let own = client.call("bash", json!({"command": "echo from haft"}));
            assert_eq!(text(&own).trim(), "from haft");
            assert_eq!(client.end(), 0);
        }
    }
}

#[test]
fn gateway_offers_the_servers_of_an_mcp_config_file() {
    let place = place();
    configure(&place, &[], "");
    let server: Value =
        serde_json::from_str(&format!("{{{}}}", place.misbehaving_server("good", &[]))).unwrap();
    let (command, args) = (&server["command"], &server["args"]);
    let file =
        place.file("ws/codex.toml", &format!("[mcp_servers.once]\ncommand = {command}\nargs = {args}\n"));
    let mut client = McpClient::handshake(&place, &["--mcp-config", file.to_str().unwrap()], json!({}));
    assert_eq!(text(&client.call("once__echo", json!({"text": "hi"}))), "echo: hi");
    assert_eq!(client.end(), 0);
}

#[test]
fn upstream_definitions_keep_members_that_haft_does_not_know() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"] == "up__echo").unwrap();
    assert_eq!((&echo["vendor"], &echo["annotations"]["readOnlyHint"]), (&json!(1), &json!(true)), "{echo}");
    let bash = tools.iter().find(|tool| tool["name"] == "bash").unwrap();
    assert_eq!(bash["inputSchema"]["type"], "object", "{bash}");
}

#[test]
fn icons_title_and_metadata_of_a_definition_arrive_unchanged() {
    let place = place();
    configure(&place, &[("up", "decorated", &[])], "");
    let icon = json!({"src": "https://example.com/e.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"});
    let sent = json!({"name": "up__echo", "title": "Echo", "description": "Returns a text", "icons": [icon],
        "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}, "vendor": 1, "_meta": {"example.com/rank": {"a": [1, null]}}});
    let clients =
        [McpClient::handshake(&place, &[], json!({})), McpClient::stateless(&place, &[], json!({}))];
    for mut client in clients {
        let listed = client.ask("tools/list", json!({}));
        let mut tools = listed["tools"].as_array().unwrap().iter();
        assert_eq!(tools.find(|tool| tool["name"] == "up__echo"), Some(&sent));
    }
}

#[test]
fn discovery_names_the_server_and_its_versions() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::stateless(&place, &["--name", "docs"], json!({}));
    let found = client.ask("server/discover", json!({}));
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "docs");
    assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")));
    let listed = client.ask("tools/list", json!({}));
    assert!(listed["ttlMs"].is_u64() && listed["cacheScope"] == "private", "{listed}");
}

#[test]
fn initialize_is_answered_before_any_server_has_started() {
    let place = place();
    let servers: Vec<String> = (0..10).map(|number| format!("s{number}")).collect();
    let silent: Vec<(&str, &str, &[&str])> =
        servers.iter().map(|name| (name.as_str(), "never-greets", &[] as &[&str])).collect();
    configure(&place, &silent, r#", "mcp": {"readyWait": "50ms"}"#);
    // The handshake returns although no server ever answers. The tool list also returns, after `readyWait`.
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert_eq!(client.ask("ping", json!({})), json!({}));
    assert!(client.names().contains(&"bash".into()));
}

#[test]
fn only_selected_groups_and_tools_are_listed_and_called() {
    let place = place();
    configure(&place, &[("up", "good", &[]), ("other", "good", &[])], "");
    let check = |flags: &[&str], expected: &[&str]| {
        let mut client = McpClient::handshake(&place, flags, json!({}));
        assert_eq!(client.names(), expected, "{flags:?}");
        client.end();
    };
    check(&["--group", "up"], &["up__echo", "up__fail", "up__slow"]);
    check(&["--tools", "*__echo"], &["other__echo", "up__echo"]);
    check(&["--tools", "up__echo", "--tools", "bash"], &["bash", "up__echo"]);
    let mut client = McpClient::handshake(&place, &["--group", "up"], json!({}));
    let refused = client.call("bash", json!({"command": "true"}));
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("not among the tools"), "{refused}");
}

#[test]
fn read_only_flag_offers_only_tools_that_are_known_to_be_read_only() {
    let place = place();
    // The server claims that `echo` only reads. haft does not rely on the claim alone.
    configure(&place, &[("up", "good", &[])], "");
    let mut client = McpClient::handshake(&place, &["--read-only"], json!({}));
    let names = client.names();
    assert!(names.contains(&"read".into()) && !names.contains(&"bash".into()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("up__")), "{names:?}");
    let refused = client.call("write", json!({"file_path": "x", "content": "y"}));
    assert!(text(&refused).contains("known to be read-only"), "{refused}");
    client.end();
    let server = place.misbehaving_server("good", &[]);
    let config = format!(r#"{{"mcpServers": {{"up": {{{server}, "effects": {{"echo": "read-only"}}}}}}}}"#);
    place.file("home/haft.json", &config);
    let mut client = McpClient::handshake(&place, &["--read-only"], json!({}));
    assert!(client.names().contains(&"up__echo".into()));
}

#[test]
fn list_changes_reach_clients_with_and_without_handshake() {
    let place = place();
    configure(&place, &[("up", "changes", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert!(!client.names().contains(&"up__late".into()));
    client.call("up__echo", json!({}));
    client.wait_for("notifications/tools/list_changed");
    assert!(client.names().contains(&"up__late".into()));
    client.end();

    let place = place_with_changes();
    let mut client = McpClient::stateless(&place, &[], json!({}));
    client.names();
    let id = client.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let acknowledged = client.wait_for("notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    client.call("up__echo", json!({}));
    let changed = client.wait_for("notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
}

#[test]
fn gateway_reports_a_later_change_of_definitions_to_the_operator_once() {
    let place = place_with_changes();
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.names();
    client.call("up__echo", json!({}));
    client.wait_for("notifications/tools/list_changed");
    let errors = BufReader::new(client.child.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    let reader =
        thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let is_report = |line: &String| line.contains("the provider added `late`");
    let within = Duration::from_mins(1);
    while !is_report(&lines.recv_timeout(within).unwrap()) {}
    assert_eq!(client.end(), 0);
    assert!(!lines.iter().any(|line| is_report(&line)));
    reader.join().unwrap().unwrap();
}

fn place_with_changes() -> haft_testkit::TestTree {
    let place = place();
    configure(&place, &[("up", "changes", &[])], "");
    place
}

#[test]
fn progress_of_a_tool_reaches_the_client_and_only_grows() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    // While a server starts, haft itself reports progress, which has no total.
    client.names();
    let params = json!({"name": "up__slow", "arguments": {}, "_meta": {"progressToken": "p"}});
    let id = client.begin("tools/call", params);
    client.reply(id);
    let is_progress = |message: &&Value| message["method"] == "notifications/progress";
    let told: Vec<&Value> = client.others.iter().filter(is_progress).collect();
    assert!(told.iter().all(|message| message["params"]["total"].as_f64() == Some(3.0)), "{told:?}");
    let steps: Vec<f64> =
        told.iter().map(|message| message["params"]["progress"].as_f64().unwrap()).collect();
    // The progress of the last step may arrive together with the result, which ends the notifications.
    assert!(steps.len() >= 2 && steps.is_sorted_by(|one, two| one < two), "{steps:?}");
    assert!((steps[0] - 1.0).abs() < 0.01, "{steps:?}");
}

#[test]
fn large_output_is_stored_and_read_with_tool_output() {
    let place = place();
    configure(&place, &[], r#", "maxToolResponseBytes": 2000"#);
    let mut client = McpClient::handshake(&place, &[], json!({}));
    assert!(client.names().contains(&"tool_output".into()));
    let stored = client.call("bash", json!({"command": "seq 1 100000"}));
    // The handle of the stored output follows the text.
    let told = stored["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{stored:.400}"));
    let begin = told.find("session-").unwrap_or_else(|| panic!("{told}"));
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '/' || c == '_';
    let handle: String = told[begin..].chars().take_while(|c| is_part(*c)).collect();
    let last = client.call("tool_output", json!({"handle": handle, "extract": "last 1 lines"}));
    assert!(text(&last).contains("100000"), "{last}");
}

#[test]
fn no_upstream_server_outlives_the_client_of_the_gateway() {
    let place = place();
    let marker = unique_marker();
    configure(&place, &[("up", "good", &[&marker])], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.call("up__echo", json!({}));
    assert!(!processes_with(&marker).is_empty());
    assert_eq!(client.end(), 0);
    assert!(processes_with(&marker).is_empty());
}

#[test]
fn calls_of_the_gateway_are_accounted() {
    let place = place();
    configure(&place, &[], "");
    let mut client = McpClient::handshake(&place, &[], json!({}));
    client.call("bash", json!({"command": "true"}));
    client.end();
    let stats = place.haft(&["stats", "--json"]).output().expect_code(0);
    let stats: Value = serde_json::from_str(&stats.stdout).unwrap();
    assert!(stats.to_string().contains("bash"), "{stats}");
}

/// Files, pipes and sockets are polled in different ways.
#[test]
fn every_kind_of_standard_stream_carries_messages() {
    let place = place();
    configure(&place, &[], "");
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let lines = [("initialize", hello), ("ping", json!({}))].map(|(method, params)| {
        json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).to_string() + "\n"
    });
    let input = place.file("outside/input", &lines.concat());
    let serve = |stdin: Stdio, stdout: Stdio| {
        let mut command = Command::new(haft_testkit::binary());
        command.args(["mcp", "serve"]).env("HAFT_HOME", place.path("home")).current_dir(place.path("ws"));
        command.stdin(stdin).stdout(stdout).spawn().unwrap()
    };
    let output = std::fs::File::create(place.path("outside/output")).unwrap();
    let mut to_file = serve(std::fs::File::open(&input).unwrap().into(), output.into());
    assert!(to_file.wait().unwrap().success());
    let written = place.text("outside/output");
    assert_eq!(written.lines().count(), 2, "{written}");

    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut over_socket =
        serve(OwnedFd::from(theirs.try_clone().unwrap()).into(), OwnedFd::from(theirs).into());
    ours.write_all(lines.concat().as_bytes()).unwrap();
    let mut replies = BufReader::new(ours.try_clone().unwrap()).lines();
    for method in ["initialize", "ping"] {
        let reply: Value = serde_json::from_str(&replies.next().unwrap().unwrap()).unwrap();
        assert_eq!(reply["id"], method, "{reply}");
    }
    ours.shutdown(Shutdown::Write).unwrap();
    assert!(over_socket.wait().unwrap().success(), "the end of the input ends the server");
}

#[test]
fn client_of_the_revision_with_batches_may_send_several_messages_at_once() {
    let place = place();
    configure(&place, &[("up", "good", &[])], "");
    let batch = json!([
        {"jsonrpc": "2.0", "id": 11, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 12, "method": "tools/call", "params": {"name": "up__echo", "arguments": {"text": "hi"}}},
    ]);
    for (revision, is_supported) in
        [("2024-11-05", false), ("2025-03-26", true), ("2025-06-18", false), ("2025-11-25", false)]
    {
        let greeting = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {}});
        let mut client = McpClient::start(&place, &[]);
        client.ask("initialize", greeting.clone());
        client.names();
        client.send(&batch);
        if is_supported {
            assert_eq!(client.reply(11)["result"], json!({}));
            assert_eq!(text(&client.reply(12)["result"]), "echo: hi");
        } else {
            let refused = client.receive();
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&Value::Null, &json!(-32600)),
                "{refused}"
            );
        }
        client.send(&json!([]));
        assert_eq!(client.receive()["error"]["code"], -32600);
        client.end();
        let server = GatewayServer::start(&place, &["--no-auth"]);
        let session = server.post(&[], &request(1, "initialize", &greeting)).header("mcp-session-id");
        let own = [("Mcp-Session-Id", session.as_str())];
        let sent = server.send("POST", &own, &batch.to_string());
        if is_supported {
            let body = sent.body();
            assert!(body.contains(r#""id":11,"result":{}"#) && body.contains("echo: hi"), "{body}");
            let none = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
            assert_eq!(server.post(&own, &none).status(), 202);
        } else {
            assert_eq!(sent.status(), 400, "{revision}");
        }
    }
}
