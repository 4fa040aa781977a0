//! Encodes requests to `generateContent`.

use std::fmt::Write as _;

use haft_core::conversation::{Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role};
use haft_core::model_request::{ModelRequest, ModelTool, MustCall, OutputShape, ReasoningEffort, ToolChoice};
use haft_core::tool::ToolCall;

use super::UNSUPPORTED;
use crate::encode_memo::{EncodeMemo, EncodedTail, Encoder};
use crate::json_text::{self, ObjectWriter};
use crate::model_data::{self, EffortName, ModelFamily, ReasoningRule};
use crate::object_arguments::object_json;
use crate::schema::{self, SchemaDialect};
use crate::wire::EncodedRequest;
use crate::{call_id, media};
use haft_core::settings::models::ReplyDelivery;

const FORMAT: ModelApiFormat = ModelApiFormat::Gemini;

/// The thought signature for a call that another model made. The API rejects calls without a signature.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn encode(
    request: &ModelRequest,
    delivery: ReplyDelivery,
    memo: &mut EncodeMemo,
) -> EncodedRequest {
    let recalled = memo.encode_cached(&GeminiEncoder, request);
    let tail = &recalled.messages.tail;
    let mut body = Vec::with_capacity(tail.bytes.len() + recalled.tools.len() + recalled.system.len() + 1024);
    json_text::object(&mut body, |body| {
        if !recalled.system.is_empty() {
            body.raw("systemInstruction", recalled.system);
        }
        // Leave the list out if it is empty, because the API rejects an empty list of declarations.
        if !request.tools.is_empty() {
            body.raw("tools", recalled.tools);
            write_choice(body, &request.tool_choice);
        }
        body.raw_pieces("contents", &[b"[", &tail.bytes, tail.closing(b"]}"), b"]"]);
        body.object("generationConfig", |config| write_config(config, request));
    });
    EncodedRequest {
        path: path(&request.model, delivery),
        headers: &[],
        body,
        decode_context: recalled.decode_context(request),
        unsupported: recalled.unsupported(request, UNSUPPORTED),
    }
}

fn path(model: &str, delivery: ReplyDelivery) -> String {
    let mut path = String::from(if model.contains('/') { "" } else { "models/" });
    // Escape the model name, so that it cannot add a query or a fragment to the URL.
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._/@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path.push_str(match delivery {
        ReplyDelivery::Whole => ":generateContent",
        ReplyDelivery::Streamed => ":streamGenerateContent?alt=sse",
    });
    path
}

/// Encodes messages as contents with parts. Adjacent messages with the same role become one content.
struct GeminiEncoder;

impl Encoder for GeminiEncoder {
    fn name(&self) -> &'static str {
        FORMAT.name()
    }

    fn message(&self, tail: &mut EncodedTail, message: &Message) {
        let mut parts = EncodedParts::default();
        match message.role {
            Role::System => message.parts.iter().for_each(|part| write_system_inside(&mut parts, part)),
            Role::User => message.parts.iter().for_each(|part| write_input(&mut parts, &part.body)),
            Role::Tool => write_replies(&mut parts, &message.parts),
            Role::Assistant => {
                message.parts.iter().for_each(|part| write_output(&mut parts, part));
                tail.push_blocks("model", &parts.bytes, (br#"{"role":"model","parts":["#, b"]}"));
                return;
            }
        }
        tail.push_blocks("user", &parts.bytes, (br#"{"role":"user","parts":["#, b"]}"));
    }

    fn system(&self, system: &str) -> Vec<u8> {
        let mut out = Vec::new();
        if !system.is_empty() {
            json_text::object(&mut out, |content| {
                content.array("parts", |parts| parts.object(|part| part.put("text", system)));
            });
        }
        out
    }

    fn tools(&self, tools: &[ModelTool], _: &[ModelTool]) -> Vec<u8> {
        let mut out = Vec::new();
        json_text::array(&mut out, |list| {
            list.object(|entry| {
                entry.array("functionDeclarations", |declarations| {
                    for tool in tools {
                        declarations.object(|out| write_tool(out, tool));
                    }
                });
            });
        });
        out
    }
}

/// Writes a tool declaration. A tool without parameters gets no `parameters` field, because the API rejects an
/// object without properties.
fn write_tool(out: &mut ObjectWriter<'_>, tool: &ModelTool) {
    out.put("name", &tool.name);
    out.put("description", &tool.description);
    let parameters = schema::downgrade(&tool.input_schema, SchemaDialect::Gemini).schema;
    if parameters
        .get("properties")
        .and_then(|properties| properties.as_object())
        .is_some_and(|all| !all.is_empty())
    {
        out.put("parameters", &parameters);
    }
}

/// Encoded parts, separated by commas.
#[derive(Default)]
struct EncodedParts {
    bytes: Vec<u8>,
    has_call: bool,
}

impl EncodedParts {
    fn add(&mut self, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        json_text::object(&mut self.bytes, write);
    }

    fn text(&mut self, text: &str, signature: Option<&str>) {
        if !text.is_empty() || signature.is_some() {
            self.add(|part| {
                part.put("text", text);
                part.put_some("thoughtSignature", signature);
            });
        }
    }

    fn raw(&mut self, json: &str) {
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(json.as_bytes());
    }
}

fn write_system_inside(parts: &mut EncodedParts, part: &MessagePart) {
    if let PartBody::Text { text, .. } = &part.body {
        parts.text(&format!("<system>\n{text}\n</system>"), None);
    }
}

fn write_input(parts: &mut EncodedParts, body: &PartBody) {
    match body {
        PartBody::Text { text, .. } => parts.text(text, None),
        PartBody::Image(media) | PartBody::Audio(media) | PartBody::File { media, .. } => {
            write_media(parts, media, None);
        }
        // A user message never contains these parts.
        PartBody::Refusal(_)
        | PartBody::Reasoning(_)
        | PartBody::Call(_)
        | PartBody::Reply(_)
        | PartBody::Opaque => {}
    }
}

fn write_media(parts: &mut EncodedParts, media: &Media, signature: Option<&str>) {
    parts.add(|part| {
        match &media.source {
            MediaSource::Bytes(bytes) => write_bytes(part, &media.media_type, bytes),
            MediaSource::Url(url) => part.object("fileData", |data| {
                data.put("mimeType", &media.media_type);
                data.put("fileUri", url);
            }),
        }
        part.put_some("thoughtSignature", signature);
    });
}

fn write_bytes(part: &mut ObjectWriter<'_>, media_type: &str, bytes: &[u8]) {
    part.object("inlineData", |data| {
        data.put("mimeType", media_type);
        data.put("data", &media::base64(bytes));
    });
}

fn write_output(parts: &mut EncodedParts, part: &MessagePart) {
    let signature = part.state_for(FORMAT);
    match &part.body {
        PartBody::Text { text, .. } => parts.text(text, signature),
        PartBody::Refusal(text) => parts.text(text, None),
        PartBody::Image(media) | PartBody::Audio(media) | PartBody::File { media, .. } => {
            write_media(parts, media, signature);
        }
        PartBody::Reasoning(text) => {
            if let Some(signature) = signature {
                parts.add(|part| {
                    part.put("text", text);
                    part.put("thought", &true);
                    part.put("thoughtSignature", signature);
                });
            }
        }
        PartBody::Call(call) => write_call(parts, call, signature),
        PartBody::Opaque => signature.into_iter().for_each(|json| parts.raw(json)),
        PartBody::Reply(_) => {}
    }
}

/// Writes a call. The API signs and checks only the first call in a turn.
fn write_call(parts: &mut EncodedParts, call: &ToolCall, signature: Option<&str>) {
    let is_first = !std::mem::replace(&mut parts.has_call, true);
    let signature = signature.or(is_first.then_some(FOREIGN_SIGNATURE));
    parts.add(|part| {
        part.object("functionCall", |function| {
            function.put_some("id", known_id(&call.id.0));
            function.put("name", &call.name);
            function.raw("args", object_json(&call.arguments).as_bytes());
        });
        part.put_some("thoughtSignature", signature);
    });
}

/// Returns the id, unless haft generated it. Without ids, the API matches results to calls by order and name.
fn known_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !call_id::is_generated_id(id))
}

/// Writes all tool results first, then their images.
fn write_replies(parts: &mut EncodedParts, messages: &[MessagePart]) {
    let replies = || messages.iter().filter_map(MessagePart::as_reply);
    for reply in replies() {
        parts.add(|part| {
            part.object("functionResponse", |function| {
                function.put_some("id", known_id(&reply.call.0));
                function.put("name", &reply.name);
                function.object("response", |response| {
                    let key = if reply.is_error { "error" } else { "output" };
                    response.put(key, &media::text_beside_images(reply));
                });
            });
        });
    }
    for (media_type, bytes) in replies().flat_map(media::images) {
        parts.add(|part| write_bytes(part, media_type, bytes));
    }
}

fn write_choice(body: &mut ObjectWriter<'_>, choice: &ToolChoice) {
    let one;
    let (mode, names): (_, &[String]) = match choice {
        ToolChoice::Auto => return,
        ToolChoice::None => ("NONE", &[]),
        ToolChoice::Required => ("ANY", &[]),
        ToolChoice::Named(name) => {
            one = [name.clone()];
            ("ANY", &one)
        }
        ToolChoice::Allowed { names, must_call: MustCall::Yes } => ("ANY", names),
        ToolChoice::Allowed { names, must_call: MustCall::No } => ("VALIDATED", names),
    };
    body.object("toolConfig", |config| {
        config.object("functionCallingConfig", |calling| {
            calling.put("mode", mode);
            if !names.is_empty() {
                calling.put("allowedFunctionNames", names);
            }
        });
    });
}

fn write_config(config: &mut ObjectWriter<'_>, request: &ModelRequest) {
    let sampling = &request.sampling;
    config.put_some("temperature", sampling.temperature.as_ref());
    config.put_some("topP", sampling.top_p.as_ref());
    config.put_some("topK", sampling.top_k.as_ref());
    config.put_some("seed", sampling.seed.as_ref());
    config.put_some("presencePenalty", sampling.presence_penalty.as_ref());
    config.put_some("frequencyPenalty", sampling.frequency_penalty.as_ref());
    config.put_some("stopSequences", Some(&sampling.stop).filter(|stop| !stop.is_empty()));
    config.put_some("maxOutputTokens", request.output_tokens_max.as_ref());
    match &request.output {
        OutputShape::Text => {}
        OutputShape::Json => config.put("responseMimeType", "application/json"),
        OutputShape::Schema { schema, .. } => {
            config.put("responseMimeType", "application/json");
            config.put("responseSchema", &schema::downgrade(schema, SchemaDialect::Gemini).schema);
        }
    }
    let Some(effort) = request.reasoning else { return };
    match model_data::family_of(&request.model).filter(|family| family.reasoning == ReasoningRule::Budget) {
        Some(family) => {
            if let Some(tokens) = thinking_budget(family, effort, request.output_tokens_max) {
                config.object("thinkingConfig", |thinking| write_thinking_budget(thinking, tokens, effort));
            }
        }
        None => config.object("thinkingConfig", |thinking| write_thinking_level(thinking, effort)),
    }
}

/// Returns the thinking budget in tokens, within the range of the model and at most half of the output limit, which
/// includes the thinking. Returns `None` if the limit is too small for the minimum budget.
fn thinking_budget(
    family: &ModelFamily,
    effort: ReasoningEffort,
    output_tokens_max: Option<u32>,
) -> Option<u32> {
    let least = family.budget_min.unwrap_or(0);
    let wanted = match effort {
        ReasoningEffort::Off if family.efforts.contains(&EffortName::Off) => return Some(0),
        // The Pro models cannot turn thinking off, so this is their minimum budget.
        ReasoningEffort::Off => least,
        ReasoningEffort::Minimal => 512,
        ReasoningEffort::Low => 2048,
        ReasoningEffort::Medium => 8192,
        ReasoningEffort::High => 16_384,
        ReasoningEffort::Highest => 24_576,
    };
    let room = output_tokens_max.map_or(u32::MAX, |most| most / 2).min(family.budget_max.unwrap_or(u32::MAX));
    (least <= room).then(|| wanted.clamp(least, room))
}

fn write_thinking_budget(thinking: &mut ObjectWriter<'_>, tokens: u32, effort: ReasoningEffort) {
    thinking.put("thinkingBudget", &tokens);
    if effort != ReasoningEffort::Off {
        thinking.put("includeThoughts", &true);
    }
}

fn write_thinking_level(thinking: &mut ObjectWriter<'_>, effort: ReasoningEffort) {
    let level = match effort {
        ReasoningEffort::Off => return thinking.put("thinkingBudget", &0),
        ReasoningEffort::Minimal => "MINIMAL",
        ReasoningEffort::Low => "LOW",
        ReasoningEffort::Medium => "MEDIUM",
        ReasoningEffort::High | ReasoningEffort::Highest => "HIGH",
    };
    thinking.put("thinkingLevel", level);
    thinking.put("includeThoughts", &true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_is_escaped_in_the_url_path() {
        assert_eq!(path("gemini-2.5-flash", ReplyDelivery::Whole), "models/gemini-2.5-flash:generateContent");
        assert_eq!(path("tunedModels/x", ReplyDelivery::Whole), "tunedModels/x:generateContent");
        assert_eq!(path("a?b#c", ReplyDelivery::Streamed), "models/a%3Fb%23c:streamGenerateContent?alt=sse");
    }
}
