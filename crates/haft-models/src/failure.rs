//! What a provider's error means: its status and its words, looked up in one table for all formats.

use std::time::Duration;

use haft_core::model_error::{ModelError, ModelErrorKind};
use serde_json::Value;

use crate::reading;
use crate::redact::redact;
use crate::wire::ErrorHead;

/// How much of an error's text is kept.
const MESSAGE_CHARS_MAX: usize = 500;

/// Words of a code or a message, all lower case, and what they mean; the first row that fits counts.
const WORDS: &[(&str, ModelErrorKind)] = &[
    ("insufficient_quota", ModelErrorKind::QuotaExhausted),
    ("exceeded your current quota", ModelErrorKind::QuotaExhausted),
    ("credit balance is too low", ModelErrorKind::QuotaExhausted),
    ("insufficient credits", ModelErrorKind::QuotaExhausted),
    ("billing_error", ModelErrorKind::QuotaExhausted),
    ("perday", ModelErrorKind::QuotaExhausted),
    ("context_length_exceeded", ModelErrorKind::ContextTooLong),
    ("maximum context length", ModelErrorKind::ContextTooLong),
    ("prompt is too long", ModelErrorKind::ContextTooLong),
    ("input token count", ModelErrorKind::ContextTooLong),
    ("exceeds the available context size", ModelErrorKind::ContextTooLong),
    ("does not support tools", ModelErrorKind::ToolsUnsupported),
    ("support tool use", ModelErrorKind::ToolsUnsupported),
    ("tool calling is not supported", ModelErrorKind::ToolsUnsupported),
    ("function calling is not enabled", ModelErrorKind::ToolsUnsupported),
    ("model_not_found", ModelErrorKind::UnknownModel),
    ("content_policy_violation", ModelErrorKind::Blocked),
    ("content_filter", ModelErrorKind::Blocked),
    ("overloaded_error", ModelErrorKind::Overloaded),
    ("rate_limit", ModelErrorKind::RateLimited),
    ("too_many_requests", ModelErrorKind::RateLimited),
    ("resource_exhausted", ModelErrorKind::RateLimited),
    ("authentication_error", ModelErrorKind::Unauthorized),
    ("invalid_api_key", ModelErrorKind::Unauthorized),
    ("api key not valid", ModelErrorKind::Unauthorized),
    ("permission_error", ModelErrorKind::Forbidden),
    ("not_found_error", ModelErrorKind::UnknownModel),
    ("request_too_large", ModelErrorKind::RequestTooLarge),
    ("timeout_error", ModelErrorKind::Timeout),
    ("invalid_request_error", ModelErrorKind::InvalidRequest),
    ("api_error", ModelErrorKind::ServerFailed),
    ("server_error", ModelErrorKind::ServerFailed),
];

/// Reads the answer to a request that failed.
pub(crate) fn decode(head: &ErrorHead<'_>, body: &[u8]) -> ModelError {
    let body: Value =
        reading::read(body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
    let said = Said::of(&body);
    let mut error = said.error(by_status(head.status));
    error.retry_after = head.delay().max(error.retry_after);
    if said.message.is_empty() {
        error.message = format!("the server answered with status {}", head.status);
    }
    error
}

/// Reads an error that came inside of an answer which began well. `body` is the error itself, or an object around it.
pub(crate) fn inside(body: &Value) -> ModelError {
    Said::of(body).error(ModelErrorKind::ServerFailed)
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

/// What an error's body says, wherever it says it.
struct Said {
    message: String,
    /// Codes, types and statuses.
    codes: String,
    delay: Option<Duration>,
}

impl Said {
    fn of(body: &Value) -> Self {
        // Some servers answer with a list of one.
        let body = body.get(0).unwrap_or(body);
        let inner = match body.get("error") {
            Some(inner) if !inner.is_null() => inner,
            _ => body,
        };
        let message = ["message", "detail"].iter().find_map(|key| inner.get(*key)?.as_str());
        let message = message.or(inner.as_str()).unwrap_or_default();
        let codes: Vec<_> =
            ["code", "type", "status"].iter().filter_map(|key| inner.get(*key)?.as_str()).collect();
        let details = inner.get("details").and_then(Value::as_array);
        let delay = details.into_iter().flatten().find_map(|detail| detail.get("retryDelay")?.as_str());
        // A quota's id tells a limit per minute from one per day.
        let quotas =
            details.into_iter().flatten().filter_map(|detail| detail.get("violations")).map(Value::to_string);
        Self {
            message: message.to_owned(),
            codes: codes.into_iter().map(str::to_owned).chain(quotas).collect::<Vec<_>>().join(" "),
            delay: delay.and_then(seconds).or_else(|| delay_in(message)),
        }
    }

    fn error(&self, otherwise: ModelErrorKind) -> ModelError {
        let words = format!("{} {}", self.codes, self.message).to_lowercase();
        let kind = WORDS.iter().find(|(word, _)| words.contains(word)).map_or(otherwise, |(_, kind)| *kind);
        let message: String = self.message.chars().take(MESSAGE_CHARS_MAX).collect();
        let message =
            if message.is_empty() { self.codes.chars().take(MESSAGE_CHARS_MAX).collect() } else { message };
        ModelError { kind, message: redact(&message), retry_after: self.delay }
    }
}

/// `20`, `20s`, `1.5s` or `350ms`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Some providers say the delay only in the sentence: "try again in 1.2s".
fn delay_in(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("try again in ")?;
    seconds(rest.split_whitespace().next()?.trim_end_matches(['.', ',']))
}

#[cfg(test)]
mod tests;
