//! `edit`: replaces a string in a file.

use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::ToolError;
use haft_core::tool::{Effects, ToolDefinition};
use haft_sandbox::WorkerPool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{FileToolAccess, admit, ask_to_write, whole};
use crate::files::FileRequest;

/// Replace a string in an existing text file. `old_string` must be found exactly, white space included; the first
/// occurrence is replaced, or all of them with `replace_all`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditInput {
    /// Path of the file; a relative one is resolved against the workspace.
    file_path: String,
    /// The text to find; not empty.
    old_string: String,
    /// The text to put in its place.
    new_string: String,
    /// Replace every occurrence instead of the first.
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    super::define::<EditInput>("edit", Effects::Mutating)
}

pub(super) async fn call(
    input: EditInput,
    files: &WorkerPool,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let path = admit(&input.file_path, FileToolAccess::Write, files.policy()).await?;
    let EditInput { old_string, new_string, replace_all, .. } = input;
    let request = FileRequest::Edit { path: path.clone(), old_string, new_string, replace_all };
    ask_to_write(&path, &request, files, cx).await.map(whole)
}
