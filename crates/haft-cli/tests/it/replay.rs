//! Replays of recorded runs: the same events to the byte, without a model and without making a call.

mod journals;
mod tree;

use haft_model_server::{ErrorResponse, ScriptPart, ScriptStep, ScriptUsage};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::json;

use super::call::here;
use super::run::{bash, haft, server};

const STREAM: [&str; 2] = ["--output-format", "stream-json"];

/// A run with concurrent calls, progress, a failure, a refusal and reasoning.
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
    let place = here();
    place.file("ws/a.txt", "text of a");
    place.file("ws/b.txt", "text of b");
    let server = server(script());
    let run = ["run", "-m", "openai/m", "--record", "r.jsonl"];
    let ran = haft(&place, &server, &[&run, words, &["canary-request"]].concat()).output().expect_code(0);
    (place, ran)
}

#[test]
fn replay_prints_identical_events_without_side_effects() {
    let (place, ran) = recorded(&STREAM);
    std::fs::remove_file(place.path("ws/marks")).unwrap();
    std::fs::remove_file(place.path("ws/a.txt")).unwrap();
    for _ in 0..2 {
        let again = place.haft(&[&["replay", "r.jsonl"], &STREAM[..]].concat()).output().expect_code(0);
        assert_eq!(again.stdout, ran.stdout);
    }
    let text = place.haft(&["replay", "-q", "r.jsonl"]).output().expect_code(0);
    assert!(text.stdout.starts_with("The answer is long") && text.stderr.is_empty(), "{}", text.stderr);
    let shown = place.haft(&["replay", "r.jsonl"]).output().expect_code(0).stderr;
    assert!(shown.contains("✓ read a.txt") && shown.contains("✗ no_such_tool"), "{shown}");
    assert!(!place.exists("ws/marks"), "nothing is done again");
    assert_eq!(
        std::fs::read_dir(place.path("home/data/sessions")).unwrap().count(),
        1,
        "and nothing is kept"
    );
}

#[test]
fn live_tools_replay_runs_tools_with_recorded_replies() {
    let (place, ran) = recorded(&[]);
    place.file("ws/a.txt", "something else by now");
    let again = place.haft(&["replay", "--live-tools", "r.jsonl"]).output().expect_code(0);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(place.text("ws/marks"), "one\none\n");
}

#[test]
fn invalid_or_mismatched_recording_is_an_error() {
    let (place, _) = recorded(&[]);
    let recording = place.text("ws/r.jsonl");
    let check = |text: &str, code: i32, expected: &str| {
        place.file("ws/bad.jsonl", text);
        let ran = place.haft(&["replay", "bad.jsonl"]).output().expect_code(code);
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
    place.haft(&["replay", "nothing.jsonl"]).output().expect_code(42);
    let server = server(script());
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    let ran = haft(&place, &server, &words).output().expect_code(42);
    assert!(ran.stderr.contains("exists already"), "{}", ran.stderr);
}

/// A failed start leaves no recording behind, so that the user can fix the problem and repeat the same command.
#[test]
fn run_that_fails_to_start_leaves_no_recording() {
    let place = here();
    let server = server([ScriptStep::text("ok")]);
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    haft(&place, &server, &words).env("OPENAI_API_KEY", "").output().expect_code(6);
    place.file("ws/kept.jsonl", "mine");
    haft(&place, &server, &["run", "-m", "openai/m", "--record", "kept.jsonl", "go"])
        .output()
        .expect_code(42);
    assert_eq!((place.exists("ws/r.jsonl"), place.text("ws/kept.jsonl").as_str()), (false, "mine"));
    haft(&place, &server, &words).output().expect_code(0);
    assert!(place.text("ws/r.jsonl").contains(r#""type":"end""#));
}

/// haft removes keys from recordings and journals wherever they occur.
#[test]
fn recordings_and_journals_contain_no_api_key() {
    let place = here();
    let key = "canary-key-0123456789";
    let server = server([ScriptStep::say([bash("echo hi")]), ScriptStep::text("done")]);
    let words = ["run", "-m", "openai/m", "--record", "r.jsonl", "go"];
    haft(&place, &server, &words).env("OPENAI_API_KEY", key).output().expect_code(0);
    let recording = place.text("ws/r.jsonl");
    assert!(!recording.contains(key), "{recording}");
    for entry in std::fs::read_dir(place.path("home/data/sessions")).unwrap() {
        let journal = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!journal.contains(key), "{journal}");
    }
}
