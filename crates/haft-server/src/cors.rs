//! CORS: lets the web pages that the operator allowed read the replies of the APIs.
//!
//! Without allowed origins, no reply has a CORS header. Replies never allow credentials: a page sends its key in the
//! header `Authorization`, and the server has no cookies that another page could use.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::access::AccessRules;
use crate::server::ServerState;

/// The paths below which pages can send requests.
const PATHS: [&str; 3] = ["/v1", "/api/v1", "/mcp"];

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");

/// The headers of replies that a page can read, in addition to those that every page can read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "haft-warnings, mcp-session-id, retry-after, www-authenticate, x-request-id, x-should-retry, \
     x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens",
);

/// The seconds for which a browser may use the answer to a preflight request again.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");

/// The effect of CORS on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CorsPlan {
    /// The request has nothing to do with CORS, or its page is not allowed.
    Nothing,
    /// A browser asks whether a page may send a request. The browser sends no key with this question.
    Preflight(HeaderValue),
    /// The request of an allowed page.
    Reply(HeaderValue),
}

/// Answers preflight requests, and adds the CORS headers to the replies for allowed pages.
pub(crate) async fn apply<F: Future<Output = Response>>(
    state: &ServerState,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let rules = &state.access;
    if !rules.has_allowed_origins() || !has_cors(request.uri().path()) {
        return next(request).await;
    }
    let planned = plan(rules, request.method(), request.headers());
    let mut response = match &planned {
        CorsPlan::Nothing | CorsPlan::Reply(_) => next(request).await,
        CorsPlan::Preflight(_) => match rules.check_host(request.headers(), request.uri().host()) {
            Ok(()) => preflight(request.headers()),
            Err(error) => return error.into_response(),
        },
    };
    let headers = response.headers_mut();
    // A cache must not answer one page with the reply for another page.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    match planned {
        CorsPlan::Nothing => {}
        CorsPlan::Preflight(origin) | CorsPlan::Reply(origin) => {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
    response
}

fn has_cors(path: &str) -> bool {
    PATHS
        .iter()
        .any(|base| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

fn plan(rules: &AccessRules, method: &Method, headers: &HeaderMap) -> CorsPlan {
    let Some(origin) = headers.get(header::ORIGIN).filter(|origin| rules.is_listed(origin)) else {
        return CorsPlan::Nothing;
    };
    let is_preflight =
        *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if is_preflight { CorsPlan::Preflight(origin.clone()) } else { CorsPlan::Reply(origin.clone()) }
}

/// Allows every header that the page wants to send: clients send many headers of their own, and the server checks each
/// request in the same way as without CORS.
fn preflight(headers: &HeaderMap) -> Response {
    const WANTED: HeaderName = header::ACCESS_CONTROL_REQUEST_HEADERS;
    let mut response = StatusCode::NO_CONTENT.into_response();
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    if let Some(wanted) = headers.get(WANTED) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use haft_runtime::WorkspaceSpec;

    use super::*;
    use crate::settings::ServerSettings;

    const PAGE: &str = "https://console.example.com";

    fn rules() -> AccessRules {
        let address = "127.0.0.1:8484".parse().unwrap();
        let mut settings = ServerSettings::at(address, WorkspaceSpec::at(Path::new("/w")));
        settings.allowed_origins = vec![PAGE.into()];
        AccessRules::of(&settings, address)
    }

    #[test]
    fn only_listed_pages_get_cors_headers() {
        let check = |method: Method, all: &[(&'static str, &'static str)], expected: CorsPlan| {
            let headers: HeaderMap = all
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect();
            assert_eq!(plan(&rules(), &method, &headers), expected, "{method} {all:?}");
        };
        let (page, asks) = (("origin", PAGE), ("access-control-request-method", "POST"));
        let value = HeaderValue::from_static(PAGE);
        check(Method::POST, &[page], CorsPlan::Reply(value.clone()));
        check(Method::OPTIONS, &[page, asks], CorsPlan::Preflight(value.clone()));
        check(Method::OPTIONS, &[page], CorsPlan::Reply(value));
        check(Method::OPTIONS, &[asks], CorsPlan::Nothing);
        check(Method::OPTIONS, &[("origin", "https://evil.com"), asks], CorsPlan::Nothing);
        check(Method::POST, &[("origin", "http://127.0.0.1:8484")], CorsPlan::Nothing);
        check(Method::POST, &[("origin", "null")], CorsPlan::Nothing);
        check(Method::POST, &[], CorsPlan::Nothing);
    }

    #[test]
    fn only_the_apis_have_cors() {
        for path in ["/v1", "/v1/responses", "/api/v1/runs", "/mcp", "/mcp/login"] {
            assert!(has_cors(path), "{path}");
        }
        for path in ["/", "/metrics", "/healthz", "/v10", "/api", "/mcpx"] {
            assert!(!has_cors(path), "{path}");
        }
    }
}
