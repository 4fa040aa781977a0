//! Tests of `haft run` and `haft demo`, end to end: the scripted model server in every format, real tools, the real
//! sandbox.

use haft_model_server::{
    CitedText, ErrorResponse, ModelServer, RequestExpectation, ResponseFault, ResponsePace, Script,
    ScriptCall, ScriptPart, ScriptReasoning, ScriptStep, ScriptStop, ScriptUsage,
};
use haft_testkit::{
    HaftCommand, HaftOutput, TestTree, eventually, libc, processes_with, send_signal, unique_marker,
};
use serde_json::{Value, json};

use super::call::here;

/// One model of each wire format.
pub(crate) const FORMATS: [&str; 5] =
    ["openai/m", "openai-responses/m", "anthropic/m", "gemini/m", "ollama/m"];

pub(crate) fn server(steps: impl IntoIterator<Item = ScriptStep>) -> ModelServer {
    ModelServer::start(Script::of(steps)).unwrap()
}

pub(crate) fn haft(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    let url = server.url();
    tree.haft(words)
        .env("OPENAI_BASE_URL", &format!("{url}/v1"))
        .env("ANTHROPIC_BASE_URL", &url)
        .env("GOOGLE_GEMINI_BASE_URL", &url)
        .env("OLLAMA_HOST", url.trim_start_matches("http://"))
        .env("OPENAI_API_KEY", "k")
        .env("ANTHROPIC_API_KEY", "k")
        .env("GEMINI_API_KEY", "k")
}

fn run_in(tree: &TestTree, steps: impl IntoIterator<Item = ScriptStep>, words: &[&str]) -> HaftOutput {
    haft(tree, &server(steps), &[&["run"], words].concat()).output()
}

fn run(steps: impl IntoIterator<Item = ScriptStep>, words: &[&str]) -> HaftOutput {
    run_in(&here(), steps, &[&["-m", "openai/m"], words].concat())
}

/// Returns the step with the expectation that the last tool result in the request contains this text.
pub(crate) fn told(step: ScriptStep, text: &str) -> ScriptStep {
    step.expecting(RequestExpectation {
        last_tool_result: Some(text.into()),
        ..RequestExpectation::default()
    })
}

pub(crate) fn bash(command: &str) -> ScriptPart {
    ScriptPart::call("bash", json!({ "command": command }))
}

#[test]
fn every_model_api_runs_tools_and_answers() {
    for model in FORMATS {
        let tree = here();
        let steps = [
            ScriptStep::call("write", json!({"file_path": "a.txt", "content": "one\n"})),
            ScriptStep::say([
                ScriptPart::Text("I look.".into()),
                ScriptPart::call("read", json!({"file_path": "a.txt"})),
                bash("echo two >> a.txt; cat a.txt"),
            ]),
            told(ScriptStep::call("bash", json!({"command": "echo oops >&2; exit 7"})), "two"),
            told(ScriptStep::text("All done."), "oops"),
        ];
        let ran = run_in(&tree, steps, &["-m", model, "go"]).expect_code(0);
        assert_eq!(ran.stdout, "All done.\n", "{model}");
        assert_eq!(tree.text("ws/a.txt"), "one\ntwo\n", "{model}");
        for line in ["✓ write a.txt", "✓ read a.txt", "✓ bash echo two", "4 turns, 4 calls", "I look."]
        {
            assert!(ran.stderr.contains(line), "{model}: {line}\n{}", ran.stderr);
        }
        assert!(!ran.stderr.contains('\u{1b}'), "colours without a terminal: {}", ran.stderr);
    }
}

/// These notes appear without `-v`, because the answer may be less reliable than it looks.
#[test]
fn truncated_prompt_and_model_fallback_are_always_reported() {
    let cut =
        || [ScriptStep::text("done").using(ScriptUsage { input: 10, output: 1, ..ScriptUsage::default() })];
    let ran = run_in(&here(), cut(), &["-m", "ollama/m", "go"]).expect_code(0);
    assert!(ran.stderr.contains("! the model server cut the prompt: it read 10 tokens"), "{}", ran.stderr);
    let ran =
        run_in(&here(), cut(), &["-m", "ollama/m", "--output-format", "stream-json", "go"]).expect_code(0);
    let noted =
        |line: &str| line.contains(r#""type":"note""#) && line.contains("the model server cut the prompt");
    assert!(ran.stdout.lines().any(noted), "{}", ran.stdout);
    let (failing, good) = (
        server([ScriptStep::fail(ErrorResponse::new(401, "wrong key"))]),
        server([ScriptStep::text("done")]),
    );
    let ran = haft(&here(), &good, &["run", "-m", "openai/a", "-m", "anthropic/b", "go"])
        .env("OPENAI_BASE_URL", &format!("{}/v1", failing.url()))
        .output()
        .expect_code(0);
    let told = "! the model openai/a failed, so haft used a fallback model: wrong key";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
}

#[test]
fn run_reads_request_from_stdin_and_quiet_hides_progress() {
    let tree = here();
    let expected = RequestExpectation { user: Some("from a file".into()), ..RequestExpectation::default() };
    let server = server([ScriptStep::text("ok").expecting(expected)]);
    let ran = haft(&tree, &server, &["run", "-q", "-m", "openai/m", "-"]).stdin("from a file").output();
    let ran = ran.expect_code(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("ok\n", ""));
    let ran =
        run([ScriptStep::fail(ErrorResponse::new(404, "no such model"))], &["-q", "go"]).expect_code(42);
    assert!(ran.stderr.starts_with("error: ") && ran.stdout.is_empty(), "{}", ran.stderr);
    for empty in ["", " \n"] {
        haft(&tree, &server, &["run", "-m", "openai/m", "-"]).stdin(empty).output().expect_code(42);
    }
}

#[test]
fn command_line_flags_override_the_agent_file() {
    let tree = here();
    let agent = "---\nmodels: openai/m\nmaxTurns: 2\ntools: [read, current_date]\n---\nYou are the {{ include \"who.txt\" }}.\n";
    tree.file("ws/helper.md", agent);
    tree.file("ws/who.txt", "librarian");
    let first = ScriptStep::call("bash", json!({"command": "echo hi"})).expecting(RequestExpectation {
        system: Some("You are the librarian.".into()),
        ..RequestExpectation::default()
    });
    let more = ScriptStep::call("current_date", json!({}));
    let ran = run_in(&tree, [first, more, ScriptStep::text("so far")], &["@helper.md", "go"]).expect_code(9);
    assert_eq!(ran.stdout, "so far\n");
    assert!(ran.stderr.contains("✗ bash") && ran.stderr.contains("maxTurns"), "{}", ran.stderr);
    let steps = [ScriptStep::call("current_date", json!({})), ScriptStep::text("fine")];
    run_in(&tree, steps, &["--max-turns", "5", "@helper.md", "go"]).expect_code(0);
    tree.file("ws/bad.md", "---\nmaxTurn: 2\n---\n");
    let ran = run_in(&tree, [ScriptStep::text("x")], &["@bad.md", "go"]).expect_code(42);
    assert!(ran.stderr.contains("bad.md:2") && ran.stderr.contains("maxTurns"), "{}", ran.stderr);
    run_in(&tree, [ScriptStep::text("x")], &["@nobody", "go"]).expect_code(42);
    run_in(&tree, [ScriptStep::text("x")], &["@helper.md"]).expect_code(2);
}

#[test]
fn nonconforming_final_report_is_requested_again() {
    for model in FORMATS {
        let tree = here();
        tree.file("ws/s.json", r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#);
        let report = |content: Value| {
            ScriptStep::call(
                "agent__final_report",
                json!({"status": "success", "format": "json", "content_json": content}),
            )
        };
        let now = json!({"status": "success", "format": "json", "content_json": {"n": 3}, "metadata": {"seen": [1]}});
        let steps = [report(json!({"n": "many"})), ScriptStep::call("agent__final_report", now)];
        let words = ["-m", model, "--output-schema", "s.json", "--output-format", "json", "how many?"];
        let ran = run_in(&tree, steps, &words).expect_code(0);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&said["answer_json"]["n"], &said["finish"]), (&3.into(), &"completed".into()), "{model}");
        assert_eq!(said["metadata"], json!({"seen": [1]}), "{model}");
        assert!(said["ts"].as_u64().unwrap() > 1_700_000_000_000, "{model}: {said}");
        let report = json!({"status": "failure", "format": "json", "content_json": {"n": 0}});
        let steps = [ScriptStep::call("agent__final_report", report)];
        let ran =
            run_in(&tree, steps, &["-m", model, "--output-schema", "s.json", "how many?"]).expect_code(3);
        assert_eq!(ran.stdout, "{\"n\":0}\n");
    }
    let tree = here();
    tree.file("ws/s.json", "{");
    run_in(&tree, [ScriptStep::text("x")], &["-m", "openai/m", "--output-schema", "s.json", "x"])
        .expect_code(42);
}

#[test]
fn stream_json_prints_one_event_per_line() {
    let steps = [
        ScriptStep::call("bash", json!({"command": "echo hi"})).using(ScriptUsage {
            input: 100,
            output: 7,
            ..ScriptUsage::default()
        }),
        ScriptStep::text("done"),
    ];
    let ran = run(steps, &["--output-format", "stream-json", "go"]).expect_code(0);
    let lines: Vec<Value> = ran.events();
    let names: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let mut kinds = names.clone();
    kinds.dedup();
    let expected = [
        "run_started",
        "turn_started",
        "model_finished",
        "tool_call",
        "tool_progress",
        "tool_result",
        "turn_started",
        "text_delta",
        "model_finished",
        "run_finished",
        "result",
    ];
    assert_eq!(kinds, expected);
    let find = |name: &str| lines.iter().find(|line| line["type"] == name).unwrap();
    assert_eq!((&find("tool_call")["tool"], &find("tool_result")["text"]), (&"bash".into(), &"hi\n".into()));
    let result = lines.last().unwrap();
    assert_eq!(
        (&result["answer"], &result["turns"], &result["tool_calls"]),
        (&"done".into(), &2.into(), &1.into())
    );
    assert_eq!((&result["usage"]["input_tokens"], &result["exit_code"]), (&110.into(), &0.into()));
    assert_eq!(ran.stderr, "");
}

/// Checks that the documentation lists every event with every field, and no others.
#[test]
fn stream_json_events_match_documentation_and_schema() {
    let document = include_str!("../../../../docs/agents.md");
    let (_, section) = document.split_once("## For programs").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let words =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let documented: Vec<(Vec<String>, Vec<String>)> =
        rows.skip(1).map(|(types, fields)| (words(&format!("`{types}")), words(fields))).collect();

    let tree = here();
    tree.file("ws/lead.md", "---\nagents: helper.md\nmaxToolCallsPerTurn: 2\n---\n");
    tree.file("ws/helper.md", "");
    let thought = ScriptReasoning { text: "Let me see.".into(), state: Some("c3RhdGU=".into()) };
    let calls = [
        ScriptPart::Reasoning(thought),
        bash("echo hi"),
        ScriptPart::call("agent__helper", json!({"request": "BELOW"})),
        ScriptPart::call("current_date", json!({})),
    ];
    let script = Script::of([ScriptStep::say(calls), ScriptStep::text("done")])
        .about("BELOW", [ScriptStep::text("helped")]);
    let server = ModelServer::start(script).unwrap();
    let words_typed = ["run", "-m", "anthropic/m", "--output-format", "stream-json", "@lead.md", "go"];
    let ran = haft(&tree, &server, &words_typed).output().expect_code(0);
    let schema = tree.haft(&["dev", "events", "--schema"]).output().expect_code(0).stdout;
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let envelopes: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = envelopes.iter().map(|envelope| envelope["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=envelopes.len() as u64).collect::<Vec<_>>());
    for envelope in envelopes.iter().filter(|envelope| envelope["event"]["type"] != "result") {
        let errors: Vec<String> = schema.iter_errors(envelope).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{envelope}: {errors:?}");
    }
    let compacted = super::compaction::compacted_stream();
    let parts = [
        ScriptPart::reasoning("Let me see.", "c3RhdGU="),
        ScriptPart::Cited(CitedText { text: "Found.".into(), url: "https://a/".into(), title: "A".into() }),
        ScriptPart::Refusal("No more.".into()),
    ];
    let refused = run_in(
        &here(),
        [ScriptStep::say(parts)],
        &["-m", "openai-responses/m", "--output-format", "stream-json", "go"],
    );
    let events: Vec<Value> = [ran.events(), compacted.events(), refused.events()].concat();
    for (types, fields) in &documented {
        for name in types {
            let found: Vec<&Value> = events.iter().filter(|event| event["type"] == **name).collect();
            assert!(!found.is_empty(), "the run emits no documented event {name}");
            for event in found {
                let written: Vec<&String> = event.as_object().unwrap().keys().collect();
                let common = |key: &&&String| !["type", "session", "turn"].contains(&key.as_str());
                let known =
                    |key: &String| fields.contains(key) || name == "result" && words(section).contains(key);
                let unknown: Vec<_> = written.iter().filter(common).filter(|key| !known(key)).collect();
                assert!(unknown.is_empty(), "{name} has undocumented fields: {unknown:?}");
                let is_exact = !["note", "result", "run_finished"].contains(&name.as_str());
                let missing = fields.iter().find(|field| is_exact && !written.contains(field));
                assert_eq!(missing, None, "{name} lacks a documented field");
                assert!(
                    event["session"].is_string() && (event["turn"].is_u64() || name == "result"),
                    "{event}"
                );
            }
        }
    }
    let all: Vec<&String> = documented.iter().flat_map(|(types, _)| types).collect();
    let unknown = events.iter().find(|event| !all.iter().any(|name| event["type"] == ***name));
    assert_eq!(unknown, None, "the run emits an undocumented event");
}

#[test]
fn invalid_tool_calls_get_error_results_and_the_run_continues() {
    let garbage = ScriptCall {
        name: "bash".into(),
        arguments_text: Some("{\"command\": <<<".into()),
        ..ScriptCall::default()
    };
    let steps = [
        ScriptStep::say([ScriptPart::Call(garbage)]),
        told(ScriptStep::call("no_such_tool", json!({"a": 1})), "JSON"),
        told(ScriptStep::call("read", json!({"file": 1})), "no_such_tool"),
        told(ScriptStep::text("sorry"), "file_path"),
    ];
    let ran = run(steps, &["go"]).expect_code(0);
    assert_eq!(ran.stdout, "sorry\n");
    assert_eq!(ran.stderr.matches('✗').count(), 3, "{}", ran.stderr);
}

#[test]
fn run_limits_have_exit_codes_and_print_the_last_answer() {
    let dates =
        |number: usize| (0..number).map(|_| ScriptStep::call("current_date", json!({}))).collect::<Vec<_>>();
    let with_end = |number: usize| [dates(number), vec![ScriptStep::text("what I have")]].concat();
    // If the model answers in the last turn without trying a call, the run ends normally. If the model tries a call
    // first, haft refuses the call, and the run exits with 9.
    assert_eq!(run(with_end(2), &["--max-turns", "3", "go"]).expect_code(0).stdout, "what I have\n");
    let ran = run(with_end(3), &["--max-turns", "3", "go"]).expect_code(9);
    assert_eq!(ran.stdout, "what I have\n");
    assert!(ran.stderr.contains("max_turns") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    let tree = here();
    tree.file("ws/poor.md", "---\nbudget:\n  tokens: 20\n---\nSpend little.\n");
    let ran = run_in(&tree, with_end(1), &["-m", "openai/m", "@poor.md", "go"]).expect_code(10);
    assert!(ran.stdout.contains("what I have"), "{}", ran.stdout);
    // The model makes the same call again and again.
    run(dates(9), &["go"]).expect_code(3);
    // The model makes five hundred calls at once: ten are made, the others are refused.
    let flood = ScriptStep::say((0..500).map(|n| bash(&format!("echo {n} >> count.txt"))));
    let tree = here();
    let ran = run_in(&tree, [flood, ScriptStep::text("enough")], &["-m", "openai/m", "go"]);
    assert_eq!(ran.stdout, "enough\n", "{}", ran.stderr);
    assert_eq!(tree.text("ws/count.txt").lines().count(), 10);
}

#[test]
fn provider_failures_end_the_run_with_distinct_codes() {
    let once = r#"{"providers": {"openai": {"maxAttempts": 1}}}"#;
    let check = |steps: Vec<ScriptStep>, code: i32| {
        let tree = here();
        tree.file("home/haft.json", once);
        let ran = run_in(&tree, steps, &["-m", "openai/m", "go"]).expect_code(code);
        assert!(ran.stderr.contains("hint:"), "{}", ran.stderr);
    };
    check(vec![ScriptStep::fail(ErrorResponse::new(401, "wrong key"))], 6);
    check(vec![ScriptStep::fail(ErrorResponse::new(429, "You exceeded your current quota"))], 7);
    check(
        vec![ScriptStep::call("current_date", json!({})), ScriptStep::fail(ErrorResponse::new(500, "oh"))],
        5,
    );
    check((0..9).map(|_| ScriptStep::say([]).at_turn(0)).collect(), 3);
    check((0..9).map(|_| ScriptStep::text("cut").stopping(ScriptStop::Length)).collect(), 9);
    let tree = here();
    tree.haft(&["run", "-m", "openai/m", "go"]).output().expect_code(6);
    tree.haft(&["run", "go"]).output().expect_code(2);
}

/// Text from a model or provider about a failure is quoted without control sequences.
#[test]
fn failure_messages_contain_no_terminal_escapes() {
    let evil = "\u{1b}]0;owned\u{7}sorry";
    for step in
        [ScriptStep::say([ScriptPart::Refusal(evil.into())]), ScriptStep::fail(ErrorResponse::new(400, evil))]
    {
        let tree = here();
        let run = haft(&tree, &server([step]), &["run", "-m", "openai/m", "go"])
            .env("CLICOLOR_FORCE", "1")
            .output();
        assert!(run.stderr.contains("sorry") && !run.stderr.contains("\u{1b}]0;"), "{:?}", run.stderr);
    }
}

#[test]
fn truncated_model_streams_fail_the_run() {
    let tree = here();
    let steps: Vec<ScriptStep> = (0..9)
        .map(|_| {
            ScriptStep::text(&"half a sentence ".repeat(50))
                .with_fault(ResponseFault::Cut { after_frames: 3, and_bytes: 5 })
        })
        .collect();
    let ran = run_in(&tree, steps, &["-m", "openai/m", "go"]);
    assert!(!matches!(ran.code, Some(0) | None), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("error:"), "{}", ran.stderr);
}

#[test]
fn denied_call_is_reported_to_model_and_in_exit_code() {
    let tree = here();
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "bash", "decision": "deny"}]}}"#);
    let calls = |number: usize| (0..number).map(|_| ScriptStep::say([bash("ls")])).collect::<Vec<_>>();
    let steps = [calls(1), vec![told(ScriptStep::text("I may not."), "denied")]].concat();
    assert_eq!(run_in(&tree, steps, &["-m", "openai/m", "go"]).expect_code(0).stdout, "I may not.\n");
    run_in(&tree, calls(9), &["-m", "openai/m", "go"]).expect_code(4);
    let steps = [ScriptStep::say([bash("ls")]), ScriptStep::text("ok")];
    let ran = run_in(&here(), steps, &["-m", "openai/m", "--allowed-tools", "read", "go"]).expect_code(0);
    assert!(ran.stderr.contains("! bash"), "{}", ran.stderr);
}

#[test]
fn unknown_tool_names_in_tool_lists_cause_a_warning() {
    let check = |words: &[&str], told: &[&str]| {
        let ran = run([ScriptStep::text("ok")], &[words, &["go"]].concat()).expect_code(0);
        let warnings = ran.stderr.lines().filter(|line| line.contains("there is no tool")).count();
        assert_eq!(warnings, told.len(), "{words:?}: {}", ran.stderr);
        assert!(told.iter().all(|name| ran.stderr.contains(&format!("`{name}`"))), "{}", ran.stderr);
    };
    check(&[], &[]);
    check(&["--tools", "bash,re*,agent__batch"], &[]);
    check(&["--tools", ""], &[]);
    check(&["--tools", "bsh,read"], &["bsh"]);
    check(&["--allowed-tools", "read"], &[]);
    check(&["--allowed-tools", "raed"], &["raed"]);
    // haft also warns about typos in the files of sub-agents.
    let tree = here();
    tree.file("ws/lead.md", "---\nagents: a.md\nrouter: {destinations: [b.md]}\n---\n");
    tree.file("ws/a.md", "---\ntools: [raed]\nhandoff: b.md\n---\n");
    tree.file("ws/b.md", "---\nallowedTools: [bsh]\n---\n");
    let ran = run_in(&tree, [ScriptStep::text("ok")], &["-m", "openai/m", "@lead.md", "go"]).expect_code(0);
    let warnings: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("there is no tool")).collect();
    assert_eq!(warnings.len(), 2, "{}", ran.stderr);
    assert!(
        warnings[0].contains("`raed`, which agent `a` lists")
            && warnings[1].contains("`bsh`, which agent `b` lists")
    );
}

#[test]
fn allowed_tools_match_names_case_insensitively() {
    let date = || ScriptStep::call("current_date", json!({}));
    for (allowed, may) in [("current_date", true), ("Current_Date", true), ("read", false)] {
        let ran = run([date(), ScriptStep::text("ok")], &["--allowed-tools", allowed, "go"]);
        assert_eq!(ran.stderr.contains("✓ current_date"), may, "{allowed}: {}", ran.stderr);
    }
}

#[test]
fn run_timeout_ends_models_and_commands() {
    let slow = ScriptStep::text("x")
        .at_pace(ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() });
    run([slow], &["--timeout", "700ms", "go"]).expect_code(124);
    let marker = unique_marker();
    run([ScriptStep::say([bash(&format!("exec -a {marker} sleep 300"))])], &["--timeout", "2s", "go"])
        .expect_code(124);
    eventually("the command is gone", || processes_with(&marker).is_empty());
}

#[test]
fn interrupt_kills_commands_and_reports_the_aborted_run() {
    let marker = unique_marker();
    let tree = here();
    let server = server([
        ScriptStep::call("write", json!({"file_path": "kept.txt", "content": "x"})),
        ScriptStep::say([bash(&format!("exec -a {marker} sleep 300"))]),
    ]);
    let words = ["run", "-m", "openai/m", "--output-format", "json", "go"];
    let mut child = haft(&tree, &server, &words).start();
    eventually("the command runs", || !processes_with(&marker).is_empty());
    send_signal(child.id(), libc::SIGINT);
    let output = {
        child.stdin.take();
        child.wait_with_output().unwrap()
    };
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["finish"], &said["is_error"], &said["turns"]),
        (&"aborted".into(), &true.into(), &2.into())
    );
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_eq!(tree.text("ws/kept.txt"), "x");
}

/// The tool of this test requests the model list of the scripted server, which serves as the user's HTTP API.
#[test]
fn rest_tools_can_be_called_in_a_run() {
    let tree = here();
    let script = Script { models: vec!["a-model-of-many".into()], ..Script::default() };
    let script = Script {
        steps: vec![
            ScriptStep::call("rest__it", json!({})),
            told(ScriptStep::text("seen"), "a-model-of-many"),
        ],
        ..script
    };
    let server = ModelServer::start(script).unwrap();
    let tool =
        json!({"description": "Lists models", "method": "GET", "url": format!("{}/v1/models", server.url())});
    tree.file("home/haft.json", &json!({"restTools": {"it": tool}}).to_string());
    let ran = haft(&tree, &server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert_eq!(ran.stdout, "seen\n");
    assert!(ran.stderr.contains("✓ rest__it"), "{}", ran.stderr);
}

#[test]
fn accounting_contains_no_message_content() {
    let tree = here();
    let steps = [ScriptStep::say([bash("echo canary-in-a-call")]), ScriptStep::text("canary-in-an-answer")];
    run_in(&tree, steps, &["-v", "-m", "openai/m", "canary-in-a-request"]).expect_code(0);
    let accounts = tree.text("home/data/accounting.jsonl");
    assert_eq!(accounts.lines().count(), 3, "{accounts}");
    assert!(!accounts.contains("canary"), "{accounts}");
}

#[test]
fn terminal_run_prompts_for_approval_and_shows_progress() {
    let tree = here();
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "bash", "decision": "ask"}]}}"#);
    let server = server([
        ScriptStep::say([bash("sleep 0.5; echo slept")]),
        told(ScriptStep::text("Good morning."), "slept"),
    ]);
    let seen = |words: &[&str]| {
        let mut run =
            haft(&tree, &server, &[&["run", "-m", "openai/m"], words, &["go"]].concat()).on_terminal();
        run.wait_for("allow?");
        run.type_keys("y");
        run.finish().expect_code(0).stdout
    };
    let coloured = seen(&[]);
    for part in ["allow? [y] once", "\r\u{1b}[2K", "\u{1b}[32m✓", "Good morning.", "2 turns, 1 call,"] {
        assert!(coloured.contains(part), "{part}: {coloured:?}");
    }
    assert!(!seen(&["--no-color"]).contains("\u{1b}[32m"));
}

#[test]
fn demo_prints_agent_calls_a_denied_write_the_cost_and_the_next_command() {
    let tree = here();
    // This proxy does not answer: the demo must not use it.
    let ran = tree.haft(&["demo"]).env("HTTP_PROXY", "http://127.0.0.1:9").output().expect_code(0);
    assert!(ran.stdout.contains("The two invoices add up to 200"), "{}", ran.stdout);
    // The picture in the README shows the same run; `examples/recording.rs` draws it again.
    let picture = include_str!("../../../../docs/demo.svg");
    for shown in
        ran.stdout.split_whitespace().chain(["✓", "✗", "january.csv", "agent__checker", "parallel", "$0.037"])
    {
        assert!(picture.contains(shown), "the picture does not show `{shown}`");
    }
    for part in [
        "The model in this demo follows a script",
        "✓ read january.csv",
        "✓ read february.csv",
        ", in parallel\n",
        "✓ checker: bash",
        "✓ agent__checker",
        "✗ write /etc/total.txt",
        "✓ write total.txt",
        "(1 denied)",
        ", $0.037, ",
        "haft run -m anthropic/",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
    let stats = tree.haft(&["stats", "--json"]).output().expect_code(0);
    assert!(!stats.stdout.contains("scripted") && !stats.stdout.contains("january"), "{}", stats.stdout);
    assert!(!tree.path("home/data/accounting.jsonl").exists());
}

/// haft stores the fact that a model cannot call tools, so that later processes need not find it out again.
#[test]
fn missing_tool_support_of_a_model_is_cached_across_runs() {
    use haft_model_server::{ErrorResponse, ModelServer, RequestExpectation, Script, ScriptStep};
    let tree = super::call::here();
    let refused = ScriptStep::fail(ErrorResponse::new(400, "registry.example/m does not support tools"));
    let told = RequestExpectation {
        system: Some("current_date".into()),
        tools: Some(Vec::new()),
        ..RequestExpectation::default()
    };
    let ask = |steps: Vec<ScriptStep>| {
        let server = ModelServer::start(Script::of(steps)).unwrap();
        let words = ["run", "-q", "-m", "ollama/m", "--tools", "current_date", "hi"];
        let run = tree.haft(&words).env("OLLAMA_HOST", server.url().trim_start_matches("http://"));
        assert_eq!(run.output().expect_code(0).stdout, "Hello.\n");
        server.requests().len()
    };
    let answer = || ScriptStep::text("Hello.").expecting(told.clone());
    assert_eq!(ask(vec![refused, answer()]), 2);
    assert_eq!(ask(vec![answer()]), 1);
}

#[test]
fn run_that_cannot_start_reports_the_error_in_the_chosen_output_format() {
    let tree = here();
    let run = |format: &str| {
        let ran =
            tree.haft(&["run", "-m", "openai/m", "--output-format", format, "go"]).output().expect_code(6);
        assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
        ran.stdout
    };
    let check = |result: &Value| {
        assert_eq!((&result["type"], &result["is_error"]), (&"result".into(), &true.into()), "{result}");
        assert_eq!(result["exit_code"], 6, "{result}");
        assert!(result["error"].as_str().unwrap().contains("OPENAI_API_KEY"), "{result}");
    };
    check(&serde_json::from_str(&run("json")).unwrap());
    check(&serde_json::from_str::<Value>(&run("stream-json")).unwrap()["event"]);
    assert_eq!(run("text"), "");
}
