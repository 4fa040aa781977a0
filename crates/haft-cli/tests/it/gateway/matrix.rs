//! Tests of all combinations of protocol revision and transport, of clients and of upstream servers.

use std::io::{BufRead, BufReader};

use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::http::{GatewayServer, request};
use super::http_upstream::{HttpUpstream, UpstreamEra, UpstreamFault};
use super::{McpClient, configure, place, text};

/// A client that answers questions, over stdio or over HTTP.
enum MatrixClient<'a> {
    Stdio(Box<McpClient>),
    Session(&'a GatewayServer, String),
    Stateless(&'a GatewayServer),
}

fn abilities() -> Value {
    json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}})
}

fn answer(colour: &str) -> Value {
    json!({"action": "accept", "content": {"colour": colour}})
}

impl<'a> MatrixClient<'a> {
    fn over_http(server: &'a GatewayServer, era: UpstreamEra) -> Self {
        match era {
            UpstreamEra::Handshake => {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": abilities(),
                    "clientInfo": {"name": "t", "version": "1"}});
                let greeted = server.post(&[], &request(1, "initialize", &params));
                Self::Session(server, greeted.header("mcp-session-id"))
            }
            UpstreamEra::Stateless => Self::Stateless(server),
        }
    }

    fn over_stdio(place: &TestTree, era: UpstreamEra) -> Self {
        Self::Stdio(Box::new(match era {
            UpstreamEra::Handshake => McpClient::handshake(place, &[], abilities()),
            UpstreamEra::Stateless => McpClient::stateless(place, &[], abilities()),
        }))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        match self {
            Self::Stdio(client) => client.ask(method, params),
            Self::Session(server, id) => {
                let reply = server.post(&[("Mcp-Session-Id", id)], &request(2, method, &params)).message();
                reply.get("result").unwrap_or_else(|| panic!("{reply}")).clone()
            }
            Self::Stateless(server) => {
                let reply = ask_stateless(server, method, params, &[]);
                reply.get("result").unwrap_or_else(|| panic!("{reply}")).clone()
            }
        }
    }

    /// Calls a tool that asks for a colour, answers it, and returns the question and the result.
    fn call_and_answer(&mut self, params: Value, colour: &str) -> (Value, Value) {
        self.call_and_reply(params, ("elicitation/create", &answer(colour)))
    }

    /// Calls a tool that sends a request with this method to the client, replies to the request, and returns its
    /// parameters and the result.
    fn call_and_reply(&mut self, params: Value, (method, answer): (&str, &Value)) -> (Value, Value) {
        match self {
            Self::Stdio(client) if client.meta.is_none() => {
                let id = client.begin("tools/call", params);
                let question = client.wait_for(method);
                client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
                (question["params"].clone(), client.reply(id)["result"].clone())
            }
            Self::Session(server, id) => reply_on_stream(server, id, &params, (method, answer)),
            Self::Stdio(_) | Self::Stateless(_) => {
                let asked = self.ask("tools/call", params.clone());
                let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
                assert_eq!(question["method"], method, "{asked}");
                let mut again = params;
                again["requestState"] = asked["requestState"].clone();
                again["inputResponses"] = json!({});
                again["inputResponses"][key] = answer.clone();
                (question["params"].clone(), self.ask("tools/call", again))
            }
        }
    }
}

/// Sends a stateless request of a client that answers questions.
fn ask_stateless(server: &GatewayServer, method: &str, mut params: Value, headers: &[(&str, &str)]) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": abilities(),
    });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut own = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    own.extend(Some(("Mcp-Name", name.as_str())).filter(|(_, name)| !name.is_empty()));
    server.post(&[&own, headers].concat(), &request(1, method, &params)).message()
}

/// Replies to the request that arrives on the stream of the call.
fn reply_on_stream(
    server: &GatewayServer,
    id: &str,
    params: &Value,
    (method, answer): (&str, &Value),
) -> (Value, Value) {
    let own = [("Mcp-Session-Id", id)];
    let stream = server.open("/mcp", "POST", &own, &request(2, "tools/call", params).to_string());
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut messages = lines.filter_map(|line| {
        let data = line.strip_prefix("data: ").or_else(|| line.strip_prefix('{').map(|_| line.as_str()))?;
        serde_json::from_str::<Value>(data).ok()
    });
    let question = messages.find(|message| message["method"] == method).unwrap();
    server.post(&own, &json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    let reply = messages.find(|message| message["id"] == 2 && message.get("method").is_none()).unwrap();
    (question["params"].clone(), reply["result"].clone())
}

/// Configures one upstream server, and returns its tool that asks a question.
fn configure_upstream(place: &TestTree, transport: &str, era: UpstreamEra) -> &'static str {
    match (transport, era) {
        ("stdio", UpstreamEra::Handshake) => {
            configure(place, &[("up", "good", &[]), ("asking", "asks-person", &[])], "");
            "asking__echo"
        }
        ("stdio", UpstreamEra::Stateless) => {
            configure(place, &[("up", "modern", &[])], "");
            "up__slow"
        }
        (_, era) => {
            let url = HttpUpstream::start(era, UpstreamFault::None, 1);
            place.file("home/haft.json", &json!({"mcpServers": {"up": {"url": url}}}).to_string());
            "up__ask"
        }
    }
}

#[test]
fn every_client_revision_and_transport_works_with_every_server_revision_and_transport() {
    let eras = [UpstreamEra::Handshake, UpstreamEra::Stateless];
    for (upstream, era) in ["stdio", "http"].into_iter().flat_map(|at| eras.map(|era| (at, era))) {
        let place = place();
        let asking = configure_upstream(&place, upstream, era);
        let server = GatewayServer::start(&place, &["--no-auth"]);
        for (transport, client_era) in ["stdio", "http"].into_iter().flat_map(|at| eras.map(|era| (at, era)))
        {
            let case = format!("{transport} {client_era:?} client, {upstream} {era:?} server");
            let mut client = match transport {
                "stdio" => MatrixClient::over_stdio(&place, client_era),
                _ => MatrixClient::over_http(&server, client_era),
            };
            let listed = client.ask("tools/list", json!({}));
            assert!(listed["tools"].to_string().contains("\"up__echo\""), "{case}: {listed}");
            let echoed = client.ask("tools/call", json!({"name": "up__echo", "arguments": {"text": "hi"}}));
            assert_eq!(text(&echoed), "echo: hi", "{case}");
            let is_stateless = client_era == UpstreamEra::Stateless;
            assert_eq!(echoed["resultType"] == "complete", is_stateless, "{case}: {echoed}");
            let call = json!({"name": asking, "arguments": {"text": "now"}});
            let (question, answered) = client.call_and_answer(call, "red");
            assert!(question["message"].as_str().unwrap().contains("Which colour?"), "{case}: {question}");
            assert!(text(&answered).contains("red"), "{case}: {answered}");
        }
    }
}

#[test]
fn sampling_and_roots_requests_reach_clients_of_every_revision_and_transport() {
    let eras = [UpstreamEra::Handshake, UpstreamEra::Stateless];
    let sampled = json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "Paris"}});
    let roots = json!({"roots": [{"uri": "file:///client"}]});
    let sampling = ("sampling/createMessage", &sampled);
    let listing = ("roots/list", &roots);
    for (mode, arguments, (method, answer)) in [
        ("asks-model", json!({"what": ""}), sampling),
        ("modern", json!({"what": ""}), sampling),
        ("asks-roots", json!({}), listing),
        ("modern", json!({"asks": "roots"}), listing),
    ] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let server = GatewayServer::start(&place, &["--no-auth"]);
        for (transport, era) in ["stdio", "http"].into_iter().flat_map(|at| eras.map(|era| (at, era))) {
            let mut client = match transport {
                "stdio" => MatrixClient::over_stdio(&place, era),
                _ => MatrixClient::over_http(&server, era),
            };
            let call = json!({"name": "up__echo", "arguments": arguments});
            let (asked, answered) = client.call_and_reply(call, (method, answer));
            let case = format!("{transport} {era:?} client, {mode} {method}: {asked} {answered}");
            assert_eq!(asked["maxTokens"] == 50, method == "sampling/createMessage", "{case}");
            let told: Value = serde_json::from_str(text(&answered)).unwrap();
            // A stateless server gives each of its requests a name, and gets an object with the answer under this name.
            let told =
                if mode == "modern" { told.as_object().unwrap().values().next().unwrap() } else { &told };
            assert_eq!(told, answer, "{case}");
        }
    }
}

#[test]
fn question_of_a_call_is_never_in_the_reply_of_another_call_of_the_same_client() {
    let place = place();
    configure(&place, &[("up", "modern", &[])], "");
    let mut client = McpClient::stateless(&place, &[], abilities());
    let again = |params: &Value, asked: &Value| {
        let questions = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
        assert_eq!(questions.len(), 1, "{asked}");
        let (key, question) = questions.iter().next().unwrap();
        let mut params = params.clone();
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({});
        params["inputResponses"][key] = answer("red");
        (question["params"]["message"].as_str().unwrap().to_owned(), params)
    };
    let one = json!({"name": "up__slow", "arguments": {"asks": "twice"}});
    let two = json!({"name": "up__slow", "arguments": {}});
    let (question, one_again) = again(&one, &client.ask("tools/call", one.clone()));
    assert_eq!(question, "up: First?");
    // Begin the second call before the first call asks its second question: this question must not go to the newer
    // call.
    let (question, two_again) = again(&two, &client.ask("tools/call", two.clone()));
    assert_eq!(question, "up: Which colour?");
    let id = client.begin("tools/call", one_again);
    let done = client.ask("tools/call", two_again);
    assert!(text(&done).contains("red"), "the second call ends while the first one waits: {done}");
    let (question, one_again) = again(&one, &client.reply(id)["result"]);
    assert_eq!(question, "up: Second?");
    let done = client.ask("tools/call", one_again);
    assert!(text(&done).contains("red"), "{done}");
}

#[test]
fn question_about_a_url_is_translated_between_protocol_revisions() {
    let accept = json!({"action": "accept"});
    for (mode, arguments) in [("asks-url", json!({})), ("modern", json!({"asks": "url"}))] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let call = json!({"name": "up__echo", "arguments": arguments});
        for abilities in [json!({"url": {}}), json!({"form": {}, "url": {}})] {
            let abilities = json!({"elicitation": abilities});
            let case = format!("{mode} {abilities}");
            let mut client = McpClient::handshake(&place, &[], abilities.clone());
            let id = client.begin("tools/call", call.clone());
            let question = client.wait_for("elicitation/create");
            let params = &question["params"];
            assert_eq!(
                (&params["mode"], &params["message"]),
                (&json!("url"), &json!("up: Open it")),
                "{case}"
            );
            let url_id = params["elicitationId"].as_str().unwrap_or_else(|| panic!("{case}: {params}"));
            client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept}));
            assert!(text(&client.reply(id)["result"]).contains("accept"), "{case}");
            if mode == "asks-url" {
                let completed = client.wait_for("notifications/elicitation/complete");
                assert_eq!((url_id, &completed["params"]), ("e-1", &json!({"elicitationId": "e-1"})));
            }
            assert!(!url_id.is_empty(), "{case}");
            client.ask("ping", json!({}));
            let unknown =
                client.others.iter().find(|sent| sent["method"] == "notifications/elicitation/complete");
            assert_eq!(unknown, None, "the client did not receive this question");
            client.end();

            let mut client = McpClient::stateless(&place, &[], abilities);
            let asked = client.ask("tools/call", call.clone());
            let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
            let expected =
                json!({"mode": "url", "url": "https://example.com/consent", "message": "up: Open it"});
            assert_eq!(question["params"], expected, "{case}");
            let mut again = call.clone();
            again["requestState"] = asked["requestState"].clone();
            again["inputResponses"] = json!({key: accept});
            assert!(text(&client.ask("tools/call", again)).contains("accept"), "{case}");
        }
    }
}

#[test]
fn required_url_is_an_error_for_clients_with_a_handshake_and_a_question_for_others() {
    let tool = |name: &str| json!({"name": name, "arguments": {}});
    let prompt = json!({"name": "up__greet", "arguments": {"who": "consent"}});
    for (mode, method, params) in
        [("asks-url", "tools/call", tool("up__fail")), ("offers", "prompts/get", prompt)]
    {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        let abilities = json!({"elicitation": {"url": {}}});
        let mut client = McpClient::handshake(&place, &[], abilities.clone());
        let id = client.begin(method, params.clone());
        let refused = client.reply(id)["error"].clone();
        assert_eq!(refused["code"], -32042, "{method}: {refused}");
        assert_eq!(refused["data"]["elicitations"][0]["elicitationId"], "e-1");
        let completed = client.wait_for("notifications/elicitation/complete");
        assert_eq!(completed["params"], json!({"elicitationId": "e-1"}));
        client.ask(method, params.clone());
        client.end();

        // When the user has accepted, haft repeats the upstream request once the server reports that the URL was
        // completed.
        let mut client = McpClient::stateless(&place, &[], abilities);
        let asked = client.ask(method, params.clone());
        let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let expected = json!({"mode": "url", "url": "https://example.com/consent", "message": "up: Open it"});
        assert_eq!(question["params"], expected, "{method}");
        let mut again = params.clone();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({key: {"action": "accept"}});
        let done = client.ask(method, again.clone());
        assert_eq!((&done["resultType"], &done["isError"]), (&json!("complete"), &Value::Null), "{done}");
        client.end();

        for (abilities, reason) in
            [(json!({}), "cannot ask its user"), (json!({"elicitation": {"url": {}}}), "did not open")]
        {
            let mut client = McpClient::stateless(&place, &[], abilities.clone());
            let id = client.begin(method, params.clone());
            let mut reply = client.reply(id);
            if abilities != json!({}) {
                again["requestState"] = reply["result"]["requestState"].clone();
                again["inputResponses"] = json!({key: {"action": "decline"}});
                let id = client.begin(method, again.clone());
                reply = client.reply(id);
            }
            assert!(reply.to_string().contains(reason) && reply["error"]["code"] != -32042, "{reply}");
        }
    }
}

#[test]
fn client_gets_only_questions_of_the_kinds_that_it_supports() {
    for (mode, offered, reason) in [
        ("asks-person", json!({"url": {}}), "does not support forms"),
        ("asks-url", json!({"form": {}}), "cannot ask its user to open a URL"),
    ] {
        let place = place();
        configure(&place, &[("up", mode, &[])], "");
        for mut client in [
            McpClient::handshake(&place, &[], json!({"elicitation": offered})),
            McpClient::stateless(&place, &[], json!({"elicitation": offered})),
        ] {
            let called = client.call("up__echo", json!({}));
            assert!(text(&called).contains(reason), "{mode}: {called}");
        }
    }
}

#[test]
fn each_question_of_a_shared_http_server_goes_to_the_client_whose_call_it_belongs_to() {
    for era in [UpstreamEra::Handshake, UpstreamEra::Stateless] {
        let place = place();
        let url = HttpUpstream::start(UpstreamEra::Handshake, UpstreamFault::None, 2);
        place.file("home/haft.json", &json!({"mcpServers": {"up": {"url": url}}}).to_string());
        let server = GatewayServer::start(&place, &["--no-auth"]);
        std::thread::scope(|scope| {
            let calls = ["one", "two"].map(|name| {
                let mut client = MatrixClient::over_http(&server, era);
                let call = json!({"name": "up__ask", "arguments": {"text": name}});
                scope.spawn(move || (name, client.call_and_answer(call, name)))
            });
            for call in calls {
                let (name, (question, answered)) = call.join().unwrap();
                assert!(question["message"].as_str().unwrap().ends_with(name), "{era:?}: {question}");
                let expected = json!({"action": "accept", "content": {"colour": name}});
                assert_eq!(text(&answered), format!("{name}: {expected}"), "{era:?}");
            }
        });
    }
}

#[test]
fn no_error_or_warning_shows_the_address_of_a_server_or_of_its_redirect() {
    for fault in [UpstreamFault::RedirectsCalls, UpstreamFault::RedirectsAll] {
        let place = place();
        let url = HttpUpstream::start(UpstreamEra::Handshake, fault, 1);
        place.file("home/haft.json", &json!({"mcpServers": {"up": {"url": url}}}).to_string());
        let mut client = McpClient::handshake(&place, &[], json!({}));
        client.names();
        let id = client.begin("tools/call", json!({"name": "up__echo", "arguments": {}}));
        let called = client.reply(id).to_string();
        let id = client.begin("resources/read", json!({"uri": "haft:up/note://1"}));
        let read = client.reply(id).to_string();
        let mut shown = vec![called.clone(), read];
        if fault == UpstreamFault::RedirectsAll {
            shown.push(client.wait_for("notifications/message").to_string());
            assert!(shown[2].contains("the server redirects to"), "{shown:?}");
        } else {
            assert!(called.contains("the server redirects to `[address]`"), "{called}");
        }
        for text in shown {
            assert!(!text.contains("canary") && !text.contains("127.0.0.1"), "{fault:?}: {text}");
        }
    }
}

#[test]
fn no_error_of_an_http_api_shows_its_host() {
    let place = place();
    let tool = |url: &str| json!({"description": "Asks.", "method": "GET", "url": url});
    let mut posts = tool("http://127.0.0.1:9/canary");
    posts["method"] = "POST".into();
    let tools = json!({
        "closed": tool("http://127.0.0.1:9/canary"),
        "posts": posts,
        "unknown": tool("https://canary.invalid/x"),
    });
    place.file("home/haft.json", &json!({"restTools": tools}).to_string());
    let clients =
        [McpClient::handshake(&place, &[], json!({})), McpClient::stateless(&place, &[], json!({}))];
    for mut client in clients {
        client.names();
        for tool in ["closed", "posts", "unknown"] {
            let called = client.call(tool, json!({}));
            assert_eq!(called["isError"], true, "{called}");
            assert!(text(&called).contains("the HTTP API cannot be reached"), "{tool}: {called}");
            let called = called.to_string();
            assert!(!called.contains("canary") && !called.contains("127.0.0.1"), "{tool}: {called}");
        }
    }
    // Unlike a client, the operator sees the host in the error.
    let called = place.haft(&["call", "closed", "{}"]).output();
    assert!(called.stderr.contains("127.0.0.1 cannot be reached"), "{}", called.stderr);
}

#[test]
fn request_state_of_a_principal_is_invalid_for_another_principal() {
    let place = place();
    configure(&place, &[("up", "modern", &[])], "");
    let keys = ["anna", "bert"].map(|name| {
        let created = place.haft(&["keys", "create", name, "--tenant", name]).output().expect_code(0);
        format!("Bearer {}", created.stdout.trim())
    });
    let server = GatewayServer::start(&place, &[]);
    let call = |key: usize, params: &Value| {
        ask_stateless(&server, "tools/call", params.clone(), &[("Authorization", &keys[key])])
    };
    let mut params = json!({"name": "up__slow", "arguments": {}});
    let asked = call(0, &params)["result"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({});
    params["inputResponses"][&key] = answer("red");
    let refused = call(1, &params);
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let answered = call(0, &params);
    assert!(text(&answered["result"]).contains("red"), "the owner can still use it: {answered}");
}

#[test]
fn request_state_of_one_method_is_refused_by_other_methods() {
    let place = place();
    configure(
        &place,
        &[("up", "offers", &[])],
        r#", "policy": {"rules": [{"tool": "bash", "decision": "ask"}]}"#,
    );
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let call = json!({"name": "bash", "arguments": {"command": "echo done"}});
    // Both requests lead to a question: a rule asks about `bash`, and the prompt asks for a colour if it gets no
    // arguments.
    for (method, params, answered) in [
        ("tools/call", call, json!({"action": "accept", "content": {"decision": "allow once"}})),
        ("prompts/get", json!({"name": "up__greet"}), answer("red")),
    ] {
        let asked = ask_stateless(&server, method, params.clone(), &[])["result"].clone();
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        let mut again = params;
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({});
        again["inputResponses"][&key] = answered;
        // Send the request state with two other methods: one with the same parameters, and `resources/read`.
        let same = if method == "tools/call" { "prompts/get" } else { "tools/call" };
        let mut read = again.clone();
        read.as_object_mut().unwrap().remove("name");
        read["uri"] = READ_URI.into();
        let requests = [(same, again.clone(), None), ("resources/read", read, Some(("Mcp-Name", READ_URI)))];
        for (other, params, header) in requests {
            let refused = ask_stateless(&server, other, params, header.as_slice());
            assert_eq!(refused["error"]["code"], -32602, "{method} {other}: {refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains("another request"), "{refused}");
        }
        let done = ask_stateless(&server, method, again, &[]);
        assert_eq!(done["result"]["resultType"], "complete", "the state is still valid: {done}");
    }
}

const READ_URI: &str = "haft:up/note://1";

#[test]
fn session_over_http_cannot_change_its_protocol_revision() {
    let place = place();
    configure(&place, &[], "");
    let server = GatewayServer::start(&place, &["--no-auth"]);
    let session = server.session(&[]);
    let own = [("Mcp-Session-Id", session.as_str())];
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let refused = server.post(&own, &request(2, "tools/list", &modern));
    assert_eq!(refused.message()["error"]["code"], -32600, "{refused:?}");
    assert_eq!(server.post(&own, &request(3, "ping", &json!({}))).message()["result"], json!({}));
}

#[test]
fn queue_limit_holds_over_all_clients_of_the_process() {
    let place = place();
    configure(&place, &[], r#", "queues": {"default": {"maxConcurrency": 1}}"#);
    let server = GatewayServer::start(&place, &["--no-auth"]);
    // These clients differ in their capabilities, so they do not share their tools.
    let one = MatrixClient::over_http(&server, UpstreamEra::Handshake);
    let two = MatrixClient::Session(&server, server.session(&[]));
    std::thread::scope(|scope| {
        let calls = [one, two].map(|mut client| {
            // The command fails if another one runs at the same time.
            let command = json!({"command": "mkdir running && sleep 0.5 && rmdir running"});
            scope.spawn(move || client.ask("tools/call", json!({"name": "bash", "arguments": command})))
        });
        for call in calls {
            let called = call.join().unwrap();
            assert_eq!(called["isError"], Value::Null, "{called}");
        }
    });
}
