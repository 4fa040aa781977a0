//! Responses (`/v1/responses`).

use serde_json::{Value, json};

use crate::asked::{Asked, Talk, ToolChoice, delivery, entries, string, text_of};
use crate::fault::Failure;
use crate::openai_chat::{allowed_tools, checked_name};
use crate::pairing::Pairing;
use crate::responses_stream;
use crate::script::{Call, Cited, Part, Stop, Usage};
use crate::strict_schema;
use crate::wire::{CREATED, Reply, Request, Wire, event, merge, openai_error};

#[derive(Debug)]
pub(crate) struct OpenAiResponses;

impl Wire for OpenAiResponses {
    fn read(&self, request: &Request) -> Result<Asked, String> {
        let body = &request.body;
        let mut asked = Asked {
            model: string(body, "model"),
            delivery: delivery(body),
            tools: entries(body, "tools").iter().map(read_tool).collect::<Result<_, _>>()?,
            tool_choice: Some(tool_choice(body)?),
            previous: body["previous_response_id"].as_str().map(str::to_owned),
            ..Asked::default()
        };
        strict_schema::check(&body["text"]["format"], &body["text"]["format"]["schema"])?;
        if asked.model.is_empty() {
            return Err("missing required parameter: 'model'".to_owned());
        }
        if let Some(text) = body["instructions"].as_str() {
            asked.talk.system_said(text);
        }
        if let Some(text) = body["input"].as_str() {
            asked.talk.user_spoke(text.to_owned());
        }
        let pairing = match asked.previous {
            Some(_) => Pairing::after_a_stored_answer(),
            None => Pairing::default(),
        };
        read_items(entries(body, "input"), &mut asked.talk, pairing)?;
        Ok(asked)
    }

    fn whole(&self, reply: &Reply) -> Value {
        finished(reply)
    }

    fn stream(&self, reply: &Reply) -> Vec<String> {
        responses_stream::events(reply).iter().map(event).collect()
    }

    fn error(&self, failure: &Failure) -> Value {
        openai_error(failure)
    }

    /// Encodes an error event. The specification nests the error and the types of the SDKs have it flat, so the
    /// event contains both.
    fn error_event(&self, reply: &Reply, failure: &Failure) -> Vec<String> {
        let nested = openai_error(failure);
        let flat = json!({
            "type": "error", "sequence_number": 1_000, "code": nested["error"]["code"],
            "message": failure.message, "param": null,
        });
        let error = json!({ "code": nested["error"]["code"], "message": failure.message });
        let failed = merge(begun(reply), json!({ "status": "failed", "error": error }));
        let failed = json!({ "type": "response.failed", "sequence_number": 1_001, "response": failed });
        vec![event(&merge(flat, nested)), event(&failed)]
    }
}

fn read_items(items: &[Value], talk: &mut Talk, mut pairing: Pairing) -> Result<(), String> {
    for (at, item) in items.iter().enumerate() {
        read_item(item, talk, &mut pairing).map_err(|error| format!("input[{at}]: {error}"))?;
    }
    pairing.all_answered()
}

fn read_item(item: &Value, talk: &mut Talk, pairing: &mut Pairing) -> Result<(), String> {
    let text = text_of(&item["content"]);
    match (item["type"].as_str(), item["role"].as_str()) {
        (None | Some("message"), Some("user")) => talk.user_spoke(text),
        (None | Some("message"), Some("system" | "developer")) => talk.system_said(&text),
        (None | Some("message"), Some("assistant")) | (Some("reasoning" | "compaction"), _) => {
            talk.model_spoke();
        }
        (Some("item_reference"), _) => {}
        (Some("function_call"), _) => {
            if !item["arguments"].is_string() {
                return Err("`arguments` must be a string".to_owned());
            }
            pairing.called(&string(item, "call_id"))?;
            talk.model_spoke();
        }
        (Some("function_call_output"), _) => {
            pairing.answered(&string(item, "call_id"))?;
            talk.tool_answered(text_of(&item["output"]));
        }
        (kind, role) => return Err(format!("invalid item of type {kind:?} and role {role:?}")),
    }
    Ok(())
}

/// Returns the name of a tool. A tool that the provider runs itself is identified by its type.
fn read_tool(tool: &Value) -> Result<String, String> {
    match tool["type"].as_str() {
        Some("function") => {
            strict_schema::check(tool, &tool["parameters"])?;
            checked_name(&tool["name"])
        }
        Some("custom") => checked_name(&tool["name"]),
        Some(other) => Ok(other.to_owned()),
        None => Err("missing required parameter: 'tools[].type'".to_owned()),
    }
}

fn tool_choice(body: &Value) -> Result<ToolChoice, String> {
    let choice = &body["tool_choice"];
    match (choice.as_str(), choice["type"].as_str()) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (None, None) if choice.is_null() => Ok(ToolChoice::Auto),
        (None, Some("function")) => Ok(ToolChoice::Tool(string(choice, "name"))),
        (None, Some("allowed_tools")) => {
            let names = entries(choice, "tools").iter().map(|tool| checked_name(&tool["name"]));
            Ok(allowed_tools(choice, names.collect::<Result<_, _>>()?))
        }
        _ => Err(format!("invalid value for 'tool_choice': {choice}")),
    }
}

/// Returns the response object before any output.
pub(crate) fn begun(reply: &Reply) -> Value {
    merge(
        json!({
            "id": response_id(reply.serial), "object": "response", "created_at": CREATED, "completed_at": null,
            "status": "in_progress", "background": false, "error": null, "incomplete_details": null,
            "model": reply.asked.model, "output": [], "usage": null, "service_tier": "default",
            "truncation": "disabled", "temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0,
            "frequency_penalty": 0.0, "top_logprobs": 0, "store": true, "parallel_tool_calls": true,
            "tools": [], "tool_choice": "auto", "metadata": {},
        }),
        echoed(reply.request),
    )
}

pub(crate) fn response_id(serial: usize) -> String {
    format!("resp_{serial}")
}

/// Returns the fields that the provider repeats from the request.
fn echoed(request: &Value) -> Value {
    let text = request.get("text").cloned().unwrap_or_else(|| json!({ "format": { "type": "text" } }));
    let mut echo = json!({
        "instructions": request["instructions"], "previous_response_id": request["previous_response_id"],
        "max_output_tokens": request["max_output_tokens"], "max_tool_calls": request["max_tool_calls"],
        "reasoning": request["reasoning"], "safety_identifier": request["safety_identifier"],
        "prompt_cache_key": request["prompt_cache_key"], "text": text,
    });
    for key in ["tools", "tool_choice", "parallel_tool_calls", "metadata", "temperature", "top_p", "store"] {
        if let Some(value) = request.get(key).filter(|value| !value.is_null()) {
            echo[key] = value.clone();
        }
    }
    echo
}

pub(crate) fn finished(reply: &Reply) -> Value {
    let (status, details) = match reply.step.stop() {
        Stop::End | Stop::Calls | Stop::Refusal => ("completed", Value::Null),
        Stop::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
        Stop::Blocked => ("incomplete", json!({ "reason": "content_filter" })),
        Stop::Other(word) => ("incomplete", json!({ "reason": word })),
    };
    merge(
        begun(reply),
        json!({
            "status": status, "incomplete_details": details, "completed_at": CREATED,
            "output": items(reply), "usage": usage(reply.step.usage),
        }),
    )
}

/// Returns the finished output items. In a truncated response the last one is `incomplete`.
pub(crate) fn items(reply: &Reply) -> Vec<Value> {
    let count = reply.step.say.len();
    let cut_short = matches!(reply.step.stop(), Stop::Length | Stop::Blocked | Stop::Other(_));
    let status = |at: usize| if cut_short && at + 1 == count { "incomplete" } else { "completed" };
    reply.step.say.iter().enumerate().map(|(at, part)| item(reply, at, part, status(at))).collect()
}

fn item(reply: &Reply, at: usize, part: &Part, status: &str) -> Value {
    let own_id = |prefix: &str| format!("{prefix}_{}_{at}", reply.serial);
    let message = |content: Value| json!({ "id": own_id("msg"), "type": "message", "role": "assistant", "status": status, "content": [content] });
    let reasoning = |summary: Value, state: Option<&String>| {
        let item = json!({ "id": own_id("rs"), "type": "reasoning", "summary": summary });
        // The API returns encrypted reasoning only if the request asks for it.
        let wanted = reply.request["include"].to_string().contains("reasoning.encrypted_content");
        match state.filter(|_| wanted) {
            Some(state) => merge(item, json!({ "encrypted_content": state })),
            None => item,
        }
    };
    match part {
        Part::Text(text) => message(output_text(text)),
        Part::Json(value) => message(output_text(&value.to_string())),
        Part::Cited(cited) => {
            message(merge(output_text(&cited.text), json!({ "annotations": [citation(cited)] })))
        }
        Part::Refusal(text) => message(json!({ "type": "refusal", "refusal": text })),
        Part::Reasoning(part) => {
            reasoning(json!([{ "type": "summary_text", "text": part.text }]), part.state.as_ref())
        }
        Part::Redacted(state) => reasoning(json!([]), Some(state)),
        Part::Call(call) => json!({
            "id": own_id("fc"), "type": "function_call", "call_id": call_id(reply, call, at), "name": call.name,
            "arguments": call.text(), "status": status,
        }),
    }
}

pub(crate) fn citation(cited: &Cited) -> Value {
    json!({
        "type": "url_citation", "url": cited.url, "title": cited.title, "start_index": 0, "end_index": cited.text.len(),
    })
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn call_id(reply: &Reply, call: &Call, at: usize) -> String {
    call.id.clone().unwrap_or_else(|| reply.call_id("call_", reply.calls_before(at)))
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "input_tokens_details": { "cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write },
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}
