use std::path::PathBuf;
use std::sync::Arc;

use haft_core::arguments::RawArguments;
use haft_core::conversation::{
    Conversation, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
};
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::tool::{CallId, ToolCall};
use haft_models::anthropic::ANTHROPIC;
use haft_models::gemini::GEMINI;
use haft_models::ollama::OLLAMA;
use haft_models::openai_chat::{OpenaiChat, dialect};
use haft_models::openai_responses::OPENAI_RESPONSES;
use haft_models::{DecodeContext, EncodeMemo, EncodedRequest, ReplyDelivery, WireFormat};
use serde_json::{Value, json};

pub(crate) fn wire(format: ModelApiFormat) -> &'static dyn WireFormat {
    match format {
        ModelApiFormat::OpenaiChat => &OpenaiChat(&dialect::OPENAI),
        ModelApiFormat::OpenaiResponses => &OPENAI_RESPONSES,
        ModelApiFormat::Anthropic => &ANTHROPIC,
        ModelApiFormat::Gemini => &GEMINI,
        ModelApiFormat::Ollama => &OLLAMA,
    }
}

/// A dialect that sends reasoning back, unlike OpenAI itself.
pub(crate) const OPENROUTER: OpenaiChat = OpenaiChat(&dialect::OPENROUTER);

/// Returns the key of the message list in a request body.
pub(crate) fn messages_key(format: ModelApiFormat) -> &'static str {
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::Anthropic | ModelApiFormat::Ollama => "messages",
        ModelApiFormat::OpenaiResponses => "input",
        ModelApiFormat::Gemini => "contents",
    }
}

pub(crate) fn tests_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The scenarios with recorded replies. Only `SKIPPED` may exclude a format from a scenario.
pub(crate) const SCENARIOS: [&str; 6] = ["text", "call", "parallel", "reasoning", "refusal", "length"];

/// The excluded combinations. Gemini and Ollama have no refusals: their models refuse in plain text.
pub(crate) const SKIPPED: [(&str, ModelApiFormat); 2] =
    [("refusal", ModelApiFormat::Gemini), ("refusal", ModelApiFormat::Ollama)];

pub(crate) fn grid() -> impl Iterator<Item = (&'static str, ModelApiFormat)> {
    let all = SCENARIOS.into_iter().flat_map(|scenario| ModelApiFormat::ALL.map(|format| (scenario, format)));
    all.filter(|cell| !SKIPPED.contains(cell))
}

pub(crate) fn whole(scenario: &str, format: ModelApiFormat) -> Vec<u8> {
    std::fs::read(tests_folder().join(format!("streams/{scenario}.{}.json", format.name()))).unwrap()
}

pub(crate) fn streamed(scenario: &str, format: ModelApiFormat) -> Vec<u8> {
    let ending = if format == ModelApiFormat::Ollama { "ndjson" } else { "sse" };
    std::fs::read(tests_folder().join(format!("streams/{scenario}.{}.{ending}", format.name()))).unwrap()
}

pub(crate) fn decode(scenario: &str, format: ModelApiFormat) -> ModelReply {
    wire(format)
        .decode(&whole(scenario, format), &DecodeContext { turn: 1, ..DecodeContext::default() })
        .unwrap()
}

/// Decodes a stream that arrives in chunks, and returns all events.
pub(crate) fn read_stream<'a>(
    wire: &dyn WireFormat,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<ModelEvent> {
    let mut decoder = wire.stream_decoder(&DecodeContext { turn: 1, ..DecodeContext::default() });
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events).unwrap();
    }
    decoder.finish(&mut events).unwrap();
    events
}

pub(crate) fn fold(events: Vec<ModelEvent>) -> ModelReply {
    ReplyFold::of(events)
}

pub(crate) fn tools() -> Arc<[ModelTool]> {
    let read = json!({
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": ["integer", "null"], "default": 10}},
        "required": ["path"],
        "additionalProperties": false,
    });
    let tool = |name: &str, description: &str, schema: Value| ModelTool {
        name: name.into(),
        description: description.into(),
        input_schema: Arc::new(schema),
        strict: false,
    };
    Arc::new([tool("read", "Reads a file.", read), tool("now", "Tells the time.", json!({}))])
}

pub(crate) fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: CallId(id.into()), name: "read".into(), arguments: RawArguments::from_text(arguments) }
}

pub(crate) fn conversation(messages: impl IntoIterator<Item = Message>) -> Arc<Conversation> {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message).unwrap();
    }
    Arc::new(conversation)
}

pub(crate) fn user(parts: Vec<MessagePart>) -> Message {
    Message { role: Role::User, parts }
}

pub(crate) fn calls(calls: &[ToolCall]) -> Message {
    Message::assistant(calls.iter().map(|call| MessagePart::new(PartBody::Call(call.clone()))).collect())
}

/// Returns a result for every call in a reply.
pub(crate) fn answers(message: &Message, text: &str) -> Message {
    Message::tool(message.calls().map(|call| ToolReply::text(call, text)).collect())
}

pub(crate) fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest::new("m-1", conversation(messages))
}

pub(crate) fn encode(wire: &dyn WireFormat, request: &ModelRequest) -> EncodedRequest {
    wire.encode(request, ReplyDelivery::Whole, &mut EncodeMemo::default())
}

pub(crate) fn body(wire: &dyn WireFormat, request: &ModelRequest) -> Value {
    serde_json::from_slice(&encode(wire, request).body).unwrap()
}
