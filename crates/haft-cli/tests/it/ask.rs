//! Tests of `haft ask`, `haft models`, `haft tools check` and `haft dev`, against the scripted model server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use haft_model_server::{
    ErrorResponse, ModelServer, RequestExpectation, RequestOutcome, ResponseFault, ResponsePace, Script,
    ScriptStep, ScriptStop, ScriptUsage,
};
use haft_testkit::{
    HaftCommand, HaftOutput, OfferedProtocols, SecureServer, TestTree, eventually, libc, send_signal,
};
use serde_json::{Value, json};

use super::call::here;

const KEY: &str = "sk-test-0123456789";

/// One model of each provider.
const PROVIDERS: [&str; 5] = ["openai/m", "openai-responses/m", "anthropic/m", "gemini/m", "ollama/m"];

fn server(steps: impl IntoIterator<Item = ScriptStep>) -> ModelServer {
    ModelServer::start(Script::of(steps).with_key(KEY)).unwrap()
}

/// Returns haft with the usual environment variables of every provider, set to the address of the server.
fn haft(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    let url = server.url();
    tree.haft(words)
        .env("OPENAI_BASE_URL", &format!("{url}/v1"))
        .env("ANTHROPIC_BASE_URL", &url)
        .env("GOOGLE_GEMINI_BASE_URL", &url)
        .env("OLLAMA_HOST", url.trim_start_matches("http://"))
        .env("OPENAI_API_KEY", KEY)
        .env("ANTHROPIC_API_KEY", KEY)
        .env("GEMINI_API_KEY", KEY)
}

fn ask(steps: impl IntoIterator<Item = ScriptStep>, words: &[&str]) -> HaftOutput {
    haft(&here(), &server(steps), &[&["ask"], words].concat()).output()
}

#[test]
fn every_provider_works_with_only_standard_env_variables() {
    for model in PROVIDERS {
        let expected = RequestExpectation {
            user: Some("hi".into()),
            system: Some("be brief".into()),
            ..RequestExpectation::default()
        };
        let ran = ask(
            [ScriptStep::text("Hello\nthere.").expecting(expected)],
            &["-m", model, "--system", "be brief", "hi"],
        );
        assert_eq!(ran.expect_code(0).stdout, "Hello\nthere.\n", "{model}");
    }
}

#[test]
fn ask_json_reports_usage_cost_and_attempts() {
    let spent = ScriptUsage { input: 1_000_000, output: 10, ..ScriptUsage::default() };
    let steps = [ScriptStep::fail(ErrorResponse::new(500, "oh")), ScriptStep::text("x").using(spent)];
    let tree = here();
    tree.file(
        "home/haft.json",
        r#"{"models": {"settings": {"openai/m": {"price": {"input": 2.5, "output": 10}}}}}"#,
    );
    let server = server(steps);
    let ran = haft(&tree, &server, &["ask", "-m", "openai/m", "--json", "hi"]).output().expect_code(0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&said["text"], &said["stop"], &said["attempts"]),
        (&"x".into(), &"end_of_turn".into(), &2.into())
    );
    assert_eq!(said["usage"]["input_tokens"], 1_000_000);
    assert_eq!(said["cost_nano_usd"], 2_500_100_000_u64);
    let journal = tree.text("home/data/accounting.jsonl");
    assert_eq!(journal.matches("\"type\":\"model_finished\"").count(), 2, "{journal}");
    assert!(journal.contains("\"error_kind\":\"server_failed\"") && !journal.contains(KEY), "{journal}");
    let stats = haft(&tree, &server, &["stats", "--models", "--json"]).output().expect_code(0);
    let sums: Value = serde_json::from_str(&stats.stdout).unwrap();
    assert_eq!(
        (&sums[0]["model"], &sums[0]["attempts"], &sums[0]["errors"]),
        (&"openai/m".into(), &2.into(), &1.into())
    );
    let shown = haft(&tree, &server, &["stats", "--models"]).output().expect_code(0).stdout;
    assert!(shown.contains("$2.500"), "{shown}");
}

#[test]
fn provider_failures_have_distinct_exit_codes_and_hide_keys() {
    let once = r#"{"providers": {"openai": {"maxAttempts": 1, "firstByteTimeout": "300ms"}}}"#;
    let check = |step: ScriptStep, code: i32, words: &str| {
        let tree = here();
        tree.file("home/haft.json", once);
        let ran = haft(&tree, &server([step]), &["ask", "-m", "openai/m", "hi"]).output().expect_code(code);
        assert!(ran.stderr.contains(words) && ran.stderr.contains("hint:"), "{}", ran.stderr);
        assert!(!ran.stderr.contains(KEY), "{}", ran.stderr);
    };
    let failing = |status, message: &str| ScriptStep::fail(ErrorResponse::new(status, message));
    check(failing(401, &format!("wrong key {KEY}")), 6, "check the provider's API key");
    check(failing(429, "You exceeded your current quota"), 7, "add credit");
    check(failing(429, "slow down"), 7, "slow down");
    check(failing(404, "no such model"), 42, "no such model");
    check(failing(500, "oh no"), 5, "oh no");
    check(
        ScriptStep::text("x")
            .at_pace(ResponsePace { first_byte_milliseconds: 30_000, ..ResponsePace::default() }),
        124,
        "300ms",
    );
    check(ScriptStep::text("cut").stopping(ScriptStop::Length), 3, "--max-output-tokens");
    let page = ErrorResponse { raw: Some("<html>".into()), ..ErrorResponse::new(502, "") };
    check(ScriptStep::fail(page), 5, "status 502");
}

#[test]
fn unreachable_provider_and_missing_key_have_distinct_codes() {
    let tree = here();
    tree.file("home/haft.json", r#"{"providers": {"ollama": {"maxAttempts": 1}}}"#);
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
    let ran = tree.haft(&["ask", "-m", "ollama/m", "hi"]).env("OLLAMA_HOST", &closed).output().expect_code(8);
    assert!(ran.stderr.contains("refused"), "{}", ran.stderr);
    let ran = tree.haft(&["ask", "-m", "openai/gpt-4o", "hi"]).output().expect_code(6);
    assert!(ran.stderr.contains("set OPENAI_API_KEY"), "{}", ran.stderr);
    let ran = tree.haft(&["ask", "hi"]).output().expect_code(2);
    assert!(ran.stderr.contains("-m PROVIDER/MODEL"), "{}", ran.stderr);
    let ran = tree.haft(&["ask", "-m", "nobody/m", "hi"]).output().expect_code(42);
    assert!(ran.stderr.contains("known providers: anthropic"), "{}", ran.stderr);
    tree.haft(&["ask", "-m", "just-a-model", "hi"]).output().expect_code(2);
}

#[test]
fn ask_reads_question_from_stdin_and_attaches_images() {
    let tree = here();
    tree.file("ws/picture", "\u{0}");
    std::fs::write(tree.path("ws/picture"), b"\x89PNG\r\n\x1a\n not really").unwrap();
    let expected = RequestExpectation {
        user: Some("what is this".into()),
        body_contains: vec!["iVBORw0KGgogbm90IHJlYWxseQ==".into()],
        ..RequestExpectation::default()
    };
    let server = server([ScriptStep::text("A picture.").expecting(expected)]);
    let words = ["ask", "-m", "anthropic/m", "--image", "picture", "-"];
    let ran = haft(&tree, &server, &words).stdin("what is this").output().expect_code(0);
    assert_eq!(ran.stdout, "A picture.\n");
    haft(&tree, &server, &words).stdin(" \n").output().expect_code(42);
    let ran = haft(&tree, &server, &["ask", "-m", "anthropic/m", " "]).output().expect_code(42);
    assert!(ran.stderr.contains("the question is empty"), "{}", ran.stderr);
    haft(&tree, &server, &words).stdin(b"\xff\xfe".as_slice()).output().expect_code(42);
    tree.file("ws/text", "hello");
    let ran = haft(&tree, &server, &["ask", "-m", "anthropic/m", "--image", "text", "x"]).output();
    assert!(ran.expect_code(42).stderr.contains("the image format is unknown"));
    let recording = ["ask", "-m", "anthropic/m", "--record", "r.jsonl", "--image", "nowhere", "x"];
    haft(&tree, &server, &recording).output().expect_code(42);
    assert!(!tree.path("ws/r.jsonl").exists(), "a failed command leaves no recording");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn config_sets_providers_default_model_and_fallback() {
    let tree = here();
    let failing = server([ScriptStep::fail(ErrorResponse::new(401, "no"))]);
    let expected = RequestExpectation {
        model: Some("second".into()),
        body_contains: vec!["\"top_a\":0.5".into()],
        ..RequestExpectation::default()
    };
    let good = server([ScriptStep::text("here").expecting(expected)]);
    let config = format!(
        r#"{{"providers": {{
                "first": {{"baseUrl": "{}/v1", "apiKey": "${{FIRST_KEY}}"}},
                "mine": {{"kind": "compatible", "baseUrl": "${{MINE}}/v1", "apiKey": "${{MY_KEY}}",
                    "headers": {{"X-Who": "${{WHO:-me}}"}}, "extraBody": {{"top_a": 0.5}}}}}},
            "models": {{"default": "first/m", "fallback": ["mine/second"]}}}}"#,
        failing.url()
    );
    tree.file("home/haft.json", &config);
    let run = |words: &[&str]| {
        tree.haft(words).env("MINE", &good.url()).env("MY_KEY", KEY).env("FIRST_KEY", "sk-first-11111111")
    };
    assert_eq!(run(&["ask", "hi"]).output().expect_code(0).stdout, "here\n");
    assert_eq!(good.requests()[0].headers["x-who"], "me");
    let shown = run(&["config", "show"]).output().expect_code(0).stdout;
    assert!(shown.contains("${MY_KEY}") && !shown.contains(KEY), "{shown}");
    let unset =
        tree.haft(&["ask", "-m", "mine/second", "hi"]).env("MINE", &good.url()).output().expect_code(42);
    assert!(unset.stderr.contains("providers.mine.apiKey: variable `MY_KEY` is not set"), "{}", unset.stderr);
}

#[test]
fn model_requests_use_http_proxy_variable() {
    let tree = here();
    let server = server([ScriptStep::text("through a proxy")]);
    let run = tree.haft(&["ask", "-m", "openai/m", "hi"]).env("HTTP_PROXY", &server.url());
    let run = run.env("OPENAI_BASE_URL", "http://models.invalid/v1").env("OPENAI_API_KEY", KEY);
    assert_eq!(run.output().expect_code(0).stdout, "through a proxy\n");
}

#[test]
fn interrupt_closes_model_connection() {
    let slowly = ResponsePace { chunk_bytes: Some(16), between_milliseconds: 50, ..ResponsePace::default() };
    let server = server([ScriptStep::text(&"on and on ".repeat(1000)).at_pace(slowly)]);
    let tree = here();
    let mut child = haft(&tree, &server, &["ask", "-m", "openai/m", "hi"]).start();
    let mut first = [0_u8; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"on a");
    send_signal(child.id(), libc::SIGINT);
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    eventually("the server sees that its client disconnected", || {
        server.requests()[0].outcome == RequestOutcome::Abandoned
    });
    assert!(began.elapsed().as_secs() < 20);
}

#[test]
fn broken_stream_prints_partial_answer_and_fails() {
    let fault = ResponseFault::Cut { after_frames: 5, and_bytes: 0 };
    let ran = ask([ScriptStep::text(&"words ".repeat(20)).with_fault(fault)], &["-m", "openai/m", "hi"]);
    let ran = ran.expect_code(8);
    assert!(ran.stdout.starts_with("words wo"), "{}", ran.stdout);
}

#[test]
fn providers_and_their_models_are_listed() {
    let tree = here();
    let script =
        Script { models: vec!["small".into(), "large".into()], ..Script::of([ScriptStep::text("x")]) };
    let server = ModelServer::start(script.with_key(KEY)).unwrap();
    for provider in ["openai", "anthropic", "gemini", "ollama"] {
        let ran = haft(&tree, &server, &["models", provider, "--json"]).output().expect_code(0);
        let list: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&list[0]["id"], &list[1]["id"]), (&"small".into(), &"large".into()), "{provider}");
    }
    let ran = haft(&tree, &server, &["models", "openai"]).output().expect_code(0);
    assert!(ran.stdout.contains("openai/small"), "{}", ran.stdout);
    let all = tree.haft(&["models"]).output().expect_code(0).stdout;
    assert!(all.contains("ollama") && all.contains("set MISTRAL_API_KEY"), "{all}");
}

#[test]
fn models_shows_whether_the_command_of_claude_code_is_installed() {
    let tree = here();
    let row = |words: &[&str]| {
        let all = tree.haft(words).output().expect_code(0).stdout;
        all.lines().find(|line| line.starts_with("claude-code")).unwrap().to_owned()
    };
    tree.file("home/haft.json", r#"{"providers": {"claude-code": {"command": "/bin/true"}}}"#);
    assert_eq!(row(&["models"]).split_whitespace().collect::<Vec<_>>(), ["claude-code", "command", "ready"]);
    tree.file("home/haft.json", r#"{"providers": {"claude-code": {"command": "no-such-command"}}}"#);
    let missing = row(&["models"]);
    let words = missing.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" command not ready install Claude Code with `npm install"), "{missing}");
    let told = tree.haft(&["models", "--json"]).output().expect_code(0).stdout;
    assert!(told.contains("`no-such-command` is not installed"), "{told}");
    let listed = tree.haft(&["models", "claude-code", "--json"]).output().expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["id"], &listed[1]["id"]), (&"sonnet".into(), &"opus".into()));
}

#[test]
fn tools_check_reports_schema_losses_per_provider() {
    let tree = here();
    for provider in ["gemini", "openai-strict", "openai", "anthropic", "ollama"] {
        let ran = tree.haft(&["tools", "check", "--provider", provider, "--json"]).output().expect_code(0);
        let list: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(list.as_array().unwrap().iter().any(|tool| tool["tool"] == "bash"), "{provider}");
    }
    let strict = tree.haft(&["tools", "check", "--provider", "openai-strict"]).output().expect_code(0);
    assert!(strict.stdout.contains("bash:"), "{}", strict.stdout);
    tree.haft(&["tools", "check", "--provider", "nobody"]).output().expect_code(2);
    assert!(tree.haft(&["tools", "bash"]).output().expect_code(0).stdout.contains("bash"));
}

#[test]
fn dev_model_server_serves_script_until_terminated() {
    let tree = here();
    tree.file(
        "ws/script.json",
        r#"{"models": ["tiny"], /* one answer for all */ "steps": [{"say": [{"text": "Scripted."}]}]}"#,
    );
    let mut child = tree.haft(&["dev", "model-server", "--script", "script.json"]).start();
    let mut address = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let host = address.trim().trim_start_matches("http://");
    let ran = tree.haft(&["ask", "-m", "ollama/tiny", "hi"]).env("OLLAMA_HOST", host).output();
    assert_eq!(ran.expect_code(0).stdout, "Scripted.\n");
    send_signal(child.id(), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    tree.file("ws/bad.json", r#"{"steps": [{"sya": []}]}"#);
    let ran = tree.haft(&["dev", "model-server", "--script", "bad.json"]).output().expect_code(42);
    assert!(ran.stderr.contains("unknown field `sya`"), "{}", ran.stderr);
}

/// Sends a request to a server of `haft dev model-server` and checks its reply.
fn post_chat(host: &str, body: &str) {
    let mut connection = std::net::TcpStream::connect(host).unwrap();
    let length = body.len();
    write!(
        connection,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("Scripted."), "{answer}");
}

fn peak_megabytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn dev_model_server_keeps_no_requests_in_memory() {
    let tree = here();
    tree.file("ws/script.json", r#"{"steps": [{"say": [{"text": "Scripted."}]}]}"#);
    let mut child = tree.haft(&["dev", "model-server", "--script", "script.json"]).start();
    let mut address = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let host = address.trim().trim_start_matches("http://");
    let text = "x".repeat(4 << 20);
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": text},
    ]});
    let body = body.to_string();
    (0..3).for_each(|_| post_chat(host, &body));
    let before = peak_megabytes(child.id());
    (0..30).for_each(|_| post_chat(host, &body));
    let grown = peak_megabytes(child.id()) - before;
    assert!(grown < 40, "30 requests of 4 MB: {grown} MB more than {before} MB");
    send_signal(child.id(), libc::SIGTERM);
    child.wait().unwrap();
}

#[test]
fn recorded_answer_replays_without_key_or_server() {
    let tree = here();
    let server = server([ScriptStep::text("Hello\nthere.")]);
    let words = ["ask", "-m", "anthropic/m", "--record", "r.jsonl", "hi on 2026-01-01"];
    let ran = haft(&tree, &server, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "Hello\nthere.\n");
    assert!(!tree.text("ws/r.jsonl").contains(KEY));
    let ran = haft(&tree, &server, &words).output().expect_code(42);
    assert!(
        ran.stderr.contains("r.jsonl: the file exists already, and a recording is never overwritten\nhint: "),
        "{}",
        ran.stderr
    );

    let lines = || tree.text("home/data/accounting.jsonl").lines().count();
    let before = lines();
    let replay = |question: &str| tree.haft(&["ask", "--replay", "r.jsonl", question]).output();
    assert_eq!(replay("hi on 2031-05-06").expect_code(0).stdout, "Hello\nthere.\n");
    let other = tree.haft(&["ask", "-m", "gemini/x", "--replay", "r.jsonl", "hi on 2031-05-06"]);
    assert_eq!(other.output().expect_code(0).stdout, "Hello\nthere.\n");
    assert_eq!(lines(), before, "a replay adds no usage record");

    let missed = replay("ho on 2031-05-06").expect_code(42);
    let expected = "`messages[0].parts[0].text` is `hi on <date>` instead of `ho on <date>`\nhint: ";
    assert!(missed.stderr.contains(expected), "{}", missed.stderr);
    tree.file("ws/garbage", "hello");
    let refused = tree.haft(&["ask", "--replay", "garbage", "x"]).output().expect_code(42);
    assert!(refused.stderr.contains("garbage: the file is not a recording\nhint: "), "{}", refused.stderr);
}

#[test]
fn unwritable_recording_fails_before_model_request() {
    let tree = here();
    let server = server([ScriptStep::text("Hello.")]);
    let words = ["ask", "-m", "ollama/m", "--record", "nowhere/r.jsonl", "hi"];
    let ran = haft(&tree, &server, &words).output().expect_code(42);
    assert!(ran.stderr.contains("nowhere/r.jsonl: ") && ran.stderr.contains("hint: "), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 0, "haft sends no model request");
}

/// A schema with optional properties. For strict providers, a missing value must be null.
const PLACE: &str = r#"{"type": "object", "properties": {"city": {"type": "string"}, "street": {"type": "string"},
    "floor": {"type": ["integer", "null"]}}, "required": ["city", "floor"]}"#;

#[test]
fn answer_conforms_to_the_output_schema_with_every_provider() {
    for model in PROVIDERS {
        let tree = here();
        tree.file("ws/place.json", PLACE);
        let said = r#"{"city":"Paris","floor":null,"street":null}"#;
        let server = server([ScriptStep::text(said), ScriptStep::text(said)]);
        let words = ["ask", "-m", model, "--output-schema", "place.json", "where?"];
        let ran = haft(&tree, &server, &words).output().expect_code(0);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer, serde_json::json!({"city": "Paris", "floor": null}), "{model}");
        let ran = haft(&tree, &server, &[&words[..], &["--json"]].concat()).output().expect_code(0);
        let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&printed["answer"], &printed["text"]), (&answer, &said.into()), "{model}");
    }
}

#[test]
fn nonconforming_answer_fails_and_bad_schema_sends_no_request() {
    let tree = here();
    tree.file("ws/place.json", PLACE);
    let words = ["ask", "-m", "openai/m", "--output-schema", "place.json", "where?"];
    for (said, expected) in
        [(r#"{"city": null, "floor": 1}"#, "'city' must be string; got null"), ("Paris", "expected value")]
    {
        let server = server([ScriptStep::text(said), ScriptStep::text(said)]);
        let ran = haft(&tree, &server, &words).output().expect_code(3);
        assert!(ran.stderr.contains(expected) && ran.stderr.contains("hint:"), "{}", ran.stderr);
        let ran = haft(&tree, &server, &[&words[..], &["--json"]].concat()).output().expect_code(3);
        let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(printed["answer"].is_null() && printed["error"].as_str().unwrap().contains(expected));
    }
    let server = server([]);
    for bad in ["{", r#"{"type": "array"}"#, r#"{"type": "object", "properties": 7}"#] {
        tree.file("ws/place.json", bad);
        let ran = haft(&tree, &server, &words).output().expect_code(42);
        assert!(ran.stderr.contains("place.json") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn model_attempts_are_logged_with_outcome() {
    let steps = || [ScriptStep::fail(ErrorResponse::new(500, "oh")), ScriptStep::text("x")];
    let ran = ask(steps(), &["-m", "openai/m", "-v", "hi"]).expect_code(0);
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines[0], "INF 1 → model openai:m", "{}", ran.stderr);
    assert!(lines[1].starts_with("WRN 1 ← model openai:m") && lines.len() == 4, "{}", ran.stderr);
    let ran = ask(steps(), &["-m", "openai/m", "-v", "--log-format", "json", "hi"]).expect_code(0);
    let events: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].take()).collect();
    let ends: Vec<_> = events.iter().map(|event| (&event["type"], &event["error_kind"])).collect();
    let finished = json!("model_finished");
    assert_eq!(ends, [(&finished, &json!("server_failed")), (&finished, &Value::Null)]);
    assert!(events[0]["retry_after_ms"].is_u64(), "{}", events[0]);
    let (tree, server) = (here(), server(steps()));
    let ran = haft(&tree, &server, &["ask", "-m", "openai/m", "hi"]).env("HAFT_LOG", "warn").output();
    let ran = ran.expect_code(0);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn private_ca_provider_works_only_with_ca_file() {
    let (tree, server) = (here(), SecureServer::start(OfferedProtocols::Http2, 1));
    let configure = |more: &str| {
        let config = format!(
            r#"{{"providers": {{"mine": {{"baseUrl": "{}", "maxAttempts": 1{more}}}}}}}"#,
            server.url()
        );
        tree.file("home/haft.json", &config);
    };
    let ask =
        || tree.haft(&["ask", "-m", "mine/m", "hi"]).env("CA", &server.authority().display().to_string());
    configure("");
    let refused = ask().output().expect_code(8);
    assert!(refused.stderr.contains("certificate") && server.arrived().is_empty(), "{}", refused.stderr);
    configure(r#", "caFile": "${CA}""#);
    assert_eq!(ask().output().expect_code(0).stdout, "safe\n");
    assert_eq!(format!("{:?}", server.arrived()[0].version), "HTTP/2.0");
    tree.file("home/ca.pem", "hello");
    configure(r#", "caFile": "home/ca.pem""#);
    let wrong = ask().output().expect_code(42);
    assert!(wrong.stderr.contains("providers.mine.caFile"), "{}", wrong.stderr);
}

#[test]
fn misspelt_provider_error_suggests_the_nearest_name() {
    let tree = here();
    for words in [["ask", "-m", "opnai/m", "hi"].as_slice(), &["models", "opnai"]] {
        let ran = tree.haft(words).output().expect_code(42);
        assert!(ran.stderr.contains("no model provider `opnai`; did you mean `openai`?"), "{}", ran.stderr);
    }
}

#[test]
fn anthropic_base_url_may_end_with_the_api_version() {
    let tree = here();
    for end in ["", "/", "/v1", "/v1/"] {
        let server = server([ScriptStep::text("here")]);
        let provider = json!({"baseUrl": format!("{}{end}", server.url()), "apiKey": KEY});
        tree.file("home/haft.json", &json!({"providers": {"anthropic": provider}}).to_string());
        let ran = tree.haft(&["ask", "-m", "anthropic/m", "hi"]).output().expect_code(0);
        assert_eq!(ran.stdout, "here\n", "{end}");
    }
}

#[test]
fn provider_list_shows_the_api_format_in_use() {
    let tree = here();
    let mine =
        json!({"kind": "compatible", "baseUrl": "http://127.0.0.1:9/v1", "format": "openai_responses"});
    tree.file("home/haft.json", &json!({"providers": {"mine": mine}}).to_string());
    let listed = tree.haft(&["models"]).output().expect_code(0).stdout;
    let row = listed.lines().find(|line| line.starts_with("mine ")).unwrap();
    assert!(row.contains("openai_responses"), "{row}");
}

#[test]
fn provider_list_shows_which_local_servers_answer() {
    let tree = here();
    let server = server([ScriptStep::text("x")]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let provider = |url: &str| json!({"kind": "compatible", "baseUrl": format!("{url}/v1"), "apiKey": KEY});
    let far = json!({"kind": "compatible", "baseUrl": "https://models.invalid/v1", "apiKey": KEY});
    let providers =
        json!({"here": provider(&server.url()), "gone": provider(&format!("http://{gone}")), "far": far});
    tree.file("home/haft.json", &json!({"providers": providers}).to_string());
    let listed = tree.haft(&["models", "--json"]).output().expect_code(0).stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let answers = |name: &str| {
        let row = listed.iter().find(|row| row["provider"] == name).unwrap();
        row["serverAnswers"].clone()
    };
    assert_eq!((answers("here"), answers("gone")), (json!(true), json!(false)));
    assert_eq!(answers("far"), Value::Null, "haft sends requests only to local servers");
    let text = tree.haft(&["models"]).output().expect_code(0).stdout;
    let row = text.lines().find(|line| line.starts_with("here ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(cells.ends_with(&["ready", "answers"]), "{row}");
}

#[test]
fn status_404_error_names_the_url() {
    let tree = here();
    let server = server([ScriptStep::text("x")]);
    let url = format!("{}/no/such/path", server.url());
    let provider = json!({"kind": "compatible", "baseUrl": url, "apiKey": KEY});
    tree.file("home/haft.json", &json!({"providers": {"mine": provider}}).to_string());
    let ran = tree.haft(&["ask", "-m", "mine/m", "hi"]).output();
    let told = format!("{url}/chat/completions answered with status 404");
    assert!(ran.stderr.contains(&told), "{}", ran.stderr);
}
