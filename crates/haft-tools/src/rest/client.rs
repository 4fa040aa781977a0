//! Sends requests, but only to hosts and addresses that the service's `AllowedHosts` allows. Limits the size of
//! responses, and retries only repeatable requests.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haft_core::result::{ToolError, ToolErrorKind};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};

use super::guard::AllowedHosts;
use super::request::RestRequest;
use super::retry::{self, RestAttemptOutcome};
use crate::http_client;
use haft_core::settings::method::Method;

/// An HTTP client for one service.
#[derive(Debug)]
pub struct RestClient {
    reach: Arc<AllowedHosts>,
    /// The client is created for the first request, because loading the certificates of the machine takes a while.
    inner: OnceLock<Result<reqwest::Client, String>>,
}

/// The maximum time without data from the server while haft waits for a response or reads it.
const SILENCE_MAX: Duration = Duration::from_mins(1);

const REDIRECTS_MAX: usize = 5;

impl RestClient {
    pub fn new(reach: AllowedHosts) -> Self {
        Self { reach: Arc::new(reach), inner: OnceLock::new() }
    }

    pub fn reach(&self) -> &AllowedHosts {
        &self.reach
    }

    /// Sends a request. Sends the request again if a repetition is safe and may help.
    pub async fn send(&self, request: &RestRequest) -> Result<reqwest::Response, ToolError> {
        let mut number = 1;
        loop {
            let reply = self.send_once(request).await;
            let outcome = match &reply {
                Ok(response) => RestAttemptOutcome::Status(response.status().as_u16(), retry_after(response)),
                Err(error) if error.is_connect() => RestAttemptOutcome::NotConnected,
                Err(_) => RestAttemptOutcome::Broken,
            };
            match retry::delay(request.method, number, outcome) {
                Some(delay) if !reply.as_ref().is_err_and(is_refusal) => tokio::time::sleep(delay).await,
                Some(_) | None => return reply.map_err(|error| tool_error(error, request)),
            }
            number += 1;
        }
    }

    /// Reads the whole response, decompressed; returns its media type and body. Fails if the body is longer than
    /// `bytes_max`.
    pub async fn whole(
        &self,
        mut response: reqwest::Response,
        bytes_max: usize,
    ) -> Result<(Option<String>, Vec<u8>), ToolError> {
        let media_type = media_type(&response);
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(broken)? {
            if bytes.len() + piece.len() > bytes_max {
                let message = format!(
                    "the response is larger than {bytes_max} bytes; ask for less, for example with a limit or a page"
                );
                return Err(ToolError::new(ToolErrorKind::Failed, message));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok((media_type, bytes))
    }

    async fn send_once(&self, request: &RestRequest) -> Result<reqwest::Response, SendError> {
        self.reach.check_url(&request.url).map_err(|refusal| SendError::Refused(refusal.to_string()))?;
        let client = self.inner().map_err(|reason| SendError::Refused(reason.clone()))?;
        let mut sent = client.request(method(request.method), request.url.clone());
        for (name, value) in &request.headers {
            sent = sent.header(name, value);
        }
        if let Some(body) = &request.body {
            let typed = request.headers.iter().any(|(name, _)| *name == http::header::CONTENT_TYPE);
            if !typed {
                sent = sent.header(http::header::CONTENT_TYPE, &body.media_type);
            }
            sent = sent.body(body.bytes.clone());
        }
        sent.send().await.map_err(|error| SendError::Http(error.without_url()))
    }

    fn inner(&self) -> Result<&reqwest::Client, &String> {
        self.inner.get_or_init(|| make(&self.reach)).as_ref()
    }
}

/// Builds a client whose redirects and DNS lookups the guard checks. It uses no proxy, because a proxy would resolve
/// names and open connections itself, without the checks of the guard.
fn make(reach: &Arc<AllowedHosts>) -> Result<reqwest::Client, String> {
    let of_redirects = Arc::clone(reach);
    http_client::builder()
        .no_proxy()
        // On a redirect, a `Referer` header would repeat the URL, which may contain a key.
        .referer(false)
        .read_timeout(SILENCE_MAX)
        .redirect(Policy::custom(move |attempt| redirected(&of_redirects, attempt)))
        .dns_resolver(Arc::new(GuardedResolver::new(reach)))
        .build()
        .map_err(|error| format!("haft cannot create an HTTP client for the tool: {error}"))
}

fn redirected(reach: &AllowedHosts, attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error(format!("the server redirects more than {REDIRECTS_MAX} times"));
    }
    let allowed = match attempt.previous().last() {
        Some(from) => reach.check_redirect(from, attempt.url()),
        None => reach.check_url(attempt.url()),
    };
    match allowed {
        Ok(()) => attempt.follow(),
        Err(refusal) => attempt.error(refusal),
    }
}

/// A DNS resolver that returns only allowed addresses. The client connects to exactly these addresses and does not
/// resolve the name again, so a DNS rebinding attack cannot swap in another address after the check.
pub(crate) struct GuardedResolver(Arc<AllowedHosts>);

impl GuardedResolver {
    pub(crate) fn new(reach: &Arc<AllowedHosts>) -> Self {
        Self(Arc::clone(reach))
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str().to_owned();
            reach.check_host(&host)?;
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            // If one of the addresses is private, do not trust the other addresses of this DNS response either.
            for address in &found {
                reach.check_address(&host, address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The reason why there is no response. It contains no URL, because a URL may contain a key.
#[derive(Debug)]
enum SendError {
    Refused(String),
    Http(reqwest::Error),
}

impl SendError {
    fn is_connect(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Http(error) => error.is_connect(),
        }
    }
}

/// Returns whether the network guard refused the request; the guard would refuse a retry too.
fn is_refusal(error: &SendError) -> bool {
    match error {
        SendError::Refused(_) => true,
        SendError::Http(error) => error.is_redirect() || error.is_builder() || refusal_in(error).is_some(),
    }
}

fn refusal_in(error: &reqwest::Error) -> Option<&super::guard::RequestBlockReason> {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(refusal) = inner.downcast_ref::<super::guard::RequestBlockReason>() {
            return Some(refusal);
        }
        source = inner.source();
    }
    None
}

/// Converts an error for the model. The message says what happened, and whether the request may have taken effect. The
/// message for clients of a gateway names no host.
fn tool_error(error: SendError, request: &RestRequest) -> ToolError {
    let host = request.url.host_str().unwrap_or_default();
    let error = match error {
        SendError::Refused(reason) => return refused(reason),
        SendError::Http(error) => error,
    };
    if let Some(refusal) = refusal_in(&error) {
        return refused(refusal.to_string());
    }
    let cause = root_cause(&error);
    let (kind, message, for_client) = if error.is_redirect() {
        let message = format!("haft cannot follow the redirect from {host}: {cause}");
        (ToolErrorKind::Failed, message, "haft cannot follow the redirect of the HTTP API")
    } else if error.is_connect() {
        (ToolErrorKind::Unavailable, format!("{host} cannot be reached: {cause}"), UNREACHABLE)
    } else if request.method.is_repeatable() {
        let message = format!("the request to {host} failed: {cause}");
        (ToolErrorKind::Unavailable, message, "the request to the HTTP API failed")
    } else {
        let message = format!("the request to {host} failed: {cause}; {OUTCOME_UNKNOWN}");
        return ToolError::new(ToolErrorKind::UnknownOutcome, message)
            .with_client_message(format!("the request to the HTTP API failed; {OUTCOME_UNKNOWN}"))
            .with_source(error);
    };
    ToolError::new(kind, message).with_client_message(for_client).with_source(error)
}

/// The text for clients of a gateway about an API that haft cannot connect to.
const UNREACHABLE: &str = "the HTTP API cannot be reached";

/// The advice about a request that may have taken effect.
const OUTCOME_UNKNOWN: &str =
    "haft does not know whether the request took effect; check before you repeat it";

fn refused(reason: String) -> ToolError {
    let for_client = "haft refused the request, because the operator does not allow its address";
    ToolError::new(ToolErrorKind::Denied, reason).with_client_message(for_client)
}

/// Converts an error in the middle of a body. The response had begun, so the server has received the request.
pub(super) fn broken(error: reqwest::Error) -> ToolError {
    let error = error.without_url();
    let what = if error.is_timeout() { "the server stopped sending" } else { "the connection broke" };
    let message = format!("{what} before the end of the response: {}", root_cause(&error));
    ToolError::new(ToolErrorKind::Failed, message).with_source(error)
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

pub(super) fn media_type(response: &reqwest::Response) -> Option<String> {
    let value = response.headers().get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let plain = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (!plain.is_empty()).then_some(plain)
}

fn retry_after(response: &reqwest::Response) -> Option<Duration> {
    let value = response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?;
    retry::retry_after(value, jiff::Timestamp::now())
}

fn method(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Options => http::Method::OPTIONS,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Post => http::Method::POST,
        Method::Patch => http::Method::PATCH,
    }
}
