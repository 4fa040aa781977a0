//! Tests of sessions: runs that are killed at any point can be resumed, and completed work is kept.

mod agents;
mod boundaries;
mod commands;
mod follow_up;

use std::path::PathBuf;

use haft_model_server::{
    ErrorResponse, ModelServer, RequestExpectation, ResponsePace, ScriptPart, ScriptStep,
};
use haft_testkit::{HaftOutput, TestTree, eventually, libc, processes_with, send_signal, unique_marker};
use serde_json::{Value, json};

use super::call::here;
use super::run::{bash, haft, server, told};

/// Returns the journals of a tree, sorted by name.
fn journals(tree: &TestTree) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tree.path("home/data/sessions"));
    let mut paths: Vec<_> = entries.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn journal(tree: &TestTree) -> String {
    let [path] = journals(tree).try_into().unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn resume(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftOutput {
    haft(tree, server, &[&["resume"], words].concat()).output()
}

fn run(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftOutput {
    haft(tree, server, &[&["run", "-m", "openai/m"], words].concat()).output()
}

fn events(ran: &HaftOutput) -> Vec<Value> {
    ran.events()
}

/// Kills haft with SIGKILL as soon as the condition holds.
pub(super) fn kill(
    tree: &TestTree,
    server: &ModelServer,
    words: &[&str],
    what: &str,
    holds: impl FnMut() -> bool,
) {
    let mut child = haft(tree, server, words).start();
    eventually(what, holds);
    send_signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
}

fn kill_when(tree: &TestTree, server: &ModelServer, what: &str, holds: impl FnMut() -> bool) {
    kill(tree, server, &["run", "-m", "openai/m", "go"], what, holds);
}

#[test]
fn resume_repeats_the_pending_model_request() {
    let tree = here();
    let slow = ResponsePace { first_byte_milliseconds: 600_000, ..ResponsePace::default() };
    let first =
        server([ScriptStep::say([bash("echo one >> marks")]), ScriptStep::text("never").at_pace(slow)]);
    kill_when(&tree, &first, "the call ended", || {
        journals(&tree).len() == 1 && journal(&tree).contains("ended")
    });
    let second =
        server([ScriptStep::text("not this one"), told(ScriptStep::text("so it was"), "(exit code: 0)")]);
    let ran = resume(&tree, &second, &[]).expect_code(0);
    assert_eq!((ran.stdout.as_str(), tree.text("ws/marks").as_str()), ("so it was\n", "one\n"));
}

#[test]
fn killed_call_is_reported_to_model_as_unknown_outcome() {
    let (tree, marker) = (here(), unique_marker());
    let command = format!("echo one >> marks; exec -a {marker} sleep 300");
    let steps = [
        ScriptStep::say([bash(&command)]),
        told(ScriptStep::text("I looked"), "not known whether the call took effect"),
    ];
    let server = server(steps);
    kill_when(&tree, &server, "the command runs", || tree.exists("ws/marks"));
    eventually("the command is gone", || processes_with(&marker).is_empty());
    let shown = || tree.haft(&["sessions", "show", "last"]).output().expect_code(0).stdout;
    assert!(shown().contains("1-1 bash unknown_outcome"), "{}", shown());
    let ran = resume(&tree, &server, &["--output-format", "stream-json"]).expect_code(0);
    let result = events(&ran).into_iter().find(|event| event["type"] == "tool_result").unwrap();
    assert_eq!((&result["error_kind"], &result["tool"]), (&"unknown_outcome".into(), &"bash".into()));
    assert!(shown().contains("1-1 bash unknown_outcome"), "{}", shown());
    assert_eq!(tree.text("ws/marks"), "one\n");
}

#[test]
fn idempotent_call_is_repeated_on_resume() {
    let (tree, marker) = (here(), unique_marker());
    // Only the operator can know that this command is safe to repeat.
    tree.file("home/haft.json", r#"{"tools": {"bash": {"effects": "idempotent"}}}"#);
    let command = format!("test -e again && exit; touch again; exec -a {marker} sleep 300");
    let steps = [ScriptStep::say([bash(&command)]), told(ScriptStep::text("done"), "(exit code: 0)")];
    let server = server(steps);
    kill_when(&tree, &server, "the command runs", || tree.exists("ws/again"));
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_eq!(resume(&tree, &server, &["last"]).expect_code(0).stdout, "done\n");
}

#[test]
fn interrupted_run_resumes_with_or_without_new_request() {
    let check = |words: &[&str], answer: &str| {
        let (tree, marker) = (here(), unique_marker());
        let steps = [
            ScriptStep::say([
                ScriptPart::call("read", json!({"file_path": "nothing"})),
                bash(&format!("exec -a {marker} sleep 300")),
            ]),
            ScriptStep::text("went on"),
        ];
        let first = server(steps.clone());
        let mut child = haft(&tree, &first, &["run", "-m", "openai/m", "go"]).start();
        eventually("the command runs", || !processes_with(&marker).is_empty());
        send_signal(child.id(), libc::SIGINT);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let expected = RequestExpectation {
            user: words.first().map(|word| (*word).to_owned()),
            ..RequestExpectation::default()
        };
        let [call, text] = steps;
        let second = server([call, text.expecting(expected)]);
        let words: Vec<&str> = words.iter().flat_map(|word| ["last", word]).collect();
        assert_eq!(resume(&tree, &second, &words).expect_code(0).stdout, format!("{answer}\n"));
    };
    check(&[], "went on");
    check(&["no, differently"], "went on");
}

#[test]
fn resume_retries_a_failed_model_request() {
    let tree = here();
    let server = server([
        ScriptStep::say([bash("echo one >> marks")]),
        ScriptStep::fail(ErrorResponse::new(401, "wrong key")),
        ScriptStep::text("now it works"),
    ]);
    run(&tree, &server, &["go"]).expect_code(6);
    assert_eq!(resume(&tree, &server, &[]).expect_code(0).stdout, "now it works\n");
    assert_eq!(tree.text("ws/marks"), "one\n");
}

#[test]
fn finished_session_accepts_further_requests() {
    let tree = here();
    let server = server([
        ScriptStep::say([bash("echo one >> marks")]),
        ScriptStep::text("first"),
        ScriptStep::say([bash("echo two >> marks")])
            .expecting(RequestExpectation { user: Some("and now?".into()), ..RequestExpectation::default() }),
        ScriptStep::text("second"),
        ScriptStep::text("third"),
    ]);
    run(&tree, &server, &["what is it?"]).expect_code(0);
    let ran = resume(&tree, &server, &[]).expect_code(42);
    assert!(ran.stderr.contains("ended (completed)") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    let ran = resume(&tree, &server, &["last", "and now?", "--output-format", "stream-json"]).expect_code(0);
    let turns: Vec<_> = events(&ran).iter().filter_map(|event| event["turn"].as_u64()).collect();
    assert_eq!(
        (turns.first(), turns.last()),
        (Some(&3), Some(&4)),
        "the numbers of turns continue: {turns:?}"
    );
    assert_eq!(events(&ran).last().unwrap()["answer"], "second");
    let ran = haft(&tree, &server, &["resume", "last", "-"]).stdin("more").output().expect_code(0);
    assert_eq!((ran.stdout.as_str(), tree.text("ws/marks").as_str()), ("third\n", "one\ntwo\n"));
    let shown = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    for part in ["what is it?", "then: and now?", "then: more", "3-1 bash ok", "models: 5, "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn session_in_use_cannot_be_resumed_or_removed() {
    let tree = here();
    let slow = ResponsePace { first_byte_milliseconds: 600_000, ..ResponsePace::default() };
    let server = server([ScriptStep::text("x").at_pace(slow)]);
    let mut child = haft(&tree, &server, &["run", "-m", "openai/m", "go"]).start();
    eventually("the session began", || journals(&tree).len() == 1);
    let ran = resume(&tree, &server, &[]).expect_code(5);
    assert!(ran.stderr.contains("another process"), "{}", ran.stderr);
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(list.contains("running"), "{list}");
    tree.haft(&["sessions", "rm", "last"]).output().expect_code(5);
    send_signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(list.contains("unfinished"), "{list}");
}

/// The first process is stopped, as by Ctrl-Z. When it continues after another process has taken over the run, its
/// model asks for one more call.
#[test]
fn stopped_process_makes_no_call_after_takeover() {
    let tree = here();
    let slow = ResponsePace { first_byte_milliseconds: 1_500, ..ResponsePace::default() };
    let stale = ScriptStep::say([bash("echo stale >> marks")]).at_pace(slow);
    let first = server([ScriptStep::say([bash("echo one >> marks")]), stale, ScriptStep::text("never")]);
    let child = haft(&tree, &first, &["run", "-m", "openai/m", "go"]).start();
    eventually("the call ended", || journals(&tree).len() == 1 && journal(&tree).contains("ended"));
    send_signal(child.id(), libc::SIGSTOP);
    let second =
        server([ScriptStep::text("not this one"), told(ScriptStep::text("so it was"), "(exit code: 0)")]);
    let busy = resume(&tree, &second, &[]).expect_code(5);
    assert!(busy.stderr.contains("--take-over"), "{}", busy.stderr);
    let ran = resume(&tree, &second, &["last", "--take-over"]).expect_code(0);
    assert_eq!(ran.stdout, "so it was\n");
    send_signal(child.id(), libc::SIGCONT);
    let woken = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&woken.stderr);
    assert_eq!(woken.status.code(), Some(3), "{said}");
    assert!(said.contains("another process has taken over this run"), "{said}");
    assert_eq!(tree.text("ws/marks"), "one\n");
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(list.contains("completed"), "{list}");
    let more = server([ScriptStep::text("a"), ScriptStep::text("b"), ScriptStep::text("more")]);
    assert_eq!(resume(&tree, &more, &["last", "and now?"]).expect_code(0).stdout, "more\n");
}

/// A file size limit simulates a full disk, because it makes writes to the journal fail like any other write.
#[test]
fn run_with_full_journal_ends_before_its_next_call() {
    let tree = here();
    tree.file("ws/large.txt", &"0123456789abcdef\n".repeat(700));
    let server = server([
        ScriptStep::say([bash("echo one >> marks")]),
        ScriptStep::call("read", json!({"file_path": "large.txt"})),
        ScriptStep::say([bash("echo two >> marks")]),
        ScriptStep::text("done"),
    ]);
    let ran = haft(&tree, &server, &["run", "-m", "openai/m", "--output-format", "json", "go"])
        .through(&["bash", "-c", r#"trap '' XFSZ; ulimit -f 10; exec "$@""#, "bash"])
        .output()
        .expect_code(3);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["finish"], "unrecorded", "{said}");
    assert!(
        ran.stderr.contains("haft cannot write the journal of the run") && ran.stderr.contains("hint:"),
        "{}",
        ran.stderr
    );
    assert_eq!(tree.text("ws/marks"), "one\n");
    assert_eq!(resume(&tree, &server, &[]).expect_code(0).stdout, "done\n");
    assert_eq!(tree.text("ws/marks"), "one\ntwo\n");
}

#[test]
fn run_continues_if_its_journal_cannot_be_created() {
    let tree = here();
    tree.file("home/data/sessions", "in the way");
    let server = server([ScriptStep::say([bash("echo one >> marks")]), ScriptStep::text("done")]);
    let ran = run(&tree, &server, &["go"]).expect_code(0);
    assert!(ran.stderr.contains("the run cannot be resumed"), "{}", ran.stderr);
    assert_eq!((ran.stdout.as_str(), tree.text("ws/marks").as_str()), ("done\n", "one\n"));
}

#[test]
fn session_settings_disable_limit_and_expire_sessions() {
    let tree = here();
    let server = server([ScriptStep::text("done")]);
    tree.file("home/haft.json", r#"{"sessions": {"enabled": false}}"#);
    run(&tree, &server, &["go"]).expect_code(0);
    assert_eq!(journals(&tree), Vec::<PathBuf>::new());
    tree.file("home/haft.json", r#"{"sessions": {"maxBytes": 100}}"#);
    let ran = run(&tree, &server, &["go"]).expect_code(0);
    assert!(ran.stderr.contains("sessions.maxBytes"), "{}", ran.stderr);
    tree.file("home/haft.json", r#"{"sessions": {"keep": 1}}"#);
    for _ in 0..3 {
        run(&tree, &server, &["go"]).expect_code(0);
    }
    assert_eq!(journals(&tree).len(), 1, "each run removes the expired sessions before it");
}
