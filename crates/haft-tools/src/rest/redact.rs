//! Redacts the credentials of a request from its response, in case the server echoes them.

use secrecy::{ExposeSecret, SecretString};

use super::request::RestRequest;
use haft_core::redact::{SecretRedactor, names_a_secret};

/// Returns the secrets to redact: `more`, and the values of sensitive headers whose names denote a secret.
pub(super) fn of<'a>(
    request: &'a RestRequest,
    more: impl IntoIterator<Item = &'a SecretString>,
) -> SecretRedactor {
    let secret = |name: &str, value: &http::HeaderValue| value.is_sensitive() && names_a_secret(name);
    let headers = request.headers.iter().filter(|(name, value)| secret(name.as_str(), value));
    let lines = headers.filter_map(|(_, value)| value.to_str().ok());
    SecretRedactor::of(lines.chain(more.into_iter().map(ExposeSecret::expose_secret)))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use haft_core::settings::method::Method;

    #[test]
    fn only_credentials_of_a_request_are_redacted() {
        let header = |name: &'static str, value: &'static str| {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            (HeaderName::from_static(name), value)
        };
        let request = RestRequest {
            method: Method::Get,
            url: url::Url::parse("https://a.com/").unwrap(),
            headers: vec![
                header("authorization", "Bearer t0ken-of-mine"),
                header("accept", "application/json"),
                header("x-api-key", "short"),
            ],
            body: None,
        };
        let withheld = of(&request, [&SecretString::from("passw0rd")]);
        let check = |text: &str, expected: &str| {
            assert_eq!(withheld.redact_bytes(text.as_bytes().to_vec()), expected.as_bytes());
        };
        check("Bearer t0ken-of-mine", "[redacted]");
        check("{\"t\":\"t0ken-of-mine\"} passw0rd", "{\"t\":\"[redacted]\"} [redacted]");
        check("application/json short", "application/json short");
    }
}
