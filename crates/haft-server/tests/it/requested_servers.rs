//! MCP servers that a request names by `server_url`: addresses, secrets, approvals and lists of tools.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haft_model_server::{Script, ScriptStep, StepOrder};
use haft_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::approvals::{audited, types};
use super::fixture::{TestServer, key};
use super::responses::{ask, events, post, python_with, text, tools};
use super::steer::SteeringClient;
use super::tool_server::ToolServer;

/// A text that is part of every secret in these tests.
const SECRET: &str = "qxsecretzv";

/// Returns the configuration of an operator who allows requests to name servers on this machine.
fn config() -> Value {
    json!({"models": {"default": "openai/m"}, "serve": {"serverUrls": "any"}})
}

fn in_order(steps: &[ScriptStep]) -> Script {
    Script { order: StepOrder::Strict, steps: steps.to_vec(), ..Script::default() }
}

fn far(url: &str) -> Value {
    json!({
        "type": "mcp", "server_label": "far", "server_url": format!("{url}?key={SECRET}"),
        "authorization": format!("{SECRET}-token"), "headers": {"X-Key": format!("{SECRET}-header")},
    })
}

fn request(tool: &Value) -> Value {
    json!({"model": "openai/m", "input": "Add a note.", "tools": [tool]})
}

#[test]
fn requested_server_needs_approval_and_its_secrets_are_never_stored() {
    let tools = ToolServer::start();
    let steps = [
        ScriptStep::call("far__add", json!({"n": 1})),
        ScriptStep::text("Noted."),
        ScriptStep::text("You are welcome."),
    ];
    let mut server = TestServer::configured(in_order(&steps), &config(), &[]);
    let tool = far(tools.url());
    let first = ask(&server, &request(&tool));
    assert_eq!(types(&first), ["mcp_list_tools", "mcp_approval_request"], "{first}");
    let names = |list: &Value| -> Vec<String> {
        list["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&first["output"][0]), ["add", "look"]);
    assert_eq!(first["output"][0]["tools"][1]["annotations"]["readOnlyHint"], true);
    assert_eq!(
        (&first["output"][1]["server_label"], &first["output"][1]["name"]),
        (&json!("far"), &json!("add"))
    );
    assert!(tools.calls().is_empty());
    server.restart();
    let answer = json!({
        "type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": true,
    });
    let mut next = json!({"model": "openai/m", "previous_response_id": first["id"], "input": [answer]});
    let without = post(&server, &next);
    let error = &without.json()["error"];
    assert_eq!(
        (without.status, &error["param"], &error["code"]),
        (400, &json!("tools"), &json!("mcp_server_missing"))
    );
    next["tools"] = json!([tool]);
    let second = ask(&server, &next);
    assert_eq!((types(&second), text(&second)), (vec!["mcp_call", "message"], "Noted."));
    assert_eq!((&second["output"][0]["server_label"], tools.calls()), (&json!("far"), vec![json!({"n": 1})]));
    // The tool list is already in the conversation.
    let thanks = json!({"model": "openai/m", "previous_response_id": second["id"], "input": "Thanks.", "tools": [tool]});
    let third = ask(&server, &thanks);
    assert_eq!(types(&third), ["message"]);
    for header in ["authorization: Bearer qxsecretzv-token", "x-key: qxsecretzv-header"] {
        assert!(
            tools.heads().iter().all(|head| head.contains(header)),
            "{header} is not in {:?}",
            tools.heads()
        );
    }
    for shown in [first, second, third] {
        assert!(!shown.to_string().contains(SECRET), "{shown}");
    }
    assert_eq!(server.files_with(SECRET), [""; 0]);
    let sent: String = server.model.requests().iter().map(|request| request.raw.clone()).collect();
    assert!(!sent.contains(SECRET), "the model gets no secret: {sent}");
}

#[test]
fn read_only_annotation_of_a_requested_server_exempts_no_call_from_approval() {
    let tools = ToolServer::start();
    let steps = [ScriptStep::call("far__look", json!({"n": 1}))];
    let server = TestServer::configured(in_order(&steps), &config(), &[]);
    let mut tool = far(tools.url());
    tool["require_approval"] = json!({"never": {"read_only": true}});
    let first = ask(&server, &request(&tool));
    assert_eq!(types(&first), ["mcp_list_tools", "mcp_approval_request"], "{first}");
    assert!(tools.calls().is_empty());
}

#[test]
fn conversation_continues_after_an_approval_request_expires() {
    let tools = ToolServer::start();
    let mut config = config();
    config["serve"]["approvalTimeout"] = json!("1s");
    let steps = [ScriptStep::call("far__add", json!({"n": 1})), ScriptStep::text("It was not made.")];
    let server = TestServer::configured(in_order(&steps), &config, &[]);
    let first = ask(&server, &request(&far(tools.url())));
    assert_eq!(types(&first), ["mcp_list_tools", "mcp_approval_request"], "{first}");
    eventually("the request expires", || !audited(&server, "approval.decided").is_empty());
    assert_eq!(audited(&server, "approval.decided")[0]["detail"], "expired");
    let next = json!({"model": "openai/m", "previous_response_id": first["id"], "input": "And?"});
    assert_eq!(text(&ask(&server, &next)), "It was not made.");
    let sent = &server.model.requests()[1].raw;
    assert!(sent.contains("this call has no result") && tools.calls().is_empty(), "{sent}");
}

#[test]
fn idempotency_key_applies_if_only_the_token_for_a_server_changes() {
    let tools = ToolServer::start();
    let server = TestServer::configured(in_order(&[ScriptStep::text("Hello.")]), &config(), &[]);
    let send = |token: &str| {
        let mut tool = far(tools.url());
        tool["authorization"] = token.into();
        let sent = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        server.send(sent.header("idempotency-key", "a").body(request(&tool).to_string()))
    };
    let (first, second) = (send("one"), send("two"));
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text, second.text);
    assert_eq!(first.json()["id"], second.json()["id"]);
}

#[test]
fn private_addresses_are_refused_unless_the_operator_allows_them() {
    let tools = ToolServer::start();
    let port = tools.url().rsplit(':').next().unwrap().to_owned();
    let plain = json!({"models": {"default": "openai/m"}});
    let server = TestServer::configured(Script::of([ScriptStep::text("No tools.")]), &plain, &[]);
    let urls = [
        "127.0.0.1",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0",
        "169.254.169.254",
        "user@example.com",
    ];
    let urls = urls.map(|host| format!("http://{host}:{port}"));
    for url in urls.iter().map(String::as_str).chain(["gopher://example.com/", "ws://example.com/", "no url"])
    {
        let reply =
            post(&server, &request(&json!({"type": "mcp", "server_label": "far", "server_url": url})));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!("tools[0].server_url")),
            "{url}"
        );
    }
    // A host name is resolved when the connection is opened, and the address is checked then.
    let named =
        json!({"type": "mcp", "server_label": "far", "server_url": format!("http://localhost:{port}")});
    let response = ask(&server, &request(&named));
    let list = &response["output"][0];
    assert_eq!(
        (types(&response), list["tools"].as_array().unwrap().len()),
        (vec!["mcp_list_tools", "message"], 0)
    );
    assert!(list["error"].as_str().unwrap().contains("not a public address"), "{list}");
    assert!(tools.heads().is_empty(), "{:?}", tools.heads());
    let off = json!({"models": {"default": "openai/m"}, "serve": {"serverUrls": "off"}});
    let server = TestServer::configured(Script::default(), &off, &[]);
    let reply = post(
        &server,
        &request(&json!({"type": "mcp", "server_label": "far", "server_url": "https://example.com/mcp"})),
    );
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("tools[0].server_url")));
}

#[test]
fn label_of_a_requested_server_must_be_unique() {
    let tools = ToolServer::start();
    let mut config = tools.config();
    config["serve"] = json!({"serverUrls": "any"});
    let server = TestServer::configured(Script::default(), &config, &[]);
    let named = |label: &str| json!({"type": "mcp", "server_label": label, "server_url": tools.url()});
    let check = |tools: Value, param: &str| {
        let reply = post(&server, &json!({"model": "openai/m", "input": "x", "tools": tools}));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{tools}");
    };
    check(json!([named("docs")]), "tools[0].server_label");
    check(json!([named("a"), {"type": "mcp", "server_label": "docs"}, named("a")]), "tools[2].server_label");
    check(json!([named("haft")]), "tools[0].server_label");
    let function = json!({"type": "function", "name": "f"});
    check(json!([function, {"type": "mcp", "server_label": "none"}]), "tools[1].server_label");
}

#[test]
fn principals_do_not_share_connections_to_a_requested_server() {
    let tools = ToolServer::start();
    let server = TestServer::configured(Script::of([ScriptStep::text("Hello.")]), &config(), &[]);
    let mut body = request(&far(tools.url()));
    body["tools"][0]["require_approval"] = json!("never");
    body["tools"][0]["allowed_tools"] = json!(["look"]);
    let send = |key: &str| {
        let request = server.without_key(Method::POST, "/v1/responses").bearer_auth(key);
        let reply = server.send(request.header("content-type", "application/json").body(body.to_string()));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    };
    let response = send(&server.key);
    assert_eq!(
        response["output"][0]["tools"].as_array().unwrap().len(),
        1,
        "only the allowed tool is listed"
    );
    send(&server.key);
    assert_eq!(tools.connections(), 1, "requests of one principal share a connection");
    send(&key(&server.store, "default", "eve", None));
    assert_eq!(tools.connections(), 2);
    body["tools"][0]["authorization"] = json!("another");
    ask(&server, &body);
    assert_eq!(tools.connections(), 3, "other credentials use another connection");
}

#[test]
fn background_response_fails_after_a_restart_without_its_server_url() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let mut server =
        TestServer::configured(in_order(&[ScriptStep::call("far__look", json!({"n": 1}))]), &config(), &[]);
    let mut body = request(&far(tools.url()));
    body["background"] = json!(true);
    body["tools"][0]["require_approval"] = json!("never");
    let id = ask(&server, &body)["id"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + Duration::from_secs(20);
    while tools.calls().is_empty() {
        assert!(Instant::now() < deadline, "the call does not begin");
        std::thread::yield_now();
    }
    server.restart_at_once();
    let ended = super::responses::poll(&server, &id, "failed");
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(message.contains("MCP server `far`") && !ended.to_string().contains(SECRET), "{ended}");
    tools.release_calls();
}

/// A real MCP server over HTTP, which is stopped when the test ends.
struct EverythingServer(Child);

impl Drop for EverythingServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn everything() -> (EverythingServer, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let packages = tools("mcp").join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let loopback = concat!(env!("CARGO_MANIFEST_DIR"), "/../haft-cli/tests/mcp_servers/loopback.cjs");
    let mut command = Command::new("node");
    command.args(["--require", loopback, packages.to_str().unwrap(), "streamableHttp"]);
    let silent = command.env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = EverythingServer(silent.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the server does not listen");
        std::thread::yield_now();
    }
    (running, format!("http://127.0.0.1:{port}/mcp"))
}

#[test]
fn official_client_uses_a_real_server_by_its_url() {
    let (_running, url) = everything();
    let steps = [ScriptStep::call("far__echo", json!({"message": "near"})), ScriptStep::text("Echoed.")];
    let server = TestServer::configured(in_order(&[&steps[..], &steps[..]].concat()), &config(), &[]);
    let seen = python_with(&server, "server_url", &[("MCP_URL", &url)]);
    assert_eq!(seen["types"], json!(["mcp_list_tools", "mcp_call", "message"]));
    assert_eq!((&seen["output"], &seen["text"]), (&json!("Echo: near"), &json!("Echoed.")));
    assert_eq!((&seen["extras"], &seen["shown_url"]), (&json!([]), &json!(true)));
    let mut streamed = request(&json!({
        "type": "mcp", "server_label": "far", "server_url": url, "require_approval": "never", "allowed_tools": ["echo"],
    }));
    streamed["stream"] = json!(true);
    let kinds: Vec<String> = events(&post(&server, &streamed)).into_iter().map(|(kind, _)| kind).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
    ];
    assert_eq!(kinds[..6], expected);
}

/// Returns the number of lists of tools in the output.
fn lists(response: &Value) -> usize {
    types(response).iter().filter(|kind| **kind == "mcp_list_tools").count()
}

#[test]
fn tools_of_a_server_are_listed_once_in_a_conversation_and_on_a_connection() {
    let tools = ToolServer::start();
    let steps = || [ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")];
    let server = TestServer::configured(in_order(&steps()), &config(), &[]);
    let made = server.request(Method::POST, "/v1/conversations").header("content-type", "application/json");
    let conversation = server.send(made.body("{}")).json()["id"].clone();
    let mut body = request(&far(tools.url()));
    body["conversation"] = conversation;
    assert_eq!([lists(&ask(&server, &body)), lists(&ask(&server, &body))], [1, 0]);
    let server = TestServer::configured(in_order(&steps()), &config(), &[]);
    let mut client = SteeringClient::connect(&server, &server.key);
    let mut send = |previous: &Value| {
        let mut body = request(&far(tools.url()));
        body["store"] = json!(false);
        body["previous_response_id"] = previous.clone();
        client.create(body);
        client.response("response.completed")
    };
    let first = send(&Value::Null);
    let second = send(&first["id"]);
    let third = send(&second["id"]);
    assert_eq!([lists(&first), lists(&second), lists(&third)], [1, 0, 0]);
}

#[test]
fn list_of_tools_follows_the_selection_by_effects() {
    let tools = ToolServer::start();
    for (read_only, expected) in [(true, "look"), (false, "add")] {
        let server = TestServer::configured(in_order(&[ScriptStep::text("Done.")]), &config(), &[]);
        let mut tool = far(tools.url());
        tool["allowed_tools"] = json!({ "read_only": read_only });
        let response = ask(&server, &request(&tool));
        let listed = response["output"][0]["tools"].as_array().unwrap();
        let names: Vec<&Value> = listed.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, [expected], "{response}");
    }
}

#[test]
fn call_to_a_requested_server_needs_approval_unless_the_filter_exempts_its_tool() {
    let tools = ToolServer::start();
    let rows = [
        (json!({}), true),
        (json!({"always": {"tool_names": ["look"]}}), true),
        (json!({"never": {"tool_names": ["look"]}}), true),
        (json!({"never": {"tool_names": ["add"]}}), false),
    ];
    for (filter, waits) in rows {
        let steps = [ScriptStep::call("far__add", json!({"n": 1})), ScriptStep::text("Done.")];
        let server = TestServer::configured(in_order(&steps), &config(), &[]);
        let mut tool = far(tools.url());
        tool["require_approval"] = filter.clone();
        let response = ask(&server, &request(&tool));
        assert_eq!(types(&response).contains(&"mcp_approval_request"), waits, "{filter}: {response}");
    }
}
