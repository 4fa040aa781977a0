//! The pages on which a user begins and ends a login at an upstream server.
//!
//! The person who completes a login must be the principal that asked for it. Otherwise an attacker could send the link
//! of a login to another person, and would then use the account of that person. Therefore the first page asks for the
//! credential of the principal, and the redirect is valid only in the browser in which the user submitted that page.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::HttpGateway;
use crate::auth;
use crate::error::{ApiError, ApiErrorKind, RefusalReason};
use crate::failed_logins::ClientAddress;
use crate::mcp::logins::{CALLBACK_PATH, LOGIN_PATH, LOGIN_WAIT, LoginPhase, PendingLogin, RedirectRefusal};
use crate::observe::RequestPrincipal;
use crate::protected_resource::ProtectedResource;
use crate::server::ServerState;
use crate::settings::AuthMode;
use haft_core::principal::Principal;
use haft_store::api_keys::KeyScope;

/// The maximum size of a submitted form, in bytes. An access token may have some kilobytes.
const FORM_BYTES_MAX: usize = 32 << 10;

/// The maximum time that the last page waits for the end of the login.
const END_WAIT: Duration = Duration::from_secs(30);

/// The content security policy of all pages. It forbids scripts, styles, images and frames, because no page needs them.
const CONTENT_POLICY: &str =
    "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Returns the routes of the pages. They need no key in a header, because a browser has none.
pub(super) fn routes(gateway: &Arc<HttpGateway>) -> Router<Arc<ServerState>> {
    let [for_form, for_key, for_redirect] = std::array::from_fn(|_| Arc::clone(gateway));
    let first_page = get(move |State(state): State<Arc<ServerState>>, request: Request| {
        let gateway = Arc::clone(&for_form);
        async move { begin(&state, &gateway, &request) }
    })
    .post(move |State(state): State<Arc<ServerState>>, request: Request| {
        let gateway = Arc::clone(&for_key);
        async move { confirm(&state, &gateway, request).await }
    });
    let last_page = get(move |uri: Uri, headers: HeaderMap| {
        let gateway = Arc::clone(&for_redirect);
        async move { end(&gateway, &uri, &headers).await }
    });
    Router::new().route(LOGIN_PATH, first_page).route(CALLBACK_PATH, last_page)
}

/// Shows who asks for which login, and the form for the credential of this principal.
fn begin(state: &ServerState, gateway: &HttpGateway, request: &Request) -> Response {
    match login_of(gateway, request) {
        Some(login) => form_page(&login, state.settings.auth, StatusCode::OK, ""),
        None => unknown_login(),
    }
}

/// Checks the credential, binds the login to this browser, and shows the link to the authorization server.
async fn confirm(state: &ServerState, gateway: &HttpGateway, request: Request) -> Response {
    let Some(login) = login_of(gateway, &request) else { return unknown_login() };
    let address = request.extensions().get::<ClientAddress>().copied();
    let Some(key) = submitted_key(request.into_body(), state.settings.body_timeout).await else {
        return form_page(&login, state.settings.auth, StatusCode::BAD_REQUEST, "The form is not complete.");
    };
    let principal = match identified(state, &key).await {
        Ok(principal) => principal,
        Err(error) => return refused(&login, state, auth::limited(state, address, error)),
    };
    let mut response = if principal == login.principal {
        link_page(&login)
    } else {
        let text = "This login belongs to another user of this server. Do not continue.";
        page(StatusCode::FORBIDDEN, "Login", &paragraph(text))
    };
    response.extensions_mut().insert(RequestPrincipal(principal));
    response
}

/// Receives the redirect of the authorization server.
async fn end(gateway: &HttpGateway, uri: &Uri, headers: &HeaderMap) -> Response {
    let redirect = Url::parse("http://localhost").and_then(|base| {
        let target = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
        base.join(target.unwrap_or_default())
    });
    let Some(redirect) = redirect.ok().filter(haft_tools::mcp::is_login_redirect) else {
        return unknown_login();
    };
    let state = haft_tools::mcp::login_state(&redirect).unwrap_or_default();
    let Some(login) = gateway.pool.logins.find_by_state(&state) else { return unknown_login() };
    let secret = cookie(headers, &login.cookie_name());
    match login.redirected(secret.as_deref(), redirect) {
        Ok(()) => ended_page(&login, login.ended_within(END_WAIT).await),
        Err(RedirectRefusal::Used) => unknown_login(),
        Err(RedirectRefusal::OtherBrowser) => {
            let text =
                "This login was begun in another browser. Open the link of your MCP client in this browser.";
            page(StatusCode::FORBIDDEN, "Login", &paragraph(text))
        }
    }
}

fn login_of(gateway: &HttpGateway, request: &Request) -> Option<Arc<PendingLogin>> {
    let query = request.uri().query().unwrap_or_default();
    let id = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "id")?.1;
    gateway.pool.logins.find(&id)
}

/// Returns the key in a form; empty on a server without keys, whose form has no field.
async fn submitted_key(body: Body, wait: Duration) -> Option<String> {
    let bytes = timeout(wait, to_bytes(body, FORM_BYTES_MAX)).await.ok()?.ok()?;
    let key = form_urlencoded::parse(&bytes).find(|(name, _)| name == "key").map(|(_, value)| value);
    Some(key.unwrap_or_default().trim().to_owned())
}

/// Returns the principal of a credential, which may be an API key or an access token for the MCP endpoint.
async fn identified(state: &ServerState, credential: &str) -> Result<Principal, ApiError> {
    match state.settings.auth {
        AuthMode::NoAuth => Ok(Principal::local()),
        AuthMode::Keys => {
            let caller = auth::caller_with(state, credential, ProtectedResource::Mcp).await?;
            caller.require(KeyScope::Api)?;
            Ok(caller.principal)
        }
    }
}

fn form_page(login: &PendingLogin, auth: AuthMode, status: StatusCode, problem: &str) -> Response {
    let field = match auth {
        AuthMode::NoAuth => "",
        AuthMode::Keys => {
            "<p><label>API key of this user, or access token for this server:<br>\
             <input type=\"password\" name=\"key\" autocomplete=\"off\" required></label></p>"
        }
    };
    let problem = if problem.is_empty() { String::new() } else { paragraph(problem) };
    let body = format!(
        "<p>An MCP client of the user <b>{}</b> wants to use the MCP server <b>{}</b> at <b>{}</b>, which requires a \
         login.</p><p>Continue only if you are this user and your client showed you this page. The client then acts at \
         the server with the account that you log in with.</p>{problem}\
         <form method=\"post\" action=\"{LOGIN_PATH}?id={}\">{field}<p><button>Continue</button></p></form>",
        escaped(&login.principal.to_string()),
        escaped(&login.server),
        escaped(&login.host),
        escaped(&login.id),
    );
    let mut response = page(status, "Login", &body);
    // With `no-referrer`, browsers would send `Origin: null` with the form, and the check of the origin would refuse it.
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn refused(login: &PendingLogin, state: &ServerState, error: ApiError) -> Response {
    let status = error.kind.row().0;
    let text = match error.kind {
        ApiErrorKind::TooManyRequests => "Too many wrong keys came from your address. Try again in a minute.",
        ApiErrorKind::Unauthorized => "This is not a valid key for this server.",
        _ => "This key cannot be used here, or cannot be checked now.",
    };
    let mut response = form_page(login, state.settings.auth, status, text);
    if let Some(seconds) = error.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(RefusalReason { code: error.code, message: error.message });
    response
}

/// Shows the link as a page and not as a redirect, because the content policy of the form would block a redirect.
fn link_page(login: &PendingLogin) -> Response {
    let Some((secret, url)) = login.bind_browser() else { return unknown_login() };
    let body = format!(
        "<p>Log in for the MCP server <b>{}</b> as <b>{}</b>:</p>\
         <p><a href=\"{}\" rel=\"noreferrer\">Continue at {}</a></p>",
        escaped(&login.server),
        escaped(&login.principal.to_string()),
        escaped(url.as_str()),
        escaped(url.host_str().unwrap_or_default()),
    );
    let secure = if login.is_secure() { "; Secure" } else { "" };
    let cookie = format!(
        "{}={secret}; Path={CALLBACK_PATH}; Max-Age={}; HttpOnly; SameSite=Lax{secure}",
        login.cookie_name(),
        LOGIN_WAIT.as_secs()
    );
    let mut response = page(StatusCode::OK, "Login", &body);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn ended_page(login: &PendingLogin, phase: LoginPhase) -> Response {
    let server = &login.server;
    let (status, text) = match phase {
        LoginPhase::Finished => {
            (StatusCode::OK, format!("You are logged in at `{server}`. You can close this page."))
        }
        LoginPhase::Failed(reason) => {
            (StatusCode::BAD_GATEWAY, format!("The login at `{server}` failed: {reason}."))
        }
        LoginPhase::Preparing | LoginPhase::Waiting(_) => (
            StatusCode::ACCEPTED,
            format!("The login at `{server}` is not finished yet. You can close this page."),
        ),
    };
    page(status, "Login", &paragraph(&text))
}

/// Returns the error page for an unknown login. The page is the same whether the id or state never existed, was used,
/// or has expired, so it does not reveal which logins existed.
fn unknown_login() -> Response {
    let text =
        "This login does not exist, is over, or was used already. Repeat the request in your MCP client.";
    page(StatusCode::NOT_FOUND, "Login", &paragraph(text))
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>haft: {title}</title></head>\
         <body><h1>{title}</h1>{body}</body></html>"
    );
    let headers: [(HeaderName, &str); 7] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (status, headers, html).into_response()
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>", escaped(text))
}

/// Escapes a text for the content and for quoted attributes of HTML.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Returns the value of a cookie; `None` if there are several with this name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned());
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_and_users_are_escaped_in_login_pages() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }

    #[test]
    fn cookie_is_ignored_if_it_occurs_twice() {
        let check = |lines: &[&'static str], expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            assert_eq!(cookie(&headers, "a").as_deref(), expected, "{lines:?}");
        };
        check(&[], None);
        check(&["a=1"], Some("1"));
        check(&["b=2; a=1; ab=3"], Some("1"));
        check(&["a=1; a=2"], None);
        check(&["a=1", "a=1"], None);
    }
}
