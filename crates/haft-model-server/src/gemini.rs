//! Google's Gemini API (`/v1beta/models/{model}:generateContent` and `:streamGenerateContent`).

use serde_json::{Value, json};

use crate::fault::ErrorResponse;
use crate::gemini_schema;
use crate::parsed_request::{
    ConversationSummary, ParsedRequest, RequestToolChoice, ResponseDelivery, string, text_of,
};
use crate::protobuf::{camel, field, list};
use crate::script::{CitedText, ScriptCall, ScriptPart, ScriptStop, ScriptUsage};
use crate::wire::{ApiRequest, PathParameters, ProviderApi, ScriptedReply, data};

/// The top-level fields that a request may have.
const FIELDS: [&str; 10] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
    "labels",
    "store",
    "serviceTier",
];

#[derive(Debug)]
pub(crate) struct Gemini;

impl ProviderApi for Gemini {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String> {
        let body = &request.body;
        check_fields(body)?;
        gemini_schema::check(field(field(body, "generationConfig"), "responseSchema"))
            .map_err(|error| format!("generation_config.response_schema{error}"))?;
        let mut asked = ParsedRequest {
            model: request.address.model.clone(),
            delivery: delivery(&request.address)?,
            tools: tools(body)?,
            tool_choice: Some(tool_choice(body)?),
            ..ParsedRequest::default()
        };
        asked.talk.add_system_text(&text_of(&field(body, "systemInstruction")["parts"]));
        let mut open = Vec::new();
        for content in list(body, "contents") {
            read_content(content, &mut asked.talk, &mut open)?;
        }
        if open.is_empty() { Ok(asked) } else { Err(unanswered(&open)) }
    }

    fn whole(&self, reply: &ScriptedReply) -> Value {
        let parts = all_parts(reply, |text| vec![text.to_owned()]);
        response(reply, &parts, &finish_reason(&reply.step.stop()))
    }

    /// Encodes a stream. Every frame contains the usage. Only the last frame, which adds no text, contains the finish
    /// reason.
    fn stream(&self, reply: &ScriptedReply) -> Vec<String> {
        let parts = all_parts(reply, |text| reply.deltas(text));
        let mut frames: Vec<String> =
            parts.chunks(1).map(|part| data(&response(reply, part, &Value::Null))).collect();
        let last = [json!({ "text": "" })];
        frames.push(data(&response(reply, &last, &finish_reason(&reply.step.stop()))));
        frames
    }

    fn error(&self, failure: &ErrorResponse) -> Value {
        let status = failure.kind_or(|status| match status {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            504 => "DEADLINE_EXCEEDED",
            _ => "INTERNAL",
        });
        let mut error = json!({ "code": failure.status, "message": failure.message, "status": status });
        if let Some(seconds) = failure.retry_after_seconds {
            let kind = "type.googleapis.com/google.rpc.RetryInfo";
            error["details"] = json!([{ "@type": kind, "retryDelay": format!("{seconds}s") }]);
        }
        json!({ "error": error })
    }

    fn error_event(&self, _: &ScriptedReply, failure: &ErrorResponse) -> Vec<String> {
        vec![data(&self.error(failure))]
    }
}

fn check_fields(body: &Value) -> Result<(), String> {
    let unknown = body
        .as_object()
        .into_iter()
        .flat_map(|body| body.keys())
        .find(|key| !FIELDS.contains(&camel(key).as_str()));
    match unknown {
        Some(key) => Err(format!("invalid JSON payload received. Unknown name \"{key}\": cannot find field")),
        None if list(body, "contents").is_empty() => Err("contents is not specified".to_owned()),
        None => Ok(()),
    }
}

/// Returns whether the client wants a whole reply or a stream. Without `alt=sse` the real API streams one long JSON
/// array. haft never requests such an array, and the parameter is easily forgotten, so its absence is an error.
fn delivery(address: &PathParameters) -> Result<ResponseDelivery, String> {
    match (address.verb.as_str(), address.alt.as_deref()) {
        ("generateContent", _) => Ok(ResponseDelivery::Whole),
        ("streamGenerateContent", Some("sse")) => Ok(ResponseDelivery::Streamed),
        ("streamGenerateContent", _) => Err("streaming requires `alt=sse`".to_owned()),
        (other, _) => {
            Err(format!("unknown method `{other}`; expected generateContent or streamGenerateContent"))
        }
    }
}

fn tools(body: &Value) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for (at, tool) in list(body, "tools").iter().enumerate() {
        let declared = list(tool, "functionDeclarations");
        if !field(tool, "functionDeclarations").is_null() && declared.is_empty() {
            return Err(format!("tools[{at}].function_declarations: should not be empty"));
        }
        for (number, function) in declared.iter().enumerate() {
            let place = format!("tools[{at}].function_declarations[{number}]");
            names.push(function_name(function).map_err(|error| format!("{place}.name: {error}"))?);
            gemini_schema::check(&function["parameters"])
                .map_err(|error| format!("{place}.parameters{error}"))?;
        }
    }
    Ok(names)
}

fn function_name(function: &Value) -> Result<String, String> {
    let name = string(function, "name");
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.:-".contains(c));
    if begins && legal && name.len() <= 64 {
        Ok(name)
    } else {
        Err(format!(
            "invalid function name `{name}`: expected a letter or underscore, then a-z, A-Z, 0-9, _ . : -, at most 64 characters"
        ))
    }
}

fn tool_choice(body: &Value) -> Result<RequestToolChoice, String> {
    let config = field(field(body, "toolConfig"), "functionCallingConfig");
    let names: Vec<String> = list(config, "allowedFunctionNames").iter().map(text_of).collect();
    match (config["mode"].as_str(), names.as_slice()) {
        (None | Some("AUTO" | "MODE_UNSPECIFIED" | "VALIDATED"), []) => Ok(RequestToolChoice::Auto),
        (Some("NONE"), []) => Ok(RequestToolChoice::None),
        (Some("ANY"), []) => Ok(RequestToolChoice::Required),
        (Some("ANY"), [name]) => Ok(RequestToolChoice::Tool(name.clone())),
        (Some("ANY"), _) => Ok(RequestToolChoice::RequiredOf(names)),
        (Some("VALIDATED"), _) => Ok(RequestToolChoice::AutoOf(names)),
        (mode, _) => {
            Err(format!("allowed_function_names are only for the modes ANY and VALIDATED; found {mode:?}"))
        }
    }
}

/// Parses a content. Matches calls and results by name and count, because an id is present only if the model set one.
fn read_content(
    content: &Value,
    talk: &mut ConversationSummary,
    open: &mut Vec<String>,
) -> Result<(), String> {
    let parts = list(content, "parts");
    if parts.is_empty() {
        return Err("contents.parts must not be empty".to_owned());
    }
    match content["role"].as_str() {
        None | Some("user" | "function") => read_user(parts, talk, open),
        Some("model") if !open.is_empty() => Err(unanswered(open)),
        Some("model") => {
            let calls = parts.iter().map(|part| field(part, "functionCall")).filter(|call| call.is_object());
            open.extend(calls.map(|call| string(call, "name")));
            talk.add_model_turn();
            Ok(())
        }
        Some(role) => Err(format!("please use a valid role: user, model; found `{role}`")),
    }
}

fn read_user(parts: &[Value], talk: &mut ConversationSummary, open: &mut Vec<String>) -> Result<(), String> {
    let answers =
        parts.iter().map(|part| field(part, "functionResponse")).filter(|answer| answer.is_object());
    for answer in answers {
        let name = string(answer, "name");
        let at = open.iter().position(|call| *call == name);
        let at =
            at.ok_or(format!("the function response for `{name}` has no function call in the turn before"))?;
        open.remove(at);
        if !answer["response"].is_object() {
            return Err("function_response.response must be an object".to_owned());
        }
        talk.add_tool_result(answer["response"].to_string());
    }
    if !open.is_empty() {
        return Err(unanswered(open));
    }
    let texts: String = parts.iter().map(text_of).collect();
    if !texts.is_empty() {
        talk.add_user_message(texts);
    }
    Ok(())
}

fn unanswered(open: &[String]) -> String {
    format!(
        "please ensure that the number of function response parts is equal to the number of function call parts of the \
         function call turn; missing: {}",
        open.join(", ")
    )
}

fn response(reply: &ScriptedReply, parts: &[Value], finish: &Value) -> Value {
    if reply.step.stop() == ScriptStop::Blocked {
        return blocked(reply);
    }
    let mut candidate = json!({ "index": 0 });
    if !parts.is_empty() {
        candidate["content"] = json!({ "role": "model", "parts": parts });
    }
    if !finish.is_null() {
        candidate["finishReason"] = finish.clone();
    }
    let refusal = reply.step.say.iter().find_map(|part| match part {
        ScriptPart::Refusal(text) => Some(text),
        ScriptPart::Text(_)
        | ScriptPart::Json(_)
        | ScriptPart::Reasoning(_)
        | ScriptPart::Redacted(_)
        | ScriptPart::Call(_)
        | ScriptPart::Cited(_) => None,
    });
    let sources = reply.step.say.iter().enumerate();
    let sources: Vec<_> =
        sources.filter_map(|(at, part)| Some((reply.text_before(at).len(), cited(part)?))).collect();
    if !sources.is_empty() && !finish.is_null() {
        candidate["groundingMetadata"] = grounding(&sources);
    }
    if let Some(text) = refusal.filter(|_| !finish.is_null()) {
        candidate["finishMessage"] = text.as_str().into();
    }
    json!({
        "candidates": [candidate], "usageMetadata": usage(reply.step.usage),
        "modelVersion": reply.asked.model, "responseId": format!("gen-{}", reply.serial),
    })
}

/// Returns the response to a blocked prompt. It has no candidates, because the prompt never reached the model.
fn blocked(reply: &ScriptedReply) -> Value {
    json!({
        "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" }, "usageMetadata": usage(reply.step.usage),
        "modelVersion": reply.asked.model, "responseId": format!("gen-{}", reply.serial),
    })
}

fn cited(part: &ScriptPart) -> Option<&CitedText> {
    match part {
        ScriptPart::Cited(cited) => Some(cited),
        ScriptPart::Text(_)
        | ScriptPart::Json(_)
        | ScriptPart::Reasoning(_)
        | ScriptPart::Redacted(_)
        | ScriptPart::Call(_)
        | ScriptPart::Refusal(_) => None,
    }
}

/// Returns the citations of texts. Each text comes with its position in the reply, in bytes.
fn grounding(sources: &[(usize, &CitedText)]) -> Value {
    let chunks: Vec<_> = sources
        .iter()
        .map(|(_, cited)| json!({ "web": { "uri": cited.url, "title": cited.title } }))
        .collect();
    let supports: Vec<_> = sources
        .iter()
        .enumerate()
        .map(|(at, (start, cited))| {
            let end = start + cited.text.len();
            let segment = json!({ "startIndex": start, "endIndex": end, "text": cited.text });
            json!({ "segment": segment, "groundingChunkIndices": [at] })
        })
        .collect();
    json!({ "groundingChunks": chunks, "groundingSupports": supports })
}

/// Returns all parts. The signature is in the part that follows a thought, not in the thought itself.
fn all_parts(reply: &ScriptedReply, pieces: impl Fn(&str) -> Vec<String>) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut state: Option<String> = None;
    let texts =
        |text: &str| pieces(text).into_iter().map(|piece| json!({ "text": piece })).collect::<Vec<_>>();
    for part in &reply.step.say {
        match part {
            ScriptPart::Reasoning(reasoning) => {
                parts.extend(
                    pieces(&reasoning.text)
                        .into_iter()
                        .map(|piece| json!({ "text": piece, "thought": true })),
                );
                state.clone_from(&reasoning.state);
            }
            ScriptPart::Redacted(redacted) => state = Some(redacted.clone()),
            ScriptPart::Refusal(_) => {}
            ScriptPart::Text(text) => parts.extend(signed(texts(text), state.take())),
            ScriptPart::Cited(cited) => parts.extend(signed(texts(&cited.text), state.take())),
            ScriptPart::Json(value) => parts.extend(signed(texts(&value.to_string()), state.take())),
            ScriptPart::Call(call) => parts.extend(signed(vec![function_call(call)], state.take())),
        }
    }
    if state.is_some() {
        parts.extend(signed(vec![json!({ "text": "" })], state));
    }
    parts
}

fn signed(mut parts: Vec<Value>, state: Option<String>) -> Vec<Value> {
    if let (Some(last), Some(state)) = (parts.last_mut(), state) {
        last["thoughtSignature"] = state.into();
    }
    parts
}

fn function_call(call: &ScriptCall) -> Value {
    let mut function = json!({ "name": call.name, "args": call.value() });
    if let Some(id) = &call.id {
        function["id"] = id.as_str().into();
    }
    json!({ "functionCall": function })
}

fn finish_reason(stop: &ScriptStop) -> Value {
    match stop {
        ScriptStop::End | ScriptStop::Calls => "STOP".into(),
        ScriptStop::Length => "MAX_TOKENS".into(),
        ScriptStop::Refusal | ScriptStop::Blocked => "SAFETY".into(),
        ScriptStop::Other(word) => word.as_str().into(),
    }
}

fn usage(usage: ScriptUsage) -> Value {
    json!({
        "promptTokenCount": usage.input, "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output.saturating_sub(usage.reasoning),
        "thoughtsTokenCount": usage.reasoning, "totalTokenCount": usage.input + usage.output,
    })
}
