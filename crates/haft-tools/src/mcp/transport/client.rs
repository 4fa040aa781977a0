//! The HTTP client of a server: its own headers, no way to another host, and bounds on what is read.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{Failure, MESSAGE_BYTES_MAX};
use crate::mcp::auth::{AuthError, Authorizer, Challenge};

/// How long it may take to reach the host.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// How often an address may send us to another on the same host.
const REDIRECTS_MAX: usize = 5;

/// How often another token is got for one request.
const AUTHORIZATIONS_MAX: usize = 2;

/// How much of the path of another address is told.
const PATH_CHARS_MAX: usize = 100;

/// How much of an answer that reports an error is read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Makes cryptography known to rustls. Somebody else may have done it, with theirs.
pub(in crate::mcp) fn provide_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client that sends these headers, and sends them nowhere else.
pub(super) fn client(headers: &[(String, SecretString)]) -> Result<Client, Failure> {
    provide_cryptography();
    // The older kinds of redirect would make a GET without a message of what was a POST.
    let same_host = Policy::custom(|attempt| {
        let origin = attempt.previous().first().map(Url::origin);
        let stays = origin.is_some_and(|origin| origin == attempt.url().origin());
        let keeps =
            matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let followed = stays && keeps && attempt.previous().len() <= REDIRECTS_MAX;
        if followed { attempt.follow() } else { attempt.stop() }
    });
    Client::builder()
        .default_headers(header_map(headers)?)
        .redirect(same_host)
        .connect_timeout(CONNECT_WAIT)
        .user_agent(concat!("haft/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Failure::Broken(format!("no HTTP client can be made: {}", told(&error))))
}

/// The operator's headers. What is wrong with one is told by its name; its value may be a secret.
pub(super) fn header_map(headers: &[(String, SecretString)]) -> Result<HeaderMap, Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || Failure::Broken(format!("header `{name}` has a name or a value that HTTP cannot carry"));
        let mut held = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad())?;
        held.set_sensitive(true);
        map.append(HeaderName::try_from(name.as_str()).map_err(|_| bad())?, held);
    }
    Ok(map)
}

/// What is said in headers beside a message. Ours are legal; what is not would be left out.
pub(super) fn with_headers(mut request: RequestBuilder, headers: &[(String, String)]) -> RequestBuilder {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            request = request.header(name, value);
        }
    }
    request
}

/// Sends a request with the token of the server. When it is refused for want of one, or of a better one, it is sent again with
/// another, but not for ever. A request that was refused has done nothing.
pub(super) async fn send(auth: Option<&Authorizer>, request: RequestBuilder) -> Result<Response, Failure> {
    let Some(auth) = auth else { return request.send().await.map_err(|error| not_answered(&error)) };
    for _ in 0..AUTHORIZATIONS_MAX {
        let token = auth.bearer().await.map_err(unauthorized)?;
        // Our bodies are texts, which can always be sent twice.
        let Some(again) = request.try_clone() else { break };
        let response = bearing(again, token.as_ref()).send().await.map_err(|error| not_answered(&error))?;
        let Some(challenge) = Challenge::of(&response) else { return Ok(response) };
        auth.renew(token.as_ref(), &challenge).await.map_err(unauthorized)?;
    }
    let token = auth.bearer().await.map_err(unauthorized)?;
    bearing(request, token.as_ref()).send().await.map_err(|error| not_answered(&error))
}

fn bearing(request: RequestBuilder, token: Option<&SecretString>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token.expose_secret()),
        None => request,
    }
}

fn unauthorized(error: AuthError) -> Failure {
    match error {
        AuthError::PersonNeeded(reason) | AuthError::Refused(reason) => Failure::NeedsAuth(reason),
        AuthError::Unreachable(reason) => Failure::Broken(reason),
    }
}

/// The whole body as text, within the limit. A body that was compressed counts as what it becomes.
pub(super) async fn text(response: Response) -> Result<String, Failure> {
    body(response, MESSAGE_BYTES_MAX).await
}

/// As much as is worth reading of a body that explains an error.
pub(super) async fn explanation(response: Response) -> String {
    body(response, ERROR_BYTES_MAX).await.unwrap_or_default()
}

async fn body(response: Response, bytes_max: usize) -> Result<String, Failure> {
    let mut read = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| dropped(&error))?;
        if read.len() + chunk.len() > bytes_max {
            return Err(Failure::TooLarge { bytes_max });
        }
        read.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(read).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

pub(super) fn media_type(response: &Response) -> String {
    let value = response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.and_then(|value| value.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase()
}

/// What a status that is no success means.
pub(super) fn refusal(response: &Response) -> Failure {
    let status = response.status();
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match status {
        StatusCode::UNAUTHORIZED => {
            Failure::NeedsAuth("the server refuses what it was shown (HTTP 401)".into())
        }
        StatusCode::FORBIDDEN if Challenge::of(response).is_some() => {
            Failure::NeedsAuth("the server wants more rights than it can be given (HTTP 403)".into())
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let after = header(reqwest::header::RETRY_AFTER);
            let after =
                after.map(|after| format!("; it may be asked again after {after}")).unwrap_or_default();
            Failure::Broken(format!("the server is asked too often (HTTP 429){after}"))
        }
        status if status.is_redirection() => {
            let target =
                header(reqwest::header::LOCATION).and_then(|target| response.url().join(target).ok());
            let target = target.as_ref().map(told_address).unwrap_or_default();
            Failure::Broken(format!(
                "the server redirects to `{target}` ({status}), which is not followed; if that is it, put its address into `url`"
            ))
        }
        // Somebody before the server, who passed the request on and has no answer to it.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            Failure::Closed(format!("a gateway answered {status} for the server"))
        }
        status if status.is_client_error() => {
            Failure::WrongTransport(format!("the server answered {status}"))
        }
        status => Failure::Broken(format!("the server answered {status}")),
    }
}

/// What it means that there is no answer: nobody was reached, or somebody was, who may have done what was asked.
fn not_answered(error: &reqwest::Error) -> Failure {
    if error.is_connect() || error.is_builder() {
        Failure::Unreached(format!("the server cannot be reached: {}", told(error)))
    } else {
        dropped(error)
    }
}

/// An address without what may be a secret in it.
fn told_address(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let path: String = url.path().chars().take(PATH_CHARS_MAX).collect();
    format!("{}://{host}{port}{path}", url.scheme())
}

/// The connection ended in the middle of an answer.
pub(super) fn dropped(error: &reqwest::Error) -> Failure {
    Failure::Closed(format!("the server dropped the connection before its reply was whole: {}", told(error)))
}

/// The innermost cause, which says most, and no address: a query may hold a secret.
fn told(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut words = String::new();
    while let Some(inner) = cause.source() {
        cause = inner;
        words = cause.to_string();
    }
    if words.is_empty() { "the request failed".into() } else { words }
}
