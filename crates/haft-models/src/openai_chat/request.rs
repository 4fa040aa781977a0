//! Encodes requests to the Chat Completions API.

use std::borrow::Cow;

use haft_core::conversation::{
    Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
};
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, SamplingParameters,
    ToolChoice, Verbosity,
};
use haft_core::tool::ToolCall;

use super::dialect::{AfterToolResults, Dialect, EffortKey, ReasoningReplay, RefusalField, StreamUsage};
use crate::encode_memo::{EncodeMemo, EncodedTail, Encoder};
use crate::json_text::{self, ArrayWriter, ObjectWriter};
use crate::media;
use crate::schema::{self, SchemaDialect};
use crate::unsupported_features::RequestFeature;
use crate::wire::EncodedRequest;
use haft_core::settings::models::ReplyDelivery;

const FORMAT: ModelApiFormat = ModelApiFormat::OpenaiChat;

pub(super) fn encode(
    dialect: &'static Dialect,
    request: &ModelRequest,
    delivery: ReplyDelivery,
    memo: &mut EncodeMemo,
) -> EncodedRequest {
    let request = &*with_schema_in_prompt(dialect, request);
    let recalled = memo.encode_cached(dialect, request);
    let messages = &recalled.messages.tail.bytes;
    let comma: &[u8] = if recalled.system.is_empty() || messages.is_empty() { b"" } else { b"," };
    let mut body = Vec::with_capacity(messages.len() + recalled.tools.len() + recalled.system.len() + 1024);
    json_text::object(&mut body, |body| {
        body.put("model", &request.model);
        body.raw_pieces("messages", &[b"[", recalled.system, comma, messages, b"]"]);
        if !request.tools.is_empty() {
            body.raw("tools", recalled.tools);
            write_choice(dialect, body, request);
        }
        write_output(dialect, body, &request.output);
        write_sampling(dialect, body, &request.sampling);
        write_effort(dialect, body, request.reasoning);
        let verbosity = request.verbosity.filter(|_| dialect.says(RequestFeature::Verbosity));
        body.put_some("verbosity", verbosity.map(Verbosity::name));
        body.put_some(dialect.output_tokens_key, request.output_tokens_max.as_ref());
        write_delivery(dialect, body, delivery);
    });
    EncodedRequest {
        path: "chat/completions".into(),
        headers: &[],
        body,
        decode_context: recalled.decode_context(request),
        unsupported: recalled.unsupported(request, dialect.unsupported),
    }
}

/// Adds the output schema to the system prompt for a server that does not accept a schema. The messages stay unchanged,
/// so that their cached encoding can still be used.
fn with_schema_in_prompt<'a>(dialect: &Dialect, request: &'a ModelRequest) -> Cow<'a, ModelRequest> {
    let schema = match &request.output {
        OutputShape::Schema { schema, .. } if !dialect.says(RequestFeature::OutputSchema) => schema,
        OutputShape::Schema { .. } | OutputShape::Json | OutputShape::Text => return Cow::Borrowed(request),
    };
    let instruction = format!("Answer with nothing but JSON that fits this JSON Schema:\n{schema}");
    let before = if request.system.is_empty() { "" } else { "\n\n" };
    let system = format!("{}{before}{instruction}", request.system).into();
    Cow::Owned(ModelRequest { system, ..request.clone() })
}

impl Encoder for Dialect {
    fn name(&self) -> &'static str {
        self.name
    }

    fn message(&self, tail: &mut EncodedTail, message: &Message) {
        write_message(self, tail, message);
    }

    fn system(&self, system: &str) -> Vec<u8> {
        write_system(self, system)
    }

    fn tools(&self, tools: &[ModelTool], _: &[ModelTool]) -> Vec<u8> {
        let strict =
            if self.says(RequestFeature::StrictTools) { StrictField::Sent } else { StrictField::Omitted };
        write_tools(tools, SchemaDialect::Json, strict)
    }
}

fn write_system(dialect: &Dialect, system: &str) -> Vec<u8> {
    let mut out = Vec::new();
    if !system.is_empty() {
        json_text::object(&mut out, |message| {
            message.put("role", dialect.system_role);
            message.put("content", system);
        });
    }
    out
}

/// The role of tool results. `EncodedTail::open` has this value while the last message is a tool result.
const REPLIES: &str = "tool";

fn write_message(dialect: &Dialect, tail: &mut EncodedTail, message: &Message) {
    match message.role {
        Role::System | Role::User => write_bridge_message(dialect, tail),
        Role::Assistant | Role::Tool => {}
    }
    match message.role {
        Role::System => {
            let text: Vec<_> = message.parts.iter().filter_map(MessagePart::as_text).collect();
            tail.push(&write_system(dialect, &text.join("\n")));
        }
        Role::User => write_user(tail, &message.parts),
        Role::Assistant => write_assistant(dialect, tail, &message.parts),
        Role::Tool => write_replies(dialect, tail, &message.parts),
    }
}

/// Inserts an assistant message if the server accepts no other role after tool results.
fn write_bridge_message(dialect: &Dialect, tail: &mut EncodedTail) {
    let after_replies = tail.open.take() == Some(REPLIES);
    if after_replies && dialect.after_replies == AfterToolResults::Assistant {
        tail.push(br#"{"role":"assistant","content":"Noted."}"#);
    }
}

/// Writes a user message. A single text becomes a string, which every server accepts.
fn write_user(tail: &mut EncodedTail, parts: &[MessagePart]) {
    let mut out = Vec::new();
    json_text::object(&mut out, |message| {
        message.put("role", "user");
        match parts {
            [part] if part.as_text().is_some() => message.put_some("content", part.as_text()),
            _ => message
                .array("content", |content| parts.iter().for_each(|part| write_input(content, &part.body))),
        }
    });
    tail.push(&out);
}

fn write_input(content: &mut ArrayWriter<'_>, body: &PartBody) {
    match body {
        PartBody::Text { text, .. } => write_text(content, text),
        PartBody::Image(media) => write_image(content, &media::url(media)),
        PartBody::Audio(media) => write_audio(content, media),
        PartBody::File { name, media } => write_file(content, name.as_deref(), media),
        // A user message never contains these parts.
        PartBody::Refusal(_)
        | PartBody::Reasoning(_)
        | PartBody::Call(_)
        | PartBody::Reply(_)
        | PartBody::Opaque => {}
    }
}

fn write_text(content: &mut ArrayWriter<'_>, text: &str) {
    content.object(|part| {
        part.put("type", "text");
        part.put("text", text);
    });
}

fn write_image(content: &mut ArrayWriter<'_>, url: &str) {
    content.object(|part| {
        part.put("type", "image_url");
        part.object("image_url", |image| image.put("url", url));
    });
}

fn write_audio(content: &mut ArrayWriter<'_>, media: &Media) {
    match &media.source {
        MediaSource::Url(_) => write_text(content, &media::described("audio", media)),
        MediaSource::Bytes(bytes) => content.object(|part| {
            part.put("type", "input_audio");
            part.object("input_audio", |audio| {
                audio.put("data", &media::base64(bytes));
                audio.put("format", if media.media_type.ends_with("wav") { "wav" } else { "mp3" });
            });
        }),
    }
}

fn write_file(content: &mut ArrayWriter<'_>, name: Option<&str>, media: &Media) {
    match &media.source {
        MediaSource::Url(_) => write_text(content, &media::described("file", media)),
        MediaSource::Bytes(_) => content.object(|part| {
            part.put("type", "file");
            part.object("file", |file| {
                file.put("filename", name.unwrap_or("file"));
                file.put("file_data", &media::url(media));
            });
        }),
    }
}

/// An assistant message, split into the fields of the API.
#[derive(Default)]
struct ChatAssistantMessage<'a> {
    text: String,
    refusal: String,
    reasoning: String,
    details: Option<&'a str>,
    calls: Vec<(&'a ToolCall, Option<&'a str>)>,
}

impl<'a> ChatAssistantMessage<'a> {
    fn of(parts: &'a [MessagePart], dialect: &Dialect) -> Self {
        let (mut answer, replay) = (Self::default(), dialect.replay);
        for part in parts {
            match &part.body {
                PartBody::Text { text, .. } => answer.text.push_str(text),
                PartBody::Refusal(text) => match dialect.refusal {
                    RefusalField::Field => answer.refusal.push_str(text),
                    RefusalField::Text => answer.text.push_str(text),
                },
                PartBody::Image(media) => answer.text.push_str(&media::described("image", media)),
                PartBody::Audio(media) => answer.text.push_str(&media::described("audio", media)),
                PartBody::File { media, .. } => answer.text.push_str(&media::described("file", media)),
                PartBody::Reasoning(text) => {
                    if part
                        .state_for(FORMAT)
                        .is_some_and(|field| replay == ReasoningReplay::Field(field_name(field)))
                    {
                        answer.reasoning.push_str(text);
                    }
                }
                PartBody::Call(call) => answer.calls.push((call, part.state_for(FORMAT))),
                PartBody::Opaque => answer.details = answer.details.or(part.state_for(FORMAT)),
                PartBody::Reply(_) => {}
            }
        }
        answer
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty()
    }
}

/// Returns the name of the reasoning field. Servers use two different names.
fn field_name(state: &str) -> &'static str {
    if state == "reasoning_content" { "reasoning_content" } else { "reasoning" }
}

fn write_assistant(dialect: &Dialect, tail: &mut EncodedTail, parts: &[MessagePart]) {
    let answer = ChatAssistantMessage::of(parts, dialect);
    if answer.is_empty() {
        return;
    }
    let mut out = Vec::new();
    json_text::object(&mut out, |message| {
        message.put("role", "assistant");
        message.put("content", &(!answer.text.is_empty()).then_some(&answer.text));
        if !answer.refusal.is_empty() {
            message.put("refusal", &answer.refusal);
        }
        match (dialect.replay, answer.details) {
            (ReasoningReplay::Details, Some(details)) => message.raw("reasoning_details", details.as_bytes()),
            (ReasoningReplay::Field(field), _) if !answer.reasoning.is_empty() => {
                message.put(field, &answer.reasoning);
            }
            (
                ReasoningReplay::Details
                | ReasoningReplay::Field(_)
                | ReasoningReplay::CallExtras
                | ReasoningReplay::Nothing,
                _,
            ) => {}
        }
        if !answer.calls.is_empty() {
            message.array("tool_calls", |calls| {
                for (call, extras) in &answer.calls {
                    let extras = extras.filter(|_| dialect.replay == ReasoningReplay::CallExtras);
                    calls.object(|out| write_call(dialect, out, call, extras));
                }
            });
        }
    });
    tail.push(&out);
    tail.open = None;
}

fn write_call(dialect: &Dialect, out: &mut ObjectWriter<'_>, call: &ToolCall, extras: Option<&str>) {
    out.put("id", &dialect.call_ids.fit(&call.id.0));
    out.put("type", "function");
    out.object("function", |function| {
        function.put("name", &call.name);
        function.put("arguments", call.arguments.as_text());
    });
    if let Some(extras) = extras {
        out.raw("extra_content", extras.as_bytes());
    }
}

/// Writes one message per tool result. Images follow in a user message, because in this API a result can only be text.
fn write_replies(dialect: &Dialect, tail: &mut EncodedTail, parts: &[MessagePart]) {
    let replies: Vec<&ToolReply> = parts.iter().filter_map(MessagePart::as_reply).collect();
    for reply in &replies {
        let mut out = Vec::new();
        json_text::object(&mut out, |message| {
            message.put("role", "tool");
            message.put("tool_call_id", &dialect.call_ids.fit(&reply.call.0));
            message.put("content", &media::flagged_text(reply, media::text_beside_images(reply)));
        });
        tail.push(&out);
    }
    tail.open = Some(REPLIES);
    let images: Vec<_> = replies.iter().flat_map(|reply| media::images(reply)).collect();
    if !images.is_empty() {
        write_bridge_message(dialect, tail);
        let mut out = Vec::new();
        json_text::object(&mut out, |message| {
            message.put("role", "user");
            message.array("content", |content| {
                write_text(content, "Images from the tool replies above:");
                for (media_type, bytes) in &images {
                    write_image(content, &media::data_url(media_type, bytes));
                }
            });
        });
        tail.push(&out);
    }
}

/// Selects whether haft sends the field `strict` of functions to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrictField {
    Sent,
    Omitted,
}

/// Writes the tools as functions, in the format that Ollama uses too.
pub(crate) fn write_tools(tools: &[ModelTool], dialect: SchemaDialect, strict: StrictField) -> Vec<u8> {
    let mut out = Vec::new();
    json_text::array(&mut out, |list| {
        for tool in tools {
            list.object(|entry| {
                entry.put("type", "function");
                entry.object("function", |function| {
                    function.put("name", &tool.name);
                    function.put("description", &tool.description);
                    function.put("parameters", &schema::downgrade(&tool.input_schema, dialect).schema);
                    if tool.strict && strict == StrictField::Sent {
                        function.put("strict", &true);
                    }
                });
            });
        }
    });
    out
}

fn write_choice(dialect: &Dialect, body: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let function = |choice: &mut ObjectWriter<'_>, name: &str| {
        choice.put("type", "function");
        choice.object("function", |function| function.put("name", name));
    };
    let mode = |must_call: MustCall| match must_call {
        MustCall::No => "auto",
        MustCall::Yes => "required",
    };
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body.put("tool_choice", "none"),
        ToolChoice::Required => body.put("tool_choice", "required"),
        ToolChoice::Named(name) => body.object("tool_choice", |choice| function(choice, name)),
        ToolChoice::Allowed { names, must_call } if dialect.says(RequestFeature::ChoiceAllowed) => {
            body.object("tool_choice", |choice| {
                choice.put("type", "allowed_tools");
                choice.object("allowed_tools", |allowed| {
                    allowed.put("mode", mode(*must_call));
                    allowed.array("tools", |tools| {
                        for name in names {
                            tools.object(|tool| function(tool, name));
                        }
                    });
                });
            });
        }
        ToolChoice::Allowed { must_call, .. } => body.put("tool_choice", mode(*must_call)),
    }
    match request.parallel_calls {
        ParallelCalls::Allowed => {}
        ParallelCalls::OneAtATime => body.put("parallel_tool_calls", &false),
    }
}

fn write_output(dialect: &Dialect, body: &mut ObjectWriter<'_>, output: &OutputShape) {
    let any_json = |body: &mut ObjectWriter<'_>| {
        body.object("response_format", |format| format.put("type", "json_object"));
    };
    match output {
        OutputShape::Text => {}
        OutputShape::Json => any_json(body),
        OutputShape::Schema { .. } if !dialect.says(RequestFeature::OutputSchema) => any_json(body),
        OutputShape::Schema { name, schema } => body.object("response_format", |format| {
            format.put("type", "json_schema");
            format.object("json_schema", |json_schema| {
                json_schema.put("name", name);
                json_schema.put("strict", &true);
                json_schema.put("schema", &schema::downgrade(schema, SchemaDialect::OpenaiStrict).schema);
            });
        }),
    }
}

fn write_sampling(dialect: &Dialect, body: &mut ObjectWriter<'_>, sampling: &SamplingParameters) {
    let SamplingParameters { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } =
        sampling;
    body.put_some("temperature", temperature.as_ref());
    body.put_some("top_p", top_p.as_ref());
    body.put_some("top_k", top_k.as_ref().filter(|_| dialect.says(RequestFeature::TopK)));
    body.put_some(dialect.seed_key, seed.as_ref());
    body.put_some("presence_penalty", presence_penalty.as_ref());
    body.put_some("frequency_penalty", frequency_penalty.as_ref());
    body.put_some("stop", Some(stop).filter(|stop| !stop.is_empty()));
}

fn write_effort(dialect: &Dialect, body: &mut ObjectWriter<'_>, effort: Option<ReasoningEffort>) {
    let Some(effort) = effort.map(effort_name) else { return };
    match dialect.effort {
        EffortKey::Flat => body.put("reasoning_effort", effort),
        EffortKey::Nested => body.object("reasoning", |reasoning| reasoning.put("effort", effort)),
        EffortKey::Nowhere => {}
    }
}

/// Returns OpenAI's name for an effort level. The Responses API uses the same names.
pub(crate) fn effort_name(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Off => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Highest => "xhigh",
    }
}

fn write_delivery(dialect: &Dialect, body: &mut ObjectWriter<'_>, delivery: ReplyDelivery) {
    match delivery {
        ReplyDelivery::Whole => {}
        ReplyDelivery::Streamed => {
            body.put("stream", &true);
            match dialect.stream_usage {
                StreamUsage::Asked => {
                    body.object("stream_options", |options| options.put("include_usage", &true));
                }
                StreamUsage::Unasked => {}
            }
        }
    }
}
