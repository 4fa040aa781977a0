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
        Self(words.filter(|word| word.len() >= SECRET_CHARS_MIN).map(SecretString::from).collect())
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::super::method::Method;
    use super::*;

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
