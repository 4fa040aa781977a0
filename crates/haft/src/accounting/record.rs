//! The line that is kept of a call. It holds sizes and digests, never arguments or outputs.

use serde::{Deserialize, Serialize};

/// One call, as it stands in `accounting.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Always `tool` for now; a model's turn will be another kind of line.
    #[serde(rename = "type")]
    pub kind: String,
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

impl Record {
    pub fn failed(&self) -> bool {
        self.status != "ok"
    }
}
