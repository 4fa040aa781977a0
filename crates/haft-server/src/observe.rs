//! Middleware that writes one access-log line and updates the metrics for every request.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use haft_core::principal::Principal;
use haft_store::access_log::AccessLine;
use haft_store::audit_log::{AuditEvent, AuditLine};
use http::Method;

use crate::audit;
use crate::auth::now_ms;
use crate::error::RefusalReason;
use crate::failed_logins::ClientAddress;
use crate::forwarded::client_address;
use crate::request_id;
use crate::server::ServerState;

/// The maximum length of the path in a line, in characters. A client can send a path of any length.
const PATH_CHARS_MAX: usize = 200;

/// The principal of a request, which the key check attaches to the reply for the access log.
#[derive(Debug, Clone)]
pub(crate) struct RequestPrincipal(pub(crate) Principal);

/// The status that the access log and the metrics show for a request whose client disconnected before the reply. nginx
/// uses the same number; no client receives it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A slot in the request that the key check fills with the principal. The access log needs the slot if the client
/// disconnects before the reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrincipalSlot(Arc<OnceLock<Principal>>);

impl PrincipalSlot {
    pub(crate) fn fill(&self, principal: &Principal) {
        self.0.get_or_init(|| principal.clone());
    }
}

/// Writes the access-log line when the head of the reply is known, or when the client disconnects earlier. Omits the
/// query, which may contain secrets that a client sent by mistake.
pub(crate) async fn observe<F: Future<Output = Response>>(
    state: &Arc<ServerState>,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let began = Instant::now();
    let path = request.uri().path();
    let route = route_of(path);
    let path: String = path.chars().take(PATH_CHARS_MAX).collect();
    let method = request.method().clone();
    let address = name_client(state, &mut request).map(|address| address.to_string());
    let principal = PrincipalSlot::default();
    request.extensions_mut().insert(principal.clone());
    let mut unanswered = UnansweredRequest {
        state: Arc::clone(state),
        seen: Some(SeenRequest { began, route, method, path, address, principal }),
    };
    let response = next(request).await;
    if let Some(seen) = unanswered.seen.take() {
        seen.answered(state, &response);
    }
    response
}

/// A request that has no reply yet. Dropping it means that the client has disconnected.
struct UnansweredRequest {
    state: Arc<ServerState>,
    /// The data for the access-log line; `None` after the reply, so that a drop then writes no second line.
    seen: Option<SeenRequest>,
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        if let Some(seen) = self.seen.take() {
            let principal = seen.principal.0.get().cloned();
            let line = seen.line(CLIENT_CLOSED_REQUEST, String::new(), principal.as_ref());
            write(&self.state, &seen, &line);
        }
    }
}

/// The parts of a request that its log line contains.
struct SeenRequest {
    began: Instant,
    route: &'static str,
    method: Method,
    path: String,
    address: Option<String>,
    principal: PrincipalSlot,
}

impl SeenRequest {
    fn answered(self, state: &ServerState, response: &Response) {
        let principal = response.extensions().get::<RequestPrincipal>().map(|found| &found.0);
        let line = self.line(response.status().as_u16(), request_id::of(response).to_owned(), principal);
        let reason = response.extensions().get::<RefusalReason>();
        let code = reason.and_then(|reason| reason.code);
        if let Some(event) = audit::of_reply(&self.method, self.route, response.status(), code) {
            state.audit.write(audit_line(event, &line, reason));
        }
        write(state, &self, &line);
    }

    fn line(&self, status: u16, request: String, principal: Option<&Principal>) -> AccessLine {
        AccessLine {
            at_ms: now_ms(),
            request,
            address: self.address.clone(),
            method: self.method.to_string(),
            path: self.path.clone(),
            status,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            principal: principal.map(ToString::to_string),
            key: principal.map(|principal| principal.credential_id().to_owned()),
        }
    }
}

fn write(state: &ServerState, seen: &SeenRequest, line: &AccessLine) {
    state.metrics.request(seen.route, line.status, seen.began.elapsed());
    if state.access_log.append(line).is_err() {
        state.metrics.access_log_error();
    }
}

/// Finds the address of the client behind trusted proxies, and stores it for the checks that follow.
fn name_client(state: &ServerState, request: &mut Request) -> Option<IpAddr> {
    let ClientAddress(peer) = *request.extensions().get()?;
    let address = client_address(peer, request.headers(), &state.runtime.config().serve.trusted_proxies);
    request.extensions_mut().insert(ClientAddress(address));
    Some(address)
}

/// Returns the audit line of a request, with the caller and the path from its access-log line.
fn audit_line(event: AuditEvent, line: &AccessLine, reason: Option<&RefusalReason>) -> AuditLine {
    AuditLine {
        principal: line.principal.clone(),
        key: line.key.clone(),
        address: line.address.clone(),
        request: Some(line.request.clone()),
        target: Some(line.path.clone()),
        detail: reason.map(|reason| reason.message.clone()),
        ..AuditLine::new(line.at_ms, event)
    }
}

/// Returns the route of a path with placeholders for ids, so that the number of routes is bounded.
fn route_of(path: &str) -> &'static str {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["v1", "responses"] => "/v1/responses",
        ["v1", "responses", "input_tokens"] => "/v1/responses/input_tokens",
        ["v1", "responses", "compact"] => "/v1/responses/compact",
        ["v1", "responses", _] => "/v1/responses/{id}",
        ["v1", "responses", _, "cancel"] => "/v1/responses/{id}/cancel",
        ["v1", "responses", _, "input_items"] => "/v1/responses/{id}/input_items",
        ["v1", "models", ..] => "/v1/models",
        ["v1", "conversations", ..] => "/v1/conversations",
        ["api", "v1", "runs"] => "/api/v1/runs",
        ["api", "v1", "runs", _] => "/api/v1/runs/{id}",
        ["api", "v1", "runs", _, "cancel"] => "/api/v1/runs/{id}/cancel",
        ["api", "v1", "runs", _, "events"] => "/api/v1/runs/{id}/events",
        ["api", "v1", "runs", _, "outputs", _] => "/api/v1/runs/{id}/outputs/{handle}",
        ["api", "v1", "approvals", ..] => "/api/v1/approvals",
        ["api", "v1", "sessions", ..] => "/api/v1/sessions",
        ["api", "v1", "tools", ..] => "/api/v1/tools",
        ["api", "v1", "groups", ..] => "/api/v1/groups",
        ["api", "v1", "skills", ..] => "/api/v1/skills",
        ["api", ..] => "/api/v1",
        ["mcp", ..] => "/mcp",
        ["healthz"] => "/healthz",
        ["readyz"] => "/readyz",
        ["metrics"] => "/metrics",
        [".well-known", ..] => "/.well-known",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_in_metrics_contain_no_ids() {
        let check = |path: &str, expected: &str| assert_eq!(route_of(path), expected, "{path}");
        check("/v1/responses", "/v1/responses");
        check("/v1/responses/", "/v1/responses");
        check("/v1/responses/resp_1", "/v1/responses/{id}");
        check("/v1/responses/resp_1/cancel", "/v1/responses/{id}/cancel");
        check("/v1/conversations/c/items/i", "/v1/conversations");
        check("/v1/models/a/b", "/v1/models");
        check("/api/v1/runs/1/outputs/2", "/api/v1/runs/{id}/outputs/{handle}");
        check("/api/v1/none/1", "/api/v1");
        check("/", "other");
        check("/v1/responses/a/b/c", "other");
    }
}
