//! Normalizes a request for matching. The normal form leaves out the model, the system prompt, dates, local paths,
//! and data that only one provider's format has (ids, marks, reasoning).

use haft_core::conversation::{Media, MediaSource, Message, MessagePart, PartBody, Role};
use haft_core::digest::Digest;
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, ToolChoice,
};
use haft_core::output::OutputContent;
use serde_json::{Map, Value, json};

use super::scrub::scrub;

/// Returns the whole normalized request, to compare it in error messages.
pub(super) fn request(request: &ModelRequest) -> Value {
    let messages = request.conversation.messages().iter().filter_map(|one| message(one));
    let Value::Object(mut whole) = settings(request) else { return Value::Null };
    whole.insert("tools".into(), tools(&request.tools));
    whole.insert("messages".into(), messages.collect());
    Value::Object(whole)
}

/// Normalizes a message. Returns `None` for system messages, which are ignored in matching.
pub(super) fn message(message: &Message) -> Option<Value> {
    let role = match message.role {
        Role::System => return None,
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts: Vec<Value> = message.parts.iter().filter_map(part).collect();
    Some(json!({ "role": role, "parts": parts }))
}

fn part(part: &MessagePart) -> Option<Value> {
    Some(match &part.body {
        PartBody::Text { text, annotations: _ } => json!({ "text": scrub(text) }),
        PartBody::Refusal(text) => json!({ "refusal": scrub(text) }),
        PartBody::Image(media) => json!({ "image": digest_of(media) }),
        PartBody::Audio(media) => json!({ "audio": digest_of(media) }),
        PartBody::File { name, media } => json!({ "file": name, "media": digest_of(media) }),
        PartBody::Call(call) => json!({ "call": call.name, "arguments": scrub(call.arguments.as_text()) }),
        PartBody::Reply(reply) => {
            let content: Vec<Value> = reply.content.iter().map(content).collect();
            json!({ "reply": reply.name, "content": content, "error": reply.is_error })
        }
        PartBody::Reasoning(_) | PartBody::Opaque => return None,
    })
}

fn content(content: &OutputContent) -> Value {
    match content {
        OutputContent::Text(text) => json!({ "text": scrub(text) }),
        OutputContent::Image { bytes, .. } => json!({ "image": Digest::of_bytes(bytes).to_string() }),
        OutputContent::Audio { bytes, .. } => json!({ "audio": Digest::of_bytes(bytes).to_string() }),
        OutputContent::Link(_)
        | OutputContent::Resource { .. }
        | OutputContent::Binary { .. }
        | OutputContent::FoundTools(_)
        | OutputContent::Stored(_) => {
            json!({ "text": scrub(&content.as_text()) })
        }
    }
}

fn digest_of(media: &Media) -> String {
    match &media.source {
        MediaSource::Bytes(bytes) => Digest::of_bytes(bytes).to_string(),
        MediaSource::Url(url) => url.clone(),
    }
}

pub(super) fn tools(tools: &[ModelTool]) -> Value {
    let one = |tool: &ModelTool| {
        let ModelTool { name, description, input_schema, strict } = tool;
        let mut normal = json!({ "description": scrub(description), "schema": scrubbed(input_schema) });
        if *strict {
            normal["strict"] = true.into();
        }
        (name.clone(), normal)
    };
    Value::Object(tools.iter().map(one).collect())
}

/// Replaces dates and paths in all strings of a schema, because descriptions and defaults may contain them too.
fn scrubbed(value: &Value) -> Value {
    match value {
        Value::String(text) => scrub(text).into(),
        Value::Array(items) => items.iter().map(scrubbed).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), scrubbed(value))).collect::<Map<_, _>>().into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Returns every setting of the request, without messages and tools.
pub(super) fn settings(request: &ModelRequest) -> Value {
    let sampling = &request.sampling;
    let mut settings = json!({
        "tool_choice": choice(&request.tool_choice),
        "parallel_calls": request.parallel_calls == ParallelCalls::Allowed,
        "output": match &request.output {
            OutputShape::Text => json!("text"),
            OutputShape::Json => json!("json"),
            OutputShape::Schema { name, schema } => json!({ "name": name, "schema": schema.as_ref() }),
        },
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": sampling.stop,
        "reasoning": request.reasoning.map(effort),
        "output_tokens_max": request.output_tokens_max,
        "context_tokens": request.context_tokens,
    });
    // Recordings of earlier versions do not have these settings.
    if let Some(summary) = request.reasoning_summary {
        settings["reasoning_summary"] = summary.name().into();
    }
    if let Some(verbosity) = request.verbosity {
        settings["verbosity"] = verbosity.name().into();
    }
    settings
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({ "named": name }),
        ToolChoice::Allowed { names, must_call } => {
            json!({ "allowed": names, "must_call": *must_call == MustCall::Yes })
        }
    }
}

fn effort(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Off => "off",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "highest",
    }
}
