//! The header `haft-warnings`: the fields and tools that the server ignored, and the data that it could not store.

use axum::response::Response;
use http::{HeaderName, HeaderValue};

const NAME: HeaderName = HeaderName::from_static("haft-warnings");

/// The maximum length of the header, in bytes. Many clients and proxies refuse replies with more than 8 KiB of headers.
const BYTES_MAX: usize = 4 << 10;

/// The end of a header that is too long.
const CUT: &str = " ...";

/// Adds warnings to those that the reply already has.
pub(super) fn add(reply: &mut Response, warnings: &str) {
    let before = reply.headers().get(NAME).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if before.ends_with(CUT) {
        return;
    }
    let all: Vec<&str> = [before, warnings].into_iter().filter(|text| !text.is_empty()).collect();
    if let (false, Ok(value)) = (all.is_empty(), HeaderValue::from_str(&header_text(&all.join("; ")))) {
        reply.headers_mut().insert(NAME, value);
    }
}

/// Escapes the characters that a header cannot contain, because a warning names fields that the client chose. Cuts a
/// text that is too long.
fn header_text(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        let is_plain = (' '..='~').contains(&character);
        let piece = if is_plain { character.to_string() } else { character.escape_unicode().to_string() };
        if shown.len() + piece.len() > BYTES_MAX - CUT.len() {
            return shown + CUT;
        }
        shown.push_str(&piece);
    }
    shown
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    #[test]
    fn header_contains_every_warning_in_ascii() {
        let mut reply = ().into_response();
        add(&mut reply, "");
        assert_eq!(reply.headers().get(NAME), None);
        add(&mut reply, "`größe` is unknown");
        add(&mut reply, "a\r\nb: c");
        assert_eq!(reply.headers()[NAME], "`gr\\u{f6}\\u{df}e` is unknown; a\\u{d}\\u{a}b: c");
    }

    #[test]
    fn long_header_is_cut_between_two_characters() {
        for character in ['x', 'ü', '\u{1f980}'] {
            let mut reply = ().into_response();
            for _ in 0..3 {
                add(&mut reply, &character.to_string().repeat(BYTES_MAX));
            }
            let value = reply.headers()[NAME].to_str().unwrap();
            let end = if character == 'x' { "x ..." } else { "} ..." };
            assert!(value.len() <= BYTES_MAX && value.ends_with(end), "{value}");
        }
    }
}
