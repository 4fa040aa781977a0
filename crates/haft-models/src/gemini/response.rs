//! Decodes a response from `generateContent`. Every chunk in a stream has the same fields as a whole response.

use haft_core::conversation::{Media, ModelApiFormat};
use haft_core::model_error::ModelError;
use haft_core::model_event::{ModelEvent, PartStart};
use haft_core::model_reply::{ReplyNote, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::citations;
use crate::bounded_json::FrameText;
use crate::draft::{ReplyDraft, TextChannel};
use crate::wire::DecodeContext;
use crate::{bounded_json, failure, media};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiResponse<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<GeminiCandidate<'a>>>,
    prompt_feedback: Option<GeminiPromptFeedback<'a>>,
    usage_metadata: Option<GeminiUsage>,
    model_version: Option<FrameText<'a>>,
    #[serde(rename = "responseId")]
    id: Option<FrameText<'a>>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate<'a> {
    #[serde(borrow)]
    content: Option<GeminiContent<'a>>,
    finish_reason: Option<FrameText<'a>>,
    #[serde(borrow)]
    grounding_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    citation_metadata: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct GeminiContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart<'a> {
    #[serde(borrow)]
    text: Option<FrameText<'a>>,
    thought: Option<bool>,
    thought_signature: Option<FrameText<'a>>,
    #[serde(borrow)]
    function_call: Option<GeminiFunctionCall<'a>>,
    #[serde(borrow)]
    inline_data: Option<GeminiBlob<'a>>,
}

#[derive(Debug, Deserialize)]
struct GeminiFunctionCall<'a> {
    #[serde(borrow)]
    id: Option<FrameText<'a>>,
    name: Option<FrameText<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiBlob<'a> {
    #[serde(borrow)]
    mime_type: Option<FrameText<'a>>,
    data: Option<FrameText<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<FrameText<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GeminiUsage {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
    #[serde(rename = "candidatesTokenCount")]
    candidates: Option<u64>,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<u64>,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<u64>,
    #[serde(rename = "toolUsePromptTokenCount")]
    tool_use: Option<u64>,
}

pub(super) fn decode(body: &[u8], decode_context: &DecodeContext) -> Result<Vec<ModelEvent>, ModelError> {
    let response: GeminiResponse<'_> = bounded_json::read(body)?;
    if response.candidates.is_none() && response.prompt_feedback.is_none() && response.error.is_none() {
        return Err(bounded_json::malformed("the reply has no `candidates`"));
    }
    let mut draft = new_draft(decode_context);
    apply(&mut draft, &response)?;
    if !draft.has_stopped() {
        draft.stop(StopReason::EndOfTurn);
    }
    Ok(draft.into_events())
}

/// Creates a draft. Gemini counts the positions of citations in bytes.
pub(super) fn new_draft(decode_context: &DecodeContext) -> ReplyDraft {
    ReplyDraft::new(ModelApiFormat::Gemini, decode_context).counting_bytes()
}

/// Applies a whole response, or one chunk of a stream, to the draft.
pub(super) fn apply(draft: &mut ReplyDraft, response: &GeminiResponse<'_>) -> Result<(), ModelError> {
    if let Some(error) = &response.error {
        return Err(failure::inside(error));
    }
    draft.start(response.id.as_deref(), response.model_version.as_deref());
    let blocked = response.prompt_feedback.as_ref().and_then(|feedback| feedback.block_reason.as_deref());
    if blocked.is_some() {
        draft.stop(StopReason::Filtered);
    }
    if let Some(candidate) = response.candidates.iter().flatten().next() {
        write_candidate(draft, candidate)?;
    }
    if let Some(usage) = &response.usage_metadata {
        draft.usage(usage.read());
    }
    Ok(())
}

fn write_candidate(draft: &mut ReplyDraft, candidate: &GeminiCandidate<'_>) -> Result<(), ModelError> {
    let parts = candidate.content.as_ref().and_then(|content| content.parts.as_ref());
    for raw in parts.into_iter().flatten() {
        write_part(draft, raw)?;
    }
    for metadata in [candidate.grounding_metadata, candidate.citation_metadata].into_iter().flatten() {
        if !["null", "{}"].contains(&metadata.get()) {
            let annotation = draft.annotation(metadata.get(), citations::of_metadata(draft, metadata));
            draft.annotate_text(annotation);
        }
    }
    if let Some(reason) = candidate.finish_reason.as_deref() {
        draft.stop(stop_reason(reason));
    }
    Ok(())
}

fn write_part(draft: &mut ReplyDraft, raw: &RawValue) -> Result<(), ModelError> {
    let part: GeminiPart<'_> = bounded_json::read_raw(raw)?;
    if part.function_call.is_some() && !draft.has_room_for_calls() {
        draft.skip_calls(1);
        return Ok(());
    }
    let signature = part.thought_signature.as_deref();
    if let Some(call) = &part.function_call {
        let mark = draft.mark(call.id.as_deref(), signature);
        let index = draft.open_call(call.id.as_deref(), call.name.as_deref().unwrap_or_default(), mark);
        draft.add(index, call.args.map_or("{}", RawValue::get));
        draft.close(index, None);
    } else if let Some(text) = part.text.as_deref() {
        let flow = if part.thought == Some(true) { TextChannel::Reasoning } else { TextChannel::Text };
        write_text(draft, flow, text, signature);
    } else if let Some(media) = part.inline_data.as_ref().and_then(GeminiBlob::read) {
        let mark = draft.mark(None, signature);
        let index = draft.open(media_part(media), mark);
        draft.close(index, None);
    } else {
        write_opaque(draft, raw);
    }
    Ok(())
}

/// Appends text. A signature ends the part, so that the signature is sent back with exactly this text.
fn write_text(draft: &mut ReplyDraft, flow: TextChannel, text: &str, signature: Option<&str>) {
    draft.flow(flow, text);
    if signature.is_some() {
        draft.flow_part(flow, None);
        let mark = draft.mark(None, signature);
        draft.stop_flow_with(mark);
    }
}

fn write_opaque(draft: &mut ReplyDraft, raw: &RawValue) {
    let kind = serde_json::from_str::<Value>(raw.get()).ok();
    let kind = kind.and_then(|part| part.as_object()?.keys().next().cloned());
    let mark = draft.mark(None, Some(raw.get()));
    let index = draft.open(PartStart::Opaque, mark);
    draft.close(index, None);
    draft.note(ReplyNote::UnknownPart { kind: kind.unwrap_or_else(|| "nothing".into()) });
}

fn media_part(media: Media) -> PartStart {
    match media.media_type.split('/').next() {
        Some("image") => PartStart::Image(media),
        Some("audio") => PartStart::Audio(media),
        _ => PartStart::File { name: None, media },
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "STOP" => StopReason::EndOfTurn,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::Filtered,
        "CONTINUATION" => StopReason::Paused,
        other => StopReason::Other(other.to_owned()),
    }
}

impl GeminiBlob<'_> {
    fn read(&self) -> Option<Media> {
        media::from_base64(self.mime_type.as_deref()?, self.data.as_deref()?)
    }
}

impl GeminiUsage {
    /// Converts the token counts. The API reports thoughts separately from the answer; `TokenUsage` includes both in
    /// the output.
    fn read(&self) -> TokenUsage {
        let reasoning = self.thoughts.unwrap_or(0);
        let tool_use = self.tool_use.unwrap_or(0);
        TokenUsage {
            input: self.prompt.unwrap_or(0).saturating_add(tool_use),
            output: self.candidates.unwrap_or(0).saturating_add(reasoning),
            cache_read: self.cached.unwrap_or(0),
            cache_write: 0,
            reasoning,
        }
    }
}
