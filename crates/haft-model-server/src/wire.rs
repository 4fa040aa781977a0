//! The interface of a wire format: parses requests, and writes responses, streams and errors.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::anthropic::Anthropic;
use crate::fault::ErrorResponse;
use crate::gemini::Gemini;
use crate::ollama::Ollama;
use crate::openai_chat::OpenAiChat;
use crate::openai_responses::OpenAiResponses;
use crate::parsed_request::ParsedRequest;
use crate::script::{ChatReasoning, ScriptPart, ScriptStep};

/// The wire formats that the server implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApiFormat {
    OpenAiChat,
    OpenAiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

/// A wire format as its provider documents it, with frames in the provider's order. An error from `read` becomes the
/// message of a 400 response.
pub(crate) trait ProviderApi: Sync {
    fn read(&self, request: &ApiRequest) -> Result<ParsedRequest, String>;
    fn whole(&self, reply: &ScriptedReply) -> Value;
    fn stream(&self, reply: &ScriptedReply) -> Vec<String>;
    fn error(&self, failure: &ErrorResponse) -> Value;
    fn error_event(&self, reply: &ScriptedReply, failure: &ErrorResponse) -> Vec<String>;
}

/// A received HTTP request.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) address: PathParameters,
    pub(crate) body: Value,
    /// True if the request opts in to beta features.
    pub(crate) beta: bool,
}

/// The operation that a request path selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    Turn(PathParameters),
    Models,
}

/// The parameters in the path of a Gemini request: the model and the delivery. Requests of other providers have them in
/// the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathParameters {
    pub(crate) model: String,
    pub(crate) verb: String,
    pub(crate) alt: Option<String>,
}

/// A response that the server is about to write.
#[derive(Debug)]
pub(crate) struct ScriptedReply<'a> {
    pub(crate) step: &'a ScriptStep,
    pub(crate) asked: &'a ParsedRequest,
    pub(crate) request: &'a Value,
    pub(crate) turn: usize,
    /// The request number, which makes the response id unique.
    pub(crate) serial: usize,
    pub(crate) chat_reasoning: ChatReasoning,
}

/// The creation time of all responses. It is constant so that tests can compare responses.
pub(crate) const CREATED: u64 = 1_700_000_000;

impl ApiFormat {
    pub(crate) fn wire(self) -> &'static dyn ProviderApi {
        match self {
            Self::OpenAiChat => &OpenAiChat,
            Self::OpenAiResponses => &OpenAiResponses,
            Self::Anthropic => &Anthropic,
            Self::Gemini => &Gemini,
            Self::Ollama => &Ollama,
        }
    }

    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic | Self::Gemini => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// Returns the keep-alive comments that may precede the first frame.
    pub(crate) fn comments(self, count: usize) -> Vec<String> {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses | Self::Anthropic => {
                vec![": still working\n\n".to_owned(); count]
            }
            // Send no comments: Gemini's own SDK would parse a comment as JSON, and Ollama's line format has no
            // comments.
            Self::Gemini | Self::Ollama => Vec::new(),
        }
    }
}

impl ScriptedReply<'_> {
    /// Returns the id of a call for which the script sets no id. The id is the same for each attempt at a turn.
    pub(crate) fn call_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}{}_{index}", self.turn)
    }

    /// Converts the index of a call among all parts into its index among all calls.
    pub(crate) fn calls_before(&self, at: usize) -> usize {
        self.step.say.iter().take(at).filter(|part| matches!(part, ScriptPart::Call(_))).count()
    }

    /// Returns the text before a part, for formats that join all text into one.
    pub(crate) fn text_before(&self, at: usize) -> String {
        let text = |part: &ScriptPart| match part {
            ScriptPart::Text(text) => text.clone(),
            ScriptPart::Json(value) => value.to_string(),
            ScriptPart::Cited(cited) => cited.text.clone(),
            ScriptPart::Reasoning(_)
            | ScriptPart::Redacted(_)
            | ScriptPart::Call(_)
            | ScriptPart::Refusal(_) => String::new(),
        };
        self.step.say.iter().take(at).map(text).collect()
    }

    pub(crate) fn deltas(&self, text: &str) -> Vec<String> {
        self.step.pace.deltas(text)
    }
}

/// Returns an event-stream frame with data only.
pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Returns a frame whose event name is the `type` of its data.
pub(crate) fn event(value: &Value) -> String {
    let name = value.get("type").and_then(Value::as_str).unwrap_or("message");
    format!("event: {name}\ndata: {value}\n\n")
}

/// Adds the fields of one object to another.
pub(crate) fn merge(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// Returns the error body of the Chat Completions and Responses APIs.
pub(crate) fn openai_error(failure: &ErrorResponse) -> Value {
    let kind = failure.kind_or(|status| match status {
        429 => "rate_limit_exceeded",
        500.. => "server_error",
        401 => "invalid_api_key",
        404 => "model_not_found",
        _ => "invalid_request_error",
    });
    json!({ "error": { "message": failure.message, "type": kind, "param": null, "code": kind } })
}
