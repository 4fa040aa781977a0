//! Parses the `WWW-Authenticate` challenge of a server that requires a token, or a token with more scopes.

use std::net::IpAddr;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};

/// The parameters of a `Bearer` or `DPoP` challenge that the client uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mcp) struct Challenge {
    pub(super) resource_metadata: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) error: Option<String>,
    /// Whether the server accepts tokens that are bound to a key (`DPoP`).
    pub(super) names_dpop: bool,
    /// The IP address that sent the challenge.
    pub(super) from: Option<IpAddr>,
}

impl Challenge {
    /// Returns the challenge of a response: any 401, or a 403 with the error `insufficient_scope`.
    pub(in crate::mcp) fn of(response: &Response) -> Option<Self> {
        let from = response.remote_addr().map(|address| address.ip());
        let challenge = Self { from, ..Self::in_headers(response.headers()) };
        match response.status() {
            StatusCode::UNAUTHORIZED => Some(challenge),
            StatusCode::FORBIDDEN if challenge.needs_more_scopes() => Some(challenge),
            _ => None,
        }
    }

    /// Returns whether the server accepted the token but demands more scopes.
    pub(super) fn needs_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn in_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        values.map(Self::read).find(|found| *found != Self::default()).unwrap_or_default()
    }

    /// Parses `Bearer name="value", name=value`. Skips parameters that are unknown or malformed.
    fn read(text: &str) -> Self {
        let mut challenge = Self { names_dpop: names_dpop(text), ..Self::default() };
        let Some(mut rest) = after_scheme(text) else { return challenge };
        while let Some((name, after)) = rest.split_once('=') {
            let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
            let (value, after) = value(after);
            match name.as_str() {
                "resource_metadata" => challenge.resource_metadata = Some(value),
                "scope" => challenge.scope = Some(value),
                "error" => challenge.error = Some(value),
                _ => {}
            }
            rest = after;
        }
        challenge
    }
}

fn after_scheme(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("dpop ") {
        return text.get("dpop".len()..);
    }
    let at = lower.find("bearer")?;
    text.get(at + "bearer".len()..)
}

/// Returns whether the header names the scheme `DPoP`, either first or after another challenge.
fn names_dpop(text: &str) -> bool {
    let mut schemes = text.split(',').filter_map(|part| part.split_whitespace().next());
    schemes.any(|scheme| scheme.eq_ignore_ascii_case("dpop"))
}

fn value(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_challenge_parameters_are_parsed() {
        let check = |text: &str, metadata: Option<&str>, scope: Option<&str>, error: Option<&str>| {
            let found = Challenge::read(text);
            assert_eq!(found.resource_metadata.as_deref(), metadata, "{text}");
            assert_eq!(found.scope.as_deref(), scope, "{text}");
            assert_eq!(found.error.as_deref(), error, "{text}");
        };
        check("Bearer", None, None, None);
        check("Basic realm=\"x\"", None, None, None);
        check("bearer realm=\"a, b\", scope=\"r w\"", None, Some("r w"), None);
        check(
            "Bearer error=insufficient_scope, resource_metadata=\"https://h/x?a=1\"",
            Some("https://h/x?a=1"),
            None,
            Some("insufficient_scope"),
        );
        check("Bearer error=\"say \\\"no\\\"\"", None, None, Some("say \"no\""));
        check("Bearer scope=\"never closed", None, Some("never closed"), None);
        check("Bearer =,=\"", None, None, None);
        check(
            "DPoP error=\"use_dpop_nonce\", resource_metadata=\"https://h\"",
            Some("https://h"),
            None,
            Some("use_dpop_nonce"),
        );
        for (text, expected) in [
            ("DPoP algs=\"ES256\"", true),
            ("Bearer realm=\"x\", DPoP algs=\"ES256\"", true),
            ("Bearer error=\"use_dpop_nonce\"", false),
            ("Bearer", false),
        ] {
            assert_eq!(Challenge::read(text).names_dpop, expected, "{text}");
        }
    }
}
