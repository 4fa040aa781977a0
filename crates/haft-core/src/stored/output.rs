//! The stored form of a tool's output.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoredError;
use super::conversation::StoredContent;
use crate::output::ToolOutput;

/// A whole output, with media, links and structured data. An equal output can be restored from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredToolOutput {
    content: Vec<StoredContent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<Value>,
}

impl StoredToolOutput {
    /// Converts an output for storage. Returns `None` for an output with a handle of the output store, because only the
    /// session that stored the output can read it.
    pub fn of(output: &ToolOutput) -> Option<Self> {
        let content = output.content.iter().map(StoredContent::exact).collect::<Option<_>>()?;
        Some(Self { content, structured: output.structured.clone() })
    }

    /// Restores the output.
    pub fn into_output(self) -> Result<ToolOutput, StoredError> {
        let content = self.content.into_iter().map(StoredContent::into_content).collect::<Result<_, _>>()?;
        Ok(ToolOutput { content, structured: self.structured, raw: None })
    }
}
