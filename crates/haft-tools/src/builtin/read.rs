//! `read`: returns the text of a file, or its image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::output_store::OutputStore;
use haft_core::provider::CallContext;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{Effects, OutputFact, ToolDefinition, ToolFacts};
use haft_sandbox::WorkerPool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::{FileToolAccess, admit, ask};
use super::transcript::LimitedOutput;
use crate::files::{FileImage, FileRequest, FileText, MAX_READ_OUTPUT, READ_STORED_BYTES_MAX};

/// The maximum size of the returned text in bytes: `MAX_READ_OUTPUT` characters of up to four bytes each.
const SHOWN_BYTES_MAX: usize = 4 * MAX_READ_OUTPUT;

/// Read a text file and return its content exactly as it is, or look at an image (PNG, JPEG, GIF or WebP). Long files
/// are cut after 50,000 characters with a notice; use `offset` and `limit` to read further.
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
    let definition = super::define::<ReadInput>("read", Effects::ReadOnly)?;
    let facts = ToolFacts { output: OutputFact::CapsItself, ..definition.facts.clone() };
    Some(definition.with_facts(facts))
}

fn picture(image: &FileImage) -> Result<ToolOutput, ToolError> {
    let damaged = |error| {
        ToolError::new(ToolErrorKind::Internal, "the process that runs the file tools sent a damaged image")
            .with_source(error)
    };
    let bytes = STANDARD.decode(&image.base64).map_err(damaged)?;
    let image = OutputContent::Image { media_type: image.media_type.clone(), bytes: bytes.into() };
    Ok(ToolOutput { content: vec![image], ..ToolOutput::default() })
}

pub(super) async fn call(
    input: ReadInput,
    files: &WorkerPool,
    store: Option<&dyn OutputStore>,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let path = admit(&input.file_path, FileToolAccess::Read, files.policy()).await?;
    let bytes_max = if store.is_some() { READ_STORED_BYTES_MAX } else { SHOWN_BYTES_MAX };
    let request = FileRequest::Read { path, offset: input.offset, limit: input.limit, bytes_max };
    let FileText { text, chars_beyond, image } = ask(&request, files, cx).await?;
    if let Some(image) = image {
        return picture(&image);
    }
    let mut shown = LimitedOutput::new(MAX_READ_OUTPUT, store);
    shown.push(text.as_bytes());
    shown.push_unseen(chars_beyond);
    Ok(shown.finish(cx))
}
