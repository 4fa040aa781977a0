//! Maps provider errors to error kinds by status and text, with one table for all formats.

use std::time::Duration;

use haft_core::model_error::{ModelError, ModelErrorKind};
use serde_json::Value;

use crate::bounded_json;
use crate::redact::redact;
use crate::wire::ErrorHead;

/// The maximum length of an error message, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

/// Lower-case substrings of an error code or message, and the error kind that each indicates. The first match is used,
/// regardless of the HTTP status.
const WORDS: &[(&str, ModelErrorKind)] = &[
    // Gemini uses one message for every limit. The quota ids distinguish daily limits, which mean a long wait, from
    // limits per minute.
    ("perday", ModelErrorKind::QuotaExhausted),
    ("perminute", ModelErrorKind::RateLimited),
    ("insufficient_quota", ModelErrorKind::QuotaExhausted),
    ("exceeded your current quota", ModelErrorKind::QuotaExhausted),
    ("credit balance is too low", ModelErrorKind::QuotaExhausted),
    ("api usage limits", ModelErrorKind::QuotaExhausted),
    ("insufficient credits", ModelErrorKind::QuotaExhausted),
    ("insufficient balance", ModelErrorKind::QuotaExhausted),
    ("billing_hard_limit", ModelErrorKind::QuotaExhausted),
    ("billing_error", ModelErrorKind::QuotaExhausted),
    ("context_length_exceeded", ModelErrorKind::ContextTooLong),
    ("maximum context length", ModelErrorKind::ContextTooLong),
    ("maximum prompt length", ModelErrorKind::ContextTooLong),
    ("exceed context limit", ModelErrorKind::ContextTooLong),
    ("exceeds the context window", ModelErrorKind::ContextTooLong),
    ("prompt is too long", ModelErrorKind::ContextTooLong),
    ("input token count", ModelErrorKind::ContextTooLong),
    ("exceeds the available context size", ModelErrorKind::ContextTooLong),
    ("does not support tools", ModelErrorKind::ToolsUnsupported),
    ("does not support function calling", ModelErrorKind::ToolsUnsupported),
    ("support tool use", ModelErrorKind::ToolsUnsupported),
    ("tool calling is not supported", ModelErrorKind::ToolsUnsupported),
    ("'tools' is not supported", ModelErrorKind::ToolsUnsupported),
    ("function calling is not enabled", ModelErrorKind::ToolsUnsupported),
    // vLLM and llama.cpp report these errors if they were started without a tool-call parser.
    ("--enable-auto-tool-choice", ModelErrorKind::ToolsUnsupported),
    ("tools param requires --jinja", ModelErrorKind::ToolsUnsupported),
    ("unsupported param: tools", ModelErrorKind::ToolsUnsupported),
    ("model_not_found", ModelErrorKind::UnknownModel),
    ("content_policy_violation", ModelErrorKind::Blocked),
    ("content_filter", ModelErrorKind::Blocked),
    ("overloaded_error", ModelErrorKind::Overloaded),
    ("authentication_error", ModelErrorKind::Unauthorized),
    ("invalid_api_key", ModelErrorKind::Unauthorized),
    ("api_key_invalid", ModelErrorKind::Unauthorized),
    ("incorrect api key", ModelErrorKind::Unauthorized),
    ("api key not valid", ModelErrorKind::Unauthorized),
    ("permission_error", ModelErrorKind::Forbidden),
    ("not_found_error", ModelErrorKind::UnknownModel),
    ("request_too_large", ModelErrorKind::RequestTooLarge),
];

/// Substrings that indicate a whole family of errors. Several providers put one of these words into every error, so a
/// more specific HTTP status has priority. An error inside a 200 response may have no other indication.
const FAMILIES: &[(&str, ModelErrorKind)] = &[
    ("rate_limit", ModelErrorKind::RateLimited),
    ("too_many_requests", ModelErrorKind::RateLimited),
    ("resource_exhausted", ModelErrorKind::RateLimited),
    ("unavailable", ModelErrorKind::Overloaded),
    ("timeout_error", ModelErrorKind::Timeout),
    ("invalid_prompt", ModelErrorKind::Blocked),
    ("invalid_request_error", ModelErrorKind::InvalidRequest),
    ("invalid_argument", ModelErrorKind::InvalidRequest),
    ("api_error", ModelErrorKind::ServerFailed),
    ("server_error", ModelErrorKind::ServerFailed),
];

/// Decodes the response to a failed request.
pub(crate) fn decode(head: &ErrorHead<'_>, body: &[u8]) -> ModelError {
    let body: Value = bounded_json::read(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
    let fields = ErrorBodyFields::of(&body);
    let mut error = fields.error(find(WORDS, &fields.words()).unwrap_or_else(|| by_status(head.status)));
    error.retry_after = head.delay().max(error.retry_after);
    if fields.message.is_empty() && fields.codes.is_empty() {
        error.message = format!("the model provider answered with status {}", head.status);
    }
    error
}

/// Decodes an error inside a response with a success status. `body` is the error itself, or an object that wraps it.
pub(crate) fn inside(body: &Value) -> ModelError {
    let fields = ErrorBodyFields::of(body);
    let words = fields.words();
    let kind = find(WORDS, &words).or(fields.status.map(by_status)).or_else(|| find(FAMILIES, &words));
    fields.error(kind.unwrap_or(ModelErrorKind::ServerFailed))
}

fn by_status(status: u16) -> ModelErrorKind {
    match status {
        401 => ModelErrorKind::Unauthorized,
        402 => ModelErrorKind::QuotaExhausted,
        403 => ModelErrorKind::Forbidden,
        404 => ModelErrorKind::UnknownModel,
        408 | 504 => ModelErrorKind::Timeout,
        413 => ModelErrorKind::RequestTooLarge,
        429 => ModelErrorKind::RateLimited,
        503 | 529 => ModelErrorKind::Overloaded,
        400..=499 => ModelErrorKind::InvalidRequest,
        _ => ModelErrorKind::ServerFailed,
    }
}

fn find(table: &[(&str, ModelErrorKind)], words: &str) -> Option<ModelErrorKind> {
    table.iter().find(|(word, _)| words.contains(word)).map(|(_, kind)| *kind)
}

/// The relevant fields of an error body, from all the places where providers put them.
struct ErrorBodyFields {
    message: String,
    /// The codes, types, statuses and reasons, joined.
    codes: String,
    /// The HTTP status in the body. In a 200 response this is the real status.
    status: Option<u16>,
    delay: Option<Duration>,
}

impl ErrorBodyFields {
    fn of(body: &Value) -> Self {
        // Some servers wrap the error in an array of one element.
        let body = body.get(0).unwrap_or(body);
        let inner = match body.get("error") {
            Some(inner) if !inner.is_null() => inner,
            _ => body,
        };
        let message = ["message", "detail"].iter().find_map(|key| text_of(inner.get(*key)?));
        let message = message.or_else(|| inner.as_str().map(str::to_owned)).unwrap_or_default();
        let codes = ["code", "type", "status"].iter().filter_map(|key| inner.get(*key)?.as_str());
        let details = inner.get("details").and_then(Value::as_array);
        let details = || details.into_iter().flatten();
        let delay = details().find_map(|detail| detail.get("retryDelay")?.as_str());
        let reasons = details().filter_map(|detail| detail.get("reason")?.as_str());
        let quotas = details().filter_map(|detail| detail.get("violations")).map(Value::to_string);
        let codes = codes.chain(reasons).map(str::to_owned).chain(quotas);
        let status = inner.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self {
            codes: codes.collect::<Vec<_>>().join(" "),
            status: status.filter(|status| (400..=599).contains(status)),
            delay: delay.and_then(seconds).or_else(|| delay_in(&message)),
            message,
        }
    }

    fn words(&self) -> String {
        format!("{} {}", self.codes, self.message).to_lowercase()
    }

    fn error(&self, kind: ModelErrorKind) -> ModelError {
        let text = if self.message.is_empty() { &self.codes } else { &self.message };
        let message: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
        ModelError { kind, message: redact(&message), retry_after: self.delay }
    }
}

/// Returns the message as text. Servers that validate field by field send a list of errors instead of a sentence.
fn text_of(message: &Value) -> Option<String> {
    match message {
        Value::String(text) => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => Some(message.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Parses a duration such as `20`, `20s`, `1.5s` or `350ms`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Finds the delay in a message such as "try again in 1.2s", because some providers state it only there.
fn delay_in(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ").or_else(|| message.split_once("retry in "))?;
    seconds(rest.split_whitespace().next()?.trim_end_matches(['.', ',']))
}

#[cfg(test)]
mod tests;
