//! Tests of approvals at the terminal of the operator, for clients that cannot show forms.

use std::io::Read;
use std::net::TcpStream;

use haft_model_server::ScriptStep;
use haft_testkit::{HaftCommand, TerminalRun, TestTree};
use serde_json::{Value, json};

use super::agents::{bash, with_agent};
use super::http::{GatewayReply, GatewayServer, request, stateless};
use super::{configure, place};

const ASK: &str = r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#;

const QUESTION: &str = "allow? [y] once";

/// A gateway over HTTP on the terminal of its operator.
struct GatewayTerminal {
    run: TerminalRun,
    server: GatewayServer,
}

impl GatewayTerminal {
    fn start(place: &TestTree, flags: &[&str]) -> Self {
        Self::of(place.haft(&[&["mcp", "serve", "--http", "127.0.0.1:0"], flags].concat()))
    }

    fn of(command: HaftCommand) -> Self {
        let mut run = command.on_terminal();
        run.wait_for("http://127.0.0.1:");
        run.wait_for("\n");
        let shown = run.text();
        let address = shown.split("http://").nth(1).unwrap().lines().next().unwrap().trim();
        let server = GatewayServer::listening_at(address);
        Self { run, server }
    }

    /// Stops the server with Ctrl-C. Returns everything that the terminal has shown.
    fn stop(mut self) -> String {
        self.run.type_keys("\u{3}");
        self.run.finish().expect_code(0).stdout
    }
}

/// A session of a client.
pub(super) struct ClientSession<'a> {
    server: &'a GatewayServer,
    headers: Vec<(&'a str, String)>,
}

impl<'a> ClientSession<'a> {
    pub(super) fn begin(server: &'a GatewayServer, key: Option<&str>) -> Self {
        let mut headers: Vec<(&str, String)> =
            key.map(|key| ("Authorization", key.to_owned())).into_iter().collect();
        let session = Self { server, headers: headers.clone() };
        let id = server.session(&session.headers());
        headers.push(("Mcp-Session-Id", id));
        Self { server, headers }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Begins a call of `bash`, and returns the stream of its response.
    pub(super) fn open_call(&self, id: u64, command: &str) -> TcpStream {
        let call = request(id, "tools/call", &call_of(command));
        self.server.open("/mcp", "POST", &self.headers(), &call.to_string())
    }

    pub(super) fn call(&self, command: &str) -> Value {
        self.server.post(&self.headers(), &request(7, "tools/call", &call_of(command))).message()
    }

    pub(super) fn notify(&self, method: &str, params: &Value) {
        let told = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(self.server.post(&self.headers(), &told).status(), 202);
    }
}

fn call_of(command: &str) -> Value {
    json!({"name": "bash", "arguments": {"command": command}})
}

pub(super) fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}"))
}

/// Reads the rest of a response, and returns its last message.
pub(super) fn message(mut stream: TcpStream, mut response: String) -> Value {
    stream.read_to_string(&mut response).unwrap();
    GatewayReply::of(response).message()
}

/// Creates an API key whose tenant has the same name.
fn key(place: &TestTree, name: &str) -> String {
    let words = [
        "keys",
        "create",
        name,
        "--tenant",
        name,
        "--subject",
        "me",
        "--scope",
        "api",
        "--scope",
        "builtin-tools",
    ];
    format!("Bearer {}", place.haft(&words).output().expect_code(0).stdout.trim())
}

#[test]
fn operator_allows_or_denies_a_call_at_the_terminal() {
    let place = place();
    configure(&place, &[], ASK);
    let anna = key(&place, "anna");
    let mut terminal = GatewayTerminal::start(&place, &[]);
    let (server, run) = (&terminal.server, &mut terminal.run);
    let session = ClientSession::begin(server, Some(&anna));
    std::thread::scope(|scope| {
        let allowed = scope.spawn(|| session.call("echo done"));
        run.wait_for("The MCP client `t` of anna/me asks for approval.");
        run.wait_for("bash wants to run in ");
        run.wait_for("  command: echo done");
        run.wait_for(QUESTION);
        run.type_keys("y");
        assert_eq!(text(&allowed.join().unwrap()).trim(), "done");
        run.wait_for("→ allowed once");

        let denied = scope.spawn(|| session.call("echo done"));
        run.wait_for(QUESTION);
        run.type_keys("n");
        let denied = denied.join().unwrap();
        assert_eq!(denied["result"]["isError"], true, "{denied}");
        assert!(text(&denied).contains("the user refused this call"), "{denied}");

        let remembered = scope.spawn(|| session.call("echo done"));
        run.wait_for(QUESTION);
        run.type_keys("e");
        assert_eq!(text(&remembered.join().unwrap()).trim(), "done");
    });
    assert_eq!(text(&session.call("echo done")).trim(), "done", "haft remembers the approval");
    let list = |flags: &[&str]| {
        let ran = place.haft(&[&["approvals", "list", "--json"], flags].concat()).output().expect_code(0);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    assert_eq!(list(&["--principal", "anna/me"])[0]["decided_by"], "operator");
    assert_eq!(list(&[]), json!([]), "the approval belongs to the principal that made the call");
    place.haft(&["approvals", "revoke", "--all", "--principal", "anna/me"]).output().expect_code(0);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| session.call("echo done"));
        run.wait_for(QUESTION);
        run.type_keys("n");
        assert!(text(&asked.join().unwrap()).contains("refused"), "haft asks again after the revocation");
    });
    terminal.stop();
}

#[test]
fn question_is_withdrawn_if_its_client_disconnects_or_cancels() {
    let place = place();
    configure(&place, &[], ASK);
    let mut terminal = GatewayTerminal::start(&place, &["--no-auth"]);
    let (server, run) = (&terminal.server, &mut terminal.run);
    let session = ClientSession::begin(server, None);
    let withdrawn = "→ withdrawn";

    let stream = session.open_call(2, "touch first");
    run.wait_for(QUESTION);
    drop(stream);
    run.wait_for(withdrawn);

    let stream = session.open_call(3, "touch second");
    run.wait_for(QUESTION);
    session.notify("notifications/cancelled", &json!({"requestId": 3}));
    run.wait_for(withdrawn);
    drop(stream);

    let stream = open_stateless(server, "touch third");
    run.wait_for(QUESTION);
    drop(stream);
    run.wait_for(withdrawn);

    // A key that was meant for a withdrawn question does not answer the next one.
    std::thread::scope(|scope| {
        run.type_keys("y");
        let allowed = scope.spawn(|| session.call("ls -A"));
        run.wait_for("  command: ls -A");
        run.wait_for(QUESTION);
        assert!(!allowed.is_finished());
        run.type_keys("y");
        let listed = allowed.join().unwrap();
        for name in ["first", "second", "third"] {
            assert!(!text(&listed).contains(name), "{listed}");
        }
    });
    terminal.stop();
}

/// Begins a call in a protocol revision without sessions, and returns the stream of its response.
fn open_stateless(server: &GatewayServer, command: &str) -> TcpStream {
    open_stateless_with(server, command, &[])
}

/// Like [`open_stateless`], with further headers.
pub(super) fn open_stateless_with(
    server: &GatewayServer,
    command: &str,
    headers: &[(&str, &str)],
) -> TcpStream {
    let mut params = call_of(command);
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let own = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "bash")];
    server.open("/mcp", "POST", &[&own, headers].concat(), &request(1, "tools/call", &params).to_string())
}

#[test]
fn operator_is_asked_about_one_client_at_a_time() {
    let place = place();
    configure(&place, &[], ASK);
    let keys = ["anna", "bert"].map(|name| key(&place, name));
    let mut terminal = GatewayTerminal::start(&place, &[]);
    let (server, run) = (&terminal.server, &mut terminal.run);
    let sessions = keys.each_ref().map(|key| ClientSession::begin(server, Some(key)));
    let [anna, bert] = &sessions;
    let first = anna.open_call(2, "echo for anna");
    run.wait_for("  command: echo for anna");
    run.wait_for(QUESTION);
    let mut second = bert.open_call(2, "echo for bert");
    // The response becomes a stream when the call has waited for some time.
    let mut head = [0; 4096];
    let read = second.read(&mut head).unwrap();
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    assert!(head.contains("text/event-stream"), "{head}");
    assert!(!run.text().contains("echo for bert"), "{}", run.text());
    run.type_keys("n");
    let refused = message(first, String::new());
    assert!(text(&refused).contains("the user refused this call"), "{refused}");
    run.wait_for("The MCP client `t` of bert/me asks for approval.");
    run.wait_for("  command: echo for bert");
    run.wait_for(QUESTION);
    run.type_keys("y");
    assert_eq!(text(&message(second, head)).trim(), "for bert");
    terminal.stop();
}

#[test]
fn approval_request_of_an_agent_or_a_task_reaches_the_operator() {
    let steps = [bash("echo inside > made.txt"), ScriptStep::text("Made.")];
    let (place, _model) = with_agent([&steps[..], &steps[..]].concat(), ASK);
    let mut terminal = GatewayTerminal::start(&place, &["--no-auth"]);
    let session = ClientSession::begin(&terminal.server, None);
    let mut call = json!({"name": "agent__helper", "arguments": {"request": "go"}});
    let post = |id: u64, method: &str, params: &Value| {
        terminal.server.post(&session.headers(), &request(id, method, params)).message()
    };
    let run = &mut terminal.run;
    std::thread::scope(|scope| {
        let called = scope.spawn(|| post(2, "tools/call", &call));
        run.wait_for("  command: echo inside > made.txt");
        run.wait_for(QUESTION);
        run.type_keys("y");
        assert_eq!(text(&called.join().unwrap()), "Made.");
    });
    assert!(place.exists("ws/made.txt"));
    call["task"] = json!({"ttl": 60_000});
    let begun = post(3, "tools/call", &call);
    let task = begun["result"]["task"]["taskId"].clone();
    assert!(task.is_string(), "{begun}");
    run.wait_for(QUESTION);
    run.type_keys("n");
    run.wait_for("→ denied");
    let ended = post(4, "tasks/result", &json!({"taskId": task}));
    assert_eq!(text(&ended), "Made.");
    terminal.stop();
}

#[test]
fn server_in_the_background_of_a_terminal_denies_the_call() {
    let place = place();
    configure(&place, &[], ASK);
    let words = ["mcp", "serve", "--http", "127.0.0.1:0", "--no-auth"];
    let in_background = ["bash", "-mc", r#""$@" & read -r; kill %1; wait %1"#, "bash"];
    let mut terminal = GatewayTerminal::of(place.haft(&words).through(&in_background));
    let session = ClientSession::begin(&terminal.server, None);
    let denied = session.call("echo done");
    assert!(text(&denied).contains("does not run in the foreground"), "{denied}");
    let listed = stateless(&terminal.server, "tools/list", json!({}), &[]);
    assert_eq!(listed.status(), 200, "the kernel has not stopped the server");
    assert!(!terminal.run.text().contains(QUESTION), "{}", terminal.run.text());
    terminal.run.type_keys("\n");
    terminal.run.finish();
}

#[test]
fn call_that_needs_approval_is_denied_with_a_hint_if_there_is_no_terminal() {
    let place = place();
    configure(&place, &[], ASK);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let denied = ClientSession::begin(&server, None).call("echo done");
    assert_eq!(denied["result"]["isError"], true, "{denied}");
    let told = text(&denied);
    assert!(told.contains("no user is available") && told.contains("hint: "), "{told}");
}

#[test]
fn gateway_on_standard_streams_never_asks_at_the_terminal_of_its_client() {
    let place = place();
    configure(&place, &[], ASK);
    let mut run = place.haft(&["mcp", "serve"]).on_terminal();
    let greeting = super::http::initialize();
    run.type_keys(&format!("{greeting}\n"));
    run.wait_for("serverInfo");
    run.type_keys(&format!("{}\n", request(2, "tools/call", &call_of("echo done"))));
    run.wait_for("no user is available");
    assert!(!run.text().contains(QUESTION), "{}", run.text());
    run.type_keys("\u{4}");
    run.finish().expect_code(0);
}
