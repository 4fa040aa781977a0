//! Tests of replays of runs with several agents: concurrent agents, a batch, a handoff, models that read outputs, and
//! interrupted runs.

use haft_model_server::{ModelServer, ResponsePace, Script, ScriptStep};
use haft_testkit::{TestTree, eventually, libc, processes_with, send_signal, unique_marker};
use serde_json::json;

use super::STREAM;
use crate::agents::{agents, ask, bash, haft, script, told};
use crate::mcp;

/// Records a run and returns its JSON stream.
pub(super) fn recorded(tree: &TestTree, script: Script, words: &[&str], code: i32) -> String {
    let server = ModelServer::start(script).unwrap();
    let words = [&STREAM[..], &["--record", "r.jsonl"], words].concat();
    haft(tree, &server, &words).output().expect_code(code).stdout
}

pub(super) fn assert_replays_identically(tree: &TestTree, recorded: &str, code: i32) {
    for _ in 0..2 {
        let again = tree.haft(&[&["replay", "r.jsonl"], &STREAM[..]].concat()).output().expect_code(code);
        let (were, are) = (recorded.lines(), again.stdout.lines());
        let first = were.zip(are).find(|(was, is)| was != is);
        assert_eq!(again.stdout, recorded, "{first:#?}\n{}", again.stderr);
    }
}

fn sessions(stream: &str) -> usize {
    let lines = haft_testkit::stream_events(stream).into_iter();
    let started = lines.filter(|line| line["type"] == "run_started");
    started.map(|line| line["session"].to_string()).collect::<std::collections::HashSet<_>>().len()
}

/// Returns a step that is slow enough for the deltas of several agents to interleave.
pub(super) fn slowly(text: &str) -> ScriptStep {
    ScriptStep::text(text).at_pace(ResponsePace {
        between_milliseconds: 3,
        delta_characters: Some(2),
        ..ResponsePace::default()
    })
}

#[test]
fn concurrent_agents_replay_in_the_recorded_order() {
    let tree = agents(&[
        ("lead.md", "agents: [one.md, two.md]\ntools: []"),
        ("one.md", "agents: three.md"),
        ("two.md", ""),
        ("three.md", "tools: bash"),
    ]);
    let twice = |text: &str| vec![bash("for i in 1 2 3; do echo $i; sleep 0.02; done"), slowly(text)];
    let about = script([
        (
            "LEAD",
            vec![
                ScriptStep::say([ask("one", "FIRST"), ask("two", "SECOND"), ask("one", "THIRD")]),
                slowly("all"),
            ],
        ),
        ("FIRST", vec![ScriptStep::say([ask("three", "LOWEST")]), slowly("the first of all three answers")]),
        ("SECOND", twice("the second of all three answers")),
        ("THIRD", twice("the third of all three answers")),
        ("LOWEST", twice("what is found at the bottom")),
    ]);
    let stream = recorded(&tree, about, &["@lead.md", "LEAD"], 0);
    assert_eq!(sessions(&stream), 5);
    assert_replays_identically(&tree, &stream, 0);
    let shown = tree.haft(&["replay", "r.jsonl"]).output().expect_code(0);
    assert!(shown.stderr.contains("three: bash") && shown.stdout == "all\n", "{}", shown.stderr);
    // With `--live-tools`, only the replies of models come from the recording: the agents run again, each with its own
    // replies.
    let live = tree.haft(&["replay", "--live-tools", "r.jsonl"]).output().expect_code(0);
    assert!(live.stderr.contains("three: bash") && live.stdout == "all\n", "{}", live.stderr);
}

#[test]
fn batch_with_sub_agents_replays_identically() {
    let tree = agents(&[
        ("lead.md", "agents: helper.md\ntools: [current_date, 'agent__batch']"),
        ("helper.md", "tools: bash"),
    ]);
    let help = |request: &str| json!({"tool": "agent__helper", "parameters": {"request": request}});
    let calls =
        json!({"calls": [{"tool": "current_date", "parameters": {}}, help("HELP A"), help("HELP B")]});
    let about = script([
        ("LEAD", vec![ScriptStep::call("agent__batch", calls), slowly("done")]),
        ("HELP A", vec![bash("echo a"), slowly("the help of the first")]),
        ("HELP B", vec![bash("echo b"), slowly("the help of the second")]),
    ]);
    let stream = recorded(&tree, about, &["@lead.md", "LEAD"], 0);
    assert_eq!(sessions(&stream), 3);
    assert_replays_identically(&tree, &stream, 0);
}

/// `--route` chooses a model, the router hands over the request, and the answer is passed to a third agent.
#[test]
fn handoffs_and_routing_replay_identically() {
    let tree = agents(&[
        ("desk.md", "router: {destinations: [legal.md]}\ntools: []"),
        ("legal.md", "description: Knows the law\nhandoff: editor.md"),
        ("editor.md", "tools: []"),
    ]);
    tree.file(
        "home/haft.json",
        r#"{"models": {"default": "openai/m", "fast": "openai/small", "complex": "openai/large"}}"#,
    );
    let server = ModelServer::start(script([
        ("The request was", vec![slowly("Edited.")]),
        ("hands this request", vec![bash("echo law"), slowly("It is allowed.")]),
        (
            "MAY I?",
            // haft expects one word as the model choice. This reply is a call, so haft uses the complex model.
            vec![ScriptStep::call("router__handoff-to", json!({"agent": "legal", "message": "Look at 5."}))],
        ),
    ]))
    .unwrap();
    let words = [&["run", "--route", "--record", "r.jsonl"], &STREAM[..], &["@desk.md", "MAY I?"]].concat();
    let haft = tree.haft(&words).env("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let stream = haft.env("OPENAI_API_KEY", "k").output().expect_code(0).stdout;
    assert_eq!(sessions(&stream), 3, "{stream}");
    let requests = server.requests().len();
    assert_replays_identically(&tree, &stream, 0);
    let last = haft_testkit::stream_events(&stream).pop().unwrap();
    assert_eq!(last["requests"], requests, "the request that chooses the model is counted: {last}");
}

#[test]
fn output_readers_replay_identically() {
    let tree = agents(&[("a.md", "toolOutput: {models: openai/reader}")]);
    tree.file("home/haft.json", r#"{"tools": {"read": {"output": "store", "maxBytes": 500}}}"#);
    let lines = (0..40_000).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    tree.file("ws/long.txt", &lines);
    let question = |mode: &str| {
        let handle = "{{word session-}}";
        ScriptStep::call("tool_output", json!({"handle": handle, "extract": "the largest?", "mode": mode}))
    };
    let search =
        ScriptStep::call("tool_output", json!({"handle": "{{word session-}}", "extract": "last 1 lines"}));
    let about = |mode: &str, expected: &str| {
        script([
            ("Combine them into one answer", vec![slowly("both")]),
            ("Piece 1 of 2", vec![slowly("one")]),
            ("Piece 2 of 2", vec![slowly("two")]),
            ("Handle: ", vec![search.clone(), slowly("it is 39999")]),
            (
                "GO",
                vec![
                    ScriptStep::call("read", json!({"file_path": "long.txt", "limit": 50_000})),
                    question(mode),
                    told(ScriptStep::text("done"), expected),
                ],
            ),
        ])
    };
    for (mode, expected, count) in [("full-chunked", "both", 4), ("read-grep", "it is 39999", 2)] {
        let stream = recorded(&tree, about(mode, expected), &["@a.md", "GO"], 0);
        assert_eq!(sessions(&stream), count, "{stream}");
        assert_replays_identically(&tree, &stream, 0);
        std::fs::remove_file(tree.path("ws/r.jsonl")).unwrap();
    }
}

#[test]
fn changed_tool_list_replays_identically() {
    let tree = agents(&[("a.md", "tools: ['*']")]);
    mcp::configure(&tree, "changes", &[], "");
    let call = |tool: &str| ScriptStep::call(&format!("bad__{tool}"), json!({"text": "x"}));
    let about = script([("GO", vec![call("echo"), bash("true"), call("echo"), slowly("done")])]);
    let stream = recorded(&tree, about, &["@a.md", "GO"], 0);
    assert!(tree.text("ws/r.jsonl").contains(r#""type":"tools""#), "the list has changed");
    assert_replays_identically(&tree, &stream, 0);
}

#[test]
fn timed_out_run_replays_identically() {
    let tree = agents(&[
        ("lead.md", "agents: a.md"),
        ("a.md", "timeout: 3s"),
        ("slow.md", "llmTimeout: 300ms\nmaxAttempts: 1"),
    ]);
    let slow = || {
        ScriptStep::text("x")
            .at_pace(ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() })
    };
    let check = |about: Script, words: &[&str], code: i32, expected: &str| {
        let stream = recorded(&tree, about, words, code);
        assert!(stream.contains(expected), "{stream}");
        assert_replays_identically(&tree, &stream, code);
        std::fs::remove_file(tree.path("ws/r.jsonl")).unwrap();
    };
    // The sub-agent times out, and the run continues without it.
    let about = script([
        ("LEAD", vec![ScriptStep::say([ask("a", "BELOW")]), ScriptStep::text("alone, then")]),
        ("BELOW", vec![bash("echo x"), slow()]),
    ]);
    check(about, &["@lead.md", "LEAD"], 0, r#""error_kind":"timeout""#);
    check(Script::of([slow()]), &["--timeout", "2s", "@lead.md", "LEAD"], 124, "timed_out");
    check(Script::of([slow()]), &["@slow.md", "LEAD"], 124, "llmTimeout");
}

#[test]
fn interrupted_run_replays_up_to_the_interrupt() {
    let tree = agents(&[("lead.md", "agents: [a.md, b.md]"), ("a.md", ""), ("b.md", "")]);
    let marker = unique_marker();
    let server = ModelServer::start(script([
        ("LEAD", vec![ScriptStep::say([ask("a", "FIRST"), ask("b", "SECOND")])]),
        ("FIRST", vec![slowly("this one is ready")]),
        ("SECOND", vec![bash(&format!("exec -a {marker} sleep 300"))]),
    ]))
    .unwrap();
    let words = [&STREAM[..], &["--record", "r.jsonl", "@lead.md", "LEAD"]].concat();
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let mut child = haft(&tree, &server, &words).start();
        eventually("the command runs", || !processes_with(&marker).is_empty());
        eventually("the other agent has ended", || tree.text("ws/r.jsonl").contains(r#""type":"result""#));
        send_signal(child.id(), signal);
        child.stdin.take();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_replays_identically(&tree, &String::from_utf8(output.stdout).unwrap(), code);
        std::fs::remove_file(tree.path("ws/r.jsonl")).unwrap();
    }
}
