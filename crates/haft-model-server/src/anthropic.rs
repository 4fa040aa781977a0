//! Anthropic's Messages API (`/v1/messages`).

use serde_json::{Value, json};

use crate::fault::ErrorResponse;
use crate::pairing::CallPairing;
use crate::parsed_request::{
    ConversationSummary, ParsedRequest, RequestToolChoice, delivery, entries, string, text_of,
};
use crate::script::{CitedText, ScriptPart, ScriptStop, ScriptUsage};
use crate::wire::{ApiRequest, ProviderApi, ScriptedReply, event, merge};

/// The maximum number of cache markers (`cache_control`) in a request.
const CACHE_MARKS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Anthropic;

impl ProviderApi for Anthropic {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String> {
        let body = &request.body;
        check(body)?;
        let mut asked = ParsedRequest {
            model: string(body, "model"),
            delivery: delivery(body),
            tools: entries(body, "tools")
                .iter()
                .filter(|tool| tool["defer_loading"] != true)
                .map(tool_name)
                .collect::<Result<_, _>>()?,
            tool_choice: Some(tool_choice(body)?),
            ..ParsedRequest::default()
        };
        let deferred = deferred(body)?;
        asked.talk.add_system_text(&text_of(&body["system"]));
        let mut pairing = CallPairing::default();
        for (at, message) in entries(body, "messages").iter().enumerate() {
            // A beta of the API allows system messages in the middle of a conversation.
            if request.beta && message["role"] == "system" {
                asked.talk.add_system_text(&text_of(&message["content"]));
                continue;
            }
            check_references(message, &deferred).map_err(|error| format!("messages.{at}: {error}"))?;
            read_message(message, &mut asked.talk, &mut pairing)
                .map_err(|error| format!("messages.{at}: {error}"))?;
        }
        pairing.all_answered()?;
        Ok(asked)
    }

    fn whole(&self, reply: &ScriptedReply) -> Value {
        let stop = reply.step.stop();
        merge(
            envelope(reply),
            json!({
                "content": blocks(reply), "stop_reason": stop_reason(&stop), "stop_details": stop_details(&stop),
                "usage": merge(input_usage(reply.step.usage), output_usage(reply.step.usage)),
            }),
        )
    }

    fn stream(&self, reply: &ScriptedReply) -> Vec<String> {
        let mut events = vec![start(reply), json!({ "type": "ping" })];
        for (index, (part, block)) in reply.step.say.iter().zip(blocks(reply)).enumerate() {
            events.push(
                json!({ "type": "content_block_start", "index": index, "content_block": empty(&block) }),
            );
            events.extend(
                deltas(reply, part)
                    .into_iter()
                    .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
            );
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        let stop = reply.step.stop();
        let delta = json!({
            "stop_reason": stop_reason(&stop), "stop_sequence": null, "stop_details": stop_details(&stop),
        });
        let usage = merge(input_usage(reply.step.usage), output_usage(reply.step.usage));
        events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
        events.push(json!({ "type": "message_stop" }));
        events.iter().map(event).collect()
    }

    fn error(&self, failure: &ErrorResponse) -> Value {
        let kind = failure.kind_or(|status| match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        });
        json!({ "type": "error", "error": { "type": kind, "message": failure.message }, "request_id": "req_scripted" })
    }

    fn error_event(&self, _: &ScriptedReply, failure: &ErrorResponse) -> Vec<String> {
        vec![event(&self.error(failure))]
    }
}

fn check(body: &Value) -> Result<(), String> {
    if body["max_tokens"].as_u64().unwrap_or(0) == 0 {
        return Err("max_tokens: field required, at least 1".to_owned());
    }
    if string(body, "model").is_empty() {
        return Err("model: field required".to_owned());
    }
    let marks = cache_marks(body);
    if marks > CACHE_MARKS_MAX {
        return Err(format!(
            "a maximum of {CACHE_MARKS_MAX} blocks with cache_control may be provided; found {marks}"
        ));
    }
    let first = entries(body, "messages").first().map(|message| string(message, "role"));
    match first.as_deref() {
        Some("user") => Ok(()),
        Some(_) => Err("messages: the first message must use the user role".to_owned()),
        None => Err("messages: at least one message is required".to_owned()),
    }
}

fn cache_marks(body: &Value) -> usize {
    let in_messages = entries(body, "messages").iter().flat_map(|message| entries(message, "content"));
    let blocks = entries(body, "tools").iter().chain(entries(body, "system")).chain(in_messages);
    blocks.filter(|block| block["cache_control"].is_object()).count()
}

/// Returns the names of deferred tools. A request must have at least one tool that is not deferred, and only such a
/// tool can have a cache marker.
fn deferred(body: &Value) -> Result<Vec<String>, String> {
    let tools = entries(body, "tools");
    let (deferred, shown): (Vec<&Value>, Vec<&Value>) =
        tools.iter().partition(|tool| tool["defer_loading"] == true);
    if !deferred.is_empty() && shown.is_empty() {
        return Err("tools: at least one tool must not be deferred".to_owned());
    }
    if deferred.iter().any(|tool| tool["cache_control"].is_object()) {
        return Err("tools: cache_control is not allowed on a tool with defer_loading".to_owned());
    }
    deferred.into_iter().map(tool_name).collect()
}

/// Checks the references in tool results: each must name a deferred tool in this request, and must not be next to other
/// blocks.
fn check_references(message: &Value, deferred: &[String]) -> Result<(), String> {
    let results = entries(message, "content").iter().filter(|block| block["type"] == "tool_result");
    for result in results {
        let blocks = entries(result, "content");
        let references: Vec<&Value> =
            blocks.iter().filter(|block| block["type"] == "tool_reference").collect();
        if !references.is_empty() && references.len() < blocks.len() {
            return Err("tool_result: tool_reference blocks cannot be mixed with other blocks".to_owned());
        }
        let unknown = references.iter().map(|block| string(block, "tool_name"));
        if let Some(name) = unknown.into_iter().find(|name| !deferred.contains(name)) {
            return Err(format!("tool reference '{name}' not found in available tools"));
        }
    }
    Ok(())
}

/// Returns the text of a tool result. A reference is written as `tool_reference NAME`.
fn result_text(content: &Value) -> String {
    let references = content.as_array().into_iter().flatten().filter_map(|block| block["tool_name"].as_str());
    let references: Vec<String> = references.map(|name| format!("tool_reference {name}")).collect();
    if references.is_empty() { text_of(content) } else { references.join("\n") }
}

fn read_message(
    message: &Value,
    talk: &mut ConversationSummary,
    pairing: &mut CallPairing,
) -> Result<(), String> {
    let text = Value::from(vec![json!({ "type": "text", "text": message["content"] })]);
    let blocks = if message["content"].is_string() { &text } else { &message["content"] };
    let blocks = blocks.as_array().ok_or("content: expected a string or a list of blocks")?;
    match message["role"].as_str() {
        Some("user") => read_user(blocks, talk, pairing),
        Some("assistant") => read_assistant(blocks, talk, pairing),
        other => Err(format!("role: should be `user` or `assistant`; found {other:?}")),
    }
}

/// Parses a user message. In the message after calls, the results for all calls must come first.
fn read_user(
    blocks: &[Value],
    talk: &mut ConversationSummary,
    pairing: &mut CallPairing,
) -> Result<(), String> {
    let mut texts = Vec::new();
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_result") => {
                pairing.answered(&string(block, "tool_use_id"))?;
                talk.add_tool_result(result_text(&block["content"]));
            }
            Some("text") => {
                pairing
                    .all_answered()
                    .map_err(|error| format!("tool_result blocks must come first: {error}"))?;
                texts.push(non_empty(block)?);
            }
            Some("image" | "document" | "search_result") => pairing.all_answered()?,
            other => {
                return Err(format!("content: a block of type {other:?} is not allowed in a user message"));
            }
        }
    }
    if !texts.is_empty() {
        talk.add_user_message(texts.concat());
    }
    Ok(())
}

fn read_assistant(
    blocks: &[Value],
    talk: &mut ConversationSummary,
    pairing: &mut CallPairing,
) -> Result<(), String> {
    pairing.all_answered()?;
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_use") if !block["input"].is_object() => {
                return Err("tool_use.input: should be an object".to_owned());
            }
            Some("tool_use") => pairing.called(&string(block, "id"))?,
            Some("text") => drop(non_empty(block)?),
            Some("thinking") if string(block, "signature").is_empty() => {
                return Err("thinking.signature: field required".to_owned());
            }
            Some("thinking" | "redacted_thinking") => {}
            other => {
                return Err(format!(
                    "content: a block of type {other:?} is not allowed in an assistant message"
                ));
            }
        }
    }
    talk.add_model_turn();
    Ok(())
}

fn non_empty(block: &Value) -> Result<String, String> {
    let text = string(block, "text");
    if text.is_empty() { Err("text content blocks must be non-empty".to_owned()) } else { Ok(text) }
}

fn tool_name(tool: &Value) -> Result<String, String> {
    let name = string(tool, "name");
    let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !legal || !(1..=128).contains(&name.len()) {
        return Err(format!("tools: name `{name}` must match ^[a-zA-Z0-9_-]{{1,128}}$"));
    }
    match (tool["type"].as_str(), tool["input_schema"]["type"].as_str()) {
        (None | Some("custom"), Some("object")) => Ok(name),
        // Accept a tool without a schema if the tool is built into the provider.
        (Some(kind), None) if kind != "custom" => Ok(name),
        _ => Err(format!("tools: input_schema.type of `{name}` must be `object`")),
    }
}

fn tool_choice(body: &Value) -> Result<RequestToolChoice, String> {
    let choice = &body["tool_choice"];
    if choice.is_null() {
        return Ok(RequestToolChoice::Auto);
    }
    if entries(body, "tools").is_empty() {
        return Err("tool_choice may only be specified while providing tools".to_owned());
    }
    let choice = match choice["type"].as_str() {
        Some("auto") => RequestToolChoice::Auto,
        Some("none") => RequestToolChoice::None,
        Some("any") => RequestToolChoice::Required,
        Some("tool") => RequestToolChoice::Tool(string(choice, "name")),
        _ => return Err(format!("tool_choice: {choice} should be one of auto, any, tool, none")),
    };
    let forces = !matches!(choice, RequestToolChoice::Auto | RequestToolChoice::None);
    if forces && body["thinking"]["type"] == "enabled" {
        return Err("thinking may not be enabled when tool_choice forces tool use".to_owned());
    }
    Ok(choice)
}

fn envelope(reply: &ScriptedReply) -> Value {
    json!({
        "id": format!("msg_{}", reply.serial), "type": "message", "role": "assistant", "model": reply.asked.model,
        "content": [], "stop_reason": null, "stop_sequence": null, "stop_details": null,
    })
}

fn blocks(reply: &ScriptedReply) -> Vec<Value> {
    reply.step.say.iter().enumerate().map(|(at, part)| block(reply, at, part)).collect()
}

fn block(reply: &ScriptedReply, at: usize, part: &ScriptPart) -> Value {
    match part {
        ScriptPart::Text(text) | ScriptPart::Refusal(text) => {
            json!({ "type": "text", "text": text, "citations": null })
        }
        ScriptPart::Json(value) => json!({ "type": "text", "text": value.to_string(), "citations": null }),
        ScriptPart::Cited(cited) => {
            json!({ "type": "text", "text": cited.text, "citations": [citation(cited)] })
        }
        ScriptPart::Reasoning(reasoning) => json!({
            "type": "thinking", "thinking": reasoning.text, "signature": reasoning.state.clone().unwrap_or_default(),
        }),
        ScriptPart::Redacted(state) => json!({ "type": "redacted_thinking", "data": state }),
        ScriptPart::Call(call) => {
            let id = call.id.clone().unwrap_or_else(|| reply.call_id("toolu_", reply.calls_before(at)));
            json!({ "type": "tool_use", "id": id, "name": call.name, "input": call.value() })
        }
    }
}

fn citation(cited: &CitedText) -> Value {
    json!({
        "type": "web_search_result_location", "url": cited.url, "title": cited.title, "cited_text": cited.text,
        "encrypted_index": "aW5kZXg=",
    })
}

/// Returns a block as its start event contains it, without the content of its deltas. Redacted thinking has no deltas,
/// so its start event contains the whole block.
fn empty(block: &Value) -> Value {
    let nothing = match block["type"].as_str() {
        Some("text") if block["citations"].is_array() => json!({ "text": "", "citations": [] }),
        Some("text") => json!({ "text": "" }),
        Some("thinking") => json!({ "thinking": "", "signature": "" }),
        Some("tool_use") => json!({ "input": {} }),
        _ => json!({}),
    };
    merge(block.clone(), nothing)
}

fn deltas(reply: &ScriptedReply, part: &ScriptPart) -> Vec<Value> {
    let pieces = |kind: &str, field: &str, text: &str| -> Vec<Value> {
        reply.deltas(text).into_iter().map(|piece| json!({ "type": kind, field: piece })).collect()
    };
    match part {
        ScriptPart::Text(text) | ScriptPart::Refusal(text) => pieces("text_delta", "text", text),
        ScriptPart::Json(value) => pieces("text_delta", "text", &value.to_string()),
        ScriptPart::Cited(cited) => {
            let source = json!({ "type": "citations_delta", "citation": citation(cited) });
            std::iter::once(source).chain(pieces("text_delta", "text", &cited.text)).collect()
        }
        ScriptPart::Reasoning(reasoning) => {
            let signature = json!({ "type": "signature_delta", "signature": reasoning.state.clone().unwrap_or_default() });
            pieces("thinking_delta", "thinking", &reasoning.text).into_iter().chain([signature]).collect()
        }
        ScriptPart::Redacted(_) => Vec::new(),
        // Send an empty delta first, as Anthropic does.
        ScriptPart::Call(call) => {
            let first = json!({ "type": "input_json_delta", "partial_json": "" });
            std::iter::once(first).chain(pieces("input_json_delta", "partial_json", &call.text())).collect()
        }
    }
}

fn start(reply: &ScriptedReply) -> Value {
    let usage = merge(input_usage(reply.step.usage), json!({ "output_tokens": 1 }));
    json!({ "type": "message_start", "message": merge(envelope(reply), json!({ "usage": usage })) })
}

fn stop_reason(stop: &ScriptStop) -> Value {
    match stop {
        ScriptStop::End => "end_turn".into(),
        ScriptStop::Calls => "tool_use".into(),
        ScriptStop::Length => "max_tokens".into(),
        ScriptStop::Refusal | ScriptStop::Blocked => "refusal".into(),
        ScriptStop::Other(word) => word.as_str().into(),
    }
}

fn stop_details(stop: &ScriptStop) -> Value {
    match stop {
        ScriptStop::Refusal | ScriptStop::Blocked => {
            json!({ "type": "refusal", "category": null, "explanation": null })
        }
        ScriptStop::End | ScriptStop::Calls | ScriptStop::Length | ScriptStop::Other(_) => Value::Null,
    }
}

/// Returns the input counts. `input_tokens` does not include cache reads and cache writes.
fn input_usage(usage: ScriptUsage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cache_read + usage.cache_write),
        "cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write,
    })
}

fn output_usage(usage: ScriptUsage) -> Value {
    json!({
        "output_tokens": usage.output, "output_tokens_details": { "thinking_tokens": usage.reasoning },
    })
}
