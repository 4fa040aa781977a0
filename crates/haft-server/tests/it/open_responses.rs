//! Checks every response object and every stream of the tests against the Open Responses specification, and against the
//! rules that the stream readers of OpenAI's SDKs rely on.
//!
//! `open_responses.json` is a schema in our own words. Where the specification and the SDKs contradict each other, the
//! schema and the tests below follow the SDKs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use haft_model_server::{ErrorResponse, Script, ScriptPart, ScriptStep};
use haft_testkit::eventually;
use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::TestServer;
use super::responses::{ask, events, post};

/// The validators of all definitions and events, by name.
static VALIDATORS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("open_responses.json")).unwrap();
    let named = ["$defs", "events"].into_iter().flat_map(|group| schema[group].as_object().unwrap());
    let validator = |(name, definition): (&String, &Value)| {
        let whole = json!({"allOf": [definition], "$defs": schema["$defs"]});
        (name.clone(), jsonschema::draft202012::new(&whole).unwrap())
    };
    named.map(validator).collect()
});

/// The events that end a stream.
const LAST: [&str; 3] = ["response.completed", "response.failed", "response.incomplete"];

/// Checks a response object.
#[track_caller]
pub(crate) fn check_response(response: &Value) {
    let found = invalid("Response", response);
    assert!(found.is_empty(), "{}\n{response}", found.join("\n"));
}

/// Checks the events of a stream. A stream that continues after an event is checked only event by event.
#[track_caller]
pub(crate) fn check_stream(events: &[Value]) {
    let mut found = invalid_events(events);
    if events.first().is_some_and(|event| event["sequence_number"] == 0) {
        found.extend(broken_rules(events));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the differences between a value and a definition of the schema.
fn invalid(name: &str, value: &Value) -> Vec<String> {
    let Some(validator) = VALIDATORS.get(name) else { return vec![format!("`{name}` is not in the schema")] };
    let found = validator.iter_errors(value);
    found.map(|error| format!("{name}{}: {error}", error.instance_path())).collect()
}

fn invalid_events(events: &[Value]) -> Vec<String> {
    let of_event = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        // Names with a colon are extensions of a server, which clients may ignore.
        invalid(if kind.contains(':') { "extension" } else { kind }, event)
    };
    events.iter().flat_map(of_event).collect()
}

/// Returns the rules of the SDKs that a whole stream breaks.
fn broken_rules(events: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rule = |holds: bool, broken: &str| {
        if !holds {
            found.push(broken.to_owned());
        }
    };
    let kind = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    rule(events.first().is_some_and(|event| kind(event) == "response.created"), "the first event");
    let last: Vec<usize> = (0..events.len()).filter(|at| LAST.contains(&&*kind(&events[*at]))).collect();
    rule(last == [events.len() - 1], "the last event");
    let numbers = events.iter().enumerate().all(|(at, event)| event["sequence_number"] == json!(at));
    rule(numbers, "the sequence numbers");
    let ids: BTreeSet<&str> = events.iter().filter_map(|event| event["response"]["id"].as_str()).collect();
    rule(ids.len() == 1, "one response id");
    let failed = events.iter().zip(&events[1..]).filter(|(event, _)| kind(event) == "error");
    rule(
        failed.clone().all(|(_, next)| kind(next) == "response.failed"),
        "an error precedes response.failed",
    );
    found.extend(broken_item_rules(events));
    found
}

fn broken_item_rules(events: &[Value]) -> Vec<String> {
    let identity = |item: &Value| (item["type"].clone(), item["id"].clone());
    let mut found = Vec::new();
    let mut added: BTreeMap<u64, (Value, Value)> = BTreeMap::new();
    let mut done: BTreeMap<u64, &Value> = BTreeMap::new();
    for event in events {
        let Some(index) = event["output_index"].as_u64() else { continue };
        let broken = match event["type"].as_str() {
            Some("response.output_item.added") => {
                added.insert(index, identity(&event["item"])).map(|_| "one added event for each index")
            }
            Some("response.output_item.done") => {
                let same = added.get(&index) == Some(&identity(&event["item"]));
                let first = done.insert(index, &event["item"]).is_none();
                (!same || !first).then_some("the identity of a done item")
            }
            _ => {
                let is_open = added.get(&index).is_some_and(|(_, id)| *id == event["item_id"]);
                (!is_open || done.contains_key(&index)).then_some("events within their item")
            }
        };
        found.extend(broken.map(|rule| format!("{rule}: {event}")));
    }
    if !added.keys().eq(done.keys()) {
        found.push("a done event for each added item".to_owned());
    }
    let output: Vec<&Value> = events
        .last()
        .into_iter()
        .filter_map(|event| event["response"]["output"].as_array())
        .flatten()
        .collect();
    if output != done.into_values().collect::<Vec<_>>() {
        found.push("the output of the last event".to_owned());
    }
    found
}

/// Returns the data of a stream with a reasoning item, a message and a function call.
fn valid_stream() -> Vec<Value> {
    stream_with_names(None)
}

/// Returns the same stream for a client that selects the names of reasoning events.
fn stream_with_names(names: Option<&str>) -> Vec<Value> {
    let steps = [ScriptStep::say([
        ScriptPart::reasoning("Thinking.", "state"),
        ScriptPart::Text("Let me see.".into()),
        ScriptPart::call("weather", json!({"town": "Oslo"})),
    ])];
    let server = TestServer::start(Script::of(steps));
    let tools = json!([{"type": "function", "name": "weather"}]);
    let body = json!({"model": "openai/m", "input": "x", "stream": true, "tools": tools});
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    let request = names.into_iter().fold(request, |request, names| request.header(NAMES_HEADER, names));
    data(&events(&server.send(request.body(body.to_string()))))
}

/// The header that selects the names of reasoning events.
const NAMES_HEADER: &str = "haft-reasoning-events";

pub(crate) fn data(events: &[(String, String)]) -> Vec<Value> {
    events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
}

/// A change that makes a stream invalid.
type StreamDamage = fn(&mut Vec<Value>);

fn position(events: &[Value], kind: &str) -> usize {
    events.iter().position(|event| event["type"] == kind).unwrap()
}

#[test]
fn each_rule_of_the_stream_readers_detects_a_stream_that_breaks_it() {
    let valid = valid_stream();
    assert_eq!((invalid_events(&valid), broken_rules(&valid)), (vec![], vec![]));
    let rows: [(&str, StreamDamage); 10] = [
        ("the first event", |events| drop(events.remove(0))),
        ("the last event", |events| drop(events.pop())),
        ("the sequence numbers", |events| events[2]["sequence_number"] = json!(1)),
        ("one response id", |events| events[1]["response"]["id"] = json!("resp_other")),
        ("one added event for each index", |events| {
            let at = position(events, "response.output_item.added");
            events.insert(at, events[at].clone());
        }),
        ("events within their item", |events| {
            let at = position(events, "response.output_item.added");
            events.swap(at, at + 1);
        }),
        ("events within their item", |events| {
            let at = position(events, "response.function_call_arguments.delta");
            events[at]["item_id"] = json!("fc_other");
        }),
        ("the identity of a done item", |events| {
            let at = position(events, "response.output_item.done");
            events[at]["item"]["id"] = json!("other");
        }),
        ("a done event for each added item", |events| {
            let at = position(events, "response.output_item.done");
            events.remove(at);
        }),
        ("the output of the last event", |events| {
            let last = events.last_mut().unwrap();
            last["response"]["output"].as_array_mut().unwrap().pop();
        }),
    ];
    for (rule, damage) in rows {
        let mut events = valid.clone();
        damage(&mut events);
        let found = broken_rules(&events);
        assert!(found.iter().any(|found| found.starts_with(rule)), "{rule}: {found:?}");
    }
}

#[test]
fn schema_detects_missing_null_and_unknown_parts_of_an_event() {
    let valid = valid_stream();
    let rows: [(&str, StreamDamage); 6] = [
        ("created_at", |events| events[0]["response"]["created_at"] = json!(1.5)),
        ("requires_action", |events| events[0]["response"]["status"] = json!("requires_action")),
        ("usage", |events| {
            let response = events.last_mut().unwrap()["response"].as_object_mut().unwrap();
            response.remove("usage");
        }),
        ("phase", |events| {
            let output = events.last_mut().unwrap()["response"]["output"].as_array_mut().unwrap();
            output
                .iter_mut()
                .filter(|item| item["type"] == "message")
                .for_each(|item| item["phase"] = Value::Null);
        }),
        ("delta", |events| {
            let at = position(events, "response.output_text.delta");
            events[at].as_object_mut().unwrap().remove("delta");
        }),
        ("not in the schema", |events| events[1]["type"] = json!("response.requires_action")),
    ];
    for (part, damage) in rows {
        let mut events = valid.clone();
        damage(&mut events);
        let found = invalid_events(&events);
        assert!(found.iter().any(|found| found.contains(part)), "{part}: {found:?}");
    }
}

/// The points on which the specification and the SDKs contradict each other, with the value that both accept or that the
/// SDKs need.
#[test]
fn responses_follow_the_sdks_where_the_specification_contradicts_them() {
    let server = TestServer::start(Script::of([ScriptStep::text("{\"a\": 1}")]));
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema});
    let allowed =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]});
    let function = json!({"type": "function", "name": "f"});
    let complete =
        json!({"type": "function", "name": "f", "description": null, "parameters": null, "strict": null});
    let rows = [
        ("schema of a format", json!({"text": {"format": format}}), "/text/format/schema", Some(schema)),
        (
            "effort of the SDK",
            json!({"reasoning": {"effort": "minimal"}}),
            "/reasoning/effort",
            Some(json!("minimal")),
        ),
        (
            "hosted tool",
            json!({"tools": [{"type": "web_search"}]}),
            "/tools/0/type",
            Some(json!("web_search")),
        ),
        ("function tool", json!({"tools": [function]}), "/tools/0", Some(complete)),
        (
            "tool choice",
            json!({"tools": [function], "tool_choice": allowed}),
            "/tool_choice",
            Some(allowed.clone()),
        ),
        ("phase", json!({}), "/output/0/phase", None),
        ("status", json!({}), "/status", Some(json!("completed"))),
        ("cached tokens", json!({}), "/usage/input_tokens_details/cached_tokens", Some(json!(0))),
        ("cache writes", json!({}), "/usage/input_tokens_details/cache_write_tokens", Some(json!(0))),
        ("reasoning tokens", json!({}), "/usage/output_tokens_details/reasoning_tokens", Some(json!(0))),
    ];
    for (point, fields, pointer, expected) in rows {
        let mut body = json!({"model": "openai/m", "input": "x"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let response = ask(&server, &body);
        assert_eq!(response.pointer(pointer), expected.as_ref(), "{point}: {response}");
        assert!(response["created_at"].is_u64(), "{point}: {response}");
    }
}

#[test]
fn client_selects_the_names_of_reasoning_events() {
    let rows = [
        (None, "response.reasoning_text"),
        (Some("openai"), "response.reasoning_text"),
        (Some("open-responses"), "response.reasoning"),
    ];
    for (names, expected) in rows {
        let events = stream_with_names(names);
        assert_eq!((invalid_events(&events), broken_rules(&events)), (vec![], vec![]), "{names:?}");
        let kinds = events.iter().filter_map(|event| event["type"].as_str());
        let reasoning: BTreeSet<&str> = kinds.filter(|kind| kind.contains(".reasoning")).collect();
        let expected = ["delta", "done"].map(|end| format!("{expected}.{end}"));
        assert!(reasoning.iter().eq(expected.iter()), "{names:?}: {reasoning:?}");
    }
}

#[test]
fn background_response_keeps_the_names_of_its_reasoning_events() {
    let step = ScriptStep::say([ScriptPart::reasoning("Hm.", "state"), ScriptPart::Text("Hi.".into())]);
    let mut server = TestServer::start(Script::of([step]));
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    let body = json!({"model": "openai/m", "input": "x", "background": true}).to_string();
    let started = server.send(request.header(NAMES_HEADER, "open-responses").body(body)).json();
    let path = format!("/v1/responses/{}", started["id"].as_str().unwrap());
    eventually("the response ends", || server.get(&path).json()["status"] == "completed");
    server.restart();
    let stream = server.get(&format!("{path}?stream=true")).text;
    assert!(stream.contains("event: response.reasoning.delta") && !stream.contains("reasoning_text.delta"));
}

#[test]
fn unknown_names_of_reasoning_events_are_refused() {
    let server = TestServer::start(Script::of([]));
    let request = server.request(Method::POST, "/v1/responses").header("content-type", "application/json");
    let reply = server.send(request.header(NAMES_HEADER, "spec").body("{\"input\": \"x\"}"));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(NAMES_HEADER)));
}

/// The specification nests the error of an event; the types of the SDKs have flat fields.
#[test]
fn error_event_has_both_shapes_and_the_response_fails() {
    let steps = (0..8).map(|_| ScriptStep::fail(ErrorResponse::new(400, "no")));
    let server = TestServer::start(Script::of(steps));
    let reply = post(&server, &json!({"model": "openai/m", "input": "x", "stream": true}));
    let events = data(&events(&reply));
    let [.., error, failed] = events.as_slice() else { panic!("{events:?}") };
    for field in ["code", "message", "param"] {
        assert_eq!(error[field], error["error"][field], "{field}: {error}");
    }
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("model_error")));
    let own = &failed["response"]["error"];
    assert_eq!((&own["code"], &own["message"]), (&error["code"], &error["message"]), "{failed}");
}
