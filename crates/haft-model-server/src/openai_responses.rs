//! The Responses API (`/v1/responses`).

use serde_json::{Value, json};

use crate::fault::ErrorResponse;
use crate::openai_chat::{allowed_tools, checked_count, checked_name};
use crate::pairing::CallPairing;
use crate::parsed_request::{
    ConversationSummary, ParsedRequest, RequestToolChoice, delivery, entries, string, text_of,
};
use crate::responses_stream;
use crate::script::{CitedText, ScriptCall, ScriptPart, ScriptStop, ScriptUsage};
use crate::strict_schema;
use crate::wire::{ApiRequest, CREATED, ProviderApi, ScriptedReply, event, merge, openai_error};

#[derive(Debug)]
pub(crate) struct OpenAiResponses;

impl ProviderApi for OpenAiResponses {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String> {
        let body = &request.body;
        let mut asked = ParsedRequest {
            model: string(body, "model"),
            delivery: delivery(body),
            tools: checked_count(entries(body, "tools"))?.iter().map(read_tool).collect::<Result<_, _>>()?,
            tool_choice: Some(tool_choice(body)?),
            previous: body["previous_response_id"].as_str().map(str::to_owned),
            ..ParsedRequest::default()
        };
        strict_schema::check(&body["text"]["format"], &body["text"]["format"]["schema"])?;
        if asked.model.is_empty() {
            return Err("missing required parameter: 'model'".to_owned());
        }
        if let Some(text) = body["instructions"].as_str() {
            asked.talk.add_system_text(text);
        }
        if let Some(text) = body["input"].as_str() {
            asked.talk.add_user_message(text.to_owned());
        }
        let pairing = match asked.previous {
            Some(_) => CallPairing::after_stored_response(),
            None => CallPairing::default(),
        };
        check_search(body)?;
        read_items(entries(body, "input"), &mut asked.talk, pairing)?;
        Ok(asked)
    }

    fn whole(&self, reply: &ScriptedReply) -> Value {
        finished(reply)
    }

    fn stream(&self, reply: &ScriptedReply) -> Vec<String> {
        responses_stream::events(reply).iter().map(event).collect()
    }

    fn error(&self, failure: &ErrorResponse) -> Value {
        openai_error(failure)
    }

    /// Encodes an error event. The error is nested in the specification but flat in the SDK types, so the event
    /// contains it twice, nested and flat.
    fn error_event(&self, reply: &ScriptedReply, failure: &ErrorResponse) -> Vec<String> {
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

fn read_items(
    items: &[Value],
    talk: &mut ConversationSummary,
    mut pairing: CallPairing,
) -> Result<(), String> {
    for (at, item) in items.iter().enumerate() {
        read_item(item, talk, &mut pairing).map_err(|error| format!("input[{at}]: {error}"))?;
    }
    pairing.all_answered()
}

fn read_item(item: &Value, talk: &mut ConversationSummary, pairing: &mut CallPairing) -> Result<(), String> {
    let text = text_of(&item["content"]);
    match (item["type"].as_str(), item["role"].as_str()) {
        (None | Some("message"), Some("user")) => talk.add_user_message(text),
        (None | Some("message"), Some("system" | "developer")) => talk.add_system_text(&text),
        (None | Some("message"), Some("assistant")) | (Some("reasoning" | "compaction"), _) => {
            talk.add_model_turn();
        }
        (Some("item_reference"), _) => {}
        (Some("function_call"), _) => {
            if !item["arguments"].is_string() {
                return Err("`arguments` must be a string".to_owned());
            }
            pairing.called(&string(item, "call_id"))?;
            talk.add_model_turn();
        }
        (Some("function_call_output"), _) => {
            pairing.answered(&string(item, "call_id"))?;
            talk.add_tool_result(text_of(&item["output"]));
        }
        (Some("tool_search_call"), _) => {
            if item["execution"] != "client" || !item["arguments"].is_object() {
                return Err("`tool_search_call` needs `execution` and an object `arguments`".to_owned());
            }
            pairing.called(&string(item, "call_id"))?;
            talk.add_model_turn();
        }
        (Some("tool_search_output"), _) => {
            pairing.answered(&string(item, "call_id"))?;
            talk.add_tool_result(loaded_tools(item)?);
        }
        (kind, role) => return Err(format!("invalid item of type {kind:?} and role {role:?}")),
    }
    Ok(())
}

/// Checks that the model supports searches, and that the request has a search tool if its input contains searches.
fn check_search(body: &Value) -> Result<(), String> {
    let offers = entries(body, "tools").iter().any(|tool| tool["type"] == "tool_search");
    let searched = entries(body, "input").iter().any(|item| item["type"] == "tool_search_call");
    let model = string(body, "model");
    if offers && !model.starts_with("gpt-5.4") && !model.starts_with("gpt-6") {
        return Err(format!("tool_search is not supported with {model}"));
    }
    if searched && !offers {
        return Err("a tool_search_call needs a tool of type tool_search".to_owned());
    }
    check_namespaces(entries(body, "input"))
}

/// Checks that calls to functions which a search loaded are sent back with their namespaces.
fn check_namespaces(input: &[Value]) -> Result<(), String> {
    for (at, item) in input.iter().enumerate().filter(|(_, item)| item["type"] == "function_call") {
        let name = string(item, "name");
        let expected = namespace_of(&input[..at], &name);
        if expected.is_some() && item["namespace"].as_str() != expected {
            return Err(format!("the function_call of {name} needs the namespace {expected:?}"));
        }
    }
    Ok(())
}

/// Returns the namespace in which a search loaded a function.
fn namespace_of<'a>(input: &'a [Value], name: &str) -> Option<&'a str> {
    let outputs = input.iter().filter(|item| item["type"] == "tool_search_output");
    let mut namespaces = outputs.flat_map(|item| entries(item, "tools"));
    let found = namespaces.find(|space| entries(space, "tools").iter().any(|tool| tool["name"] == name))?;
    found["name"].as_str()
}

/// Returns the namespace in which a request offers a function.
fn offered_namespace<'a>(tools: &'a [Value], name: &str) -> Option<&'a str> {
    let mut spaces = tools.iter().filter(|tool| tool["type"] == "namespace");
    spaces.find(|space| entries(space, "tools").iter().any(|tool| tool["name"] == name))?["name"].as_str()
}

/// Checks the definitions in a search output, and returns the names of the tools that it loads.
fn loaded_tools(item: &Value) -> Result<String, String> {
    if item["execution"] != "client" || item["status"] != "completed" {
        return Err("`tool_search_output` needs `execution` and `status`".to_owned());
    }
    let tools = item["tools"].as_array().ok_or("`tool_search_output` needs `tools`")?;
    let (mut names, mut spaces): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for tool in tools {
        match tool["type"].as_str() {
            Some("function") => names.push(loaded_function(tool)?),
            Some("namespace") if !entries(tool, "tools").is_empty() => {
                spaces.push(checked_name(&tool["name"])?);
                for function in entries(tool, "tools") {
                    names.push(loaded_function(function)?);
                }
            }
            _ => {
                return Err(format!(
                    "`tool_search_output` needs functions or namespaces with tools; got {tool}"
                ));
            }
        }
    }
    for list in [&names, &spaces] {
        if let Some(name) =
            list.iter().enumerate().find_map(|(at, name)| list[..at].contains(name).then_some(name))
        {
            return Err(format!("duplicate {name} in `tool_search_output`"));
        }
    }
    let of = if spaces.is_empty() { String::new() } else { format!(" in {}", spaces.join(", ")) };
    Ok(format!("loaded {}{of}", names.join(", ")))
}

fn loaded_function(tool: &Value) -> Result<String, String> {
    if tool["type"] != "function" || !tool["parameters"].is_object() {
        return Err(format!(
            "`tool_search_output` needs functions whose `parameters` is an object; got {tool}"
        ));
    }
    checked_name(&tool["name"])
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

fn tool_choice(body: &Value) -> Result<RequestToolChoice, String> {
    let choice = &body["tool_choice"];
    match (choice.as_str(), choice["type"].as_str()) {
        (Some("auto"), _) => Ok(RequestToolChoice::Auto),
        (Some("none"), _) => Ok(RequestToolChoice::None),
        (Some("required"), _) => Ok(RequestToolChoice::Required),
        (None, None) if choice.is_null() => Ok(RequestToolChoice::Auto),
        (None, Some("function")) => Ok(RequestToolChoice::Tool(string(choice, "name"))),
        (None, Some("allowed_tools")) => {
            let names = entries(choice, "tools").iter().map(|tool| checked_name(&tool["name"]));
            Ok(allowed_tools(choice, names.collect::<Result<_, _>>()?))
        }
        _ => Err(format!("invalid value for 'tool_choice': {choice}")),
    }
}

/// Returns the response object as it is before any output.
pub(crate) fn begun(reply: &ScriptedReply) -> Value {
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

pub(crate) fn finished(reply: &ScriptedReply) -> Value {
    let (status, details) = match reply.step.stop() {
        ScriptStop::End | ScriptStop::Calls | ScriptStop::Refusal => ("completed", Value::Null),
        ScriptStop::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
        ScriptStop::Blocked => ("incomplete", json!({ "reason": "content_filter" })),
        ScriptStop::Other(word) => ("incomplete", json!({ "reason": word })),
    };
    merge(
        begun(reply),
        json!({
            "status": status, "incomplete_details": details, "completed_at": CREATED,
            "output": items(reply), "usage": usage(reply.step.usage),
        }),
    )
}

/// Returns the finished output items. In a truncated response, the last item is `incomplete`.
pub(crate) fn items(reply: &ScriptedReply) -> Vec<Value> {
    let count = reply.step.say.len();
    let cut_short =
        matches!(reply.step.stop(), ScriptStop::Length | ScriptStop::Blocked | ScriptStop::Other(_));
    let status = |at: usize| if cut_short && at + 1 == count { "incomplete" } else { "completed" };
    reply.step.say.iter().enumerate().map(|(at, part)| item(reply, at, part, status(at))).collect()
}

fn item(reply: &ScriptedReply, at: usize, part: &ScriptPart, status: &str) -> Value {
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
        ScriptPart::Text(text) => message(output_text(text)),
        ScriptPart::Json(value) => message(output_text(&value.to_string())),
        ScriptPart::Cited(cited) => {
            message(merge(output_text(&cited.text), json!({ "annotations": [citation(cited)] })))
        }
        ScriptPart::Refusal(text) => message(json!({ "type": "refusal", "refusal": text })),
        ScriptPart::Reasoning(part) => {
            let paragraphs = part.paragraphs().map(|text| json!({ "type": "summary_text", "text": text }));
            reasoning(paragraphs.collect(), part.state.as_ref())
        }
        ScriptPart::Redacted(state) => reasoning(json!([]), Some(state)),
        ScriptPart::Call(call) if searches(reply, &call.name) => json!({
            "id": own_id("tsc"), "type": "tool_search_call", "call_id": call_id(reply, call, at), "execution": "client",
            "arguments": serde_json::from_str::<Value>(&call.text()).unwrap_or_default(), "status": status,
        }),
        ScriptPart::Call(call) => {
            let item = json!({
                "id": own_id("fc"), "type": "function_call", "call_id": call_id(reply, call, at), "name": call.name,
                "arguments": call.text(), "status": status,
            });
            let loaded = namespace_of(entries(reply.request, "input"), &call.name);
            match loaded.or_else(|| offered_namespace(entries(reply.request, "tools"), &call.name)) {
                Some(namespace) => merge(item, json!({ "namespace": namespace })),
                None => item,
            }
        }
    }
}

/// Returns true if a call is a tool search of this API: the request has a tool of the type `tool_search`.
pub(crate) fn searches(reply: &ScriptedReply, name: &str) -> bool {
    name == "tool_search" && entries(reply.request, "tools").iter().any(|tool| tool["type"] == "tool_search")
}

pub(crate) fn citation(cited: &CitedText) -> Value {
    json!({
        "type": "url_citation", "url": cited.url, "title": cited.title, "start_index": 0,
        "end_index": cited.text.chars().count(),
    })
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn call_id(reply: &ScriptedReply, call: &ScriptCall, at: usize) -> String {
    call.id.clone().unwrap_or_else(|| reply.call_id("call_", reply.calls_before(at)))
}

fn usage(usage: ScriptUsage) -> Value {
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.input + usage.output,
        "input_tokens_details": { "cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write },
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}
