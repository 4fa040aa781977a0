//! Tests of the workspaces of `haft serve`, with the real binary and the real sandbox.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Child;

use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_testkit::{HaftCommand, TestTree, TestUser, eventually, unique_marker};
use serde_json::{Value, json};

use super::serve::{listening, stop};

const AGENT: &str =
    "---\ndescription: Works.\nmodels: openai/m\ntools: [bash, looker__look]\n---\nYou work.\n";

/// An MCP server whose tool searches the file system for files of other principals.
const LOOKER: &str = r#"
import json, os, subprocess, sys
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "tools/call":
        name = request["params"]["arguments"]["name"]
        if request["params"]["arguments"].get("cached"):
            os.makedirs(os.environ["XDG_CACHE_HOME"], exist_ok=True)
            open(os.path.join(os.environ["XDG_CACHE_HOME"], name), "w").close()
        if request["params"]["arguments"].get("filled"):
            open("big", "wb").write(os.urandom(9000000))
        found = subprocess.run(["find", "/", "-name", name], capture_output=True, text=True).stdout
        text = " ".join(["in", os.getcwd(), "found", found, "tmp", *sorted(os.listdir("/tmp"))])
        result = {"content": [{"type": "text", "text": text}]}
    else:
        look = {"name": "look", "inputSchema": {"type": "object", "properties": {
            "name": {"type": "string"}, "cached": {"type": "boolean"},
            "filled": {"type": "boolean"}}}}
        result = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "looker", "version": "1"}},
            "tools/list": {"tools": [look]},
        }.get(method)
    reply = {"error": {"code": -32601, "message": "unknown method"}} if result is None else {"result": result}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
"#;

pub(crate) struct WorkspaceServer {
    pub(crate) tree: TestTree,
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) model: ModelServer,
}

pub(crate) struct ServerReply {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl WorkspaceServer {
    /// Starts a server whose model runs the commands of each conversation, one command per response.
    pub(crate) fn start(serve: &Value, conversations: &[(&str, &[ScriptStep])]) -> Self {
        let tree = TestTree::new(TestUser::Ourselves);
        let script = tree.file("outside/looker.py", LOOKER);
        let looker = json!({"command": "python3", "args": [script], "startup": "required"});
        let config = json!({"serve": serve, "mcpServers": {"looker": looker}});
        tree.directory("home/agents");
        tree.file("home/haft.json", &config.to_string());
        tree.file("home/agents/worker.md", AGENT);
        let mut script = Script::default();
        for (about, calls) in conversations {
            let steps = calls.iter().flat_map(|call| [call.clone(), ScriptStep::text("done")]);
            script = script.about(about, steps);
        }
        let model = ModelServer::start(script).unwrap();
        let (child, address) = serve_with(&tree, &model);
        Self { tree, child, address, model }
    }

    pub(crate) fn restarted(self) -> Self {
        self.restarted_through(&[])
    }

    /// Starts the server again, through a wrapper that executes the command line after it.
    pub(crate) fn restarted_through(self, wrapper: &[&str]) -> Self {
        let Self { tree, child, model, .. } = self;
        stop(child);
        let (child, address) = listening(command(&tree, &model, SERVE).through(wrapper));
        Self { tree, child, address, model }
    }

    /// Calls the agent through the MCP gateway, and returns the result of the call.
    pub(crate) fn call_agent(&self, key: &str, request: &str) -> Value {
        self.call_tool(key, "agent__worker", &json!({ "request": request }))
    }

    /// Calls a tool through the MCP gateway, and returns the result of the call.
    pub(crate) fn call_tool(&self, key: &str, name: &str, arguments: &Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let head = format!(
            "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: {name}\r\nContent-Length: {}\r\n",
            body.len()
        );
        let text = exchanged(&self.address, key, "POST /mcp", &format!("{head}\r\n{body}"));
        // The reply is a JSON object, or the last of several events.
        let json = text.lines().rev().find_map(|line| {
            let start = line.find("{\"")?;
            serde_json::from_str::<Value>(line[start..].trim()).ok()
        });
        json.unwrap_or_else(|| panic!("{text}"))["result"].clone()
    }

    pub(crate) fn key(&self, subject: &str, tenant: &str) -> String {
        let words =
            ["keys", "create", subject, "--tenant", tenant, "--scope", "api", "--scope", "builtin-tools"];
        self.tree.haft(&words).output().expect_code(0).stdout.trim().to_owned()
    }

    pub(crate) fn post(&self, key: &str, body: &Value) -> ServerReply {
        self.post_to(key, "/v1/responses", body)
    }

    pub(crate) fn post_to(&self, key: &str, path: &str, body: &Value) -> ServerReply {
        let body = body.to_string();
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        exchange(&self.address, key, &format!("POST {path}"), &format!("{head}\r\n{body}"))
    }

    /// Returns a whole reply as text, for replies that are not JSON.
    pub(crate) fn read(&self, key: &str, path: &str) -> String {
        exchanged(&self.address, key, &format!("GET {path}"), "\r\n")
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> ServerReply {
        Self::get_from(&self.address, key, path)
    }

    pub(crate) fn get_from(address: &str, key: &str, path: &str) -> ServerReply {
        exchange(address, key, &format!("GET {path}"), "\r\n")
    }

    /// Sends a request and returns the id of the response and the output of its call.
    #[track_caller]
    pub(crate) fn ask(&self, key: &str, input: &str, previous: Option<&str>) -> (String, String) {
        let fields = json!({"model": "worker", "input": input, "previous_response_id": previous});
        let response = self.post(key, &fields).body;
        let call = &response["output"][0];
        let text = call["output"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned();
        (response["id"].as_str().unwrap().to_owned(), text)
    }
}

/// Sends one request. `rest` is the rest of the head, followed by the body.
fn exchange(address: &str, key: &str, what: &str, rest: &str) -> ServerReply {
    let text = exchanged(address, key, what, rest);
    let (head, reply) = text.split_once("\r\n\r\n").unwrap();
    let body = serde_json::from_str(reply).unwrap_or_else(|error| panic!("{error}: {text}"));
    ServerReply { head: head.to_owned(), body }
}

fn exchanged(address: &str, key: &str, what: &str, rest: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("{what} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n");
    stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn serve_with(tree: &TestTree, model: &ModelServer) -> (Child, String) {
    listening(command(tree, model, SERVE))
}

/// The command line of a server.
const SERVE: &[&str] = &["serve", "--address", "127.0.0.1:0"];

/// Returns a command with this command line that uses the model server.
pub(crate) fn command(tree: &TestTree, model: &ModelServer, words: &[&str]) -> HaftCommand {
    let serve = tree.haft(words);
    serve.env("OPENAI_BASE_URL", &format!("{}/v1", model.url())).env("OPENAI_API_KEY", "k")
}

pub(crate) fn bash(command: &str) -> ScriptStep {
    ScriptStep::call("bash", json!({ "command": command }))
}

#[test]
fn commands_see_only_the_workspace_of_their_own_conversation() {
    let name = format!("mine-{}", unique_marker());
    let look = || ScriptStep::call("looker__look", json!({ "name": name }));
    // The test searches the output for the name of the file and for `--address`, which is in the command line of the
    // server. The command prints its own command line, so it must contain neither.
    let pattern = name.replace("mine", "m?ne");
    let search = format!(
        "find / -name '{pattern}' 2>/dev/null; ls -A /tmp; ls -A; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; \
         ls -d /proc/[0-9]* | wc -l"
    );
    let hide = format!("echo secret > '{name}'; echo secret > '/tmp/{name}'; pwd");
    let conversations: [(&str, &[ScriptStep]); 3] = [
        ("anna begins", &[bash(&hide), bash(&format!("cat '{name}' '/tmp/{name}'")), look()]),
        ("anna elsewhere", &[bash(&search)]),
        ("bert", &[bash(&search), look()]),
    ];
    let server = WorkspaceServer::start(&json!({}), &conversations);
    let (anna, bert) = (server.key("anna", "acme"), server.key("bert", "other"));
    let (first, place) = server.ask(&anna, "anna begins", None);
    let place = place.trim().to_owned();
    assert!(place.contains(&format!("home/workspace/acme/{first}")), "{place}");
    let (second, read) = server.ask(&anna, "go on", Some(&first));
    assert_eq!(read.matches("secret").count(), 2, "the next response has the same files: {read}");
    let (_, looked) = server.ask(&anna, "look", Some(&second));
    assert!(
        looked.contains(&format!("in {place}")) && looked.contains(&format!("{place}/{name}")),
        "{looked}"
    );

    for (key, input) in [(&anna, "anna elsewhere"), (&bert, "bert")] {
        let (id, found) = server.ask(key, input, None);
        assert!(!found.contains("mine-") && !found.contains("--address"), "{input}: {found}");
        let processes: usize = found.split_whitespace().last().unwrap().parse().unwrap();
        assert!(processes <= 10, "{input}: {found}");
        if input == "bert" {
            let (_, looked) = server.ask(key, "look", Some(&id));
            assert!(looked.contains(&id) && !looked.contains("mine-"), "{looked}");
        }
    }
    stop(server.child);
}

#[test]
fn mcp_server_cannot_read_its_cache_directory_of_another_principal() {
    let name = format!("mine-{}", unique_marker());
    let look = |cached: bool| ScriptStep::call("looker__look", json!({"name": name, "cached": cached}));
    let conversations: [(&str, &[ScriptStep]); 2] =
        [("write", &[look(true), look(false)]), ("read", &[look(false), look(false)])];
    let server = WorkspaceServer::start(&json!({}), &conversations);
    let anna = server.key("anna", "acme");
    let (first, written) = server.ask(&anna, "write", None);
    let cache = server.tree.path("home/cache/.tenants/acme/anna");
    let cached = cache.join("looker/xdg").join(&name);
    assert!(cached.exists() && written.contains(cached.to_str().unwrap()), "{written}");
    assert!(server.ask(&anna, "again", Some(&first)).1.contains(&name), "the next process has the cache");
    for (subject, tenant) in [("bert", "acme"), ("eve", "other")] {
        let (_, found) = server.ask(&server.key(subject, tenant), "read", None);
        assert!(found.contains("found") && !found.contains("mine-"), "{subject}: {found}");
    }
    let delete = ["store", "delete", "--principal", "acme/anna", "--yes"];
    server.tree.haft(&delete).output().expect_code(0);
    assert!(!cache.exists() && server.tree.path("home/cache/.tenants/acme/bert").exists());
    stop(server.child);
}

#[test]
fn response_that_fills_its_workspace_is_stopped() {
    let conversations: [(&str, &[ScriptStep]); 3] = [
        ("fill", &[bash("head -c 9000000 /dev/zero > big; sleep 60; echo survived")]),
        ("tmp", &[bash("head -c 9000000 /dev/zero > /tmp/big; sleep 60; echo survived")]),
        ("small", &[bash("echo small > file; cat file")]),
    ];
    let server = WorkspaceServer::start(&json!({"maxWorkspaceBytes": 5_000_000}), &conversations);
    let key = server.key("anna", "acme");
    for input in ["fill", "tmp"] {
        let failed = server.post(&key, &json!({"model": "worker", "input": input, "background": false}));
        assert_eq!(failed.body["error"]["code"], "workspace_quota_exceeded", "{}", failed.body);
        assert!(failed.head.contains("x-should-retry: false"), "{}", failed.head);
        assert!(failed.head.contains("retry-after: 60"), "{}", failed.head);
    }
    let conversation = server.tree.path("home/data/responses/acme");
    let stored: Vec<_> =
        std::fs::read_dir(conversation).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(stored.len(), 2, "{stored:?}");
    for path in stored {
        let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let again = server.post(&key, &json!({"model": "worker", "input": "x", "previous_response_id": id}));
        assert!(again.head.starts_with("HTTP/1.1 429"), "{}", again.head);
        assert!(again.head.contains("retry-after: 60"), "{}", again.head);
        assert_eq!(again.body["error"]["code"], "workspace_quota_exceeded", "{}", again.body);
    }
    assert_eq!(server.ask(&key, "small", None).1.trim(), "small", "another conversation works");
    stop(server.child);
}

#[test]
fn run_without_files_is_refused_after_its_mcp_server_has_filled_its_directory() {
    let fill = ScriptStep::call("looker__look", json!({"name": "none", "filled": true}));
    let look = ScriptStep::call("looker__look", json!({"name": "none"}));
    let conversations: [(&str, &[ScriptStep]); 2] = [("fill", &[fill]), ("other", &[look])];
    let server = WorkspaceServer::start(&json!({"workspaceMaxBytes": 5_000_000}), &conversations);
    let (anna, bert) = (server.key("anna", "acme"), server.key("bert", "acme"));
    let tool = json!({"type": "mcp", "server_label": "looker", "require_approval": "never"});
    let ask = |key: &str, input: &str| {
        server.post(key, &json!({"model": "openai/m", "input": input, "tools": [tool]}))
    };
    ask(&anna, "fill");
    assert!(server.tree.path("home/workspace/acme/anna/big").exists());
    assert!(server.tree.path("home/data/workspaces/acme/anna.json").exists(), "the directory can expire");
    let refused = ask(&anna, "again");
    assert!(refused.head.starts_with("HTTP/1.1 429"), "{}", refused.head);
    assert_eq!(refused.body["error"]["code"], "workspace_quota_exceeded", "{}", refused.body);
    assert_eq!(ask(&bert, "other").body["status"], "completed", "other principals are not affected");
    stop(server.child);
}

#[test]
fn workspace_of_a_tenant_is_shared_by_its_subjects_and_expires() {
    let conversations: [(&str, &[ScriptStep]); 2] =
        [("write", &[bash("echo shared > file; pwd")]), ("read", &[bash("cat file || echo nothing")])];
    let serve = json!({"workspace": "perTenant", "workspaceKeep": "1ms"});
    let server = WorkspaceServer::start(&serve, &conversations);
    let (anna, bert, eve) =
        (server.key("anna", "acme"), server.key("bert", "acme"), server.key("eve", "other"));
    let (_, place) = server.ask(&anna, "write", None);
    assert_eq!(server.ask(&bert, "read", None).1.trim(), "shared");
    assert!(server.ask(&eve, "read", None).1.contains("nothing"));
    assert!(std::path::Path::new(place.trim()).join("file").exists());
    let server = server.restarted();
    eventually("the unused workspace is removed", || !std::path::Path::new(place.trim()).exists());
    stop(server.child);
}

#[test]
fn all_requests_work_in_a_configured_directory() {
    let conversations: [(&str, &[ScriptStep]); 1] = [("where", &[bash("pwd; cat README")])];
    let project = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(project.path().join("README"), "read me").unwrap();
    let server = WorkspaceServer::start(&json!({"workspace": project.path()}), &conversations);
    let (_, shown) = server.ask(&server.key("anna", "acme"), "where", None);
    assert!(shown.contains(project.path().to_str().unwrap()) && shown.contains("read me"), "{shown}");
    stop(server.child);
}
