//! Tests of the journals in a recording: they contain the same lines as stored sessions, and the same code reads them.

use std::fs;

use haft_model_server::ScriptStep;
use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::tree::{assert_replays_identically, recorded, slowly};
use crate::agents::{agents, ask, bash, script};

/// The fields of the first line of a journal that only a recording has.
const START_FIELDS: [&str; 6] = ["turn", "works_for", "path", "request", "tools", "reply_timeout_ms"];

/// Records a run with two sub-agents. One of them makes a call that fails.
fn with_agents(place: &TestTree) -> String {
    let twice = ScriptStep::say([ask("helper", "HELP A"), ask("reader", "READ B")]);
    let about = script([
        ("LEAD", vec![twice, slowly("all done")]),
        ("HELP A", vec![bash("echo a; exit 3"), bash("echo b"), slowly("helped")]),
        ("READ B", vec![slowly("read")]),
    ]);
    recorded(place, about, &["@lead.md", "LEAD"], 0)
}

fn three_agents() -> TestTree {
    agents(&[
        ("lead.md", "agents: [helper.md, reader.md]\ntools: []"),
        ("helper.md", "tools: bash"),
        ("reader.md", "tools: []"),
    ])
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// Returns a line without its time of writing and without the fields that only a recording has.
fn comparable(mut line: Value) -> Value {
    let is_first = line["type"] == "session";
    let fields = line.as_object_mut().unwrap();
    for name in ["journal", "at_ms", "timestampMs"] {
        fields.remove(name);
    }
    if is_first {
        for name in START_FIELDS {
            fields.remove(name);
        }
    }
    line
}

#[test]
fn recording_contains_every_journal_line_of_each_session() {
    let place = three_agents();
    with_agents(&place);
    let recording = place.text("ws/r.jsonl");
    let sessions: Vec<_> = fs::read_dir(place.path("home/data/sessions")).unwrap().collect();
    assert_eq!(sessions.len(), 3);
    for session in sessions {
        let path = session.unwrap().path();
        let id = path.file_stem().unwrap().to_str().unwrap();
        let stored: Vec<Value> = lines(&fs::read_to_string(&path).unwrap()).map(comparable).collect();
        let in_recording = lines(&recording).filter(|line| line["journal"] == id);
        assert_eq!(in_recording.map(comparable).collect::<Vec<_>>(), stored);
        let last = stored.last().unwrap();
        assert_eq!((&last["type"], &last["reason"]), (&json!("finished"), &json!("completed")));
    }
}

/// Returns the output of `haft sessions show` for a session or a recording, without the times.
fn shown(place: &TestTree, word: &str) -> Value {
    let text = place.haft(&["sessions", "show", "--json", word]).output().expect_code(0).stdout;
    let mut value: Value = serde_json::from_str(&text).unwrap();
    for name in ["began_ms", "last_ms"] {
        value.as_object_mut().unwrap().remove(name);
    }
    value
}

#[test]
fn sessions_show_prints_a_recording_like_its_session() {
    let place = three_agents();
    with_agents(&place);
    let of_session = shown(&place, "last");
    assert_eq!(shown(&place, "r.jsonl"), of_session);
    assert_eq!((&of_session["state"], &of_session["calls"]), (&json!("completed"), &json!(4)));
    let drawn = place.haft(&["sessions", "show", "./r.jsonl"]).output().expect_code(0).stdout;
    assert!(drawn.contains("completed: LEAD") && drawn.contains("1-1.1-1 bash"), "{drawn}");
    // The lines with the same session form a separate journal.
    let id = of_session["session"].as_str().unwrap();
    let journal: Vec<String> = place
        .text("ws/r.jsonl")
        .lines()
        .filter(|line| line.contains(&format!("\"journal\":\"{id}\"")))
        .map(|line| format!("{line}\n"))
        .collect();
    place.file(&format!("home/data/sessions/{id}.jsonl"), &journal.concat());
    assert_eq!(shown(&place, id), of_session);
}

#[test]
fn recording_has_the_journal_if_sessions_are_disabled() {
    let place = three_agents();
    place.file("home/haft.json", r#"{"sessions": {"enabled": false}}"#);
    let stream = with_agents(&place);
    assert!(!place.exists("home/data/sessions"));
    assert_replays_identically(&place, &stream, 0);
    assert_eq!(shown(&place, "r.jsonl")["calls"], 4);
}

#[test]
fn version_2_recording_replays_without_journal() {
    let place = three_agents();
    place.file("ws/r.jsonl", include_str!("version2.jsonl"));
    assert_replays_identically(&place, include_str!("version2.stream.jsonl"), 0);
    let ran = place.haft(&["sessions", "show", "r.jsonl"]).output().expect_code(42);
    assert!(ran.stderr.contains("contains no journal") && ran.stderr.contains("version 3"), "{}", ran.stderr);
}

#[test]
fn damaged_journal_in_a_recording_is_an_error() {
    let place = three_agents();
    with_agents(&place);
    let text = place.text("ws/r.jsonl").replacen("{\"stepped\":", "{\"slept\":", 1);
    place.file("ws/bad.jsonl", &text);
    let ran = place.haft(&["sessions", "show", "bad.jsonl"]).output().expect_code(42);
    assert!(ran.stderr.contains("haft cannot read the journal in the recording: line 2"), "{}", ran.stderr);
    place.haft(&["sessions", "show", "none.jsonl"]).output().expect_code(42);
}

/// The recording has concurrent calls, output, progress messages, an unknown tool, a refusal and a failure.
#[test]
fn version_3_recording_replays_identically() {
    let place = three_agents();
    place.file("ws/r.jsonl", include_str!("version3.jsonl"));
    assert_replays_identically(&place, include_str!("version3.stream.jsonl"), 0);
    let ran = place.haft(&["sessions", "show", "r.jsonl"]).output().expect_code(0);
    assert!(ran.stdout.contains("LEAD"), "{}", ran.stdout);
}
