//! Media and tool content, as all formats say them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::conversation::{Media, Source, ToolReply};
use haft_core::output::{Content, ToolOutput};

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Media that a wire sent in base64; nothing when it is not.
pub(crate) fn from_base64(media_type: &str, text: &str) -> Option<Media> {
    let bytes = STANDARD.decode(text.trim()).ok()?;
    Some(Media { media_type: media_type.to_owned(), source: Source::Bytes(bytes.into()) })
}

/// An address under which a wire finds the media; bytes are put into it.
pub(crate) fn url(media: &Media) -> String {
    match &media.source {
        Source::Url(url) => url.clone(),
        Source::Bytes(bytes) => data_url(&media.media_type, bytes),
    }
}

pub(crate) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64(bytes))
}

/// What is said of media that a wire cannot carry.
pub(crate) fn described(what: &str, media: &Media) -> String {
    match &media.source {
        Source::Bytes(bytes) => format!("[{what}: {}, {} bytes]", media.media_type, bytes.len()),
        Source::Url(url) => format!("[{what}: {url}]"),
    }
}

/// The text of a reply on a wire that has no flag for errors.
pub(crate) fn flagged_text(reply: &ToolReply, text: String) -> String {
    let says_so = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if reply.is_error && !says_so { format!("Error: {text}") } else { text }
}

/// A reply's text, with everything else described.
pub(crate) fn reply_text(reply: &ToolReply) -> String {
    ToolOutput { content: reply.content.clone(), structured: None }.as_text()
}

/// A reply's text without its images, which go another way.
pub(crate) fn text_beside_images(reply: &ToolReply) -> String {
    let content = reply.content.iter().filter(|piece| !matches!(piece, Content::Image { .. }));
    ToolOutput { content: content.cloned().collect(), structured: None }.as_text()
}

/// The images of a reply.
pub(crate) fn images(reply: &ToolReply) -> impl Iterator<Item = (&str, &[u8])> {
    reply.content.iter().filter_map(|piece| match piece {
        Content::Image { media_type, bytes } => Some((media_type.as_str(), &**bytes)),
        Content::Text(_)
        | Content::Audio { .. }
        | Content::Resource { .. }
        | Content::Binary { .. }
        | Content::Stored(_) => None,
    })
}
