//! Checks every request before the API key is checked: `Host`, `Origin`, content type and content encoding.
//!
//! A web page that a user opens can send requests to a server on the user's own machine. The `Host` check refuses pages
//! that reach the server through a DNS name of their own (DNS rebinding), and the `Origin` check refuses all other
//! pages.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, header};
use url::Url;

use crate::error::{ApiError, ApiErrorKind};
use crate::mcp::http::LOGIN_PATH;
use crate::server::ServerState;
use crate::settings::ServerSettings;

/// Refuses a request that fails one of the checks.
pub(crate) async fn check<F: Future<Output = Response>>(
    state: &ServerState,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let rules = &state.access;
    let checked = rules.check_host(request.headers(), request.uri().host());
    let checked = checked.and_then(|()| rules.check_origin(request.headers(), request.uri().authority()));
    let checked = checked.and_then(|()| match request.uri().path() {
        LOGIN_PATH => check_form(request.method(), request.headers()),
        _ => check_content(request.method(), request.headers()),
    });
    match checked {
        Ok(()) => next(request).await,
        Err(error) => error.into_response(),
    }
}

/// The hosts and origins that the headers of a request may name.
#[derive(Debug, Clone)]
pub(crate) struct AccessRules {
    address: IpAddr,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl AccessRules {
    pub(crate) fn of(settings: &ServerSettings, bound: SocketAddr) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self {
            address: bound.ip(),
            hosts: lower(&settings.allowed_hosts),
            origins: lower(&settings.allowed_origins),
        }
    }

    /// Returns true if the operator allowed any origins.
    pub(crate) fn has_allowed_origins(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Returns true if the operator listed this origin.
    pub(crate) fn is_listed(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default();
        self.origins.iter().any(|listed| listed.eq_ignore_ascii_case(origin))
    }

    /// Checks the host. `authority` is the host in an absolute request target, which takes precedence over the header.
    pub(crate) fn check_host(&self, headers: &HeaderMap, authority: Option<&str>) -> Result<(), ApiError> {
        let mut written = headers.get_all(header::HOST).iter();
        let host = match (written.next(), written.next()) {
            (Some(host), None) => host.to_str().ok().map(host_name),
            (None, None) => authority.map(host_name),
            // Refuse two `Host` headers: a proxy could use one of them and this server the other.
            _ => None,
        };
        match host {
            Some(host) if self.is_own_host(&host) => Ok(()),
            _ => Err(ApiError::new(
                ApiErrorKind::MisdirectedRequest,
                "the `Host` header does not name this server; the operator can add the name to the allowed hosts",
            )),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        if host == "localhost" || self.hosts.iter().any(|allowed| allowed == host) {
            return true;
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        // DNS rebinding does not work with an IP address, so a server that listens on all addresses accepts every IP
        // address.
        literal.is_ok_and(|ip| ip.is_loopback() || ip == self.address || self.address.is_unspecified())
    }

    fn check_origin(&self, headers: &HeaderMap, authority: Option<&Authority>) -> Result<(), ApiError> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        if self.is_listed(origin) || is_same_origin(&text, headers, authority) {
            return Ok(());
        }
        Err(ApiError::new(
            ApiErrorKind::Forbidden,
            "the origin of this web page is not allowed; the operator can add it to the allowed origins",
        ))
    }
}

/// Returns true if the page came from this server. Compares the origin with the host of the request, which was
/// already checked. An HTTP/2 request has no `Host` header, only an authority.
fn is_same_origin(origin: &str, headers: &HeaderMap, authority: Option<&Authority>) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or(authority.map(Authority::as_str)).unwrap_or_default();
    let port = origin.port().map(|port| format!(":{port}")).unwrap_or_default();
    let own = origin.host_str().map(|name| format!("{name}{port}"));
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
}

/// Returns the host without its port, in lower case.
fn host_name(host: &str) -> String {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    host[..end].to_ascii_lowercase()
}

/// Checks that a body is JSON: a page can send other content types to another site without a CORS preflight.
fn check_content(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let refused = |message: &str| Err(ApiError::new(ApiErrorKind::UnsupportedMediaType, message));
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return refused(
            "this server does not accept compressed bodies; send the JSON without `Content-Encoding`",
        );
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    match kind {
        Some(kind) if is_json(kind) => Ok(()),
        None if has_no_body(headers) => Ok(()),
        Some(_) | None => refused("send the request body with `Content-Type: application/json`"),
    }
}

/// Checks a request that submits the form of the login page. A page of another site can submit this form too, so the
/// request must have an `Origin` header, which `check_origin` has already checked. Browsers send this header with every
/// form.
fn check_form(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if *method == Method::GET {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !is_kind(kind, "application/x-www-form-urlencoded") {
        return Err(ApiError::new(
            ApiErrorKind::UnsupportedMediaType,
            "this page accepts only the form of the login page",
        ));
    }
    if !headers.contains_key(header::ORIGIN) {
        return Err(ApiError::new(
            ApiErrorKind::Forbidden,
            "a request with a form must have the header `Origin`",
        ));
    }
    Ok(())
}

fn is_json(kind: &str) -> bool {
    is_kind(kind, "application/json")
}

fn is_kind(kind: &str, expected: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(expected)
}

fn has_no_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    !headers.contains_key(header::TRANSFER_ENCODING) && length.is_none_or(|length| length == "0")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use haft_runtime::WorkspaceSpec;

    use super::*;

    fn rules(address: &str) -> AccessRules {
        let address: SocketAddr = address.parse().unwrap();
        let mut settings = ServerSettings::at(address, WorkspaceSpec::at(Path::new("/w")));
        settings.allowed_hosts = vec!["Haft.Example.com".into()];
        settings.allowed_origins = vec!["https://console.example.com".into()];
        AccessRules::of(&settings, address)
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn host_header_must_contain_a_name_or_address_of_this_server() {
        let check = |address: &str, host: &'static str, expected: bool| {
            let checked = rules(address).check_host(&headers(&[("host", host)]), None);
            assert_eq!(checked.is_ok(), expected, "{address} {host}");
        };
        let local = "127.0.0.1:8484";
        check(local, "127.0.0.1:8484", true);
        check(local, "localhost", true);
        check(local, "LOCALHOST:1", true);
        check(local, "[::1]:8484", true);
        check(local, "haft.example.com:443", true);
        check(local, "evil.com", false);
        check(local, "127.0.0.1.evil.com", false);
        check(local, "localhost.evil.com:8484", false);
        check(local, "10.0.0.7:8484", false);
        check(local, "", false);
        check("0.0.0.0:8484", "10.0.0.7:8484", true);
        check("0.0.0.0:8484", "evil.com", false);
        check("10.0.0.7:8484", "10.0.0.7", true);
    }

    #[test]
    fn request_without_exactly_one_host_header_is_refused() {
        let rules = rules("127.0.0.1:8484");
        assert!(rules.check_host(&headers(&[]), None).is_err());
        assert!(rules.check_host(&headers(&[]), Some("127.0.0.1")).is_ok());
        let two = headers(&[("host", "127.0.0.1"), ("host", "evil.com")]);
        assert!(rules.check_host(&two, None).is_err());
    }

    #[test]
    fn requests_from_web_pages_of_other_sites_are_refused() {
        let check = |origin: &'static str, expected: bool| {
            let headers = headers(&[("host", "127.0.0.1:8484"), ("origin", origin)]);
            assert_eq!(rules("127.0.0.1:8484").check_origin(&headers, None).is_ok(), expected, "{origin}");
        };
        check("https://console.example.com", true);
        check("http://127.0.0.1:8484", true);
        check("http://127.0.0.1:9999", false);
        check("https://evil.com", false);
        check("https://console.example.com.evil.com", false);
        check("null", false);
        check("", false);
        let own: Authority = "localhost:8484".parse().unwrap();
        let same = headers(&[("origin", "https://localhost:8484")]);
        assert!(
            rules("127.0.0.1:8484").check_origin(&same, Some(&own)).is_ok(),
            "HTTP/2 has no `Host` header"
        );
        assert!(rules("127.0.0.1:8484").check_origin(&same, None).is_err());
        assert!(rules("127.0.0.1:8484").check_origin(&headers(&[]), None).is_ok());
    }

    #[test]
    fn request_body_must_be_uncompressed_json() {
        let check = |method: Method, all: &[(&'static str, &'static str)], expected: bool| {
            assert_eq!(check_content(&method, &headers(all)).is_ok(), expected, "{method} {all:?}");
        };
        check(Method::POST, &[("content-type", "application/json")], true);
        check(Method::POST, &[("content-type", "Application/JSON; charset=utf-8")], true);
        check(Method::POST, &[("content-type", "text/plain"), ("content-length", "2")], false);
        check(Method::POST, &[("content-type", "text/plain")], false);
        check(Method::POST, &[("content-length", "2")], false);
        check(Method::POST, &[("transfer-encoding", "chunked")], false);
        check(Method::POST, &[], true);
        check(Method::DELETE, &[], true);
        for encoding in ["gzip", "gzip, gzip", "identity, gzip", "x-gzip", "br", "zstd"] {
            let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
            check(Method::POST, &headers, false);
        }
        check(Method::GET, &[("content-type", "text/plain")], true);
    }
}
