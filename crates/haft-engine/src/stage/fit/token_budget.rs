//! The run's context budget: reserves tokens before a call and fits the result into them.

use std::sync::Arc;

use haft_core::budget::{ContextWindow, Reservation, TokenShortage};
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::output_store::{OutputPreview, preview};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tokens::tokens_of;
use haft_core::tool::OutputPolicy;

use super::links::LinkRoom;
use super::offload::{OutputOffload, replace_text_with_handle, text_of};
use super::truncate::cut_content;
use super::{FitResources, map_output_or_error};
use crate::call_record::CallRecord;

/// The number of tokens that are reserved for the result of each call. The shortest results fit into it: a refusal, or
/// the handle of a stored output with instructions for querying it.
pub const ANSWER_TOKENS_MIN: u64 = 512;

/// The estimated tokens of an image or audio. Models differ; this is the cost of a large image.
const MEDIA_TOKENS: u64 = 1_600;

/// The preview lengths of a stored output, in characters. The first one that fits is used.
const PREVIEWS_CHARS: [usize; 3] = [1_000, 200, 0];

/// Reserves tokens for the shortest result. Without this reservation the tool does not run, because the model could not
/// receive the result.
pub(crate) fn reserve(budget: Option<&Arc<ContextWindow>>) -> Result<Option<Reservation>, ToolError> {
    let reserved = budget.map(|budget| budget.reserve(ANSWER_TOKENS_MIN)).transpose();
    reserved.map_err(|TokenShortage { left_tokens, .. }| {
        let message = format!(
            "the context window has no space for another tool output: {left_tokens} tokens are left, but an output may take \
             {ANSWER_TOKENS_MIN}; the tool was not called; answer with the information that you have"
        );
        ToolError::new(ToolErrorKind::LimitExceeded, message)
    })
}

/// Charges the result to the budget. A result that does not fit is stored, or truncated until it fits.
pub(crate) fn settle(
    record: &mut CallRecord,
    outcome: Result<ToolOutput, ToolError>,
    reserved: Option<Reservation>,
    means: FitResources<'_>,
) -> Result<ToolOutput, ToolError> {
    let Some(reserved) = reserved else { return outcome };
    map_output_or_error(outcome, |output| {
        let VisibleOutput { text, media_tokens } = VisibleOutput::of(&output);
        let (mut reserved, text) = match reserved.settle_uncounted(text, media_tokens) {
            Ok(()) => return output,
            Err(refused) => refused,
        };
        let output = match reserved.resize(VisibleOutput { text, media_tokens }.tokens(means)) {
            Ok(()) => output,
            Err(shortage) => smaller(record, output, shortage, &mut reserved, means),
        };
        reserved.settle();
        output
    })
}

fn smaller(
    record: &mut CallRecord,
    output: ToolOutput,
    shortage: TokenShortage,
    reserved: &mut Reservation,
    means: FitResources<'_>,
) -> ToolOutput {
    let policy = record.output;
    let mut keeping = OutputOffload { record, means };
    let output =
        ToolOutput { content: keeping.media(output.content, 0, shortage.reason()), ..ToolOutput::default() };
    if reserved.resize(tokens_in(&output, means)).is_ok() {
        return output;
    }
    let stored = match policy {
        OutputPolicy::Truncate { .. } => None,
        OutputPolicy::Pass | OutputPolicy::Store { .. } => keeping.text(&output, shortage.reason()),
    };
    let output = match stored {
        Some(stored) => replace_text_with_handle(stored, output.content, LinkRoom::none()),
        None => output,
    };
    longest_preview(&output, reserved, means).unwrap_or_else(|| cut_to_fit(&output, reserved, means))
}

/// Returns the output with the longest preview that fits, or `None` if it has no preview or does not fit even without
/// one.
fn longest_preview(
    output: &ToolOutput,
    reserved: &mut Reservation,
    means: FitResources<'_>,
) -> Option<ToolOutput> {
    PREVIEWS_CHARS.iter().find_map(|chars_max| {
        let mut output = output.clone();
        let previewed = output.content.iter_mut().find_map(|content| match content {
            OutputContent::Stored(stored) => match &mut stored.glimpse {
                OutputPreview::Text { preview, .. } => Some(preview),
                OutputPreview::Media { .. } | OutputPreview::Shown { .. } => None,
            },
            OutputContent::Text(_)
            | OutputContent::Image { .. }
            | OutputContent::Audio { .. }
            | OutputContent::Link(_)
            | OutputContent::Resource { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Binary { .. } => None,
        })?;
        *previewed = preview(previewed, *chars_max);
        reserved.resize(tokens_in(&output, means)).is_ok().then_some(output)
    })
}

/// An upper bound for the number of characters in a token. Starting the search at this length avoids counting the
/// tokens of megabytes repeatedly.
const CHARS_PER_TOKEN_MAX: usize = 8;

/// Halves the text until it fits. The final notice always fits into the initial reservation.
fn cut_to_fit(output: &ToolOutput, reserved: &mut Reservation, means: FitResources<'_>) -> ToolOutput {
    let room = usize::try_from(reserved.growable_tokens()).unwrap_or(usize::MAX);
    let chars = text_of(&output.content).chars().count();
    let mut chars_max = chars.min(room.saturating_mul(CHARS_PER_TOKEN_MAX));
    while chars_max > 0 {
        let cut =
            ToolOutput { content: cut_content(output.content.clone(), chars_max), ..ToolOutput::default() };
        if reserved.resize(tokens_in(&cut, means)).is_ok() {
            return cut;
        }
        chars_max /= 2;
    }
    ToolOutput::text("(the output was left out: the context window has no space for it)")
}

/// The part of an output that the model sees.
struct VisibleOutput {
    /// All content that the model sees as text.
    text: String,
    /// The estimated tokens of images and audio.
    media_tokens: u64,
}

impl VisibleOutput {
    fn of(output: &ToolOutput) -> Self {
        let (media, shown): (Vec<&OutputContent>, Vec<&OutputContent>) =
            output.content.iter().partition(|content| {
                matches!(content, OutputContent::Image { .. } | OutputContent::Audio { .. })
            });
        let text = shown.into_iter().map(OutputContent::as_text).collect::<Vec<_>>().join("\n");
        Self { text, media_tokens: MEDIA_TOKENS.saturating_mul(media.len() as u64) }
    }

    fn tokens(&self, means: FitResources<'_>) -> u64 {
        tokens_of(means.counter, &self.text).count().saturating_add(self.media_tokens)
    }
}

fn tokens_in(output: &ToolOutput, means: FitResources<'_>) -> u64 {
    VisibleOutput::of(output).tokens(means)
}
