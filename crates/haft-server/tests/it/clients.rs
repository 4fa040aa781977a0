//! Tests with clients of other vendors: OpenAI Agents, the AI SDK of Vercel, the Codex command, and curl.

use std::process::Command;

use haft_model_server::{Script, ScriptStep};
use haft_testkit::CutProxy;
use serde_json::{Value, json};
use tempfile::TempDir;

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
fn vercel_ai_generates_text_calls_functions_and_streams() {
    let server = TestServer::start(script());
    let mut node = Command::new("node");
    node.arg(program("vercel_ai.mjs"));
    let seen: Value = serde_json::from_str(&run(node, &server)).unwrap();
    let expected = json!({
        "text": "Hello.", "function": "It is sunny in Paris.", "steps": 2, "streamed": "Hello.", "tokens": true,
    });
    assert_eq!(seen, expected);
}

/// The transport that Codex uses for the Responses API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CodexTransport {
    Http,
    WebSocket,
}

/// A home directory of Codex, whose configuration names the server.
struct CodexHome {
    directory: TempDir,
}

impl CodexHome {
    fn new(url: &str, key: &str, transport: CodexTransport) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let config = format!(
            "model = \"openai/m\"\nmodel_provider = \"haft\"\n[model_providers.haft]\nname = \"haft\"\nbase_url = \
             \"{url}/v1\"\nexperimental_bearer_token = \"{key}\"\nwire_api = \"responses\"\n\
             supports_websockets = {}\n",
            transport == CodexTransport::WebSocket,
        );
        std::fs::write(directory.path().join("config.toml"), config).unwrap();
        Self { directory }
    }

    /// Runs `codex exec` in the home directory and returns its last message.
    fn exec(&self, server: &TestServer, arguments: &[&str]) -> String {
        let shell = "cd \"$0\" && codex=\"$1\" && shift && HOME=\"$0\" CODEX_HOME=\"$0\" exec \"$codex\" exec \"$@\" < /dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", shell]).arg(self.directory.path());
        command.arg(tools("clients").join("node_modules/.bin/codex")).args(arguments);
        run(command, server).trim().to_owned()
    }
}

/// Options for a directory without a repository. Codex runs commands outside its own sandbox, which needs rights that
/// containers do not have.
const CODEX_OPTIONS: [&str; 2] = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];

/// Runs Codex with a command of its shell tool, and then continues the session.
fn check_codex(transport: CodexTransport) -> Vec<String> {
    let steps = [
        ScriptStep::call("exec_command", json!({"cmd": "echo made-by-codex | tee note.txt"})),
        ScriptStep::text("The note is written."),
        ScriptStep::text("It is still there."),
    ];
    let server = TestServer::start(Script::of(steps));
    let proxy = CutProxy::start(&server.url);
    let home = CodexHome::new(&proxy.url(), &server.key, transport);
    let first = [&CODEX_OPTIONS[..], &["Write a note"]].concat();
    assert_eq!(home.exec(&server, &first), "The note is written.");
    let note = std::fs::read_to_string(home.directory.path().join("note.txt")).unwrap();
    assert_eq!(note, "made-by-codex\n", "Codex has run the command");
    let second = [&["resume", "--last"], &CODEX_OPTIONS[..], &["Is it there?"]].concat();
    assert_eq!(home.exec(&server, &second), "It is still there.");
    let sent = server.model.requests().last().unwrap().body.to_string();
    for text in ["Write a note", "made-by-codex", "The note is written.", "Is it there?"] {
        assert!(sent.contains(text), "`{text}` is not in {sent}");
    }
    let list = server.get("/v1/responses").json();
    assert_eq!(list["data"], json!([]), "Codex keeps the conversation itself: nothing is stored");
    proxy.requests()
}

#[test]
fn codex_runs_a_command_and_continues_its_session_over_http() {
    let requests = check_codex(CodexTransport::Http);
    let is_post = |request: &String| request.starts_with("POST /v1/responses ");
    assert!(requests.iter().any(is_post), "{requests:?}");
}

#[test]
fn codex_runs_a_command_and_continues_its_session_over_a_websocket() {
    let requests = check_codex(CodexTransport::WebSocket);
    let is_handshake = |request: &&String| {
        let head = request.to_lowercase();
        head.starts_with("get /v1/responses ") && head.contains("\r\nopenai-beta: responses_websockets=")
    };
    assert_eq!(requests.iter().filter(is_handshake).count(), 2, "one WebSocket for each run: {requests:?}");
    assert!(!requests.iter().any(|request| request.contains("POST /v1/responses ")), "{requests:?}");
}

#[test]
fn curl_commands_of_the_documentation_create_stream_and_read_a_response() {
    let server = TestServer::start(script());
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serving.md")).unwrap();
    let (_, section) = page.split_once("\n### With curl\n").unwrap();
    let section = section.split("\n#").next().unwrap();
    let blocks: Vec<&str> =
        section.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 3, "create, stream and retrieve");
    let mut id = String::new();
    let mut outputs = Vec::new();
    for block in blocks {
        let mut shell = Command::new("sh");
        let environment = "export OPENAI_BASE_URL=\"$SERVER/v1\" OPENAI_API_KEY=\"$KEY\"";
        shell.args(["-euc", &format!("{environment} ID='{id}'\n{block}")]);
        let output = run(shell, &server);
        if id.is_empty() {
            let created: Value = serde_json::from_str(&output).unwrap();
            created["id"].as_str().unwrap().clone_into(&mut id);
        }
        outputs.push(output);
    }
    let whole = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(whole(&outputs[0])["output"][0]["content"][0]["text"], "Hello.");
    assert_eq!(whole(&outputs[2]), whole(&outputs[0]), "the stored response is the created one");
    let stream = &outputs[1];
    assert!(
        stream.starts_with("event: response.created\n") && stream.ends_with("data: [DONE]\n\n"),
        "{stream}"
    );
}
