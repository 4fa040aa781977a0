//! Decodes a streamed chat completion. Chunks have the same fields as a whole completion, but calls are split over
//! several chunks.

use std::borrow::Cow;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::PartStart;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{self, ChatCompletion, ChatToolCall, CompletionExtent};
use crate::bounded_json;
use crate::draft::ReplyDraft;
use crate::stream::FrameReader;
use crate::wire::DecodeContext;

/// Decodes the chunks of a Chat Completions stream into a reply draft.
pub(super) struct ChatStreamReader {
    draft: ReplyDraft,
    calls: ChatStreamCalls,
}

impl ChatStreamReader {
    pub(super) fn new(decode_context: &DecodeContext) -> Self {
        Self {
            draft: ReplyDraft::new(ModelApiFormat::OpenaiChat, decode_context),
            calls: ChatStreamCalls::default(),
        }
    }
}

impl FrameReader for ChatStreamReader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        let completion: ChatCompletion<'_> = bounded_json::read_frame(frame)?;
        response::apply(&mut self.draft, &mut self.calls, &completion, CompletionExtent::Chunk)
    }

    fn end(&mut self) {
        self.calls.finish(&mut self.draft);
        self.draft.end();
    }

    fn draft(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }
}

/// The maximum number of reasoning details in one reply. Each new detail is compared with all earlier ones.
const DETAILS_MAX: usize = 1_000;

/// The calls in a reply while they arrive, and other data that is complete only at the end.
#[derive(Debug, Default)]
pub(super) struct ChatStreamCalls {
    open: Vec<ChatOpenCall>,
    details: Vec<Value>,
    /// The reasoning details of a reply that arrived in one chunk, byte for byte.
    whole_details: Option<String>,
    pub(super) refused: bool,
}

#[derive(Debug)]
struct ChatOpenCall {
    /// The `index` of the call in the stream.
    number: u64,
    id: Option<String>,
    part: usize,
    extras: Option<String>,
}

impl ChatStreamCalls {
    /// Starts a call or appends to one. Some servers give every call the index 0, but each call still has its own id
    /// and name.
    pub(super) fn add(&mut self, draft: &mut ReplyDraft, call: &ChatToolCall<'_>) -> Result<(), ModelError> {
        let place = self.place(call);
        let function = call.function.as_ref();
        let place = if let Some(place) = place {
            place
        } else {
            let name = function.and_then(|function| function.name.as_deref()).unwrap_or_default();
            if !draft.has_room_for_calls() {
                // Count each skipped call once: only its first fragment contains a name.
                draft.skip_calls(usize::from(!name.is_empty()));
                return Ok(());
            }
            let part = draft.open_call(call.id.as_deref(), name, None);
            let number = call.index.unwrap_or(self.open.len() as u64);
            self.open.push(ChatOpenCall {
                number,
                id: call.id.as_deref().map(str::to_owned),
                part,
                extras: None,
            });
            self.open.len() - 1
        };
        let open = &mut self.open[place];
        if let Some(extras) = call.extra_content.filter(|extras| extras.get() != "null") {
            open.extras = Some(extras.get().to_owned());
        }
        if let Some(arguments) = function.and_then(|function| function.arguments) {
            draft.add(open.part, &arguments_text(arguments)?);
        }
        Ok(())
    }

    fn place(&self, call: &ChatToolCall<'_>) -> Option<usize> {
        let names_one = call
            .function
            .as_ref()
            .is_some_and(|function| function.name.as_deref().is_some_and(|name| !name.is_empty()));
        let number = match call.index {
            Some(number) => number,
            None if names_one => return None,
            None => self.open.last()?.number,
        };
        let place = self.open.iter().rposition(|open| open.number == number)?;
        let id = call.id.as_deref().filter(|id| !id.is_empty());
        let is_another = names_one && id.is_some() && id != self.open[place].id.as_deref();
        (!is_another).then_some(place)
    }

    /// Merges reasoning details that have the same index and type.
    pub(super) fn add_details(&mut self, details: &RawValue) -> Result<(), ModelError> {
        let pieces: Option<Vec<Value>> = bounded_json::read_raw(details)?;
        let is_first = self.details.is_empty();
        for piece in pieces.into_iter().flatten() {
            let has_room = self.details.len() < DETAILS_MAX;
            match self.details.iter_mut().find(|known| continues(known, &piece)) {
                Some(known) => merge(known, piece),
                None if has_room => self.details.push(piece),
                None => {}
            }
        }
        self.whole_details = is_first.then(|| details.get().to_owned());
        Ok(())
    }

    pub(super) fn finish(&mut self, draft: &mut ReplyDraft) {
        draft.stop_flow();
        for open in self.open.drain(..) {
            let mark = draft.mark(None, open.extras.as_deref());
            draft.close(open.part, mark);
        }
        let details = std::mem::take(&mut self.details);
        if !details.is_empty() {
            let whole = self.whole_details.take();
            let json = whole.unwrap_or_else(|| Value::Array(details).to_string());
            let mark = draft.mark(None, Some(&json));
            let part = draft.open(PartStart::Opaque, mark);
            draft.close(part, None);
        }
    }
}

fn arguments_text(arguments: &RawValue) -> Result<Cow<'_, str>, ModelError> {
    match arguments.get() {
        "null" => Ok("".into()),
        text if text.starts_with('"') => bounded_json::read_raw(arguments),
        object => Ok(object.into()),
    }
}

fn continues(known: &Value, piece: &Value) -> bool {
    piece.get("index").is_some()
        && known.get("index") == piece.get("index")
        && known.get("type") == piece.get("type")
}

fn merge(known: &mut Value, piece: Value) {
    let (Some(known), Value::Object(piece)) = (known.as_object_mut(), piece) else { return };
    for (key, value) in piece {
        match (known.get_mut(&key), value) {
            (Some(Value::String(text)), Value::String(more))
                if ["text", "summary", "data"].contains(&key.as_str()) =>
            {
                text.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => {
                known.insert(key, value);
            }
        }
    }
}
