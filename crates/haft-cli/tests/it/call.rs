//! Tests of `haft call` and the built-in tools: the command line, and its exact output.

use std::fs;
use std::process::Command;

use haft_testkit::{HaftOutput, TestTree, TestUser, eventually, users};
use serde_json::{Value, json};

/// Returns a tree owned by the current user.
pub(super) fn here() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

/// Makes one call with its arguments on the command line.
pub(super) fn call(tree: &TestTree, tool: &str, arguments: &Value) -> HaftOutput {
    tree.haft(&["call", tool, &arguments.to_string()]).output()
}

/// Makes one call with its arguments on standard input, which may be longer than a command line.
fn piped(tree: &TestTree, tool: &str, arguments: impl Into<Vec<u8>>) -> HaftOutput {
    tree.haft(&["call", tool, "-"]).stdin(arguments).output()
}

fn bash(tree: &TestTree, command: &str) -> HaftOutput {
    call(tree, "bash", &json!({ "command": command }))
}

#[track_caller]
fn check_bash(command: &str, code: i32, stdout: &str) {
    let ran = bash(&here(), command).expect_code(code);
    assert_eq!(ran.stdout, stdout, "{command}");
    assert_eq!(ran.stderr, "", "{command}");
}

/// Checks a call that is refused before a tool runs: nothing on standard output, every fragment on standard error.
#[track_caller]
fn check_refused(ran: HaftOutput, code: i32, fragments: &[&str]) {
    let ran = ran.expect_code(code);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("error: ") && !ran.stderr.contains("rror: Error"), "{}", ran.stderr);
    for fragment in fragments {
        assert!(ran.stderr.contains(fragment), "no `{fragment}` in: {}", ran.stderr);
    }
}

#[test]
fn readme_bash_call_works_for_every_user() {
    for user in users() {
        let tree = TestTree::new(user);
        let ran = bash(&tree, "echo hello from $(pwd)").expect_code(0);
        assert_eq!(ran.stdout, format!("hello from {}\n", tree.path("ws").display()), "{user:?}");
        assert_eq!(ran.stderr, "", "{user:?}");
    }
}

#[test]
fn dash_reads_arguments_from_stdin() {
    let ran = piped(&here(), "bash", r#"{"command":"echo piped"}"#).expect_code(0);
    assert_eq!(ran.stdout, "piped\n");
    let not_text = piped(&here(), "bash", b"{\"command\":\"\xff\"}");
    check_refused(
        not_text,
        42,
        &["haft cannot read the tool arguments from standard input", "hint: send one JSON object"],
    );
}

#[test]
fn arguments_may_be_omitted_if_none_are_required() {
    let tree = here();
    assert!(tree.haft(&["call", "current_date"]).output().expect_code(0).stdout.contains("\"date\""));
    assert!(call(&tree, "current_date", &json!({})).expect_code(0).stdout.contains("\"date\""));
    let ran = tree.haft(&["call", "bash"]).output();
    check_refused(ran, 42, &["'command' parameter is required (string)", "hint: `haft tools bash --schema`"]);
}

#[test]
fn call_json_output_has_all_result_fields() {
    let tree = here();
    let ran =
        tree.haft(&["call", "--json", "BASH", r#"{"command":"echo a; exit 7",}"#]).output().expect_code(3);
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    let keys: Vec<&String> = printed.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "content",
            "error_kind",
            "executed",
            "is_error",
            "latency_ms",
            "notes",
            "output_bytes",
            "repairs",
            "retryable",
            "tool",
            "unvalidated"
        ]
    );
    assert_eq!(printed["content"], "a\n");
    assert_eq!(printed["error_kind"], "failed");
    assert_eq!(printed["is_error"], true);
    assert_eq!(printed["retryable"], false);
    assert_eq!(printed["executed"], true);
    assert_eq!(printed["repairs"], json!(["removed a trailing comma"]));
    assert_eq!(printed["notes"]["exit_code"], 7);
    assert_eq!(printed["notes"]["resolved_as"], "bash");
    assert!(printed["notes"]["sandbox"]["layers"].as_array().unwrap().contains(&json!("landlock")));
    let refused = tree.haft(&["call", "--json", "nosuch"]).output().expect_code(42);
    let refused: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(refused["error_kind"], "unknown_tool");
    assert_eq!(refused["executed"], false);
}

#[test]
fn verbose_prints_repairs_sandbox_and_exit_code_to_stderr() {
    let ran = here().haft(&["call", "-v", "bash", r#"{"command":"echo a",}"#]).output().expect_code(0);
    assert_eq!(ran.stdout, "a\n");
    for fragment in
        ["← builtin builtin:bash [", " ms", "removed a trailing comma", "landlock", "exit_code: 0"]
    {
        assert!(ran.stderr.contains(fragment), "{}", ran.stderr);
    }
}

#[test]
fn stdout_and_stderr_keep_their_relative_order() {
    let expected = (1..=200).map(|i| format!("out {i}\nerr {i}\n")).collect::<Vec<_>>().concat();
    check_bash("for i in $(seq 200); do echo out $i; echo err $i >&2; done", 0, &expected);
}

#[test]
fn bash_reports_exit_code_or_signal() {
    check_bash("true", 0, "(exit code: 0)\n");
    check_bash("exit 5", 3, "(exit code: 5)\n");
    check_bash("echo before; exit 5", 3, "before\n");
    check_bash("kill -9 $$", 3, "(exit code: -1)\nkilled by signal 9\n");
    check_bash("echo before; kill -9 $$", 3, "before\n");
}

/// The exit of the shell and the end of its output come in either order; the result must not depend on the order.
#[test]
fn successful_command_succeeds_thirty_times_in_a_row() {
    let tree = here();
    for _ in 0..30 {
        assert_eq!(bash(&tree, "true").expect_code(0).stdout, "(exit code: 0)\n");
    }
}

#[test]
fn call_output_ends_with_one_newline() {
    check_bash("printf 'no newline'", 0, "no newline\n");
    check_bash("echo newline", 0, "newline\n");
    check_bash(r"printf 'two\n\n'", 0, "two\n\n");
}

#[test]
fn invalid_utf8_output_is_replaced() {
    check_bash(r"printf 'a\xffb\xf0\x9f'", 0, "a\u{fffd}b\u{fffd}\n");
}

#[test]
fn bash_output_is_truncated_at_30000_characters() {
    let all = "x".repeat(30_000);
    check_bash("head -c 30000 /dev/zero | tr '\\0' x", 0, &format!("{all}\n"));
    let cut = format!(
        "{all}\n... (output truncated: 30001 total chars, showing first 30000)\nAll of it is stored (30001 bytes, 1 line, "
    );
    let ran = bash(&here(), "head -c 30001 /dev/zero | tr '\\0' x").expect_code(0);
    assert!(ran.stdout.starts_with(&cut), "{}", &ran.stdout[30_000..]);
    let umlauts = "ä".repeat(30_000);
    check_bash("printf 'ä%.0s' $(seq 30000)", 0, &format!("{umlauts}\n"));
}

#[test]
fn endless_output_uses_bounded_memory_until_timeout() {
    const PEAK_KB_MAX: u64 = 96 * 1024;
    let tree = here();
    let mut child = tree.haft(&["call", "--timeout", "1s", "bash", r#"{"command":"yes"}"#]).start();
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    eventually("haft ends", || {
        peak_kb = peak_kb.max(high_water_kb(&status).unwrap_or_default());
        child.try_wait().unwrap().is_some()
    });
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(
        said.starts_with("error: Command timed out after 1 s\ny\ny\n"),
        "{}",
        &said[..said.len().min(100)]
    );
    assert!(said.contains("showing first 30000)") && said.len() < 31_000, "{} bytes", said.len());
    assert!(said.ends_with("`tools.bash.timeout` for all\n"), "{said}");
    assert!(peak_kb > 0 && peak_kb < PEAK_KB_MAX, "{peak_kb} kB");
}

fn high_water_kb(status: &str) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn command_too_long_or_with_nul_is_rejected() {
    let long = json!({ "command": format!("true {}", "x".repeat(200_000)) });
    let ran = piped(&here(), "bash", long.to_string());
    check_refused(
        ran,
        42,
        &["the command has 200005 bytes; the limit is 131071", "write the command to a file first"],
    );
    let ran = piped(&here(), "bash", json!({ "command": "echo a\0b" }).to_string());
    check_refused(ran, 42, &["the command contains a NUL character"]);
    let longest = json!({ "command": format!(": {}", "x".repeat(131_000)) });
    piped(&here(), "bash", longest.to_string()).expect_code(0);
}

#[test]
fn unknown_tool_error_suggests_nearest_name() {
    let tree = here();
    check_refused(
        call(&tree, "bahs", &json!({})),
        42,
        &["Unknown tool: bahs; did you mean `bash`?", "hint: `haft tools` lists all tools"],
    );
    check_refused(call(&tree, "", &json!({})), 42, &["Unknown tool"]);
}

#[test]
fn tool_name_is_case_insensitive() {
    let tree = here();
    for name in ["Bash", "BASH"] {
        assert_eq!(call(&tree, name, &json!({ "command": "echo ok" })).expect_code(0).stdout, "ok\n");
    }
}

#[test]
fn all_argument_errors_are_reported_together() {
    let ran = call(&here(), "edit", &json!({ "file_path": 3, "old_string": null, "surprise": 1 }));
    check_refused(
        ran,
        42,
        &[
            "'file_path' must be string; got number 3",
            "'old_string' must be string; got null",
            "'new_string' parameter is required (string)",
            "unknown parameter 'surprise'",
            "hint: `haft tools edit --schema`",
        ],
    );
}

#[test]
fn non_object_arguments_are_rejected() {
    let check = |text: &str, fragment: &str| check_refused(piped(&here(), "bash", text), 42, &[fragment]);
    check("[1]", "the arguments must be a JSON object; got an array");
    check("7", "got a number");
    check("null", "got null");
    check("", "'command' parameter is required");
    check("nonsense", "not valid JSON");
    check("{\"command\" \"x\"}", "not valid JSON");
    check("{\"command\":\"echo half", "the arguments end in the middle of a value");
}

#[test]
fn oversized_or_too_deep_arguments_are_rejected() {
    let check = |text: String, fragment: &str| {
        let ran = piped(&here(), "bash", text);
        assert!(ran.stderr.len() < 1000, "{} bytes of error", ran.stderr.len());
        check_refused(ran, 42, &[fragment]);
    };
    check("[".repeat(1_000_000), "nest too deep");
    check(format!("{{\"command\":{}", "[".repeat(1_000_000)), "nest too deep");
    check(format!("{{\"command\":\"{}\"}}", "x".repeat(9 << 20)), "; the limit is ");
    check(format!("{{\"command\":\"{}\"}}", "ä".repeat(9 << 20)), "; the limit is ");
}

#[test]
fn malformed_json_arguments_are_repaired() {
    let check = |text: &str| assert_eq!(piped(&here(), "bash", text).expect_code(0).stdout, "ok\n", "{text}");
    check(r#"{"command":"echo ok",}"#);
    check("```json\n{\"command\":\"echo ok\"}\n```");
    check(r#""{\"command\":\"echo ok\"}""#);
}

#[test]
fn current_date_uses_requested_time_zone() {
    let tree = here();
    let told = call(&tree, "current_date", &json!({ "timezone": "Asia/Tokyo" })).expect_code(0).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["timezone"], "Asia/Tokyo");
    assert!(told["date"].as_str().unwrap().ends_with("+09:00"), "{told}");
    let system = tree.haft(&["call", "current_date"]).env("TZ", "America/Sao_Paulo").output().expect_code(0);
    assert!(system.stdout.contains("America/Sao_Paulo"), "{}", system.stdout);
    let unknown = call(&tree, "current_date", &json!({ "timezone": "Tokio" }));
    check_refused(unknown, 42, &["unknown time zone `Tokio`", "Asia/Tokyo"]);
}

#[test]
fn introspect_shows_a_repository_without_its_secrets() {
    let tree = here();
    for (name, content) in [
        ("README.md", "about this"),
        ("src/main.rs", "fn main() {}"),
        (".gitignore", "ignored.txt\n"),
        ("ignored.txt", "canary ignored"),
        (".env", "canary env"),
        (".git/config", "canary git"),
        ("Cargo.lock", "canary lock"),
        ("deploy/id_rsa", "canary key"),
    ] {
        tree.file(&format!("ws/{name}"), content);
    }
    let overview = call(&tree, "introspect", &json!({ "level": "overview" })).expect_code(0).stdout;
    assert!(
        overview.contains("main.rs") && overview.contains("about this") && !overview.contains("fn main"),
        "{overview}"
    );
    let all = call(&tree, "introspect", &json!({ "level": "all", "path": "." })).expect_code(0).stdout;
    assert!(all.contains("fn main() {}") && all.contains("src/main.rs"), "{all}");
    for text in [overview, all] {
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains("Cargo.lock") && !text.contains("id_rsa\n"), "{text}");
    }
    let part = call(&tree, "introspect", &json!({ "level": "all", "path": "src" })).expect_code(0).stdout;
    assert!(part.contains("fn main() {}") && !part.contains("about this"), "{part}");
}

#[test]
fn read_write_and_edit_make_a_round_trip() {
    let tree = here();
    let path = tree.path("ws/notes/today.txt");
    let path = path.to_str().unwrap();
    let check = |tool: &str, arguments: Value, code: i32, expected: &str| {
        assert_eq!(call(&tree, tool, &arguments).expect_code(code).stdout, format!("{expected}\n"), "{tool}");
    };
    let content = "one ä\ntwo\none ä\n";
    check("write", json!({ "file_path": path, "content": content }), 0, &format!("Wrote 18 bytes to {path}"));
    assert_eq!(tree.text("ws/notes/today.txt"), content);
    check("read", json!({ "file_path": path }), 0, content.trim_end());
    check("read", json!({ "file_path": path, "offset": 2, "limit": 1 }), 0, "two");
    let first = json!({ "file_path": path, "old_string": "one ä", "new_string": "three" });
    check("edit", first, 0, &format!("Edited {path} (2 occurrence(s) of pattern, replaced first)"));
    assert_eq!(tree.text("ws/notes/today.txt"), "three\ntwo\none ä\n");
    let all = json!({ "file_path": path, "old_string": "o", "new_string": "0", "replace_all": true });
    check("edit", all, 0, &format!("Edited {path} (2 occurrence(s) of pattern, replaced all)"));
    let missing = json!({ "file_path": path, "old_string": "not there", "new_string": "x" });
    check("edit", missing, 3, "Error: old_string not found in file");
    assert_eq!(tree.text("ws/notes/today.txt"), "three\ntw0\n0ne ä\n");
}

#[test]
fn call_to_a_denied_path_names_the_path_and_exits_with_4() {
    let tree = here();
    let data = tree.file("home/data/tokens", "canary");
    let read = call(&tree, "read", &json!({ "file_path": data }));
    check_refused(read, 4, &[&format!("Read denied: {} is a protected path", data.display()), "hint: "]);
    let write = call(&tree, "write", &json!({ "file_path": data, "content": "" }));
    check_refused(write, 4, &[&format!("Write denied: {} is a protected path", data.display()), "hint: "]);
    let etc = call(&tree, "write", &json!({ "file_path": "/etc/haft-test", "content": "" }));
    check_refused(etc, 4, &["Write denied: /etc/haft-test is a protected path"]);
    let outside = tree.path("outside/new");
    let write = call(&tree, "write", &json!({ "file_path": outside, "content": "" }));
    check_refused(
        write,
        4,
        &[&format!(
            "Write denied: {} is outside the directories that workspace mode may write",
            outside.display()
        )],
    );
    assert_eq!(tree.text("home/data/tokens"), "canary");
    assert!(!tree.exists("outside/new"));
}

#[test]
fn colors_need_a_terminal_and_respect_no_color() {
    let tree = here();
    let plain = tree.haft(&["call", "nosuch"]).output().expect_code(42);
    assert!(!plain.stderr.contains('\x1b'), "{:?}", plain.stderr);
    let on_terminal = |no_color: Option<&str>| {
        let mut command = Command::new("script");
        let words = format!("{} call nosuch", env!("CARGO_BIN_EXE_haft"));
        command.args(["-qec", &words, "/dev/null"]).current_dir(tree.path("ws")).env_clear();
        command.env("HAFT_HOME", tree.path("home")).env("TERM", "xterm").env("PATH", "/usr/bin:/bin");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(on_terminal(None).contains('\x1b'));
    let plain = on_terminal(Some("1"));
    assert!(plain.contains("Unknown tool: nosuch") && !plain.contains('\x1b'), "{plain:?}");
}
