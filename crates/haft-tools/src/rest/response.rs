//! Converts a response to an output for the model.

use super::tool::ExpectedContent;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::result::{ToolError, ToolErrorKind};

/// A complete HTTP response of a service.
#[derive(Debug)]
pub(super) struct RestResponse {
    pub(super) status: u16,
    pub(super) media_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// The maximum number of characters of an error response that the model sees.
const ERROR_CHARS_MAX: usize = 2_000;

/// Returns the output for a response. Only this function decides which part of a response a model sees.
pub(super) fn output(answer: RestResponse, expected: ExpectedContent) -> Result<ToolOutput, ToolError> {
    let RestResponse { status, media_type, bytes } = answer;
    if !(200..300).contains(&status) {
        return Err(failed(format!("HTTP {status}: {}", excerpt(&bytes))));
    }
    let kind = ResponseContentKind::of(media_type.as_deref(), &bytes);
    if expected == ExpectedContent::Json
        && kind == ResponseContentKind::Text
        && is_page(media_type.as_deref())
    {
        let found = media_type.unwrap_or_default();
        return Err(failed(format!("expected JSON; the server answered {found}: {}", excerpt(&bytes))));
    }
    let media_type = media_type.unwrap_or_else(|| "application/octet-stream".into());
    Ok(match kind {
        ResponseContentKind::Empty => ToolOutput::text(format!("HTTP {status}, no content")),
        ResponseContentKind::Json => json(&bytes),
        ResponseContentKind::Text => ToolOutput::text(String::from_utf8_lossy(&bytes)),
        ResponseContentKind::Image => single(OutputContent::Image { media_type, bytes: bytes.into() }),
        ResponseContentKind::Audio => single(OutputContent::Audio { media_type, bytes: bytes.into() }),
        // The model cannot read these bytes as text; if there is an output store, the caller stores them.
        ResponseContentKind::Binary => {
            single(OutputContent::Binary { uri: None, media_type: Some(media_type), bytes: bytes.into() })
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseContentKind {
    Empty,
    Json,
    Text,
    Image,
    Audio,
    Binary,
}

impl ResponseContentKind {
    /// Classifies a response by its media type, or by its bytes if the media type is missing or generic.
    fn of(media_type: Option<&str>, bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        let text = std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
        match media_type.unwrap_or_default() {
            json if json == "application/json" || json.ends_with("+json") => Self::Json,
            svg if svg == "image/svg+xml" && text => Self::Text,
            image if image.starts_with("image/") => Self::Image,
            audio if audio.starts_with("audio/") => Self::Audio,
            written if written.starts_with("text/") => Self::Text,
            _ if text => Self::Text,
            _ => Self::Binary,
        }
    }
}

fn is_page(media_type: Option<&str>) -> bool {
    matches!(media_type, Some("text/html" | "application/xhtml+xml"))
}

/// The maximum size of a JSON response that is also parsed, in bytes, because a parsed value takes many times the
/// memory of its text.
const STRUCTURED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Returns the server's own text, together with the parsed value for callers that need structured content.
fn json(bytes: &[u8]) -> ToolOutput {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let structured =
        if bytes.len() <= STRUCTURED_BYTES_MAX { serde_json::from_slice(bytes).ok() } else { None };
    ToolOutput { structured, ..ToolOutput::text(text) }
}

fn single(content: OutputContent) -> ToolOutput {
    ToolOutput { content: vec![content], ..ToolOutput::default() }
}

fn failed(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Failed, message)
}

fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.trim().is_empty() {
        return "no content".into();
    }
    haft_core::text::truncate_chars(text.trim(), ERROR_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(
        status: u16,
        media_type: &str,
        bytes: &[u8],
        expected: ExpectedContent,
    ) -> Result<ToolOutput, ToolError> {
        let media_type = (!media_type.is_empty()).then(|| media_type.to_owned());
        output(RestResponse { status, media_type, bytes: bytes.to_vec() }, expected)
    }

    #[test]
    fn media_type_of_a_response_decides_its_conversion() {
        let check = |media_type: &str, bytes: &[u8], expected: &str| {
            assert_eq!(given(200, media_type, bytes, ExpectedContent::Anything).unwrap().as_text(), expected);
        };
        check("application/json", b"{\"a\": 1}", "{\"a\": 1}");
        check("text/csv", b"a,b", "a,b");
        check("", b"plain", "plain");
        check("", b"\0\x01", "[binary: application/octet-stream, 2 bytes]");
        check("image/png", b"\x89PNG", "[image: image/png, 4 bytes]");
        check("audio/ogg", b"Ogg", "[audio: audio/ogg, 3 bytes]");
        check("application/pdf", b"%PDF\xff", "[binary: application/pdf, 5 bytes]");
        check("application/json", b"", "HTTP 200, no content");
        let json = given(200, "application/vnd.x+json", b"[1]", ExpectedContent::Json).unwrap();
        assert_eq!(json.structured, Some(serde_json::json!([1])));
    }

    #[test]
    fn http_error_has_its_status_and_a_truncated_body() {
        let check = |status: u16, media_type: &str, bytes: &[u8], expected: &str| {
            let error = given(status, media_type, bytes, ExpectedContent::Json).unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::Failed);
            assert!(error.message.starts_with(expected), "{}", error.message);
            assert!(error.message.len() < 3_000);
        };
        check(404, "application/json", b"{\"m\":\"no\"}", "HTTP 404: {\"m\":\"no\"}");
        check(500, "text/plain", &vec![b'x'; 100_000], "HTTP 500: xxx");
        check(304, "", b"", "HTTP 304: no content");
        check(200, "text/html", b"<html>log in", "expected JSON; the server answered text/html: <html>");
    }
}
