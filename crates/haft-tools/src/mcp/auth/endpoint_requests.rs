//! Requests to an authorization server, with limits for time and size, and without redirects. Errors contain no text of
//! its responses except the error code.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client as Http, RequestBuilder, Response};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::client::OauthClient;
use super::error::AuthError;
use super::private_target::{DiscoveryResolver, ServerNetwork};

/// The timeout of one request to an authorization server.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// The maximum size of a response body that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Builds an HTTP client that follows no redirects, because a redirect would send secrets to another address. The
/// client connects to a private network only if the server itself is in one.
pub(super) fn http(server: &Url, network: &ServerNetwork) -> Result<Http, AuthError> {
    crate::http_client::builder()
        .redirect(Policy::none())
        .timeout(ANSWER_WAIT)
        .dns_resolver(Arc::new(DiscoveryResolver::new(server, network)))
        .build()
        .map_err(|_| AuthError::refused("the HTTP client cannot be created"))
}

/// Fetches a document; returns `None` when the status is neither success nor a server error.
pub(super) async fn get(http: &Http, url: Url) -> Result<Option<String>, AuthError> {
    let response = send(http.get(url).header(ACCEPT, "application/json")).await?;
    if response.status().is_server_error() {
        return Err(unreachable(&format!("answered {}", response.status())));
    }
    if response.status().is_success() { text(response).await.map(Some) } else { Ok(None) }
}

/// Registers a client dynamically.
pub(super) async fn register(http: &Http, url: Url, body: &Value) -> Result<Value, AuthError> {
    let request = http.post(url).header(CONTENT_TYPE, "application/json").body(body.to_string());
    let response = send(request).await?;
    let status = response.status();
    if status.is_server_error() {
        return Err(unreachable(&format!("answered {status}")));
    }
    if !status.is_success() {
        return Err(AuthError::refused(format!(
            "its authorization server refused the client registration ({status}); get a client id there and set `oauth.clientId`"
        )));
    }
    serde_json::from_str(&text(response).await?)
        .map_err(|_| AuthError::refused("the response to the client registration cannot be parsed"))
}

/// A successful token response.
#[derive(Deserialize)]
pub(super) struct OauthTokenResponse {
    pub(super) access_token: SecretString,
    #[serde(default)]
    token_type: String,
    /// The lifetime of the access token, in seconds.
    pub(super) expires_in: Option<f64>,
    pub(super) refresh_token: Option<SecretString>,
}

/// The reason for a failed token request.
pub(super) enum TokenRequestError {
    /// The grant is no longer valid. After any other error the grant can be used again.
    InvalidGrant,
    Other(AuthError),
}

/// Requests a token from the token endpoint.
pub(super) async fn token(
    http: &Http,
    endpoint: &Url,
    client: &OauthClient,
    grant: &[(&str, String)],
) -> Result<OauthTokenResponse, TokenRequestError> {
    let mut request = http
        .post(endpoint.clone())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form(grant, &client.form()));
    if let Some((id, secret)) = client.basic() {
        request = request.basic_auth(id, Some(secret));
    }
    let response = send(request).await.map_err(TokenRequestError::Other)?;
    let status = response.status();
    if status.is_server_error() {
        return Err(TokenRequestError::Other(unreachable(&format!("answered {status}"))));
    }
    let text = text(response).await.map_err(TokenRequestError::Other)?;
    if !status.is_success() {
        return Err(not_given(&text));
    }
    let given: Option<OauthTokenResponse> = serde_json::from_str(&text).ok();
    let bearer = |given: &OauthTokenResponse| {
        given.token_type.is_empty() || given.token_type.eq_ignore_ascii_case("bearer")
    };
    given.filter(bearer).ok_or_else(|| {
        TokenRequestError::Other(AuthError::refused("its authorization server did not return a bearer token"))
    })
}

fn form(grant: &[(&str, String)], client: &[(&str, String)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(grant.iter().chain(client));
    form.finish()
}

fn not_given(text: &str) -> TokenRequestError {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    match answer["error"].as_str() {
        Some("invalid_grant") => TokenRequestError::InvalidGrant,
        code => TokenRequestError::Other(AuthError::refused(format!(
            "its authorization server did not issue a token ({})",
            code.map_or("no reason", known_code)
        ))),
    }
}

/// Returns the text if it has the form of an error code. Other text could contain secrets, so it is not repeated.
pub(super) fn known_code(code: &str) -> &str {
    let is_word = code.len() <= 40 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { code } else { "for an unknown reason" }
}

async fn send(request: RequestBuilder) -> Result<Response, AuthError> {
    request.send().await.map_err(|error| {
        unreachable(if error.is_timeout() { "did not answer in time" } else { "cannot be reached" })
    })
}

fn unreachable(how: &str) -> AuthError {
    AuthError::Unreachable(format!(
        "its authorization server {how}; stored tokens are unchanged, try again later"
    ))
}

async fn text(response: Response) -> Result<String, AuthError> {
    let mut read = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        read.extend_from_slice(&chunk.map_err(|_| unreachable("dropped the connection"))?);
        if read.len() > ANSWER_BYTES_MAX {
            let message =
                format!("the response of its authorization server is larger than {ANSWER_BYTES_MAX} bytes");
            return Err(AuthError::Refused(message));
        }
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}
