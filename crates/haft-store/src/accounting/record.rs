//! The records of calls and model requests in session journals, and in the usage records of older versions. They
//! contain sizes, digests and decisions, never the content.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::event::{CallAccount, ToolReference};
use haft_core::event_log::{CallAudit, ModelAudit};
use haft_core::model_provider::{ModelAccount, ModelAttempt};
use haft_core::position::{CallOperation, RunPosition};
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;
use serde::{Deserialize, Serialize};

/// One call in a session journal. Fields that lines of older versions lack are read as empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRecord {
    /// The time, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The outcome: `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    /// The exposed name; if there is no such tool, the name that the model wrote.
    pub tool: String,
    pub call_id: String,
    pub principal: String,
    pub latency_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// True if the call reached its tool.
    pub executed: bool,
    pub cached: bool,
    /// True if the output may contain text from untrusted sources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// The SHA-256 of the arguments as the model wrote them.
    pub arguments_digest: String,
    #[serde(flatten)]
    pub source: ToolRecordSource,
    #[serde(flatten)]
    pub standing: ToolRecordPosition,
    #[serde(flatten)]
    pub audit: ToolRecordAudit,
}

/// The origin of the tool; empty if there is no such tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordSource {
    /// The kind of the tool's provider: `builtin`, `mcp`, `rest`, `agent` or `client`.
    pub provider_kind: Option<String>,
    pub namespace: Option<String>,
}

/// The position of the call in its session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordPosition {
    pub session: Option<String>,
    pub turn: u32,
    /// The number of the operation, counted in the process that made the call.
    pub operation: u64,
    /// The operation that started the session.
    pub parent_operation: Option<u64>,
    /// The session that received the original request.
    pub origin: Option<String>,
}

/// The policy decision about the call; empty if the call ended before the decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordAudit {
    /// The decision of the rules: `allow`, `ask` or `deny`.
    pub decision: Option<String>,
    /// The rule that decided, in the form of `haft policy explain`; empty if the default decided.
    pub rule: Option<String>,
    /// The source of the answer: `terminal`, `operator`, `mcp-client`, or `remembered` for an earlier answer.
    pub approver: Option<String>,
    /// The answer of the approver: `allow_once`, `allow_exact`, `allow_prefix`, `allow_rule`, `deny`, `unanswered` or
    /// `later`; `no_approver` if there was no approver.
    pub answer: Option<String>,
}

/// One model request in a session journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRecord {
    /// The time, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// The outcome: `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    pub provider: String,
    pub model: String,
    pub request_id: String,
    /// The session of the turn; lines of older versions have none.
    #[serde(default)]
    pub session: Option<String>,
    #[serde(default)]
    pub turn: Option<u32>,
    /// The operation that started the session.
    #[serde(default)]
    pub parent_operation: Option<u64>,
    pub attempt: u32,
    pub principal: String,
    pub latency_ms: u64,
    pub first_event_ms: Option<u64>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    /// The cost in billionths of a US dollar; `None` if no price is known.
    pub cost_nano_usd: Option<u64>,
    /// The pause before the next attempt, if there is one.
    pub retry_after_ms: Option<u64>,
}

/// Returns the record of a call, for a session journal.
pub fn record(
    operation: &CallOperation,
    tool: &ToolReference,
    failure: Option<ToolErrorKind>,
    latency: Duration,
    account: &CallAccount,
) -> ToolRecord {
    let CallAudit { principal, arguments_digest, source, origin: _, decision, queue: _, handle: _ } =
        CallAudit::new(operation.place, tool, account);
    ToolRecord {
        timestamp_ms: now_ms(),
        status: if failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: failure.map(|kind| kind.name().to_owned()),
        tool: tool.name().to_owned(),
        call_id: operation.call.0.clone(),
        principal,
        latency_ms: millis(latency),
        bytes_in: account.bytes_in as u64,
        bytes_out: account.bytes_out as u64,
        executed: account.executed,
        cached: account.cached,
        untrusted: account.untrusted,
        arguments_digest,
        source: ToolRecordSource { provider_kind: source.provider_kind, namespace: source.namespace },
        standing: standing(operation),
        audit: ToolRecordAudit {
            decision: decision.decision,
            rule: decision.rule,
            approver: decision.approver,
            answer: decision.answer,
        },
    }
}

fn standing(operation: &CallOperation) -> ToolRecordPosition {
    ToolRecordPosition {
        session: Some(operation.place.session.to_string()),
        turn: operation.place.turn,
        operation: operation.id.0,
        parent_operation: operation.place.parent.map(|parent| parent.0),
        origin: Some(operation.place.origin.to_string()),
    }
}

/// Returns the record of a model request, for a session journal.
pub fn model_record(
    id: &str,
    place: RunPosition,
    attempt: &ModelAttempt,
    principal: &Principal,
    account: &ModelAccount,
) -> ModelRecord {
    let usage = account.usage.unwrap_or_default();
    let audit = ModelAudit::new(id, principal, account);
    ModelRecord {
        timestamp_ms: now_ms(),
        status: if account.failure.is_none() { "ok" } else { "failed" }.into(),
        error_kind: account.failure.map(|kind| kind.name().to_owned()),
        provider: attempt.provider.to_string(),
        model: attempt.model.to_string(),
        request_id: audit.request_id,
        session: Some(place.session.to_string()),
        turn: Some(place.turn),
        parent_operation: place.parent.map(|operation| operation.0),
        attempt: attempt.number,
        principal: audit.principal,
        latency_ms: millis(account.latency),
        first_event_ms: audit.first_event_ms,
        input_tokens: usage.input,
        output_tokens: usage.output,
        cache_read_tokens: usage.cache_read,
        cache_write_tokens: usage.cache_write,
        reasoning_tokens: usage.reasoning,
        cost_nano_usd: account.cost.map(|cost| cost.nano_usd),
        retry_after_ms: audit.retry_after_ms,
    }
}

pub fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_format_tool_record_is_still_readable() {
        let line = r#"{"type":"tool","timestampMs":1,"status":"ok","errorKind":null,"tool":"read","callId":"1",
            "principal":"local","latencyMs":2,"bytesIn":3,"bytesOut":4,"executed":true,"cached":false,"argumentsDigest":""}"#;
        let record: ToolRecord = serde_json::from_str(line).unwrap();
        assert_eq!((record.tool.as_str(), record.audit), ("read", ToolRecordAudit::default()));
    }
}
