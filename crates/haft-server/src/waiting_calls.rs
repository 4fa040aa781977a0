//! The calls of MCP clients that wait for a decision through the approvals API.
//!
//! Such a call belongs to a client that waits for its reply, so it is only in memory: it ends with its client or with
//! the process. The approval requests of responses are in [`pending_approvals`](crate::pending_approvals).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use haft_core::principal::Principal;
use haft_store::audit_log::AuditEvent;
use haft_store::pending_approvals::expires_ms;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::sleep;
use uuid::Uuid;

use crate::auth::now_ms;
use crate::mcp::{CallingClient, OperatorApprovers};
use crate::pending_approvals::PendingApprovalStats;
use crate::server::ServerState;

/// The longest time between two checks whether an approval request has expired. The server checks repeatedly, because a
/// reload of the configuration may shorten the lifetime of a request that already waits.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The prefix of the ids of approval requests about calls of MCP clients.
const ID_PREFIX: &str = "mcpc";

/// The `server_label` of approval requests about calls of MCP clients. These clients see the gateway as one server.
pub(crate) const CALL_SERVER_LABEL: &str = "haft";

const EXPIRED: &str = "its approval request had no answer within `serve.approvalTimeout`";
const STOPPING: &str = "the server stopped before the call was approved";

/// A call that waits, as the approvals API and the webhook show it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnapprovedCall {
    pub(crate) id: String,
    /// The principal of the client.
    pub(crate) principal: Principal,
    /// The name that the client gave itself; not verified.
    pub(crate) client: Option<String>,
    /// The name of the tool, as clients see it.
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    /// The reason why the call needs approval.
    pub(crate) reason: String,
    /// The time of the request, in milliseconds since 1970.
    pub(crate) since_ms: u64,
}

/// A waiting call, and the sender of its decision.
type UndecidedCall = (UnapprovedCall, oneshot::Sender<ApprovalAnswer>);

/// All calls that wait, by the ids of their requests.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls(Mutex<BTreeMap<String, UndecidedCall>>);

impl WaitingCalls {
    /// Returns the calls of a principal.
    pub(crate) fn of_principal(&self, principal: &Principal) -> Vec<UnapprovedCall> {
        let open = self.open();
        let own = open.values().filter(|(call, _)| call.principal.is_subject_of(principal));
        own.map(|(call, _)| call.clone()).collect()
    }

    /// Returns true if a call of this principal waits under this id.
    pub(crate) fn contains(&self, principal: &Principal, id: &str) -> bool {
        self.open().get(id).is_some_and(|(call, _)| call.principal.is_subject_of(principal))
    }

    /// Delivers a decision. Returns false if the call does not wait any more.
    pub(crate) fn decide(&self, id: &str, answer: ApprovalAnswer) -> bool {
        let open = self.open().remove(id);
        open.is_some_and(|(_, decided)| decided.send(answer).is_ok())
    }

    pub(crate) fn stats(&self, now_ms: u64) -> PendingApprovalStats {
        let open = self.open();
        let oldest = open.values().map(|(call, _)| call.since_ms).min().unwrap_or(now_ms);
        let oldest_age = Duration::from_millis(now_ms.saturating_sub(oldest));
        PendingApprovalStats { requests: open.len(), oldest_age }
    }

    fn add(&self, call: UnapprovedCall) -> oneshot::Receiver<ApprovalAnswer> {
        let (decided, decision) = oneshot::channel();
        self.open().insert(call.id.clone(), (call, decided));
        decision
    }

    /// Removes a call that ends without a decision. Returns false if a decision came first.
    fn withdraw(&self, id: &str) -> bool {
        self.open().remove(id).is_some()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, UndecidedCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the approvers of a server with the approvals API.
pub(crate) fn approvers(state: &Arc<ServerState>) -> OperatorApprovers {
    let state = Arc::clone(state);
    Arc::new(move |client: &CallingClient| {
        Arc::new(ApiApprover { state: Arc::clone(&state), client: client.clone() }) as Arc<dyn Approver>
    })
}

/// Lists the calls of one client in the approvals API, and waits for the decisions.
struct ApiApprover {
    state: Arc<ServerState>,
    client: CallingClient,
}

impl Approver for ApiApprover {
    fn name(&self) -> &'static str {
        "api"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(self.wait(request))
    }
}

impl ApiApprover {
    async fn wait(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let state = &*self.state;
        let call = self.waiting_call(request);
        let mut decision = state.waiting_calls.add(call.clone());
        let guard = WaitingGuard { state, call: &call };
        // Notify the operator's program last, so that the program finds the request that the event names.
        state.webhook.announce_call(&self.state, &state.runtime.config().serve, &call);
        let (end, reason) = tokio::select! {
            biased;
            decided = &mut decision => return decided.unwrap_or(ApprovalAnswer::Deny),
            () = expired(state, call.since_ms) => (UndecidedEnd::Expired, EXPIRED),
            () = state.stopped() => (UndecidedEnd::Cancelled, STOPPING),
        };
        if guard.withdraw(end) {
            return ApprovalAnswer::Unanswered(reason);
        }
        // Another task has removed the request to deliver a decision. Use this decision, because the API has already
        // confirmed it to the operator.
        decision.await.unwrap_or(ApprovalAnswer::Deny)
    }

    fn waiting_call(&self, request: &ApprovalRequest) -> UnapprovedCall {
        UnapprovedCall {
            id: format!("{ID_PREFIX}_{}", Uuid::new_v4().simple()),
            principal: self.client.principal.clone(),
            client: self.client.name.clone(),
            tool: request.tool.clone(),
            arguments: request.arguments.clone(),
            reason: request.why.clone(),
            since_ms: now_ms(),
        }
    }
}

/// Waits until a request expires. Reads the time limit again from time to time, because a reload may change it.
async fn expired(state: &ServerState, since_ms: u64) {
    loop {
        let expires_ms = expires_ms(since_ms, state.runtime.config().serve.approval_timeout);
        let left = Duration::from_millis(expires_ms.saturating_sub(now_ms()));
        if left.is_zero() {
            return;
        }
        sleep(left.min(CHECK_INTERVAL)).await;
    }
}

/// The end of a request without a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UndecidedEnd {
    Expired,
    /// The client cancelled the call or disconnected, or the server stops.
    Cancelled,
}

impl UndecidedEnd {
    /// Returns the word for the audit log.
    fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A guard that removes the request of a call when the client cancels the call or disconnects.
struct WaitingGuard<'a> {
    state: &'a ServerState,
    call: &'a UnapprovedCall,
}

impl WaitingGuard<'_> {
    /// Removes the request, and notes its end in the audit log. Returns false if a decision came first.
    fn withdraw(&self, end: UndecidedEnd) -> bool {
        let UnapprovedCall { id, principal, .. } = self.call;
        let is_withdrawn = self.state.waiting_calls.withdraw(id);
        if is_withdrawn {
            self.state.audit.decided(principal, AuditEvent::ApprovalDecided, id, end.name());
            match end {
                UndecidedEnd::Expired => self.state.metrics.approvals_expired(1),
                UndecidedEnd::Cancelled => {}
            }
        }
        is_withdrawn
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.withdraw(UndecidedEnd::Cancelled);
    }
}
