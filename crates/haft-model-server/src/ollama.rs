//! Ollama's `/api/chat`, with JSON lines, no call ids, and streaming by default.

use serde_json::{Value, json};

use crate::fault::ErrorResponse;
use crate::parsed_request::{ConversationSummary, ParsedRequest, ResponseDelivery, entries, string, text_of};
use crate::script::{ScriptPart, ScriptStop, ScriptUsage};
use crate::wire::{ApiRequest, ProviderApi, ScriptedReply, merge};

#[derive(Debug)]
pub(crate) struct Ollama;

impl ProviderApi for Ollama {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String> {
        let body = &request.body;
        let mut asked = ParsedRequest {
            model: string(body, "model"),
            delivery: delivery(body),
            tools: entries(body, "tools").iter().map(|tool| string(&tool["function"], "name")).collect(),
            ..ParsedRequest::default()
        };
        if asked.model.is_empty() {
            return Err("model is required".to_owned());
        }
        for message in entries(body, "messages") {
            read_message(message, &mut asked.talk)?;
        }
        Ok(asked)
    }

    fn whole(&self, reply: &ScriptedReply) -> Value {
        let (mut content, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        for part in &reply.step.say {
            match part {
                ScriptPart::Text(text) | ScriptPart::Refusal(text) => content.push_str(text),
                ScriptPart::Cited(cited) => content.push_str(&cited.text),
                ScriptPart::Json(value) => content.push_str(&value.to_string()),
                ScriptPart::Reasoning(reasoning) => thinking.push_str(&reasoning.text),
                ScriptPart::Redacted(_) => {}
                ScriptPart::Call(call) => calls.push(call),
            }
        }
        let mut message = json!({ "content": content });
        if !thinking.is_empty() {
            message["thinking"] = thinking.into();
        }
        if !calls.is_empty() {
            let calls =
                calls.into_iter().enumerate().map(|(at, call)| function_call(at, &call.name, &call.value()));
            message["tool_calls"] = calls.collect();
        }
        last(reply, message)
    }

    fn stream(&self, reply: &ScriptedReply) -> Vec<String> {
        let mut lines = Vec::new();
        let mut calls = 0;
        for part in &reply.step.say {
            match part {
                ScriptPart::Text(text) | ScriptPart::Refusal(text) => lines.extend(texts(reply, text)),
                ScriptPart::Cited(cited) => lines.extend(texts(reply, &cited.text)),
                ScriptPart::Json(value) => lines.extend(texts(reply, &value.to_string())),
                ScriptPart::Reasoning(reasoning) => lines.extend(thoughts(reply, &reasoning.text)),
                ScriptPart::Redacted(_) => {}
                ScriptPart::Call(call) => {
                    let call = function_call(calls, &call.name, &call.value());
                    lines.push(line(reply, json!({ "content": "", "tool_calls": [call] })));
                    calls += 1;
                }
            }
        }
        lines.push(last(reply, json!({ "content": "" })));
        lines.iter().map(framed).collect()
    }

    fn error(&self, failure: &ErrorResponse) -> Value {
        json!({ "error": failure.message })
    }

    fn error_event(&self, _: &ScriptedReply, failure: &ErrorResponse) -> Vec<String> {
        vec![framed(&self.error(failure))]
    }
}

fn delivery(body: &Value) -> ResponseDelivery {
    match body["stream"].as_bool() {
        Some(true) | None => ResponseDelivery::Streamed,
        Some(false) => ResponseDelivery::Whole,
    }
}

fn read_message(message: &Value, talk: &mut ConversationSummary) -> Result<(), String> {
    let text = text_of(&message["content"]);
    if message["content"].is_array() {
        return Err("json: cannot unmarshal array into a message's content, which is a string".to_owned());
    }
    match message["role"].as_str() {
        Some("system") => talk.add_system_text(&text),
        Some("user") => talk.add_user_message(text),
        Some("tool") => talk.add_tool_result(text),
        Some("assistant") => {
            let texts =
                entries(message, "tool_calls").iter().any(|call| call["function"]["arguments"].is_string());
            if texts {
                return Err(
                    "json: cannot unmarshal string into a call's arguments, which are an object".to_owned()
                );
            }
            talk.add_model_turn();
        }
        other => return Err(format!("invalid role {other:?}")),
    }
    Ok(())
}

fn function_call(at: usize, name: &str, arguments: &Value) -> Value {
    json!({ "function": { "index": at, "name": name, "arguments": arguments } })
}

fn texts(reply: &ScriptedReply, text: &str) -> Vec<Value> {
    reply.deltas(text).into_iter().map(|piece| line(reply, json!({ "content": piece }))).collect()
}

fn thoughts(reply: &ScriptedReply, text: &str) -> Vec<Value> {
    reply
        .deltas(text)
        .into_iter()
        .map(|piece| line(reply, json!({ "content": "", "thinking": piece })))
        .collect()
}

fn line(reply: &ScriptedReply, message: Value) -> Value {
    json!({
        "model": reply.asked.model, "created_at": "2023-11-14T22:13:20Z",
        "message": merge(json!({ "role": "assistant" }), message), "done": false,
    })
}

fn last(reply: &ScriptedReply, message: Value) -> Value {
    let done = json!({ "done": true, "done_reason": done_reason(&reply.step.stop()) });
    merge(merge(line(reply, message), done), usage(reply.step.usage))
}

fn framed(line: &Value) -> String {
    format!("{line}\n")
}

fn done_reason(stop: &ScriptStop) -> Value {
    match stop {
        ScriptStop::End | ScriptStop::Calls | ScriptStop::Refusal | ScriptStop::Blocked => "stop".into(),
        ScriptStop::Length => "length".into(),
        ScriptStop::Other(word) => word.as_str().into(),
    }
}

fn usage(usage: ScriptUsage) -> Value {
    json!({
        "prompt_eval_count": usage.input, "eval_count": usage.output,
        "total_duration": 5_000_000, "load_duration": 1_000_000,
        "prompt_eval_duration": 1_000_000, "eval_duration": 3_000_000,
    })
}
