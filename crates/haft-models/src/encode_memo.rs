//! Caches encoded messages: a conversation only grows at its end, so each turn encodes only the new messages.

use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, MessagePart, PartBody};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::output::OutputContent;

use crate::conversation_cache::ConversationState;
use crate::tool_blocks::{ToolBlock, ToolBlocks, ToolLists};
use crate::unsupported_features::{FeatureSet, RequestFeature, UnsupportedFeature};
use crate::wire::DecodeContext;

/// The encoded messages of one conversation in one format. A memo that does not match the request is reset, so using
/// the wrong memo costs time but never gives a wrong result.
#[derive(Debug, Default)]
pub struct EncodeMemo {
    /// The name of the encoder that wrote the bytes.
    writer: &'static str,
    /// The shown and the deferred tools of the last request, and their encoded form.
    tools: Option<(ToolLists, Arc<ToolBlock>)>,
    system: Option<(Arc<str>, Vec<u8>)>,
    seen: Vec<Arc<Message>>,
    messages: EncodedMessages,
    encoded: EncodeCounters,
    /// The encoded tool lists that this conversation shares with others.
    blocks: ToolBlocks,
}

/// The numbers of encoded items. A reset of the memo keeps these numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeCounters {
    pub messages: usize,
    pub systems: usize,
    pub tool_lists: usize,
}

/// The messages that have been encoded so far.
#[derive(Debug, Default)]
pub(crate) struct EncodedMessages {
    pub(crate) tail: EncodedTail,
    pub(crate) features: FeatureSet,
    /// The size of all text in bytes, used to estimate tokens.
    pub(crate) text_bytes: usize,
}

/// Encoded messages. The last message may still be open for more blocks.
#[derive(Debug, Default)]
pub(crate) struct EncodedTail {
    pub(crate) bytes: Vec<u8>,
    /// The role of the open message. The next message with the same role is appended to it.
    pub(crate) open: Option<&'static str>,
    /// The positions in the last user and tool turns at which a cache marker may be inserted, in order.
    pub(crate) marks: Vec<usize>,
}

impl EncodedTail {
    /// Returns the brackets that close an open message.
    pub(crate) fn closing(&self, brackets: &'static [u8]) -> &'static [u8] {
        if self.open.is_some() { brackets } else { b"" }
    }

    /// Appends one whole message or item.
    pub(crate) fn push(&mut self, encoded: &[u8]) {
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(encoded);
    }

    /// Appends comma-separated blocks to the open message of `role`, or starts such a message. `brackets` are the text
    /// before the first block of a message and the text that closes the message.
    pub(crate) fn push_blocks(&mut self, role: &'static str, blocks: &[u8], brackets: (&[u8], &[u8])) {
        if blocks.is_empty() {
            return;
        }
        if self.open == Some(role) {
            self.bytes.push(b',');
        } else {
            if self.open.is_some() {
                self.bytes.extend_from_slice(brackets.1);
                self.bytes.push(b',');
            }
            self.bytes.extend_from_slice(brackets.0);
            self.open = Some(role);
        }
        self.bytes.extend_from_slice(blocks);
    }
}

/// The encoder of one format. [`EncodeMemo::encode_cached`] encodes each message, system text and tool list
/// once.
pub(crate) trait Encoder {
    /// Returns a name that identifies everything on which the encoded bytes depend. Encoders whose bytes differ must
    /// have different names.
    fn name(&self) -> &'static str;

    fn message(&self, tail: &mut EncodedTail, message: &Message);

    fn system(&self, system: &str) -> Vec<u8>;

    /// Encodes the tools in a request. Formats that cannot load tools by name ignore `deferred`.
    fn tools(&self, tools: &[ModelTool], deferred: &[ModelTool]) -> Vec<u8>;
}

/// The large parts of a request, encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedPrompt<'a> {
    pub(crate) messages: &'a EncodedMessages,
    pub(crate) system: &'a [u8],
    pub(crate) tools: &'a [u8],
}

impl EncodeMemo {
    /// Makes later requests share encoded tool lists with other conversations.
    pub(crate) fn share(&mut self, blocks: &ToolBlocks) {
        self.blocks = blocks.clone();
    }

    /// Returns the counters. Tests use them to check that nothing is encoded twice.
    pub fn encoded(&self) -> EncodeCounters {
        self.encoded
    }

    /// Encodes the new messages and returns all encoded parts.
    pub(crate) fn encode_cached(
        &mut self,
        encoder: &impl Encoder,
        request: &ModelRequest,
    ) -> EncodedPrompt<'_> {
        let messages = request.conversation.messages();
        if self.writer != encoder.name() || !self.fits(messages) {
            let blocks = self.blocks.clone();
            *self = Self { writer: encoder.name(), encoded: self.encoded, blocks, ..Self::default() };
        }
        for message in &messages[self.seen.len()..] {
            encoder.message(&mut self.messages.tail, message);
            self.encoded.messages += 1;
            self.messages.features.add_message(message);
            self.messages.text_bytes += text_bytes(message);
            self.seen.push(message.clone());
        }
        let lists = [&request.tools, &request.deferred];
        let is_same = |kept: &ToolLists| kept.iter().zip(lists).all(|(one, other)| Arc::ptr_eq(one, other));
        if self.tools.as_ref().is_some_and(|(kept, _)| !is_same(kept)) {
            self.tools = None;
        }
        if self.system.as_ref().is_some_and(|(kept, _)| *kept != request.system) {
            self.system = None;
        }
        let counts = &mut self.encoded;
        let (_, tools) = self.tools.get_or_insert_with(|| {
            let lists = lists.map(Arc::clone);
            let block = self.blocks.get_or_encode(self.writer, &lists, || {
                counts.tool_lists += 1;
                encoder.tools(&request.tools, &request.deferred)
            });
            (lists, block)
        });
        let system = self.system.get_or_insert_with(|| {
            counts.systems += 1;
            (request.system.clone(), encoder.system(&request.system))
        });
        EncodedPrompt { messages: &self.messages, system: &system.1, tools: tools.bytes() }
    }

    /// Returns true if the cached messages are the beginning of this conversation. Comparing pointers is enough,
    /// because messages are immutable and the memo keeps them alive, so no address is reused.
    fn fits(&self, messages: &[Arc<Message>]) -> bool {
        self.seen.len() <= messages.len()
            && self.seen.iter().zip(messages).all(|(kept, new)| Arc::ptr_eq(kept, new))
    }
}

impl ConversationState for EncodeMemo {
    fn knows(&self, conversation: &Conversation) -> Option<usize> {
        let known = self.seen.len();
        (known > 0 && self.fits(conversation.messages())).then_some(known)
    }

    fn bytes(&self) -> usize {
        let tools = self.tools.as_ref().map_or(0, |(_, block)| block.bytes().len());
        let system = self.system.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.messages.tail.bytes.len() + tools + system
    }
}

impl EncodedPrompt<'_> {
    /// Returns the facts about the request that the decoder needs.
    pub(crate) fn decode_context(&self, request: &ModelRequest) -> DecodeContext {
        let text_bytes = self.messages.text_bytes + self.system.len() + self.tools.len();
        DecodeContext { turn: request.conversation.messages().len(), text_bytes, context_tokens: None }
    }

    /// Returns the features used in the request that are in `list`.
    pub(crate) fn unsupported(
        &self,
        request: &ModelRequest,
        list: &[UnsupportedFeature],
    ) -> Vec<RequestFeature> {
        let mut features = self.messages.features;
        features.add_request(request);
        features.unsupported(list)
    }
}

fn text_bytes(message: &Message) -> usize {
    message.parts.iter().map(part_bytes).sum()
}

fn part_bytes(part: &MessagePart) -> usize {
    match &part.body {
        PartBody::Text { text, .. } | PartBody::Refusal(text) => text.len(),
        PartBody::Call(call) => call.name.len() + call.arguments.as_text().len(),
        PartBody::Reply(reply) => reply
            .content
            .iter()
            .map(|piece| match piece {
                OutputContent::Text(text) => text.len(),
                OutputContent::FoundTools(found) => found.text.len(),
                OutputContent::Image { .. }
                | OutputContent::Audio { .. }
                | OutputContent::Link(_)
                | OutputContent::Resource { .. }
                | OutputContent::Binary { .. }
                | OutputContent::Stored(_) => 0,
            })
            .sum(),
        PartBody::Image(_)
        | PartBody::Audio(_)
        | PartBody::File { .. }
        | PartBody::Reasoning(_)
        | PartBody::Opaque => 0,
    }
}
