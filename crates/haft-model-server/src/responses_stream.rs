//! The events of `/v1/responses`, in the order that the SDKs require.

use serde_json::{Value, json};

use crate::openai_responses::{begun, citation, finished, items, searches};
use crate::script::{ScriptPart, ScriptStop};
use crate::wire::{ScriptedReply, merge};

/// Returns all events of a response, numbered.
pub(crate) fn events(reply: &ScriptedReply) -> Vec<Value> {
    let mut events = vec![
        json!({ "type": "response.created", "response": begun(reply) }),
        json!({ "type": "response.in_progress", "response": begun(reply) }),
    ];
    for (at, (part, item)) in reply.step.say.iter().zip(items(reply)).enumerate() {
        events.extend(
            item_events(reply, part, &item)
                .into_iter()
                .map(|event| merge(event, json!({ "output_index": at }))),
        );
    }
    events.push(json!({ "type": last_event(&reply.step.stop()), "response": finished(reply) }));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

fn last_event(stop: &ScriptStop) -> &'static str {
    match stop {
        ScriptStop::End | ScriptStop::Calls | ScriptStop::Refusal => "response.completed",
        ScriptStop::Length | ScriptStop::Blocked | ScriptStop::Other(_) => "response.incomplete",
    }
}

fn item_events(reply: &ScriptedReply, part: &ScriptPart, item: &Value) -> Vec<Value> {
    let mut events = vec![json!({ "type": "response.output_item.added", "item": empty(item) })];
    let inner = match part {
        ScriptPart::Text(text) => content_events(reply, item, "output_text", text),
        ScriptPart::Json(value) => content_events(reply, item, "output_text", &value.to_string()),
        ScriptPart::Cited(cited) => {
            let mut events = content_events(reply, item, "output_text", &cited.text);
            // Leave out the citation: a separate event before the end of the text contains it.
            events[0]["part"]["annotations"] = json!([]);
            let added = json!({
                "type": "response.output_text.annotation.added", "annotation": citation(cited),
                "annotation_index": 0, "content_index": 0,
            });
            events.insert(events.len() - 2, added);
            events
        }
        ScriptPart::Refusal(text) => content_events(reply, item, "refusal", text),
        ScriptPart::Reasoning(reasoning) => {
            let paragraphs = reasoning.paragraphs().enumerate();
            paragraphs.flat_map(|(at, text)| summary_events(reply, at, text)).collect()
        }
        ScriptPart::Redacted(_) => Vec::new(),
        ScriptPart::Call(call) if searches(reply, &call.name) => Vec::new(),
        ScriptPart::Call(call) => argument_events(reply, &call.name, &call.text()),
    };
    events.extend(inner.into_iter().map(|event| merge(event, json!({ "item_id": item["id"] }))));
    events.push(json!({ "type": "response.output_item.done", "item": item }));
    events
}

/// Returns an item as the stream announces it: with all fields, but empty.
fn empty(item: &Value) -> Value {
    let nothing = match item["type"].as_str() {
        Some("message") => json!({ "status": "in_progress", "content": [] }),
        Some("function_call") => json!({ "status": "in_progress", "arguments": "" }),
        Some("tool_search_call") => json!({ "status": "in_progress", "arguments": {} }),
        _ => json!({ "summary": [] }),
    };
    merge(item.clone(), nothing)
}

fn content_events(reply: &ScriptedReply, item: &Value, kind: &str, text: &str) -> Vec<Value> {
    let field = if kind == "refusal" { "refusal" } else { "text" };
    let part = &item["content"][0];
    let mut no_text = part.clone();
    no_text[field] = "".into();
    let mut events = vec![json!({ "type": "response.content_part.added", "part": no_text })];
    let deltas = reply.deltas(text);
    events.extend(
        deltas.iter().map(|piece| json!({ "type": format!("response.{kind}.delta"), "delta": piece })),
    );
    events.push(json!({ "type": format!("response.{kind}.done"), field: text }));
    events.push(json!({ "type": "response.content_part.done", "part": part }));
    for event in &mut events {
        event["content_index"] = 0.into();
        if kind == "output_text" && event.get("part").is_none() {
            event["logprobs"] = json!([]);
        }
    }
    events
}

fn summary_events(reply: &ScriptedReply, at: usize, text: &str) -> Vec<Value> {
    let part = |text: &str| json!({ "type": "summary_text", "text": text });
    let mut events = vec![json!({ "type": "response.reasoning_summary_part.added", "part": part("") })];
    let deltas = reply.deltas(text);
    events.extend(
        deltas.iter().map(|piece| json!({ "type": "response.reasoning_summary_text.delta", "delta": piece })),
    );
    events.push(json!({ "type": "response.reasoning_summary_text.done", "text": text }));
    events.push(json!({ "type": "response.reasoning_summary_part.done", "part": part(text) }));
    events.into_iter().map(|event| merge(event, json!({ "summary_index": at }))).collect()
}

fn argument_events(reply: &ScriptedReply, name: &str, text: &str) -> Vec<Value> {
    let deltas = reply.deltas(text);
    let done = json!({ "type": "response.function_call_arguments.done", "arguments": text, "name": name });
    deltas
        .iter()
        .map(|piece| json!({ "type": "response.function_call_arguments.delta", "delta": piece }))
        .chain([done])
        .collect()
}
