//! Tests of Ctrl-C at every stage of `haft run`: haft exits at once with code 130, reports the interrupt, and leaves no
//! process behind.

use std::process::Output;

use haft_model_server::{ModelServer, ResponseFault, ResponsePace, Script, ScriptPart, ScriptStep};
use haft_testkit::{HaftCommand, TestTree, eventually, libc, processes_with, send_signal, unique_marker};
use serde_json::{Value, json};

use super::agents::{agents, ask, bash, haft, script};
use super::call::here;

/// Interrupts haft once it has reached the stage.
fn interrupted(run: HaftCommand, moment: &str, mut is_there: impl FnMut(u32) -> bool) -> Output {
    let mut child = run.start();
    // Keep standard input open, because its end would end the request.
    let _stdin = child.stdin.take();
    eventually(moment, || is_there(child.id()));
    send_signal(child.id(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{moment}: {output:?}");
    output
}

/// Returns true once haft handles signals. The thread that watches standard output is the last thread that haft starts
/// for signal handling.
fn listens(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()
    };
    threads.filter_map(name).any(|name| name.trim() == "stdout-watch")
}

fn never() -> ScriptStep {
    ScriptStep::text("x").at_pace(ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() })
}

fn hangs_after_frames(step: ScriptStep, frames: usize) -> ScriptStep {
    step.with_fault(ResponseFault::Hang { after_frames: frames })
}

/// Checks the output of a run that was interrupted before it began: no answer, and for JSON output the reason.
fn assert_run_not_started(output: &Output) {
    if !output.stdout.is_empty() {
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&said["answer"], &said["exit_code"]), (&Value::Null, &130.into()), "{said}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("haft was interrupted before the run began"), "{said}");
}

fn assert_aborted(output: &Output) -> Value {
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["finish"], &said["is_error"]), (&"aborted".into(), &true.into()), "{said}");
    said
}

/// Checks that the session is stored as interrupted, and that it can be resumed.
fn assert_session_resumes(tree: &TestTree, server: &ModelServer, answer: &str) {
    let listed = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert!(listed.contains("interrupted"), "{listed}");
    let resume = tree.haft(&["resume", "-q"]);
    let resume = resume.env("OPENAI_BASE_URL", &format!("{}/v1", server.url())).env("OPENAI_API_KEY", "k");
    assert_eq!(resume.stdin("").output().expect_code(0).stdout.trim(), answer);
}

#[test]
fn interrupt_while_reading_stdin_sends_no_request() {
    let tree = here();
    let server = ModelServer::start(Script::default()).unwrap();
    assert_run_not_started(&interrupted(haft(&tree, &server, &["-"]), "the request is read", listens));
    assert!(server.requests().is_empty());
}

/// haft cannot handle the signal itself while it blocks on a pipe without a writer.
#[test]
fn interrupt_while_blocked_on_a_fifo_exits() {
    let tree = here();
    let server = ModelServer::start(Script::default()).unwrap();
    let fifo = tree.path("ws/schema.fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = haft(&tree, &server, &["--output-schema", "schema.fifo", "go"]);
    assert!(interrupted(run, "haft handles the signal", listens).stdout.is_empty());
}

#[test]
fn interrupt_during_server_start_kills_the_server() {
    let tree = here();
    let marker = unique_marker();
    let command = json!(["-c", format!("exec -a {marker} sleep 300")]);
    let servers =
        json!({"mcpServers": {"slow": {"command": "bash", "args": command, "startup": "required"}}});
    tree.file("home/haft.json", &servers.to_string());
    let models = ModelServer::start(Script::default()).unwrap();
    let run = haft(&tree, &models, &["go"]);
    assert_run_not_started(&interrupted(run, "the server starts", |_| !processes_with(&marker).is_empty()));
    eventually("the server is gone", || processes_with(&marker).is_empty());
}

#[test]
fn model_request_interrupted_during_routing_is_in_the_usage_records() {
    let tree = here();
    let models = r#"{"models": {"default": "openai/m", "fast": "openai/small", "complex": "openai/large"}}"#;
    tree.file("home/haft.json", models);
    let server = ModelServer::start(Script::of([never()])).unwrap();
    let run = tree.haft(&["run", "--route", "--output-format", "json", "go"]);
    let run = run.env("OPENAI_BASE_URL", &format!("{}/v1", server.url())).env("OPENAI_API_KEY", "k");
    assert_run_not_started(&interrupted(run, "the fast model is asked", |_| server.requests().len() == 1));
    let accounts = tree.text("home/data/accounting.jsonl");
    assert!(
        accounts.contains(r#""error_kind":"cancelled""#),
        "the interrupted model request is accounted: {accounts}"
    );
}

#[test]
fn interrupt_during_model_reply_aborts_and_can_be_resumed() {
    let long = ScriptStep::text("an answer that comes in several pieces and then no more");
    let report = json!({"status": "success", "format": "json", "content_json": {"a": 1}});
    let report = ScriptStep::call("agent__final_report", report);
    let check = |step: ScriptStep, words: &[&str]| {
        let tree = here();
        tree.file("ws/s.json", r#"{"type": "object"}"#);
        let server = ModelServer::start(Script::of([step])).unwrap();
        let words = [&["--output-format", "json"], words, &["go"]].concat();
        let run = haft(&tree, &server, &words);
        let said = assert_aborted(&interrupted(run, "the model gets the request", |_| {
            !server.requests().is_empty()
        }));
        assert_eq!(
            (&said["answer"], &said["answer_json"]),
            (&Value::Null, &Value::Null),
            "an incomplete reply is no answer"
        );
        tree
    };
    for step in [never(), hangs_after_frames(long, 4)] {
        let tree = check(step, &[]);
        assert_session_resumes(
            &tree,
            &ModelServer::start(Script::of([ScriptStep::text("after all")])).unwrap(),
            "after all",
        );
    }
    check(hangs_after_frames(report, 4), &["--output-schema", "s.json"]);
}

#[test]
fn interrupt_after_handoff_aborts_and_can_be_resumed() {
    let tree = agents(&[
        ("desk.md", "router: {destinations: [legal.md]}\ntools: []"),
        ("legal.md", "description: Knows the law"),
    ]);
    let server = ModelServer::start(script([
        ("hands this request", vec![never()]),
        (
            "MAY I?",
            vec![ScriptStep::call("router__handoff-to", json!({"agent": "legal", "message": "See."}))],
        ),
    ]))
    .unwrap();
    let run = haft(&tree, &server, &["--output-format", "json", "@desk.md", "MAY I?"]);
    let output =
        interrupted(run, "the second agent sends its model request", |_| server.requests().len() == 2);
    assert_eq!(assert_aborted(&output)["requests"], 2);
    let answers =
        ModelServer::start(script([("hands this request", vec![ScriptStep::text("You may.")])])).unwrap();
    assert_handoff_resumes(&tree, &answers);
}

/// Checks that after the first agent has finished, the agent that received the handoff continues.
fn assert_handoff_resumes(tree: &TestTree, server: &ModelServer) {
    let resume = tree.haft(&["resume", "-q"]);
    let resume = resume.env("OPENAI_BASE_URL", &format!("{}/v1", server.url())).env("OPENAI_API_KEY", "k");
    assert_eq!(resume.stdin("").output().expect_code(0).stdout.trim(), "You may.");
}

#[test]
fn interrupt_in_sub_agent_kills_command_and_can_be_resumed() {
    let tree = agents(&[("lead.md", "agents: a.md"), ("a.md", "tools: bash")]);
    let marker = unique_marker();
    let about = |last: ScriptStep| {
        script([
            (
                "LEAD",
                vec![
                    ScriptStep::say([ScriptPart::Text("I ask.".into()), ask("a", "BELOW")]),
                    ScriptStep::text("all done"),
                ],
            ),
            ("BELOW", vec![bash("echo x >> marks"), last]),
        ])
    };
    let server = ModelServer::start(about(bash(&format!("exec -a {marker} sleep 300")))).unwrap();
    let run = haft(&tree, &server, &["--output-format", "json", "@lead.md", "LEAD"]);
    assert_aborted(&interrupted(run, "the command runs", |_| !processes_with(&marker).is_empty()));
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_session_resumes(&tree, &ModelServer::start(about(ScriptStep::text("ready"))).unwrap(), "all done");
    assert_eq!(tree.text("ws/marks"), "x\n", "the resumed run does not repeat the call");
}

#[test]
fn resumed_model_gets_the_output_of_the_interrupted_call() {
    let tree = here();
    let server = ModelServer::start(Script::of([bash("echo half done; touch begun; sleep 300")])).unwrap();
    let run = haft(&tree, &server, &["--output-format", "json", "go"]);
    assert_aborted(&interrupted(run, "the command runs", |_| tree.exists("ws/begun")));
    // The resumed conversation already has one model reply, so the server answers its next request with the second step
    // of a script.
    let answers = ModelServer::start(Script::of([bash("exit 9"), ScriptStep::text("I see.")])).unwrap();
    assert_session_resumes(&tree, &answers, "I see.");
    let request = answers.requests()[0].raw.clone();
    let told = "check before you repeat it.\\nThe last output before haft stopped:\\nhalf done";
    assert!(request.contains(told), "{request}");
}

#[test]
fn resumed_sub_agent_gets_the_output_of_the_interrupted_call() {
    let tree = agents(&[("lead.md", "agents: a.md"), ("a.md", "tools: bash")]);
    let about = |last: ScriptStep| {
        let lead = vec![ScriptStep::say([ask("a", "BELOW")]), ScriptStep::text("all done")];
        script([
            ("LEAD", lead),
            ("BELOW", vec![bash("echo half of it; touch begun; sleep 300"), last.clone(), last]),
        ])
    };
    let server = ModelServer::start(about(ScriptStep::text("never"))).unwrap();
    let run = haft(&tree, &server, &["--output-format", "json", "@lead.md", "LEAD"]);
    assert_aborted(&interrupted(run, "the command runs", |_| tree.exists("ws/begun")));
    let answers = ModelServer::start(about(ScriptStep::text("ready"))).unwrap();
    assert_session_resumes(&tree, &answers, "all done");
    let told = "check before you repeat it.\\nThe last output before haft stopped:\\nhalf of it";
    let requests: Vec<String> = answers.requests().iter().map(|request| request.raw.clone()).collect();
    assert!(requests.iter().any(|request| request.contains(told)), "{requests:#?}");
}

/// Types Ctrl-C in a terminal while a question is open.
#[test]
fn interrupt_at_approval_prompt_aborts_the_run_before_the_call() {
    let tree = here();
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "bash", "decision": "ask"}]}}"#);
    let server = ModelServer::start(Script::of([bash("echo x > done")])).unwrap();
    let mut run = haft(&tree, &server, &["go"]).on_terminal();
    run.wait_for("allow?");
    run.type_keys("\x03");
    let shown = run.finish().expect_code(130).stdout;
    assert!(!tree.exists("ws/done") && shown.contains("aborted"), "{shown}");
}

#[test]
fn nohup_run_survives_sighup() {
    let wait = "touch begun; until test -e go; do sleep 0.05; done";
    let server = ModelServer::start(Script::of([bash(wait), ScriptStep::text("all done")])).unwrap();
    // The tests themselves may run under `nohup`, so the second case restores the signal.
    let cases: [(&[&str], _, _); 2] =
        [(&["nohup"], 0, "all done\n"), (&["env", "--default-signal=HUP"], 143, "")];
    for (wrapper, code, answer) in cases {
        let tree = here();
        let mut child = haft(&tree, &server, &["-q", "go"]).through(wrapper).start();
        eventually("the command runs", || tree.exists("ws/begun"));
        send_signal(child.id(), libc::SIGHUP);
        if code == 0 {
            tree.file("ws/go", "");
        }
        child.stdin.take();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(code), answer.into()), "{wrapper:?}");
    }
}

/// Interrupts the run between any two lines of the journal: completed calls are kept, no call is made twice, and the
/// run can be resumed.
#[test]
fn interrupt_at_any_journal_line_repeats_no_call() {
    let steps = || {
        let calls = (0..5).map(|n| bash(&format!("echo {n} >> marks")));
        calls.chain([ScriptStep::text("all done")]).collect::<Vec<_>>()
    };
    for lines in [1, 4, 7, 11, 16] {
        let tree = here();
        let server = ModelServer::start(Script::of(steps())).unwrap();
        let mut child = haft(&tree, &server, &["--output-format", "json", "go"]).start();
        eventually("the journal has this number of lines", || written(&tree) >= lines);
        send_signal(child.id(), libc::SIGINT);
        child.stdin.take();
        let output = child.wait_with_output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        match output.status.code() {
            Some(130) => {
                assert_eq!(said["finish"], "aborted", "{lines}: {said}");
                assert_session_resumes(&tree, &ModelServer::start(Script::of(steps())).unwrap(), "all done");
            }
            code => assert_eq!((code, &said["answer"]), (Some(0), &"all done".into()), "{lines}: {said}"),
        }
        let text = tree.text("ws/marks");
        let marks: std::collections::HashSet<&str> = text.lines().collect();
        assert_eq!(marks.len(), text.lines().count(), "{lines}: {text}");
    }
}

fn written(tree: &TestTree) -> usize {
    let Ok(journals) = std::fs::read_dir(tree.path("home/data/sessions")) else { return 0 };
    let texts = journals.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    texts.map(|text| text.lines().count()).sum()
}
