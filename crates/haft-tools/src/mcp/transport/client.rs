//! The HTTP client for a server: sends the operator's headers, follows no redirect to another host, and limits the size
//! of responses.

use std::sync::Arc;

use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{MESSAGE_BYTES_MAX, TransportFailure};
use crate::http_client;
use crate::mcp::auth::{AccessToken, AuthError, Authorizer, Challenge};
use crate::rest::{AllowedHosts, GuardedResolver, RequestBlockReason};

/// The maximum number of redirects that are followed, all on the same host.
const REDIRECTS_MAX: usize = 5;

/// The maximum number of token renewals for one request.
const AUTHORIZATIONS_MAX: usize = 2;

/// The maximum number of characters of a redirect target's path that an error shows.
const PATH_CHARS_MAX: usize = 100;

/// The maximum size of the body of an error response, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The URL of a server, the headers of every request to it, and the hosts to which requests are allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteAddress<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a [(String, SecretString)],
    /// The allowed hosts; `None` for a URL that the operator wrote.
    pub(crate) guard: Option<&'a Arc<AllowedHosts>>,
}

/// Builds a client that sends the headers to the server's host only.
pub(super) fn client(address: RemoteAddress<'_>) -> Result<Client, TransportFailure> {
    // Follow only the redirects 307 and 308: the older redirects (301, 302, 303) would turn a POST into a GET without
    // its body.
    let same_host = Policy::custom(|attempt| {
        let origin = attempt.previous().first().map(Url::origin);
        let stays = origin.is_some_and(|origin| origin == attempt.url().origin());
        let keeps =
            matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let followed = stays && keeps && attempt.previous().len() <= REDIRECTS_MAX;
        if followed { attempt.follow() } else { attempt.stop() }
    });
    let mut builder =
        http_client::builder().default_headers(header_map(address.headers)?).redirect(same_host);
    if let Some(guard) = address.guard {
        let refused = |reason: RequestBlockReason| TransportFailure::Unreached(reason.to_string());
        guard.check_url(address.url).map_err(refused)?;
        // Use no proxy, because a proxy would resolve names and open connections itself, without the checks of the
        // guard.
        builder = builder.no_proxy().dns_resolver(Arc::new(GuardedResolver::new(guard)));
    }
    builder.build().map_err(|error| {
        TransportFailure::Broken(format!("haft cannot create an HTTP client: {}", root_cause(&error)))
    })
}

/// Converts the operator's headers. An error contains only the name of the header, because its value may be a secret.
pub(super) fn header_map(headers: &[(String, SecretString)]) -> Result<HeaderMap, TransportFailure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || {
            TransportFailure::Broken(format!("header `{name}` has a name or value that is not valid in HTTP"))
        };
        let mut header = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad())?;
        header.set_sensitive(true);
        map.append(HeaderName::try_from(name.as_str()).map_err(|_| bad())?, header);
    }
    Ok(map)
}

/// Adds the headers of a message. Leaves out an invalid header, which haft never creates.
pub(super) fn with_headers(mut request: RequestBuilder, headers: &[(String, String)]) -> RequestBuilder {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            request = request.header(name, value);
        }
    }
    request
}

/// Sends a request with the token of the server. If the server demands a token, or one with more scopes, renews it and
/// sends the request again, a limited number of times. The repetition is safe, because a rejected request has no
/// effect.
pub(super) async fn send(
    auth: Option<&Authorizer>,
    request: RequestBuilder,
) -> Result<Response, TransportFailure> {
    let Some(auth) = auth else { return request.send().await.map_err(|error| not_answered(&error)) };
    let (client, request) = request.build_split();
    let request = request.map_err(|error| not_answered(&error))?;
    for _ in 0..AUTHORIZATIONS_MAX {
        let token = auth.access_token().await.map_err(unauthorized)?;
        let response = send_with_token(auth, &client, &request, token.as_ref()).await?;
        let Some(challenge) = Challenge::of(&response) else { return Ok(response) };
        auth.renew(token.as_ref(), &challenge).await.map_err(unauthorized)?;
    }
    let token = auth.access_token().await.map_err(unauthorized)?;
    send_with_token(auth, &client, &request, token.as_ref()).await
}

/// Sends a request with a token, and once more if the server requires a nonce in the `DPoP` proof.
async fn send_with_token(
    auth: &Authorizer,
    client: &Client,
    request: &Request,
    token: Option<&AccessToken>,
) -> Result<Response, TransportFailure> {
    let (response, nonce) = send_once(auth, client, request, token).await?;
    let challenge = Challenge::of(&response);
    if auth.keep_nonce(response.headers(), challenge.as_ref(), nonce.as_deref()) {
        return send_once(auth, client, request, token).await.map(|(response, _)| response);
    }
    Ok(response)
}

/// Sends a request. Returns the response and the nonce of the `DPoP` proof.
async fn send_once(
    auth: &Authorizer,
    client: &Client,
    request: &Request,
    token: Option<&AccessToken>,
) -> Result<(Response, Option<String>), TransportFailure> {
    // Request bodies are strings, which can always be cloned.
    let mut request = request
        .try_clone()
        .ok_or_else(|| TransportFailure::Broken("haft cannot send the request again".into()))?;
    let nonce = match token {
        Some(token) => auth.authorize(&mut request, token).map_err(unauthorized)?,
        None => None,
    };
    let response = client.execute(request).await.map_err(|error| not_answered(&error))?;
    Ok((response, nonce))
}

fn unauthorized(error: AuthError) -> TransportFailure {
    match error {
        AuthError::PersonNeeded(reason) | AuthError::Refused(reason) => TransportFailure::NeedsAuth(reason),
        AuthError::Unreachable(reason) => TransportFailure::Broken(reason),
        AuthError::NotNeeded => TransportFailure::Broken(error.to_string()),
    }
}

/// Reads the whole body as text, within the limit. The limit applies to the decompressed size.
pub(super) async fn text(response: Response) -> Result<String, TransportFailure> {
    body(response, MESSAGE_BYTES_MAX).await
}

/// Reads the body of an error response. Returns an empty text if it is too large or cannot be read.
pub(super) async fn explanation(response: Response) -> String {
    body(response, ERROR_BYTES_MAX).await.unwrap_or_default()
}

async fn body(response: Response, bytes_max: usize) -> Result<String, TransportFailure> {
    let mut read = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| dropped(&error))?;
        if read.len() + chunk.len() > bytes_max {
            return Err(TransportFailure::TooLarge { bytes_max });
        }
        read.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(read).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

pub(super) fn media_type(response: &Response) -> String {
    let value = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase()
}

/// Converts a status other than success to a failure.
pub(super) fn refusal(response: &Response) -> TransportFailure {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match status {
        StatusCode::UNAUTHORIZED => {
            TransportFailure::NeedsAuth("the server rejected the credentials (HTTP 401)".into())
        }
        StatusCode::FORBIDDEN if Challenge::of(response).is_some() => TransportFailure::NeedsAuth(
            "the MCP server requires OAuth scopes that haft cannot get (HTTP 403)".into(),
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            let after = header(reqwest::header::RETRY_AFTER);
            let after = after.map(|after| format!("; retry after {after}")).unwrap_or_default();
            TransportFailure::Broken(format!("the MCP server limits the request rate (HTTP 429){after}"))
        }
        status if status.is_redirection() => {
            let target =
                header(reqwest::header::LOCATION).and_then(|target| response.url().join(target).ok());
            let target = target.as_ref().map(url_without_secrets).unwrap_or_default();
            TransportFailure::Broken(format!(
                "the server redirects to `{target}` ({status}), and haft does not follow redirects; if this is the right server, set `url` to that address"
            ))
        }
        // A gateway in front of the server got no valid response from it, but the server may have performed the
        // request.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => TransportFailure::Closed(format!(
            "a gateway in front of the server answered {status}; the server may still have performed the request"
        )),
        status if status.is_client_error() => {
            TransportFailure::WrongTransport(format!("the server answered {status}"))
        }
        status => TransportFailure::Broken(format!("the server answered {status}")),
    }
}

/// Converts an error without a response. If the connection could not be opened, the server did nothing; otherwise it
/// may have performed the request.
fn not_answered(error: &reqwest::Error) -> TransportFailure {
    if error.is_connect() || error.is_builder() {
        TransportFailure::Unreached(format!("the server cannot be reached: {}", root_cause(error)))
    } else {
        dropped(error)
    }
}

/// Formats a URL without the parts that may be secret: credentials and query.
fn url_without_secrets(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path: String = url.path().chars().take(PATH_CHARS_MAX).collect();
    format!("{}://{host}{port}{path}", url.scheme())
}

/// Builds the failure for a connection that ended in the middle of a response.
pub(super) fn dropped(error: &reqwest::Error) -> TransportFailure {
    TransportFailure::Closed(format!(
        "the MCP server closed the connection before its reply was complete: {}",
        root_cause(error)
    ))
}

/// Returns the innermost cause, which is the most specific. Leaves out the URL, because a query may contain a secret.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut words = String::new();
    while let Some(inner) = cause.source() {
        cause = inner;
        words = cause.to_string();
    }
    if words.is_empty() { "the request failed".into() } else { words }
}
