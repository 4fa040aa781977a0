//! Decodes a chat completion. A whole message and the chunks in a stream have the same fields.

use std::borrow::Cow;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::{ModelEvent, PartStart};
use haft_core::model_reply::{ReplyNote, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::stream::ChatStreamCalls;
use crate::bounded_json::FrameText;
use crate::call_list::CallList;
use crate::draft::{ReplyDraft, TextChannel};
use crate::wire::DecodeContext;
use crate::{bounded_json, failure, media, url_citation};

/// A chat completion, or one chunk of it.
#[derive(Debug, Deserialize)]
pub(super) struct ChatCompletion<'a> {
    #[serde(borrow)]
    pub(super) id: Option<FrameText<'a>>,
    pub(super) model: Option<FrameText<'a>>,
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    pub(super) usage: Option<ChatUsage>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatChoice<'a> {
    #[serde(default)]
    pub(super) index: u64,
    #[serde(borrow)]
    message: Option<ChatMessage<'a>>,
    #[serde(borrow)]
    delta: Option<ChatMessage<'a>>,
    finish_reason: Option<FrameText<'a>>,
}

/// States whether a completion is whole or a chunk of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionExtent {
    Whole,
    Chunk,
}

impl<'a> ChatChoice<'a> {
    /// Returns the message of a choice. Some servers send two fields in each chunk: the delta, and the whole text so
    /// far.
    fn message_of(&self, piece: CompletionExtent) -> Option<&ChatMessage<'a>> {
        let (message, delta) = (self.message.as_ref(), self.delta.as_ref());
        match piece {
            CompletionExtent::Whole => message.or(delta),
            CompletionExtent::Chunk => delta.or(message),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatMessage<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    refusal: Option<FrameText<'a>>,
    reasoning_content: Option<FrameText<'a>>,
    reasoning: Option<FrameText<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<CallList<ChatToolCall<'a>>>,
    #[serde(borrow)]
    annotations: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    audio: Option<ChatAudio<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatToolCall<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) id: Option<FrameText<'a>>,
    pub(super) function: Option<ChatFunction<'a>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatFunction<'a> {
    #[serde(borrow)]
    pub(super) name: Option<FrameText<'a>>,
    /// The arguments as a string. Some servers send the object itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct ChatAudio<'a> {
    #[serde(borrow)]
    id: Option<FrameText<'a>>,
    data: Option<FrameText<'a>>,
    transcript: Option<FrameText<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_cache_hit_tokens: Option<u64>,
    prompt_tokens_details: Option<ChatPromptDetails>,
    completion_tokens_details: Option<ChatCompletionDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChatPromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChatCompletionDetails {
    reasoning_tokens: Option<u64>,
}

pub(super) fn decode(body: &[u8], decode_context: &DecodeContext) -> Result<Vec<ModelEvent>, ModelError> {
    let completion: ChatCompletion<'_> = bounded_json::read(body)?;
    if completion.choices.as_ref().is_none_or(Vec::is_empty) && completion.error.is_none() {
        return Err(bounded_json::malformed("the reply has no `choices`"));
    }
    let mut draft = ReplyDraft::new(ModelApiFormat::OpenaiChat, decode_context);
    let mut calls = ChatStreamCalls::default();
    apply(&mut draft, &mut calls, &completion, CompletionExtent::Whole)?;
    calls.finish(&mut draft);
    // A whole reply is complete even if the server omits the finish reason.
    if !draft.has_stopped() {
        draft.stop(StopReason::EndOfTurn);
    }
    Ok(draft.into_events())
}

/// Applies a whole completion, or one chunk, to the draft.
pub(super) fn apply(
    draft: &mut ReplyDraft,
    calls: &mut ChatStreamCalls,
    completion: &ChatCompletion<'_>,
    piece: CompletionExtent,
) -> Result<(), ModelError> {
    if let Some(error) = &completion.error {
        return Err(failure::inside(error));
    }
    if completion.id.is_some() || completion.model.is_some() {
        draft.start(completion.id.as_deref(), completion.model.as_deref());
    }
    for choice in completion.choices.iter().flatten().filter(|choice| choice.index == 0) {
        let message = choice.message_of(piece);
        if let Some(message) = message {
            write_message(draft, calls, message)?;
        }
        if let Some(reason) = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty()) {
            let refused = message.is_some_and(ChatMessage::refuses) || calls.refused;
            draft.stop(stop_reason(reason, refused.then_some(StopReason::Refusal)));
        }
    }
    if let Some(usage) = &completion.usage {
        draft.usage(usage.read());
    }
    Ok(())
}

fn write_message(
    draft: &mut ReplyDraft,
    calls: &mut ChatStreamCalls,
    message: &ChatMessage<'_>,
) -> Result<(), ModelError> {
    let fields = [("reasoning_content", &message.reasoning_content), ("reasoning", &message.reasoning)];
    // Use one field only, because some servers send the same text in both fields.
    if let Some((field, Some(text))) = fields.into_iter().find(|(_, text)| text.is_some()) {
        draft.flow_with_state(TextChannel::Reasoning, text, Some(field));
    }
    if let Some(details) = message.reasoning_details {
        calls.add_details(details)?;
    }
    write_content(draft, message.content)?;
    if let Some(refusal) = message.refusal.as_deref() {
        draft.flow(TextChannel::Refusal, refusal);
    }
    calls.refused |= message.refuses();
    for annotation in message.annotations.iter().flatten() {
        let citations = url_citation::of_json(annotation.get()).into_iter().collect();
        let annotation = draft.annotation(annotation.get(), citations);
        draft.annotate_text(annotation);
    }
    if let Some(audio) = &message.audio {
        write_audio(draft, audio);
    }
    for call in message.tool_calls.iter().flat_map(|calls| &calls.items) {
        calls.add(draft, call)?;
    }
    draft.skip_calls(message.tool_calls.as_ref().map_or(0, |calls| calls.more));
    Ok(())
}

/// Decodes the content, which is a string or a list of parts.
fn write_content(draft: &mut ReplyDraft, content: Option<&RawValue>) -> Result<(), ModelError> {
    let Some(content) = content.filter(|content| content.get() != "null") else { return Ok(()) };
    if !content.get().starts_with('[') {
        draft.flow(TextChannel::Text, &bounded_json::read_raw::<Cow<'_, str>>(content)?);
        return Ok(());
    }
    bounded_json::read_raw::<Vec<ChatContentPiece<'_>>>(content)?
        .iter()
        .try_for_each(|piece| write_piece(draft, piece))
}

/// A part of any type in a content list. Its type determines which fields are present.
#[derive(Deserialize)]
struct ChatContentPiece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<FrameText<'a>>,
    #[serde(borrow)]
    text: Option<FrameText<'a>>,
    #[serde(borrow)]
    refusal: Option<FrameText<'a>>,
    /// Mistral's reasoning: a list of text parts.
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

fn write_piece(draft: &mut ReplyDraft, piece: &ChatContentPiece<'_>) -> Result<(), ModelError> {
    match piece {
        ChatContentPiece { text: Some(text), .. } => draft.flow(TextChannel::Text, text),
        ChatContentPiece { refusal: Some(refusal), .. } => draft.flow(TextChannel::Refusal, refusal),
        ChatContentPiece { thinking: Some(thinking), .. } => {
            for thought in bounded_json::read_raw::<Vec<ChatContentPiece<'_>>>(thinking)? {
                draft.flow(TextChannel::Reasoning, thought.text.as_deref().unwrap_or_default());
            }
        }
        ChatContentPiece { kind, .. } => {
            let kind = kind.as_deref().unwrap_or("nothing").to_owned();
            draft.note(ReplyNote::UnknownPart { kind });
        }
    }
    Ok(())
}

fn write_audio(draft: &mut ReplyDraft, audio: &ChatAudio<'_>) {
    let data = audio.data.as_deref().and_then(|data| media::from_base64("audio/mpeg", data));
    if let Some(data) = data {
        let mark = draft.mark(audio.id.as_deref(), None);
        let index = draft.open(PartStart::Audio(data), mark);
        draft.close(index, None);
    }
    draft.flow(TextChannel::Text, audio.transcript.as_deref().unwrap_or_default());
}

fn stop_reason(reason: &str, refusal: Option<StopReason>) -> StopReason {
    match reason {
        "stop" | "end_turn" | "eos" => refusal.unwrap_or(StopReason::EndOfTurn),
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" | "model_length" | "max_tokens" => StopReason::Length,
        "content_filter" => StopReason::Filtered,
        other => StopReason::Other(other.to_owned()),
    }
}

impl ChatMessage<'_> {
    fn refuses(&self) -> bool {
        self.refusal.as_deref().is_some_and(|refusal| !refusal.is_empty())
    }
}

impl ChatUsage {
    fn read(&self) -> TokenUsage {
        let prompt = self.prompt_tokens_details.as_ref();
        let cached = prompt.and_then(|details| details.cached_tokens).or(self.prompt_cache_hit_tokens);
        let reasoning = self.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        TokenUsage {
            input: self.prompt_tokens.unwrap_or(0),
            output: self.completion_tokens.unwrap_or(0),
            cache_read: cached.unwrap_or(0),
            cache_write: prompt.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning: reasoning.unwrap_or(0),
        }
    }
}
