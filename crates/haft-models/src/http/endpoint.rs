//! The server that receives requests, with its headers and extra body fields.

use std::fmt;
use std::sync::Arc;

use haft_core::model_error::{ModelError, ModelErrorKind};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::extra_body;
use crate::wire::{EncodedRequest, WireFormat};
use haft_core::redact::SecretRedactor;

/// The maximum size of a request, in bytes. No provider accepts more.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A base URL with its wire format and credentials.
pub struct Endpoint {
    wire: Arc<dyn WireFormat>,
    base: Url,
    headers: HeaderMap,
    /// The key and the header values, which error messages must not contain.
    secrets: Vec<SecretString>,
    extra_body: Map<String, Value>,
}

/// The way in which haft sends the API key.
#[derive(Debug)]
pub enum EndpointAuth {
    /// The server requires no key.
    Nothing,
    Bearer(SecretString),
    Header(&'static str, SecretString),
}

/// A configuration error of a provider, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The base URL is invalid or not `http` or `https`.
    #[error("`{written}` is not a URL; expected a URL such as https://example.com/v1")]
    Address { written: String },
    /// The header has an invalid name or value.
    #[error(
        "haft cannot send the header `{name}`; its name or value contains characters that are not allowed in headers"
    )]
    Header { name: String },
    /// The key contains characters that headers cannot have.
    #[error(
        "the API key contains characters that are not allowed in a header; check the key for line breaks"
    )]
    Key,
    /// The extra body sets a field that haft itself writes.
    #[error("haft sets the field `{field}` itself; remove it from `extraBody`")]
    Reserved { field: String },
}

impl Endpoint {
    pub fn new(wire: Arc<dyn WireFormat>, base: &str, auth: EndpointAuth) -> Result<Self, EndpointError> {
        let address = || EndpointError::Address { written: base.chars().take(200).collect() };
        let base = Url::parse(base).map_err(|_| address())?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(address());
        }
        let mut endpoint =
            Self { wire, base, headers: HeaderMap::new(), secrets: Vec::new(), extra_body: Map::new() };
        match auth {
            EndpointAuth::Nothing => {}
            EndpointAuth::Bearer(key) => {
                let value = SecretString::from(format!("Bearer {}", key.expose_secret()));
                endpoint.set_header(AUTHORIZATION, &value).map_err(|()| EndpointError::Key)?;
            }
            EndpointAuth::Header(name, key) => {
                let name = HeaderName::from_static(name);
                endpoint.set_header(name, &key).map_err(|()| EndpointError::Key)?;
            }
        }
        Ok(endpoint)
    }

    /// Returns the base URL.
    pub(crate) fn server(&self) -> &Url {
        &self.base
    }

    /// Adds a header and replaces a header with the same name. The value may be a secret, so it is never logged.
    pub fn header(mut self, name: &str, value: &SecretString) -> Result<Self, EndpointError> {
        let wrong = || EndpointError::Header { name: name.chars().take(100).collect() };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        self.set_header(name, value).map_err(|()| wrong())?;
        Ok(self)
    }

    /// Adds fields to every request body. Merges objects; the added fields have priority.
    pub fn extra_body(mut self, fields: Map<String, Value>) -> Result<Self, EndpointError> {
        if let Some(field) = fields.keys().find(|field| extra_body::RESERVED.contains(&field.as_str())) {
            return Err(EndpointError::Reserved { field: field.clone() });
        }
        self.extra_body.extend(fields);
        Ok(self)
    }

    fn set_header(&mut self, name: HeaderName, value: &SecretString) -> Result<(), ()> {
        let mut header = HeaderValue::from_str(value.expose_secret()).map_err(drop)?;
        header.set_sensitive(true);
        self.headers.insert(name, header);
        // The scheme before the credential, such as `Bearer`, is not secret.
        let text = value.expose_secret();
        let bare = text.split_once(' ').map_or(text, |(_, bare)| bare).trim();
        self.secrets.push(bare.into());
        Ok(())
    }

    /// Redacts the secrets in an error. Servers repeat a wrong key in their message, and not every key matches the
    /// patterns in `redact`.
    pub(crate) fn redact_secrets(&self, error: ModelError) -> ModelError {
        let redactor = SecretRedactor::of(self.secrets.iter().map(ExposeSecret::expose_secret));
        ModelError { message: redactor.redact(error.message), ..error }
    }

    pub(crate) fn wire(&self) -> &dyn WireFormat {
        &*self.wire
    }

    /// Builds the HTTP request. The body is reference-counted, so that a retry does not copy the body.
    pub(crate) fn request(&self, encoded: &EndpointRequest) -> Request {
        let mut request = self.get(&encoded.path);
        *request.method_mut() = Method::POST;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in encoded.headers {
            let name = HeaderName::from_static(name);
            // Keep a header that the operator set, for example a different API version.
            request.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
        *request.body_mut() = Some(encoded.body.clone().into());
        request
    }

    pub(crate) fn get(&self, path: &str) -> Request {
        let mut request = Request::new(Method::GET, join(&self.base, path));
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Returns the final request, or an error if its body is too large.
    pub(crate) fn outgoing(&self, encoded: EncodedRequest) -> Result<EndpointRequest, ModelError> {
        let EncodedRequest { path, headers, body, .. } = encoded;
        let body = if self.extra_body.is_empty() { body } else { extra_body::merge(&body, &self.extra_body) };
        if body.len() > REQUEST_BYTES_MAX {
            let message =
                format!("the model request has {} bytes; the limit is {REQUEST_BYTES_MAX}", body.len());
            return Err(ModelError::new(ModelErrorKind::RequestTooLarge, message));
        }
        Ok(EndpointRequest { path, headers, body: body.into() })
    }
}

/// A model request that haft can send any number of times.
#[derive(Debug)]
pub(crate) struct EndpointRequest {
    path: String,
    headers: &'static [(&'static str, &'static str)],
    body: bytes::Bytes,
}

/// Appends a path to the base URL. Keeps the query in the base URL, which some gateways require.
fn join(base: &Url, path: &str) -> Url {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut url = base.clone();
    let below = format!("{}/{path}", base.path().trim_end_matches('/'));
    url.set_path(&below);
    let queries: Vec<&str> =
        [base.query().unwrap_or(""), query].into_iter().filter(|q| !q.is_empty()).collect();
    url.set_query(Some(queries.join("&").as_str()).filter(|query| !query.is_empty()));
    url
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("format", &self.wire.format()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_url_appends_the_path_and_keeps_query_parameters() {
        let check = |base: &str, path: &str, expected: &str| {
            assert_eq!(join(&Url::parse(base).unwrap(), path).as_str(), expected);
        };
        check("http://h", "api/chat", "http://h/api/chat");
        check("https://h/v1/", "messages", "https://h/v1/messages");
        check(
            "https://h/v1?api-version=2",
            "chat/completions",
            "https://h/v1/chat/completions?api-version=2",
        );
        check("https://h/v1beta?a=1", "models/m:s?alt=sse", "https://h/v1beta/models/m:s?a=1&alt=sse");
    }

    #[test]
    fn invalid_endpoint_settings_are_rejected_without_showing_keys() {
        let wire: Arc<dyn WireFormat> = Arc::new(crate::ollama::OLLAMA);
        let new = |base: &str, auth| Endpoint::new(Arc::clone(&wire), base, auth);
        assert!(matches!(new("nowhere", EndpointAuth::Nothing), Err(EndpointError::Address { .. })));
        assert!(matches!(
            new("file:///etc/passwd", EndpointAuth::Nothing),
            Err(EndpointError::Address { .. })
        ));
        assert_eq!(new("http://h", EndpointAuth::Bearer("a\nb".into())).unwrap_err(), EndpointError::Key);
        let endpoint = new("http://h", EndpointAuth::Bearer("sk-hidden".into())).unwrap();
        assert!(!format!("{endpoint:?}").contains("hidden"));
        let said = |message: &str| {
            endpoint.redact_secrets(ModelError::new(ModelErrorKind::Unauthorized, message)).message
        };
        assert_eq!(said("the token sk-hidden is unknown"), "the token [redacted] is unknown");
        let refused = endpoint.header("x y", &"v".into()).unwrap_err();
        assert!(refused.to_string().contains("`x y`"));
        let fields = serde_json::json!({ "messages": [] }).as_object().unwrap().clone();
        let refused = new("http://h", EndpointAuth::Nothing).unwrap().extra_body(fields).unwrap_err();
        assert_eq!(refused, EndpointError::Reserved { field: "messages".into() });
    }
}
