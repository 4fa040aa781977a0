//! The lines about calls and requests to models. They hold sizes, digests and decisions, never the content.

use haft_core::event_log::EventEnvelope;
use serde::{Deserialize, Serialize};

/// A line of `accounting.jsonl`. An older haft wrote a [`ToolRecord`] or a [`ModelRecord`] with the `type` `tool` or `model`
/// instead of the event; sums read both.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AccountingLine {
    /// `tool_finished` or `model_finished`, with the audit fields.
    Event(Box<EventEnvelope>),
    Lost(LostRecord),
}

/// A gap before this line: events that could not be written, for example because the disk was full. It is about the file
/// and belongs to no run, so it is not an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "lost", rename_all = "camelCase")]
pub struct LostRecord {
    /// Milliseconds since 1970.
    pub timestamp_ms: u64,
    pub lost_lines: u64,
}

/// One call, as journals of sessions store it. Fields that lines of an older haft lack are read as empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRecord {
    /// Milliseconds since 1970.
    pub timestamp_ms: u64,
    /// `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    /// The exposed name; the name as the model wrote it when there is no such tool.
    pub tool: String,
    pub call_id: String,
    pub principal: String,
    pub latency_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// True when the call reached its tool.
    pub executed: bool,
    pub cached: bool,
    /// True when the output may hold text of strangers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// SHA-256 of the arguments as they were written.
    pub arguments_digest: String,
    #[serde(flatten)]
    pub source: ToolRecordSource,
    #[serde(flatten)]
    pub standing: ToolRecordPosition,
    #[serde(flatten)]
    pub audit: ToolRecordAudit,
}

/// The origin of the tool; empty when there is no such tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordSource {
    /// `builtin`, `mcp`, `rest`, `agent` or `client`.
    pub provider_kind: Option<String>,
    pub namespace: Option<String>,
}

/// The position of the call in the work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordPosition {
    pub session: Option<String>,
    pub turn: u32,
    /// Counted over the process that made the call.
    pub operation: u64,
    /// The operation that the session works for.
    pub parent_operation: Option<u64>,
    /// The session in which the request was first made.
    pub origin: Option<String>,
}

/// The decision about the call; empty when it ended before that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRecordAudit {
    /// `allow`, `ask` or `deny`.
    pub decision: Option<String>,
    /// The rule that decided, as `haft policy explain` writes it; empty when it was the default.
    pub rule: Option<String>,
    /// The source of the answer: `terminal`, or `remembered` for an answer given before.
    pub approver: Option<String>,
    /// `allow_once`, `allow_exact`, `allow_prefix`, `allow_rule`, `deny` or `later`; `nobody` when no approver was there.
    pub answer: Option<String>,
}

/// One attempt at a model, as journals of sessions store it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRecord {
    /// Milliseconds since 1970.
    pub timestamp_ms: u64,
    /// `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    pub provider: String,
    pub model: String,
    pub request_id: String,
    /// The session of the turn; lines of an older haft have none.
    #[serde(default)]
    pub session: Option<String>,
    #[serde(default)]
    pub turn: Option<u32>,
    /// The operation that the session works for.
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
    /// Billionths of a US dollar; nothing where no price is known.
    pub cost_nano_usd: Option<u64>,
    /// The pause before the next attempt, if there is one.
    pub retry_after_ms: Option<u64>,
}
