//! The pieces of a message.

use std::sync::Arc;

use crate::output::Content;
use crate::tool::{CallId, ToolCall};

/// One piece of a message, and how its own wire knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub body: Body,
    pub mark: Option<Mark>,
}

/// What a piece says.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Text {
        text: String,
        annotations: Vec<Annotation>,
    },
    /// The model declines, in its own words.
    Refusal(String),
    Image(Media),
    Audio(Media),
    File {
        name: Option<String>,
        media: Media,
    },
    /// What a model thought, as far as its provider shows it. Never replayed as text.
    Reasoning(String),
    Call(ToolCall),
    Reply(ToolReply),
    /// Nothing that another format could say: all there is lies in the mark's state.
    Opaque,
}

/// The wire formats that conversations come from and go to.
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

/// How one wire knows a part. Only the same format looks into it; every other drops it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub format: Format,
    pub id: Option<String>,
    /// State that goes back unchanged: a signature, encrypted reasoning, a block of a kind only its format knows.
    pub state: Option<Arc<str>>,
}

/// Something that is not text, and where it is.
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

/// Something said about a text, such as where it is from; the wire's own JSON, kept as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub format: Format,
    pub json: Arc<str>,
    /// The page it points at, when it does; every format may show it.
    pub url: Option<String>,
}

/// The end of a call, as a model is told it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    pub call: CallId,
    /// The name the model called; some wires link by it.
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

    /// The id under which `format` knows this part; nothing when it is another's.
    pub fn id_for(&self, format: Format) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.id.as_deref()
    }

    /// What only `format` understands about this part.
    pub fn state_for(&self, format: Format) -> Option<&str> {
        self.mark.as_ref().filter(|mark| mark.format == format)?.state.as_deref()
    }
}

impl Body {
    /// The word for it in messages to people.
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
