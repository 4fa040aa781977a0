//! Continues background responses that an earlier process did not finish.
//!
//! The run resumes from its journal, and the event log is converted again from its beginning. The stream therefore has
//! the same ids and event numbers that clients of the earlier process saw.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use haft_core::position::SessionId;
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::spec::requested_labels;
use haft_runtime::{EventSeq, FinishedRun, QueueEntry, RunHandle, RunHooks, RunSecrets, SessionStorage};
use haft_store::api_keys::{KeyLimits, KeyScope};
use haft_store::responses::{NewResponse, ResponseRecord, UnfinishedResponse};
use serde_json::Value;
use tokio::time::timeout;
use uuid::Uuid;

use super::approvals::ApprovalAnswers;
use super::continuations::{Continuation, ContinuationProgress};
use super::drive::{ActiveResponse, KeptResponse, ResponseRun, ResponseStorage};
use super::event_block::EventBlock;
use super::fold::{ResponseFold, StreamEvent};
use super::object::{ResponseEnd, ResponseHead, is_open};
use super::tool_origin::ToolOrigins;
use super::workspace::{self, ResponseWorkspace};
use super::{approvals, origins};
use crate::auth::Caller;
use crate::rate_limit;
use crate::server::{ActiveWork, ServerState};
use crate::store_errors::StoreKind;

/// The time before the server first tries again to read a response that it must continue. Each further pause is twice as
/// long, up to [`READ_PAUSE_MAX`].
const READ_PAUSE_MIN: Duration = Duration::from_secs(1);

const READ_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Reads which responses this process must continue. The server does this before it accepts requests, so that each
/// request finds these responses, and so that they count towards the limits of their keys.
pub(crate) fn read_unfinished(state: &ServerState) {
    for unfinished in state.responses.unfinished() {
        let slot = rate_limit::count_continued(state, &unfinished.principal());
        state.continuations.add(Continuation::new(unfinished, slot));
    }
}

/// Continues all unfinished responses. Starts them one after the other; each then continues in a task of its own. Tries
/// again to read a response until it can be read, because its client has no other way to get it.
pub(crate) async fn continue_unfinished(state: Arc<ServerState>) {
    let mut pause = READ_PAUSE_MIN;
    loop {
        for continuation in state.continuations.waiting() {
            if state.is_stopping() {
                return;
            }
            continue_once(&state, &continuation).await;
        }
        if state.continuations.waiting().is_empty() || timeout(pause, state.stopped()).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(READ_PAUSE_MAX);
    }
}

/// Cancels a response that an earlier process did not finish: continues it, and then requests its cancellation. Returns
/// when the response is in progress or has ended. If the client disconnects, the work goes on.
pub(super) async fn continue_cancelled(state: &Arc<ServerState>, continuation: Arc<Continuation>) {
    continuation.cancel();
    let state = Arc::clone(state);
    // Ignore a failure: the caller then finds no response in progress.
    let _ = tokio::spawn(async move { continue_once(&state, &continuation).await }).await;
}

/// Continues a response, unless another task has done so.
async fn continue_once(state: &Arc<ServerState>, continuation: &Continuation) {
    let mut progress = continuation.progress.lock().await;
    let ContinuationProgress::Waiting(slot) = &mut *progress else { return };
    let one = &continuation.unfinished;
    let record = match read(state, one).await {
        Ok(record) => record,
        // The marker stays, so that the next process tries again.
        Err(error) => {
            let problem = format!("it cannot read the unfinished response `{}`: {error}", one.id);
            state.store_errors.note(StoreKind::Responses, &problem);
            if !is_damaged(&error) {
                return;
            }
            None
        }
    };
    if let Some(record) = record {
        let active = ActiveWork::continued(state, slot.take());
        continue_one(state, active, continuation, record).await;
    }
    *progress = ContinuationProgress::Done;
    state.continuations.remove(&one.id);
    if let Some(live) = state.live.get(&one.principal(), &one.id).filter(|_| continuation.is_cancelled()) {
        live.request_cancel();
    }
}

/// Returns the record of an unfinished response; `None` if the response was deleted, or if its end was stored just
/// before the process ended.
async fn read(state: &ServerState, one: &UnfinishedResponse) -> io::Result<Option<ResponseRecord>> {
    let (store, owner, id) = (state.responses.clone(), one.principal(), one.id.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let record = store.get(&owner, &id)?.filter(|record| is_open(&record.response));
        if record.is_none() {
            // Ignore a failure: the next process tries again.
            let _ = store.end(&id);
        }
        Ok(record)
    });
    reading.await.map_err(io::Error::other)?
}

/// Returns true if the content of the file is wrong, so that a further attempt to read it would fail too.
fn is_damaged(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

async fn continue_one(
    state: &Arc<ServerState>,
    active_work: ActiveWork,
    continuation: &Continuation,
    record: ResponseRecord,
) {
    let one = &continuation.unfinished;
    let scopes = one.scopes.iter().filter_map(|name| KeyScope::from_name(name)).collect();
    let caller = Caller {
        principal: one.principal(),
        scopes,
        limits: KeyLimits::default(),
        expires_ms: None,
        key_digest: None,
    };
    let session = SessionId(Uuid::parse_str(&record.run).map_or(0, |id| id.as_u128()));
    let workspace = workspace::reopen(state, &caller.principal, record.workspace.as_deref()).await;
    let resumed = match workspace {
        Ok(workspace) => resume(state, &caller, session).await.map(|handle| (handle, workspace)),
        Err(error) => Err(error.message),
    };
    match resumed {
        Ok(resumed) => {
            if continuation.is_cancelled() {
                // The run must not make a further call, so cancel it before this task waits for anything.
                resumed.0.cancel();
            }
            drop(state.live.detach(active(active_work, caller, record, resumed)));
        }
        Err(reason) => fail(state, &caller, &record, &reason),
    }
}

async fn resume(state: &ServerState, caller: &Caller, session: SessionId) -> Result<RunHandle, String> {
    let failed = |error: ResumeFailure| error.to_string();
    let spec = state.runtime.stored_spec(&caller.principal, session).await.map_err(failed)?;
    if let Some(label) = requested_labels(&spec.secrets).next() {
        return Err(format!("the URL and headers of the MCP server `{label}` are not stored"));
    }
    // The earlier process may have ended between the end of the run and the storing of its response.
    let hooks = RunHooks {
        finished: FinishedRun::EndsAgain,
        queue_entry: QueueEntry::Accepted,
        ..approvals::hooks(state, caller, SessionStorage::Stores)
    };
    let resumed = state.runtime.resume_with(session, spec, None, RunSecrets::none(), hooks).await;
    resumed.map_err(failed)
}

fn active(
    active_work: ActiveWork,
    caller: Caller,
    record: ResponseRecord,
    (handle, workspace): (RunHandle, Option<ResponseWorkspace>),
) -> ActiveResponse {
    let state = active_work.state();
    let head = ResponseHead::of_stored(&record.response, origins(state, &handle, named_labels(&record)));
    let answers = ApprovalAnswers::of_unfinished(&record, &caller);
    let kept = KeptResponse {
        caller,
        input: record.input,
        opening: record.messages,
        storage: ResponseStorage::StoredForReplay,
        conversation: record.response["conversation"]["id"].as_str().map(str::to_owned),
        first_event: EventSeq(record.first_event),
        request_digest: record.request_digest,
        warnings: Vec::new(),
        listed: BTreeSet::new(),
    };
    let first_event = EventSeq(record.first_event);
    let run = ResponseRun { handle, answers, first_event, workspace, known_workspace: None };
    ActiveResponse::new(active_work, run, ResponseFold::new(head), kept)
}

/// Returns the labels of the servers that the request named by URL.
fn named_labels(record: &ResponseRecord) -> impl Iterator<Item = &str> {
    let tools = record.response["tools"].as_array().into_iter().flatten();
    let named = tools.filter(|tool| tool["server_url"].is_string());
    named.filter_map(|tool| tool["server_label"].as_str())
}

fn fail(state: &ServerState, caller: &Caller, record: &ResponseRecord, reason: &str) {
    let message =
        format!("the server stopped before the response was complete, and cannot continue it: {reason}");
    let end = ResponseEnd::failed("server_error", "server_error", message);
    let (response, stream) = ended_object(record, &end);
    store(state, caller, ended(record, &response), &stream);
}

/// Ends a response without its run. Returns the final object, and the whole stream.
pub(super) fn ended_object(record: &ResponseRecord, end: &ResponseEnd) -> (Value, Vec<StreamEvent>) {
    let mut fold = ResponseFold::new(ResponseHead::of_stored(&record.response, ToolOrigins::none()));
    let mut stream = fold.start();
    let (response, last) = fold.end(end);
    stream.extend(last);
    (response, stream)
}

fn ended<'a>(record: &'a ResponseRecord, response: &'a Value) -> NewResponse<'a> {
    NewResponse {
        id: &record.id,
        run: &record.run,
        created_ms: record.created_ms,
        response,
        input: &record.input,
        messages: &record.messages,
        open_calls: &[],
        has_events: true,
        approvals: &[],
        first_event: record.first_event,
        request_digest: record.request_digest.as_deref(),
        workspace: record.workspace.as_deref(),
        error_type: Some("server_error"),
    }
}

fn store(state: &ServerState, caller: &Caller, new: NewResponse<'_>, stream: &[StreamEvent]) {
    let blocks: Vec<EventBlock> = stream.iter().map(EventBlock::of).collect();
    let events = blocks.iter().map(EventBlock::data_text);
    let encoded = state.responses.encode(&caller.principal, new);
    // If this write fails, the response stays unfinished, and the server tries again at its next start.
    let stored = encoded.and_then(|encoded| encoded.write_with_events(&events));
    if let Err(error) = stored.and_then(|()| state.responses.end(new.id)) {
        state.store_errors.note(StoreKind::Responses, &error);
    }
}
