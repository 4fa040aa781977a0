//! Redacts the secrets we gave to a server from the text it sends back, in case it echoes them.

use secrecy::{ExposeSecret, SecretString};

/// The secrets to redact.
#[derive(Debug, Default)]
pub(crate) struct SecretRedactor(Vec<SecretString>);

/// The replacement for a secret.
const MARK: &str = "[secret]";

/// The shortest secret that is redacted. A shorter one is too likely to be a common word.
const SECRET_CHARS_MIN: usize = 8;

/// Parts of the names of headers and variables that contain secrets. Other values of the operator, such as
/// `application/json`, are not redacted.
const SECRET_NAMES: [&str; 10] =
    ["auth", "cookie", "credential", "key", "passwd", "password", "secret", "session", "signature", "token"];

/// Returns whether a header or variable of this name contains a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

impl SecretRedactor {
    /// Collects the secrets, and for those of several words also the last word: a server may echo a token without
    /// `Bearer`.
    pub(crate) fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let words = secrets
            .into_iter()
            .flat_map(|secret| [Some(secret), secret.rsplit_once(' ').map(|(_, last)| last)]);
        let mut words: Vec<&str> = words.flatten().filter(|word| word.len() >= SECRET_CHARS_MIN).collect();
        // Longest first: if one secret is a prefix of another, replacing the shorter would leave the rest of the
        // longer.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self(words.into_iter().map(SecretString::from).collect())
    }

    /// Starts redacting a text that arrives in pieces.
    pub(crate) fn redact_stream(&self) -> StreamRedactor<'_> {
        StreamRedactor { withheld: self, tail: String::new() }
    }

    /// Returns the length of the text that can be shown now. The rest may be the beginning of a secret, or contains one
    /// that overlaps such a beginning.
    fn safe_until(&self, text: &str) -> usize {
        let secrets = || self.0.iter().map(ExposeSecret::expose_secret);
        let may_begin = |at: &usize| {
            secrets().any(|secret| secret.len() > text.len() - at && secret.starts_with(&text[*at..]))
        };
        let mut until = text.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(text.len());
        let across = |until: usize| {
            let found = secrets()
                .flat_map(|secret| text.match_indices(secret).map(|(at, found)| (at, at + found.len())));
            found.filter(|(begin, end)| *begin < until && until < *end).map(|(begin, _)| begin).min()
        };
        while let Some(begin) = across(until) {
            until = begin;
        }
        until
    }

    /// Redacts the secrets from a text.
    pub(crate) fn redact(&self, text: String) -> String {
        let secrets = self.0.iter().map(ExposeSecret::expose_secret);
        secrets
            .fold(text, |text, secret| if text.contains(secret) { text.replace(secret, MARK) } else { text })
    }

    /// Redacts the secrets from bytes that are UTF-8; returns other bytes unchanged.
    pub(crate) fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.redact(text).into_bytes(),
            Err(no_text) => no_text.into_bytes(),
        }
    }
}

/// Redacts a text that arrives in pieces, also secrets that are split between pieces.
#[derive(Debug)]
pub(crate) struct StreamRedactor<'a> {
    withheld: &'a SecretRedactor,
    /// Text that may be the beginning of a secret.
    tail: String,
}

impl StreamRedactor<'_> {
    /// Adds a piece and returns the text that can be shown now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.tail.push_str(piece);
        let rest = self.tail.split_off(self.withheld.safe_until(&self.tail));
        self.withheld.redact(std::mem::replace(&mut self.tail, rest))
    }

    /// Returns the rest: no more text follows, so it cannot be the beginning of a longer secret.
    pub(crate) fn end(self) -> String {
        self.withheld.redact(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At any split, no part of a secret is shown, and everything else is.
    #[test]
    fn secret_split_across_chunks_is_redacted() {
        let alone = ["t0ken-of-mine", "t0ken-of-mine-2", "xxxxxt0ken", "éééééééé"];
        let in_a_row = ["12345678ab", "ab345678cd", "cd345678ef"];
        let mut secrets: Vec<_> = alone.into_iter().chain(in_a_row).map(SecretString::from).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        let withheld = SecretRedactor(secrets);
        for text in [
            "a t0ken-of-mine b",
            "t0ken-of-mine-2",
            "xxxxxt0ken",
            "t0t0ken-of-mine",
            "ééééééééé",
            "12345678ab345678cd345678ef",
            "t0ken-of",
            "",
        ] {
            let whole = withheld.redact(text.to_owned());
            for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let mut pieces = withheld.redact_stream();
                let shown = [pieces.push(&text[..cut]), pieces.push(&text[cut..]), pieces.end()].concat();
                assert_eq!(shown, whole, "{text} at {cut}");
            }
            let mut pieces = withheld.redact_stream();
            let one_by_one: String = text.chars().map(|one| pieces.push(&one.to_string())).collect();
            assert_eq!(one_by_one + &pieces.end(), whole, "{text}");
        }
    }

    #[test]
    fn short_secrets_are_not_redacted() {
        let withheld = SecretRedactor::of(["Bearer t0ken-of-mine", "short"]);
        let check = |text: &str, expected: &str| assert_eq!(withheld.redact(text.to_owned()), expected);
        check("Bearer t0ken-of-mine", "[secret]");
        check("{\"t\":\"t0ken-of-mine\"} short", "{\"t\":\"[secret]\"} short");
        assert_eq!(withheld.redact_bytes(vec![0xff]), [0xff]);
        assert!(!format!("{withheld:?}").contains("t0ken"));
        assert!(names_a_secret("GITHUB_TOKEN") && names_a_secret("x-api-key") && !names_a_secret("LANG"));
    }
}
