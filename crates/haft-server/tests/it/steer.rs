//! Tests of `response.steer` over a WebSocket, with the official Python client and with plain messages.

use futures_util::{SinkExt as _, StreamExt as _};
use haft_model_server::{ResponsePace, Script, ScriptPart, ScriptStep};
use haft_store::api_keys::KeyLimits;
use haft_testkit::eventually;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::fixture::{TestServer, limited_key};
use super::limits::connect;
use super::responses::{python_with, text};
use super::tool_server::ToolServer;

/// Delays a step long enough for a client to send input.
fn slow(step: ScriptStep) -> ScriptStep {
    step.at_pace(ResponsePace { first_byte_milliseconds: 2_000, ..ResponsePace::default() })
}

/// A client that waits for each event.
pub(crate) struct SteeringClient<'a> {
    server: &'a TestServer,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The type and the number of each event since the last `response.created`.
    numbers: Vec<(String, u64)>,
}

impl<'a> SteeringClient<'a> {
    pub(crate) fn connect(server: &'a TestServer, key: &str) -> Self {
        let socket = server.executor.block_on(connect(&server.url, key));
        Self { server, socket, numbers: Vec::new() }
    }

    fn send(&mut self, message: &Value) {
        self.server.executor.block_on(self.socket.send(Message::text(message.to_string()))).unwrap();
    }

    pub(crate) fn create(&mut self, mut body: Value) {
        body["type"] = "response.create".into();
        body["model"] = "openai/m".into();
        self.send(&body);
    }

    fn steer(&mut self, response: &Value, input: &str) -> Value {
        self.send(&json!({"type": "response.steer", "previous_response_id": response["id"], "input": input}));
        loop {
            let event = self.next();
            if event["type"].as_str().unwrap().starts_with("response.steer.") {
                return event;
            }
        }
    }

    fn next(&mut self) -> Value {
        let message = self.server.executor.block_on(self.socket.next()).unwrap().unwrap();
        let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        let kind = event["type"].as_str().unwrap().to_owned();
        if kind == "response.created" {
            self.numbers.clear();
        }
        if let Some(number) = event["sequence_number"].as_u64() {
            self.numbers.push((kind, number));
        }
        event
    }

    fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            assert_ne!(event["type"], "response.failed", "{event}");
            if event["type"] == kind {
                return event;
            }
            assert_ne!(event["type"], "error", "{event}");
        }
    }

    /// Waits for an event, and returns its response.
    pub(crate) fn response(&mut self, kind: &str) -> Value {
        self.until(kind)["response"].clone()
    }

    #[track_caller]
    fn assert_numbered(&self) {
        let expected: Vec<u64> = (0..self.numbers.len() as u64).collect();
        let found: Vec<u64> = self.numbers.iter().map(|(_, number)| *number).collect();
        assert_eq!(found, expected, "{:?}", self.numbers);
    }
}

/// Asserts that the texts occur in this order in the last request to the model.
#[track_caller]
fn assert_order(server: &TestServer, texts: &[&str]) {
    let sent = server.model.requests().last().unwrap().raw.clone();
    let positions: Vec<Option<usize>> = texts.iter().map(|text| sent.find(text)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?}: {sent}");
}

#[test]
fn official_client_steers_a_response() {
    let tools = ToolServer::start();
    let check =
        |first: ScriptStep, variables: &[(&str, &str)], texts: Value, reasons: Value, before: &str| {
            let script = Script::of([slow(first), ScriptStep::text("Second."), ScriptStep::text("Never.")]);
            let server = TestServer::configured(script, &tools.config(), &[]);
            let seen = python_with(&server, "steer", variables);
            let accepted = json!(["ResponseSteerAcceptedEvent", true]);
            let expected = json!({
                "steers": [accepted, accepted, ["ResponseSteerFailedEvent", false]],
                "code": ["response_not_found"],
                "texts": texts,
                "reasons": reasons,
                "continues": true,
                "instructions": "Be brief.",
                "extras": [],
            });
            assert_eq!(seen, expected);
            assert_order(&server, &["One.", before, "Two.", "Three."]);
        };
    check(ScriptStep::text("First."), &[], json!(["First.", "Second."]), json!([null, null]), "First.");
    let call = ScriptStep::call("docs__look", json!({"n": 1}));
    check(call, &[("TOOLS", "docs")], json!(["", "Second."]), json!(["steered", null]), "noted");
}

#[test]
fn steered_response_completes_started_calls_and_ends_before_its_next_turn() {
    let tools = ToolServer::start();
    tools.hold_calls();
    let both = ScriptStep::say([
        ScriptPart::call("docs__look", json!({"n": 1})),
        ScriptPart::call("docs__add", json!({"n": 2})),
    ]);
    let script = Script::of([both, ScriptStep::text("Second."), ScriptStep::text("Never.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let mut client = SteeringClient::connect(&server, &server.key);
    client.create(json!({"input": "One.", "tools": [{"type": "mcp", "server_label": "docs"}]}));
    let first = client.response("response.created");
    eventually("the first call has begun", || tools.calls().len() == 1);
    assert_eq!(client.steer(&first, "Two.")["type"], "response.steer.accepted");
    tools.release_calls();
    let ended = client.response("response.incomplete");
    assert_eq!((&ended["id"], &ended["status"]), (&first["id"], &json!("incomplete")));
    assert_eq!(ended["incomplete_details"], json!({"reason": "steered"}));
    let outputs: Vec<&Value> =
        ended["output"].as_array().unwrap().iter().map(|item| &item["output"]).collect();
    assert_eq!((outputs, tools.calls().len()), (vec![&json!("noted"), &json!("noted")], 2), "{ended}");
    let second = client.response("response.completed");
    assert_eq!((text(&second), &second["previous_response_id"]), ("Second.", &first["id"]));
    assert_order(&server, &["One.", "docs__look", "docs__add", "noted", "Two."]);
    assert_eq!(server.model.requests().len(), 2, "the steered response sends no further request");
    let stored = server.get(&format!("/v1/responses/{}", first["id"].as_str().unwrap())).json();
    assert_eq!(stored["incomplete_details"], json!({"reason": "steered"}));
}

#[test]
fn successor_response_has_the_queued_input_in_order_and_can_be_steered() {
    let steps = ["First.", "Second.", "Third."].map(|text| slow(ScriptStep::text(text)));
    let server = TestServer::start(Script::of(steps));
    let limits = KeyLimits { concurrent_responses: Some(1), ..KeyLimits::default() };
    let mut client = SteeringClient::connect(&server, &limited_key(&server.store, limits));
    client.create(json!({"input": "One.", "metadata": {"a": "b"}}));
    let first = client.response("response.created");
    let (two, three) = (client.steer(&first, "Two."), client.steer(&first, "Three."));
    assert_eq!(
        (&two["type"], &three["type"]),
        (&json!("response.steer.accepted"), &json!("response.steer.accepted"))
    );
    assert_eq!(two["steer"]["previous_response_id"], first["id"]);
    assert_ne!(two["steer"]["id"], three["steer"]["id"]);
    assert_eq!(text(&client.response("response.completed")), "First.");
    client.assert_numbered();
    let second = client.response("response.created");
    assert_eq!((&second["previous_response_id"], &second["metadata"]), (&first["id"], &json!({"a": "b"})));
    // The client sees the successor before the model gets its request.
    eventually("the model has the second request", || server.model.requests().len() == 2);
    assert_order(&server, &["One.", "First.", "Two.", "Three."]);
    client.steer(&second, "Four.");
    let late = client.steer(&first, "Too late.");
    assert_eq!(
        (&late["error"]["code"], &late["steer"]["input"]),
        (&json!("response_already_completed"), &json!("Too late."))
    );
    assert_eq!(text(&client.response("response.completed")), "Second.");
    assert_eq!(text(&client.response("response.completed")), "Third.");
    assert_order(&server, &["Three.", "Second.", "Four."]);
    let items =
        server.get(&format!("/v1/responses/{}/input_items?order=asc", second["id"].as_str().unwrap())).json();
    let texts: Vec<&Value> =
        items["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, [&json!("Two."), &json!("Three.")], "{items}");
}

#[test]
fn steering_input_waits_for_the_output_of_a_function() {
    let call = slow(ScriptStep::call("weather", json!({"town": "Oslo"})));
    let server = TestServer::start(Script::of([call, ScriptStep::text("Cold.")]));
    let mut client = SteeringClient::connect(&server, &server.key);
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    client.create(json!({"input": "One.", "store": false, "tools": tools}));
    let first = client.response("response.created");
    let steers = [client.steer(&first, "Two."), client.steer(&first, "Three.")];
    let ended = client.response("response.completed");
    let called = ended["output"].as_array().unwrap().last().unwrap().clone();
    let required = json!([{"type": "function_call_output", "call_id": called["call_id"], "name": "weather"}]);
    for steer in &steers {
        let pending = client.next();
        assert_eq!(pending["type"], "response.steer.pending", "{pending}");
        assert_eq!(
            (&pending["steer"], &pending["reason"]),
            (&steer["steer"], &json!("waiting_for_required_input"))
        );
        assert_eq!(pending["required_input"], required);
    }
    client.assert_numbered();
    let mut output = required[0].clone();
    output["output"] = "31 degrees".into();
    output.as_object_mut().unwrap().remove("name");
    let own = json!({"role": "user", "content": "Four."});
    client.create(json!({"previous_response_id": first["id"], "store": false, "input": [output, own]}));
    let second = client.response("response.created");
    assert_eq!(second["tools"], json!([]), "an explicit request has its own settings");
    assert_eq!(text(&client.response("response.completed")), "Cold.");
    assert_order(&server, &["One.", "31 degrees", "Two.", "Three.", "Four."]);
}

#[test]
fn waiting_steering_input_is_returned_if_the_next_request_is_invalid() {
    let call = slow(ScriptStep::call("weather", json!({})));
    let server = TestServer::start(Script::of([call, ScriptStep::text("Cold.")]));
    let mut client = SteeringClient::connect(&server, &server.key);
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    client.create(json!({"input": "One.", "tools": tools}));
    let first = client.response("response.created");
    let accepted = client.steer(&first, "Two.");
    client.until("response.steer.pending");
    client.create(json!({"previous_response_id": first["id"], "input": "No output."}));
    assert_eq!(client.next()["type"], "error");
    let failed = client.until("response.steer.failed");
    assert_eq!(failed["error"]["code"], "successor_creation_failed", "{failed}");
    let expected =
        json!({"id": accepted["steer"]["id"], "previous_response_id": first["id"], "input": "Two."});
    assert_eq!(failed["steer"], expected);
}

#[test]
fn steering_input_waits_for_an_approval_and_joins_the_approved_run() {
    let tools = ToolServer::start();
    let call = slow(ScriptStep::call("docs__add", json!({"n": 1})));
    let script = Script::of([call, ScriptStep::text("Done."), ScriptStep::text("Bye.")]);
    let server = TestServer::configured(script, &tools.config(), &[]);
    let mut client = SteeringClient::connect(&server, &server.key);
    let tool = json!({"type": "mcp", "server_label": "docs", "require_approval": "always"});
    client.create(json!({"input": "One.", "tools": [tool], "instructions": "Be brief."}));
    let first = client.response("response.created");
    let accepted = client.steer(&first, "Two.");
    let asked = client.response("response.completed")["output"].as_array().unwrap().last().unwrap().clone();
    let pending = client.next();
    assert_eq!((&pending["type"], &pending["steer"]), (&json!("response.steer.pending"), &accepted["steer"]));
    let required = json!([{"type": "mcp_approval_response", "approval_request_id": asked["id"]}]);
    assert_eq!(pending["required_input"], required);
    let mut answer = required[0].clone();
    answer["approve"] = true.into();
    client.create(json!({"previous_response_id": first["id"], "input": [answer]}));
    let second = client.response("response.incomplete");
    assert_eq!(second["incomplete_details"], json!({"reason": "steered"}), "{second}");
    assert_eq!((&second["output"][0]["output"], tools.calls().len()), (&json!("noted"), 1));
    let third = client.response("response.created");
    assert_eq!(
        (&third["previous_response_id"], &third["instructions"]),
        (&second["id"], &json!("Be brief.")),
        "the successor has the settings of the run"
    );
    assert_eq!(text(&client.response("response.completed")), "Done.");
    assert_order(&server, &["One.", "noted", "Two."]);
}

#[test]
fn responses_with_a_conversation_or_compaction_cannot_be_steered() {
    let server = TestServer::start(Script::of([slow(ScriptStep::text("First."))]));
    let mut client = SteeringClient::connect(&server, &server.key);
    let conversation = server.send(
        server
            .request(reqwest::Method::POST, "/v1/conversations")
            .header("content-type", "application/json")
            .body("{}"),
    );
    let conversation = conversation.json()["id"].clone();
    let compaction = json!([{"type": "compaction", "compact_threshold": 50_000}]);
    for body in [json!({"conversation": conversation}), json!({"context_management": compaction})] {
        let mut create = body.clone();
        create["input"] = "One.".into();
        client.create(create);
        let response = client.response("response.created");
        assert_eq!(client.steer(&response, "Two.")["error"]["code"], "steering_not_supported", "{body}");
        client.until("response.completed");
    }
}

#[test]
fn successor_response_counts_against_the_limits_of_the_key() {
    let server = TestServer::start(Script::of([slow(ScriptStep::text("First."))]));
    // The handshake and the first response are requests.
    let limits = KeyLimits { requests_per_minute: Some(2), ..KeyLimits::default() };
    let mut client = SteeringClient::connect(&server, &limited_key(&server.store, limits));
    client.create(json!({"input": "One."}));
    let first = client.response("response.created");
    let accepted = client.steer(&first, "Two.");
    client.until("response.completed");
    let failed = client.next();
    assert_eq!(
        (&failed["type"], &failed["error"]["code"]),
        (&json!("response.steer.failed"), &json!("successor_creation_failed"))
    );
    assert_eq!(failed["steer"]["id"], accepted["steer"]["id"]);
    assert_eq!(server.model.requests().len(), 1, "no successor has started");
}
