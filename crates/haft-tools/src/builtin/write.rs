//! `write`: writes a whole file.

use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::{Effects, ToolDefinition};
use haft_sandbox::WorkerPool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{FileToolAccess, admit, ask_to_write, whole};
use crate::files::FileRequest;

/// Write a whole file in one step. Creates parent directories, and replaces a file that exists.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteInput {
    /// Path of the file; a relative one is resolved against the workspace.
    file_path: String,
    /// The whole new content.
    content: String,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    super::define::<WriteInput>("write", Effects::Idempotent)
}

pub(super) async fn call(
    input: WriteInput,
    files: &WorkerPool,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let path = admit(&input.file_path, FileToolAccess::Write, files.policy()).await?;
    let request = FileRequest::Write { path: path.clone(), content: input.content };
    ask_to_write(&path, &request, files, cx).await.map(whole)
}
