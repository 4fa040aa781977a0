//! Encodes requests to `/api/chat`.

use haft_core::conversation::{MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply};
use haft_core::model_request::{
    ModelRequest, ModelTool, OutputShape, ReasoningEffort, SamplingParameters, ToolChoice,
};
use haft_core::tool::ToolCall;

use super::{UNSUPPORTED, context};
use crate::encode_memo::{EncodeMemo, EncodedTail, Encoder};
use crate::json_text::{self, ObjectWriter};
use crate::model_data::sizes_of;
use crate::object_arguments::object_json;
use crate::openai_chat::{StrictField, write_tools};
use crate::schema::{self, SchemaDialect};
use crate::wire::{DecodeContext, EncodedRequest};
use crate::{call_id, media};
use haft_core::settings::models::ReplyDelivery;

const FORMAT: ModelApiFormat = ModelApiFormat::Ollama;

pub(super) fn encode(
    request: &ModelRequest,
    delivery: ReplyDelivery,
    memo: &mut EncodeMemo,
) -> EncodedRequest {
    let recalled = memo.encode_cached(&OllamaEncoder, request);
    let decode_context = recalled.decode_context(request);
    let context_tokens = context_tokens(request, decode_context.text_bytes);
    let output_tokens_max = request.output_tokens_max.unwrap_or(context::OUTPUT_TOKENS_DEFAULT);
    let decode_context = DecodeContext { context_tokens: Some(context_tokens as u64), ..decode_context };
    let messages = &recalled.messages.tail.bytes;
    let comma: &[u8] = if recalled.system.is_empty() || messages.is_empty() { b"" } else { b"," };
    let mut body = Vec::with_capacity(messages.len() + recalled.tools.len() + recalled.system.len() + 1024);
    json_text::object(&mut body, |body| {
        body.put("model", &request.model);
        body.raw_pieces("messages", &[b"[", recalled.system, comma, messages, b"]"]);
        // Leave out the tools for the choice `none`, because the API has no tool choice.
        if !request.tools.is_empty() && request.tool_choice != ToolChoice::None {
            body.raw("tools", recalled.tools);
        }
        match &request.output {
            OutputShape::Text => {}
            OutputShape::Json => body.put("format", "json"),
            OutputShape::Schema { schema, .. } => {
                body.put("format", &schema::downgrade(schema, SchemaDialect::Ollama).schema);
            }
        }
        write_effort(body, &request.model, request.reasoning);
        body.object("options", |options| {
            options.put("num_ctx", &context_tokens);
            // Send a limit. Without a limit, the server lets a model that repeats itself continue for hours.
            options.put("num_predict", &output_tokens_max);
            write_sampling(options, &request.sampling);
        });
        body.put("stream", &(delivery == ReplyDelivery::Streamed));
    });
    EncodedRequest {
        path: "api/chat".into(),
        headers: &[],
        body,
        decode_context,
        unsupported: recalled.unsupported(request, UNSUPPORTED),
    }
}

/// Returns the context size to request: the caller's size, or the size that the prompt needs, up to the model's context
/// window.
fn context_tokens(request: &ModelRequest, text_bytes: usize) -> usize {
    let own = sizes_of(&request.model).context_tokens.map_or(usize::MAX, |tokens| tokens as usize);
    match request.context_tokens {
        Some(tokens) => tokens as usize,
        None => context::tokens_for(text_bytes, request.output_tokens_max).min(own),
    }
}

/// Encodes messages for `/api/chat`.
struct OllamaEncoder;

impl Encoder for OllamaEncoder {
    fn name(&self) -> &'static str {
        FORMAT.name()
    }

    fn message(&self, tail: &mut EncodedTail, message: &Message) {
        match message.role {
            Role::System => write_input(tail, "system", &message.parts),
            Role::User => write_input(tail, "user", &message.parts),
            Role::Assistant => write_assistant(tail, &message.parts),
            Role::Tool => write_replies(tail, &message.parts),
        }
    }

    fn system(&self, system: &str) -> Vec<u8> {
        if system.is_empty() {
            Vec::new()
        } else {
            encode_message(|message| write_plain(message, "system", system))
        }
    }

    fn tools(&self, tools: &[ModelTool], _: &[ModelTool]) -> Vec<u8> {
        write_tools(tools, SchemaDialect::Ollama, StrictField::Omitted)
    }
}

fn encode_message(write: impl FnOnce(&mut ObjectWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    json_text::object(&mut out, write);
    out
}

fn write_plain(message: &mut ObjectWriter<'_>, role: &str, text: &str) {
    message.put("role", role);
    message.put("content", text);
}

fn write_images(message: &mut ObjectWriter<'_>, images: &[String]) {
    if !images.is_empty() {
        message.put("images", images);
    }
}

fn write_input(tail: &mut EncodedTail, role: &str, parts: &[MessagePart]) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        match &part.body {
            PartBody::Text { text, .. } => texts.push(text.clone()),
            PartBody::Image(media) => match &media.source {
                MediaSource::Bytes(bytes) => images.push(media::base64(bytes)),
                MediaSource::Url(_) => texts.push(media::described("image", media)),
            },
            PartBody::Audio(media) => texts.push(media::described("audio", media)),
            PartBody::File { media, .. } => texts.push(media::described("file", media)),
            // A user message never contains these parts.
            PartBody::Refusal(_)
            | PartBody::Reasoning(_)
            | PartBody::Call(_)
            | PartBody::Reply(_)
            | PartBody::Opaque => {}
        }
    }
    tail.push(&encode_message(|message| {
        write_plain(message, role, &texts.join("\n"));
        write_images(message, &images);
    }));
}

/// An assistant message, split into the fields of the API.
#[derive(Default)]
struct OllamaAssistantMessage<'a> {
    text: String,
    thinking: String,
    calls: Vec<&'a ToolCall>,
}

impl<'a> OllamaAssistantMessage<'a> {
    fn of(parts: &'a [MessagePart]) -> Self {
        let mut answer = Self::default();
        for part in parts {
            match &part.body {
                PartBody::Text { text, .. } | PartBody::Refusal(text) => answer.text.push_str(text),
                PartBody::Image(media) => answer.text.push_str(&media::described("image", media)),
                PartBody::Audio(media) => answer.text.push_str(&media::described("audio", media)),
                PartBody::File { media, .. } => answer.text.push_str(&media::described("file", media)),
                PartBody::Reasoning(text) => {
                    answer.thinking.push_str(part.state_for(FORMAT).map_or("", |_| text));
                }
                PartBody::Call(call) => answer.calls.push(call),
                PartBody::Reply(_) | PartBody::Opaque => {}
            }
        }
        answer
    }
}

fn write_assistant(tail: &mut EncodedTail, parts: &[MessagePart]) {
    let answer = OllamaAssistantMessage::of(parts);
    if answer.text.is_empty() && answer.calls.is_empty() {
        return;
    }
    tail.push(&encode_message(|message| {
        write_plain(message, "assistant", &answer.text);
        if !answer.thinking.is_empty() {
            message.put("thinking", &answer.thinking);
        }
        if !answer.calls.is_empty() {
            message.array("tool_calls", |calls| {
                answer.calls.iter().for_each(|call| calls.object(|out| write_call(out, call)));
            });
        }
    }));
}

fn write_call(out: &mut ObjectWriter<'_>, call: &ToolCall) {
    out.put_some("id", known_id(&call.id.0));
    out.object("function", |function| {
        function.put("name", &call.name);
        function.raw("arguments", object_json(&call.arguments).as_bytes());
    });
}

/// Returns the id, unless haft generated it. Without ids, the server matches results to calls by their order.
fn known_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !call_id::is_generated_id(id))
}

fn write_replies(tail: &mut EncodedTail, parts: &[MessagePart]) {
    let replies: Vec<&ToolReply> = parts.iter().filter_map(MessagePart::as_reply).collect();
    for reply in &replies {
        tail.push(&encode_message(|message| {
            write_plain(message, "tool", &media::flagged_text(reply, media::text_beside_images(reply)));
            message.put("tool_name", &reply.name);
            message.put_some("tool_call_id", known_id(&reply.call.0));
        }));
    }
    let images: Vec<_> = replies
        .iter()
        .flat_map(|reply| media::images(reply))
        .map(|(_, bytes)| media::base64(bytes))
        .collect();
    if !images.is_empty() {
        tail.push(&encode_message(|message| {
            write_plain(message, "user", "Images from the tool replies above:");
            write_images(message, &images);
        }));
    }
}

/// Writes `think`. Only gpt-oss models take a level; all others take a boolean, and the server rejects a level for
/// them.
fn write_effort(body: &mut ObjectWriter<'_>, model: &str, effort: Option<ReasoningEffort>) {
    match effort {
        None => {}
        Some(ReasoningEffort::Off) => body.put("think", &false),
        Some(effort) if model.contains("gpt-oss") => body.put("think", level(effort)),
        Some(_) => body.put("think", &true),
    }
}

fn level(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Off | ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High | ReasoningEffort::Highest => "high",
    }
}

fn write_sampling(options: &mut ObjectWriter<'_>, sampling: &SamplingParameters) {
    let SamplingParameters { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } =
        sampling;
    options.put_some("temperature", temperature.as_ref());
    options.put_some("top_p", top_p.as_ref());
    options.put_some("top_k", top_k.as_ref());
    options.put_some("seed", seed.as_ref());
    options.put_some("presence_penalty", presence_penalty.as_ref());
    options.put_some("frequency_penalty", frequency_penalty.as_ref());
    options.put_some("stop", Some(stop).filter(|stop| !stop.is_empty()));
}
