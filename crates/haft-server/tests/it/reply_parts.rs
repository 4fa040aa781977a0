//! Parts of a reply other than plain text: refusals, reasoning summaries and citations, in the wire formats of models
//! that have them.

use haft_model_server::{CitedText, Script, ScriptPart, ScriptStep};
use haft_testkit::eventually;
use serde_json::{Value, json};

use super::fixture::TestServer;
use super::open_responses::data;
use super::responses::{ask, check_extras, events, post, python};

/// Streams a response, and returns its events.
fn stream(server: &TestServer, model: &str) -> Vec<Value> {
    data(&events(&post(server, &json!({"model": model, "input": "x", "stream": true}))))
}

/// Returns the types of the events between `response.in_progress` and the last event. Each run of equal types is one
/// entry.
fn kinds(events: &[Value]) -> Vec<&str> {
    let inner = &events[2..events.len() - 1];
    let mut kinds: Vec<&str> = inner.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds.into_iter().map(|kind| kind.trim_start_matches("response.")).collect()
}

/// Returns the final response of a stream, after a check that the stored response is the same.
#[track_caller]
fn last(server: &TestServer, events: &[Value]) -> Value {
    let response = events.last().unwrap()["response"].clone();
    let stored = server.get(&format!("/v1/responses/{}", response["id"].as_str().unwrap())).json();
    assert_eq!(stored, response);
    response
}

/// Returns the texts of the events of a type, joined.
fn joined(events: &[Value], kind: &str) -> String {
    let found = events.iter().filter(|event| event["type"] == kind);
    found.map(|event| event["delta"].as_str().unwrap()).collect()
}

fn refusing() -> TestServer {
    let refusal = |turn| ScriptStep::say([ScriptPart::Refusal("I will not.".into())]).at_turn(turn);
    TestServer::start(Script::of([refusal(0), ScriptStep::text("Then this.").at_turn(1)]))
}

#[test]
fn refusal_is_a_content_part_with_its_own_events() {
    for model in ["openai/m", "openai-responses/m"] {
        let server = refusing();
        let events = stream(&server, model);
        let expected = [
            "output_item.added",
            "content_part.added",
            "refusal.delta",
            "refusal.done",
            "content_part.done",
            "output_item.done",
        ];
        assert_eq!(kinds(&events), expected, "{model}");
        assert_eq!(joined(&events, "response.refusal.delta"), "I will not.", "{model}");
        let response = last(&server, &events);
        let content = json!([{"type": "refusal", "refusal": "I will not."}]);
        assert_eq!((&response["status"], &response["output"][0]["content"]), (&json!("completed"), &content));
        let whole = ask(&server, &json!({"model": model, "input": "x"}));
        assert_eq!(
            (&whole["output"][0]["content"], whole["output"].as_array().unwrap().len()),
            (&content, 1)
        );
    }
}

#[test]
fn official_client_shows_the_refusal_of_a_parsed_response() {
    for model in ["openai/m", "openai-responses/m"] {
        let seen = python(&refusing(), "refusal", model);
        let expected = json!(["I will not.", "I will not."]);
        assert_eq!((&seen["refusals"], &seen["parsed"]), (&expected, &json!([null, null])), "{model}");
        assert_eq!(seen["streamed"], "I will not.", "{model}");
        check_extras(&seen);
    }
}

#[test]
fn refusal_of_an_earlier_turn_reaches_the_model_by_id_and_as_an_item() {
    for model in ["openai/m", "openai-responses/m"] {
        let server = refusing();
        let first = ask(&server, &json!({"model": model, "input": "x"}));
        let mut items = vec![json!({"role": "user", "content": "x"})];
        items.extend(first["output"].as_array().unwrap().clone());
        items.push(json!({"role": "user", "content": "And this?"}));
        let rows = [
            json!({"model": model, "input": "And this?", "previous_response_id": first["id"]}),
            json!({"model": model, "input": items}),
        ];
        for body in rows {
            let next = ask(&server, &body);
            assert_eq!(next["output"][0]["content"][0]["text"], "Then this.", "{body}");
            let sent = server.model.requests().last().unwrap().raw.clone();
            assert!(sent.contains("I will not."), "{body}: {sent}");
        }
    }
}

/// A background response is read from the stored events.
#[test]
fn background_response_replays_refusals_summaries_and_citations_after_a_restart() {
    let steps = [ScriptStep::say([
        ScriptPart::reasoning("First.\n\nSecond.", "state"),
        cited("Found."),
        ScriptPart::Refusal("No more.".into()),
    ])];
    let mut server = TestServer::start(Script::of(steps));
    let body = json!({"model": "openai-responses/m", "input": "x", "background": true});
    let path = format!("/v1/responses/{}", ask(&server, &body)["id"].as_str().unwrap());
    eventually("the response ends", || server.get(&path).json()["status"] == "completed");
    let before = data(&events(&server.get(&format!("{path}?stream=true"))));
    server.restart();
    let after = data(&events(&server.get(&format!("{path}?stream=true"))));
    assert_eq!(before, after);
    for kind in ["refusal.done", "reasoning_summary_part.done", "output_text.annotation.added"] {
        assert!(kinds(&after).contains(&kind), "{kind}: {:?}", kinds(&after));
    }
    let types: Vec<String> = last(&server, &after)["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["content"][0]["type"].as_str().unwrap_or("summary").to_owned())
        .collect();
    assert_eq!(types, ["summary", "output_text", "refusal"]);
}

fn thinking() -> Script {
    let reasoning = ScriptPart::reasoning("First.\n\nSecond.", "c3RhdGU=");
    Script::of([
        ScriptStep::say([reasoning, ScriptPart::Text("Done.".into())]),
        ScriptStep::text("And again."),
    ])
}

#[test]
fn reasoning_summary_is_an_item_with_a_part_for_each_paragraph() {
    let whole = json!({"providers": {"openai-responses": {"delivery": "whole"}}});
    let servers = [TestServer::start(thinking()), TestServer::configured(thinking(), &whole, &[])];
    for server in servers {
        let events = stream(&server, "openai-responses/m");
        let part = [
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
        ];
        let expected = [&["output_item.added"], &part[..], &part, &["output_item.done"]].concat();
        assert_eq!(kinds(&events)[..expected.len()], expected);
        let of_parts = events.iter().filter(|event| event["summary_index"].is_u64());
        let indexes: Vec<u64> = of_parts.map(|event| event["summary_index"].as_u64().unwrap()).collect();
        assert!(indexes.is_sorted() && indexes.contains(&1), "{indexes:?}");
        let response = last(&server, &events);
        let item = &response["output"][0];
        let summary = ["First.", "Second."].map(|text| json!({"type": "summary_text", "text": text}));
        assert_eq!((&item["type"], &item["summary"]), (&json!("reasoning"), &json!(summary)));
        assert_eq!(item.get("content"), None, "the summary is not the reasoning itself");
        let types: Vec<&Value> =
            response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
        assert_eq!(types, ["reasoning", "message"]);
    }
}

#[test]
fn raw_reasoning_is_content_of_its_item_and_not_a_summary() {
    let server = TestServer::start(thinking());
    let response = last(&server, &stream(&server, "openai/m"));
    let item = &response["output"][0];
    let content = json!([{"type": "reasoning_text", "text": "First.\n\nSecond."}]);
    assert_eq!((&item["summary"], &item["content"]), (&json!([]), &content));
}

#[test]
fn model_gets_its_reasoning_item_back_unchanged() {
    let server = TestServer::start(thinking());
    let first = ask(&server, &json!({"model": "openai-responses/m", "input": "x"}));
    ask(&server, &json!({"model": "openai-responses/m", "input": "y", "previous_response_id": first["id"]}));
    let requests = server.model.requests();
    let sent = &requests.last().unwrap().body;
    let items = sent["input"].as_array().unwrap();
    let item = items.iter().find(|item| item["type"] == "reasoning").unwrap();
    let summary = ["First.", "Second."].map(|text| json!({"type": "summary_text", "text": text}));
    assert_eq!((&item["summary"], &item["encrypted_content"]), (&json!(summary), &json!("c3RhdGU=")));
    let first = requests[0].body["input"].as_array().unwrap();
    assert_eq!(items[..first.len()], first[..]);
}

fn cited(text: &str) -> ScriptPart {
    ScriptPart::Cited(CitedText {
        text: text.into(),
        url: "https://example.org/a".into(),
        title: "A page".into(),
    })
}

#[test]
fn citations_of_every_wire_format_have_positions_in_the_text_of_the_message() {
    let whole = json!({"delivery": "whole"});
    let providers = ["openai", "openai-responses", "anthropic", "gemini"];
    let all: serde_json::Map<String, Value> =
        providers.iter().map(|name| ((*name).to_owned(), whole.clone())).collect();
    let script = || {
        let step = ScriptStep::say([ScriptPart::Text("Grüße: ".into()), cited("für dich.")]);
        Script::of([step])
    };
    for provider in providers {
        let config = json!({"providers": all});
        for server in [TestServer::start(script()), TestServer::configured(script(), &config, &[])] {
            let events = stream(&server, &format!("{provider}/m"));
            let annotation = json!({
                "type": "url_citation", "url": "https://example.org/a", "title": "A page", "start_index": 7,
                "end_index": 16,
            });
            let response = last(&server, &events);
            let part = &response["output"][0]["content"][0];
            assert_eq!(part["text"], "Grüße: für dich.", "{provider}");
            assert_eq!(part["annotations"], json!([annotation]), "{provider}");
            let added = events.iter().find(|event| event["type"] == "response.output_text.annotation.added");
            let added = added.unwrap_or_else(|| panic!("{provider}: {:?}", kinds(&events)));
            assert_eq!((&added["annotation"], &added["annotation_index"]), (&annotation, &json!(0)));
            let done = events.iter().find(|event| event["type"] == "response.content_part.done").unwrap();
            assert_eq!(done["part"], *part, "{provider}");
        }
    }
}

#[test]
fn official_client_has_types_for_summaries_and_citations() {
    let step = ScriptStep::say([ScriptPart::reasoning("First.\n\nSecond.", "s"), cited("Found.")]);
    let server = TestServer::start(Script::of([step.clone(), step]));
    let seen = python(&server, "reply_parts", "openai-responses/m");
    assert_eq!(seen["summary"], json!(["First.", "Second."]));
    assert_eq!(seen["citations"], json!([["https://example.org/a", "A page", 0, 6]]));
    check_extras(&seen);
}
