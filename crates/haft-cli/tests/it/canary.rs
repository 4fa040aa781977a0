//! Plants secrets at every input, triggers every reachable error, and checks that no log, journal or telemetry contains
//! a secret.

use haft_testkit::{SpanCollector, TestTree, eventually, libc, reveals, send_signal};

use super::call::here;
use super::watching::accounting;

/// A secret in haft's environment, which the configuration uses through a variable. No output of haft may contain it.
const OURS: &str = "canary-of-the-operator+1f9a=";

/// A secret in the arguments and outputs of calls. Only the result of a call may contain it, because the result belongs
/// to the caller.
const THEIRS: &str = "canary-of-the-asker-77c2";

const CONFIG: &str = r#"{
    "sandbox": {"readable": ["/nowhere/${CANARY}"]},
    "queues": {"narrow": {"maxConcurrency": 1, "maxWaiting": 0}},
    "tools": {"read": {"queue": "narrow"}, "bash": {"queue": "narrow"}},
    "policy": {"rules": [
        {"tool": "bash", "command": "rm *", "decision": "deny"},
        {"tool": "bash", "command": "mv *", "decision": "ask"},
        {"tool": "introspect", "decision": "deny"}
    ]}
}"#;

/// The ways in which a call can end: the error kind, the tool and the arguments.
const WAYS: [(&str, &str, &str); 11] = [
    ("", "bash", r#"{"command":"echo THEIRS"}"#),
    ("unknown_tool", "nosuch", r#"{"text":"THEIRS"}"#),
    ("denied", "introspect", r#"{"level":"THEIRS"}"#),
    ("denied", "bash", r#"{"command":"rm THEIRS"}"#),
    ("denied", "bash", r#"{"command":"mv THEIRS x"}"#),
    ("denied", "write", r#"{"file_path":"/etc/THEIRS","content":"THEIRS"}"#),
    ("invalid_arguments", "bash", r#"{"command":"THEIRS"#),
    ("invalid_arguments", "bash", r#"{"command":{"THEIRS":"THEIRS"},"THEIRS":1}"#),
    ("failed", "bash", r#"{"command":"echo THEIRS; exit 3"}"#),
    ("failed", "read", r#"{"file_path":"THEIRS"}"#),
    ("timeout", "bash", r#"{"command":"echo THEIRS; sleep 60"}"#),
];

fn planted() -> TestTree {
    let tree = here();
    tree.file("home/haft.json", CONFIG);
    tree
}

/// Returns the usage records and the telemetry as one text.
fn kept(tree: &TestTree, collector: &SpanCollector) -> String {
    format!("{}\n{:?}", tree.text("home/data/accounting.jsonl"), collector.spans())
}

/// Returns the log lines on standard error, in either format, without the error message of the call.
fn log(stderr: &str) -> String {
    let starts = ["INF ", "WRN ", "ERR ", "    ", "{"];
    let lines = stderr.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n")
}

fn check(kind: &str, tool: &str, arguments: &str, format: &str) {
    let (tree, collector) = (planted(), SpanCollector::start());
    let arguments = arguments.replace("THEIRS", THEIRS);
    let words = ["call", "-v", "--tree", "--timeout", "2s", "--log-format", format, tool, &arguments];
    let run = tree.haft(&words).env("CANARY", OURS).env("OTHER_TOKEN", OURS);
    let ran = run.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).output();
    let record = accounting(&tree).pop().unwrap();
    assert_eq!(record["error_kind"].as_str().unwrap_or_default(), kind, "{tool}: {ran:?}");
    assert_eq!(collector.spans().len(), 1, "{ran:?}");
    let kept = kept(&tree, &collector);
    let said = format!("{}{}{kept}", ran.stdout, ran.stderr);
    assert!(!reveals(&said, OURS), "{tool} {arguments}: {said}");
    let log = log(&ran.stderr);
    assert!(log.contains("builtin") || log.contains("nosuch"), "{}", ran.stderr);
    assert!(!reveals(&format!("{kept}{log}"), THEIRS), "{tool} {arguments}: {kept}\n{log}");
}

#[test]
fn secrets_reach_no_log_or_trace_for_any_call_outcome() {
    for (kind, tool, arguments) in WAYS {
        check(kind, tool, arguments, "text");
        check(kind, tool, arguments, "json");
    }
}

/// Covers the endings that a single call cannot reach.
#[test]
fn queue_full_and_interrupted_calls_log_no_secret() {
    let (tree, collector) = (planted(), SpanCollector::start());
    let line = |id: u32| {
        format!(
            "{{\"id\":{id},\"tool\":\"bash\",\"args\":{{\"command\":\"touch s; sleep 60; echo {THEIRS}\"}}}}\n"
        )
    };
    let run = tree.haft(&["call", "--stdin", "-v", "--tree"]).env("CANARY", OURS);
    let mut child = run.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()).start();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{}{}", line(1), line(2)).as_bytes()).unwrap();
    let full = || tree.exists("home/data/accounting.jsonl") && !accounting(&tree).is_empty();
    eventually("one call runs and the other is refused", || tree.exists("ws/s") && full());
    send_signal(child.id(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let mut kinds: Vec<_> =
        accounting(&tree).iter().map(|record| record["error_kind"].as_str().unwrap().to_owned()).collect();
    kinds.sort();
    assert_eq!(kinds, ["cancelled", "queue_full"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let kept = kept(&tree, &collector);
    assert_eq!(collector.spans().len(), 2);
    for secret in [OURS, THEIRS] {
        assert!(!reveals(&format!("{kept}{}", log(&stderr)), secret), "{kept}\n{stderr}");
    }
    assert!(!reveals(&stderr, OURS));
}

/// Sends keys from the environment and the configuration to the model, which repeats them in its reply.
#[test]
fn provider_key_and_headers_are_redacted_in_recording() {
    use haft_model_server::{ModelServer, Script, ScriptStep};
    let tree = here();
    let header = "canary-of-a-header-9e1d";
    let server =
        ModelServer::start(Script::of([ScriptStep::text(&format!("You said {OURS} and {header}."))]))
            .unwrap();
    let config = serde_json::json!({"providers": {"work": {
        "baseUrl": format!("{}/v1", server.url()), "apiKey": "${CANARY}", "headers": {"X-Team": "${HEADER}"},
    }}});
    tree.file("home/haft.json", &config.to_string());
    let question = format!("keep {OURS} and {header} to yourself");
    let run = tree.haft(&["ask", "-m", "work/m", "--record", "r.jsonl", "--system", OURS, &question]);
    let ran = run.env("CANARY", OURS).env("HEADER", header).output().expect_code(0);
    assert!(ran.stdout.contains(OURS), "the answer on standard output is not redacted");
    let recorded = tree.text("ws/r.jsonl");
    assert!(recorded.contains("[redacted]"), "{recorded}");
    // The recording must not contain the secret split over several deltas either.
    let letters: String =
        recorded.split("\"more\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for secret in [OURS, header] {
        assert!(!reveals(&recorded, secret) && !reveals(&letters, secret), "{recorded}");
    }
}
