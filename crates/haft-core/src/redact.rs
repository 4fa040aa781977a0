//! Redacts known secrets from texts: a server may echo the credentials that it received, and errors are written to
//! logs.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

/// The secrets that are redacted from texts.
#[derive(Debug, Default)]
pub struct SecretRedactor(Vec<SecretString>);

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// The minimum length of a secret that is redacted, in characters. A shorter one is too likely to be a common word.
const SECRET_CHARS_MIN: usize = 8;

/// Name parts that mark headers and variables as secret. Other values from the operator, such as `application/json`,
/// are not redacted.
const SECRET_NAMES: [&str; 10] =
    ["auth", "cookie", "credential", "key", "passwd", "password", "secret", "session", "signature", "token"];

/// The bytes that `application/x-www-form-urlencoded` escapes. A space becomes `+`.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// Returns true if a header or variable with this name contains a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

impl SecretRedactor {
    /// Collects the secrets. For a secret with several words, the last word is a secret too: a server may echo a token
    /// without `Bearer`. Each secret is redacted in plain form and in its JSON, URL and base64 forms.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let words = secrets
            .into_iter()
            .flat_map(|secret| [Some(secret), secret.rsplit_once(' ').map(|(_, last)| last)]);
        let words = words.flatten().filter(|word| word.len() >= SECRET_CHARS_MIN);
        let mut words: Vec<String> = words.flat_map(spellings).collect();
        // Longest first: if one secret is a prefix of another, replacing the shorter first would leave the rest of the
        // longer.
        words.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        words.dedup();
        Self(words.into_iter().map(SecretString::from).collect())
    }

    /// Starts to redact a text that arrives in chunks.
    pub fn redact_stream(&self) -> StreamRedactor<'_> {
        StreamRedactor { redactor: self, tail: String::new() }
    }

    /// Returns the length of the text that can be shown now. The rest may be the start of a secret, or contains a
    /// secret that overlaps such a start.
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

    /// Returns true if the text contains a secret.
    pub fn is_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.expose_secret()))
    }

    /// Redacts the secrets from a text.
    pub fn redact(&self, text: String) -> String {
        let secrets = self.0.iter().map(ExposeSecret::expose_secret);
        secrets.fold(
            text,
            |text, secret| if text.contains(secret) { text.replace(secret, REDACTED) } else { text },
        )
    }

    /// Redacts the secrets from a text whose end was cut off. Leaves out an end that may be the start of a secret.
    pub fn redact_truncated(&self, text: &str) -> String {
        self.redact_stream().push(text)
    }

    /// Redacts the secrets from bytes, even if the bytes are not UTF-8.
    pub fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.redact(text).into_bytes(),
            Err(no_text) => {
                let secrets = self.0.iter().map(|secret| secret.expose_secret().as_bytes());
                secrets.fold(no_text.into_bytes(), replace_bytes)
            }
        }
    }
}

/// Returns the forms in which a server may echo a secret: plain, in a JSON string, in a URL, and in base64.
fn spellings(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or(&json).to_owned();
    let percent = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
    let form = utf8_percent_encode(secret, FORM).to_string().replace("%20", "+");
    let encoded = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].map(|engine| engine.encode(secret));
    let [standard, url_safe] = encoded;
    let slashes = json.replace('/', "\\/");
    vec![secret.to_owned(), json, slashes, percent.to_ascii_lowercase(), percent, form, standard, url_safe]
}

fn replace_bytes(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    let mut clean = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(at) = rest.windows(secret.len()).position(|window| window == secret) {
        clean.extend_from_slice(&rest[..at]);
        clean.extend_from_slice(REDACTED.as_bytes());
        rest = &rest[at + secret.len()..];
    }
    if clean.is_empty() { bytes } else { [&clean, rest].concat() }
}

/// Redacts a text that arrives in chunks, including secrets that are split between chunks.
#[derive(Debug)]
pub struct StreamRedactor<'a> {
    redactor: &'a SecretRedactor,
    /// Text that may be the start of a secret.
    tail: String,
}

impl StreamRedactor<'_> {
    /// Adds a chunk, and returns the text that can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        self.tail.push_str(piece);
        let rest = self.tail.split_off(self.redactor.safe_until(&self.tail));
        self.redactor.redact(std::mem::replace(&mut self.tail, rest))
    }

    /// Returns the rest of the text. No more text follows, so the rest cannot be the start of a longer secret.
    pub fn end(self) -> String {
        self.redactor.redact(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every split of the text, no part of a secret is shown, and all other text is shown.
    #[test]
    fn secret_split_across_chunks_is_redacted() {
        let alone = ["t0ken-of-mine", "t0ken-of-mine-2", "xxxxxt0ken", "éééééééé"];
        let in_a_row = ["12345678ab", "ab345678cd", "cd345678ef"];
        let mut secrets: Vec<_> = alone.into_iter().chain(in_a_row).map(SecretString::from).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        let redactor = SecretRedactor(secrets);
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
            let whole = redactor.redact(text.to_owned());
            for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let mut pieces = redactor.redact_stream();
                let shown = [pieces.push(&text[..cut]), pieces.push(&text[cut..]), pieces.end()].concat();
                assert_eq!(shown, whole, "{text} at {cut}");
            }
            let mut pieces = redactor.redact_stream();
            let one_by_one: String = text.chars().map(|one| pieces.push(&one.to_string())).collect();
            assert_eq!(one_by_one + &pieces.end(), whole, "{text}");
        }
    }

    #[test]
    fn encoded_secret_is_redacted() {
        let redactor = SecretRedactor::of(["s3cret/of \"mine\"+1"]);
        for text in [
            "s3cret/of \"mine\"+1",
            r#"{"echo": "s3cret/of \"mine\"+1"}"#,
            r#"{"echo": "s3cret\/of \"mine\"+1"}"#,
            "s3cret%2Fof%20%22mine%22%2B1",
            "s3cret%2fof%20%22mine%22%2b1",
            "s3cret%2Fof+%22mine%22%2B1",
            "czNjcmV0L29mICJtaW5lIisx",
        ] {
            let clean = redactor.redact(text.to_owned());
            assert!(
                clean.contains(REDACTED) && !clean.contains("mine") && !clean.contains("czNj"),
                "{clean}"
            );
        }
    }

    #[test]
    fn secret_in_bytes_that_are_not_utf8_is_redacted() {
        let redactor = SecretRedactor::of(["t0ken-of-mine"]);
        let bytes = [b"\xff t0ken-of-mine, t0ken-of-mine".as_slice(), b" end"].concat();
        assert_eq!(redactor.redact_bytes(bytes), b"\xff [redacted], [redacted] end");
    }

    #[test]
    fn partial_secret_at_the_end_of_truncated_text_is_removed() {
        let redactor = SecretRedactor::of(["t0ken-of-mine"]);
        assert_eq!(redactor.redact_truncated("it is t0ken-of-mi"), "it is ");
        assert_eq!(redactor.redact_truncated("t0ken-of-mine and more"), "[redacted] and more");
    }

    #[test]
    fn short_secrets_are_not_redacted() {
        let redactor = SecretRedactor::of(["Bearer t0ken-of-mine", "short"]);
        let check = |text: &str, expected: &str| assert_eq!(redactor.redact(text.to_owned()), expected);
        check("Bearer t0ken-of-mine", "[redacted]");
        check("{\"t\":\"t0ken-of-mine\"} short", "{\"t\":\"[redacted]\"} short");
        assert_eq!(redactor.redact_bytes(vec![0xff]), [0xff]);
        assert!(!format!("{redactor:?}").contains("t0ken"));
        assert!(names_a_secret("GITHUB_TOKEN") && names_a_secret("x-api-key") && !names_a_secret("LANG"));
    }
}
