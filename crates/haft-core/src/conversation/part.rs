//! The pieces of a message.

use std::sync::Arc;

use crate::output::Content;
use crate::tool::{CallId, ToolCall};

/// One piece of a message, and its identity in the wire format it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub body: Body,
    pub mark: Option<Mark>,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Text {
        text: String,
        annotations: Vec<Annotation>,
    },
    /// The model's refusal, in its own words.
    Refusal(String),
    Image(Media),
    Audio(Media),
    File {
        name: Option<String>,
        media: Media,
    },
    /// The model's reasoning, as far as the provider shows it. Encoders never replay it as ordinary text.
    Reasoning(String),
    Call(ToolCall),
    Reply(ToolReply),
    /// Content that no other format can express; all of it is in the state of the mark.
    Opaque,
}

/// The wire formats from which haft decodes and to which it encodes conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    OpenaiChat,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

impl Format {
    pub const ALL: [Format; 5] =
        [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Gemini, Format::Ollama];

    pub fn name(self) -> &'static str {
        match self {
            Format::OpenaiChat => "openai_chat",
            Format::OpenaiResponses => "openai_responses",
            Format::Anthropic => "anthropic",
            Format::Gemini => "gemini",
            Format::Ollama => "ollama",
        }
    }
}

/// The identity of a part in one wire format. Only that format reads it; all others drop it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub format: Format,
    pub id: Option<String>,
    /// State that must go back to the provider unchanged: a signature, encrypted reasoning, or a block of a kind that
    /// only its format knows.
    pub state: Option<Arc<str>>,
}

/// Content other than text, and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    pub media_type: String,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    Bytes(Arc<[u8]>),
    Url(String),
}

/// Metadata about a text, such as a citation: the wire format's own JSON, kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub format: Format,
    pub json: Arc<str>,
    /// The URL of the cited page, if there is one. Every format may show it.
    pub url: Option<String>,
}

/// The result of a tool call as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    pub call: CallId,
    /// The tool name that the model called. Some wire formats link replies to calls by it.
    pub name: String,
    pub content: Vec<Content>,
    pub is_error: bool,
}

impl Part {
    pub fn new(body: Body) -> Self {
        Self { body, mark: None }
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Body::Text { text: text.into(), annotations: Vec::new() })
    }

    #[must_use]
    pub fn marked(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    pub fn as_call(&self) -> Option<&ToolCall> {
        match &self.body {
            Body::Call(call) => Some(call),
            Body::Text { .. }
            | Body::Refusal(_)
            | Body::Image(_)
            | Body::Audio(_)
            | Body::File { .. }
            | Body::Reasoning(_)
            | Body::Reply(_)
            | Body::Opaque => None,
        }
    }

    /// Returns the part's id in `format`, or `None` if the part came from another format.
    pub fn id_for(&self, format: Format) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.id.as_deref()
    }

    /// Returns the state that only `format` understands, or `None` if the part came from another format.
    pub fn state_for(&self, format: Format) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.state.as_deref()
    }
}

impl Body {
    /// Returns the noun for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Body::Text { .. } => "text",
            Body::Refusal(_) => "a refusal",
            Body::Image(_) => "an image",
            Body::Audio(_) => "audio",
            Body::File { .. } => "a file",
            Body::Reasoning(_) => "reasoning",
            Body::Call(_) => "a tool call",
            Body::Reply(_) => "a tool reply",
            Body::Opaque => "opaque state",
        }
    }
}

impl ToolReply {
    pub fn text(call: &ToolCall, text: impl Into<String>) -> Self {
        let content = vec![Content::Text(text.into())];
        Self { call: call.id.clone(), name: call.name.clone(), content, is_error: false }
    }

    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(call, text) }
    }
}
