use haft_model_server::{ErrorResponse, ModelServer, RequestExpectation, Script, ScriptPart, ScriptStep};
use haft_testkit::{HaftCommand, TestTree, eventually, processes_with, unique_marker};
use serde_json::json;

use super::{bash, here, journals, kill, resume, told};
use crate::agents::{agents, ask, script};

fn asked(server: &ModelServer) -> Vec<String> {
    let model =
        |request: &haft_model_server::RecordedRequest| request.body["model"].as_str().unwrap().to_owned();
    server.requests().iter().map(model).collect()
}

/// Starts a server that gives the same reply in every turn.
fn always(step: &ScriptStep) -> ModelServer {
    ModelServer::start(Script::of((0..4).map(|_| step.clone()))).unwrap()
}

fn broken() -> ScriptStep {
    ScriptStep::fail(ErrorResponse::new(401, "no"))
}

fn of(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    let run = tree.haft(words).env("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    run.env("OPENAI_API_KEY", "k")
}

#[test]
fn resume_reuses_the_routed_model() {
    let tree = here();
    let models = r#"{"route": true, "models": {"default": "openai/m", "fast": "openai/small", "complex": "openai/large"}}"#;
    tree.file("home/haft.json", models);
    let first = always(&ScriptStep::text("complex"));
    of(&tree, &first, &["run", "go"]).output().expect_code(0);
    assert_eq!(asked(&first), ["small", "large"]);
    let shown = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    assert!(shown.contains("before the first turn") && shown.contains("openai/small ok"), "{shown}");
    let second = always(&ScriptStep::text("fast"));
    of(&tree, &second, &["resume", "last", "and more"]).output().expect_code(0);
    assert_eq!(asked(&second), ["large"], "resume does not route the model again");
    let third = always(&ScriptStep::text("fast"));
    of(&tree, &third, &["resume", "-m", "openai/other", "last", "and more"]).output().expect_code(0);
    assert_eq!(asked(&third), ["other"], "`-m` replaces the routed model");
}

#[test]
fn resume_accepts_plain_text_for_an_agent_with_json_input() {
    let tree = agents(&[("a.md", "input: {schema: {type: object, required: [city]}}")]);
    let server = always(&ScriptStep::text("Oslo it is"));
    of(&tree, &server, &["run", "-m", "openai/m", "@a.md", r#"{"city": "Oslo"}"#]).output().expect_code(0);
    let again = of(&tree, &server, &["resume", "last", "and in winter?"]).output().expect_code(0);
    assert_eq!(again.stdout, "Oslo it is\n");
    let raw = server.requests().last().unwrap().raw.clone();
    assert!(raw.contains("Oslo") && raw.contains("and in winter?"), "{raw}");
}

#[test]
fn resume_keeps_triggered_skills() {
    let tree = here();
    let skill = "---\nname: tides\ndescription: Knows the sea\ntrigger: tide\n---\nAsk the moon.\n";
    tree.file("home/skills/tides/SKILL.md", skill);
    let told_of =
        || RequestExpectation { system: Some("Ask the moon.".into()), ..RequestExpectation::default() };
    let first = ModelServer::start(Script::of([broken()])).unwrap();
    of(&tree, &first, &["run", "-m", "openai/m", "when is the tide?"]).output().expect_code(6);
    let second = always(&ScriptStep::text("at noon").expecting(told_of()));
    let ran = of(&tree, &second, &["resume"]).output().expect_code(0);
    assert_eq!(ran.stdout, "at noon\n");
    let ran = of(&tree, &second, &["resume", "last", "thanks"]).output().expect_code(0);
    assert_eq!(ran.stdout, "at noon\n");
}

/// After a kill, finished calls of a batch are kept. The agent in the batch resumes its own session, and the outcome of
/// its interrupted command is unknown.
#[test]
fn killed_batch_resumes_without_repeating_calls() {
    let marker = unique_marker();
    let tree = agents(&[
        ("lead.md", "agents: below.md\ntools: [bash, 'agent__batch']"),
        ("below.md", "tools: bash"),
    ]);
    let calls = json!({"calls": [
        {"id": "a", "tool": "bash", "parameters": {"command": "echo one >> marks"}},
        {"id": "b", "tool": "agent__below", "parameters": {"request": "BELOW"}},
    ]});
    let hangs = format!("echo three >> marks; exec -a {marker} sleep 300");
    let server = ModelServer::start(script([
        ("LEAD", vec![ScriptStep::call("agent__batch", calls), told(ScriptStep::text("all"), "found it")]),
        (
            "BELOW",
            vec![
                ScriptStep::say([bash("echo two >> marks")]),
                ScriptStep::say([bash(&hangs)]),
                told(ScriptStep::text("found it"), "not known whether the call took effect"),
            ],
        ),
    ]))
    .unwrap();
    let words = ["run", "-m", "openai/m", "@lead.md", "LEAD"];
    kill(&tree, &server, &words, "the command runs", || {
        tree.exists("ws/marks") && tree.text("ws/marks").contains("three")
    });
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_eq!(resume(&tree, &server, &[]).expect_code(0).stdout, "all\n");
    let mut marks: Vec<String> = tree.text("ws/marks").lines().map(str::to_owned).collect();
    marks.sort();
    assert_eq!(marks, ["one", "three", "two"], "no call is repeated");
    assert_eq!(journals(&tree).len(), 2);
}

#[test]
fn sessions_show_nests_calls_of_sub_agents() {
    let tree = agents(&[("lead.md", "agents: a.md"), ("a.md", "agents: b.md"), ("b.md", "tools: bash")]);
    let server = ModelServer::start(script([
        (
            "LEAD",
            vec![
                ScriptStep::say([ScriptPart::Text("I ask.".into()), ask("a", "MIDDLE")]),
                ScriptStep::text("done"),
            ],
        ),
        ("MIDDLE", vec![ScriptStep::say([ask("b", "LOWEST")]), ScriptStep::text("middle")]),
        ("LOWEST", vec![ScriptStep::say([bash("echo x")]), ScriptStep::text("lowest")]),
    ]))
    .unwrap();
    of(&tree, &server, &["run", "-m", "openai/m", "@lead.md", "LEAD"]).output().expect_code(0);
    let shown = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    for line in ["1-1 agent__a ok", "1-1.1-1 agent__b ok", "1-1.1-1.1-1 bash ok", "models: 6, "] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert_eq!(shown.matches("openai/m ok [").count(), 6, "{shown}");
    assert_eq!(shown.matches("session ").count(), 3, "{shown}");
    assert!(
        shown.lines().filter(|line| line.starts_with("session ")).count() == 1,
        "only the root session is not indented: {shown}"
    );
}
