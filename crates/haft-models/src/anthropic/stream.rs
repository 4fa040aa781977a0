//! Decodes a streamed message. Separate events start, fill and stop its blocks.

use std::collections::HashMap;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_reply::ReplyNote;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{self, AnthropicBlock, AnthropicMessage, AnthropicUsage};
use crate::bounded_json::FrameText;
use crate::draft::{LEFT_OUT, ReplyDraft};
use crate::stream::FrameReader;
use crate::wire::DecodeContext;
use crate::{bounded_json, failure};

/// Decodes the events of a Messages API stream into a reply draft.
pub(super) struct AnthropicStreamReader {
    draft: ReplyDraft,
    open: HashMap<u64, OpenBlock>,
    usage: AnthropicUsage,
}

/// A content block whose deltas are still arriving.
struct OpenBlock {
    part: usize,
    signature: String,
    /// The call input in the start event. It is used only if no input delta follows.
    input: Option<String>,
    unknown: Option<UnknownBlock>,
}

impl OpenBlock {
    /// Returns the state of a block whose call the reply skips. The draft drops all content for this block.
    fn skipped() -> Self {
        Self { part: LEFT_OUT, signature: String::new(), input: None, unknown: None }
    }
}

/// A block of an unknown type, kept as a whole, with the input from its deltas.
struct UnknownBlock {
    id: Option<String>,
    json: String,
    input: String,
}

#[derive(Debug, Deserialize)]
struct AnthropicEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<FrameText<'a>>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    message: Option<AnthropicMessage<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<AnthropicDelta<'a>>,
    usage: Option<AnthropicUsage>,
    error: Option<Value>,
}

/// A delta: an addition to a block, or to the message itself.
#[derive(Debug, Deserialize)]
struct AnthropicDelta<'a> {
    #[serde(borrow)]
    text: Option<FrameText<'a>>,
    thinking: Option<FrameText<'a>>,
    partial_json: Option<FrameText<'a>>,
    signature: Option<FrameText<'a>>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
    stop_reason: Option<FrameText<'a>>,
}

impl AnthropicStreamReader {
    pub(super) fn new(decode_context: &DecodeContext) -> Self {
        Self {
            draft: ReplyDraft::new(ModelApiFormat::Anthropic, decode_context),
            open: HashMap::new(),
            usage: AnthropicUsage::default(),
        }
    }

    fn event(&mut self, data: &str) -> Result<(), ModelError> {
        let event: AnthropicEvent<'_> = bounded_json::read_frame(data)?;
        match event.kind.as_deref().unwrap_or_default() {
            "message_start" => self.start(&event),
            "content_block_start" => self.block_start(&event)?,
            "content_block_delta" => self.block_delta(&event),
            "content_block_stop" => self.block_stop(event.index),
            "message_delta" => self.message_delta(&event),
            "message_stop" => self.end(),
            "error" => return Err(failure::inside(&event.error.unwrap_or_default())),
            // Ignore pings, and event types that the API may add later.
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, event: &AnthropicEvent<'_>) {
        let Some(message) = &event.message else { return };
        self.draft.start(message.id.as_deref(), message.model.as_deref());
        if let Some(usage) = &message.usage {
            self.count(usage);
        }
    }

    fn count(&mut self, usage: &AnthropicUsage) {
        self.usage.update(usage);
        self.draft.usage(self.usage.read());
    }

    fn block_start(&mut self, event: &AnthropicEvent<'_>) -> Result<(), ModelError> {
        let Some(raw) = event.content_block else { return Ok(()) };
        // A second start at the same index ends the first block.
        self.block_stop(event.index);
        if self.draft.skips_call(raw, |kind| kind == "tool_use") {
            self.open.insert(event.index, OpenBlock::skipped());
            return Ok(());
        }
        let block: AnthropicBlock<'_> = bounded_json::read_raw(raw)?;
        let part = response::open(&mut self.draft, &block, raw.get());
        self.draft.add(part, block.text.as_deref().or(block.thinking.as_deref()).unwrap_or_default());
        let kind = block.kind.as_deref().unwrap_or_default();
        let unknown = match kind {
            "text" | "thinking" | "tool_use" => None,
            _ => {
                let id = block.id.as_deref().map(str::to_owned);
                Some(UnknownBlock { id, json: raw.get().to_owned(), input: String::new() })
            }
        };
        let input = block.input.filter(|_| kind == "tool_use").map(|input| input.get().to_owned());
        let signature = block.signature.as_deref().unwrap_or_default().to_owned();
        self.open.insert(event.index, OpenBlock { part, signature, input, unknown });
        Ok(())
    }

    fn block_delta(&mut self, event: &AnthropicEvent<'_>) {
        let Some(delta) = &event.delta else { return };
        let Some(open) = self.open.get_mut(&event.index) else {
            let reason = format!("the event adds to block {}, which was not started", event.index);
            return self.draft.note(ReplyNote::EventSkipped { reason });
        };
        if let Some(text) = delta.text.as_deref().or(delta.thinking.as_deref()) {
            self.draft.add(open.part, text);
        }
        if let Some(signature) = delta.signature.as_deref() {
            open.signature.push_str(signature);
        }
        if let Some(citation) = delta.citation {
            response::annotate(&mut self.draft, open.part, citation);
        }
        if let Some(json) = delta.partial_json.as_deref().filter(|json| !json.is_empty()) {
            open.input = None;
            match &mut open.unknown {
                Some(unknown) => unknown.input.push_str(json),
                None => self.draft.add(open.part, json),
            }
        }
    }

    fn block_stop(&mut self, index: u64) {
        let Some(open) = self.open.remove(&index) else { return };
        if let Some(input) = &open.input {
            self.draft.add(open.part, input);
        }
        let mark = match open.unknown {
            Some(unknown) => self.draft.mark(unknown.id.as_deref(), Some(&unknown.whole())),
            None => self.draft.mark(None, Some(open.signature.as_str()).filter(|text| !text.is_empty())),
        };
        self.draft.close(open.part, mark);
    }

    fn message_delta(&mut self, event: &AnthropicEvent<'_>) {
        if let Some(reason) = event.delta.as_ref().and_then(|delta| delta.stop_reason.as_deref()) {
            self.draft.stop(response::stop_reason(reason));
        }
        if let Some(usage) = &event.usage {
            self.count(usage);
        }
    }
}

impl UnknownBlock {
    /// Returns the block from the start event, with the streamed input inserted.
    fn whole(&self) -> String {
        let Ok(input) = serde_json::from_str::<Value>(&self.input) else { return self.json.clone() };
        let mut block: Value = serde_json::from_str(&self.json).unwrap_or_default();
        if let Some(object) = block.as_object_mut() {
            object.insert("input".into(), input);
        }
        block.to_string()
    }
}

impl FrameReader for AnthropicStreamReader {
    fn frame(&mut self, frame: &str) -> Result<(), ModelError> {
        self.event(frame)
    }

    fn end(&mut self) {
        let mut left: Vec<_> = self.open.keys().copied().collect();
        left.sort_unstable();
        for index in left {
            self.block_stop(index);
        }
        self.draft.end();
    }

    fn draft(&mut self) -> &mut ReplyDraft {
        &mut self.draft
    }
}
