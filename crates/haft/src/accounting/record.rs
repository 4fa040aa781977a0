//! The line that is kept of a call. It holds sizes, digests and who decided, never arguments or outputs.

use serde::{Deserialize, Serialize};

/// One call, as it stands in `accounting.jsonl`. What lines of an older haft do not have is left empty when they are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Always `tool` for now; a model's turn will be another kind of line.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the call ended, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// `ok` or `failed`.
    pub status: String,
    pub error_kind: Option<String>,
    /// The exposed name; what was written when it means no tool.
    pub tool: String,
    pub call_id: String,
    pub principal: String,
    pub latency_ms: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Whether the tool was reached.
    pub executed: bool,
    pub cached: bool,
    /// SHA-256 of the arguments as they were written.
    pub arguments_digest: String,
    #[serde(flatten)]
    pub source: Source,
    #[serde(flatten)]
    pub standing: Standing,
    #[serde(flatten)]
    pub audit: Audit,
}

/// Where the tool comes from; empty when there is no such tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// `builtin`, `mcp`, `rest`, `agent` or `client`.
    pub provider_kind: Option<String>,
    pub namespace: Option<String>,
}

/// Where in the work the call stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Standing {
    pub session: Option<String>,
    pub turn: u32,
    /// Counted over the process that made the call.
    pub operation: u64,
    /// The operation that the session works for.
    pub parent_operation: Option<u64>,
}

/// Who decided about the call; empty when it ended before that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Audit {
    /// `allow`, `ask` or `deny`.
    pub decision: Option<String>,
    /// The rule that decided, as `haft policy explain` writes it; empty when it was the default.
    pub rule: Option<String>,
    /// Who was asked: `terminal`, or `remembered` for an answer given before.
    pub approver: Option<String>,
    /// `allow_once`, `allow_exact`, `allow_rule`, `deny` or `later`; `nobody` when there was nobody to ask.
    pub answer: Option<String>,
}

impl Record {
    pub fn failed(&self) -> bool {
        self.status != "ok"
    }
}
