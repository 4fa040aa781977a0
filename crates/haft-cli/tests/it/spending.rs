//! Tests of budgets: refused if they cannot be enforced, and enforced even if providers report no usage or models never
//! stop.

use haft_model_server::{ModelServer, Script, ScriptStep, ScriptUsage};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::{Value, json};

use super::call::here;
use super::run::{haft, server};

/// Returns the steps of a model that calls a tool in every reply, with different arguments each time.
fn calls_without_end() -> Vec<ScriptStep> {
    (0..40)
        .map(|n| {
            let step = ScriptStep::call("bash", json!({ "command": format!("echo {n}") }));
            step.using(ScriptUsage { input: 300, output: 100, ..ScriptUsage::default() })
        })
        .collect()
}

fn run_on(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftOutput {
    let words = [&["run", "-m", "openai/m", "--output-format", "json"], words].concat();
    haft(tree, server, &words).output()
}

fn agent(tree: &TestTree, yaml: &str) {
    tree.file("ws/poor.md", &format!("---\nmaxTurns: 40\n{yaml}\n---\nSpend little.\n"));
}

#[test]
fn budget_in_dollars_needs_known_prices() {
    let tree = here();
    agent(&tree, "budget: {usd: 1}");
    let server = server([ScriptStep::text("done")]);
    let refused = run_on(&tree, &server, &["@poor.md", "go"]).expect_code(2);
    for part in
        ["`poor` has a budget in US dollars", "`openai/m`", "models.settings", "hint: --allow-unpriced"]
    {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert_eq!(server.requests().len(), 0);
    run_on(&tree, &server, &["--allow-unpriced", "@poor.md", "go"]).expect_code(0);
    tree.file("ws/lead.md", "---\nbudget: {usd: 1}\nmodels: openai/gpt-4o\nagents: helper.md\n---\n");
    tree.file("ws/helper.md", "---\nmodels: openai/m\n---\n");
    let checked = tree.haft(&["agents", "check", "lead.md", "poor.md"]).output().expect_code(42);
    assert!(checked.stdout.contains("`lead` has a budget in US dollars"), "{}", checked.stdout);
    assert!(
        !checked.stdout.contains("`poor`"),
        "the check does not mention an agent without a model: {}",
        checked.stdout
    );
    let settings = json!({ "openai/m": { "price": { "input": 0, "output": 0 } } });
    tree.file("home/haft.json", &json!({ "models": { "settings": settings } }).to_string());
    tree.haft(&["agents", "check", "lead.md", "poor.md"]).output().expect_code(0);
}

#[test]
fn model_that_never_stops_calling_tools_gets_one_request_after_its_budget() {
    let price = json!({ "openai/m": { "price": { "input": 1000, "output": 1000 } } });
    for (budget, requests) in [("{tokens: 400}", 2), ("{tokens: 900}", 4), ("{usd: 0.01}", 2)] {
        let tree = here();
        tree.file("home/haft.json", &json!({ "models": { "settings": price } }).to_string());
        agent(&tree, &format!("budget: {budget}"));
        let server = server(calls_without_end());
        let ran = run_on(&tree, &server, &["@poor.md", "go"]).expect_code(10);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(said["finish"], "budget");
        assert!(server.requests().len() <= requests, "{budget}: {}", server.requests().len());
    }
}

/// haft does not ask Mistral for usage, because Mistral always sends usage. The scripted server sends usage only on
/// request, so this run gets none.
#[test]
fn token_budget_is_enforced_if_the_provider_reports_no_usage() {
    let tree = here();
    agent(&tree, "models: mistral/m\nbudget: {tokens: 2000}");
    let server = ModelServer::start(Script::of(calls_without_end())).unwrap();
    let words = ["run", "--output-format", "json", "@poor.md", "go"];
    let run = haft(&tree, &server, &words).env("MISTRAL_BASE_URL", &format!("{}/v1", server.url()));
    let ran = run.env("MISTRAL_API_KEY", "k").output().expect_code(10);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["finish"], "budget");
    assert!(said["usage"]["input_tokens"].as_u64().unwrap() > 500, "{said}");
    assert!(server.requests().len() <= 4, "{}", server.requests().len());
}

#[test]
fn tool_choice_is_sent_or_rejected_before_the_first_request() {
    let tree = here();
    let first = ScriptStep::call("current_date", json!({}));
    let server = server([first, ScriptStep::text("done")]);
    run_on(&tree, &server, &["--tool-choice", "current_date", "--max-output-tokens", "77", "go"])
        .expect_code(0);
    let sent: Vec<Value> = server.requests().iter().map(|request| request.body.clone()).collect();
    assert_eq!(sent[0]["tool_choice"]["function"]["name"], "current_date", "{}", sent[0]["tool_choice"]);
    assert_eq!((&sent[0]["max_completion_tokens"], &sent[1]["tool_choice"]), (&json!(77), &Value::Null));
    let refused = run_on(&tree, &server, &["--tool-choice", "nosuch", "go"]).expect_code(2);
    assert!(refused.stderr.contains("there is no tool `nosuch`"), "{}", refused.stderr);
    tree.file("home/haft.json", r#"{"groups": {"clock": ["current_*"]}}"#);
    let one = self::server([ScriptStep::text("done")]);
    run_on(&tree, &one, &["--tools", "@clock", "go"]).expect_code(0);
    let tools = one.requests()[0].body["tools"].clone();
    assert_eq!((tools.as_array().unwrap().len(), &tools[0]["function"]["name"]), (1, &json!("current_date")));
}

#[test]
fn answer_that_violates_its_schema_is_retried_once_and_never_printed() {
    let tree = here();
    tree.file(
        "ws/schema.json",
        r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#,
    );
    let ask = |steps: Vec<ScriptStep>, words: &[&str]| {
        let words = [&["run", "-m", "openai/m", "--output-schema", "schema.json"], words, &["go"]].concat();
        haft(&tree, &server(steps), &words).output()
    };
    for words in [&[][..], &["--override", "finalReport=none"]] {
        assert_eq!(
            ask(vec![ScriptStep::text(r#"{"n": 1}"#)], words).expect_code(0).stdout.trim(),
            r#"{"n":1}"#
        );
        let repaired =
            ask(vec![ScriptStep::text("one"), ScriptStep::text(r#"{"n": 1}"#)], words).expect_code(0);
        assert_eq!(repaired.stdout.trim(), r#"{"n":1}"#);
        let wrong = ask(vec![ScriptStep::text("one"), ScriptStep::text("two")], words).expect_code(3);
        assert_eq!(wrong.stdout, "", "{}", wrong.stdout);
    }
}
