//! Routes of the native API that list approval requests and decide about them.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use haft_core::approval::ApprovalAnswer;
use haft_store::api_keys::KeyScope;
use haft_store::audit_log::AuditEvent;
use haft_store::pending_approvals::expires_ms;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::auth::Caller;
use crate::body::DecisionObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::{self, invalid};
use crate::server::ServerState;
use crate::waiting_calls::{CALL_SERVER_LABEL, UnapprovedCall};

/// An approval request that waits for an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ApprovalObject {
    id: String,
    /// The response that ended with the request; null for a call of an MCP client
    response: Option<String>,
    /// The run that waits; null for a call of an MCP client
    run: Option<String>,
    /// The name that the MCP client gave itself; null for a response
    client: Option<String>,
    /// The reason why the call of an MCP client needs approval; null for a response
    reason: Option<String>,
    /// `haft` for a call of an MCP client
    server_label: String,
    /// The name of the tool
    name: String,
    /// The arguments of the call
    arguments: Value,
    /// True if only a key with the scope `approvals` may decide
    needs_scope: bool,
    /// The time of the request, in milliseconds since 1970
    since_ms: u64,
    /// The time at which haft denies the call, in milliseconds since 1970
    expires_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ApprovalList {
    data: Vec<ApprovalObject>,
}

impl ApprovalObject {
    fn of_call(call: UnapprovedCall, lifetime: Duration) -> Self {
        Self {
            id: call.id,
            response: None,
            run: None,
            client: call.client,
            reason: Some(call.reason),
            server_label: CALL_SERVER_LABEL.to_owned(),
            name: call.tool,
            arguments: Value::Object(call.arguments),
            // Calls of MCP clients need approval only because of the operator's rules, so only a key with the scope may
            // decide.
            needs_scope: true,
            since_ms: call.since_ms,
            expires_ms: expires_ms(call.since_ms, lifetime),
        }
    }
}

/// The reply to a decision about the call of an MCP client. The result of the call goes to the MCP client, not into
/// this reply.
#[derive(Debug, Serialize)]
struct DecidedCall {
    id: String,
    approve: bool,
}

/// The body of a decision.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the body is read field by field")]
pub(crate) struct ApprovalDecisionBody {
    approve: bool,
    /// Needed only if the response used MCP servers by `server_url`: their entries of `tools` again, because the server
    /// does not store URLs and headers
    tools: Option<Vec<Value>>,
}

/// `GET /api/v1/approvals`: lists the approval requests of the caller.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
) -> Result<Json<ApprovalList>, ApiError> {
    let lifetime = state.runtime.config().serve.approval_timeout;
    let mut data = Vec::new();
    for record in state.pending_approvals.of_principal(&caller.principal) {
        // A response that cannot be read must not hide the other requests.
        let stored = responses::find(&state, &caller, &record.response).await.ok().flatten();
        let waiting = stored.map(|stored| stored.approvals).unwrap_or_default();
        let expires_ms = record.expires_ms(lifetime);
        for request in record.requests {
            let of_call = waiting.iter().find(|waiting| waiting.item == request.id);
            data.push(ApprovalObject {
                id: request.id,
                response: Some(record.response.clone()),
                run: Some(record.run.clone()),
                client: None,
                reason: None,
                server_label: request.server_label,
                name: request.name,
                arguments: of_call.map_or(Value::Null, |waiting| waiting.arguments.clone()),
                needs_scope: request.needs_scope,
                since_ms: record.since_ms,
                expires_ms,
            });
        }
    }
    let calls = state.waiting_calls.of_principal(&caller.principal).into_iter();
    data.extend(calls.map(|call| ApprovalObject::of_call(call, lifetime)));
    // The sort is stable, so the requests of one response keep their order.
    data.sort_by_key(|request| request.since_ms);
    Ok(Json(ApprovalList { data }))
}

/// `POST /api/v1/approvals/{id}`. If the approval request belongs to a response, the server handles the decision like an
/// approval answer that a client sends to `/v1/responses`. If it belongs to a call of an MCP client, the waiting call gets
/// the decision.
pub(super) async fn decide(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    DecisionObject(mut body): DecisionObject,
) -> Result<Response, ApiError> {
    let Some(approve) = body.get("approve").and_then(Value::as_bool) else {
        return Err(invalid("approve", "`approve` must be true or false"));
    };
    if state.waiting_calls.contains(&caller.principal, &id) {
        return decide_call(&state, &caller, id, approve).map(IntoResponse::into_response);
    }
    let missing = || not_found(&id);
    let mut records = state.pending_approvals.of_principal(&caller.principal).into_iter();
    let found = records.find(|record| record.requests.iter().any(|request| request.id == id));
    let response = found.ok_or_else(missing)?.response;
    let stored = responses::find(&state, &caller, &response).await?.ok_or_else(missing)?;
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
    let fields = [
        ("model", stored.response["model"].clone()),
        ("previous_response_id", response.into()),
        ("input", json!([answer])),
        ("background", true.into()),
        ("tools", body.remove("tools").unwrap_or_default()),
    ];
    let body = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    responses::create_in_background(&state, &caller, &headers, body).await
}

/// Decides about the call of an MCP client. Always requires the scope, because the key of the caller may be the key
/// that made the call.
fn decide_call(
    state: &ServerState,
    caller: &Caller,
    id: String,
    approve: bool,
) -> Result<Json<DecidedCall>, ApiError> {
    caller.require(KeyScope::Approvals)?;
    let (answer, word) =
        if approve { (ApprovalAnswer::AllowOnce, "approved") } else { (ApprovalAnswer::Deny, "denied") };
    // The client may have cancelled the call in the meantime.
    if !state.waiting_calls.decide(&id, answer) {
        return Err(not_found(&id));
    }
    state.audit.decided(&caller.principal, AuditEvent::ApprovalDecided, &id, word);
    Ok(Json(DecidedCall { id, approve }))
}

fn not_found(id: &str) -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, format!("there is no approval request `{id}`"))
}
