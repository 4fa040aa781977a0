//! The lines that are kept of calls and of requests to models. They hold sizes and digests, never what was said.

use serde::{Deserialize, Serialize};

/// A line of `accounting.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Line {
    Tool(Record),
    Model(ModelRecord),
}

impl Line {
    pub fn timestamp_ms(&self) -> u64 {
        match self {
            Line::Tool(record) => record.timestamp_ms,
            Line::Model(record) => record.timestamp_ms,
        }
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Milliseconds since 1970.
    pub timestamp_ms: u64,
    /// `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    pub tool: String,
    pub call_id: String,
    pub principal: String,
    pub latency_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub executed: bool,
    pub cached: bool,
    /// SHA-256 of the arguments as they were written.
    pub arguments_digest: String,
}

/// One attempt at a model.
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
    /// How long until the next attempt, where one follows.
    pub retry_after_ms: Option<u64>,
}

impl Record {
    pub fn failed(&self) -> bool {
        self.status != "ok"
    }
}
