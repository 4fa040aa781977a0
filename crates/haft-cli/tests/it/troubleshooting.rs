//! Reproduces each error of `docs/troubleshooting.md`: the error names the setting to change, and the page shows the
//! real message.

use haft_model_server::ScriptStep;
use haft_testkit::{HaftOutput, TestTree};
use serde_json::json;

use super::call::here;
use super::run;

const PAGE: &str = include_str!("../../../../docs/troubleshooting.md");

fn tree(config: &str) -> TestTree {
    let tree = here();
    tree.file("home/haft.json", config);
    tree
}

/// Checks that standard error contains all strings in `said` and `shown`, and that the page contains the strings in
/// `shown`.
fn check(ran: &HaftOutput, said: &[&str], shown: &[&str]) {
    for words in said.iter().chain(shown) {
        assert!(ran.stderr.contains(words), "haft does not print `{words}`:\n{}\n{}", ran.stderr, ran.stdout);
    }
    for words in shown {
        assert!(PAGE.contains(words), "`{words}` is not on the page");
    }
}

#[test]
fn unknown_and_inactive_tool_errors_match_the_troubleshooting_page() {
    let ran = here().haft(&["call", "bsh"]).output().expect_code(42);
    check(
        &ran,
        &[],
        &["error: Unknown tool: bsh; did you mean `bash`?", "hint: `haft tools` lists all tools"],
    );
    let server = |keys: &str| {
        let tree = here();
        let command = tree.misbehaving_server("echo", &[]);
        tree.file("home/haft.json", &format!(r#"{{"mcpServers": {{"s": {{{command}, {keys}}}}}}}"#));
        tree.haft(&["call", "s__echo", r#"{"text": "x"}"#]).output()
    };
    for (keys, setting) in [
        (r#""enabled": false"#, "`mcpServers.s.enabled` is false"),
        (
            r#""env": {"A": "${HAFT_TEST_NOT_SET}"}"#,
            "mcpServers.s.env.A: variable `HAFT_TEST_NOT_SET` is not set",
        ),
    ] {
        check(&server(keys).expect_code(42), &[setting], &["error: Unknown tool: "]);
    }
    for (keys, setting) in [
        (r#""toolsAllowed": ["other"]"#, "`mcpServers.s.toolsAllowed` does not include the tool"),
        (r#""toolsDenied": ["e*"]"#, "`mcpServers.s.toolsDenied` excludes the tool"),
    ] {
        let told = format!("error: tool `s__echo` is not active: the setting {setting}");
        check(&server(keys).expect_code(4), &[&told], &[]);
    }
}

#[test]
fn tool_in_tools_denied_of_its_server_is_refused_in_streams_and_runs() {
    let tree = here();
    let command = tree.misbehaving_server("echo", &[]);
    let servers = format!(r#"{{"mcpServers": {{"s": {{{command}, "toolsDenied": ["e*"]}}}}}}"#);
    tree.file("home/haft.json", &servers);
    let line = r#"{"id": 1, "tool": "s__echo", "args": {"text": "x"}}"#;
    let answered = tree.haft(&["call", "--stdin"]).stdin(line).output().expect_code(0).stdout;
    let answered: serde_json::Value = serde_json::from_str(&answered).unwrap();
    assert_eq!(answered["error_kind"], "denied", "{answered}");
    let call = || ScriptStep::call("s__echo", json!({"text": "x"}));
    let told = "`mcpServers.s.toolsDenied` excludes the tool";
    let model = run::server([call(), run::told(ScriptStep::text("I may not."), told)]);
    let ran = run::haft(&tree, &model, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(ran.stdout == "I may not.\n" && ran.stderr.contains("1 denied"), "{}", ran.stderr);
    // A run that makes only denied calls ends with the exit code for denied calls.
    let model = run::server((0..9).map(|_| call()));
    run::haft(&tree, &model, &["run", "-m", "openai/m", "go"]).output().expect_code(4);
}

#[test]
fn tool_timeout_error_matches_the_troubleshooting_page() {
    let tree = tree(r#"{"toolTimeout": "300ms"}"#);
    let ran = tree.haft(&["call", "bash", r#"{"command": "sleep 9"}"#]).output().expect_code(124);
    let hint = "hint: raise the limit with --timeout for one call, or with `toolTimeout`, `tools.bash.timeout` for all";
    check(&ran, &[], &["error: Command timed out after 300 ms", hint]);
}

#[test]
fn notice_of_a_stored_output_matches_the_troubleshooting_page() {
    let tree = tree(r#"{"maxToolResponseBytes": 2000}"#);
    tree.file("ws/big.txt", &"many words\n".repeat(10_000));
    let ran = tree.haft(&["call", "-v", "read", r#"{"file_path": "big.txt"}"#]).output().expect_code(0);
    for words in ["All of it is stored (", "size_cap", "Call tool_output(handle = \"session-"] {
        assert!(ran.stdout.contains(words) && PAGE.contains(words), "{words}: {}", ran.stdout);
    }
    check(&ran, &["handle", "size_cap"], &[]);
}

#[test]
fn mcp_start_error_matches_the_troubleshooting_page() {
    let tree = tree(r#"{"mcpServers": {"time": {"command": "haft-no-such-program"}}}"#);
    let ran = tree.haft(&["call", "time__get_current_time"]).output().expect_code(5);
    let shown = [
        "error: MCP server `time` did not start: the server process could not be started: No such file",
        "hint: `haft mcp test time` tests the server; its settings are in `mcpServers.time`",
    ];
    check(&ran, &[], &shown);
    let ran = tree.haft(&["mcp", "test", "time"]).output().expect_code(5);
    assert!((ran.stdout + &ran.stderr).contains("`mcpServers.time.command`"));
}

#[test]
fn full_queue_error_matches_the_troubleshooting_page() {
    let tree = tree(r#"{"queues": {"default": {"maxConcurrency": 1, "maxWaiting": 0}}}"#);
    let calls = r#"{"id": "1", "tool": "bash", "args": {"command": "sleep 1"}}
{"id": "2", "tool": "current_date", "args": {}}
"#;
    let ran = tree.haft(&["call", "--stdin"]).stdin(calls).output();
    let full = "queue `default` is full: all its slots are in use, and `maxWaiting` is 0; try again later";
    assert!(ran.stdout.contains(full) && PAGE.contains(full), "{}", ran.stdout);
    assert!(PAGE.contains(
        "raise `queues.NAME.maxConcurrency` to run more calls at once, or `queues.NAME.maxWaiting` to let more wait"
    ));
    let found = tree.haft(&["doctor"]).output().expect_code(0).stdout;
    assert!(found.contains("queue      default: 1 running and 0 waiting calls allowed"), "{found}");
}

#[test]
fn doctor_reports_missing_keys_and_unused_queues() {
    let tree = tree(r#"{"models": {"default": "anthropic/m"}, "queues": {"slow": {"maxConcurrency": 2}}}"#);
    let without = tree.haft(&["doctor"]).output().expect_code(5).stdout;
    let line = without
        .lines()
        .find(|line| line.starts_with("models     anthropic: haft cannot use this provider: "));
    let reason =
        line.and_then(|line| line.split_once("provider: ")).map(|(_, reason)| reason).unwrap_or_default();
    assert!(reason.contains("ANTHROPIC_API_KEY") && !reason.contains("anthropic: "), "{without}");
    let with = tree.haft(&["doctor"]).env("ANTHROPIC_API_KEY", "canary-key").output().expect_code(0).stdout;
    assert!(with.contains("models     anthropic: configured"), "{with}");
    assert!(with.contains("used by no tool"), "{with}");
    assert!(!with.contains("canary"), "{with}");
}

#[test]
fn agent_cycle_error_matches_the_troubleshooting_page() {
    let tree = here();
    tree.file("home/agents/a.md", "---\nagents: b\n---\nYou ask.\n");
    tree.file("home/agents/b.md", "---\nagents: a\n---\nYou ask back.\n");
    let ran =
        tree.haft(&["run", "-m", "openai/m", "@a", "go"]).env("OPENAI_API_KEY", "k").output().expect_code(42);
    check(&ran, &[], &["agents call each other in a cycle: a > b > a; remove one of these calls"]);
    let checked = tree.haft(&["agents", "check"]).output().expect_code(42).stdout;
    assert!(checked.contains("a > b > a"), "{checked}");
    let found = tree.haft(&["doctor"]).output().expect_code(5).stdout;
    assert!(found.contains("agent ") && found.contains("a > b > a"), "{found}");
}
