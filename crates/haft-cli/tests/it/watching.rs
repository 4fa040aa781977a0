#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

use haft_model_server::{Failure, ModelServer, Script, Step, Usage};
use haft_testkit::{Collector, Place, Ran};
use serde_json::{Value, json};

use super::call::here;

const RULES: &str = r#"{"policy": {"rules": [
    {"tool": "bash", "command": "rm *", "decision": "deny"},
    {"tool": "write", "decision": "ask"}
]}}"#;

/// Returns the lines of the journal.
pub(super) fn accounting(place: &Place) -> Vec<Value> {
    let text = place.text("home/data/accounting.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stream(place: &Place, flags: &[&str], lines: &str) -> Ran {
    place.haft(&[&["call", "--stdin"], flags].concat()).stdin(lines).output().expect_code(0)
}

#[test]
fn a_tree_is_drawn_beside_the_answer() {
    let ran = here().haft(&["call", "--tree", "bash", r#"{"command":"echo a"}"#]).output().expect_code(0);
    assert_eq!(ran.stdout, "a\n");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("session "), "{}", ran.stderr);
    assert_eq!(lines[1], "└─ turn 1");
    assert!(lines[2].starts_with("   └─ 1-1 bash ok ["), "{}", ran.stderr);
    assert!(lines[3].starts_with("calls: 1, errors: 0, cached: 0, "), "{}", ran.stderr);
}

#[test]
fn a_tree_is_part_of_a_result_for_programs() {
    let place = here();
    let ran = place.haft(&["call", "--tree", "--json", "nosuch"]).output().expect_code(42);
    let tree = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["tree"];
    let operation = &tree["sessions"][0]["turns"][0]["operations"][0];
    assert_eq!((&operation["path"], &operation["error_kind"]), (&json!("1-1"), &json!("unknown_tool")));
    assert_eq!(tree["totals"]["errors"], 1);
    let ran = place.haft(&["call", "--json", "current_date"]).output().expect_code(0);
    assert!(serde_json::from_str::<Value>(&ran.stdout).unwrap().get("tree").is_none());
}

#[test]
fn the_calls_of_a_stream_are_one_turn_whatever_their_ids_are() {
    let line = r#"{"id":"same","tool":"current_date"}"#;
    let ran = stream(&here(), &["--tree", "--jobs", "1"], &format!("{line}\n{line}\n"));
    assert!(ran.stderr.contains("├─ 1-1 current_date ok"), "{}", ran.stderr);
    assert!(ran.stderr.contains("└─ 1-2 current_date ok"), "{}", ran.stderr);
    assert!(ran.stderr.contains("calls: 2, errors: 0"), "{}", ran.stderr);
}

#[test]
fn who_decided_is_accounted_for_denied_calls_too() {
    let place = here();
    place.file("home/haft.json", RULES);
    let check = |tool: &str, arguments: &str, expected: Value| {
        place.haft(&["call", tool, arguments]).output();
        let last = accounting(&place).pop().unwrap();
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&last[key], value, "{tool} {key}: {last}");
        }
        assert_eq!(last["argumentsDigest"].as_str().unwrap().len(), 64);
        assert_eq!(last["principal"], "local");
        assert_eq!(last["session"].as_str().unwrap().len(), 36);
    };
    let denied = json!({
        "errorKind": "denied", "decision": "deny", "rule": "deny bash: rm *", "executed": false,
        "providerKind": "builtin", "namespace": "builtin", "answer": null,
    });
    check("bash", r#"{"command":"rm x"}"#, denied);
    let nobody = json!({"decision": "ask", "rule": "ask write", "answer": "nobody", "approver": null});
    check("write", r#"{"file_path":"x","content":""}"#, nobody);
    let allowed = json!({"status": "ok", "decision": "allow", "rule": null, "executed": true, "turn": 1});
    check("current_date", "{}", allowed);
    let unknown = json!({"errorKind": "unknown_tool", "decision": null, "namespace": null, "tool": "nosuch"});
    check("nosuch", "{}", unknown);
    check("bash", r#"{"comand":"ls"}"#, json!({"errorKind": "invalid_arguments", "decision": null}));
}

#[test]
fn a_call_that_is_interrupted_is_accounted_for() {
    let place = here();
    let arguments = r#"{"command":"touch started; sleep 60"}"#;
    let mut child = place.haft(&["call", "bash", arguments]).start();
    haft_testkit::eventually("the call runs", || place.exists("ws/started"));
    haft_testkit::send_signal(child.id(), haft_testkit::libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last = accounting(&place).pop().unwrap();
    assert_eq!((&last["errorKind"], &last["executed"]), (&json!("cancelled"), &json!(true)));
}

#[test]
fn log_lines_say_who_was_asked_and_how_it_went() {
    let place = here();
    place.file("home/haft.json", RULES);
    let ran = place.haft(&["call", "-v", "bash", r#"{"command":"exit 3"}"#]).output().expect_code(3);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("INF 1-1 → builtin builtin:bash"), "{}", ran.stderr);
    assert!(lines[1].starts_with("WRN 1-1 ← builtin builtin:bash ["), "{}", ran.stderr);
    assert!(lines[1].ends_with("failed: the tool ran and reported a failure"), "{}", ran.stderr);
    let ran = place.haft(&["call", "-v", "bash", r#"{"command":"rm x"}"#]).output().expect_code(4);
    assert!(
        ran.stderr.contains("denied: this call is not permitted (rule: deny bash: rm *)"),
        "{}",
        ran.stderr
    );
}

#[test]
fn log_lines_for_programs_are_json() {
    let ran = here()
        .haft(&["call", "-v", "--log-format", "json", "bash", r#"{"command":"echo a"}"#])
        .output()
        .expect_code(0);
    let lines: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (line, direction) in lines.iter().zip(["request", "response"]) {
        let expected =
            [("direction", direction), ("kind", "builtin"), ("remote", "builtin:bash"), ("path", "1-1")];
        for (key, value) in expected {
            assert_eq!(line[key], value, "{line}");
        }
    }
    assert_eq!((&lines[1]["bytes_in"], &lines[1]["bytes_out"]), (&json!(20), &json!(2)));
    assert_eq!((&lines[1]["severity"], &lines[1]["error_kind"]), (&json!("info"), &Value::Null));
}

#[test]
fn the_environment_says_how_much_is_logged() {
    let check = |level: &str, tool: &str, lines: usize| {
        let place = here();
        let run = place.haft(&["call", "--stdin"]).env("HAFT_LOG", level);
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
    assert!(ran.stderr.contains("warning: HAFT_LOG is none of"), "{}", ran.stderr);
}

/// `script` gives haft a terminal.
#[test]
fn on_a_terminal_a_long_call_shows_what_it_is_doing() {
    let place = here();
    let command = "for i in $(seq 20); do echo step $i of many; sleep 0.1; done";
    place.file("ws/arguments", &json!({ "command": command }).to_string());
    let script = r#"script -qec "$0 call bash - < arguments > answer" typescript"#;
    place.haft(&[]).through(&["bash", "-c", script]).output().expect_code(0);
    let seen = place.text("ws/typescript");
    assert!(seen.contains("s step ") && seen.contains(" of many"), "{seen:?}");
    let answer = place.text("ws/answer");
    assert!(answer.starts_with("step 1 of many\n") && !answer.contains('\u{1b}'), "{answer:?}");
}

/// A run of two requests, the first of which fails once, and one call.
fn run_with_a_model(words: &[&str], collector: Option<&Collector>) -> (Place, Ran) {
    let refused = Step::fail(Failure::new(503, "busy"));
    let call = Step::call("current_date", json!({}));
    let spent = Usage { input: 1000, output: 10, ..Usage::default() };
    let server =
        ModelServer::start(Script::of([refused, call.using(spent), Step::text("Done.").using(spent)]));
    let (place, server) = (here(), server.unwrap());
    let price = json!({"models": {"settings": {"openai/m": {"price": {"input": 1, "output": 1}}}}});
    place.file("home/haft.json", &price.to_string());
    let words = [&["run", "-m", "openai/m", "--tools", "current_date"], words, &["What day is it?"]].concat();
    let run = place.haft(&words).env("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let run = run.env("OPENAI_API_KEY", "sk-test-0123456789");
    let ran = match collector {
        Some(collector) => run.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).output(),
        None => run.output(),
    };
    (place, ran.expect_code(0))
}

#[test]
fn models_stand_in_the_tree_and_in_the_log_with_times_tokens_and_cost() {
    let (place, ran) = run_with_a_model(&["-v", "--tree"], None);
    // Checks that a line contains these pieces in this order.
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
    let models = accounting(&place).into_iter().filter(|line| line["model"] == "m");
    let turns: Vec<_> =
        models.map(|line| (line["turn"].clone(), line["session"].as_str().unwrap().len())).collect();
    assert_eq!(turns, [(json!(1), 36), (json!(1), 36), (json!(2), 36)]);
}

#[test]
fn an_attempt_at_a_model_becomes_a_span_as_the_conventions_say() {
    let collector = Collector::start();
    let (_, _) = run_with_a_model(&[], Some(&collector));
    let spans = collector.spans();
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m").collect();
    assert_eq!((spans.len(), chats.len()), (4, 3), "{spans:?}");
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
