//! Redacts provider keys and account names by format, because errors are written to logs. This finds keys that are
//! not in haft's configuration, such as a proxy's key; [`haft_core::redact`] removes the known ones.

use haft_core::redact::REDACTED;

/// The prefixes that known providers use for keys and account names.
const PREFIXES: [&str; 12] =
    ["sk-", "sk_", "AIza", "gsk_", "xai-", "org-", "proj_", "pplx-", "hf_", "tgp_v1_", "nvapi-", "key-"];

/// The minimum length of a match that is redacted, in characters. A shorter word with such a prefix is not a key.
const KEY_CHARS_MIN: usize = 8;

pub(crate) fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut after_bearer = false;
    for piece in text.split_inclusive(is_boundary) {
        let word = piece.trim_end_matches(is_boundary);
        let rest = &piece[word.len()..];
        // The word after `Bearer` is a credential even without a known prefix.
        let secret = is_key(word) || after_bearer && !word.is_empty();
        clean.push_str(if secret { REDACTED } else { word });
        clean.push_str(rest);
        if !word.is_empty() {
            after_bearer = word.eq_ignore_ascii_case("bearer");
        }
    }
    clean
}

fn is_boundary(character: char) -> bool {
    character.is_whitespace() || "\"'`,;:=()[]{}<>&?/".contains(character)
}

fn is_key(word: &str) -> bool {
    word.len() >= KEY_CHARS_MIN && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_account_ids_are_redacted() {
        for (said, kept) in [
            ("Incorrect API key provided: sk-proj-abc123.", "Incorrect API key provided: [redacted]"),
            ("limit for org-A1b2C3d4E5 on tokens", "limit for [redacted] on tokens"),
            ("?key=AIzaSyA1234567&alt=sse", "?key=[redacted]&alt=sse"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("nothing here", "nothing here"),
        ] {
            assert_eq!(redact(said), kept);
        }
    }
}
