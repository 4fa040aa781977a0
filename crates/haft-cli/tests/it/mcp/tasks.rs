//! Tests of tools that a server runs as tasks, in the core protocol and as a protocol extension, with servers that
//! misbehave.

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{HaftOutput, TestTree, eventually};
use serde_json::{Value, json};

use super::real::{everything, npm};
use super::server_requests::answered_at_a_terminal;
use super::tree;

/// Configures the server `tasks`, which records the methods that it receives in the workspace.
fn configure(tree: &TestTree, form: &str, fault: &str, keys: &str) {
    let record = tree.path("ws/record").display().to_string();
    let server = tree.task_server(form, fault, &record);
    tree.file("home/haft.json", &format!("{{\"mcpServers\": {{\"tasks\": {{{server}}}}}{keys}}}"));
}

fn dig(tree: &TestTree) -> HaftOutput {
    tree.haft(&["call", "tasks__dig", r#"{"text": "hi"}"#]).output()
}

#[test]
fn tool_that_requires_a_task_is_called_as_a_task() {
    for form in ["core", "extension"] {
        let tree = tree();
        configure(&tree, form, "none", "");
        assert_eq!(dig(&tree).expect_code(0).stdout, "task: hi\n", "{form}");
        let record = tree.text("ws/record");
        assert!(record.contains("tasks/get") && !record.contains("tasks/cancel"), "{record}");
    }
}

#[test]
fn requested_lifetime_of_a_task_exceeds_the_time_limit_of_its_call() {
    let tree = tree();
    configure(&tree, "core", "none", r#", "toolTimeout": "30s""#);
    dig(&tree).expect_code(0);
    let record = tree.text("ws/record");
    let ttl = record.lines().find_map(|line| line.strip_prefix("ttl ")).unwrap();
    let ttl: u64 = ttl.parse().unwrap();
    assert!((80_000..=90_000).contains(&ttl), "the lifetime is the time limit and a minute: {ttl}");
}

#[test]
fn tool_that_can_run_without_a_task_is_called_without_one() {
    let tree = tree();
    configure(&tree, "core", "optional", "");
    assert_eq!(dig(&tree).expect_code(0).stdout, "plain: hi\n");
    configure(&tree, "core", "undeclared", "");
    let refused = dig(&tree).expect_code(3).stdout;
    assert!(
        refused.contains("runs only as a task"),
        "haft requests no task from a server without tasks: {refused}"
    );
}

#[test]
fn terminal_user_answers_the_question_of_a_task() {
    for form in ["core", "extension"] {
        let tree = tree();
        configure(&tree, form, "none", "");
        let words = ["call", "tasks__dig", r#"{"ask": true}"#];
        let shown = answered_at_a_terminal(&tree, &words, "colour (", "green\n");
        assert!(shown.contains("task: ") && shown.contains("green"), "{form}: {shown}");
    }
}

#[test]
fn question_of_a_task_is_declined_without_a_terminal() {
    for form in ["core", "extension"] {
        let tree = tree();
        configure(&tree, form, "none", "");
        let ran = tree.haft(&["call", "tasks__dig", r#"{"ask": true}"#]).output().expect_code(0);
        assert!(ran.stdout.contains("decline"), "{form}: {}", ran.stdout);
    }
}

#[test]
fn task_that_misbehaves_fails_its_call_with_the_reason() {
    let check = |forms: &[&str], fault: &str, expected: &str| {
        for form in forms {
            let tree = tree();
            configure(&tree, form, fault, "");
            let ran = dig(&tree).expect_code(3);
            assert!(ran.stdout.contains(expected), "{form} {fault}: {}", ran.stdout);
        }
    };
    let both = ["core", "extension"];
    check(&both, "unknown-status", "the MCP server sent the unknown task status `resting`");
    check(&both, "other-id", "the state of the task `task-of-another` when haft asked about `task-0`");
    check(&["core"], "no-id", "a task whose id is missing");
    check(&["core"], "no-result", "haft cannot parse");
    check(&["extension"], "no-result", "completed the task without a result");
    check(&both, "fails", "the disk is full");
    check(&both, "cancels", "the MCP server cancelled the task: the quota is used up");
    check(&both, "forgets", "no such task");
    check(&both, "tool-error", "task: hi");
}

#[test]
fn odd_poll_intervals_neither_flood_the_server_nor_lose_the_result() {
    for fault in ["poll-zero", "poll-text", "poll-year"] {
        let tree = tree();
        configure(&tree, "core", fault, "");
        assert_eq!(dig(&tree).expect_code(0).stdout, "task: hi\n", "{fault}");
        let polls = tree.text("ws/record").matches("tasks/get").count();
        assert!(polls <= 10, "{fault}: {polls} polls");
    }
}

#[test]
fn task_that_never_ends_is_cancelled_at_the_time_limit() {
    for form in ["core", "extension"] {
        let tree = tree();
        configure(&tree, form, "never-ends", r#", "toolTimeout": "2s""#);
        let ran = dig(&tree);
        assert!(ran.code == Some(124) && ran.stderr.contains("timed out after 2 s"), "{form}: {ran:?}");
        eventually("the server gets `tasks/cancel`", || tree.text("ws/record").contains("tasks/cancel"));
    }
}

#[test]
fn model_calls_a_tool_that_requires_a_task() {
    let tree = tree();
    let steps = [ScriptStep::call("tasks__dig", json!({"text": "hi"})), ScriptStep::text("Dug.")];
    let model = ModelServer::start(Script::of(steps)).unwrap();
    let provider = format!(r#"{{"openai": {{"baseUrl": "{}/v1", "apiKey": "k"}}}}"#, model.url());
    let keys = format!(r#", "models": {{"default": "openai/m"}}, "providers": {provider}"#);
    configure(&tree, "core", "none", &keys);
    let ran = tree.haft(&["run", "dig"]).output().expect_code(0);
    assert!(ran.stdout.contains("Dug."), "{}", ran.stdout);
    assert!(model.requests()[1].body.to_string().contains("task: hi"), "the model gets the result");
}

/// The research tool of the server requires a task, changes its status, and asks a question if the topic is ambiguous.
#[test]
fn server_everything_runs_its_research_as_a_task() {
    check_research(&json!({ "command": "node", "args": [npm("server-everything"), "stdio"] }));
}

#[test]
fn server_everything_runs_its_research_as_a_task_over_http() {
    let (_running, port) = everything("streamableHttp");
    check_research(&json!({ "url": format!("http://127.0.0.1:{port}/mcp") }));
}

fn check_research(server: &Value) {
    let tree = tree();
    tree.file("home/haft.json", &json!({ "mcpServers": { "real": server } }).to_string());
    let tool = "real__simulate-research-query";
    let called = tree.haft(&["call", tool, r#"{"topic": "tasks"}"#]).output().expect_code(0).stdout;
    assert!(called.contains("Research Report: tasks"), "{called}");
    let words = json!({"topic": "python", "ambiguous": true});
    let asked = tree.haft(&["call", tool, &words.to_string()]).output().expect_code(0).stdout;
    assert!(asked.contains("Research Report: python"), "the question is declined: {asked}");
}
