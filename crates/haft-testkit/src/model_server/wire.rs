//! What every format can do: read a request, and write an answer, a stream or an error.

use serde::Deserialize;
use serde_json::{Value, json};

use super::anthropic::Anthropic;
use super::asked::Asked;
use super::fault::Failure;
use super::gemini::Gemini;
use super::ollama::Ollama;
use super::openai_chat::OpenAiChat;
use super::openai_responses::OpenAiResponses;
use super::script::{ChatReasoning, Part, Step};

/// The formats that the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    OpenAiChat,
    OpenAiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// A format as its provider documents it. The order of frames is the provider's; an error is a sentence that the
/// provider would answer with status 400.
pub(super) trait Wire: Sync {
    fn read(&self, request: &Request) -> Result<Asked, String>;
    fn whole(&self, reply: &Reply) -> Value;
    fn stream(&self, reply: &Reply) -> Vec<String>;
    fn error(&self, failure: &Failure) -> Value;
    fn error_event(&self, reply: &Reply, failure: &Failure) -> Vec<String>;
}

/// A request as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) address: Address,
    pub(super) body: Value,
}

/// What a path asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Turn(Address),
    Models,
}

/// What one provider has in the path and the others in the body: the model, and how to deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) model: String,
    pub(super) verb: String,
    pub(super) alt: Option<String>,
}

/// An answer to be written.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) step: &'a Step,
    pub(super) asked: &'a Asked,
    pub(super) request: &'a Value,
    pub(super) turn: usize,
    /// Tells the answers of this server apart.
    pub(super) serial: usize,
    pub(super) chat_reasoning: ChatReasoning,
}

/// All answers were made at the same moment, so that they can be compared.
pub(super) const CREATED: u64 = 1_700_000_000;

impl Format {
    pub(super) fn wire(self) -> &'static dyn Wire {
        match self {
            Self::OpenAiChat => &OpenAiChat,
            Self::OpenAiResponses => &OpenAiResponses,
            Self::Anthropic => &Anthropic,
            Self::Gemini => &Gemini,
            Self::Ollama => &Ollama,
        }
    }

    pub(super) fn stream_type(self) -> &'static str {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic | Self::Gemini => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// The keep-alive comments that may come before the first frame.
    pub(super) fn comments(self, count: usize) -> Vec<String> {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic => {
                vec![": still working\n\n".to_owned(); count]
            }
            // Gemini's own SDK takes a comment for the beginning of JSON; Ollama has no comments.
            Self::Gemini | Self::Ollama => Vec::new(),
        }
    }
}

impl Reply<'_> {
    /// The id of a call, where the script gives none: the same for each attempt at the same turn.
    pub(super) fn call_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}{}_{index}", self.turn)
    }

    /// The number of a call among the calls of the answer, from its place among all parts.
    pub(super) fn calls_before(&self, at: usize) -> usize {
        self.step.say.iter().take(at).filter(|part| matches!(part, Part::Call(_))).count()
    }

    pub(super) fn deltas(&self, text: &str) -> Vec<String> {
        self.step.pace.deltas(text)
    }
}

/// A frame of an event stream that has only data.
pub(super) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A frame whose event is named after the `type` of its data.
pub(super) fn event(value: &Value) -> String {
    let name = value.get("type").and_then(Value::as_str).unwrap_or("message");
    format!("event: {name}\ndata: {value}\n\n")
}

/// Adds the fields of one object to another.
pub(super) fn merge(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// The error of chat completions and of responses.
pub(super) fn openai_error(failure: &Failure) -> Value {
    let kind = failure.kind_or(|status| match status {
        429 => "rate_limit_exceeded",
        500.. => "server_error",
        401 => "invalid_api_key",
        404 => "model_not_found",
        _ => "invalid_request_error",
    });
    json!({ "error": { "message": failure.message, "type": kind, "param": null, "code": kind } })
}
