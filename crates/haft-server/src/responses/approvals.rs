//! Approvals over HTTP: a response that ends with `mcp_approval_request` items, and the request that answers them.
//!
//! The run of such a response is suspended, and its journal is kept: in the store, or, with `store: false`, in an
//! encrypted item that the client sends back. The answers resume the run, which makes the call in the journal. A client
//! therefore cannot change the arguments of an approved call.

use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver};
use haft_core::conversation::Role;
use haft_core::position::SessionId;
use haft_core::run::caller_approvals::ApproverAuthority;
use haft_runtime::runs::ResumeError;
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::{
    AnswerSource, ApprovalDecision, EventSeq, PendingApproval, RunHandle, RunHooks, SessionStorage,
    SuspendedRun,
};
use haft_store::api_keys::KeyScope;
use haft_store::audit_log::AuditEvent;
use haft_store::pending_approvals::expires_ms;
use haft_store::responses::{ResponseRecord, WaitingApproval};
use haft_store::sessions::SessionError;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::drive::LastResponse;
use super::field::invalid;
use super::items::InputItem;
use super::request::CreateRequest;
use super::requested_servers;
use super::run_fields;
use super::sealed_run::{self, ResumableRun, SuspendedResponse};
use super::sealed_text;
use super::spec;
use super::stored;
use super::workspace::{self, ResponseWorkspace};
use crate::auth::{Caller, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::pending_approvals::is_expired;
use crate::server::ServerState;
use crate::settings::AuthMode;
use crate::used_approvals::{ApprovalUse, UseRefusal};

/// The prefix of the ids of approval requests.
pub(crate) const ITEM_PREFIX: &str = "mcpr";

/// The client's answers, by approval id.
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

    /// Returns the answers as records to store, for a run that waits for further answers.
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

    /// Returns the answered and the open requests as records to store, for a run that has not used the answers yet.
    pub(crate) fn unused(&self) -> Vec<WaitingApproval> {
        self.stored().into_iter().chain(self.open.values().cloned()).collect()
    }

    /// Returns the answers that a response of an earlier process has received; `None` if there are none.
    pub(crate) fn of_unfinished(record: &ResponseRecord, caller: &Caller) -> Option<Self> {
        matched(&record.approvals, &[], caller).ok().filter(|answers| !answers.given.is_empty())
    }

    /// Returns true if the client has not answered all requests yet.
    pub(crate) fn is_partial(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns true if the client was asked about a call and has not answered yet.
    pub(crate) fn is_open(&self, pending: &PendingApproval) -> bool {
        self.open.contains_key(&pending.id)
    }

    /// Returns the item ids of the answered approval requests, by approval id. The items of the calls refer to these
    /// ids.
    pub(crate) fn items(&self) -> HashMap<ApprovalId, String> {
        self.given.iter().map(|(id, answer)| (*id, answer.item.clone())).collect()
    }
}

/// An answer: its position in `input`, the id of the approval request, and the decision.
type GivenAnswer<'a> = (usize, &'a str, ApprovalDecision);

/// A suspended run that continues, with the client's answers.
pub(crate) struct ContinuedRun {
    pub(crate) handle: RunHandle,
    pub(crate) answers: ApprovalAnswers,
    /// The number of the first event that belongs to the new response.
    pub(crate) first_event: EventSeq,
    pub(crate) workspace: Option<ResponseWorkspace>,
    /// The id of the conversation that the previous response belongs to.
    pub(crate) conversation: Option<String>,
    /// The fields of the previous response that the run fixes.
    pub(crate) fields: Map<String, Value>,
}

/// Denies every call that needs approval. A server without API keys cannot tell its user from another local program,
/// such as an MCP server whose own call waits.
struct KeylessApprover;

impl Approver for KeylessApprover {
    fn name(&self) -> &'static str {
        "no-keys"
    }

    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(ready(ApprovalAnswer::Unanswered(NEEDS_KEYS)))
    }
}

const NEEDS_KEYS: &str = "a server without API keys denies calls that need approval; the operator can start it with \
    API keys, or the client can set `require_approval` to `never` if the operator's rules allow the call";

/// Returns the hooks of a run for this caller.
pub(crate) fn hooks(state: &ServerState, caller: &Caller, sessions: SessionStorage) -> RunHooks {
    let has_scope = caller.require(KeyScope::Approvals).is_ok();
    let (approvals, authority) = match (state.settings.auth, sessions) {
        // Ask the approver about every call, so that the model sees the approver's reason for each denial.
        (AuthMode::NoAuth, _) => {
            let approver: Arc<dyn Approver> = Arc::new(KeylessApprover);
            (AnswerSource::By(approver), ApproverAuthority::AllCalls)
        }
        (AuthMode::Keys, SessionStorage::Stores | SessionStorage::Memory) if has_scope => {
            (AnswerSource::ThroughHandle, ApproverAuthority::AllCalls)
        }
        (AuthMode::Keys, SessionStorage::Stores | SessionStorage::Memory) => {
            (AnswerSource::ThroughHandle, ApproverAuthority::CallersOwn)
        }
        // Deny calls that need approval: without a journal, the run could not continue after the client's answer.
        (AuthMode::Keys, SessionStorage::None) => (AnswerSource::Denied, ApproverAuthority::CallersOwn),
    };
    RunHooks { approvals, authority, elicitations: AnswerSource::Denied, sessions, ..RunHooks::default() }
}

/// Returns the answers in a request: the id of each approval request, with the decision. The request must contain no
/// other new items, because the run continues exactly where it stopped. Answers before an item of the model belong to
/// the history: the item is the result of an earlier answer.
pub(crate) fn answers(request: &CreateRequest) -> Result<Vec<GivenAnswer<'_>>, ApiError> {
    let mut found: Vec<GivenAnswer<'_>> = Vec::new();
    for (at, item) in request.input.iter().enumerate() {
        match item {
            InputItem::ApprovalResponse { request, approve, .. } => {
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
            InputItem::Message { role: Role::Assistant, .. }
            | InputItem::Call(_)
            | InputItem::Finished { .. }
            | InputItem::Compaction(_)
            | InputItem::Sealed(_)
            | InputItem::Dropped
            | InputItem::Skipped(_) => found.clear(),
            InputItem::Message { .. } | InputItem::Output { .. } | InputItem::Reference(_) => {
                let message = "the `mcp_approval_response` items must be the last items of `input`";
                return Err(invalid(format!("input[{at}]"), message));
            }
        }
    }
    Ok(found)
}

/// Returns the id of the response that an approval request belongs to. It is a part of the request's id.
pub(crate) fn response_of(item: &str) -> Option<String> {
    let rest = item.strip_prefix(ITEM_PREFIX)?.strip_prefix('_')?;
    let is_hex = rest.len() == 36 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| format!("resp_{}", &rest[..32]))
}

/// Resumes the run that waits for these answers. `last` is the last response of the same connection.
pub(crate) async fn resume(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    given: &[GivenAnswer<'_>],
    last: Option<&LastResponse>,
) -> Result<ContinuedRun, ApiError> {
    check_accepted(state, given)?;
    let waiting = waiting_response(state, caller, request, given, last).await?;
    check_unchanged(request, &waiting.items)?;
    run_fields::check_model(request, &waiting.fields)?;
    let answers = matched(&waiting.approvals, given, caller)?;
    let SuspendedResponse { id, run, workspace, conversation, fields, .. } = waiting;
    let workspace = workspace::reopen(state, &caller.principal, workspace.as_deref()).await?;
    let handle = match run {
        ResumableRun::Stored(session) => {
            let handle = resume_stored(state, caller, request, &session).await?;
            // The next response repeats the approval requests that are still open.
            state.pending_approvals.remove(&id);
            handle
        }
        ResumableRun::Whole(run) => resume_whole(state, caller, request, *run, &answers).await?,
    };
    for (_, item, decision) in given {
        let word = if *decision == ApprovalDecision::Allow { "approved" } else { "denied" };
        state.audit.decided(&caller.principal, AuditEvent::ApprovalDecided, item, word);
    }
    let first_event = handle.first_event();
    Ok(ContinuedRun { handle, answers, first_event, workspace, conversation, fields })
}

/// Refuses approval answers if the server has no API keys. Its own runs never ask, but an earlier process with keys may
/// have stored approval requests.
fn check_accepted(state: &ServerState, given: &[GivenAnswer<'_>]) -> Result<(), ApiError> {
    match state.settings.auth {
        AuthMode::Keys => Ok(()),
        AuthMode::NoAuth => {
            let at = given.first().map_or(0, |(at, ..)| *at);
            let message = "a server without API keys accepts no answers to approval requests, because every program \
                           on its machine could send them";
            let error = ApiError::new(ApiErrorKind::Forbidden, message).with_code("approvals_need_keys");
            Err(ApiError { param: Some(format!("input[{at}]")), ..error })
        }
    }
}

async fn resume_stored(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    session: &str,
) -> Result<RunHandle, ApiError> {
    let failed = |error: uuid::Error| ApiError::new(ApiErrorKind::ServerError, error.to_string());
    let session = SessionId(Uuid::parse_str(session).map_err(failed)?.as_u128());
    let spec =
        state.runtime.stored_spec(&caller.principal, session).await.map_err(|error| refused(&error))?;
    spec::check_resumed(state, caller, &spec).await?;
    let secrets = requested_servers::resumed(&spec, &request.tools)?;
    let hooks =
        RunHooks { trace_parent: request.trace.clone(), ..hooks(state, caller, SessionStorage::Stores) };
    let resumed = state.runtime.resume_with(session, spec, None, secrets, hooks).await;
    resumed.map_err(|error| match &error {
        // Another process holds the session for a short time, for example a deletion of the principal's data.
        ResumeFailure::Session(SessionError::Busy { .. })
            if state.runtime.attach_for(&caller.principal, session).is_err() =>
        {
            let message = "another process uses the run of these approval requests; try again";
            ApiError::new(ApiErrorKind::Unavailable, message).with_code("run_busy").after(BUSY_RETRY_S)
        }
        _ => refused(&error),
    })
}

/// The seconds after which a client may try again if another process uses the run.
const BUSY_RETRY_S: u64 = 1;

/// Resumes an unstored run, which the client has sent back in an encrypted item.
async fn resume_whole(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    run: SuspendedRun,
    answers: &ApprovalAnswers,
) -> Result<RunHandle, ApiError> {
    if request.store {
        let message = "the run of these approval requests is not stored; answer them with `store: false`";
        return Err(invalid("store", message));
    }
    let spec = state.runtime.suspended_spec(&caller.principal, &run).map_err(|error| refused(&error))?;
    spec::check_resumed(state, caller, &spec).await?;
    let secrets = requested_servers::resumed(&spec, &request.tools)?;
    let usage = use_approvals(state, answers).await?;
    let hooks =
        RunHooks { trace_parent: request.trace.clone(), ..hooks(state, caller, SessionStorage::Memory) };
    let resumed = state.runtime.resume_suspended(run, spec, secrets, hooks).await;
    let handle = resumed.map_err(|error| refused(&error))?;
    if answers.is_partial() {
        // Make the approvals usable again: the run makes no call yet, and the next response asks about the same
        // approvals.
        drop(usage);
    } else {
        usage.keep();
    }
    Ok(handle)
}

async fn use_approvals(state: &ServerState, answers: &ApprovalAnswers) -> Result<ApprovalUse, ApiError> {
    let now_ms = now_ms();
    let expires_ms = expires_ms(now_ms, state.runtime.config().serve.approval_timeout);
    let ids: Vec<ApprovalId> = answers.given.keys().chain(answers.open.keys()).copied().collect();
    let approvals = state.used_approvals.clone();
    let begun = tokio::task::spawn_blocking(move || approvals.begin(&ids, expires_ms, now_ms)).await;
    begun.unwrap_or_else(|error| Err(UseRefusal::Storage(io::Error::other(error)))).map_err(use_refused)
}

fn use_refused(refusal: UseRefusal) -> ApiError {
    let message = match refusal {
        UseRefusal::Used => return used("these approval requests have already been answered"),
        UseRefusal::Full => {
            "the server remembers too many answered approval requests; try again later".to_owned()
        }
        // The full error may contain a path of the server, which the client must not see.
        UseRefusal::Storage(error) => format!(
            "the server cannot store the use of these approval requests in `data/approvals-used` ({}); tell its \
             operator",
            error.kind()
        ),
    };
    ApiError::new(ApiErrorKind::Unavailable, message).after(RETRY_AFTER_S)
}

/// The seconds after which a client may try again if too many approvals are remembered.
const RETRY_AFTER_S: u64 = 60;

/// Finds the response that waits for these answers: the last one of the connection, an encrypted one in the input, or a
/// stored one.
async fn waiting_response(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    given: &[GivenAnswer<'_>],
    last: Option<&LastResponse>,
) -> Result<SuspendedResponse, ApiError> {
    let Some((at, item, _)) = given.first() else {
        return Err(invalid("input", "`input` has no item `mcp_approval_response`"));
    };
    let missing = || not_found(*at, item);
    let id = response_of(item).ok_or_else(missing)?;
    if request.previous_response_id.as_ref().is_some_and(|previous| *previous != id) {
        return Err(missing());
    }
    let of_connection = last.filter(|last| last.id == id).and_then(|last| last.suspended.clone());
    let waiting = match of_connection {
        Some(waiting) => waiting,
        None => match sealed_response(state, caller, request, &id).await? {
            Some(waiting) => waiting,
            None => {
                SuspendedResponse::of_stored(stored::find(state, caller, &id).await?.ok_or_else(missing)?)
            }
        },
    };
    let lifetime = state.runtime.config().serve.approval_timeout;
    if waiting.approvals.iter().any(|waiting| waiting.expired)
        || is_expired(waiting.created_ms, now_ms(), lifetime)
    {
        let seconds = lifetime.as_secs();
        let message = format!(
            "the approval request `{item}` does not wait any more: it was cancelled, or had no answer within \
             {seconds} seconds"
        );
        return Err(invalid("input", message).with_code("approval_request_expired"));
    }
    Ok(waiting)
}

/// Returns the encrypted response with this id. Reads the newest items first, because only the last response waits.
async fn sealed_response(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    id: &str,
) -> Result<Option<SuspendedResponse>, ApiError> {
    for (at, item) in request.input.iter().enumerate().rev() {
        let InputItem::Sealed(encrypted) = item else { continue };
        let path = format!("input[{at}]");
        let text = sealed_text::open(state, caller, &path, encrypted).await?;
        if let Some(found) = sealed_run::read(&path, &text)?.filter(|found| found.id == id) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Refuses an approval request that the client sends back with another tool or other arguments. haft would make the
/// call in the journal, but the user of this client may have approved the changed call.
fn check_unchanged(request: &CreateRequest, items: &[Value]) -> Result<(), ApiError> {
    for (at, sent) in request.input_items.iter().enumerate() {
        let is_request = sent["type"] == "mcp_approval_request";
        let Some(own) = items.iter().find(|own| is_request && own["id"] == sent["id"]) else { continue };
        let same = |name: &str| sent[name].is_null() || parsed(&sent[name]) == parsed(&own[name]);
        if !["server_label", "name", "arguments"].into_iter().all(same) {
            let message = format!(
                "the approval request {} was changed; send it back as it was in the response",
                own["id"]
            );
            return Err(invalid(format!("input[{at}]"), message).with_code("approval_request_changed"));
        }
    }
    Ok(())
}

/// Parses the JSON in a string, because a client may write the same arguments with other white space.
fn parsed(value: &Value) -> Value {
    let json = value.as_str().and_then(|text| serde_json::from_str(text).ok());
    json.unwrap_or_else(|| value.clone())
}

fn not_found(at: usize, item: &str) -> ApiError {
    let message = format!(
        "there is no approval request `{item}`; after a response with `store: false`, send back all its output \
         items"
    );
    invalid(format!("input[{at}].approval_request_id"), message).with_code("approval_request_not_found")
}

/// Matches the waiting approvals with their answers, including answers from earlier requests. If an approval has two
/// answers, uses the first one.
fn matched(
    approvals: &[WaitingApproval],
    given: &[GivenAnswer<'_>],
    caller: &Caller,
) -> Result<ApprovalAnswers, ApiError> {
    let unknown = given.iter().find(|(_, item, _)| approvals.iter().all(|one| one.item != *item));
    if let Some((at, item, _)) = unknown {
        return Err(not_found(*at, item));
    }
    let mut answers = ApprovalAnswers::default();
    for waiting in approvals {
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

/// Refuses a request that continues a response without answering its approval requests.
pub(crate) fn check_answered<'a>(
    approvals: impl IntoIterator<Item = &'a WaitingApproval>,
) -> Result<(), ApiError> {
    let Some(waiting) = approvals.into_iter().find(|waiting| waiting.approved.is_none()) else {
        return Ok(());
    };
    let message = format!(
        "the approval request `{}` has no answer; send an item `mcp_approval_response` for it",
        waiting.item
    );
    Err(invalid("input", message).with_code("approval_response_missing"))
}

fn used(message: &str) -> ApiError {
    ApiError::new(ApiErrorKind::Conflict, message).with_code("approval_request_used").not_retryable()
}

fn refused(error: &ResumeFailure) -> ApiError {
    match error {
        ResumeFailure::Run(ResumeError::Finished { .. }) => {
            used("these approval requests have already been answered, and their run has ended")
        }
        ResumeFailure::Session(SessionError::Busy { .. }) => {
            used("these approval requests have already been answered, and their run is in progress")
        }
        ResumeFailure::Session(SessionError::NotFound { .. }) => {
            let message =
                "the server no longer stores the run of these approval requests; start a new response";
            invalid("input", message).with_code("approval_request_expired")
        }
        ResumeFailure::Start(error) => spec::not_started(error),
        error => {
            ApiError::new(ApiErrorKind::ServerError, format!("the server cannot continue the run: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn approval_is_valid_only_for_the_arguments_that_the_client_saw() {
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
    fn approval_request_names_its_response() {
        let hex = "0123456789abcdef0123456789abcdef";
        assert_eq!(response_of(&format!("mcpr_{hex}0001")), Some(format!("resp_{hex}")));
        let long = format!("mcpr_{hex}00010");
        for wrong in ["", "mcpr_", "msg_1", "mcpr_../../x", &long, &format!("mcpr_{hex}000/")] {
            assert_eq!(response_of(wrong), None, "{wrong}");
        }
    }
}
