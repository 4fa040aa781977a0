//! Tests of sampling requests from servers: approval, cost, and limits for servers that ask for too much.

use haft_model_server::{ModelServer, RequestExpectation, Script, ScriptStep};
use haft_testkit::{HaftOutput, TestTree, eventually};
use serde_json::{Value, json};

use super::real::npm;
use super::server_requests::answered_at_a_terminal;
use super::{configure, tree};
use crate::run::{haft, server, told};

const ALLOWED: &str = r#", "sampling": {"model": "openai/m", "approval": "allow"}"#;

fn paris() -> ModelServer {
    let expected =
        RequestExpectation { user: Some("capital of France".into()), ..RequestExpectation::default() };
    server([ScriptStep::text("Paris.").expecting(expected)])
}

/// Calls a tool with these arguments. The tool's server sends a sampling request, which `model` answers.
fn asked(tree: &TestTree, model: &ModelServer, arguments: &Value) -> HaftOutput {
    haft(tree, model, &["call", "bad__echo", &arguments.to_string()]).output()
}

fn answered(ran: HaftOutput) -> Value {
    let ran = ran.expect_code(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn allowed_sampling_is_answered_by_model_with_and_without_handshake() {
    for (mode, arguments) in [("asks-model", json!({})), ("modern", json!({ "what": "" }))] {
        let (tree, model) = (tree(), paris());
        configure(&tree, mode, &[], ALLOWED);
        let answer = answered(asked(&tree, &model, &arguments));
        let written = if mode == "modern" { &answer["capital"] } else { &answer };
        assert_eq!(written["content"], json!({ "type": "text", "text": "Paris." }), "{mode}: {answer}");
        assert_eq!((&written["role"], &written["stopReason"]), (&json!("assistant"), &json!("endTurn")));
        let body = &model.requests()[0].body;
        assert_eq!((body["tools"].is_null(), &body["model"]), (true, &json!("m")), "{body}");
        assert!(body.to_string().contains("Be brief."), "{body}");
        let accounts = tree.text("home/data/accounting.jsonl");
        assert!(accounts.contains(r#""model":"openai/m""#), "{mode}: {accounts}");
    }
}

/// The sampled reply belongs to the server's call, both in the original run and in a replay.
#[test]
fn recorded_run_with_sampling_replays_byte_for_byte() {
    let tree = tree();
    configure(&tree, "asks-model", &[], ALLOWED);
    let lead = [ScriptStep::call("bad__echo", json!({})), told(ScriptStep::text("It is Paris."), "Paris.")];
    let script = Script::of(lead).about("capital of France", [ScriptStep::text("Paris.")]);
    let model = ModelServer::start(script).unwrap();
    let stream = ["--output-format", "stream-json"];
    let words = [&["run", "-m", "openai/m", "--record", "r.jsonl", "go"][..], &stream].concat();
    let recorded = haft(&tree, &model, &words).output().expect_code(0).stdout;
    let finished = recorded.lines().filter(|line| line.contains("model_finished")).count();
    assert_eq!(finished, 3, "{recorded}");
    let again = tree.haft(&[&["replay", "r.jsonl"][..], &stream].concat()).output().expect_code(0);
    assert_eq!(again.stdout, recorded);
}

#[test]
fn sampling_is_off_by_default_and_refused_without_terminal() {
    let (tree, model) = (tree(), paris());
    configure(&tree, "asks-model", &[], "");
    assert_eq!(answered(asked(&tree, &model, &json!({})))["code"], -32601);
    configure(&tree, "asks-model", &[], r#", "sampling": {"model": "openai/m", "approval": "deny"}"#);
    assert_eq!(answered(asked(&tree, &model, &json!({})))["code"], -32601);
    configure(&tree, "asks-model", &[], r#", "sampling": {"model": "openai/m"}"#);
    let refused = answered(asked(&tree, &model, &json!({})));
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!(-1), &json!("no user is available to allow the sampling request"))
    );
    configure(&tree, "modern", &[], r#", "sampling": {"model": "openai/m"}"#);
    let ran = asked(&tree, &model, &json!({ "what": "" })).expect_code(3);
    assert!(
        ran.stdout.contains("`sampling/createMessage`, and haft refused it: no user is available"),
        "{ran:?}"
    );
    configure(&tree, "asks-model", &[], r#", "sampling": {"approval": "allow"}"#);
    let refused = answered(asked(&tree, &model, &json!({})));
    assert!(refused["message"].as_str().unwrap().contains("or `models.default`"), "{refused}");
    assert!(model.requests().is_empty(), "haft sends no model request");
}

#[test]
fn terminal_user_reviews_and_approves_sampling() {
    let (tree, model) = (tree(), paris());
    let server = tree.misbehaving_server("asks-model", &[]);
    let mine = json!({ "mine": { "baseUrl": format!("{}/v1", model.url()), "apiKey": "k" } });
    let config = format!(
        "{{\"providers\": {mine}, \"mcpServers\": {{\"bad\": {{{server}, \"sampling\": {{\"model\": \"mine/m\"}}}}}}}}"
    );
    tree.file("home/haft.json", &config);
    let answered = |typed| answered_at_a_terminal(&tree, &["call", "bad__echo", "{}"], "(yes or no", typed);
    let shown = answered("no\n");
    // Join the words of the output, because the question on the terminal is broken into lines.
    let question = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(question.contains("Allow `mine/m` to write up to 50 tokens for the MCP server?"), "{shown}");
    assert!(shown.contains("Be brief.") && shown.contains("capital of France"), "{shown}");
    assert!(
        shown.contains("the user rejected the sampling request") && model.requests().is_empty(),
        "{shown}"
    );
    let shown = answered("yes\n");
    assert!(shown.contains("Paris."), "{shown}");
}

#[test]
fn oversized_or_invalid_sampling_sends_no_model_request() {
    let (tree, model) = (tree(), paris());
    configure(&tree, "asks-model", &[], ALLOWED);
    let check = |what: &str, code: i64, expected: &str| {
        let refused = answered(asked(&tree, &model, &json!({ "what": what })));
        assert_eq!(refused["code"], code, "{what}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(expected), "{what}: {refused}");
    };
    check("large", -1, "the limit is 1048576");
    check("nonsense", -32602, "haft cannot parse the parameters");
    check("tools", -32602, "`tools` are not supported");
    assert!(model.requests().is_empty());
    answered(asked(&tree, &model, &json!({ "what": "greedy" })));
    let body = model.requests()[0].body.to_string();
    assert!(body.contains("1024") && !body.contains("1000000000000"), "{body}");
}

#[test]
fn sampling_requests_per_call_are_limited() {
    let tree = tree();
    let model = ModelServer::start(Script::of([ScriptStep::text("Paris.").at_turn(0)])).unwrap();
    configure(&tree, "asks-model", &[], ALLOWED);
    let answer = answered(asked(&tree, &model, &json!({ "flood": 2000 })));
    let (written, refused) = (answer["written"].as_u64().unwrap(), answer["refused"].as_u64().unwrap());
    assert!((1..=8).contains(&written) && written + refused == 2000, "{answer}");
    assert!(model.requests().len() <= 8);
}

#[test]
fn sampling_outside_a_tool_call_is_refused() {
    let (tree, model) = (tree(), paris());
    configure(&tree, "asks-model-unasked", &[], ALLOWED);
    haft(&tree, &model, &["mcp", "test", "bad"]).output().expect_code(0);
    assert!(tree.text("home/data/mcp/bad.log").contains("no tool call is in flight"));
    assert!(model.requests().is_empty());
}

/// Makes three requests: two of the run itself, and one for the server between them.
fn run_with(tree: &TestTree, flags: &[&str]) -> (HaftOutput, ModelServer) {
    let steps = [ScriptStep::call("bad__echo", json!({})), told(ScriptStep::text("Done."), "Paris.")];
    let script = Script::of(steps).about("capital of France", [ScriptStep::text("Paris.")]);
    let model = ModelServer::start(script).unwrap();
    let words = [&["run", "-m", "openai/m", "--output-format", "json"], flags, &["go"]].concat();
    (haft(tree, &model, &words).output(), model)
}

#[test]
fn run_does_not_wait_for_a_server_that_hangs() {
    let tree = tree();
    let slow = r#""slow": {"command": "bash", "args": ["-c", "exec sleep 300"]}"#;
    tree.file(
        "home/haft.json",
        &format!("{{\"mcp\": {{\"readyWait\": \"50ms\"}}, \"mcpServers\": {{{slow}}}}}"),
    );
    let model = ModelServer::start(Script::of([ScriptStep::text("Done.")])).unwrap();
    let ran = haft(&tree, &model, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    assert!(ran.stdout.contains("Done."), "{ran:?}");
    let warning = "MCP server `slow` is still starting after 50 ms; its tools will be available later";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
}

#[test]
fn sampling_in_a_run_uses_and_bills_the_run_model() {
    let tree = tree();
    configure(&tree, "asks-model", &[], r#", "sampling": {"approval": "allow"}"#);
    let (ran, model) = run_with(&tree, &["--trace-mcp"]);
    let ran = ran.expect_code(0);
    assert_eq!(model.requests().len(), 3, "{ran:?}");
    assert!(
        ran.stderr.contains("mcp bad ◄ ") && ran.stderr.contains("sampling/createMessage"),
        "{}",
        ran.stderr
    );
    let accounts = tree.text("home/data/accounting.jsonl");
    assert_eq!(accounts.matches(r#""type":"model_finished""#).count(), 3, "{accounts}");
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["requests"], 3, "{result}");
}

#[test]
fn server_everything_gets_an_answer_to_its_sampling_request() {
    let tree = tree();
    let model = server([ScriptStep::text("Forty-two.")]);
    let config = json!({ "mcpServers": { "real": {
        "command": "node", "args": [npm("server-everything"), "stdio"],
        "sampling": { "model": "openai/m", "approval": "allow" },
    } } });
    tree.file("home/haft.json", &config.to_string());
    let listed = || haft(&tree, &model, &["tools"]).output().expect_code(0).stdout;
    eventually("the server lists its tool", || listed().contains("real__trigger-sampling-request"));
    let arguments = r#"{"prompt": "the answer?", "maxTokens": 20}"#;
    let ran = haft(&tree, &model, &["call", "real__trigger-sampling-request", arguments]).output();
    assert!(ran.expect_code(0).stdout.contains("Forty-two."));
    assert!(model.requests()[0].body.to_string().contains("the answer?"));
}
