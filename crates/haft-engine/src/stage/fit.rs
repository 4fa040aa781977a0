//! Fit: truncates an output to its limit, or moves it to the output store.

mod links;
mod offload;
mod token_budget;
mod truncate;

use haft_core::output::{RawResult, ToolOutput};
use haft_core::output_store::{OutputStore, StoreReason};
use haft_core::result::ToolError;
use haft_core::tokens::TokenCounter;
use haft_core::tool::OutputPolicy;
use serde_json::{Value, json};

use crate::call_record::CallRecord;
use crate::size::json_bytes;
use links::LinkRoom;
use offload::OutputOffload;
pub use token_budget::ANSWER_TOKENS_MIN;
pub(crate) use token_budget::{reserve, settle};
use truncate::cut_content;

/// The maximum size of a failed result that is passed on unchanged, in bytes. The result may contain images in addition
/// to its message.
const RAW_ERROR_BYTES_MAX: usize = 1 << 20;

/// The output store and the token counter that the fit stage uses.
#[derive(Clone, Copy)]
pub(crate) struct FitResources<'a> {
    /// The store for outputs that are too large. Without it, they are truncated.
    pub(crate) store: Option<&'a dyn OutputStore>,
    pub(crate) counter: &'a dyn TokenCounter,
}

pub(crate) fn fit(
    record: &mut CallRecord,
    outcome: Result<ToolOutput, ToolError>,
    policy: OutputPolicy,
    means: FitResources<'_>,
) -> Result<ToolOutput, ToolError> {
    record.output = policy;
    map_output_or_error(outcome, |output| match policy {
        OutputPolicy::Pass => output,
        OutputPolicy::Truncate { chars_max: max } | OutputPolicy::Store { bytes_max: max }
            if offload::fits_unchanged(&output, max) =>
        {
            output
        }
        OutputPolicy::Truncate { chars_max } => {
            let output = keep_media(record, output, means);
            cut(record, output, chars_max)
        }
        OutputPolicy::Store { bytes_max } => store_or_truncate(record, output, bytes_max, means),
    })
}

/// Applies `fit` to an output or an error message, because the message of a failed command contains its output.
fn map_output_or_error(
    outcome: Result<ToolOutput, ToolError>,
    fit: impl FnOnce(ToolOutput) -> ToolOutput,
) -> Result<ToolOutput, ToolError> {
    match outcome {
        Ok(output) => Ok(fit(output)),
        Err(mut error) => {
            let fitted = fit(ToolOutput::text(error.message.clone())).as_text();
            // Drop the server's own text, because it still contains the part that was cut off.
            let is_whole =
                |raw: &RawResult| fitted == error.message && raw.0.get().len() <= RAW_ERROR_BYTES_MAX;
            error.raw = error.raw.filter(is_whole);
            error.message = fitted;
            Err(error)
        }
    }
}

/// Moves text that is too large to the store, or truncates it if storing fails.
fn store_or_truncate(
    record: &mut CallRecord,
    output: ToolOutput,
    bytes_max: usize,
    means: FitResources<'_>,
) -> ToolOutput {
    let output = keep_media(record, output, means);
    if offload::text_bytes(&output.content) <= bytes_max {
        return cut(record, output, bytes_max);
    }
    match (OutputOffload { record, means }).text(&output, StoreReason::SizeCap) {
        Some(stored) => offload::replace_text_with_handle(stored, output.content, LinkRoom::of(bytes_max)),
        None => cut(record, output, bytes_max),
    }
}

fn keep_media(record: &mut CallRecord, output: ToolOutput, means: FitResources<'_>) -> ToolOutput {
    let mut keeping = OutputOffload { record, means };
    ToolOutput {
        content: keeping.media(output.content, offload::MEDIA_BYTES_MAX, StoreReason::SizeCap),
        ..output
    }
}

fn cut(record: &mut CallRecord, output: ToolOutput, chars_max: usize) -> ToolOutput {
    let structured = output.structured.and_then(|value| fit_structured(record, value, chars_max));
    ToolOutput { content: cut_content(output.content, chars_max), structured, raw: None }
}

/// Drops the whole structured output if it is too large, because a part of a value would be invalid, and records this
/// in the receipt. The limit is applied to bytes, of which there are at least as many as characters.
fn fit_structured(record: &mut CallRecord, value: Value, bytes_max: usize) -> Option<Value> {
    let bytes = json_bytes(&value);
    if bytes <= bytes_max {
        return Some(value);
    }
    record.note("structured", json!({"left_out_bytes": bytes, "bytes_max": bytes_max}));
    None
}
