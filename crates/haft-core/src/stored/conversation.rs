//! The stored form of messages and calls.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{StoredError, names};
use crate::arguments::RawArguments;
use crate::conversation::{
    Annotation, Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, Role, ToolReply,
    UrlCitation, WireIdentity,
};
use crate::output::{FoundTools, OutputContent, ResourceLink};
use crate::tool::{CallId, ToolCall};

/// The stored form of [`Message`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    role: StoredRole,
    parts: Vec<StoredPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredRole {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredPart {
    body: StoredBody,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<StoredMark>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredBody {
    Text {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        annotations: Vec<StoredAnnotation>,
    },
    Refusal(String),
    Image(StoredMedia),
    Audio(StoredMedia),
    File {
        name: Option<String>,
        media: StoredMedia,
    },
    Reasoning(String),
    Call(StoredCall),
    Reply(StoredReply),
    Opaque,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredMark {
    format: String,
    id: Option<String>,
    state: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredAnnotation {
    format: String,
    json: String,
    /// The cited URL in a file of an older version, which stored no other fields of citations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    citations: Vec<StoredCitation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredCitation {
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredMedia {
    media_type: String,
    source: StoredSource,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredSource {
    Base64(String),
    Url(String),
}

/// The stored form of [`ToolCall`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredCall {
    id: String,
    name: String,
    /// The model's text, byte for byte.
    arguments: String,
}

/// The stored form of [`ToolReply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredReply {
    call: String,
    name: String,
    content: Vec<StoredContent>,
    is_error: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredContent {
    Text(String),
    Image {
        media_type: String,
        base64: String,
    },
    Audio {
        media_type: String,
        base64: String,
    },
    Resource {
        uri: String,
        media_type: Option<String>,
        text: Option<String>,
    },
    /// A link. Versions before it existed stored links as resources whose text is the description.
    Link {
        uri: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// Binary content. It is stored only in outputs; a reply holds a description of it as text.
    Binary {
        uri: Option<String>,
        media_type: Option<String>,
        base64: String,
    },
    FoundTools {
        text: String,
        defined: Vec<String>,
        rest: String,
    },
}

impl StoredMessage {
    /// Converts a message for storage.
    pub fn of(message: &Message) -> Self {
        let role = match message.role {
            Role::System => StoredRole::System,
            Role::User => StoredRole::User,
            Role::Assistant => StoredRole::Assistant,
            Role::Tool => StoredRole::Tool,
        };
        Self { role, parts: message.parts.iter().map(StoredPart::of).collect() }
    }

    /// Restores the message. Fails for damaged media and unknown names.
    pub fn into_message(self) -> Result<Message, StoredError> {
        let role = match self.role {
            StoredRole::System => Role::System,
            StoredRole::User => Role::User,
            StoredRole::Assistant => Role::Assistant,
            StoredRole::Tool => Role::Tool,
        };
        let parts = self.parts.into_iter().map(StoredPart::into_part).collect::<Result<_, _>>()?;
        Ok(Message { role, parts })
    }
}

impl StoredPart {
    pub(super) fn of(part: &MessagePart) -> Self {
        Self { body: StoredBody::of(&part.body), mark: part.mark.as_ref().map(StoredMark::of) }
    }

    pub(super) fn into_part(self) -> Result<MessagePart, StoredError> {
        Ok(MessagePart {
            body: self.body.into_body()?,
            mark: self.mark.map(StoredMark::into_mark).transpose()?,
        })
    }
}

impl StoredMark {
    pub(super) fn of(mark: &WireIdentity) -> Self {
        let WireIdentity { format, id, state } = mark;
        Self { format: format.name().into(), id: id.clone(), state: state.as_deref().map(str::to_owned) }
    }

    pub(super) fn into_mark(self) -> Result<WireIdentity, StoredError> {
        Ok(WireIdentity { format: format_of(&self.format)?, id: self.id, state: self.state.map(Into::into) })
    }
}

impl StoredBody {
    fn of(body: &PartBody) -> Self {
        match body {
            PartBody::Text { text, annotations } => Self::Text {
                text: text.clone(),
                annotations: annotations.iter().map(StoredAnnotation::of).collect(),
            },
            PartBody::Refusal(text) => Self::Refusal(text.clone()),
            PartBody::Image(media) => Self::Image(StoredMedia::of(media)),
            PartBody::Audio(media) => Self::Audio(StoredMedia::of(media)),
            PartBody::File { name, media } => {
                Self::File { name: name.clone(), media: StoredMedia::of(media) }
            }
            PartBody::Reasoning(text) => Self::Reasoning(text.clone()),
            PartBody::Call(call) => Self::Call(StoredCall::of(call)),
            PartBody::Reply(reply) => Self::Reply(StoredReply::of(reply)),
            PartBody::Opaque => Self::Opaque,
        }
    }

    fn into_body(self) -> Result<PartBody, StoredError> {
        Ok(match self {
            Self::Text { text, annotations } => {
                let annotations = annotations.into_iter().map(StoredAnnotation::into_annotation);
                PartBody::Text { text, annotations: annotations.collect::<Result<_, _>>()? }
            }
            Self::Refusal(text) => PartBody::Refusal(text),
            Self::Image(media) => PartBody::Image(media.into_media()?),
            Self::Audio(media) => PartBody::Audio(media.into_media()?),
            Self::File { name, media } => PartBody::File { name, media: media.into_media()? },
            Self::Reasoning(text) => PartBody::Reasoning(text),
            Self::Call(call) => PartBody::Call(call.into_call()),
            Self::Reply(reply) => PartBody::Reply(reply.into_reply()?),
            Self::Opaque => PartBody::Opaque,
        })
    }
}

impl StoredAnnotation {
    pub(super) fn of(annotation: &Annotation) -> Self {
        let Annotation { format, json, citations } = annotation;
        Self {
            format: format.name().into(),
            json: json.as_ref().into(),
            url: None,
            citations: citations.iter().map(StoredCitation::of).collect(),
        }
    }

    pub(super) fn into_annotation(self) -> Result<Annotation, StoredError> {
        let old = self.url.map(|url| UrlCitation { url, title: None, range: None });
        let citations = self.citations.into_iter().map(StoredCitation::into_citation);
        Ok(Annotation {
            format: format_of(&self.format)?,
            json: self.json.into(),
            citations: old.into_iter().chain(citations).collect(),
        })
    }
}

impl StoredCitation {
    fn of(citation: &UrlCitation) -> Self {
        let UrlCitation { url, title, range } = citation;
        let range = range.as_ref().map(|range| (range.start, range.end));
        Self { url: url.clone(), title: title.clone(), range }
    }

    fn into_citation(self) -> UrlCitation {
        let range = self.range.map(|(start, end)| start..end);
        UrlCitation { url: self.url, title: self.title, range }
    }
}

impl StoredMedia {
    pub(super) fn of(media: &Media) -> Self {
        let source = match &media.source {
            MediaSource::Bytes(bytes) => StoredSource::Base64(STANDARD.encode(bytes)),
            MediaSource::Url(url) => StoredSource::Url(url.clone()),
        };
        Self { media_type: media.media_type.clone(), source }
    }

    pub(super) fn into_media(self) -> Result<Media, StoredError> {
        let source = match self.source {
            StoredSource::Base64(text) => MediaSource::Bytes(bytes(&text)?.into()),
            StoredSource::Url(url) => MediaSource::Url(url),
        };
        Ok(Media { media_type: self.media_type, source })
    }
}

impl StoredCall {
    pub(crate) fn of(call: &ToolCall) -> Self {
        let arguments = call.arguments.as_text().to_owned();
        Self { id: call.id.0.clone(), name: call.name.clone(), arguments }
    }

    pub(crate) fn into_call(self) -> ToolCall {
        ToolCall { id: CallId(self.id), name: self.name, arguments: RawArguments::from_text(self.arguments) }
    }
}

impl StoredReply {
    /// Converts a reply for storage.
    pub fn of(reply: &ToolReply) -> Self {
        let ToolReply { call, name, content, is_error } = reply;
        let content = content.iter().map(StoredContent::of).collect();
        Self { call: call.0.clone(), name: name.clone(), content, is_error: *is_error }
    }

    /// Restores the reply. Fails for damaged media.
    pub fn into_reply(self) -> Result<ToolReply, StoredError> {
        let content = self.content.into_iter().map(StoredContent::into_content).collect::<Result<_, _>>()?;
        Ok(ToolReply { call: CallId(self.call), name: self.name, content, is_error: self.is_error })
    }
}

impl StoredContent {
    /// Returns the stored form of content in a reply. Wire formats send bytes and handles only as text, so the text is
    /// enough to resume a run.
    fn of(content: &OutputContent) -> Self {
        match content {
            OutputContent::Binary { .. } | OutputContent::Stored(_) => Self::Text(content.as_text()),
            OutputContent::Text(text) => Self::Text(text.clone()),
            OutputContent::Image { media_type, bytes } => {
                Self::Image { media_type: media_type.clone(), base64: STANDARD.encode(bytes) }
            }
            OutputContent::Audio { media_type, bytes } => {
                Self::Audio { media_type: media_type.clone(), base64: STANDARD.encode(bytes) }
            }
            OutputContent::Link(link) => {
                let ResourceLink { uri, media_type, name, title, description } = ResourceLink::clone(link);
                Self::Link { uri, media_type, name, title, description }
            }
            OutputContent::Resource { uri, media_type, text } => {
                Self::Resource { uri: uri.clone(), media_type: media_type.clone(), text: text.clone() }
            }
            OutputContent::FoundTools(found) => {
                let FoundTools { text, defined, rest } = FoundTools::clone(found);
                Self::FoundTools { text, defined, rest }
            }
        }
    }

    /// Returns the stored form from which equal content can be restored, or `None` for a handle of the output store.
    pub(super) fn exact(content: &OutputContent) -> Option<Self> {
        match content {
            OutputContent::Text(_)
            | OutputContent::Image { .. }
            | OutputContent::Audio { .. }
            | OutputContent::FoundTools(_)
            | OutputContent::Link(_)
            | OutputContent::Resource { .. } => Some(Self::of(content)),
            OutputContent::Binary { uri, media_type, bytes } => {
                let base64 = STANDARD.encode(bytes);
                Some(Self::Binary { uri: uri.clone(), media_type: media_type.clone(), base64 })
            }
            OutputContent::Stored(_) => None,
        }
    }

    pub(super) fn into_content(self) -> Result<OutputContent, StoredError> {
        Ok(match self {
            Self::Text(text) => OutputContent::Text(text),
            Self::Image { media_type, base64 } => {
                OutputContent::Image { media_type, bytes: bytes(&base64)?.into() }
            }
            Self::Audio { media_type, base64 } => {
                OutputContent::Audio { media_type, bytes: bytes(&base64)?.into() }
            }
            Self::Link { uri, media_type, name, title, description } => {
                OutputContent::Link(Box::new(ResourceLink { uri, media_type, name, title, description }))
            }
            Self::Resource { uri, media_type, text } => OutputContent::Resource { uri, media_type, text },
            Self::Binary { uri, media_type, base64 } => {
                OutputContent::Binary { uri, media_type, bytes: bytes(&base64)?.into() }
            }
            Self::FoundTools { text, defined, rest } => {
                OutputContent::FoundTools(Box::new(FoundTools { text, defined, rest }))
            }
        })
    }
}

fn format_of(name: &str) -> Result<ModelApiFormat, StoredError> {
    names::find("wire format", &ModelApiFormat::ALL, ModelApiFormat::name, name)
}

fn bytes(text: &str) -> Result<Vec<u8>, StoredError> {
    STANDARD.decode(text).map_err(|error| StoredError::Broken {
        problem: format!("the data of an image, a sound or a file is not base64: {error}"),
    })
}
