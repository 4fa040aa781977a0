//! Builds the response object of the Open Responses API.

use std::collections::HashMap;
use std::time::Duration;

use haft_core::approval::ApprovalId;
use haft_core::event_log::LogUsage;
use haft_core::model_error::ModelErrorKind;
use haft_core::run::finish::{FinishClass, FinishReason, RunFinish};
use serde_json::{Map, Value, json};

use super::compact;
use super::request::{DeltaPadding, Truncation, TurnSealing};
use super::tool_origin::ToolOrigins;
use super::workspace::QUOTA_CODE;
use crate::error::{ApiError, ApiErrorKind};

/// The fields of a response that are known when it begins.
#[derive(Debug, Clone)]
pub(crate) struct ResponseHead {
    pub(crate) id: String,
    /// The creation time, in seconds since 1970.
    pub(crate) created_s: u64,
    /// The model name in the request.
    pub(crate) model: String,
    /// Fields of the request that the response repeats.
    pub(crate) echo: Map<String, Value>,
    /// The MCP servers behind the tools of the run.
    pub(crate) origins: ToolOrigins,
    /// The item ids of the approval requests that the client has answered, by approval id. The items of the calls refer
    /// to these item ids.
    pub(crate) approved: HashMap<ApprovalId, String>,
    pub(crate) padding: DeltaPadding,
    /// Warnings that become items of the output.
    pub(crate) warnings: Vec<String>,
    /// The encrypted conversation, if it was compacted before the response.
    pub(crate) compacted: Option<String>,
    /// The `mcp_list_tools` items, without ids.
    pub(crate) listed: Vec<Value>,
    pub(crate) sealing: TurnSealing,
    /// The tokens that the compaction before the response used.
    pub(crate) compaction_usage: Option<LogUsage>,
    /// True if the run waited in the run queue when the response was created.
    pub(crate) is_queued: bool,
    pub(crate) event_options: EventOptions,
}

/// The client's options for the events of its streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventOptions {
    pub(crate) own: OwnEvents,
    pub(crate) reasoning: ReasoningEventNames,
}

impl EventOptions {
    /// Records the options in the fields that a response repeats. A restarted server must send the same events.
    pub(crate) fn record(self, echo: &mut Map<String, Value>) {
        match self.own {
            OwnEvents::On => {}
            OwnEvents::Off => drop(echo.insert(OWN_EVENTS_FIELD.into(), "off".into())),
        }
        match self.reasoning {
            ReasoningEventNames::Openai => {}
            names @ ReasoningEventNames::OpenResponses => {
                drop(echo.insert(REASONING_EVENTS_FIELD.into(), names.name().into()));
            }
        }
    }

    fn of_stored(response: &Value) -> Self {
        let own = if response[OWN_EVENTS_FIELD] == "off" { OwnEvents::Off } else { OwnEvents::On };
        let names = response[REASONING_EVENTS_FIELD].as_str().and_then(ReasoningEventNames::from_name);
        Self { own, reasoning: names.unwrap_or_default() }
    }
}

/// Selects the names of the events with the model's reasoning text, for which the specification and the SDKs use
/// different names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReasoningEventNames {
    /// The names `response.reasoning_text.*`, which OpenAI's SDKs know.
    #[default]
    Openai,
    /// The names `response.reasoning.*` of the Open Responses specification.
    OpenResponses,
}

haft_core::name_table!(ReasoningEventNames { Openai: "openai", OpenResponses: "open-responses" });

impl ReasoningEventNames {
    pub(crate) fn delta(self) -> &'static str {
        match self {
            Self::Openai => "response.reasoning_text.delta",
            Self::OpenResponses => "response.reasoning.delta",
        }
    }

    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Openai => "response.reasoning_text.done",
            Self::OpenResponses => "response.reasoning.done",
        }
    }
}

/// Selects whether a stream contains events of haft itself, whose types begin with `haft:`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OwnEvents {
    #[default]
    On,
    /// The client accepts only the events of the API.
    Off,
}

/// The response field that turns off `haft:` events. It is stored, because a restarted server must give the same
/// numbers to the same events.
const OWN_EVENTS_FIELD: &str = "haft_events";

/// The response field that selects the specification's names of reasoning events. It is stored, because a restarted
/// server must give the same names to the same events.
const REASONING_EVENTS_FIELD: &str = "haft_reasoning_events";

/// The response field that turns on padding. It is stored, because a restarted server must send the same events.
const PADDING_FIELD: &str = "haft_obfuscation";

impl DeltaPadding {
    /// Records the padding in the fields that a response repeats.
    pub(crate) fn record(self, echo: &mut Map<String, Value>) {
        match self {
            Self::Off => {}
            Self::On => drop(echo.insert(PADDING_FIELD.into(), "on".into())),
        }
    }

    fn of_stored(response: &Value) -> Self {
        if response[PADDING_FIELD] == "on" { Self::On } else { Self::Off }
    }
}

/// Returns true if a response has not ended.
pub(crate) fn is_open(response: &Value) -> bool {
    response["status"] == "in_progress" || response["status"] == "queued"
}

/// The end of a response.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResponseEnd {
    /// `completed`, `incomplete`, `failed` or `cancelled`.
    pub(crate) status: &'static str,
    pub(crate) completed_s: Option<u64>,
    pub(crate) incomplete_reason: Option<&'static str>,
    pub(crate) error: Option<ResponseFailure>,
    /// The answer of the run.
    pub(crate) answer: Option<String>,
}

/// The reason why a response failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseFailure {
    pub(crate) kind: &'static str,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The seconds after which the same request may succeed; `None` if the server cannot tell.
    pub(crate) retry_after_s: Option<u64>,
}

/// The values of `kind` that [`ResponseFailure::of_stored`] can restore. A kind is the `type` of the error in an HTTP
/// reply.
const FAILURE_KINDS: [&str; 4] =
    ["server_error", "too_many_requests", "model_error", "invalid_request_error"];

/// The code of a response that has missed events of its run.
pub(super) const EVENTS_LOST_CODE: &str = "events_lost";

/// The values of `code` that [`ResponseFailure::of_stored`] can restore.
const FAILURE_CODES: [&str; 5] =
    ["server_error", "rate_limit_exceeded", QUOTA_CODE, "context_length_exceeded", EVENTS_LOST_CODE];

impl ResponseFailure {
    /// Restores the failure from a stored response and the kind of its error; `None` if the response has not failed.
    /// The restored failure has no `retry_after_s`, because that time has passed.
    pub(crate) fn of_stored(response: &Value, kind: Option<&str>) -> Option<Self> {
        let error = response["error"].as_object()?;
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            kind: known(&FAILURE_KINDS, kind.unwrap_or_default()),
            code: known(&FAILURE_CODES, text("code")),
            message: text("message").to_owned(),
            retry_after_s: None,
        })
    }

    /// Returns the error for a client that waits for the whole response.
    pub(crate) fn api_error(self) -> ApiError {
        let kind = match self.kind {
            "too_many_requests" => ApiErrorKind::TooManyRequests,
            "model_error" => ApiErrorKind::ModelError,
            "invalid_request_error" => ApiErrorKind::InvalidRequest,
            _ => ApiErrorKind::ServerError,
        };
        let error = ApiError::new(kind, self.message).with_code(self.code);
        ApiError { retry_after_s: self.retry_after_s, ..error }
    }
}

/// Returns the equal name of the list, or its first name if the list does not contain the name.
fn known(names: &[&'static str], name: &str) -> &'static str {
    names.iter().find(|known| **known == name).unwrap_or(&names[0])
}

/// The fields of a response object that are not copied from its request.
const OWN_FIELDS: [&str; 10] = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "output",
    "error",
    "usage",
];

/// Returns the field `usage` of a response object.
pub(crate) fn usage_object(usage: LogUsage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    })
}

/// Reads the field `usage` of a stored response.
fn stored_usage(usage: &Value) -> Option<LogUsage> {
    let (input, output) = (&usage["input_tokens_details"], &usage["output_tokens_details"]);
    Some(LogUsage {
        input_tokens: usage["input_tokens"].as_u64()?,
        output_tokens: usage["output_tokens"].as_u64()?,
        cache_read_tokens: input["cached_tokens"].as_u64()?,
        cache_write_tokens: input["cache_write_tokens"].as_u64()?,
        reasoning_tokens: output["reasoning_tokens"].as_u64()?,
    })
}

impl ResponseHead {
    /// Restores the head from a stored response.
    pub(crate) fn of_stored(response: &Value, origins: ToolOrigins) -> Self {
        let output = response["output"].as_array().into_iter().flatten();
        let compacted = output.clone().find(|item| item["type"] == "compaction");
        let compacted = compacted.and_then(|item| item["encrypted_content"].as_str().map(str::to_owned));
        // Among the first items of a response, only the encrypted turn has the type `reasoning`.
        let is_sealed = output.clone().any(|item| item["type"] == "reasoning");
        let listed = output.clone().filter(|item| item["type"] == "mcp_list_tools").cloned().collect();
        let warnings = output.filter(|item| item["type"] == "haft:warning");
        let echo = response.as_object().into_iter().flatten();
        let echo = echo.filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str()));
        Self {
            id: response["id"].as_str().unwrap_or_default().to_owned(),
            created_s: response["created_at"].as_u64().unwrap_or_default(),
            model: response["model"].as_str().unwrap_or_default().to_owned(),
            echo: echo.map(|(name, value)| (name.clone(), value.clone())).collect(),
            origins,
            approved: HashMap::new(),
            padding: DeltaPadding::of_stored(response),
            warnings: warnings.filter_map(|item| item["message"].as_str().map(str::to_owned)).collect(),
            compacted,
            listed,
            compaction_usage: stored_usage(&response["usage"]),
            sealing: if is_sealed { TurnSealing::On } else { TurnSealing::Off },
            is_queued: response["status"] == "queued",
            event_options: EventOptions::of_stored(response),
        }
    }

    /// Returns the setting of the response for a conversation that does not fit into the context window.
    pub(crate) fn truncation(&self) -> Truncation {
        match self.echo.get("truncation").and_then(Value::as_str) {
            Some("auto") => Truncation::Auto,
            Some(_) | None => Truncation::Disabled,
        }
    }

    /// Returns true if the answer must be JSON.
    pub(crate) fn wants_json(&self) -> bool {
        let format = self.echo.get("text").map(|text| &text["format"]["type"]);
        format.is_some_and(|kind| kind == "json_object" || kind == "json_schema")
    }

    /// Returns the initial status of the response.
    pub(crate) fn first_status(&self) -> &'static str {
        if self.is_queued { "queued" } else { "in_progress" }
    }

    /// Returns the first items of the output: the warnings, the tool lists, and the compacted conversation.
    pub(crate) fn first_items(&self) -> Vec<Value> {
        let of_response = self.id.trim_start_matches("resp_");
        let item = |(index, message): (usize, &String)| {
            let id = format!("hw_{of_response}{index:04x}");
            json!({"type": "haft:warning", "id": id, "status": "completed", "message": message})
        };
        let mut items: Vec<Value> = self.warnings.iter().enumerate().map(item).collect();
        for list in &self.listed {
            let mut list = list.clone();
            list["id"] = format!("mcpl_{of_response}{:04x}", items.len()).into();
            items.push(list);
        }
        if let Some(encrypted) = &self.compacted {
            items.push(compact::item(&format!("cmp_{of_response}{:04x}", items.len()), encrypted));
        }
        items
    }

    /// Returns the item of the encrypted turn, at its position in the output.
    pub(crate) fn sealed_item(&self, index: usize, encrypted: Option<&str>) -> Value {
        let id = format!("rs_{}{index:04x}", self.id.trim_start_matches("resp_"));
        match encrypted {
            None => json!({"type": "reasoning", "id": id, "status": "in_progress", "summary": []}),
            Some(encrypted) => json!({
                "type": "reasoning", "id": id, "status": "completed", "summary": [], "encrypted_content": encrypted,
            }),
        }
    }

    /// Returns the object of a response that has not ended, with every field that the specification requires.
    pub(crate) fn open_object(&self, status: &str, output: Vec<Value>, usage: Option<Value>) -> Value {
        self.object(status, output, usage, &ResponseEnd::default(), self.echo.clone())
    }

    /// Returns the object of a response that has ended. Moves the repeated fields into the object, because a copy would
    /// be a large part of the cost of a short response.
    pub(crate) fn ended_object(&mut self, output: Vec<Value>, usage: Value, end: &ResponseEnd) -> Value {
        let echo = std::mem::take(&mut self.echo);
        self.object(end.status, output, Some(usage), end, echo)
    }

    fn object(
        &self,
        status: &str,
        output: Vec<Value>,
        usage: Option<Value>,
        end: &ResponseEnd,
        echo: Map<String, Value>,
    ) -> Value {
        let error = end.error.as_ref().map(|error| json!({"code": error.code, "message": error.message}));
        let mut object = echo;
        object.insert("id".into(), self.id.clone().into());
        object.insert("object".into(), "response".into());
        object.insert("created_at".into(), self.created_s.into());
        object.insert("completed_at".into(), end.completed_s.into());
        object.insert("status".into(), status.into());
        object.insert(
            "incomplete_details".into(),
            end.incomplete_reason.map_or(Value::Null, |reason| json!({"reason": reason})),
        );
        object.insert("model".into(), self.model.clone().into());
        object.insert("output".into(), output.into());
        object.insert("error".into(), error.unwrap_or_default());
        object.insert("usage".into(), usage.unwrap_or_default());
        Value::Object(object)
    }
}

/// The `Retry-After` time if a model provider limits the rate of requests and names no time, in seconds. It is a guess;
/// most providers count the requests of a minute.
const PROVIDER_RETRY_S: u64 = 60;

/// Returns the `Retry-After` time for an error of a model provider. Rounds up, because a retry that comes too early fails
/// again.
pub(super) fn provider_retry_s(after: Option<Duration>) -> u64 {
    after.map_or(PROVIDER_RETRY_S, |time| time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

impl ResponseEnd {
    pub(crate) fn completed() -> Self {
        Self { status: "completed", ..Self::default() }
    }

    pub(crate) fn failed(kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let error = Some(ResponseFailure { kind, code, message: message.into(), retry_after_s: None });
        Self { status: "failed", error, ..Self::default() }
    }

    /// Tells clients of a failed response to retry after this many seconds.
    #[must_use]
    pub(crate) fn after(mut self, seconds: u64) -> Self {
        if let Some(error) = &mut self.error {
            error.retry_after_s = Some(seconds);
        }
        self
    }

    /// Returns the item status of a text that is open when the response ends. The text is incomplete if the response
    /// failed or was cancelled, or if the token limit or a filter cut the reply. Other limits, such as the maximum of
    /// turns, end a run only after a whole reply.
    pub(crate) fn text_status(&self) -> &'static str {
        let is_cut = matches!(self.incomplete_reason, Some("max_output_tokens" | "content_filter"));
        if self.error.is_some() || self.status == "cancelled" || is_cut { "incomplete" } else { "completed" }
    }

    /// Converts the end of a run. `truncation` is the setting of the response.
    pub(crate) fn of(finish: &RunFinish, truncation: Truncation) -> Self {
        let answer = finish.answer.as_ref().map(haft_core::run::finish::RunAnswer::text);
        let row = finish.reason.row();
        let message = || if finish.detail.is_empty() { row.hint.to_owned() } else { finish.detail.clone() };
        let end = match (&finish.reason, row.class) {
            (FinishReason::ModelFailed(ModelErrorKind::ContextTooLong), _) => Self::too_long(message()),
            (FinishReason::ContextFull, _) if truncation == Truncation::Disabled => Self::too_long(
                "the conversation does not fit into the context window of the model; shorten it, or set `truncation` to `auto`",
            ),
            (FinishReason::Filtered, _) => Self::incomplete("content_filter"),
            (FinishReason::Steered, _) => Self::incomplete("steered"),
            (FinishReason::Refused, _) | (_, FinishClass::Answered) => Self::completed(),
            (_, FinishClass::Limited | FinishClass::Budget) => Self::incomplete(row.name),
            (_, FinishClass::Interrupted) => Self { status: "cancelled", ..Self::default() },
            (FinishReason::ModelFailed(ModelErrorKind::RateLimited | ModelErrorKind::QuotaExhausted), _) => {
                let after_s = provider_retry_s(finish.retry_after);
                Self::failed("too_many_requests", "rate_limit_exceeded", message()).after(after_s)
            }
            (FinishReason::ModelFailed(_), _) => Self::failed("model_error", "server_error", message()),
            (_, FinishClass::TimedOut | FinishClass::Failed) => {
                Self::failed("server_error", "server_error", message())
            }
        };
        Self { answer, ..end }
    }

    fn too_long(message: impl Into<String>) -> Self {
        Self::failed("invalid_request_error", "context_length_exceeded", message)
    }

    fn incomplete(reason: &'static str) -> Self {
        Self { status: "incomplete", incomplete_reason: Some(reason), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_failure_keeps_its_code() {
        let restored = |code: &str| {
            let response = json!({"error": {"code": code, "message": "m"}});
            ResponseFailure::of_stored(&response, None).unwrap().code
        };
        for code in FAILURE_CODES {
            assert_eq!(restored(code), code);
        }
        assert_eq!((restored("events_lost"), restored("other")), ("events_lost", "server_error"));
    }

    #[test]
    fn failure_of_a_stored_response_gives_the_same_error_again() {
        let failures = [
            ResponseEnd::failed("model_error", "server_error", "the provider died"),
            ResponseEnd::failed("too_many_requests", "rate_limit_exceeded", "slow down"),
            ResponseEnd::failed("too_many_requests", QUOTA_CODE, "too large"),
            ResponseEnd::too_long("too long"),
        ];
        for failure in failures.into_iter().filter_map(|end| end.error) {
            let stored = json!({"error": {"code": failure.code, "message": failure.message}});
            assert_eq!(ResponseFailure::of_stored(&stored, Some(failure.kind)), Some(failure));
        }
        assert_eq!(ResponseFailure::of_stored(&json!({"error": null}), None), None);
        let unknown = ResponseFailure::of_stored(&json!({"error": {"code": "new"}}), Some("new")).unwrap();
        assert_eq!((unknown.kind, unknown.code), ("server_error", "server_error"));
    }
}
