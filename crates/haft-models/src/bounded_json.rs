//! Parses untrusted JSON. Checks the limits on size and depth before any recursion.

use std::borrow::Cow;
use std::ops::Deref;

use haft_core::json_depth;
use haft_core::model_error::{ModelError, ModelErrorKind};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The maximum size of a reply, whole or streamed, in bytes.
pub(crate) const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The maximum nesting depth of a reply, just below the recursion limit of `serde_json`.
pub(crate) const REPLY_DEPTH_MAX: usize = 120;

/// The maximum length of the excerpt in an error about a malformed reply, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// A string in a JSON document. It is borrowed from the document unless it has escapes. An `Option<Cow<str>>` would
/// always be a copy, because serde borrows a `Cow` only if the field itself is a `Cow`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FrameText<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for FrameText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ModelError> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    check_limits(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| malformed(format!("{error}, in `{}`", excerpt(bytes))))
}

/// Parses a frame of a stream. The frame is already text, so the parser need not check its encoding again.
pub(crate) fn read_frame<'a, T: Deserialize<'a>>(frame: &'a str) -> Result<T, ModelError> {
    check_limits(frame.as_bytes())?;
    serde_json::from_str(frame)
        .map_err(|error| malformed(format!("{error}, in `{}`", excerpt(frame.as_bytes()))))
}

fn check_limits(bytes: &[u8]) -> Result<(), ModelError> {
    if bytes.len() > REPLY_BYTES_MAX {
        return Err(too_large());
    }
    if json_depth::first_too_deep(bytes, REPLY_DEPTH_MAX).is_some() {
        return Err(malformed(format!("the JSON of the reply nests deeper than {REPLY_DEPTH_MAX} levels")));
    }
    Ok(())
}

/// Parses a part of a reply. `read` has already checked the limits for the whole reply.
pub(crate) fn read_raw<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, ModelError> {
    let json = raw.get();
    serde_json::from_str(json)
        .map_err(|error| malformed(format!("{error}, in `{}`", excerpt(json.as_bytes()))))
}

pub(crate) fn malformed(problem: impl std::fmt::Display) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, format!("haft cannot parse the model reply: {problem}"))
}

pub(crate) fn too_large() -> ModelError {
    let message = format!("the model reply is larger than {REPLY_BYTES_MAX} bytes");
    ModelError::new(ModelErrorKind::ReplyTooLarge, message)
}

fn excerpt(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(4 * EXCERPT_CHARS_MAX)];
    let text: String = String::from_utf8_lossy(start).chars().take(EXCERPT_CHARS_MAX).collect();
    crate::redact::redact(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn deeply_nested_json_is_an_error_and_not_a_crash() {
        let deep = vec![b'['; 1_000_000];
        assert!(read::<Value>(&deep).unwrap_err().message.contains("deeper than 120"));
        let deep = str::from_utf8(&deep).unwrap();
        assert!(read_frame::<Value>(deep).unwrap_err().message.contains("deeper than 120"));
        let text = format!("\"{}\"", "[".repeat(1000));
        assert!(read::<Value>(text.as_bytes()).is_ok());
    }

    #[test]
    fn json_string_without_escapes_is_borrowed() {
        let check = |json: &str, expected: &str, is_borrowed: bool| {
            let text: Option<FrameText<'_>> = read_frame(json).unwrap();
            let text = text.unwrap();
            assert_eq!((&*text, matches!(text.0, Cow::Borrowed(_))), (expected, is_borrowed), "{json}");
        };
        check("\"plain\"", "plain", true);
        check("\"two\\nlines\"", "two\nlines", false);
    }

    #[test]
    fn invalid_utf8_in_a_reply_is_rejected_as_malformed() {
        assert_eq!(read::<Value>(b"\"\xFF\"").unwrap_err().kind, ModelErrorKind::Malformed);
        assert_eq!(read::<Value>(b"\xEF\xBB\xBF1").unwrap(), 1);
    }
}
