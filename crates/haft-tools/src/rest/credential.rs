//! What a request carries to be let in. Kept apart from the request until it is sent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haft_core::result::{ToolError, ToolErrorKind};
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::encode;
use super::oauth::ClientCredentials;
use super::request::Request;

/// One way to be let in, with its secret.
#[derive(Debug)]
pub enum Credential {
    Key { place: KeyPlace, name: String, value: SecretString },
    Basic { username: String, password: SecretString },
    Bearer(SecretString),
    ClientCredentials(Box<ClientCredentials>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    Header,
    Query,
    Cookie,
}

impl Credential {
    /// Adds it to a request.
    pub(super) async fn add_to(&self, request: &mut Request) -> Result<(), ToolError> {
        match self {
            Self::Key { place: KeyPlace::Header, name, value } => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable(name))?;
                add_header(request, name, value.expose_secret())
            }
            Self::Key { place: KeyPlace::Query, name, value } => {
                let own = request.url.query().map(|own| format!("{own}&")).unwrap_or_default();
                let pair = format!("{}={}", encode::strict(name), encode::strict(value.expose_secret()));
                request.url.set_query(Some(&format!("{own}{pair}")));
                Ok(())
            }
            Self::Key { place: KeyPlace::Cookie, name, value } => {
                add_cookie(request, &format!("{name}={}", encode::strict(value.expose_secret())))
            }
            Self::Basic { username, password } => {
                let pair = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
                add_header(request, http::header::AUTHORIZATION, &format!("Basic {pair}"))
            }
            Self::Bearer(token) => bearer(request, token),
            Self::ClientCredentials(credentials) => bearer(request, &credentials.token().await?),
        }
    }
}

fn bearer(request: &mut Request, token: &SecretString) -> Result<(), ToolError> {
    add_header(request, http::header::AUTHORIZATION, &format!("Bearer {}", token.expose_secret()))
}

/// Takes the place of a header of the same name: the operator's word stands above an argument.
pub(super) fn add_header(request: &mut Request, name: HeaderName, text: &str) -> Result<(), ToolError> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unusable(name.as_str()))?;
    value.set_sensitive(true);
    request.headers.retain(|(other, _)| *other != name);
    request.headers.push((name, value));
    Ok(())
}

/// There is one header for all cookies.
fn add_cookie(request: &mut Request, pair: &str) -> Result<(), ToolError> {
    let own = request.headers.iter().find(|(name, _)| *name == http::header::COOKIE);
    let own =
        own.and_then(|(_, value)| value.to_str().ok()).map(|own| format!("{own}; ")).unwrap_or_default();
    add_header(request, http::header::COOKIE, &format!("{own}{pair}"))
}

fn unusable(name: &str) -> ToolError {
    let message =
        format!("the value configured for `{name}` cannot stand in a request; it must be one line of text");
    ToolError::new(ToolErrorKind::Unavailable, message)
}
