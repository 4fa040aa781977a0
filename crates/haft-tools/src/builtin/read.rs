//! `read`: the text of a file.

use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::{Effects, ToolDefinition};
use haft_sandbox::Workers;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{Purpose, admit, ask};
use crate::files::FileRequest;

/// Read a text file and return its content exactly as it is. Long files are cut after 50,000 characters with a
/// notice; use `offset` and `limit` to read further.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadInput {
    /// Path of the file; a relative one is resolved against the workspace.
    file_path: String,
    /// First line to return, counted from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// Number of lines to return.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    super::define::<ReadInput>("read", Effects::ReadOnly)
}

pub(super) async fn call(
    input: ReadInput,
    files: &Workers,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let path = admit(&input.file_path, Purpose::Read, files.policy()).await?;
    ask(&FileRequest::Read { path, offset: input.offset, limit: input.limit }, files, cx).await
}
