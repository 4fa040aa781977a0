use haft_model_server::{ErrorResponse, ModelServer, Script, ScriptStep, ScriptUsage};
use haft_testkit::{HaftOutput, SpanCollector, TestTree};
use serde_json::{Value, json};

use super::call::here;

const RULES: &str = r#"{"policy": {"rules": [
    {"tool": "bash", "command": "rm *", "decision": "deny"},
    {"tool": "write", "decision": "ask"}
]}}"#;

/// Returns the usage records, after checking each line against the schema.
pub(super) fn accounting(tree: &TestTree) -> Vec<Value> {
    events(&tree.text("home/data/accounting.jsonl"))
}

/// Returns the events of lines that must match the published schema and have a time. Adds the run and the parent to
/// each event.
fn events(text: &str) -> Vec<Value> {
    let validator = jsonschema::validator_for(&haft_core::event_log::schema()).unwrap();
    let read = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
        assert!(errors.is_empty() && line["at"].is_u64(), "{line}: {errors:?}");
        let mut event = line["event"].take();
        (event["run"], event["parent"]) = (line["run"].take(), line["parent"].take());
        event
    };
    text.lines().map(read).collect()
}

fn stream(tree: &TestTree, flags: &[&str], lines: &str) -> HaftOutput {
    tree.haft(&[&["call", "--stdin"], flags].concat()).stdin(lines).output().expect_code(0)
}

#[test]
fn tree_flag_prints_call_tree_to_stderr() {
    let ran = here().haft(&["call", "--tree", "bash", r#"{"command":"echo a"}"#]).output().expect_code(0);
    assert_eq!(ran.stdout, "a\n");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("session "), "{}", ran.stderr);
    assert_eq!(lines[1], "└─ turn 1");
    assert!(lines[2].starts_with("   └─ 1-1 bash ok ["), "{}", ran.stderr);
    assert!(lines[3].starts_with("calls: 1, errors: 0, cached: 0, "), "{}", ran.stderr);
}

#[test]
fn json_result_includes_the_call_tree() {
    let tree = here();
    let ran = tree.haft(&["call", "--tree", "--json", "nosuch"]).output().expect_code(42);
    let drawn = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["tree"];
    let operation = &drawn["sessions"][0]["turns"][0]["operations"][0];
    assert_eq!((&operation["path"], &operation["error_kind"]), (&json!("1-1"), &json!("unknown_tool")));
    assert_eq!(drawn["totals"]["errors"], 1);
    let ran = tree.haft(&["call", "--json", "current_date"]).output().expect_code(0);
    assert!(serde_json::from_str::<Value>(&ran.stdout).unwrap().get("tree").is_none());
}

#[test]
fn two_calls_of_a_turn_may_have_equal_ids() {
    let line = r#"{"id":"same","tool":"current_date"}"#;
    let ran = stream(&here(), &["--tree", "--jobs", "1"], &format!("{line}\n{line}\n"));
    assert!(ran.stderr.contains("├─ 1-1 current_date ok"), "{}", ran.stderr);
    assert!(ran.stderr.contains("└─ 1-2 current_date ok"), "{}", ran.stderr);
    assert!(ran.stderr.contains("calls: 2, errors: 0"), "{}", ran.stderr);
}

#[test]
fn accounting_records_policy_decision_of_every_call() {
    let tree = here();
    tree.file("home/haft.json", RULES);
    let check = |tool: &str, arguments: &str, expected: Value| {
        tree.haft(&["call", tool, arguments]).output();
        let last = accounting(&tree).pop().unwrap();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&last[key], value, "{tool} {key}: {last}");
        }
        assert_eq!(last["arguments_digest"].as_str().unwrap().len(), 64);
        assert_eq!(last["principal"], "local");
        assert_eq!(last["run"].as_str().unwrap().len(), 36);
    };
    let denied = json!({
        "error_kind": "denied", "decision": "deny", "rule": "deny bash: rm *", "executed": false,
        "provider_kind": "builtin", "namespace": "builtin", "answer": null,
    });
    check("bash", r#"{"command":"rm x"}"#, denied);
    let unapproved =
        json!({"decision": "ask", "rule": "ask write", "answer": "no_approver", "approver": null});
    check("write", r#"{"file_path":"x","content":""}"#, unapproved);
    let allowed = json!({"error_kind": null, "decision": "allow", "rule": null, "executed": true, "turn": 1});
    check("current_date", "{}", allowed);
    let unknown =
        json!({"error_kind": "unknown_tool", "decision": null, "namespace": null, "tool": "nosuch"});
    check("nosuch", "{}", unknown);
    check("bash", r#"{"comand":"ls"}"#, json!({"error_kind": "invalid_arguments", "decision": null}));
}

#[test]
fn interrupted_call_is_recorded_as_cancelled_in_the_accounting_log() {
    let tree = here();
    let arguments = r#"{"command":"touch started; sleep 60"}"#;
    let mut child = tree.haft(&["call", "bash", arguments]).start();
    haft_testkit::eventually("the call runs", || tree.exists("ws/started"));
    haft_testkit::send_signal(child.id(), haft_testkit::libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last = accounting(&tree).pop().unwrap();
    assert_eq!((&last["error_kind"], &last["executed"]), (&json!("cancelled"), &json!(true)));
}

#[test]
fn log_lines_name_the_provider_and_the_outcome() {
    let tree = here();
    tree.file("home/haft.json", RULES);
    let ran = tree.haft(&["call", "-v", "bash", r#"{"command":"exit 3"}"#]).output().expect_code(3);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("INF 1-1 → builtin builtin:bash"), "{}", ran.stderr);
    assert!(lines[1].starts_with("WRN 1-1 ← builtin builtin:bash ["), "{}", ran.stderr);
    assert!(lines[1].ends_with("failed: the tool ran and reported a failure"), "{}", ran.stderr);
    let ran = tree.haft(&["call", "-v", "bash", r#"{"command":"rm x"}"#]).output().expect_code(4);
    assert!(
        ran.stderr.contains("denied: this call is not permitted (rule: deny bash: rm *)"),
        "{}",
        ran.stderr
    );
}

#[test]
fn json_log_lines_are_tool_events() {
    let ran = here()
        .haft(&["call", "-v", "--log-format", "json", "bash", r#"{"command":"echo a"}"#])
        .output()
        .expect_code(0);
    let lines = events(&ran.stderr);
    assert_eq!(lines.len(), 2);
    for (line, kind) in lines.iter().zip(["tool_started", "tool_finished"]) {
        let expected =
            [("type", kind), ("tool", "bash"), ("provider_kind", "builtin"), ("namespace", "builtin")];
        for (key, value) in expected {
            assert_eq!(line[key], value, "{line}");
        }
    }
    assert_eq!((&lines[1]["bytes_in"], &lines[1]["bytes_out"]), (&json!(20), &json!(2)));
    assert_eq!((&lines[1]["decision"], &lines[1]["error_kind"]), (&json!("allow"), &Value::Null));
}

/// Makes a run whose request, arguments, output and answer contain a special word. Tests check whether log lines
/// contain this word.
fn run_with_canaries(config: &str, variable: &str) -> (TestTree, HaftOutput) {
    let call = ScriptStep::call("bash", json!({"command": "echo canary-in-a-call"}));
    let server = ModelServer::start(Script::of([call, ScriptStep::text("canary-in-an-answer")])).unwrap();
    let tree = here();
    tree.file("home/haft.json", config);
    let words =
        ["run", "-m", "openai/m", "--tools", "bash", "-v", "--log-format", "json", "canary-in-a-request"];
    let run = tree.haft(&words).env("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let run = run.env("OPENAI_API_KEY", "sk-test-0123456789");
    let run = run.env("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", variable);
    let ran = run.output().expect_code(0);
    (tree, ran)
}

/// Returns the log lines of a run, without the other lines on standard error.
fn log_of(ran: &HaftOutput) -> String {
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with('{')).collect();
    lines.join("\n")
}

#[test]
fn json_log_of_a_run_omits_content() {
    let (tree, ran) = run_with_canaries("{}", "");
    let log = log_of(&ran);
    assert!(!log.contains("canary"), "{log}");
    let lines = events(&log);
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let expected = [
        "run_started",
        "turn_started",
        "model_finished",
        "tool_started",
        "tool_finished",
        "turn_started",
        "model_finished",
        "run_finished",
    ];
    assert_eq!(types, expected);
    assert_eq!((&lines[2]["principal"], &lines[2]["model"]), (&json!("local"), &json!("openai/m")));
    assert!(lines.iter().all(|line| line["run"] == lines[0]["run"]), "{log}");
    // The log and the usage records contain the same event.
    let accounts = accounting(&tree);
    let mut finished: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "tool_finished" || line["type"] == "model_finished")
        .collect();
    finished.sort_by_key(|line| line["turn"].as_u64());
    let mut accounted: Vec<&Value> = accounts.iter().collect();
    accounted.sort_by_key(|line| line["turn"].as_u64());
    assert_eq!(finished, accounted);
}

#[test]
fn json_log_has_content_only_if_capture_is_enabled() {
    const ON: &str = r#"{"telemetry": {"captureContent": true}}"#;
    let check = |config: &str, variable: &str, captured: bool| {
        let (tree, ran) = run_with_canaries(config, variable);
        let log = log_of(&ran);
        for canary in ["canary-in-a-call", "canary-in-an-answer"] {
            assert_eq!(log.contains(canary), captured, "{config} {variable}: {log}");
        }
        let lines = events(&log);
        let finished = lines.iter().find(|line| line["type"] == "tool_finished").unwrap();
        let result = captured.then_some("canary-in-a-call\n");
        assert_eq!(finished["result"].as_str(), result, "{finished}");
        assert!(
            !tree.text("home/data/accounting.jsonl").contains("canary"),
            "usage records contain no content"
        );
    };
    check(ON, "", true);
    check("{}", "true", true);
    check(ON, "false", false);
}

/// Text lines have no content, even if the operator enables content capture.
#[test]
fn captured_content_is_only_in_json_log_lines() {
    let tree = here();
    tree.file("home/haft.json", r#"{"telemetry": {"captureContent": true}}"#);
    let call = |format: &str| {
        let words = ["call", "-v", "--log-format", format, "bash", r#"{"command":": canary"}"#];
        tree.haft(&words).output().expect_code(0).stderr
    };
    let lines = events(&call("json"));
    assert_eq!(lines[1]["arguments"], r#"{"command":": canary"}"#);
    assert!(!call("text").contains("canary"));
}

#[test]
fn haft_log_variable_sets_the_log_level() {
    let check = |level: &str, tool: &str, lines: usize| {
        let tree = here();
        let run = tree.haft(&["call", "--stdin"]).env("HAFT_LOG", level);
        let ran = run.stdin(format!("{{\"id\":1,\"tool\":\"{tool}\"}}\n")).output().expect_code(0);
        assert_eq!(ran.stderr.lines().count(), lines, "{level} {tool}: {}", ran.stderr);
    };
    check("", "current_date", 0);
    check("off", "nosuch", 0);
    check("error", "nosuch", 0);
    check("warn", "nosuch", 1);
    check("warn", "current_date", 0);
    check("info", "current_date", 2);
    let ran = here().haft(&["call", "current_date"]).env("HAFT_LOG", "loud").output().expect_code(0);
    assert!(ran.stderr.contains("warning: HAFT_LOG must be"), "{}", ran.stderr);
}

/// `script` gives haft a terminal.
#[test]
fn long_call_shows_progress_on_a_terminal() {
    let tree = here();
    let command = "for i in $(seq 20); do echo step $i of many; sleep 0.1; done";
    tree.file("ws/arguments", &json!({ "command": command }).to_string());
    let script = r#"script -qec "$0 call bash - < arguments > answer" typescript"#;
    tree.haft(&[]).through(&["bash", "-c", script]).output().expect_code(0);
    let seen = tree.text("ws/typescript");
    assert!(seen.contains("s step ") && seen.contains(" of many"), "{seen:?}");
    let answer = tree.text("ws/answer");
    assert!(answer.starts_with("step 1 of many\n") && !answer.contains('\u{1b}'), "{answer:?}");
}

/// Makes a run of two model requests, the first of which fails once, and one call.
fn run_with_a_model(words: &[&str], collector: Option<&SpanCollector>) -> (TestTree, HaftOutput) {
    let refused = ScriptStep::fail(ErrorResponse::new(503, "busy"));
    let call = ScriptStep::call("current_date", json!({}));
    let spent = ScriptUsage { input: 1000, output: 10, ..ScriptUsage::default() };
    let server =
        ModelServer::start(Script::of([refused, call.using(spent), ScriptStep::text("Done.").using(spent)]));
    let (tree, server) = (here(), server.unwrap());
    let price = json!({"models": {"settings": {"openai/m": {"price": {"input": 1, "output": 1}}}}});
    tree.file("home/haft.json", &price.to_string());
    let words = [&["run", "-m", "openai/m", "--tools", "current_date"], words, &["What day is it?"]].concat();
    let run = tree.haft(&words).env("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let run = run.env("OPENAI_API_KEY", "sk-test-0123456789");
    let ran = match collector {
        Some(collector) => run.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).output(),
        None => run.output(),
    };
    (tree, ran.expect_code(0))
}

#[test]
fn model_attempts_are_in_tree_and_log_with_tokens_and_cost() {
    let (tree, ran) = run_with_a_model(&["-v", "--tree"], None);
    // Check that a line contains these strings in this order.
    let has = |pieces: &[&str]| {
        let holds = |line: &str| {
            pieces.iter().try_fold(line, |rest, piece| Some(rest.split_once(piece)?.1)).is_some()
        };
        assert!(ran.stderr.lines().any(holds), "{pieces:?} in {}", ran.stderr);
    };
    has(&["├─ openai/m overloaded [", " ms]"]);
    has(&["├─ openai/m (attempt 2) ok [", " ms, 1000 tokens in, 10 out, $0.001010]"]);
    has(&["└─ 1-1 current_date ok"]);
    has(&["models: 3, 2000 tokens in, 20 out, $0.002020"]);
    has(&["INF 1 → model openai:m"]);
    has(&["WRN 1 ← model openai:m [", " ms] overloaded: ", " (again after ", " ms)"]);
    has(&["INF 2 ← model openai:m [", " ms, 1000 tokens in, 10 out, $0.001010]"]);
    let models = accounting(&tree).into_iter().filter(|line| line["model"] == "openai/m");
    let turns: Vec<_> =
        models.map(|line| (line["turn"].clone(), line["run"].as_str().unwrap().len())).collect();
    assert_eq!(turns, [(json!(1), 36), (json!(1), 36), (json!(2), 36)]);
}

#[test]
fn model_attempt_span_follows_genai_conventions() {
    let collector = SpanCollector::start();
    let (_, _) = run_with_a_model(&[], Some(&collector));
    let spans = collector.spans();
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m").collect();
    assert_eq!((spans.len(), chats.len()), (5, 3), "one run, three attempts and a call: {spans:?}");
    let of = |at: usize, name: &str| chats[at].attributes.get(name).map(String::as_str);
    assert_eq!((of(0, "error.type"), of(0, "gen_ai.usage.input_tokens")), (Some("overloaded"), None));
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.usage.input_tokens", "1000"),
        ("gen_ai.usage.output_tokens", "10"),
        ("haft.model.attempt", "2"),
        ("haft.turn", "1"),
    ] {
        assert_eq!(of(1, name), Some(value), "{name}: {:?}", chats[1]);
    }
    let tool = spans.iter().find(|span| span.name == "execute_tool current_date").unwrap();
    assert_eq!(
        of(1, "gen_ai.conversation.id"),
        tool.attributes.get("gen_ai.conversation.id").map(String::as_str)
    );
}
