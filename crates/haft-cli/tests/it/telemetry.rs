use std::time::{Duration, Instant};

use haft_testkit::{CollectedPoint, CollectedSpan, HaftCommand, HaftOutput, SpanCollector, TestTree};

use super::call::here;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const INTERNAL: i32 = 1;

fn call(tree: &TestTree, collector: &SpanCollector, tool: &str, arguments: &str) -> HaftCommand {
    tree.haft(&["call", tool, arguments]).env(ENDPOINT, &collector.endpoint())
}

/// Checks that a successful export prints no warning.
fn quiet(run: HaftCommand, code: i32) -> HaftOutput {
    let ran = run.output().expect_code(code);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    ran
}

fn only_span(collector: &SpanCollector) -> CollectedSpan {
    let spans = collector.spans();
    assert_eq!(spans.len(), 1, "{spans:?}");
    spans.into_iter().next().unwrap()
}

#[track_caller]
fn check_attributes(span: &CollectedSpan, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(span.attributes.get(*name).map(String::as_str), *value, "{name}: {span:?}");
    }
}

#[test]
fn tool_call_span_follows_genai_conventions() {
    let (tree, collector) = (here(), SpanCollector::start());
    let ran = quiet(call(&tree, &collector, "bash", r#"{"command":"sleep 0.05; echo hi"}"#), 0);
    assert_eq!(ran.stdout, "hi\n");
    let span = only_span(&collector);
    assert_eq!((span.name.as_str(), span.kind, &span.error), ("execute_tool bash", INTERNAL, &None));
    assert!(span.parent.is_empty());
    assert!(span.nanoseconds >= 50_000_000, "{span:?}");
    check_attributes(
        &span,
        &[
            ("gen_ai.operation.name", Some("execute_tool")),
            ("gen_ai.tool.name", Some("bash")),
            ("gen_ai.tool.type", Some("function")),
            ("gen_ai.tool.call.id", Some("1")),
            ("error.type", None),
            ("gen_ai.tool.call.arguments", None),
            ("gen_ai.tool.call.result", None),
            ("haft.tool.kind", Some("builtin")),
            ("haft.call.executed", Some("true")),
            ("haft.call.bytes_out", Some("3")),
        ],
    );
    assert!(!span.attributes["gen_ai.tool.description"].is_empty());
    assert_eq!(span.resource["service.name"], "haft");
}

#[test]
fn failed_call_span_has_error_type_and_message() {
    let check = |tool: &str, arguments: &str, code: i32, name: &str, kind: &str, executed: &str| {
        let (tree, collector) = (here(), SpanCollector::start());
        quiet(call(&tree, &collector, tool, arguments), code);
        let span = only_span(&collector);
        assert_eq!(span.name, name);
        check_attributes(&span, &[("error.type", Some(kind)), ("haft.call.executed", Some(executed))]);
        assert!(span.error.is_some_and(|sentence| !sentence.is_empty()));
    };
    check("bash", r#"{"command":"exit 3"}"#, 3, "execute_tool bash", "failed", "true");
    check("bash", r#"{"comand":"ls"}"#, 42, "execute_tool bash", "invalid_arguments", "false");
    check("nosuch", "{}", 42, "execute_tool", "unknown_tool", "false");
}

#[test]
fn all_spans_of_a_stream_are_exported_before_exit() {
    let (tree, collector) = (here(), SpanCollector::start());
    let lines = "{\"id\":1,\"tool\":\"current_date\"}\n".repeat(50);
    let run = tree.haft(&["call", "--stdin"]).env(ENDPOINT, &collector.endpoint()).stdin(lines);
    quiet(run, 0);
    let spans = collector.spans();
    assert_eq!(spans.len(), 50);
    let session = &spans[0].attributes["gen_ai.conversation.id"];
    assert!(spans.iter().all(|span| span.attributes["gen_ai.conversation.id"] == *session));
}

#[test]
fn standard_otel_variables_are_respected() {
    let (tree, collector) = (here(), SpanCollector::start());
    let run = call(&tree, &collector, "current_date", "{}")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
        .env("OTEL_SERVICE_NAME", "my-service")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")
        .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    quiet(run, 0);
    let span = only_span(&collector);
    assert_eq!(span.headers["content-type"], "application/json");
    assert_eq!(span.headers["x-key"], "abc");
    assert_eq!(
        (span.trace.as_str(), span.parent.as_str()),
        ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    );
    assert_eq!(
        (span.resource["service.name"].as_str(), span.resource["deployment"].as_str()),
        ("my-service", "test")
    );
}

#[test]
fn traces_endpoint_is_used_verbatim() {
    let (tree, collector) = (here(), SpanCollector::start());
    let endpoint = format!("{}/v1/traces", collector.endpoint());
    quiet(tree.haft(&["call", "current_date"]).env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint), 0);
    assert_eq!(only_span(&collector).headers["content-type"], "application/x-protobuf");
}

#[test]
fn telemetry_can_be_turned_off() {
    let (tree, collector) = (here(), SpanCollector::start());
    quiet(call(&tree, &collector, "current_date", "{}").env("OTEL_SDK_DISABLED", "true"), 0);
    quiet(call(&tree, &collector, "current_date", "{}").env("OTEL_TRACES_EXPORTER", "none"), 0);
    quiet(tree.haft(&["call", "current_date"]), 0);
    assert_eq!(collector.spans(), []);
}

#[test]
fn content_is_exported_only_if_capture_is_enabled() {
    const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
    let check = |config: &str, variable: &str, told: bool| {
        let (tree, collector) = (here(), SpanCollector::start());
        tree.file("home/haft.json", config);
        quiet(call(&tree, &collector, "bash", r#"{"command":"echo hi"}"#).env(CAPTURE, variable), 0);
        let (arguments, result) = (r#"{"command":"echo hi"}"#, "hi\n");
        let span = only_span(&collector);
        check_attributes(
            &span,
            &[
                ("gen_ai.tool.call.arguments", told.then_some(arguments)),
                ("gen_ai.tool.call.result", told.then_some(result)),
            ],
        );
    };
    let on = r#"{"telemetry": {"captureContent": true}}"#;
    check("{}", "", false);
    check("{}", "true", true);
    check(on, "", true);
    check(on, "false", false);
}

/// Tests two ports: one has no listener, and the listener of the other one never answers.
#[test]
fn unreachable_collector_causes_one_warning() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let tree = here();
        let endpoint = format!("http://user:s3cret@{address}/path?key=s3cret");
        let began = Instant::now();
        let run = tree.haft(&["call", "--stdin"]).env(ENDPOINT, &endpoint);
        let ran = run.stdin("{\"id\":1,\"tool\":\"current_date\"}\n".repeat(20)).output().expect_code(0);
        assert_eq!(ran.stdout.lines().count(), 20);
        assert_eq!(ran.stderr.matches("warning").count(), 1, "{}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("haft could not deliver spans to the collector http://{address}")),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        // haft waits at most two seconds; the rest is a margin for a loaded machine.
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn unsupported_otel_variable_warns_and_the_call_runs() {
    let (tree, collector) = (here(), SpanCollector::start());
    let run = call(&tree, &collector, "current_date", "{}").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let ran = run.output().expect_code(0);
    assert!(
        ran.stderr.contains("warning: telemetry is off: OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`"),
        "{}",
        ran.stderr
    );
    assert_eq!(collector.spans(), []);
}

#[test]
fn run_is_one_trace_that_contains_its_models_and_calls() {
    use haft_model_server::{ModelServer, Script, ScriptStep};
    let (tree, collector) = (here(), SpanCollector::start());
    let steps = [ScriptStep::call("current_date", serde_json::json!({})), ScriptStep::text("Done.")];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let run = tree
        .haft(&["run", "-m", "ollama/m", "go"])
        .env("OLLAMA_HOST", server.url().trim_start_matches("http://"))
        .env(ENDPOINT, &collector.endpoint());
    run.output().expect_code(0);
    let spans = collector.spans();
    let (roots, inside): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| span.name.starts_with("invoke_agent"));
    let [root] = &roots[..] else { panic!("{roots:?}") };
    check_attributes(
        root,
        &[("gen_ai.operation.name", Some("invoke_agent")), ("gen_ai.request.model", Some("m"))],
    );
    assert!(root.parent.is_empty() && root.error.is_none(), "{root:?}");
    let names: Vec<&str> = inside.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["chat m", "execute_tool current_date", "chat m"]);
    assert!(inside.iter().all(|span| span.trace == root.trace && !span.parent.is_empty()), "{inside:?}");
    let parent = &inside[0].parent;
    assert!(
        inside.iter().all(|span| span.parent == *parent),
        "all spans are inside the span of the run: {inside:?}"
    );
}

#[test]
fn ask_exports_a_model_span() {
    let (tree, collector) = (here(), SpanCollector::start());
    let server = haft_model_server::ModelServer::start(haft_model_server::Script::of([
        haft_model_server::ScriptStep::text("x"),
    ]))
    .unwrap();
    let asked = tree
        .haft(&["ask", "-m", "ollama/m", "hi"])
        .env("OLLAMA_HOST", server.url().trim_start_matches("http://"))
        .env(ENDPOINT, &collector.endpoint());
    asked.output().expect_code(0);
    let span = only_span(&collector);
    check_attributes(&span, &[("gen_ai.request.model", Some("m"))]);
}

#[test]
fn metrics_count_tokens_and_durations_of_models_and_calls() {
    use haft_model_server::{ModelServer, Script, ScriptStep};
    let (tree, collector) = (here(), SpanCollector::start());
    let steps = [ScriptStep::call("current_date", serde_json::json!({})), ScriptStep::text("Done.")];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let run = |variable: (&str, &str)| {
        let run = tree
            .haft(&["run", "-m", "ollama/m", "go"])
            .env("OLLAMA_HOST", server.url().trim_start_matches("http://"))
            .env(ENDPOINT, &collector.endpoint())
            .env(variable.0, variable.1);
        run.output()
    };
    run(("OTEL_METRICS_EXPORTER", "otlp")).expect_code(0);
    let points = collector.metrics();
    let found = |metric: &str, key: &str, value: &str| {
        let has = |point: &&CollectedPoint| {
            point.metric == metric && point.attributes.get(key).map(String::as_str) == Some(value)
        };
        points
            .iter()
            .find(has)
            .cloned()
            .unwrap_or_else(|| panic!("no {metric} with {key}={value}: {points:?}"))
    };
    let tokens = found("gen_ai.client.token.usage", "gen_ai.token.type", "input");
    assert_eq!((tokens.unit.as_str(), tokens.count), ("{token}", 2));
    assert!(tokens.sum > 0.0, "{tokens:?}");
    assert_eq!(tokens.attributes["gen_ai.provider.name"], "ollama");
    let chat = found("gen_ai.client.operation.duration", "gen_ai.operation.name", "chat");
    assert_eq!((chat.unit.as_str(), chat.count), ("s", 2));
    let call = found("gen_ai.client.operation.duration", "gen_ai.tool.name", "current_date");
    assert_eq!((call.count, call.attributes["gen_ai.operation.name"].as_str()), (1, "execute_tool"));
}

#[test]
fn request_to_an_mcp_server_is_a_client_span_inside_its_call() {
    let (tree, collector) = (here(), SpanCollector::start());
    super::mcp::configure(&tree, "good", &[], "");
    let run = tree.haft(&["call", "bad__echo", r#"{"text": "hi"}"#]);
    run.env(ENDPOINT, &collector.endpoint()).output().expect_code(0);
    let spans = collector.spans();
    let named = |name: &str| {
        let found = spans.iter().find(|span| span.name == name);
        found.cloned().unwrap_or_else(|| panic!("no span {name}: {spans:?}"))
    };
    let (call, request) = (named("execute_tool bad__echo"), named("tools/call echo"));
    assert_eq!((request.parent.as_str(), request.trace.as_str()), (call.id.as_str(), call.trace.as_str()));
    // The span kind 3 is CLIENT.
    assert_eq!(request.kind, 3);
    check_attributes(&request, &[("mcp.method.name", Some("tools/call")), ("haft.mcp.server", Some("bad"))]);
}
