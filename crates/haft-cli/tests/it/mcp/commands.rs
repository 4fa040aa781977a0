//! Tests of `haft mcp`: adding, testing, inspecting and removing a server, as a user does.

use serde_json::Value;

use super::{McpCallStream, configure, tree};
use haft_testkit::{TestTree, eventually, processes_with, send_signal, unique_marker};

fn json(tree: &TestTree, args: &[&str], code: i32) -> Value {
    serde_json::from_str(&tree.haft(args).output().expect_code(code).stdout).unwrap()
}

/// Returns the command line of the test server, as a user would type it.
fn typed(tree: &TestTree, mode: &str) -> Vec<String> {
    let entry: Value = serde_json::from_str(&format!("{{{}}}", tree.misbehaving_server(mode, &[]))).unwrap();
    let args = entry["args"].as_array().unwrap().iter();
    let words = std::iter::once(&entry["command"]).chain(args);
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn mcp_add_and_remove_preserve_the_rest_of_the_config() {
    let tree = tree();
    tree.file("home/haft.json", "{\n  // mine\n  \"toolTimeout\": \"9s\",\n}\n");
    let words = typed(&tree, "good");
    let mut args = vec!["mcp", "add", "time", "--env", "A=b", "--"];
    args.extend(words.iter().map(String::as_str));
    let added = tree.haft(&args).output().expect_code(0);
    assert!(added.stdout.contains("added `time`") && added.stdout.contains(": 3 tools (about "), "{added:?}");
    assert!(added.stdout.contains("`haft mcp test time` lists the tools"), "{added:?}");
    assert!(tree.text("home/haft.json").contains("// mine"));
    let again = tree.haft(&args).output().expect_code(42);
    assert!(again.stderr.contains("already has an entry `time`"), "{}", again.stderr);

    assert_eq!(json(&tree, &["mcp", "list", "--json"], 0)[0]["state"], "known");
    let tried = json(&tree, &["mcp", "test", "time", "--json"], 0);
    assert_eq!((&tried["ready"], &tried["transport"]), (&Value::Bool(true), &Value::from("stdio")));
    assert_eq!((&tried["protocol"], &tried["era"]), (&"2025-11-25".into(), &"handshake".into()));
    assert_eq!(tried["tools"].as_array().unwrap().len(), 3);
    let listed = &json(&tree, &["mcp", "list", "--json"], 0)[0];
    assert_eq!((&listed["state"], &listed["tools"]), (&"known".into(), &3.into()));
    let shown = tree.haft(&["mcp", "list"]).output().expect_code(0);
    assert!(shown.stdout.contains("3 tools, protocol 2025-11-25"), "{}", shown.stdout);

    tree.haft(&["mcp", "remove", "time"]).output().expect_code(0);
    let text = tree.text("home/haft.json");
    assert!(text.contains("// mine") && !text.contains("\"time\""), "{text}");
    assert!(!tree.path("home/data/mcp/time.json").exists() && !tree.path("home/cache/time").exists());
    let gone = tree.haft(&["mcp", "test", "time"]).output().expect_code(42);
    assert!(gone.stderr.contains("no MCP server `time`"), "{}", gone.stderr);
    tree.haft(&["mcp", "remove", "time"]).output().expect_code(42);
}

#[test]
fn mcp_add_prints_the_token_cost_of_the_tools_or_why_it_is_unknown() {
    let tree = tree();
    let words = typed(&tree, "good");
    let mut args = vec!["mcp", "add", "time", "--json", "--"];
    args.extend(words.iter().map(String::as_str));
    let added = json(&tree, &args, 0);
    assert_eq!(added["tools"], 3);
    let tried = tree.haft(&["mcp", "test", "time"]).output().expect_code(0).stdout;
    assert!(tried.contains(&format!("tools      3, about {} tokens", added["tokens"])), "{added}: {tried}");
    let added = tree.haft(&["mcp", "add", "gone", "--", "no-such-program"]).output().expect_code(0);
    assert!(
        added.stdout.contains(
            "haft cannot list the tools of the server yet: the server process could not be started"
        ),
        "{added:?}"
    );
    assert!(tree.text("home/haft.json").contains("no-such-program"));
}

#[test]
fn mcp_add_edits_the_target_of_a_symlinked_config() {
    let tree = tree();
    let kept = tree.file("outside/dotfiles.json", "{\n  // mine\n}\n");
    tree.haft(&["mcp", "list"]).output().expect_code(0);
    std::os::unix::fs::symlink(&kept, tree.path("home/haft.json")).unwrap();
    tree.haft(&["mcp", "add", "a", "--", "x"]).output().expect_code(0);
    assert!(tree.path("home/haft.json").is_symlink());
    let text = tree.text("outside/dotfiles.json");
    assert!(text.contains("// mine") && text.contains("\"a\""), "{text}");
}

#[test]
fn invalid_mcp_add_arguments_write_no_config() {
    let tree = tree();
    for args in [
        &["mcp", "add", "a", "--env", "K=v", "https://example.com/mcp"][..],
        &["mcp", "add", "a", "--header", "K: v", "--", "uvx", "x"],
        &["mcp", "add", "a", "https://example.com/mcp", "more"],
        &["mcp", "add", "a", "--env", "nothing", "--", "x"],
        &["mcp", "add", "a", "--transport", "stdio", "https://e.com"],
        &["mcp", "add", "a", "--transport", "http", "--", "uvx", "x"],
        &["mcp", "add", "a", "--transport", "websocket", "https://e.com"],
        &["mcp", "add", "a", "--transport", "sse", "ws://e.com"],
        &["mcp", "add", "a", "https://"],
        &["mcp", "add", " ", "--", "x"],
    ] {
        tree.haft(args).output().expect_code(2);
    }
    assert!(!tree.path("home/haft.json").exists());
    // A valid address with a variable is accepted, and its transport is detected.
    tree.haft(&["mcp", "add", "a", "HTTPS://E.com/${PATH_OF_IT:-mcp}"]).output().expect_code(0);
    assert_eq!(json(&tree, &["mcp", "list", "--json"], 0)[0]["transport"], "http");
}

#[test]
fn project_server_applies_if_added_by_user_or_trusted() {
    let tree = tree();
    let words = typed(&tree, "good");
    let mut args = vec!["mcp", "add", "near", "--scope", "project", "--"];
    args.extend(words.iter().map(String::as_str));
    tree.haft(&args).output().expect_code(0);
    assert!(tree.text("ws/haft.json").contains("\"near\""));
    let entry = tree.misbehaving_server("good", &[]);
    tree.file("ws/.mcp.json", &format!("{{\"mcpServers\": {{\"foreign\": {{{entry}}}}}}}"));
    let names = |tree: &TestTree| {
        let listed = json(tree, &["mcp", "list", "--json"], 0);
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&tree), ["near"]);
    let trusted = json(&tree, &["trust", "--yes", "--json"], 0);
    assert!(trusted["also"][0]["path"].as_str().unwrap().ends_with(".mcp.json"), "{trusted}");
    assert_eq!(names(&tree), ["foreign", "near"]);
}

#[test]
fn skipped_tools_and_server_logs_are_reported() {
    let tree = tree();
    configure(&tree, "bad-tools", &[], "");
    let tried = json(&tree, &["mcp", "test", "bad", "--json"], 0);
    assert_eq!(tried["skipped"].as_array().unwrap().len(), 3, "{tried}");
    configure(&tree, "exits-at-once", &[], "");
    let failed = json(&tree, &["mcp", "test", "bad", "--json"], 5);
    assert!(failed["reason"].as_str().unwrap().contains("exit code 1"), "{failed}");
    let said = tree.haft(&["mcp", "logs", "bad"]).output().expect_code(0);
    assert!(said.stdout.contains("no licence found"), "{}", said.stdout);
    let last = json(&tree, &["mcp", "logs", "bad", "-n", "1", "--json"], 0);
    assert_eq!(last["lines"].as_array().unwrap().len(), 1);
    tree.haft(&["mcp", "logs", "nobody"]).output().expect_code(42);
}

#[test]
fn server_log_is_readable_while_running_and_after_kill() {
    let tree = tree();
    configure(&tree, "talks", &[], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    stream.ask("bad__echo", "{}");
    let log = || tree.haft(&["mcp", "logs", "bad"]).output().expect_code(0).stdout;
    eventually("the log of the running server has the line", || log().contains("said during a call"));
    send_signal(stream.child.id(), 9);
    stream.child.wait().unwrap();
    assert!(log().contains("said during a call"));
}

#[test]
fn server_log_gives_the_restart_reason() {
    let tree = tree();
    configure(&tree, "exits-mid-call", &[], "");
    let mut stream = McpCallStream::open(&tree, &["--trace-mcp"]);
    assert!(stream.ask("bad__slow", "{}").contains("unknown_outcome"));
    let why = "ready ► restarting: the MCP server ended with exit code 3";
    eventually("the server log has the restart reason", || tree.text("home/data/mcp/bad.log").contains(why));
    assert!(stream.end_and_read().contains(&format!("mcp bad • {why}")));
}

#[test]
fn known_keys_of_other_mcp_clients_are_ignored() {
    let tree = tree();
    let server = tree.misbehaving_server("good", &[]);
    let theirs = r#""autoApprove": ["*"], "alwaysAllow": [], "timeout": 60, "description": "Does it""#;
    let config = format!(
        "{{\"mcpServers\": {{\"off\": {{{server}, {theirs}, \"disabled\": true}}, \"on\": {{{server}, {theirs}, \"disabled\": false}}}}}}"
    );
    tree.file("home/haft.json", &config);
    let listed = json(&tree, &["mcp", "list", "--json"], 0);
    assert_eq!((&listed[0]["state"], &listed[1]["state"]), (&"disabled".into(), &"new".into()), "{listed}");
    let ran = tree.haft(&["call", "on__echo", r#"{"text": "hi"}"#]).output().expect_code(0);
    assert_eq!(ran.stdout, "echo: hi\n");
    tree.file("home/haft.json", &config.replace("autoApprove", "autoAprove"));
    tree.haft(&["mcp", "list"]).output().expect_code(42);
}

#[test]
fn mcp_list_reports_only_the_current_server_config() {
    let tree = tree();
    configure(&tree, "good", &[], "");
    json(&tree, &["mcp", "test", "bad", "--json"], 0);
    let listed = || json(&tree, &["mcp", "list", "--json"], 0)[0].clone();
    assert_eq!((&listed()["state"], &listed()["tools"]), (&"known".into(), &3.into()));
    configure(&tree, "good", &[], r#", "toolsDenied": ["slow"]"#);
    assert_eq!((&listed()["state"], &listed()["tools"]), (&"known".into(), &2.into()));
    configure(&tree, "good", &["another"], "");
    assert_eq!((&listed()["state"], &listed()["tools"]), (&"new".into(), &Value::Null));
}

#[test]
fn mcp_logs_accepts_a_config_flag() {
    let tree = tree();
    let server = tree.misbehaving_server("exits-at-once", &[]);
    tree.file("ws/one.json", &format!("{{\"mcpServers\": {{\"one\": {{{server}}}}}}}"));
    tree.haft(&["mcp", "test", "one", "--config", "one.json"]).output().expect_code(5);
    let said = tree.haft(&["mcp", "logs", "one", "--config", "one.json"]).output().expect_code(0);
    assert!(said.stdout.contains("no licence found"), "{}", said.stdout);
}

#[test]
fn mcp_test_suggests_config_for_a_denied_path() {
    let tree = tree();
    let target = tree.path("outside/notes/file");
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let script = format!("open({target:?}, 'w')\n");
    let file = tree.file("outside/starts.py", &script);
    let entry = format!("\"command\": \"python3\", \"args\": [{file:?}]");
    tree.file("home/haft.json", &format!("{{\"mcpServers\": {{\"bad\": {{{entry}}}}}}}"));
    let failed = json(&tree, &["mcp", "test", "bad", "--json"], 5);
    let granting = failed["grant"].as_str().unwrap_or_else(|| panic!("{failed}")).to_owned();
    assert!(granting.contains("writable") && granting.contains("outside/notes"), "{granting}");
    tree.file("home/haft.json", &format!("{{\"mcpServers\": {{\"bad\": {{{entry}, {granting}}}}}}}"));
    tree.haft(&["mcp", "test", "bad"]).output();
    assert!(target.exists(), "the suggested setting lets the server write the file");
}

/// The errors of these programs do not name the refused path. The programs run in the real sandbox.
#[test]
fn mcp_test_infers_permission_from_a_bare_error() {
    let tree = tree();
    let target = tree.path("outside/notes.db");
    let socket = tree.path("outside/bus");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let cases = [
        (format!("import sqlite3\nsqlite3.connect({target:?})\n"), "writable"),
        (
            format!("import socket\nsocket.socket(socket.AF_UNIX).connect({:?})\n", socket.to_str().unwrap()),
            "unixSockets",
        ),
    ];
    for (script, expected) in cases {
        let file = tree.file("outside/starts.py", &script);
        let entry = format!("\"command\": \"python3\", \"args\": [{file:?}]");
        tree.file("home/haft.json", &format!("{{\"mcpServers\": {{\"bad\": {{{entry}}}}}}}"));
        let failed = json(&tree, &["mcp", "test", "bad", "--json"], 5);
        assert!(failed["grant"].as_str().is_some_and(|grant| grant.contains(expected)), "{failed}");
    }
}

#[test]
fn effects_cache_and_queue_settings_of_a_server_apply_to_its_tools() {
    let tree = tree();
    configure(
        &tree,
        "counts",
        &[],
        r#", "cache": "1m", "toolsCache": {"slow": "off", "do.it": "off"}, "effects": {"[!e]*": "read-only"}"#,
    );
    let tools = json(&tree, &["tools", "--json"], 0);
    let fail = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "bad__fail").unwrap();
    assert_eq!(fail["effects"], "read-only");
    let mut stream = McpCallStream::open(&tree, &["--jobs", "1"]);
    let first = stream.ask("bad__echo", "{}");
    assert!(first.contains("call 1"), "{first}");
    assert!(stream.ask("bad__echo", "{}").contains("call 1"), "the second result comes from the cache");
    assert!(stream.ask("bad__slow", "{}").contains("call 2"));
    assert!(stream.ask("bad__slow", "{}").contains("call 3"), "the tool is not cached");
    assert!(stream.ask("bad__do_it", "{}").contains("call 4"));
    assert!(
        stream.ask("bad__do_it", "{}").contains("call 5"),
        "`toolsCache` matches the original name of the tool"
    );
    stream.end();
    let queue = r#", "queue": "one"}}, "queues": {"one": {"maxConcurrency": 1, "maxWaiting": 0"#;
    configure(&tree, "good", &[], queue);
    let mut stream = McpCallStream::open(&tree, &["--jobs", "2"]);
    let answers = [stream.ask_twice("bad__slow", "{}"), stream.answer()];
    assert!(answers.iter().any(|answer| answer.contains("queue_full")), "{answers:?}");
    stream.end();
}

#[test]
fn trace_mcp_prints_messages_without_secrets() {
    let tree = tree();
    configure(&tree, "good", &[], "");
    let call = ["call", "--trace-mcp", "bad__echo", r#"{"text": "hi", "api_key": "hunter2"}"#];
    let ran = tree.haft(&call).output().expect_code(0);
    assert_eq!(ran.stdout, "echo: hi\n");
    for expected in ["mcp bad ► ", "mcp bad ◄ ", "tools/call", "starting ► ready", "(hidden)"] {
        assert!(ran.stderr.contains(expected), "{expected}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    let tried = tree.haft(&["mcp", "test", "bad", "--trace-mcp"]).output().expect_code(0);
    assert!(tried.stderr.contains("mcp bad ◄ ") && tried.stderr.contains("tools/list"), "{}", tried.stderr);
}

/// A server may repeat a secret that it was given in results, on standard error, in its log and in errors.
#[test]
fn secret_echoed_by_server_is_redacted_everywhere() {
    let tree = tree();
    configure(&tree, "blabs", &[], r#", "env": {"BLAB_TOKEN": "${SECRET}"}"#);
    let run = tree.haft(&["call", "--trace-mcp", "-v", "bad__echo"]).env("SECRET", "canary-4711");
    let ran = run.output().expect_code(3);
    assert!(ran.stdout.contains("refused: [redacted]"), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("using [redacted]") && ran.stderr.contains("noise with [redacted]"),
        "{}",
        ran.stderr
    );
    let log = tree.text("home/data/mcp/bad.log");
    assert!(log.contains("begins with [redacted]"), "{log}");
    assert!(!format!("{}{}{log}", ran.stdout, ran.stderr).contains("canary-4711"));
}

#[test]
fn changed_tool_list_applies_to_the_next_call() {
    let tree = tree();
    configure(&tree, "changes", &[], "");
    let mut stream = McpCallStream::open(&tree, &["--jobs", "1"]);
    assert!(stream.ask("bad__late", "{}").contains("error"));
    assert!(stream.ask("bad__echo", r#"{"text":"x"}"#).contains("echo: x"));
    haft_testkit::eventually("the tool list has the new tool", || {
        stream.ask("bad__late", r#"{"text":"new"}"#).contains("echo: new")
    });
    stream.end();
}

#[test]
fn interrupt_during_mcp_test_leaves_no_process() {
    let tree = tree();
    let marker = unique_marker();
    configure(&tree, "never-greets", &[&marker], "");
    let mut child = tree.haft(&["mcp", "test", "bad"]).start();
    haft_testkit::eventually("haft starts the server", || !processes_with(&marker).is_empty());
    haft_testkit::send_signal(child.id(), 2);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    haft_testkit::eventually("no process of the server is left", || processes_with(&marker).is_empty());
}
