//! Encodes requests to the Messages API.

use haft_core::conversation::{
    Annotation, Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
};
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, PromptCaching, ReasoningEffort, ToolChoice,
};
use haft_core::output::{FoundTools, OutputContent};
use haft_core::tool::ToolCall;

use super::UNSUPPORTED;
use crate::call_id::CallIdRule;
use crate::capability::thinks_by_budget;
use crate::encode_memo::{EncodeMemo, EncodedTail, Encoder};
use crate::json_text::{self, ArrayWriter, ObjectWriter};
use crate::media;
use crate::object_arguments::object_json;
use crate::schema::{self, SchemaDialect};
use crate::wire::EncodedRequest;
use haft_core::settings::models::ReplyDelivery;

const FORMAT: ModelApiFormat = ModelApiFormat::Anthropic;

/// The default of `max_tokens`, a field that this API requires.
const OUTPUT_TOKENS_DEFAULT: u32 = 8192;

const CACHE_MARKER: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// The maximum number of user turns with a cache marker. The API accepts four markers per request; the tools and the
/// system prompt use two.
const MARKED_TURNS_MAX: usize = 2;

pub(super) fn encode(
    request: &ModelRequest,
    delivery: ReplyDelivery,
    memo: &mut EncodeMemo,
) -> EncodedRequest {
    let encoder = AnthropicEncoder { caching: request.caching, deferred: &request.deferred };
    let recalled = memo.encode_cached(&encoder, request);
    let tail = &recalled.messages.tail;
    let mut body = Vec::with_capacity(tail.bytes.len() + recalled.tools.len() + recalled.system.len() + 1024);
    json_text::object(&mut body, |body| {
        body.put("model", &request.model);
        body.put("max_tokens", &output_tokens(request));
        if !request.tools.is_empty() {
            body.raw("tools", recalled.tools);
            write_choice(body, request);
        }
        if !recalled.system.is_empty() {
            body.raw("system", recalled.system);
        }
        let messages = match request.caching {
            PromptCaching::Full => marked(tail),
            PromptCaching::None => unmarked(tail),
        };
        body.raw_pieces("messages", &messages);
        write_thinking(body, request);
        write_output_config(body, request);
        body.put_some("temperature", request.sampling.temperature.as_ref());
        body.put_some("top_p", request.sampling.top_p.as_ref());
        body.put_some("top_k", request.sampling.top_k.as_ref());
        body.put_some("stop_sequences", Some(&request.sampling.stop).filter(|stop| !stop.is_empty()));
        match delivery {
            ReplyDelivery::Whole => {}
            ReplyDelivery::Streamed => body.put("stream", &true),
        }
    });
    EncodedRequest {
        path: "messages".into(),
        headers: &[("anthropic-version", "2023-06-01")],
        body,
        decode_context: recalled.decode_context(request),
        unsupported: recalled.unsupported(request, UNSUPPORTED),
    }
}

fn unmarked(tail: &EncodedTail) -> Vec<&[u8]> {
    vec![b"[", &tail.bytes, tail.closing(b"]}"), b"]"]
}

/// Returns the encoded messages, with cache markers inserted at the ends of the last turns.
fn marked(tail: &EncodedTail) -> Vec<&[u8]> {
    let mut pieces: Vec<&[u8]> = vec![b"["];
    let mut from = 0;
    for mark in &tail.marks {
        pieces.extend([&tail.bytes[from..*mark], CACHE_MARKER]);
        from = *mark;
    }
    pieces.extend([&tail.bytes[from..], tail.closing(b"]}"), b"]"]);
    pieces
}

/// Encodes messages as content blocks.
struct AnthropicEncoder<'a> {
    caching: PromptCaching,
    /// The tools that a search result may load by name.
    deferred: &'a [ModelTool],
}

impl AnthropicEncoder<'_> {
    fn mark(&self, object: &mut ObjectWriter<'_>) {
        match self.caching {
            PromptCaching::Full => object.object("cache_control", |control| control.put("type", "ephemeral")),
            PromptCaching::None => {}
        }
    }
}

impl Encoder for AnthropicEncoder<'_> {
    /// Returns the name under which the memo stores encoded bytes. Requests without caching have a different name,
    /// because their tools and system text have no markers. Requests with deferred tools have a different name too,
    /// because these tools change the search results.
    fn name(&self) -> &'static str {
        match (self.caching, self.deferred.is_empty()) {
            (PromptCaching::Full, true) => FORMAT.name(),
            (PromptCaching::None, true) => "anthropic without caching",
            (PromptCaching::Full, false) => "anthropic with deferred tools",
            (PromptCaching::None, false) => "anthropic with deferred tools, without caching",
        }
    }

    fn message(&self, tail: &mut EncodedTail, message: &Message) {
        let mut blocks = Vec::new();
        match message.role {
            Role::System => message.parts.iter().for_each(|part| write_system_inside(&mut blocks, part)),
            Role::User => message.parts.iter().for_each(|part| write_input(&mut blocks, &part.body)),
            Role::Tool => {
                message.parts.iter().for_each(|part| write_reply(&mut blocks, part, self.deferred));
                // Write the text after all results: the API does not accept text next to references, and results must
                // come before all text.
                for found in message.parts.iter().filter_map(|part| loaded(part, self.deferred)) {
                    write_text(&mut blocks, &found.rest, &[]);
                }
            }
            Role::Assistant => {
                message.parts.iter().for_each(|part| write_output(&mut blocks, part));
                tail.push_blocks("assistant", &blocks, (br#"{"role":"assistant","content":["#, b"]}"));
                return;
            }
        }
        // The API requires the results of a turn's tool calls in one user message, before any user text that follows.
        // The conversation already has this order.
        let goes_on = tail.open == Some("user");
        tail.push_blocks("user", &blocks, (br#"{"role":"user","content":["#, b"]}"));
        if !blocks.is_empty() {
            mark_end(tail, goes_on.then_some(()));
        }
    }

    fn system(&self, system: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !is_blank(system) {
            json_text::array(&mut out, |blocks| {
                blocks.object(|block| {
                    block.put("type", "text");
                    block.put("text", system);
                    self.mark(block);
                });
            });
        }
        out
    }

    fn tools(&self, tools: &[ModelTool], deferred: &[ModelTool]) -> Vec<u8> {
        let mut out = Vec::new();
        json_text::array(&mut out, |list| {
            for (number, tool) in tools.iter().enumerate() {
                list.object(|entry| {
                    write_tool(entry, tool);
                    if number + 1 == tools.len() {
                        self.mark(entry);
                    }
                });
            }
            for tool in deferred {
                list.object(|entry| {
                    write_tool(entry, tool);
                    entry.put("defer_loading", &true);
                });
            }
        });
        out
    }
}

fn write_tool(entry: &mut ObjectWriter<'_>, tool: &ModelTool) {
    entry.put("name", &tool.name);
    entry.put("description", &tool.description);
    entry.put("input_schema", &schema::downgrade(&tool.input_schema, SchemaDialect::Anthropic).schema);
}

/// Returns the search result if the provider can load its tools by name. Every referenced tool must be in the request,
/// or the provider rejects the request.
fn loaded<'a>(part: &'a MessagePart, deferred: &[ModelTool]) -> Option<&'a FoundTools> {
    let PartBody::Reply(reply) = &part.body else { return None };
    let [OutputContent::FoundTools(found)] = reply.content.as_slice() else { return None };
    let is_deferred = |name: &String| deferred.iter().any(|tool| tool.name == *name);
    (!found.defined.is_empty() && found.defined.iter().all(is_deferred)).then_some(&**found)
}

/// Records the position of a cache marker: just inside the closing brace of the last block. A message that grows keeps
/// only the marker at its new end.
fn mark_end(tail: &mut EncodedTail, goes_on: Option<()>) {
    if goes_on.is_some() {
        tail.marks.pop();
    }
    tail.marks.push(tail.bytes.len() - 1);
    let too_many = tail.marks.len().saturating_sub(MARKED_TURNS_MAX);
    tail.marks.drain(..too_many);
}

fn block(blocks: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    raw_block(blocks, |out| json_text::object(out, write));
}

fn raw_block(blocks: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if !blocks.is_empty() {
        blocks.push(b',');
    }
    write(blocks);
}

/// Returns true if a text block would be blank. The API rejects blank blocks, even those that its own models wrote.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn write_text(blocks: &mut Vec<u8>, text: &str, annotations: &[Annotation]) {
    if is_blank(text) {
        return;
    }
    let own: Vec<_> = annotations.iter().filter(|annotation| annotation.format == FORMAT).collect();
    block(blocks, |block| {
        block.put("type", "text");
        block.put("text", text);
        if !own.is_empty() {
            block.array("citations", |list| {
                for citation in &own {
                    list.raw(citation.json.as_bytes());
                }
            });
        }
    });
}

fn write_system_inside(blocks: &mut Vec<u8>, part: &MessagePart) {
    if let PartBody::Text { text, .. } = &part.body {
        write_text(blocks, &format!("<system>\n{text}\n</system>"), &[]);
    }
}

fn write_input(blocks: &mut Vec<u8>, body: &PartBody) {
    match body {
        PartBody::Text { text, .. } => write_text(blocks, text, &[]),
        PartBody::Image(media) => block(blocks, |block| write_media(block, "image", media)),
        PartBody::File { name, media } => block(blocks, |block| {
            write_media(block, "document", media);
            block.put_some("title", name.as_deref());
        }),
        PartBody::Audio(media) => write_text(blocks, &media::described("audio", media), &[]),
        // A user message never contains these parts.
        PartBody::Refusal(_)
        | PartBody::Reasoning(_)
        | PartBody::Call(_)
        | PartBody::Reply(_)
        | PartBody::Opaque => {}
    }
}

fn write_media(block: &mut ObjectWriter<'_>, kind: &str, media: &Media) {
    block.put("type", kind);
    block.object("source", |source| match &media.source {
        MediaSource::Url(url) => {
            source.put("type", "url");
            source.put("url", url);
        }
        MediaSource::Bytes(bytes) if media.media_type.starts_with("text/") => {
            source.put("type", "text");
            source.put("media_type", "text/plain");
            source.put("data", &String::from_utf8_lossy(bytes));
        }
        MediaSource::Bytes(bytes) => write_base64(source, &media.media_type, bytes),
    });
}

fn write_base64(source: &mut ObjectWriter<'_>, media_type: &str, bytes: &[u8]) {
    source.put("type", "base64");
    source.put("media_type", media_type);
    source.put("data", &media::base64(bytes));
}

fn write_output(blocks: &mut Vec<u8>, part: &MessagePart) {
    match &part.body {
        PartBody::Text { text, annotations } => write_text(blocks, text, annotations),
        PartBody::Refusal(text) => write_text(blocks, text, &[]),
        PartBody::Image(media) => write_text(blocks, &media::described("image", media), &[]),
        PartBody::Audio(media) => write_text(blocks, &media::described("audio", media), &[]),
        PartBody::File { media, .. } => write_text(blocks, &media::described("file", media), &[]),
        PartBody::Reasoning(text) => {
            if let Some(signature) = part.state_for(FORMAT) {
                block(blocks, |block| {
                    block.put("type", "thinking");
                    block.put("thinking", text);
                    block.put("signature", signature);
                });
            }
        }
        PartBody::Call(call) => block(blocks, |block| write_call(block, call)),
        PartBody::Opaque => {
            if let Some(json) = part.state_for(FORMAT) {
                raw_block(blocks, |out| out.extend_from_slice(json.as_bytes()));
            }
        }
        PartBody::Reply(_) => {}
    }
}

fn write_call(block: &mut ObjectWriter<'_>, call: &ToolCall) {
    block.put("type", "tool_use");
    block.put("id", &CallIdRule::USUAL.fit(&call.id.0));
    block.put("name", &call.name);
    block.raw("input", object_json(&call.arguments).as_bytes());
}

fn write_reply(blocks: &mut Vec<u8>, part: &MessagePart, deferred: &[ModelTool]) {
    let PartBody::Reply(reply) = &part.body else { return };
    block(blocks, |block| {
        block.put("type", "tool_result");
        block.put("tool_use_id", &CallIdRule::USUAL.fit(&reply.call.0));
        if let Some(found) = loaded(part, deferred) {
            block.array("content", |content| write_references(content, found));
        } else if media::images(reply).next().is_some() {
            block.array("content", |content| write_reply_pieces(content, reply));
        } else {
            block.put("content", &media::reply_text(reply));
        }
        if reply.is_error {
            block.put("is_error", &true);
        }
    });
}

fn write_references(content: &mut ArrayWriter<'_>, found: &FoundTools) {
    for name in &found.defined {
        content.object(|block| {
            block.put("type", "tool_reference");
            block.put("tool_name", name);
        });
    }
}

fn write_reply_pieces(content: &mut ArrayWriter<'_>, reply: &ToolReply) {
    for piece in &reply.content {
        match piece.as_image() {
            Some((media_type, bytes)) => content.object(|block| {
                block.put("type", "image");
                block.object("source", |source| write_base64(source, media_type, bytes));
            }),
            None => write_reply_text(content, &piece.as_text()),
        }
    }
}

fn write_reply_text(content: &mut ArrayWriter<'_>, text: &str) {
    if !is_blank(text) {
        content.object(|block| {
            block.put("type", "text");
            block.put("text", text);
        });
    }
}

fn write_choice(body: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let one = request.parallel_calls == ParallelCalls::OneAtATime;
    let (kind, name) = match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::Allowed { must_call: MustCall::No, .. } => ("auto", None),
        ToolChoice::None => ("none", None),
        ToolChoice::Required | ToolChoice::Allowed { must_call: MustCall::Yes, .. } => ("any", None),
        ToolChoice::Named(name) => ("tool", Some(name)),
    };
    if kind == "auto" && !one {
        return;
    }
    body.object("tool_choice", |choice| {
        choice.put("type", kind);
        choice.put_some("name", name);
        if one && kind != "none" {
            choice.put("disable_parallel_tool_use", &true);
        }
    });
}

/// Writes `thinking`. The API rejects thinking together with a forced tool call. The forced call has priority, because
/// the caller asked for it.
fn write_thinking(body: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let forced = match &request.tool_choice {
        ToolChoice::Required
        | ToolChoice::Named(_)
        | ToolChoice::Allowed { must_call: MustCall::Yes, .. } => true,
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { must_call: MustCall::No, .. } => false,
    };
    match request.reasoning {
        None => {}
        Some(ReasoningEffort::Off) => body.object("thinking", |thinking| thinking.put("type", "disabled")),
        Some(_) if forced => {}
        Some(effort) if thinks_by_budget(&request.model) => {
            // If `output_tokens_max` is too small for the minimum budget, no thinking is requested; such an answer is
            // short anyway.
            if let Some(tokens) = thinking_budget(effort, request.output_tokens_max) {
                body.object("thinking", |thinking| {
                    thinking.put("type", "enabled");
                    thinking.put("budget_tokens", &tokens);
                });
            }
        }
        Some(_) => body.object("thinking", |thinking| thinking.put("type", "adaptive")),
    }
}

/// Returns the caller's output limit, or a default that is large enough for the answer and the thinking budget, which
/// the API counts toward the same limit.
fn output_tokens(request: &ModelRequest) -> u32 {
    let thinking = match request.reasoning {
        Some(effort) if thinks_by_budget(&request.model) => budget_wanted(effort),
        Some(_) | None => 0,
    };
    request.output_tokens_max.unwrap_or(OUTPUT_TOKENS_DEFAULT + thinking)
}

/// The minimum thinking budget that the API accepts, in tokens.
const BUDGET_TOKENS_MIN: u32 = 1024;

/// Returns the thinking budget: at most half of the output limit, so that there is space for the answer too.
fn thinking_budget(effort: ReasoningEffort, tokens_max: Option<u32>) -> Option<u32> {
    let wanted = budget_wanted(effort);
    let Some(tokens_max) = tokens_max else { return Some(wanted) };
    let budget = wanted.min(tokens_max / 2).max(BUDGET_TOKENS_MIN);
    (budget < tokens_max).then_some(budget)
}

fn budget_wanted(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::Off => 0,
        ReasoningEffort::Minimal => 1024,
        ReasoningEffort::Low => 2048,
        ReasoningEffort::Medium => 8192,
        ReasoningEffort::High => 16_384,
        // With `OUTPUT_TOKENS_DEFAULT` the sum stays below 32,000, the lowest output limit among these models.
        ReasoningEffort::Highest => 20_480,
    }
}

fn write_output_config(body: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let effort = request.reasoning.filter(|_| !thinks_by_budget(&request.model));
    let effort = effort.and_then(|effort| match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::Highest => Some("max"),
    });
    let schema = match &request.output {
        OutputShape::Text | OutputShape::Json => None,
        OutputShape::Schema { schema, .. } => {
            Some(schema::downgrade(schema, SchemaDialect::AnthropicOutput).schema)
        }
    };
    if effort.is_none() && schema.is_none() {
        return;
    }
    body.object("output_config", |config| {
        config.put_some("effort", effort);
        if let Some(schema) = schema {
            config.object("format", |format| {
                format.put("type", "json_schema");
                format.put("schema", &schema);
            });
        }
    });
}
