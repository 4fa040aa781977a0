//! Tests of the metadata that haft sends with a call, of requests from servers during a call, and of tool lists that
//! change during a call.

use super::{McpCallStream, configure, tree};
use haft_testkit::{SpanCollector, TestTree, eventually};
use serde_json::{Value, json};

fn call(tree: &TestTree, tool: &str) -> Value {
    let ran = tree.haft(&["call", tool, "{}"]).output().expect_code(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stdout))
}

#[test]
fn mcp_call_carries_traceparent() {
    let tree = tree();
    configure(&tree, "shows-meta", &[], "");
    let parent = |meta: Value| meta["traceparent"].as_str().unwrap().to_owned();
    let (one, other) = (parent(call(&tree, "bad__echo")), parent(call(&tree, "bad__echo")));
    assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [2, 32, 16, 2], "{one}");
    assert_ne!(one, other, "each session has its own trace");
}

#[test]
fn traceparent_matches_the_exported_span() {
    let tree = tree();
    configure(&tree, "shows-meta", &[], "");
    let collector = SpanCollector::start();
    let run = tree.haft(&["call", "bad__echo", "{}"]);
    let ran = run.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).output().expect_code(0);
    let meta: Value = serde_json::from_str(&ran.stdout).unwrap();
    let span = collector.spans().remove(0);
    let expected = format!("00-{}-{}-01", span.trace, span.id);
    assert_eq!(meta["traceparent"], expected);
}

#[test]
fn roots_are_sent_only_if_configured() {
    let tree = tree();
    configure(&tree, "asks-roots", &[], r#", "roots": true"#);
    let uri = format!("file://{}", tree.path("ws").display());
    assert_eq!(call(&tree, "bad__echo"), json!({ "roots": [{ "uri": uri }] }));
    configure(&tree, "asks-roots", &[], "");
    assert_eq!(call(&tree, "bad__echo")["code"], -32601);
}

#[test]
fn elicitation_is_declined_without_a_terminal() {
    let tree = tree();
    configure(&tree, "asks-person", &[], "");
    assert_eq!(call(&tree, "bad__echo"), json!({ "action": "decline" }));
    configure(&tree, "modern", &[], "");
    let expected = json!([{ "colour": { "action": "decline" } }, "s-17"]);
    assert_eq!(call(&tree, "bad__slow"), expected, "haft returns the state of the server unchanged");
}

#[test]
fn repeated_input_requests_fail_the_call() {
    let tree = tree();
    configure(&tree, "modern", &[], "");
    let ran = tree.haft(&["call", "bad__fail", "{}"]).output().expect_code(3);
    assert!(ran.stdout.contains("more than 8 times"), "{ran:?}");
}

/// Runs haft on a terminal, types the line once the terminal shows the question, and returns the whole output.
pub(super) fn answered_at_a_terminal(tree: &TestTree, words: &[&str], question: &str, typed: &str) -> String {
    let mut run = tree.haft(words).on_terminal();
    run.wait_for(question);
    run.type_keys(typed);
    run.finish().stdout
}

/// Runs haft on a terminal and returns the whole output.
pub(super) fn at_a_terminal(tree: &TestTree, words: &[&str]) -> String {
    tree.haft(words).on_terminal().finish().stdout
}

#[test]
fn terminal_user_answers_elicitation_with_and_without_handshake() {
    for (mode, tool) in [("asks-person", "echo"), ("modern", "slow")] {
        let tree = tree();
        configure(&tree, mode, &[], "");
        let tool = format!("bad__{tool}");
        let answered = |typed| answered_at_a_terminal(&tree, &["call", &tool, "{}"], "(text", typed);
        let shown = answered("deep red\n");
        assert!(shown.contains("`bad` asks: Which colour?"), "{mode}: {shown}");
        assert!(shown.contains("\"accept\"") && shown.contains("\"deep red\""), "{mode}: {shown}");
        let shown = answered("\n");
        assert!(shown.contains("\"decline\""), "{mode}: {shown}");
    }
}

/// A request without fields asks only for agreement. Any answer other than an explicit yes is a refusal.
#[test]
fn yes_or_no_elicitation_accepts_only_yes() {
    let tree = tree();
    configure(&tree, "asks-whether", &[], "");
    for (typed, expected) in [("yes\n", "\"accept\""), ("no\n", "\"decline\""), ("\n", "\"decline\"")] {
        let words = ["call", "bad__echo", "{}"];
        let shown = answered_at_a_terminal(&tree, &words, "(yes or no", typed);
        assert!(
            shown.contains("`bad` asks: Delete it all?") && shown.contains(expected),
            "{typed:?}: {shown}"
        );
    }
}

#[test]
fn slow_server_start_shows_progress_on_terminal() {
    let tree = tree();
    configure(&tree, "silent-on-probe", &[], "");
    let shown = at_a_terminal(&tree, &["tools"]);
    assert!(shown.contains("preparing tools") && shown.contains("bad__echo"), "{shown}");
}

#[test]
fn server_prompts_are_appended_to_instructions() {
    let tree = tree();
    configure(&tree, "prompts", &[], "");
    let ran = tree.haft(&["mcp", "test", "bad", "--json"]).output().expect_code(0);
    let tried: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(tried["instructions"], "Be kind.\n\nThe server also has prompts:\n- review: Reviews code");
}

#[test]
fn tool_list_change_during_a_call_applies_after_it() {
    let tree = tree();
    configure(&tree, "changes", &[], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    assert!(stream.ask("bad__late", r#"{"text":"x"}"#).contains("unknown_tool"));
    // The server announces its changed tool list before it answers this call.
    assert!(stream.ask("bad__slow", r#"{"text":"mine"}"#).contains("echo: mine"));
    let late = || stream.ask("bad__late", r#"{"text":"new"}"#).contains("echo: new");
    eventually("the tool list has the new tool", late);
    stream.end();
}

#[test]
fn ended_change_subscription_is_reopened() {
    let tree = tree();
    configure(&tree, "modern", &["listens"], "");
    let mut stream = McpCallStream::open(&tree, &[]);
    let late = || stream.ask("bad__late", r#"{"text":"new"}"#).contains("echo: new");
    eventually("the tool list has the new tool", late);
    stream.end();
}

#[test]
fn more_than_sixteen_mcp_servers_can_start_at_once() {
    const SERVERS: usize = 18;
    let tree = tree();
    let meeting = tree.directory("ws/meeting");
    let server = |number: usize| {
        let (number, all) = (number.to_string(), SERVERS.to_string());
        let words = [meeting.to_str().unwrap(), &number, &all];
        format!("\"s{number}\": {{{}}}", tree.misbehaving_server("waits-for-others", &words))
    };
    let servers: Vec<String> = (0..SERVERS).map(server).collect();
    let config = format!("{{\"maxMcpStarts\": {SERVERS}, \"mcpServers\": {{{}}}}}", servers.join(", "));
    tree.file("home/haft.json", &config);
    // Each server waits for all others: if fewer were started concurrently, none would ever be ready.
    let listed = tree.haft(&["tools"]).output().expect_code(0);
    assert!((0..SERVERS).all(|number| listed.stdout.contains(&format!("s{number}__echo"))), "{listed:?}");
}

#[test]
fn each_server_name_gets_a_separate_process() {
    let tree = tree();
    let server = tree.misbehaving_server("counts", &[]);
    tree.file(
        "home/haft.json",
        &format!("{{\"mcpServers\": {{\"one\": {{{server}}}, \"two\": {{{server}}}}}}}"),
    );
    let mut stream = McpCallStream::open(&tree, &[]);
    assert!(stream.ask("one__echo", "{}").contains("call 1"));
    assert!(stream.ask("one__echo", "{}").contains("call 2"));
    assert!(stream.ask("two__echo", "{}").contains("call 1"));
    stream.end();
}

#[test]
fn colliding_server_name_is_skipped_with_an_error() {
    let tree = tree();
    let server = tree.misbehaving_server("good", &[]);
    tree.file(
        "home/haft.json",
        &format!("{{\"mcpServers\": {{\"a b\": {{{server}}}, \"a.b\": {{{server}}}}}}}"),
    );
    let listed = tree.haft(&["tools"]).output().expect_code(0);
    assert!(listed.stdout.contains("a_b__echo"), "{}", listed.stdout);
    assert_eq!(listed.stderr.matches("haft cannot use MCP server `a.b`").count(), 1, "{}", listed.stderr);
    assert!(listed.stderr.contains("tool names of `a b`"), "{}", listed.stderr);
    let rows = tree.haft(&["mcp", "list", "--json"]).output().expect_code(0).stdout;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!((&rows[0]["state"], &rows[0]["tools"]), (&json!("known"), &json!(3)), "{rows}");
    assert_eq!((&rows[1]["state"], &rows[1]["tools"]), (&json!("unusable"), &Value::Null), "{rows}");
    for command in ["logs", "test", "login", "logout"] {
        let ran = tree.haft(&["mcp", command, "a.b"]).output().expect_code(42);
        assert!(ran.stderr.contains("tool names of `a b`"), "{command}: {ran:?}");
    }
    tree.haft(&["mcp", "logs", "a b"]).output().expect_code(0);
    tree.haft(&["mcp", "remove", "a.b"]).output().expect_code(0);
    assert!(tree.exists("home/data/mcp/a_b.json"), "the catalog file belongs to the server `a b`");
    tree.haft(&["mcp", "remove", "a b"]).output().expect_code(0);
    assert!(!tree.exists("home/data/mcp/a_b.json"));
}

#[test]
fn server_start_failure_is_reported_once() {
    let tree = tree();
    configure(&tree, "exits-at-once", &[], "");
    let ran = tree.haft(&["call", "bad__echo", "{}"]).output().expect_code(5);
    assert_eq!(ran.stderr.matches("no licence found").count(), 1, "{}", ran.stderr);
    // haft also reports a warning that is not about the called tool.
    let ran = tree.haft(&["call", "nothing__like_it", "{}"]).output();
    assert_eq!(ran.stderr.matches("no licence found").count(), 1, "{}", ran.stderr);
}
