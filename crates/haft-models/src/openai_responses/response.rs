//! Decodes a response object of the Responses API.

use haft_core::conversation::ModelApiFormat;
use haft_core::internal_tools::tool_search::TOOL_SEARCH;
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
pub(super) struct ResponsesObject<'a> {
    #[serde(borrow)]
    pub(super) id: Option<FrameText<'a>>,
    pub(super) model: Option<FrameText<'a>>,
    status: Option<FrameText<'a>>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    incomplete_details: Option<ResponsesIncompleteDetails<'a>>,
    usage: Option<ResponsesUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ResponsesIncompleteDetails<'a> {
    #[serde(borrow)]
    reason: Option<FrameText<'a>>,
}

/// An output item of any type. Its type determines which fields are present.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<FrameText<'a>>,
    pub(super) id: Option<FrameText<'a>>,
    pub(super) call_id: Option<FrameText<'a>>,
    pub(super) name: Option<FrameText<'a>>,
    /// The namespace of a function. The function name alone identifies the function, but the API expects the namespace
    /// back.
    pub(super) namespace: Option<FrameText<'a>>,
    /// The arguments: a string for a function, and an object for a search.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    /// The phase of a message: the final answer or an intermediate step. The models expect it back.
    pub(super) phase: Option<FrameText<'a>>,
    pub(super) content: Option<Vec<ResponsesContent<'a>>>,
    pub(super) summary: Option<Vec<ResponsesContent<'a>>>,
}

/// A part of the content of an output item.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesContent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<FrameText<'a>>,
    pub(super) text: Option<FrameText<'a>>,
    pub(super) refusal: Option<FrameText<'a>>,
    #[serde(borrow)]
    pub(super) annotations: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponsesUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<ResponsesInputDetails>,
    output_tokens_details: Option<ResponsesOutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponsesInputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponsesOutputDetails {
    reasoning_tokens: Option<u64>,
}

pub(super) fn decode(body: &[u8], decode_context: &DecodeContext) -> Result<Vec<ModelEvent>, ModelError> {
    let response: ResponsesObject<'_> = bounded_json::read(body)?;
    if response.output.is_none() && response.error.is_none() {
        return Err(bounded_json::malformed("the reply has no `output`"));
    }
    let mut draft = ReplyDraft::new(ModelApiFormat::OpenaiResponses, decode_context);
    draft.start(response.id.as_deref(), response.model.as_deref());
    let refused = write_items(&mut draft, &response)?;
    end(&mut draft, &response, refused.then_some(StopReason::Refusal))?;
    Ok(draft.into_events())
}

/// Adds every item to the draft, and returns true if one of them is a refusal.
pub(super) fn write_items(
    draft: &mut ReplyDraft,
    response: &ResponsesObject<'_>,
) -> Result<bool, ModelError> {
    let mut refused = false;
    for raw in response.output.iter().flatten() {
        refused |= write_item(draft, raw)?;
    }
    Ok(refused)
}

/// Applies the end of the response. The last event in a stream contains the same object.
pub(super) fn end(
    draft: &mut ReplyDraft,
    response: &ResponsesObject<'_>,
    refusal: Option<StopReason>,
) -> Result<(), ModelError> {
    if let Some(error) = response.error.as_ref().filter(|error| !error.is_null()) {
        return Err(failure::inside(error));
    }
    if let Some(usage) = &response.usage {
        draft.usage(usage.read());
    }
    let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
    match response.status.as_deref() {
        Some("completed") | None => draft.stop(refusal.unwrap_or(StopReason::EndOfTurn)),
        Some("incomplete") => draft.stop(match reason {
            Some("max_output_tokens") | None => StopReason::Length,
            Some("content_filter") => StopReason::Filtered,
            Some(other) => StopReason::Other(other.to_owned()),
        }),
        Some("failed") => {
            return Err(failure::inside(&Value::String(
                "the response has the status `failed` but no error".into(),
            )));
        }
        Some(other) => draft.stop(StopReason::Other(other.to_owned())),
    }
    Ok(())
}

/// Adds one whole item to the draft, and returns true if it is a refusal.
fn write_item(draft: &mut ReplyDraft, raw: &RawValue) -> Result<bool, ModelError> {
    if draft.skips_call(raw, |kind| kind == "function_call") {
        return Ok(false);
    }
    let item: ResponsesItem<'_> = bounded_json::read_raw(raw)?;
    match item.kind.as_deref() {
        Some("message") => return Ok(write_message(draft, &item)),
        Some("function_call") => {
            let mark = draft.mark(item.id.as_deref(), item.namespace.as_deref());
            let name = item.name.as_deref().unwrap_or_default();
            let index = draft.open_call(item.call_id.as_deref(), name, mark);
            draft.add(index, &item.arguments_text());
            draft.close(index, None);
        }
        Some("tool_search_call") if item.call_id.is_some() => {
            let mark = draft.mark(item.id.as_deref(), None);
            let index = draft.open_call(item.call_id.as_deref(), TOOL_SEARCH, mark);
            draft.add(index, &item.arguments_text());
            draft.close(index, None);
        }
        Some("reasoning") => {
            let mark = draft.mark(item.id.as_deref(), Some(raw.get()));
            let index = draft.open(PartStart::Reasoning, mark);
            write_reasoning(draft, index, &item);
            draft.close(index, None);
        }
        kind => write_opaque(draft, kind, &item, raw),
    }
    Ok(false)
}

fn write_opaque(draft: &mut ReplyDraft, kind: Option<&str>, item: &ResponsesItem<'_>, raw: &RawValue) {
    let mark = draft.mark(item.id.as_deref(), Some(raw.get()));
    let index = draft.open(PartStart::Opaque, mark);
    draft.close(index, None);
    draft.note(ReplyNote::UnknownPart { kind: kind.unwrap_or("nothing").to_owned() });
}

fn write_message(draft: &mut ReplyDraft, item: &ResponsesItem<'_>) -> bool {
    let mut refused = false;
    for piece in item.content.iter().flatten() {
        let mark = draft.mark(item.id.as_deref(), item.phase.as_deref());
        if let Some(refusal) = piece.refusal.as_deref() {
            let index = draft.open(PartStart::Refusal, mark);
            draft.add(index, refusal);
            draft.close(index, None);
            refused = true;
        } else {
            let index = draft.open(PartStart::Text, mark);
            draft.add(index, piece.text.as_deref().unwrap_or_default());
            for annotation in piece.annotations.iter().flatten() {
                annotate(draft, index, annotation);
            }
            draft.close(index, None);
        }
    }
    refused
}

/// Adds the reasoning if the server shows it, otherwise its summary.
pub(super) fn write_reasoning(draft: &mut ReplyDraft, index: usize, item: &ResponsesItem<'_>) {
    let texts = |pieces: &Option<Vec<ResponsesContent<'_>>>| -> Vec<String> {
        pieces.iter().flatten().filter_map(|piece| Some(piece.text.as_deref()?.to_owned())).collect()
    };
    if item.content.as_ref().is_some_and(|pieces| !pieces.is_empty()) {
        return draft.add(index, &texts(&item.content).join("\n\n"));
    }
    for (number, text) in texts(&item.summary).iter().enumerate() {
        if number > 0 {
            draft.break_summary(index);
        }
        draft.add_summary(index, text);
    }
}

pub(super) fn annotate(draft: &mut ReplyDraft, index: usize, raw: &RawValue) {
    let citations = url_citation::of_json(raw.get()).into_iter().collect();
    let annotation = draft.annotation(raw.get(), citations);
    draft.annotate(index, annotation);
}

impl ResponsesItem<'_> {
    /// Returns the arguments of a call as JSON text.
    pub(super) fn arguments_text(&self) -> String {
        let Some(raw) = self.arguments else { return String::new() };
        serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
    }
}

impl ResponsesUsage {
    fn read(&self) -> TokenUsage {
        let details = self.input_tokens_details.as_ref();
        let reasoning = self.output_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        TokenUsage {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_read: details.and_then(|details| details.cached_tokens).unwrap_or(0),
            cache_write: details.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning: reasoning.unwrap_or(0),
        }
    }
}
