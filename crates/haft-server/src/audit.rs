//! Writes the audit log: failed logins, refused scopes, decisions about approvals, changes to keys, responses and
//! configuration, and tool calls.

use std::sync::Arc;

use haft_core::event::{Event, EventSink, PolicyDecision};
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_core::result::ToolErrorKind;
use haft_core::tool_lock::QUARANTINE_RULE;
use haft_store::audit_log::{AuditEvent, AuditLine, AuditLogFile};
use http::{Method, StatusCode};

use crate::auth::now_ms;
use crate::metrics::Metrics;

/// The audit log of a server. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct AuditLog {
    file: Arc<AuditLogFile>,
    metrics: Metrics,
}

impl AuditLog {
    pub(crate) fn of(home: &Home, metrics: Metrics) -> Self {
        Self { file: Arc::new(AuditLogFile::of(home)), metrics }
    }

    /// Writes a line. After a failure, only counts the lost line: if the server refused requests instead, an attacker
    /// could stop the server by filling the disk.
    pub(crate) fn write(&self, line: AuditLine) {
        if self.file.append(line).is_err() {
            self.metrics.audit_log_error();
        }
    }

    /// Writes an event that no caller caused.
    pub(crate) fn note(&self, event: AuditEvent) {
        self.write(AuditLine::new(now_ms(), event));
    }

    /// Writes a decision that a caller made.
    pub(crate) fn decided(&self, principal: &Principal, event: AuditEvent, target: &str, detail: &str) {
        self.write(AuditLine {
            target: Some(target.to_owned()),
            detail: Some(detail.to_owned()),
            ..line_of(principal, event)
        });
    }
}

fn line_of(principal: &Principal, event: AuditEvent) -> AuditLine {
    let key = Some(principal.credential_id().to_owned()).filter(|key| !key.is_empty());
    AuditLine { principal: Some(principal.to_string()), key, ..AuditLine::new(now_ms(), event) }
}

/// Writes an audit line for each tool call of all runs. The usage records contain the sizes and times of the calls.
impl EventSink for AuditLog {
    fn emit(&self, event: Event) {
        if let Event::ToolFinished { tool, failure, account, .. } = event {
            self.write(AuditLine {
                target: Some(tool.name().to_owned()),
                detail: failure.map(|failure| failure.name().to_owned()),
                ..line_of(&account.principal, of_call(failure, account.verdict.as_ref()))
            });
        }
    }
}

/// Returns the audit event of a call that ended.
fn of_call(failure: Option<ToolErrorKind>, verdict: Option<&PolicyDecision>) -> AuditEvent {
    let is_quarantined =
        verdict.and_then(|verdict| verdict.rule.as_deref()).is_some_and(|rule| rule == QUARANTINE_RULE);
    match failure {
        None => AuditEvent::ToolExecuted,
        // A call that waits for approval has not failed: the run makes or denies the call after the answer.
        Some(ToolErrorKind::ApprovalPending) => AuditEvent::ApprovalRequested,
        Some(ToolErrorKind::Denied) if is_quarantined => AuditEvent::ToolQuarantined,
        Some(_) => AuditEvent::ToolFailed,
    }
}

/// The routes that cancel a run.
const CANCEL_ROUTES: [&str; 2] = ["/v1/responses/{id}/cancel", "/api/v1/runs/{id}/cancel"];

/// Returns the audit event of a reply, by its status and error code; `None` if the reply is not audited.
pub(crate) fn of_reply(
    method: &Method,
    route: &str,
    status: StatusCode,
    code: Option<&str>,
) -> Option<AuditEvent> {
    match (method, status) {
        (_, StatusCode::UNAUTHORIZED) => Some(AuditEvent::LoginFailed),
        (_, StatusCode::FORBIDDEN) if code == Some("insufficient_scope") => Some(AuditEvent::ScopeDenied),
        (&Method::DELETE, status) if status.is_success() && route.starts_with("/v1/") => {
            Some(AuditEvent::ResourceDeleted)
        }
        (&Method::POST, status) if status.is_success() && CANCEL_ROUTES.contains(&route) => {
            Some(AuditEvent::BackgroundCancelled)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use haft_core::rules::PermissionDecision;

    use super::*;

    #[test]
    fn refused_call_of_a_quarantined_tool_has_its_own_audit_event() {
        let check = |failure: Option<ToolErrorKind>, rule: Option<&str>, expected: AuditEvent| {
            let verdict = PolicyDecision {
                decision: PermissionDecision::Deny,
                rule: rule.map(Into::into),
                consent: None,
            };
            assert_eq!(of_call(failure, Some(&verdict)), expected, "{failure:?} {rule:?}");
        };
        check(Some(ToolErrorKind::Denied), Some(QUARANTINE_RULE), AuditEvent::ToolQuarantined);
        check(Some(ToolErrorKind::Denied), Some("bash(rm *): deny"), AuditEvent::ToolFailed);
        check(Some(ToolErrorKind::Denied), None, AuditEvent::ToolFailed);
        check(Some(ToolErrorKind::ApprovalPending), None, AuditEvent::ApprovalRequested);
        check(None, None, AuditEvent::ToolExecuted);
        assert_eq!(of_call(Some(ToolErrorKind::UnknownTool), None), AuditEvent::ToolFailed);
    }

    #[test]
    fn method_route_and_status_of_a_reply_determine_its_audit_event() {
        let check = |method: Method, route: &str, status: u16, code: Option<&str>, expected| {
            let found = of_reply(&method, route, StatusCode::from_u16(status).unwrap(), code);
            assert_eq!(found, expected, "{method} {route} {status}");
        };
        check(Method::GET, "/v1/models", 401, Some("invalid_api_key"), Some(AuditEvent::LoginFailed));
        check(Method::GET, "/metrics", 403, Some("insufficient_scope"), Some(AuditEvent::ScopeDenied));
        check(Method::GET, "/v1/models", 403, None, None);
        check(Method::GET, "/v1/models", 429, None, None);
        check(Method::DELETE, "/v1/responses/{id}", 200, None, Some(AuditEvent::ResourceDeleted));
        check(Method::DELETE, "/v1/responses/{id}", 404, None, None);
        check(Method::DELETE, "/mcp", 204, None, None);
        check(Method::POST, "/v1/responses/{id}/cancel", 200, None, Some(AuditEvent::BackgroundCancelled));
        check(Method::POST, "/api/v1/runs/{id}/cancel", 200, None, Some(AuditEvent::BackgroundCancelled));
    }
}
