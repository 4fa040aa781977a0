//! Encodes requests to the Responses API.

use haft_core::conversation::{
    Annotation, Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
};
use haft_core::internal_tools::tool_search::TOOL_SEARCH;
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, ReasoningSummary,
    ToolChoice, Verbosity,
};
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::tool::ToolCall;

use super::UNSUPPORTED;
use crate::call_id::CallIdRule;
use crate::capability::may_reason;
use crate::encode_memo::{EncodeMemo, EncodedTail, Encoder};
use crate::json_text::{self, ArrayWriter, ObjectWriter};
use crate::media;
use crate::object_arguments::object_json;
use crate::openai_chat::effort_name;
use crate::schema::{self, SchemaDialect};
use crate::wire::EncodedRequest;
use haft_core::settings::models::ReplyDelivery;

const FORMAT: ModelApiFormat = ModelApiFormat::OpenaiResponses;

pub(super) fn encode(
    request: &ModelRequest,
    delivery: ReplyDelivery,
    memo: &mut EncodeMemo,
) -> EncodedRequest {
    let encoder = ResponsesEncoder { deferred: &request.deferred };
    let recalled = memo.encode_cached(&encoder, request);
    let items = &recalled.messages.tail.bytes;
    let mut body = Vec::with_capacity(items.len() + recalled.tools.len() + recalled.system.len() + 1024);
    json_text::object(&mut body, |body| {
        body.put("model", &request.model);
        if !recalled.system.is_empty() {
            body.raw("instructions", recalled.system);
        }
        body.raw_pieces("input", &[b"[", items, b"]"]);
        if !request.tools.is_empty() {
            body.raw("tools", recalled.tools);
            write_choice(body, request);
        }
        write_output(body, &request.output, request.verbosity);
        write_reasoning(body, request.reasoning, request.reasoning_summary);
        body.put_some("temperature", request.sampling.temperature.as_ref());
        body.put_some("top_p", request.sampling.top_p.as_ref());
        body.put_some("max_output_tokens", request.output_tokens_max.as_ref());
        // The server stores nothing, so the next request must contain the model's reasoning in encrypted form.
        body.put("store", &false);
        // Ask only reasoning models, because a model without reasoning rejects a request for encrypted reasoning.
        if may_reason(&request.model) {
            body.put("include", &["reasoning.encrypted_content"]);
        }
        match delivery {
            ReplyDelivery::Whole => {}
            ReplyDelivery::Streamed => body.put("stream", &true),
        }
    });
    EncodedRequest {
        path: "responses".into(),
        headers: &[],
        body,
        decode_context: recalled.decode_context(request),
        unsupported: recalled.unsupported(request, UNSUPPORTED),
    }
}

/// Encodes messages as items.
struct ResponsesEncoder<'a> {
    /// The tools that a search result may load. If there are any, searches are encoded as separate items.
    deferred: &'a [ModelTool],
}

impl Encoder for ResponsesEncoder<'_> {
    fn name(&self) -> &'static str {
        if self.deferred.is_empty() { FORMAT.name() } else { "openai_responses with deferred tools" }
    }

    fn message(&self, tail: &mut EncodedTail, message: &Message) {
        match message.role {
            Role::System => write_input(tail, "developer", &message.parts),
            Role::User => write_input(tail, "user", &message.parts),
            Role::Assistant => write_assistant(tail, &message.parts, self.deferred),
            Role::Tool => message.parts.iter().for_each(|part| write_reply(tail, part, self.deferred)),
        }
    }

    fn system(&self, system: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !system.is_empty() {
            json_text::value(&mut out, system);
        }
        out
    }

    /// Encodes the tools. Does not send deferred tools, because each search result contains the definitions that it
    /// found.
    fn tools(&self, tools: &[ModelTool], deferred: &[ModelTool]) -> Vec<u8> {
        let mut out = Vec::new();
        json_text::array(&mut out, |list| {
            for tool in tools {
                list.object(|entry| {
                    if is_search(&tool.name, deferred) {
                        write_search_tool(entry, tool);
                    } else {
                        write_tool(entry, tool);
                    }
                });
            }
        });
        out
    }
}

/// Returns true if calls to this tool are encoded as this API's tool searches.
fn is_search(name: &str, deferred: &[ModelTool]) -> bool {
    name == TOOL_SEARCH && !deferred.is_empty()
}

fn write_tool(entry: &mut ObjectWriter<'_>, tool: &ModelTool) {
    entry.put("type", "function");
    entry.put("name", &tool.name);
    entry.put("description", &tool.description);
    entry.put("parameters", &schema::downgrade(&tool.input_schema, SchemaDialect::Json).schema);
    // Turn strict mode off unless the caller wants it: it is the default of this API, and it rejects many schemas.
    entry.put("strict", &tool.strict);
}

fn write_search_tool(entry: &mut ObjectWriter<'_>, tool: &ModelTool) {
    entry.put("type", "tool_search");
    entry.put("execution", "client");
    entry.put("description", &tool.description);
    entry.put("parameters", &schema::downgrade(&tool.input_schema, SchemaDialect::Json).schema);
}

fn write_input(tail: &mut EncodedTail, role: &str, parts: &[MessagePart]) {
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "message");
        item.put("role", role);
        item.array("content", |content| parts.iter().for_each(|part| write_piece(content, &part.body)));
    });
    tail.push(&out);
}

fn write_piece(content: &mut ArrayWriter<'_>, body: &PartBody) {
    match body {
        PartBody::Text { text, .. } => write_text(content, text),
        PartBody::Image(media) => write_image(content, &media::url(media)),
        PartBody::Audio(media) => write_text(content, &media::described("audio", media)),
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
        part.put("type", "input_text");
        part.put("text", text);
    });
}

fn write_image(content: &mut ArrayWriter<'_>, url: &str) {
    content.object(|part| {
        part.put("type", "input_image");
        part.put("image_url", url);
        part.put("detail", "auto");
    });
}

fn write_file(content: &mut ArrayWriter<'_>, name: Option<&str>, media: &Media) {
    content.object(|part| {
        part.put("type", "input_file");
        match &media.source {
            MediaSource::Url(url) => part.put("file_url", url),
            MediaSource::Bytes(_) => {
                part.put("filename", name.unwrap_or("file"));
                part.put("file_data", &media::url(media));
            }
        }
    });
}

/// Writes an assistant message. Adjacent text parts of one message item are written as one item; every other part is a
/// separate item.
fn write_assistant(tail: &mut EncodedTail, parts: &[MessagePart], deferred: &[ModelTool]) {
    let mut at = 0;
    while at < parts.len() {
        let own = item_of(&parts[at]);
        let same =
            parts[at..].iter().take_while(|part| is_message_content(part) && item_of(part) == own).count();
        if same > 0 {
            write_message_item(tail, own, &parts[at..at + same]);
        } else {
            write_item(tail, &parts[at], deferred);
        }
        at += same.max(1);
    }
}

/// Returns the id and the state of the item to which a part belongs. The state is the phase of a message or the
/// namespace of a call.
fn item_of(part: &MessagePart) -> (Option<&str>, Option<&str>) {
    (part.id_for(FORMAT), part.state_for(FORMAT))
}

fn is_message_content(part: &MessagePart) -> bool {
    match &part.body {
        PartBody::Text { .. }
        | PartBody::Refusal(_)
        | PartBody::Image(_)
        | PartBody::Audio(_)
        | PartBody::File { .. } => true,
        PartBody::Reasoning(_) | PartBody::Call(_) | PartBody::Reply(_) | PartBody::Opaque => false,
    }
}

fn write_message_item(
    tail: &mut EncodedTail,
    (id, phase): (Option<&str>, Option<&str>),
    parts: &[MessagePart],
) {
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "message");
        item.put_some("id", id);
        item.put("role", "assistant");
        if id.is_some() {
            item.put("status", "completed");
        }
        item.put_some("phase", phase);
        if id.is_some() {
            item.array("content", |content| {
                for part in parts {
                    write_output_piece(content, &part.body);
                }
            });
        } else {
            // Output parts are allowed only in messages from this API, which have an id. Any other message is plain
            // text.
            item.put("content", &plain_text(parts));
        }
    });
    tail.push(&out);
}

fn plain_text(parts: &[MessagePart]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.body {
        PartBody::Text { text, .. } | PartBody::Refusal(text) => Some(text.clone()),
        PartBody::Image(media) => Some(media::described("image", media)),
        PartBody::Audio(media) => Some(media::described("audio", media)),
        PartBody::File { media, .. } => Some(media::described("file", media)),
        // The Responses API represents these parts as items of their own.
        PartBody::Reasoning(_) | PartBody::Call(_) | PartBody::Reply(_) | PartBody::Opaque => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn write_output_piece(content: &mut ArrayWriter<'_>, body: &PartBody) {
    match body {
        PartBody::Text { text, annotations } => write_output_text(content, text, annotations),
        PartBody::Image(media) => write_output_text(content, &media::described("image", media), &[]),
        PartBody::Audio(media) => write_output_text(content, &media::described("audio", media), &[]),
        PartBody::File { media, .. } => write_output_text(content, &media::described("file", media), &[]),
        PartBody::Refusal(text) => content.object(|part| {
            part.put("type", "refusal");
            part.put("refusal", text);
        }),
        // The Responses API represents these parts as items of their own.
        PartBody::Reasoning(_) | PartBody::Call(_) | PartBody::Reply(_) | PartBody::Opaque => {}
    }
}

fn write_output_text(content: &mut ArrayWriter<'_>, text: &str, annotations: &[Annotation]) {
    content.object(|part| {
        part.put("type", "output_text");
        part.put("text", text);
        part.array("annotations", |list| {
            let own = annotations.iter().filter(|annotation| annotation.format == FORMAT);
            own.for_each(|annotation| list.raw(annotation.json.as_bytes()));
        });
    });
}

/// Encodes a message part that the Responses API represents as its own item. Reasoning items and unknown items are sent
/// back unchanged, and only if they came from this API.
fn write_item(tail: &mut EncodedTail, part: &MessagePart, deferred: &[ModelTool]) {
    match &part.body {
        PartBody::Call(call) if is_search(&call.name, deferred) => {
            write_search_call(tail, call, part.id_for(FORMAT));
        }
        PartBody::Call(call) => write_call(tail, call, item_of(part)),
        PartBody::Reasoning(_) | PartBody::Opaque => {
            if let Some(item) = part.state_for(FORMAT) {
                tail.push(item.as_bytes());
            }
        }
        PartBody::Text { .. }
        | PartBody::Refusal(_)
        | PartBody::Image(_)
        | PartBody::Audio(_)
        | PartBody::File { .. }
        | PartBody::Reply(_) => {}
    }
}

fn write_call(tail: &mut EncodedTail, call: &ToolCall, (id, namespace): (Option<&str>, Option<&str>)) {
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "function_call");
        item.put_some("id", id);
        item.put("call_id", &CallIdRule::USUAL.fit(&call.id.0));
        item.put_some("namespace", namespace);
        item.put("name", &call.name);
        item.put("arguments", call.arguments.as_text());
        if id.is_some() {
            item.put("status", "completed");
        }
    });
    tail.push(&out);
}

fn write_search_call(tail: &mut EncodedTail, call: &ToolCall, id: Option<&str>) {
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "tool_search_call");
        item.put_some("id", id);
        item.put("call_id", &CallIdRule::USUAL.fit(&call.id.0));
        item.put("execution", "client");
        item.put("status", "completed");
        item.raw("arguments", object_json(&call.arguments).as_bytes());
    });
    tail.push(&out);
}

/// Writes the result of a search: the definitions of the found tools, and the rest of the result as a message, because
/// the item has no field for text.
fn write_search_reply(tail: &mut EncodedTail, reply: &ToolReply, deferred: &[ModelTool]) {
    let found = reply.content.iter().find_map(|piece| match piece {
        OutputContent::FoundTools(found) => Some(&**found),
        _ => None,
    });
    let names = found.map_or(&[][..], |found| &found.defined);
    let tools: Vec<&ModelTool> =
        names.iter().filter_map(|name| deferred.iter().find(|tool| tool.name == *name)).collect();
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "tool_search_output");
        item.put("call_id", &CallIdRule::USUAL.fit(&reply.call.0));
        item.put("execution", "client");
        item.put("status", "completed");
        item.array("tools", |list| write_loaded_tools(list, &tools));
    });
    tail.push(&out);
    let text = match found {
        Some(found) if tools.len() == found.defined.len() && !tools.is_empty() => found.rest.clone(),
        Some(_) | None => media::reply_text(reply),
    };
    if !text.is_empty() {
        write_input(tail, "developer", &[MessagePart::text(text)]);
    }
}

/// Writes found tools as namespaces, one for each server, because the models are trained on namespaces. The API rejects
/// a namespace that occurs twice in one list. The functions keep their full names, so that a call is clear without its
/// namespace.
fn write_loaded_tools(list: &mut ArrayWriter<'_>, tools: &[&ModelTool]) {
    let server = |tool: &ModelTool| tool.name.split_once("__").map(|(server, _)| server.to_owned());
    let mut servers: Vec<Option<String>> = Vec::new();
    for tool in tools {
        if !servers.contains(&server(tool)) {
            servers.push(server(tool));
        }
    }
    for of in servers {
        let own = tools.iter().filter(|tool| server(tool) == of);
        match &of {
            Some(name) => list.object(|entry| {
                entry.put("type", "namespace");
                entry.put("name", name);
                entry.put("description", &format!("Tools of {name}."));
                entry.array("tools", |list| {
                    own.for_each(|tool| list.object(|entry| write_loaded(entry, tool)));
                });
            }),
            None => own.for_each(|tool| list.object(|entry| write_loaded(entry, tool))),
        }
    }
}

fn write_loaded(entry: &mut ObjectWriter<'_>, tool: &ModelTool) {
    write_tool(entry, tool);
    entry.put("defer_loading", &true);
}

fn write_reply(tail: &mut EncodedTail, part: &MessagePart, deferred: &[ModelTool]) {
    let PartBody::Reply(reply) = &part.body else { return };
    if is_search(&reply.name, deferred) {
        return write_search_reply(tail, reply, deferred);
    }
    let mut out = Vec::new();
    json_text::object(&mut out, |item| {
        item.put("type", "function_call_output");
        item.put("call_id", &CallIdRule::USUAL.fit(&reply.call.0));
        if media::images(reply).next().is_some() {
            item.array("output", |output| write_reply_pieces(output, reply));
        } else {
            item.put("output", &media::flagged_text(reply, media::reply_text(reply)));
        }
    });
    tail.push(&out);
}

fn write_reply_pieces(output: &mut ArrayWriter<'_>, reply: &ToolReply) {
    if reply.is_error {
        write_text(output, "Error:");
    }
    for piece in &reply.content {
        if let Some((media_type, bytes)) = piece.as_image() {
            write_image(output, &media::data_url(media_type, bytes));
        } else {
            let alone = ToolOutput { content: vec![piece.clone()], ..ToolOutput::default() };
            write_text(output, &alone.as_text());
        }
    }
}

fn write_choice(body: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let function = |choice: &mut ObjectWriter<'_>, name: &str| {
        if is_search(name, &request.deferred) {
            return choice.put("type", "tool_search");
        }
        choice.put("type", "function");
        choice.put("name", name);
    };
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => body.put("tool_choice", "none"),
        ToolChoice::Required => body.put("tool_choice", "required"),
        ToolChoice::Named(name) => body.object("tool_choice", |choice| function(choice, name)),
        ToolChoice::Allowed { names, must_call } => body.object("tool_choice", |choice| {
            choice.put("type", "allowed_tools");
            choice.put(
                "mode",
                match must_call {
                    MustCall::No => "auto",
                    MustCall::Yes => "required",
                },
            );
            choice.array("tools", |tools| {
                for name in names {
                    tools.object(|tool| function(tool, name));
                }
            });
        }),
    }
    match request.parallel_calls {
        ParallelCalls::Allowed => {}
        ParallelCalls::OneAtATime => body.put("parallel_tool_calls", &false),
    }
}

fn write_output(body: &mut ObjectWriter<'_>, output: &OutputShape, verbosity: Option<Verbosity>) {
    if *output == OutputShape::Text && verbosity.is_none() {
        return;
    }
    body.object("text", |text| {
        match output {
            OutputShape::Text => {}
            OutputShape::Json => text.object("format", |format| format.put("type", "json_object")),
            OutputShape::Schema { name, schema } => text.object("format", |format| {
                format.put("type", "json_schema");
                format.put("name", name);
                format.put("strict", &true);
                format.put("schema", &schema::downgrade(schema, SchemaDialect::OpenaiStrict).schema);
            }),
        }
        text.put_some("verbosity", verbosity.map(Verbosity::name));
    });
}

fn write_reasoning(
    body: &mut ObjectWriter<'_>,
    effort: Option<ReasoningEffort>,
    summary: Option<ReasoningSummary>,
) {
    if effort.is_none() && summary.is_none() {
        return;
    }
    body.object("reasoning", |reasoning| {
        reasoning.put_some("effort", effort.map(effort_name));
        if effort != Some(ReasoningEffort::Off) {
            reasoning.put("summary", summary.unwrap_or(ReasoningSummary::Auto).name());
        }
    });
}
