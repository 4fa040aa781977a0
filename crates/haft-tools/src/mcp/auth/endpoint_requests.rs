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

use super::authorizer::now;
use super::client::OauthClient;
use super::dpop::{self, DpopKey, ProofTarget};
use super::error::AuthError;
use super::private_target::{DiscoveryResolver, ServerNetwork};

/// The type of a token that is bound to a key.
pub(super) const TOKEN_TYPE_DPOP: &str = "dpop";

/// The token type of an identity assertion (ID-JAG), which another authorization server accepts as a grant.
pub(super) const TOKEN_TYPE_ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

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
        .map_err(|_| AuthError::refused("haft cannot create an HTTP client for OAuth requests"))
}

/// Fetches a document; returns `None` when the status is neither success nor a server error.
pub(super) async fn get(http: &Http, url: Url) -> Result<Option<String>, AuthError> {
    let response = send(http.get(url).header(ACCEPT, "application/json")).await?;
    if response.status().is_server_error() {
        return Err(unreachable(&format!("the authorization server answered {}", response.status())));
    }
    if response.status().is_success() { text(response).await.map(Some) } else { Ok(None) }
}

/// Registers a client dynamically.
pub(super) async fn register(http: &Http, url: Url, body: &Value) -> Result<Value, AuthError> {
    let request = http.post(url).header(CONTENT_TYPE, "application/json").body(body.to_string());
    let response = send(request).await?;
    let status = response.status();
    if status.is_server_error() {
        return Err(unreachable(&format!("the authorization server answered {status}")));
    }
    if !status.is_success() {
        return Err(AuthError::refused(format!(
            "the authorization server refused the client registration ({status}); get a client id there and set `oauth.clientId`"
        )));
    }
    serde_json::from_str(&text(response).await?).map_err(|_| {
        AuthError::refused(
            "haft cannot parse the response of the authorization server to the client registration",
        )
    })
}

/// A request to a token endpoint.
pub(super) struct TokenRequest<'a> {
    pub(super) endpoint: &'a Url,
    /// The issuer that owns the endpoint.
    pub(super) issuer: &'a str,
    pub(super) client: &'a OauthClient,
    pub(super) grant: &'a [(&'a str, String)],
    /// The key that the token is bound to; `None` for a bearer token.
    pub(super) dpop: Option<&'a DpopKey>,
}

/// A successful response of a token endpoint.
#[derive(Deserialize)]
pub(super) struct OauthTokenResponse {
    pub(super) access_token: SecretString,
    #[serde(default)]
    pub(super) token_type: String,
    /// The lifetime of the access token, in seconds.
    pub(super) expires_in: Option<f64>,
    pub(super) refresh_token: Option<SecretString>,
}

/// The reason for a failed token request.
pub(super) enum TokenRequestError {
    /// The grant is no longer valid. After any other error the grant can be used again.
    InvalidGrant,
    /// The `DPoP` proof must contain this nonce.
    NonceRequired(String),
    Other(AuthError),
}

impl From<AuthError> for TokenRequestError {
    fn from(error: AuthError) -> Self {
        Self::Other(error)
    }
}

/// Requests a token from the token endpoint. If the endpoint requires a nonce, sends the request once more with this
/// nonce.
pub(super) async fn token(
    http: &Http,
    request: &TokenRequest<'_>,
) -> Result<OauthTokenResponse, TokenRequestError> {
    let text = match answer_of_token_endpoint(http, request, None).await {
        Err(TokenRequestError::NonceRequired(nonce)) => {
            answer_of_token_endpoint(http, request, Some(&nonce)).await?
        }
        answer => answer?,
    };
    let given: Option<OauthTokenResponse> = serde_json::from_str(&text).ok();
    let is_usable = |given: &OauthTokenResponse| {
        let is = |name: &str| given.token_type.eq_ignore_ascii_case(name);
        given.token_type.is_empty() || is("bearer") || (is(TOKEN_TYPE_DPOP) && request.dpop.is_some())
    };
    given.filter(is_usable).ok_or_else(|| {
        TokenRequestError::Other(AuthError::refused("the authorization server did not return a bearer token"))
    })
}

/// A successful response to a token exchange (RFC 8693, section 2.2.1).
#[derive(Deserialize)]
struct TokenExchangeResponse {
    access_token: SecretString,
    #[serde(default)]
    issued_token_type: String,
}

/// Exchanges an ID token for an identity assertion (RFC 8693), which the token endpoint of another authorization server
/// accepts as a grant.
pub(super) async fn exchange(
    http: &Http,
    request: &TokenRequest<'_>,
) -> Result<SecretString, TokenRequestError> {
    let text = answer_of_token_endpoint(http, request, None).await?;
    exchanged(&text).map_err(TokenRequestError::Other)
}

/// Reads the response to a token exchange. Refuses a token of any other type, such as an access token: the MCP server
/// chooses the authorization server that gets the token, and a malicious one could use an access token at the identity
/// provider.
fn exchanged(text: &str) -> Result<SecretString, AuthError> {
    let given: TokenExchangeResponse = serde_json::from_str(text)
        .map_err(|_| AuthError::refused("the identity provider did not return a token"))?;
    if given.issued_token_type == TOKEN_TYPE_ID_JAG {
        Ok(given.access_token)
    } else {
        let reason =
            format!("the identity provider did not return a token of the type `{TOKEN_TYPE_ID_JAG}`");
        Err(AuthError::Refused(reason))
    }
}

async fn answer_of_token_endpoint(
    http: &Http,
    request: &TokenRequest<'_>,
    nonce: Option<&str>,
) -> Result<String, TokenRequestError> {
    let TokenRequest { endpoint, issuer, client, grant, dpop } = request;
    let now = now();
    let mut sent = http
        .post((*endpoint).clone())
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form(grant, &client.form(issuer, now)?));
    if let Some((id, secret)) = client.basic() {
        sent = sent.basic_auth(id, Some(secret));
    }
    if let Some(key) = dpop {
        let target = ProofTarget { method: "POST", url: endpoint, nonce, token: None };
        sent = sent.header(dpop::PROOF_HEADER, key.proof(target, now).map_err(AuthError::Refused)?);
    }
    let response = send(sent).await?;
    let status = response.status();
    if status.is_server_error() {
        return Err(unreachable(&format!("the authorization server answered {status}")).into());
    }
    let new_nonce = dpop::nonce(response.headers());
    let text = text(response).await?;
    match (status.is_success(), new_nonce) {
        (true, _) => Ok(text),
        (false, Some(new))
            if nonce.is_none() && error_code(&text).as_deref() == Some(dpop::NONCE_REQUIRED) =>
        {
            Err(TokenRequestError::NonceRequired(new))
        }
        (false, _) => Err(not_given(&text)),
    }
}

fn form(grant: &[(&str, String)], client: &[(&str, String)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(grant.iter().chain(client));
    form.finish()
}

fn error_code(text: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(text).ok()?;
    answer["error"].as_str().map(str::to_owned)
}

fn not_given(text: &str) -> TokenRequestError {
    match error_code(text).as_deref() {
        Some("invalid_grant") => TokenRequestError::InvalidGrant,
        code => TokenRequestError::Other(AuthError::refused(format!(
            "the authorization server did not issue a token ({})",
            code.map_or("no error code", known_code)
        ))),
    }
}

/// Returns the text if it looks like an error code. An error message must not repeat other text, because it could
/// contain secrets.
pub(super) fn known_code(code: &str) -> &str {
    let is_word = code.len() <= 40 && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { code } else { "unknown error code" }
}

async fn send(request: RequestBuilder) -> Result<Response, AuthError> {
    request.send().await.map_err(|error| {
        unreachable(if error.is_timeout() {
            "the authorization server did not answer in time"
        } else {
            "the authorization server cannot be reached"
        })
    })
}

fn unreachable(how: &str) -> AuthError {
    AuthError::Unreachable(format!("{how}; the stored tokens are unchanged, try again later"))
}

async fn text(response: Response) -> Result<String, AuthError> {
    let mut read = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        read.extend_from_slice(
            &chunk.map_err(|_| unreachable("the authorization server dropped the connection"))?,
        );
        if read.len() > ANSWER_BYTES_MAX {
            let message =
                format!("the response of the authorization server is larger than {ANSWER_BYTES_MAX} bytes");
            return Err(AuthError::Refused(message));
        }
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;

    #[test]
    fn token_exchange_returns_only_the_requested_type_of_token() {
        let check =
            |answer: Value, expected: Result<&str, &str>| match (exchanged(&answer.to_string()), expected) {
                (Ok(token), Ok(expected)) => assert_eq!(token.expose_secret(), expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, _) => panic!("{answer}: {}", found.is_ok()),
            };
        let of_type = |kind: &str| json!({"access_token": "t", "issued_token_type": kind});
        check(of_type(TOKEN_TYPE_ID_JAG), Ok("t"));
        check(of_type("urn:ietf:params:oauth:token-type:access_token"), Err("id-jag"));
        check(json!({"access_token": "t"}), Err("id-jag"));
        check(json!({"issued_token_type": TOKEN_TYPE_ID_JAG}), Err("did not return a token"));
    }
}
