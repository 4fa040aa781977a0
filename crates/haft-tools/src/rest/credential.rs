//! Credentials of HTTP tools. haft adds them to a request only when it sends the request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haft_core::result::{ToolError, ToolErrorKind};
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::encode;
use super::oauth::ClientCredentials;
use super::request::RestRequest;

/// One credential, with its secret.
#[derive(Debug)]
pub enum Credential {
    Key { place: RestKeyLocation, name: String, value: SecretString },
    Basic { username: String, password: SecretString },
    Bearer(SecretString),
    ClientCredentials(Box<ClientCredentials>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestKeyLocation {
    Header,
    Query,
    Cookie,
}

impl Credential {
    /// Adds the credential to a request.
    pub(super) async fn add_to(&self, request: &mut RestRequest) -> Result<(), ToolError> {
        match self {
            Self::Key { place: RestKeyLocation::Header, name, value } => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable(name))?;
                add_header(request, name, value.expose_secret())
            }
            Self::Key { place: RestKeyLocation::Query, name, value } => {
                let own = others(request.url.query().unwrap_or_default(), "&", &encode::strict(name));
                let pair = format!("{}={}", encode::strict(name), encode::strict(value.expose_secret()));
                request.url.set_query(Some(&format!("{own}{pair}")));
                Ok(())
            }
            Self::Key { place: RestKeyLocation::Cookie, name, value } => add_cookie(request, name, value),
            Self::Basic { username, password } => {
                let pair = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
                add_header(request, http::header::AUTHORIZATION, &format!("Basic {pair}"))
            }
            Self::Bearer(token) => bearer(request, token),
            Self::ClientCredentials(credentials) => bearer(request, &credentials.token().await?),
        }
    }
}

impl Credential {
    /// Returns the strings that distinguish this credential from others, including its secret. Only their digest may be
    /// stored.
    pub(super) fn identity(&self) -> [&str; 3] {
        match self {
            Self::Key { name, value, .. } => ["key", name, value.expose_secret()],
            Self::Basic { username, password } => ["basic", username, password.expose_secret()],
            Self::Bearer(token) => ["bearer", "", token.expose_secret()],
            Self::ClientCredentials(credentials) => {
                let (id, secret) = credentials.identity();
                ["client", id, secret.expose_secret()]
            }
        }
    }

    /// Returns the secret to redact from responses, in case the server echoes it.
    pub(super) fn secret(&self) -> Option<&SecretString> {
        match self {
            Self::Key { value, .. } => Some(value),
            Self::Basic { password, .. } => Some(password),
            // Redaction already covers these secrets as part of the `Authorization` header that was sent.
            Self::Bearer(_) | Self::ClientCredentials(_) => None,
        }
    }
}

fn bearer(request: &mut RestRequest, token: &SecretString) -> Result<(), ToolError> {
    add_header(request, http::header::AUTHORIZATION, &format!("Bearer {}", token.expose_secret()))
}

/// Adds a header. Replaces an existing header with the same name: the operator's value takes precedence over an
/// argument.
pub(super) fn add_header(request: &mut RestRequest, name: HeaderName, text: &str) -> Result<(), ToolError> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unusable(name.as_str()))?;
    // Hides the value from `Debug` and marks it for redaction from responses.
    value.set_sensitive(true);
    request.headers.retain(|(other, _)| *other != name);
    request.headers.push((name, value));
    Ok(())
}

/// Adds a cookie to the one `Cookie` header, which holds all cookies.
fn add_cookie(request: &mut RestRequest, name: &str, value: &SecretString) -> Result<(), ToolError> {
    let own = request.headers.iter().find(|(name, _)| *name == http::header::COOKIE);
    let own = own.and_then(|(_, value)| value.to_str().ok()).unwrap_or_default();
    let line = format!("{}{name}={}", others(own, "; ", name), encode::strict(value.expose_secret()));
    add_header(request, http::header::COOKIE, &line)
}

/// Returns `pairs` without the pairs named `name`. The caller then appends the operator's pair with this name, which
/// replaces the value from an argument.
fn others(pairs: &str, separator: &str, name: &str) -> String {
    let others = pairs
        .split(separator)
        .filter(|pair| !pair.is_empty() && pair.split('=').next().is_some_and(|other| other != name));
    others.flat_map(|pair| [pair, separator]).collect()
}

fn unusable(name: &str) -> ToolError {
    let message = format!(
        "haft cannot send the configured value of `{name}` in a request; the value must be one line of text"
    );
    ToolError::new(ToolErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haft_core::settings::method::Method;

    #[tokio::test]
    async fn api_key_replaces_an_argument_of_the_same_name() {
        let check = async |place: RestKeyLocation, expected: &str| {
            let mut request = RestRequest {
                method: Method::Get,
                url: url::Url::parse("https://a.com/?k=mine&b=1&kk=2").unwrap(),
                headers: vec![(http::header::COOKIE, HeaderValue::from_static("a=1; k=mine"))],
                body: None,
            };
            let key = Credential::Key { place, name: "k".into(), value: "s&3".into() };
            key.add_to(&mut request).await.unwrap();
            let headers = request.headers.iter().map(|(name, value)| (name, value.to_str().unwrap()));
            let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {value}")).collect();
            assert_eq!(format!("{} {}", request.url.query().unwrap(), headers.join(" ")), expected);
        };
        check(RestKeyLocation::Query, "b=1&kk=2&k=s%263 cookie: a=1; k=mine").await;
        check(RestKeyLocation::Cookie, "k=mine&b=1&kk=2 cookie: a=1; k=s%263").await;
        check(RestKeyLocation::Header, "k=mine&b=1&kk=2 cookie: a=1; k=mine k: s&3").await;
    }
}
