//! The pieces of a message.

use std::sync::Arc;

use crate::output::OutputContent;
use crate::tool::{CallId, ToolCall};

/// One piece of a message, and its identity in the wire format from which it was decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePart {
    /// The content, which every format can encode or describe.
    pub body: PartBody,
    /// The identity in the wire format; `None` for a part that no wire format has identified, such as a user's text.
    pub mark: Option<WireIdentity>,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq)]
pub enum PartBody {
    /// Text that the reader of the message sees.
    Text {
        /// The text, without the annotations.
        text: String,
        /// Citations and other metadata of the text.
        annotations: Vec<Annotation>,
    },
    /// The model's refusal, in its own words.
    Refusal(String),
    /// An image for a model that reads images, or from one that draws them.
    Image(Media),
    /// Audio for a model, or from one.
    Audio(Media),
    /// A document, such as a PDF.
    File {
        /// The file name for the model, if one is known.
        name: Option<String>,
        /// The content of the file.
        media: Media,
    },
    /// The model's reasoning, as far as the provider shows it. Encoders never replay it as ordinary text.
    Reasoning(String),
    /// A tool call by the model.
    Call(ToolCall),
    /// The result of a tool call.
    Reply(ToolReply),
    /// Content that no other format can express. All of it is in `state` of the mark.
    Opaque,
}

/// The wire formats from which haft decodes and to which it encodes conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelApiFormat {
    /// The Chat Completions API of OpenAI and of many compatible servers.
    OpenaiChat,
    /// The Responses API of OpenAI.
    OpenaiResponses,
    /// The Messages API of Anthropic.
    Anthropic,
    /// The `generateContent` API of Google Gemini.
    Gemini,
    /// The native chat API of Ollama.
    Ollama,
}

crate::name_table!(ModelApiFormat {
    OpenaiChat: "openai_chat",
    OpenaiResponses: "openai_responses",
    Anthropic: "anthropic",
    Gemini: "gemini",
    Ollama: "ollama",
});

/// The identity of a part in one wire format. Only that format uses it; all others drop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireIdentity {
    /// The only format that uses this mark.
    pub format: ModelApiFormat,
    /// The provider's own id of the part.
    pub id: Option<String>,
    /// State that must go back to the provider unchanged: a signature, encrypted reasoning, or a block of a kind that
    /// only this format has.
    pub state: Option<Arc<str>>,
}

/// Content other than text, and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// The MIME type, such as `image/png`.
    pub media_type: String,
    /// The bytes, or the address of the bytes.
    pub source: MediaSource,
}

/// The location of media content.
#[derive(Debug, Clone, PartialEq)]
pub enum MediaSource {
    /// The content itself, not encoded.
    Bytes(Arc<[u8]>),
    /// An address from which the provider fetches the content.
    Url(String),
}

/// Metadata about a text, such as a citation: the wire format's own JSON, kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The format that wrote the JSON.
    pub format: ModelApiFormat,
    /// The annotation exactly as the provider sent it.
    pub json: Arc<str>,
    /// The URL of the cited page, if there is one. Every format may show it.
    pub url: Option<String>,
}

/// The result of a tool call as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// The id of the call that this reply answers.
    pub call: CallId,
    /// The tool name that the model called. Some wire formats match replies to calls by this name.
    pub name: String,
    /// The output, or the error message.
    pub content: Vec<OutputContent>,
    /// True if the call failed. Formats without such a flag encode only the text.
    pub is_error: bool,
}

impl MessagePart {
    /// Creates a part that no wire format has identified.
    pub fn new(body: PartBody) -> Self {
        Self { body, mark: None }
    }

    /// Creates a text without annotations.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartBody::Text { text: text.into(), annotations: Vec::new() })
    }

    /// Sets the identity of the part in its wire format.
    #[must_use]
    pub fn marked(mut self, mark: WireIdentity) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Returns the text; `None` for every other kind of part.
    pub fn as_text(&self) -> Option<&str> {
        if let PartBody::Text { text, .. } = &self.body { Some(text) } else { None }
    }

    /// Returns the text of a refusal; `None` for every other kind of part.
    pub fn as_refusal(&self) -> Option<&str> {
        if let PartBody::Refusal(text) = &self.body { Some(text) } else { None }
    }

    /// Returns the tool call; `None` for every other kind of part.
    pub fn as_call(&self) -> Option<&ToolCall> {
        if let PartBody::Call(call) = &self.body { Some(call) } else { None }
    }

    /// Returns the reply of a tool; `None` for every other kind of part.
    pub fn as_reply(&self) -> Option<&ToolReply> {
        if let PartBody::Reply(reply) = &self.body { Some(reply) } else { None }
    }

    /// Returns the part's id in `format`, or `None` if the part came from another format.
    pub fn id_for(&self, format: ModelApiFormat) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.id.as_deref()
    }

    /// Returns the state that only `format` understands, or `None` if the part came from another format.
    pub fn state_for(&self, format: ModelApiFormat) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.state.as_deref()
    }
}

impl PartBody {
    /// Returns the noun for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            PartBody::Text { .. } => "text",
            PartBody::Refusal(_) => "a refusal",
            PartBody::Image(_) => "an image",
            PartBody::Audio(_) => "audio",
            PartBody::File { .. } => "a file",
            PartBody::Reasoning(_) => "reasoning",
            PartBody::Call(_) => "a tool call",
            PartBody::Reply(_) => "a tool reply",
            PartBody::Opaque => "opaque state",
        }
    }
}

impl ToolReply {
    /// Creates the reply of a successful call.
    pub fn text(call: &ToolCall, text: impl Into<String>) -> Self {
        let content = vec![OutputContent::Text(text.into())];
        Self { call: call.id.clone(), name: call.name.clone(), content, is_error: false }
    }

    /// Creates the reply of a failed call; `text` tells the model the reason.
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(call, text) }
    }
}
