//! The Chat Completions API (`/v1/chat/completions`), with the reasoning fields that compatible servers add.

use serde_json::{Value, json};

use crate::fault::ErrorResponse;
use crate::pairing::CallPairing;
use crate::parsed_request::{
    ConversationSummary, ParsedRequest, RequestToolChoice, UsageReporting, delivery, entries, string, text_of,
};
use crate::script::{
    ChatReasoning, CitedText, ScriptCall, ScriptPart, ScriptReasoning, ScriptStop, ScriptUsage,
};
use crate::strict_schema;
use crate::wire::{ApiRequest, CREATED, ProviderApi, ScriptedReply, data, merge, openai_error};

#[derive(Debug)]
pub(crate) struct OpenAiChat;

impl ProviderApi for OpenAiChat {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String> {
        let body = &request.body;
        let mut asked = ParsedRequest {
            model: string(body, "model"),
            delivery: delivery(body),
            tools: checked_count(entries(body, "tools"))?.iter().map(read_tool).collect::<Result<_, _>>()?,
            tool_choice: Some(tool_choice(body)?),
            usage: usage_reporting(body),
            ..ParsedRequest::default()
        };
        if asked.model.is_empty() {
            return Err("you must provide a model parameter".to_owned());
        }
        let format = &body["response_format"]["json_schema"];
        strict_schema::check(format, &format["schema"])?;
        let mut pairing = CallPairing::default();
        for (at, message) in entries(body, "messages").iter().enumerate() {
            read_message(message, &mut asked.talk, &mut pairing)
                .map_err(|error| format!("messages.[{at}]: {error}"))?;
        }
        pairing.all_answered()?;
        Ok(asked)
    }

    fn whole(&self, reply: &ScriptedReply) -> Value {
        let step = reply.step;
        merge(
            envelope(reply, "chat.completion"),
            json!({
                "choices": [{
                    "index": 0, "logprobs": null,
                    "message": message(reply), "finish_reason": finish_reason(&step.stop()),
                }],
                "usage": usage(step.usage),
            }),
        )
    }

    fn stream(&self, reply: &ScriptedReply) -> Vec<String> {
        let mut deltas = vec![json!({ "role": "assistant", "content": "", "refusal": null })];
        let mut calls = 0;
        for (at, part) in reply.step.say.iter().enumerate() {
            match part {
                ScriptPart::Text(text) => deltas.extend(pieces(reply, "content", text)),
                ScriptPart::Json(value) => deltas.extend(pieces(reply, "content", &value.to_string())),
                ScriptPart::Cited(cited) => {
                    deltas.extend(pieces(reply, "content", &cited.text));
                    deltas.push(json!({ "annotations": [citation(reply, at, cited)] }));
                }
                ScriptPart::Refusal(text) => deltas.extend(pieces(reply, "refusal", text)),
                ScriptPart::Reasoning(reasoning) => deltas.extend(reasoning_deltas(reply, reasoning)),
                ScriptPart::Redacted(state) => deltas.extend(redacted(reply.chat_reasoning, state)),
                ScriptPart::Call(call) => {
                    deltas.extend(call_deltas(reply, call, calls));
                    calls += 1;
                }
            }
        }
        let last = chunk(reply, &json!({}), &finish_reason(&reply.step.stop()));
        let mut frames: Vec<String> =
            deltas.iter().map(|delta| data(&chunk(reply, delta, &Value::Null))).collect();
        frames.push(data(&last));
        frames.extend(usage_frame(reply));
        frames.push("data: [DONE]\n\n".to_owned());
        frames
    }

    fn error(&self, failure: &ErrorResponse) -> Value {
        openai_error(failure)
    }

    fn error_event(&self, _: &ScriptedReply, failure: &ErrorResponse) -> Vec<String> {
        vec![data(&openai_error(failure))]
    }
}

fn read_message(
    message: &Value,
    talk: &mut ConversationSummary,
    pairing: &mut CallPairing,
) -> Result<(), String> {
    let text = text_of(&message["content"]);
    match message["role"].as_str() {
        Some("system" | "developer") => talk.add_system_text(&text),
        Some("user") => {
            pairing.all_answered()?;
            talk.add_user_message(text);
        }
        Some("assistant") => {
            pairing.all_answered()?;
            read_calls(message, pairing)?;
            talk.add_model_turn();
        }
        Some("tool") => {
            pairing.answered(&string(message, "tool_call_id"))?;
            talk.add_tool_result(text);
        }
        other => return Err(format!("invalid role {other:?}")),
    }
    Ok(())
}

fn read_calls(message: &Value, pairing: &mut CallPairing) -> Result<(), String> {
    let calls = entries(message, "tool_calls");
    if calls.is_empty() && message["content"].is_null() && message["refusal"].is_null() {
        return Err("an assistant message needs `content` or `tool_calls`".to_owned());
    }
    for call in calls {
        if !call["function"]["arguments"].is_string() {
            return Err("`tool_calls[].function.arguments` must be a string".to_owned());
        }
        pairing.called(&string(call, "id"))?;
    }
    Ok(())
}

fn read_tool(tool: &Value) -> Result<String, String> {
    strict_schema::check(&tool["function"], &tool["function"]["parameters"])?;
    tool_name(tool)
}

fn tool_name(tool: &Value) -> Result<String, String> {
    let kind = tool["type"].as_str().unwrap_or_default();
    checked_name(&tool[kind]["name"])
}

/// The maximum number of tools in a request.
const TOOLS_MAX: usize = 128;

/// Checks the number of tools. The Chat Completions and Responses APIs have the same rule.
pub(crate) fn checked_count(tools: &[Value]) -> Result<&[Value], String> {
    match tools.len() {
        0..=TOOLS_MAX => Ok(tools),
        found => Err(format!(
            "Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_MAX}, but got an array with length {found} instead."
        )),
    }
}

/// Checks a tool name. The Chat Completions and Responses APIs have the same rules.
pub(crate) fn checked_name(name: &Value) -> Result<String, String> {
    let name = name.as_str().unwrap_or_default();
    let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if legal && (1..=64).contains(&name.len()) {
        Ok(name.to_owned())
    } else {
        Err(format!("tool name `{name}` must match ^[a-zA-Z0-9_-]{{1,64}}$"))
    }
}

fn tool_choice(body: &Value) -> Result<RequestToolChoice, String> {
    let choice = &body["tool_choice"];
    let has_tools = !entries(body, "tools").is_empty();
    if body.get("tools").is_some_and(Value::is_array) && !has_tools {
        return Err("[] is too short - 'tools'".to_owned());
    }
    if !choice.is_null() && !has_tools {
        return Err("'tool_choice' is only allowed when 'tools' are specified".to_owned());
    }
    match (choice.as_str(), choice["type"].as_str()) {
        (Some("auto"), _) => Ok(RequestToolChoice::Auto),
        (Some("none"), _) => Ok(RequestToolChoice::None),
        (Some("required"), _) => Ok(RequestToolChoice::Required),
        (None, None) if choice.is_null() => Ok(RequestToolChoice::Auto),
        (None, Some("function")) => Ok(RequestToolChoice::Tool(string(&choice["function"], "name"))),
        (None, Some("allowed_tools")) => {
            let allowed = &choice["allowed_tools"];
            let names = entries(allowed, "tools").iter().map(tool_name).collect::<Result<_, _>>()?;
            Ok(allowed_tools(allowed, names))
        }
        _ => Err(format!("invalid value for 'tool_choice': {choice}")),
    }
}

pub(crate) fn allowed_tools(allowed: &Value, names: Vec<String>) -> RequestToolChoice {
    match allowed["mode"].as_str() {
        Some("required") => RequestToolChoice::RequiredOf(names),
        _ => RequestToolChoice::AutoOf(names),
    }
}

fn usage_reporting(body: &Value) -> UsageReporting {
    match body["stream_options"]["include_usage"].as_bool() {
        Some(true) => UsageReporting::Included,
        Some(false) | None => UsageReporting::Omitted,
    }
}

fn envelope(reply: &ScriptedReply, object: &str) -> Value {
    json!({
        "id": format!("chatcmpl-{}", reply.serial), "object": object, "created": CREATED,
        "model": reply.asked.model, "system_fingerprint": "fp_scripted", "service_tier": "default",
    })
}

fn message(reply: &ScriptedReply) -> Value {
    let (mut text, mut refusal, mut thought) = (String::new(), String::new(), String::new());
    let (mut details, mut calls, mut annotations) = (Vec::new(), Vec::new(), Vec::new());
    for (at, part) in reply.step.say.iter().enumerate() {
        match part {
            ScriptPart::Text(more) => text.push_str(more),
            ScriptPart::Json(value) => text.push_str(&value.to_string()),
            ScriptPart::Cited(cited) => {
                text.push_str(&cited.text);
                annotations.push(citation(reply, at, cited));
            }
            ScriptPart::Refusal(more) => refusal.push_str(more),
            ScriptPart::Reasoning(reasoning) => {
                thought.push_str(&reasoning.text);
                details.push(detail(reasoning));
            }
            ScriptPart::Redacted(state) => details.push(encrypted(state)),
            ScriptPart::Call(call) => calls.push(call_object(reply, call, calls.len())),
        }
    }
    let mut message = json!({
        "role": "assistant", "content": or_null(text), "refusal": or_null(refusal), "annotations": annotations,
    });
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    match reply.chat_reasoning {
        ChatReasoning::Hidden => {}
        ChatReasoning::ReasoningContent if thought.is_empty() => {}
        ChatReasoning::ReasoningContent => message["reasoning_content"] = thought.into(),
        ChatReasoning::OpenRouter if details.is_empty() => {}
        ChatReasoning::OpenRouter => {
            message["reasoning"] = or_null(thought);
            message["reasoning_details"] = Value::Array(details);
        }
    }
    message
}

/// Returns the citation of the part at `at`. The API counts positions in characters of the whole message.
fn citation(reply: &ScriptedReply, at: usize, cited: &CitedText) -> Value {
    let start = reply.text_before(at).chars().count();
    let end = start + cited.text.chars().count();
    let source = json!({ "url": cited.url, "title": cited.title, "start_index": start, "end_index": end });
    json!({ "type": "url_citation", "url_citation": source })
}

fn or_null(text: String) -> Value {
    if text.is_empty() { Value::Null } else { Value::String(text) }
}

fn call_object(reply: &ScriptedReply, call: &ScriptCall, index: usize) -> Value {
    let id = call.id.clone().unwrap_or_else(|| reply.call_id("call_", index));
    json!({ "id": id, "type": "function", "function": { "name": call.name, "arguments": call.text() } })
}

fn chunk(reply: &ScriptedReply, delta: &Value, finish: &Value) -> Value {
    let mut chunk = merge(
        envelope(reply, "chat.completion.chunk"),
        json!({ "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }] }),
    );
    if reply.asked.usage == UsageReporting::Included {
        chunk["usage"] = Value::Null;
    }
    chunk
}

fn pieces(reply: &ScriptedReply, field: &str, text: &str) -> Vec<Value> {
    reply.deltas(text).into_iter().map(|piece| json!({ field: piece })).collect()
}

/// Returns the deltas of a call. The first delta has the id and the name of the call; the other deltas continue the
/// arguments.
fn call_deltas(reply: &ScriptedReply, call: &ScriptCall, index: usize) -> Vec<Value> {
    let mut first = merge(call_object(reply, call, index), json!({ "index": index }));
    first["function"]["arguments"] = "".into();
    let rest = reply
        .deltas(&call.text())
        .into_iter()
        .map(|piece| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }));
    std::iter::once(json!({ "tool_calls": [first] })).chain(rest).collect()
}

fn reasoning_deltas(reply: &ScriptedReply, reasoning: &ScriptReasoning) -> Vec<Value> {
    match reply.chat_reasoning {
        ChatReasoning::Hidden => Vec::new(),
        ChatReasoning::ReasoningContent => pieces(reply, "reasoning_content", &reasoning.text),
        ChatReasoning::OpenRouter => {
            let texts = reply.deltas(&reasoning.text).into_iter().map(|piece| {
                let part = ScriptReasoning { text: piece.clone(), state: None };
                json!({ "reasoning": piece, "reasoning_details": [detail(&part)] })
            });
            let end = ScriptReasoning { text: String::new(), state: reasoning.state.clone() };
            texts.chain([json!({ "reasoning_details": [detail(&end)] })]).collect()
        }
    }
}

fn redacted(dialect: ChatReasoning, state: &str) -> Option<Value> {
    match dialect {
        ChatReasoning::Hidden | ChatReasoning::ReasoningContent => None,
        ChatReasoning::OpenRouter => Some(json!({ "reasoning_details": [encrypted(state)] })),
    }
}

fn detail(reasoning: &ScriptReasoning) -> Value {
    json!({
        "type": "reasoning.text", "text": reasoning.text, "signature": reasoning.state,
        "format": "anthropic-claude-v1", "index": 0,
    })
}

fn encrypted(state: &str) -> Value {
    json!({ "type": "reasoning.encrypted", "data": state, "format": "anthropic-claude-v1", "index": 0 })
}

fn finish_reason(stop: &ScriptStop) -> Value {
    match stop {
        ScriptStop::End | ScriptStop::Refusal => "stop".into(),
        ScriptStop::Calls => "tool_calls".into(),
        ScriptStop::Length => "length".into(),
        ScriptStop::Blocked => "content_filter".into(),
        ScriptStop::Other(word) => word.as_str().into(),
    }
}

fn usage(usage: ScriptUsage) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write, "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// Returns the chunk with the usage, which has no choices. A stream reports usage only if the request asks for it.
fn usage_frame(reply: &ScriptedReply) -> Option<String> {
    let usage_chunk = json!({ "choices": [], "usage": usage(reply.step.usage) });
    match reply.asked.usage {
        UsageReporting::Included => Some(data(&merge(envelope(reply, "chat.completion.chunk"), usage_chunk))),
        UsageReporting::Omitted => None,
    }
}
