//! The stored form of a tool's output.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::StoredError;
use super::conversation::StoredContent;
use crate::output::{RawResult, ToolOutput};

/// A whole output, with media, links and structured data. An equal output can be restored from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredToolOutput {
    content: Vec<StoredContent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<Value>,
    /// The JSON text that the server sent. It is a JSON string, because serde reads raw JSON only directly from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
}

impl StoredToolOutput {
    /// Converts an output for storage. Returns `None` for an output with a handle of the output store, because only the
    /// session that stored the output can read it.
    pub fn of(output: &ToolOutput) -> Option<Self> {
        let content = output.content.iter().map(StoredContent::exact).collect::<Option<_>>()?;
        let raw = output.raw.as_ref().map(|raw| raw.0.get().to_owned());
        Some(Self { content, structured: output.structured.clone(), raw })
    }

    /// Restores the output.
    pub fn into_output(self) -> Result<ToolOutput, StoredError> {
        let content = self.content.into_iter().map(StoredContent::into_content).collect::<Result<_, _>>()?;
        let raw = self.raw.map(raw_result).transpose()?;
        Ok(ToolOutput { content, structured: self.structured, raw })
    }
}

fn raw_result(text: String) -> Result<RawResult, StoredError> {
    let raw = RawValue::from_string(text).map_err(|error| StoredError::Broken {
        problem: format!("the stored result of a server is not JSON: {error}"),
    })?;
    Ok(RawResult(raw.into()))
}
