//! Continues background responses that an earlier process did not finish.
//!
//! The run resumes from its journal, and the event log is converted again from its beginning. The stream therefore has
//! the same ids and event numbers that clients of the earlier process saw.

use std::sync::Arc;

use haft_core::position::SessionId;
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::spec::requested_labels;
use haft_runtime::{EventSeq, FinishedRun, QueueEntry, RunHandle, RunHooks, RunSecrets, SessionStorage};
use haft_store::api_keys::{KeyLimits, KeyScope};
use haft_store::responses::{NewResponse, ResponseRecord, UnfinishedResponse};
use serde_json::Value;
use uuid::Uuid;

use super::approvals::ApprovalAnswers;
use super::drive::{ActiveResponse, KeptResponse, ResponseRun, ResponseStorage};
use super::event_block::EventBlock;
use super::fold::{ResponseFold, StreamEvent};
use super::object::{ResponseEnd, ResponseHead, is_open};
use super::tool_origin::ToolOrigins;
use super::workspace::{self, ResponseWorkspace};
use super::{approvals, origins};
use crate::auth::Caller;
use crate::server::{ActiveWork, ServerState};
use crate::store_errors::StoreKind;

/// Continues all unfinished responses. Starts them one after the other; each then continues in a task of its own.
pub(crate) async fn continue_unfinished(state: Arc<ServerState>) {
    let store = state.responses.clone();
    let unfinished = tokio::task::spawn_blocking(move || store.unfinished()).await.unwrap_or_default();
    for one in unfinished {
        continue_one(&state, &one).await;
    }
}

async fn continue_one(state: &Arc<ServerState>, one: &UnfinishedResponse) {
    let owner = one.principal();
    let record = state.responses.get(&owner, &one.id).ok().flatten();
    let Some(record) = record.filter(|record| is_open(&record.response)) else {
        // Remove the entry and ignore a failure: the response was deleted, or its end was stored just before the
        // process ended.
        let _ = state.responses.end(&one.id);
        return;
    };
    let scopes = one.scopes.iter().filter_map(|name| KeyScope::from_name(name)).collect();
    let caller = Caller { principal: owner, scopes, limits: KeyLimits::default(), expires_ms: None };
    let session = SessionId(Uuid::parse_str(&record.run).map_or(0, |id| id.as_u128()));
    let workspace = workspace::reopen(state, &caller.principal, record.workspace.as_deref()).await;
    let resumed = match workspace {
        Ok(workspace) => resume(state, &caller, session).await.map(|handle| (handle, workspace)),
        Err(error) => Err(error.message),
    };
    match resumed {
        Ok(resumed) => drop(state.live.detach(active(state, caller, record, resumed))),
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
    state: &Arc<ServerState>,
    caller: Caller,
    record: ResponseRecord,
    (handle, workspace): (RunHandle, Option<ResponseWorkspace>),
) -> ActiveResponse {
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
    };
    let first_event = EventSeq(record.first_event);
    let run = ResponseRun { handle, answers, first_event, workspace, known_workspace: None };
    ActiveResponse::new(ActiveWork::begin(state), run, ResponseFold::new(head), kept)
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
    let mut fold = ResponseFold::new(ResponseHead::of_stored(&record.response, ToolOrigins::none()));
    let mut stream = fold.start();
    let (response, last) = fold.end(&ResponseEnd::failed("server_error", "server_error", message));
    stream.extend(last);
    store(state, caller, ended(record, &response), &stream);
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
