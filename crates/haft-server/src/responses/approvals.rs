//! Approvals over HTTP: a response that ends with `mcp_approval_request` items, and the request that answers them.
//!
//! The run of such a response is suspended, and its journal is kept. The answers resume the run, which makes the call
//! in the journal. A client therefore cannot change the arguments of an approved call.

use std::collections::HashMap;
use std::sync::Arc;

use haft_core::approval::ApprovalId;
use haft_core::position::SessionId;
use haft_core::run::caller_approvals::ApproverAuthority;
use haft_runtime::runs::ResumeError;
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::{AnswerSource, ApprovalDecision, EventSeq, PendingApproval, RunHandle, RunHooks};
use haft_store::api_keys::KeyScope;
use haft_store::audit_log::AuditEvent;
use haft_store::responses::{ResponseRecord, WaitingApproval};
use haft_store::sessions::SessionError;
use serde_json::Value;
use uuid::Uuid;

use super::field::invalid;
use super::items::InputItem;
use super::request::CreateRequest;
use super::requested_servers;
use super::spec;
use super::stored;
use super::workspace::{self, ResponseWorkspace};
use crate::auth::{Caller, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::pending_approvals::is_expired;
use crate::server::ServerState;

/// The prefix of the ids of approval requests.
pub(crate) const ITEM_PREFIX: &str = "mcpr";

/// The client's answers, by the ids of the approvals in the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApprovalAnswers {
    given: HashMap<ApprovalId, ClientDecision>,
    /// The approvals that the client was asked about and has not answered yet.
    open: HashMap<ApprovalId, WaitingApproval>,
}

#[derive(Debug, Clone)]
struct ClientDecision {
    item: String,
    arguments: Value,
    decision: ApprovalDecision,
}

impl ApprovalAnswers {
    /// Returns the decision about a waiting call; `None` if the client was not asked about it. Denies a call whose
    /// arguments differ from the arguments that the client saw.
    pub(crate) fn decision(&self, pending: &PendingApproval) -> Option<ApprovalDecision> {
        let answer = self.given.get(&pending.id)?;
        Some(if answer.arguments == pending.arguments { answer.decision } else { ApprovalDecision::Deny })
    }

    /// Returns the answers in the form of the store, for a run that waits for further answers.
    pub(crate) fn stored(&self) -> Vec<WaitingApproval> {
        let stored = |(id, answer): (&ApprovalId, &ClientDecision)| WaitingApproval {
            item: answer.item.clone(),
            approval: id.to_string(),
            arguments: answer.arguments.clone(),
            needs_scope: false,
            expired: false,
            approved: Some(answer.decision == ApprovalDecision::Allow),
        };
        self.given.iter().map(stored).collect()
    }

    /// Returns all requests in the form of the store, for a run that has not used the answers yet.
    pub(crate) fn unused(&self) -> Vec<WaitingApproval> {
        self.stored().into_iter().chain(self.open.values().cloned()).collect()
    }

    /// Returns the answers of a response that another process began; `None` if it does not answer any requests.
    pub(crate) fn of_unfinished(record: &ResponseRecord, caller: &Caller) -> Option<Self> {
        matched(record, &[], caller).ok().filter(|answers| !answers.given.is_empty())
    }

    /// Returns true if the client has not answered all requests yet.
    pub(crate) fn is_partial(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns true if the client may still answer about a waiting call.
    pub(crate) fn is_open(&self, pending: &PendingApproval) -> bool {
        self.open.contains_key(&pending.id)
    }

    /// Returns the items of the approval requests by their approval ids, so that the items of the calls can name them.
    pub(crate) fn items(&self) -> HashMap<ApprovalId, String> {
        self.given.iter().map(|(id, answer)| (*id, answer.item.clone())).collect()
    }
}

/// A suspended run that continues, with the client's answers.
pub(crate) struct ContinuedRun {
    pub(crate) handle: RunHandle,
    pub(crate) answers: ApprovalAnswers,
    /// The number of the first event that belongs to the new response.
    pub(crate) first_event: EventSeq,
    pub(crate) workspace: Option<ResponseWorkspace>,
    /// The conversation that the response before belongs to.
    pub(crate) conversation: Option<String>,
}

/// Returns the hooks of a run for this caller.
pub(crate) fn hooks(caller: &Caller, has_journal: bool) -> RunHooks {
    let has_scope = caller.require(KeyScope::Approvals).is_ok();
    RunHooks {
        // Without a journal, the client cannot continue the run later.
        approvals: if has_journal { AnswerSource::ThroughHandle } else { AnswerSource::Denied },
        authority: if has_scope { ApproverAuthority::AllCalls } else { ApproverAuthority::CallersOwn },
        elicitations: AnswerSource::Denied,
        keeps_session: has_journal,
        ..RunHooks::default()
    }
}

/// Returns the answers in a request: the id of each approval request, with the decision. The request must contain no
/// other new items, because the run continues exactly where it stopped.
pub(crate) fn answers(request: &CreateRequest) -> Result<Vec<(usize, &str, ApprovalDecision)>, ApiError> {
    let mut found: Vec<(usize, &str, ApprovalDecision)> = Vec::new();
    for (at, item) in request.input.iter().enumerate() {
        match item {
            InputItem::ApprovalResponse { request, approve } => {
                if found.iter().any(|(_, known, _)| known == request) {
                    let param = format!("input[{at}].approval_request_id");
                    return Err(invalid(
                        param,
                        format!("`input` has two `mcp_approval_response` items for `{request}`"),
                    ));
                }
                let decision = if *approve { ApprovalDecision::Allow } else { ApprovalDecision::Deny };
                found.push((at, request, decision));
            }
            _ if found.is_empty() => {}
            _ => {
                let message = "the `mcp_approval_response` items must be the last items of `input`";
                return Err(invalid(format!("input[{at}]"), message));
            }
        }
    }
    Ok(found)
}

/// Returns the id of the response that an approval request belongs to. The id of the request contains it.
pub(crate) fn response_of(item: &str) -> Option<String> {
    let rest = item.strip_prefix(ITEM_PREFIX)?.strip_prefix('_')?;
    let is_hex = rest.len() == 36 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| format!("resp_{}", &rest[..32]))
}

/// Resumes the run that waits for these answers.
pub(crate) async fn resume(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    given: &[(usize, &str, ApprovalDecision)],
) -> Result<ContinuedRun, ApiError> {
    let record = waiting_record(state, caller, request, given).await?;
    let answers = matched(&record, given, caller)?;
    let failed = |problem: String| ApiError::new(ApiErrorKind::ServerError, problem);
    let session = Uuid::parse_str(&record.run).map_err(|error| failed(error.to_string()))?;
    let session = SessionId(session.as_u128());
    let spec =
        state.runtime.stored_spec(&caller.principal, session).await.map_err(|error| refused(&error))?;
    let workspace = workspace::reopen(state, &caller.principal, record.workspace.as_deref()).await?;
    let (hooks, secrets) = (hooks(caller, true), requested_servers::resumed(&spec, &request.tools)?);
    let resumed = state.runtime.resume_with(session, spec, None, secrets, hooks).await;
    let handle = resumed.map_err(|error| refused(&error))?;
    // The next response repeats the requests that are still open.
    state.pending_approvals.remove(&record.id);
    for (_, item, decision) in given {
        let word = if *decision == ApprovalDecision::Allow { "approved" } else { "denied" };
        state.audit.decided(&caller.principal, AuditEvent::ApprovalDecided, item, word);
    }
    let first_event = handle.first_event();
    let conversation = record.response["conversation"]["id"].as_str().map(str::to_owned);
    Ok(ContinuedRun { handle, answers, first_event, workspace, conversation })
}

async fn waiting_record(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    given: &[(usize, &str, ApprovalDecision)],
) -> Result<ResponseRecord, ApiError> {
    let Some((at, item, _)) = given.first() else {
        return Err(invalid("input", "`input` has no item `mcp_approval_response`"));
    };
    let missing = || {
        let param = format!("input[{at}].approval_request_id");
        invalid(param, format!("there is no approval request `{item}`"))
            .with_code("approval_request_not_found")
    };
    let response = response_of(item).ok_or_else(missing)?;
    if request.previous_response_id.as_ref().is_some_and(|previous| *previous != response) {
        return Err(missing());
    }
    let record = stored::find(state, caller, &response).await?.ok_or_else(missing)?;
    let lifetime = state.runtime.config().serve.approval_timeout;
    if record.approvals.iter().any(|waiting| waiting.expired)
        || is_expired(record.created_ms, now_ms(), lifetime)
    {
        let seconds = lifetime.as_secs();
        let message = format!(
            "the approval request `{item}` does not wait any more: it was cancelled, or had no answer within \
             {seconds} seconds"
        );
        return Err(invalid("input", message).with_code("approval_request_expired"));
    }
    Ok(record)
}

/// Matches the waiting approvals with their answers, including answers in earlier requests. If there are two answers,
/// the first one is used.
fn matched(
    record: &ResponseRecord,
    given: &[(usize, &str, ApprovalDecision)],
    caller: &Caller,
) -> Result<ApprovalAnswers, ApiError> {
    let unknown = given.iter().find(|(_, item, _)| record.approvals.iter().all(|one| one.item != *item));
    if let Some((at, item, _)) = unknown {
        let param = format!("input[{at}].approval_request_id");
        let message = format!("there is no approval request `{item}`");
        return Err(invalid(param, message).with_code("approval_request_not_found"));
    }
    let mut answers = ApprovalAnswers::default();
    for waiting in &record.approvals {
        let Some(id) = ApprovalId::parse(&waiting.approval) else { continue };
        let given = given.iter().find(|(_, item, _)| *item == waiting.item).map(|(.., decision)| *decision);
        if given.is_some() && waiting.needs_scope {
            caller.require(KeyScope::Approvals)?;
        }
        let of = |approved: bool| if approved { ApprovalDecision::Allow } else { ApprovalDecision::Deny };
        let Some(decision) = waiting.approved.map(of).or(given) else {
            answers.open.insert(id, waiting.clone());
            continue;
        };
        let (item, arguments) = (waiting.item.clone(), waiting.arguments.clone());
        answers.given.insert(id, ClientDecision { item, arguments, decision });
    }
    Ok(answers)
}

/// Returns the error for a request that continues a response without answering its approval requests.
pub(crate) fn unanswered(waiting: &WaitingApproval) -> ApiError {
    let message = format!(
        "the approval request `{}` has no answer; send an item `mcp_approval_response` for it",
        waiting.item
    );
    invalid("input", message).with_code("approval_response_missing")
}

fn refused(error: &ResumeFailure) -> ApiError {
    match error {
        ResumeFailure::Run(ResumeError::Finished { .. }) => {
            let message = "these approval requests have already been answered, and their run has ended";
            ApiError::new(ApiErrorKind::Conflict, message).with_code("approval_request_used").not_retryable()
        }
        ResumeFailure::Session(SessionError::Busy { .. }) => {
            let message = "these approval requests have already been answered, and their run is in progress";
            ApiError::new(ApiErrorKind::Conflict, message).with_code("approval_request_used").not_retryable()
        }
        ResumeFailure::Session(SessionError::NotFound { .. }) => {
            let message =
                "the server no longer stores the run of these approval requests; start a new response";
            invalid("input", message).with_code("approval_request_expired")
        }
        ResumeFailure::Start(error) => spec::not_started(error),
        error => ApiError::new(ApiErrorKind::ServerError, format!("the run cannot be continued: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn approval_counts_only_for_the_arguments_that_the_client_saw() {
        let id = ApprovalId::parse("0123456789abcdef0123456789abcdef").unwrap();
        let pending = |arguments: Value| PendingApproval {
            id,
            tool: "docs__add".into(),
            arguments,
            prefix: None,
            rules: Vec::new(),
            why: String::new(),
        };
        let (item, arguments) = ("mcpr_1".to_owned(), json!({"n": 1}));
        let given = ClientDecision { item, arguments, decision: ApprovalDecision::Allow };
        let answers = ApprovalAnswers { given: HashMap::from([(id, given)]), ..ApprovalAnswers::default() };
        assert_eq!(answers.decision(&pending(json!({"n": 1}))), Some(ApprovalDecision::Allow));
        assert_eq!(answers.decision(&pending(json!({"n": 2}))), Some(ApprovalDecision::Deny));
        assert_eq!(ApprovalAnswers::default().decision(&pending(json!({"n": 1}))), None);
    }

    #[test]
    fn an_approval_request_names_its_response() {
        let hex = "0123456789abcdef0123456789abcdef";
        assert_eq!(response_of(&format!("mcpr_{hex}0001")), Some(format!("resp_{hex}")));
        let long = format!("mcpr_{hex}00010");
        for wrong in ["", "mcpr_", "msg_1", "mcpr_../../x", &long, &format!("mcpr_{hex}000/")] {
            assert_eq!(response_of(wrong), None, "{wrong}");
        }
    }
}
