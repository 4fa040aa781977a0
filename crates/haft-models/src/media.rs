//! Encodes media and tool content for all formats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::conversation::{Media, MediaSource, ToolReply};
use haft_core::output::ToolOutput;

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64 media. Returns `None` if the text is invalid.
pub(crate) fn from_base64(media_type: &str, text: &str) -> Option<Media> {
    let bytes = STANDARD.decode(text.trim()).ok()?;
    Some(Media { media_type: media_type.to_owned(), source: MediaSource::Bytes(bytes.into()) })
}

/// Returns a URL for the media. Bytes become a data URL.
pub(crate) fn url(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Bytes(bytes) => data_url(&media.media_type, bytes),
    }
}

pub(crate) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64(bytes))
}

/// Returns a placeholder text for media that a format does not support.
pub(crate) fn described(what: &str, media: &Media) -> String {
    match &media.source {
        MediaSource::Bytes(bytes) => format!("[{what}: {}, {} bytes]", media.media_type, bytes.len()),
        MediaSource::Url(url) => format!("[{what}: {url}]"),
    }
}

/// Returns the text of a tool result for formats without an error flag. The text of an error starts with `Error: `.
pub(crate) fn flagged_text(reply: &ToolReply, text: String) -> String {
    let says_so = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if reply.is_error && !says_so { format!("Error: {text}") } else { text }
}

/// Returns the text of a tool result, with descriptions in place of all other content.
pub(crate) fn reply_text(reply: &ToolReply) -> String {
    ToolOutput { content: reply.content.clone(), ..ToolOutput::default() }.as_text()
}

/// Returns the text of a tool result without its images, which the format sends separately.
pub(crate) fn text_beside_images(reply: &ToolReply) -> String {
    let content = reply.content.iter().filter(|piece| piece.as_image().is_none());
    ToolOutput { content: content.cloned().collect(), ..ToolOutput::default() }.as_text()
}

/// Returns the images in a tool result.
pub(crate) fn images(reply: &ToolReply) -> impl Iterator<Item = (&str, &[u8])> {
    reply
        .content
        .iter()
        .filter_map(|piece| piece.as_image().map(|(media_type, bytes)| (media_type, &**bytes)))
}
