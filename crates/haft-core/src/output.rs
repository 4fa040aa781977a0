//! What a tool gives: content for the model, and structured data beside it.

use std::sync::Arc;

use serde_json::Value;

/// What a call that succeeded gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    pub content: Vec<Content>,
    pub structured: Option<Value>,
}

/// One piece of content, in the order the tool gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(String),
    Image {
        media_type: String,
        bytes: Arc<[u8]>,
    },
    Audio {
        media_type: String,
        bytes: Arc<[u8]>,
    },
    Resource {
        uri: String,
        media_type: Option<String>,
        text: Option<String>,
    },
    /// Too large to carry along: kept in the output store under `handle`.
    Stored {
        handle: String,
        bytes: u64,
    },
}

impl ToolOutput {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], structured: None }
    }

    /// The output as the text a model or a terminal is shown; what is not text is described, never dumped.
    pub fn as_text(&self) -> String {
        self.content.iter().map(Content::as_text).collect::<Vec<_>>().join("\n")
    }
}

impl Content {
    /// What a terminal, or a model that only reads, is shown of it.
    pub fn as_text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Image { media_type, bytes } => format!("[image: {media_type}, {} bytes]", bytes.len()),
            Content::Audio { media_type, bytes } => format!("[audio: {media_type}, {} bytes]", bytes.len()),
            Content::Resource { uri, text, .. } => match text {
                Some(text) => format!("[resource: {uri}]\n{text}"),
                None => format!("[resource: {uri}]"),
            },
            Content::Stored { handle, bytes } => format!("[stored output: {handle}, {bytes} bytes]"),
        }
    }
}
