//! The output of a tool: content for the model, and optional structured data.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::media;
use crate::output_store::StoredOutput;

/// The output of a successful call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// The content for the model. It may be empty.
    pub content: Vec<OutputContent>,
    /// The output as JSON, for programs; `None` if the tool returns content only.
    pub structured: Option<Value>,
    /// The unchanged result of the MCP server, for a caller that passes it on. `None` for all other tools, and once a
    /// stage has changed the output.
    pub raw: Option<RawResult>,
}

/// The JSON text of a server's result. Clones share it.
#[derive(Debug, Clone)]
pub struct RawResult(pub Arc<RawValue>);

impl PartialEq for RawResult {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// One part of the content of a tool's output.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputContent {
    /// Text, which is always valid UTF-8.
    Text(String),
    /// An image for models that read images.
    Image {
        /// The MIME type, such as `image/png`.
        media_type: String,
        /// The raw bytes of the content, not encoded as base64.
        bytes: Arc<[u8]>,
    },
    /// A sound for models that read audio.
    Audio {
        /// The MIME type, such as `audio/wav`.
        media_type: String,
        /// The raw bytes of the content, not encoded as base64.
        bytes: Arc<[u8]>,
    },
    /// A link to a resource that a client can fetch. The output does not contain the resource.
    Link(Box<ResourceLink>),
    /// A resource that a client can fetch, with its text if the tool included it.
    Resource {
        /// The address of the resource.
        uri: String,
        /// The MIME type, if the tool gave one.
        media_type: Option<String>,
        /// The content; `None` if the tool returned only the address.
        text: Option<String>,
    },
    /// Bytes that no model can read: a binary resource, a response body, a file.
    Binary {
        /// The address that the bytes came from, if there is one.
        uri: Option<String>,
        /// The MIME type, if the tool gave one.
        media_type: Option<String>,
        /// The raw bytes of the content, not encoded as base64.
        bytes: Arc<[u8]>,
    },
    /// The result of a tool search. Formats that can load tools by name send the names; all others send the text.
    FoundTools(Box<FoundTools>),
    /// Content that was moved to the output store. The model gets a handle instead.
    Stored(Box<StoredOutput>),
}

/// A link to a resource, as an MCP server describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLink {
    /// The address of the resource.
    pub uri: String,
    /// The MIME type, if the tool gave one.
    pub media_type: Option<String>,
    /// The name of the resource.
    pub name: Option<String>,
    /// The name for people.
    pub title: Option<String>,
    /// The description for the model.
    pub description: Option<String>,
}

impl ResourceLink {
    fn as_text(&self) -> String {
        let Self { uri, name, description, .. } = self;
        let words: Vec<&str> = [name, description].into_iter().flatten().map(String::as_str).collect();
        if words.is_empty() {
            format!("[resource: {uri}]")
        } else {
            format!("[resource: {uri}]\n{}", words.join(": "))
        }
    }
}

/// The tools that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTools {
    /// The whole search result as text.
    pub text: String,
    /// The exposed names of the tools that the text defines, best match first.
    pub defined: Vec<String>,
    /// The search result without the tool definitions, for wire formats that send the definitions in their own way. It
    /// may be empty.
    pub rest: String,
}

impl FoundTools {
    /// Appends a paragraph to both forms of the search result, with and without the tool definitions.
    pub fn append(&mut self, paragraph: &str) {
        for text in [&mut self.text, &mut self.rest] {
            let separator = if text.is_empty() { "" } else { "\n\n" };
            text.push_str(separator);
            text.push_str(paragraph);
        }
    }
}

impl ToolOutput {
    /// Creates an output that is one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![OutputContent::Text(text.into())], ..Self::default() }
    }

    /// Creates an output that refers to content in the output store.
    pub fn stored(stored: StoredOutput) -> Self {
        Self { content: vec![OutputContent::Stored(Box::new(stored))], ..Self::default() }
    }

    /// Returns the output as text for a model or a terminal. Binary content is described, never dumped.
    pub fn as_text(&self) -> String {
        self.content.iter().map(OutputContent::as_text).collect::<Vec<_>>().join("\n")
    }
}

impl OutputContent {
    /// Returns the MIME type and the bytes of an image; `None` for other content.
    pub fn as_image(&self) -> Option<(&str, &Arc<[u8]>)> {
        match self {
            OutputContent::Image { media_type, bytes } => Some((media_type, bytes)),
            OutputContent::Text(_)
            | OutputContent::Audio { .. }
            | OutputContent::Link(_)
            | OutputContent::Resource { .. }
            | OutputContent::Binary { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Stored(_) => None,
        }
    }

    /// Returns the content as text. Every interface that shows only text uses this.
    pub fn as_text(&self) -> String {
        match self {
            OutputContent::Text(text) => text.clone(),
            OutputContent::Image { media_type, bytes } => {
                format!("[{}]", described("image", Some(media_type), bytes))
            }
            OutputContent::Audio { media_type, bytes } => {
                format!("[{}]", described("audio", Some(media_type), bytes))
            }
            OutputContent::Link(link) => link.as_text(),
            OutputContent::Resource { uri, text, .. } => match text {
                Some(text) => format!("[resource: {uri}]\n{text}"),
                None => format!("[resource: {uri}]"),
            },
            OutputContent::Binary { uri, media_type, bytes } => {
                let from = uri.as_ref().map(|uri| format!(" from {uri}")).unwrap_or_default();
                format!("[{}{from}]", described("binary", media_type.as_deref(), bytes))
            }
            OutputContent::FoundTools(found) => found.text.clone(),
            OutputContent::Stored(stored) => stored.notice(),
        }
    }
}

/// The maximum length of a media type that is shown, in characters. A server may send any text as a media type.
const MEDIA_TYPE_CHARS_MAX: usize = 100;

/// Describes bytes without showing them: `image: image/png, 640x480 pixels, 12345 bytes`.
pub fn described(what: &str, media_type: Option<&str>, bytes: &[u8]) -> String {
    let announced = media_type.or_else(|| media::sniff(bytes)).unwrap_or("application/octet-stream");
    let media_type: String = announced.chars().take(MEDIA_TYPE_CHARS_MAX).collect();
    let pixels = media::dimensions(bytes).map(|(width, height)| format!(" {width}x{height} pixels,"));
    format!("{what}: {media_type},{} {} bytes", pixels.unwrap_or_default(), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_text_content_renders_as_a_bracketed_description() {
        let check = |content: OutputContent, expected: &str| assert_eq!(content.as_text(), expected);
        let gif: Arc<[u8]> = b"GIF89a\x05\0\x07\0".as_slice().into();
        check(
            OutputContent::Image { media_type: "image/gif".into(), bytes: Arc::clone(&gif) },
            "[image: image/gif, 5x7 pixels, 10 bytes]",
        );
        check(
            OutputContent::Audio { media_type: "audio/wav".into(), bytes: [0; 3].into() },
            "[audio: audio/wav, 3 bytes]",
        );
        check(
            OutputContent::Binary { uri: None, media_type: None, bytes: [0; 3].into() },
            "[binary: application/octet-stream, 3 bytes]",
        );
        check(
            OutputContent::Binary { uri: Some("a:b".into()), media_type: None, bytes: gif },
            "[binary: image/gif, 5x7 pixels, 10 bytes from a:b]",
        );
        let resource = |text: Option<&str>| OutputContent::Resource {
            uri: "a:b".into(),
            media_type: None,
            text: text.map(Into::into),
        };
        check(resource(None), "[resource: a:b]");
        check(resource(Some("c")), "[resource: a:b]\nc");
        let long = OutputContent::Image { media_type: "x".repeat(1_000), bytes: [0; 3].into() };
        assert!(long.as_text().len() < 200);
    }
}
