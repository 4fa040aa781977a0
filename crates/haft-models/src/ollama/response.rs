//! Decodes a chat response. Every line in a stream has the same fields as a whole response.

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::{ReplyNote, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::context;
use crate::bounded_json::FrameText;
use crate::call_list::CallList;
use crate::draft::{ReplyDraft, TextChannel};
use crate::wire::DecodeContext;
use crate::{bounded_json, failure};

#[derive(Debug, Deserialize)]
pub(super) struct OllamaResponse<'a> {
    #[serde(borrow)]
    model: Option<FrameText<'a>>,
    #[serde(borrow)]
    message: Option<OllamaMessage<'a>>,
    #[serde(default)]
    done: bool,
    done_reason: Option<FrameText<'a>>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct OllamaMessage<'a> {
    #[serde(borrow)]
    content: Option<FrameText<'a>>,
    thinking: Option<FrameText<'a>>,
    #[serde(borrow)]
    tool_calls: Option<CallList<OllamaToolCall<'a>>>,
}

#[derive(Debug, Deserialize)]
struct OllamaToolCall<'a> {
    #[serde(borrow)]
    id: Option<FrameText<'a>>,
    #[serde(borrow)]
    function: Option<OllamaFunction<'a>>,
}

#[derive(Debug, Deserialize)]
struct OllamaFunction<'a> {
    #[serde(borrow)]
    name: Option<FrameText<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

pub(super) fn decode(body: &[u8], decode_context: &DecodeContext) -> Result<Vec<ModelEvent>, ModelError> {
    let response: OllamaResponse<'_> = bounded_json::read(body)?;
    if response.message.is_none() && response.error.is_none() {
        return Err(bounded_json::malformed("the reply has no `message`"));
    }
    let mut draft = ReplyDraft::new(ModelApiFormat::Ollama, decode_context);
    apply(&mut draft, &response)?;
    Ok(draft.into_events())
}

/// Applies a whole response, or one line of a stream, to the draft.
pub(super) fn apply(draft: &mut ReplyDraft, response: &OllamaResponse<'_>) -> Result<(), ModelError> {
    if let Some(error) = &response.error {
        return Err(failure::inside(error));
    }
    draft.start(None, response.model.as_deref());
    if let Some(message) = &response.message {
        write_message(draft, message);
    }
    if response.done {
        end(draft, response);
    }
    Ok(())
}

fn write_message(draft: &mut ReplyDraft, message: &OllamaMessage<'_>) {
    draft.flow_with_state(
        TextChannel::Reasoning,
        message.thinking.as_deref().unwrap_or_default(),
        Some("thinking"),
    );
    draft.flow(TextChannel::Text, message.content.as_deref().unwrap_or_default());
    for call in message.tool_calls.iter().flat_map(|calls| &calls.items) {
        let function = call.function.as_ref();
        let name = function.and_then(|function| function.name.as_deref()).unwrap_or_default();
        let index = draft.open_call(call.id.as_deref(), name, None);
        draft.add(index, function.and_then(|function| function.arguments).map_or("{}", RawValue::get));
        draft.close(index, None);
    }
    draft.skip_calls(message.tool_calls.as_ref().map_or(0, |calls| calls.more));
}

fn end(draft: &mut ReplyDraft, response: &OllamaResponse<'_>) {
    let read_tokens = response.prompt_eval_count;
    draft.usage(TokenUsage {
        input: read_tokens.unwrap_or(0),
        output: response.eval_count.unwrap_or(0),
        ..TokenUsage::default()
    });
    if let Some(read_tokens) = read_tokens.filter(|read| *read > 0)
        && let Some(sent_tokens_min) = context::truncated_prompt_tokens(draft.decode_context(), read_tokens)
    {
        draft.note(ReplyNote::PromptCut { read_tokens, sent_tokens_min });
    }
    draft.stop(match response.done_reason.as_deref() {
        None | Some("stop" | "") => StopReason::EndOfTurn,
        Some("length") => StopReason::Length,
        Some(other) => StopReason::Other(other.to_owned()),
    });
    draft.end();
}
