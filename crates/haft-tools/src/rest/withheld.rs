//! What a request carried to be let in is not shown again, should the server repeat it.

use secrecy::{ExposeSecret, SecretString};

use super::request::Request;

/// Secrets of one request.
#[derive(Debug, Default)]
pub(super) struct Withheld(Vec<SecretString>);

/// What stands in place of a secret.
const MARK: &str = "[secret]";

/// Shorter ones are too likely to be a word of the answer.
const SECRET_CHARS_MIN: usize = 8;

/// Parts of the names of headers that hold secrets. Other headers of the operator say `application/json` and the like.
const SECRET_NAMES: [&str; 8] =
    ["auth", "cookie", "key", "password", "secret", "session", "signature", "token"];

impl Withheld {
    /// What the request holds in such headers, and `more`.
    pub(super) fn of<'a>(request: &'a Request, more: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let named = |name: &str| SECRET_NAMES.iter().any(|secret| name.contains(secret));
        let headers =
            request.headers.iter().filter(|(name, value)| value.is_sensitive() && named(name.as_str()));
        let lines = headers.filter_map(|(_, value)| value.to_str().ok());
        // A server may repeat the token without `Bearer`.
        let words = lines.flat_map(|line| [Some(line), line.rsplit_once(' ').map(|(_, last)| last)]);
        let words = words.flatten().chain(more.into_iter().map(ExposeSecret::expose_secret));
        let mut words: Vec<&str> = words.filter(|word| word.len() >= SECRET_CHARS_MIN).collect();
        // Of two that begin alike the longer is looked for first.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self(words.into_iter().map(SecretString::from).collect())
    }

    /// For a text that comes in pieces.
    pub(super) fn in_pieces(&self) -> Pieces<'_> {
        Pieces { withheld: self, tail: String::new() }
    }

    /// Where the end of the text begins that must wait: it may be the beginning of a secret, or holds one that goes on into that.
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

    /// The text without them.
    pub(super) fn left_of(&self, text: String) -> String {
        let secrets = self.0.iter().map(ExposeSecret::expose_secret);
        secrets
            .fold(text, |text, secret| if text.contains(secret) { text.replace(secret, MARK) } else { text })
    }

    /// The bytes without them; what is no text is left as it is.
    pub(super) fn left_of_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.left_of(text).into_bytes(),
            Err(no_text) => no_text.into_bytes(),
        }
    }
}

/// A text that comes in pieces, without the secrets, also those that come in pieces.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    withheld: &'a Withheld,
    /// May be the beginning of a secret.
    tail: String,
}

impl Pieces<'_> {
    /// What can be shown by now.
    pub(super) fn push(&mut self, piece: &str) -> String {
        self.tail.push_str(piece);
        let rest = self.tail.split_off(self.withheld.safe_until(&self.tail));
        self.withheld.left_of(std::mem::replace(&mut self.tail, rest))
    }

    /// The rest: nothing more comes, so nothing began in it.
    pub(super) fn end(self) -> String {
        self.withheld.left_of(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::super::method::Method;
    use super::*;

    /// Wherever a text is cut, no part of a secret is shown and everything else is.
    #[test]
    fn a_secret_that_comes_in_pieces_is_withheld_too() {
        let alone = ["t0ken-of-mine", "t0ken-of-mine-2", "xxxxxt0ken", "éééééééé"];
        let in_a_row = ["12345678ab", "ab345678cd", "cd345678ef"];
        let mut secrets: Vec<_> = alone.into_iter().chain(in_a_row).map(SecretString::from).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        let withheld = Withheld(secrets);
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
            let whole = withheld.left_of(text.to_owned());
            for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let mut pieces = withheld.in_pieces();
                let shown = [pieces.push(&text[..cut]), pieces.push(&text[cut..]), pieces.end()].concat();
                assert_eq!(shown, whole, "{text} at {cut}");
            }
            let mut pieces = withheld.in_pieces();
            let one_by_one: String = text.chars().map(|one| pieces.push(&one.to_string())).collect();
            assert_eq!(one_by_one + &pieces.end(), whole, "{text}");
        }
    }

    #[test]
    fn only_what_lets_a_request_in_is_withheld() {
        let header = |name: &'static str, value: &'static str| {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            (HeaderName::from_static(name), value)
        };
        let request = Request {
            method: Method::Get,
            url: url::Url::parse("https://a.com/").unwrap(),
            headers: vec![
                header("authorization", "Bearer t0ken-of-mine"),
                header("accept", "application/json"),
                header("x-api-key", "short"),
            ],
            body: None,
        };
        let withheld = Withheld::of(&request, [&SecretString::from("passw0rd")]);
        let check = |text: &str, expected: &str| {
            assert_eq!(withheld.left_of_bytes(text.as_bytes().to_vec()), expected.as_bytes());
        };
        check("Bearer t0ken-of-mine", "[secret]");
        check("{\"t\":\"t0ken-of-mine\"} passw0rd", "{\"t\":\"[secret]\"} [secret]");
        check("application/json short", "application/json short");
        assert_eq!(withheld.left_of_bytes(vec![0xff]), [0xff]);
        assert!(!format!("{withheld:?}").contains("passw0rd"));
    }
}
