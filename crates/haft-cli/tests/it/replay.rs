//! Tests of replays of recorded runs: a replay writes the same events byte for byte, and calls no model and no tool.

mod journals;
mod tree;

use haft_model_server::{ErrorResponse, ScriptPart, ScriptStep, ScriptUsage};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::json;

use super::call::here;
use super::run::{bash, haft, server};

const STREAM: [&str; 2] = ["--output-format", "stream-json"];

/// Scripts a run with concurrent calls, progress, a failure, a refusal and reasoning.
fn script() -> Vec<ScriptStep> {
    let read = |file: &str| ScriptPart::call("read", json!({ "file_path": file }));
    vec![
        ScriptStep::say([ScriptPart::Text("I look.".into()), read("a.txt"), read("b.txt"), read("no.txt")])
            .using(ScriptUsage { input: 120, output: 9, ..ScriptUsage::default() }),
        ScriptStep::fail(ErrorResponse::new(500, "once")),
        ScriptStep::say([bash("echo one >> marks; echo out; echo err >&2"), bash("exit 3")]),
        ScriptStep::call("no_such_tool", json!({"a": 1})),
        ScriptStep::text("The answer is long enough to come in several pieces, one after the other."),
    ]
}

fn recorded(words: &[&str]) -> (TestTree, HaftOutput) {
    let tree = here();
    tree.file("ws/a.txt", "text of a");
    tree.file("ws/b.txt", "text of b");
    let server = server(script());
    let run = ["run", "-m", "openai/m", "--record", "r.jsonl"];
    let ran = haft(&tree, &server, &[&run, words, &["canary-request"]].concat()).output().expect_code(0);
    (tree, ran)
}

#[test]
fn replay_prints_identical_events_without_side_effects() {
    let (tree, ran) = recorded(&STREAM);
    std::fs::remove_file(tree.path("ws/marks")).unwrap();
    std::fs::remove_file(tree.path("ws/a.txt")).unwrap();
    for _ in 0..2 {
        let again = tree.haft(&[&["replay", "r.jsonl"], &STREAM[..]].concat()).output().expect_code(0);
        assert_eq!(again.stdout, ran.stdout);
    }
    let text = tree.haft(&["replay", "-q", "r.jsonl"]).output().expect_code(0);
    assert!(text.stdout.starts_with("The answer is long") && text.stderr.is_empty(), "{}", text.stderr);
    let shown = tree.haft(&["replay", "r.jsonl"]).output().expect_code(0).stderr;
    assert!(shown.contains("✓ read a.txt") && shown.contains("✗ no_such_tool"), "{shown}");
    assert!(!tree.exists("ws/marks"), "a replay makes no call");
    assert_eq!(
        std::fs::read_dir(tree.path("home/data/sessions")).unwrap().count(),
        1,
        "a replay stores no session"
    );
}

#[test]
fn live_tools_replay_runs_tools_with_recorded_replies() {
    let (tree, ran) = recorded(&[]);
    tree.file("ws/a.txt", "something else by now");
    let again = tree.haft(&["replay", "--live-tools", "r.jsonl"]).output().expect_code(0);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(tree.text("ws/marks"), "one\none\n");
}

#[test]
fn invalid_or_mismatched_recording_is_an_error() {
    let (tree, _) = recorded(&[]);
    let recording = tree.text("ws/r.jsonl");
    let check = |text: &str, code: i32, expected: &str| {
        tree.file("ws/bad.jsonl", text);
        let ran = tree.haft(&["replay", "bad.jsonl"]).output().expect_code(code);
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("hint:"), "{}", ran.stderr);
    };
    check("{}\n", 42, "is not a recording");
    check(&recording.replacen("\"type\":\"session\"", "\"type\":\"ran\"", 1), 42, "contains no run");
    check(
        &recording.replacen("\"type\":\"result\"", "\"type\":\"gone\"", 1),
        3,
        "differs from the recording",
    );
    check(&recording.replacen("\"turn\":1", "\"turn\":", 1), 42, "line");
    tree.haft(&["replay", "nothing.jsonl"]).output().expect_code(42);
    let server = server(script());
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    let ran = haft(&tree, &server, &words).output().expect_code(42);
    assert!(ran.stderr.contains("exists already"), "{}", ran.stderr);
}

/// A run that cannot start leaves no recording, so that the user can fix the problem and repeat the same command.
#[test]
fn run_that_fails_to_start_leaves_no_recording() {
    let tree = here();
    let server = server([ScriptStep::text("ok")]);
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    haft(&tree, &server, &words).env("OPENAI_API_KEY", "").output().expect_code(6);
    tree.file("ws/kept.jsonl", "mine");
    haft(&tree, &server, &["run", "-m", "openai/m", "--record", "kept.jsonl", "go"]).output().expect_code(42);
    assert_eq!((tree.exists("ws/r.jsonl"), tree.text("ws/kept.jsonl").as_str()), (false, "mine"));
    haft(&tree, &server, &words).output().expect_code(0);
    assert!(tree.text("ws/r.jsonl").contains(r#""type":"end""#));
}

/// haft removes API keys from recordings and journals, wherever they occur.
#[test]
fn recordings_and_journals_contain_no_api_key() {
    let tree = here();
    let key = "canary-key-0123456789";
    let server = server([ScriptStep::say([bash("echo hi")]), ScriptStep::text("done")]);
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    haft(&tree, &server, &words).env("OPENAI_API_KEY", key).output().expect_code(0);
    let recording = tree.text("ws/r.jsonl");
    assert!(!recording.contains(key), "{recording}");
    for entry in std::fs::read_dir(tree.path("home/data/sessions")).unwrap() {
        let journal = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!journal.contains(key), "{journal}");
    }
}
