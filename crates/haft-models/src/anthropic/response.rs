//! Decodes a message from the Messages API into a reply.

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::{ModelEvent, PartStart};
use haft_core::model_reply::{ReplyNote, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bounded_json::FrameText;
use crate::draft::ReplyDraft;
use crate::wire::DecodeContext;
use crate::{bounded_json, failure, url_citation};

#[derive(Debug, Deserialize)]
pub(super) struct AnthropicMessage<'a> {
    #[serde(borrow)]
    pub(super) id: Option<FrameText<'a>>,
    pub(super) model: Option<FrameText<'a>>,
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    stop_reason: Option<FrameText<'a>>,
    pub(super) usage: Option<AnthropicUsage>,
    error: Option<Value>,
}

/// A content block of any type. Its type determines which fields are present.
#[derive(Debug, Deserialize)]
pub(super) struct AnthropicBlock<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<FrameText<'a>>,
    pub(super) id: Option<FrameText<'a>>,
    pub(super) name: Option<FrameText<'a>>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    pub(super) text: Option<FrameText<'a>>,
    #[serde(borrow)]
    citations: Option<Vec<&'a RawValue>>,
    pub(super) thinking: Option<FrameText<'a>>,
    pub(super) signature: Option<FrameText<'a>>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct AnthropicUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens_details: Option<AnthropicOutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct AnthropicOutputDetails {
    thinking_tokens: Option<u64>,
}

pub(super) fn decode(body: &[u8], decode_context: &DecodeContext) -> Result<Vec<ModelEvent>, ModelError> {
    let message: AnthropicMessage<'_> = bounded_json::read(body)?;
    if let Some(error) = &message.error {
        return Err(failure::inside(error));
    }
    let Some(content) = &message.content else {
        return Err(bounded_json::malformed("the reply has no `content`"));
    };
    let mut draft = ReplyDraft::new(ModelApiFormat::Anthropic, decode_context);
    draft.start(message.id.as_deref(), message.model.as_deref());
    for raw in content {
        write_block(&mut draft, raw)?;
    }
    if let Some(usage) = &message.usage {
        draft.usage(usage.read());
    }
    draft.stop(message.stop_reason.as_deref().map_or(StopReason::EndOfTurn, stop_reason));
    Ok(draft.into_events())
}

fn write_block(draft: &mut ReplyDraft, raw: &RawValue) -> Result<(), ModelError> {
    if draft.skips_call(raw, |kind| kind == "tool_use") {
        return Ok(());
    }
    let block: AnthropicBlock<'_> = bounded_json::read_raw(raw)?;
    let index = open(draft, &block, raw.get());
    draft.add(index, block.text.as_deref().or(block.thinking.as_deref()).unwrap_or_default());
    for citation in block.citations.iter().flatten() {
        annotate(draft, index, citation);
    }
    if let (Some("tool_use"), Some(input)) = (block.kind.as_deref(), block.input) {
        draft.add(index, input.get());
    }
    let mark = draft.mark(None, block.signature.as_deref());
    draft.close(index, mark);
    Ok(())
}

/// Starts the part for a block. A block of an unknown kind is kept as a whole, as the text in `json`.
pub(super) fn open(draft: &mut ReplyDraft, block: &AnthropicBlock<'_>, json: &str) -> usize {
    match block.kind.as_deref() {
        Some("text") => draft.open(PartStart::Text, None),
        Some("thinking") => draft.open(PartStart::Reasoning, None),
        Some("tool_use") => {
            draft.open_call(block.id.as_deref(), block.name.as_deref().unwrap_or_default(), None)
        }
        kind => {
            let mark = draft.mark(block.id.as_deref(), Some(json));
            let index = draft.open(PartStart::Opaque, mark);
            if kind != Some("redacted_thinking") {
                draft.note(ReplyNote::UnknownPart { kind: kind.unwrap_or("nothing").to_owned() });
            }
            index
        }
    }
}

pub(super) fn annotate(draft: &mut ReplyDraft, index: usize, raw: &RawValue) {
    let citations = url_citation::of_json(raw.get()).into_iter().collect();
    let annotation = draft.annotation(raw.get(), citations);
    draft.annotate(index, annotation);
}

pub(super) fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" => StopReason::EndOfTurn,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "stop_sequence" => StopReason::StopSequence,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Paused,
        other => StopReason::Other(other.to_owned()),
    }
}

impl AnthropicUsage {
    /// Converts the token counts. The API reports cache reads and writes separately from `input_tokens`; `TokenUsage`
    /// includes them in the input.
    pub(super) fn read(&self) -> TokenUsage {
        let cache_read = self.cache_read_input_tokens.unwrap_or(0);
        let cache_write = self.cache_creation_input_tokens.unwrap_or(0);
        TokenUsage {
            input: self.input_tokens.unwrap_or(0).saturating_add(cache_read).saturating_add(cache_write),
            output: self.output_tokens.unwrap_or(0),
            cache_read,
            cache_write,
            reasoning: self.output_tokens_details.and_then(|details| details.thinking_tokens).unwrap_or(0),
        }
    }

    /// Replaces each token count that a later stream event reports again.
    pub(super) fn update(&mut self, later: &AnthropicUsage) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.output_tokens_details = later.output_tokens_details.or(self.output_tokens_details);
    }
}
