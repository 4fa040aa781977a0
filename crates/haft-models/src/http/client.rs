//! HTTP connections: timeouts, connection errors and size limits for responses.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::settings::models::ModelTimeouts;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::client_pool::{ClientPool, ClientSettings, SharedClient};
use crate::redact::redact;

/// The maximum number of bytes to read from an error response.
const ERROR_BODY_BYTES_MAX: usize = 256 * 1024;

/// Certificate authorities that haft trusts in addition to those of the system.
#[derive(Debug, Clone, Default)]
pub struct CertificateAuthorities(Vec<reqwest::Certificate>);

impl CertificateAuthorities {
    /// Parses a bundle of PEM certificates. The error text describes the problem.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let all = reqwest::Certificate::from_pem_bundle(text).map_err(|error| innermost(&error))?;
        if all.is_empty() { Err("the file contains no PEM certificate".into()) } else { Ok(Self(all)) }
    }

    pub(super) fn certificates(&self) -> &[reqwest::Certificate] {
        &self.0
    }
}

/// The connections and timeouts of one provider. Other providers may share the connections.
#[derive(Debug, Clone)]
pub(crate) struct ModelHttpClient {
    connections: Arc<SharedClient>,
    timeouts: ModelTimeouts,
}

impl ModelHttpClient {
    pub(crate) fn of_pool(
        pool: &ClientPool,
        timeouts: ModelTimeouts,
        server: &Url,
        authorities: &CertificateAuthorities,
    ) -> Result<Self, ModelError> {
        let connections = pool
            .connections(ClientSettings::of(&timeouts, server), authorities)
            .map_err(|error| unreachable("haft cannot set up the HTTP client", &error))?;
        Ok(Self { connections, timeouts })
    }

    pub(crate) fn timeouts(&self) -> &ModelTimeouts {
        &self.timeouts
    }

    /// Sends a request and waits for the response headers.
    pub(crate) async fn send(&self, request: reqwest::Request) -> Result<ModelHttpResponse, ModelError> {
        let host = server_name(request.url());
        let head = tokio::time::timeout(self.timeouts.first_byte, self.connections.execute(request)).await;
        match head {
            Ok(Ok(response)) => {
                Ok(ModelHttpResponse { response, between_chunks: self.timeouts.between_chunks })
            }
            Ok(Err(error)) => Err(unreachable(&format!("haft cannot reach `{host}`"), &error)),
            Err(_) => Err(slow(&format!("`{host}` did not start to answer"), self.timeouts.first_byte)),
        }
    }
}

/// Returns the host, with the port if it is not the default: several local servers may differ only in their port.
fn server_name(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// An HTTP response whose headers have arrived.
#[derive(Debug)]
pub(crate) struct ModelHttpResponse {
    response: reqwest::Response,
    between_chunks: Duration,
}

impl ModelHttpResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Drops the headers. They share the first read buffer of the connection (8 KB), which would otherwise stay allocated
    /// until the end of a long stream.
    pub(crate) fn without_headers(mut self) -> Self {
        *self.response.headers_mut() = HeaderMap::new();
        self
    }

    /// Reads the next chunk of the body, within the chunk timeout.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        match tokio::time::timeout(self.between_chunks, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(unreachable(&format!("the connection to `{}` broke", self.host()), &error)),
            Err(_) => Err(slow(&format!("`{}` sent no more data", self.host()), self.between_chunks)),
        }
    }

    fn host(&self) -> String {
        server_name(self.response.url())
    }

    /// Reads the whole body. Fails as soon as the body exceeds `bytes_max`.
    pub(crate) async fn body(&mut self, bytes_max: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > bytes_max {
                let message = format!("the model reply is larger than {bytes_max} bytes");
                return Err(ModelError::new(ModelErrorKind::ReplyTooLarge, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the body of an error response, up to the limit. Ignores a broken connection, and returns the text that
    /// arrived before.
    pub(crate) async fn explanation(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ERROR_BODY_BYTES_MAX {
                body.truncate(ERROR_BODY_BYTES_MAX);
                break;
            }
        }
        body
    }
}

fn slow(what: &str, limit: Duration) -> ModelError {
    ModelError::new(ModelErrorKind::Timeout, format!("{what} within {limit:?}"))
}

/// Creates the error from its innermost cause. Leaves out the URL, which may contain a key.
fn unreachable(what: &str, error: &reqwest::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Unreachable, redact(&format!("{what}: {}", innermost(error))))
}

/// Returns the innermost cause, which is the message from the operating system or the TLS library.
fn innermost(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause.filter(|_| causes.len() < 8) {
        causes.push(error.to_string());
        cause = error.source();
    }
    causes.pop().unwrap_or_else(|| "unknown reason".to_owned())
}
