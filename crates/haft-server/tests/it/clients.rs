//! Tests with agent clients of other vendors: OpenAI Agents, the AI SDK of Vercel, and the Codex command.

use std::process::Command;

use haft_model_server::{Script, ScriptStep};
use serde_json::{Value, json};

use super::fixture::TestServer;
use super::responses::{interpreter, tools};
use super::tool_server::ToolServer;

fn script() -> Script {
    let weather = [
        ScriptStep::call("get_weather", json!({"city": "Paris"})),
        ScriptStep::text("It is sunny in Paris."),
    ];
    let notes = [ScriptStep::call("docs__add", json!({"n": 1})), ScriptStep::text("Noted.")];
    Script::of(["Hello.", "Again."].map(ScriptStep::text)).about("weather", weather).about("note", notes)
}

/// Runs a client program against the server and returns its output.
fn run(mut client: Command, server: &TestServer) -> String {
    let packages = tools("clients").to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let variables = [
        ("SERVER", &*server.url),
        ("KEY", &*server.key),
        ("MODEL", "openai/m"),
        ("PACKAGES", &*packages),
        ("PATH", &*path),
    ];
    let ran = client.env_clear().envs(variables).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

fn program(name: &str) -> String {
    format!("{}/tests/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn openai_agents_use_functions_sessions_streams_and_approvals() {
    let notes = ToolServer::start();
    let server = TestServer::configured(script(), &notes.config(), &[]);
    let mut python = Command::new(interpreter());
    python.arg(program("openai_agents.py"));
    let seen: Value = serde_json::from_str(&run(python, &server)).unwrap();
    let expected = json!({
        "function": "It is sunny in Paris.", "session": ["Hello.", "Again."], "conversation": ["Hello.", "Again."],
        "streamed": ["Hello.", true], "mcp": "Noted.", "asked": [["docs", "add", {"n": 1}]],
    });
    assert_eq!(seen, expected);
    assert_eq!(notes.calls(), [json!({"n": 1})]);
}

#[test]
fn vercel_ai_generates_calls_functions_and_streams() {
    let server = TestServer::start(script());
    let mut node = Command::new("node");
    node.arg(program("vercel_ai.mjs"));
    let seen: Value = serde_json::from_str(&run(node, &server)).unwrap();
    let expected = json!({
        "text": "Hello.", "function": "It is sunny in Paris.", "steps": 2, "streamed": "Hello.", "tokens": true,
    });
    assert_eq!(seen, expected);
}

#[test]
fn codex_answers_with_the_model_behind_the_server() {
    let server = TestServer::start(script());
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let config = format!(
        "model = \"openai/m\"\nmodel_provider = \"haft\"\n[model_providers.haft]\nname = \"haft\"\nbase_url = \
         \"{}/v1\"\nexperimental_bearer_token = \"{}\"\nwire_api = \"responses\"\n",
        server.url, server.key
    );
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let shell = "cd \"$0\" && HOME=\"$0\" CODEX_HOME=\"$0\" exec \"$1\" exec --skip-git-repo-check 'Say hello' < /dev/null";
    let codex = tools("clients").join("node_modules/.bin/codex");
    let mut command = Command::new("sh");
    command.args(["-c", shell]).arg(home.path()).arg(codex);
    assert_eq!(run(command, &server).trim(), "Hello.");
    let asked = server.model.requests();
    assert!(asked.iter().any(|request| request.raw.contains("Say hello")), "{asked:?}");
}
