//! Routes of the native API that list, return and cancel runs, and stream their events starting at any number.
//! `new_run.rs` starts runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use haft_core::event_log::EventEnvelope;
use haft_core::event_store::{EventStore as _, RunKey};
use haft_core::position::SessionId;
use haft_runtime::runtime::{ListedRun, ResumeFailure, RunListPage};
use haft_runtime::{EventSeq, RunEvents};
use haft_store::events::FileEvents;
use haft_store::sessions::SessionError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;

use super::{NativePage, number};
use crate::auth::{Caller, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::event_stream::{self, PING, PING_INTERVAL};
use crate::pending_approvals;
use crate::responses::{self, BackgroundRun};
use crate::server::ServerState;

/// The number of stored events that are read at a time.
const READ_MAX: usize = 500;

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunObject {
    id: String,
    status: RunStatus,
    /// The agent that received the request
    agent: String,
    /// The beginning of the request
    title: String,
    /// The start of the run, in milliseconds since 1970
    started_ms: u64,
    /// The response with the answer of the run, at `/v1/responses`; only in the reply to a new run
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RunStatus {
    /// The run waits in the run queue of the server
    Queued,
    /// The run works, or the server has restarted and resumes it soon
    InProgress,
    /// The run waits for an answer to an approval request
    WaitingForApproval,
    /// The run has finished or failed, or was cancelled or interrupted
    Ended,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunList {
    data: Vec<RunObject>,
    /// True if there are older runs
    has_more: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct EventQuery {
    after: Option<String>,
}

/// `GET /api/v1/runs`: lists the runs of the caller.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Query(page): Query<NativePage>,
) -> Result<Json<RunList>, ApiError> {
    let (runs, has_more) = self::page(&state, &caller, &page).await?;
    let data = runs.into_iter().map(|run| object(&state, &caller, run)).collect();
    Ok(Json(RunList { data, has_more }))
}

/// Returns the runs of a page, and whether there are older ones.
pub(super) async fn page(
    state: &ServerState,
    caller: &Caller,
    page: &NativePage,
) -> Result<(Vec<ListedRun>, bool), ApiError> {
    let (limit, skip) = (page.limit()?, page.skip()?);
    let mut runs = listed(state, caller, RunListPage { skip, count: limit + 1 }).await?;
    let has_more = runs.len() > limit;
    runs.truncate(limit);
    Ok((runs, has_more))
}

/// `GET /api/v1/runs/{id}`: returns a run of the caller.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunObject>, ApiError> {
    let run = find(&state, &caller, &id).await?;
    Ok(Json(object(&state, &caller, run)))
}

/// `POST /api/v1/runs/{id}/cancel`: cancels a run. Replies after the end of the run is recorded.
pub(super) async fn cancel(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RunObject>, ApiError> {
    let run = find(&state, &caller, &id).await?;
    if let Some(response) = state.continuations.of_run(&caller.principal, &id) {
        // The server has restarted and not resumed the run yet, so the runtime has no run to cancel. Cancel the
        // response of the run, which first resumes the run.
        responses::stop(&state, &caller.principal, &response).await;
    }
    if let Ok(handle) = state.runtime.attach_for(&caller.principal, run.id) {
        handle.cancel();
        // Ignore the error: a run that failed with an internal error has stopped too.
        let _ = handle.stopped().await;
    }
    let waiting = state.pending_approvals.of_run(&caller.principal, &id);
    if let Some(record) = waiting.and_then(|waiting| state.pending_approvals.take(&waiting.response)) {
        pending_approvals::end(&state, &record, "cancelled").await;
    }
    Ok(Json(object(&state, &caller, run)))
}

/// `GET /api/v1/runs/{id}/events`: streams the events of a run.
pub(super) async fn events(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<EventQuery>,
) -> Result<Response, ApiError> {
    let session = find(&state, &caller, &id).await?.id;
    let next = number("after", query.after.as_deref(), 0)?.saturating_add(1);
    let source = match state.runtime.attach_for(&caller.principal, session) {
        Ok(handle) => RunEventSource::Live(handle.events(EventSeq(next))),
        Err(_) => RunEventSource::Stored {
            store: FileEvents::of(state.runtime.home()),
            key: RunKey { tenant: caller.principal.tenant().to_owned(), run: session },
            next,
            read: Vec::new(),
            failed: false,
        },
    };
    Ok(stream_response(source))
}

/// The events of a run in progress, or of a run that has ended.
enum RunEventSource {
    Live(RunEvents),
    Stored {
        store: FileEvents,
        key: RunKey,
        next: u64,
        /// Events that are not sent yet, in reverse order.
        read: Vec<EventEnvelope>,
        /// True after the stream has reported that the server cannot read the next events.
        failed: bool,
    },
}

impl RunEventSource {
    async fn next(&mut self) -> Option<String> {
        match self {
            Self::Live(events) => match events.next().await? {
                Ok(event) => Some(block(&event)),
                Err(gap) => Some(format!(": {gap}\n\n")),
            },
            Self::Stored { store, key, next, read, failed } => {
                if read.is_empty() {
                    match store.read(key, *next, READ_MAX).await {
                        Ok(events) => *read = events.into_iter().rev().collect(),
                        Err(_) if *failed => return None,
                        Err(_) => {
                            *failed = true;
                            return Some(error_block(*next));
                        }
                    }
                }
                let event = read.pop()?;
                *next = event.seq + 1;
                Some(block(&event))
            }
        }
    }
}

/// Returns the event as a block of server-sent events. `id` is the event number from which a client can continue.
fn block(event: &EventEnvelope) -> String {
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\ndata: {data}\n\n", event.seq)
}

/// Returns an error event that tells the client that the stream ends too early.
fn error_block(next: u64) -> String {
    let message = format!("the server cannot read the events starting at number {next}");
    let error = json!({"error": {"type": "server_error", "message": message}});
    format!("event: error\ndata: {error}\n\n")
}

fn stream_response(source: RunEventSource) -> Response {
    event_stream::response(stream::unfold(source, |mut source| async {
        let block = match timeout(PING_INTERVAL, source.next()).await {
            Ok(block) => Bytes::from(block?),
            Err(_) => Bytes::from_static(PING),
        };
        Some((block, source))
    }))
}

/// Returns a stored run of the caller. Returns "not found" for a run of another principal.
pub(super) async fn find(state: &ServerState, caller: &Caller, id: &str) -> Result<ListedRun, ApiError> {
    let missing = || ApiError::new(ApiErrorKind::NotFound, format!("there is no run `{id}`"));
    let session = Uuid::parse_str(id).map(|id| SessionId(id.as_u128())).map_err(|_| missing())?;
    let found = state.runtime.stored_run(&caller.principal, session).await;
    found.map_err(|error| match error {
        ResumeFailure::Session(SessionError::NotFound { .. }) => missing(),
        _ => unreadable(),
    })
}

async fn listed(state: &ServerState, caller: &Caller, page: RunListPage) -> Result<Vec<ListedRun>, ApiError> {
    let listed = state.runtime.list(&caller.principal, page).await;
    listed.map_err(|_| unreadable())
}

/// Returns the API object of a run that a request has started.
pub(super) async fn started(state: &ServerState, caller: &Caller, started: BackgroundRun) -> RunObject {
    let BackgroundRun { run, response, model } = started;
    let listed = find(state, caller, &run).await.ok().unwrap_or_else(|| ListedRun {
        // The run is not stored: the operator has turned off the storage of sessions, or the run has just been removed.
        id: Uuid::parse_str(&run).map_or(SessionId(0), |id| SessionId(id.as_u128())),
        title: String::new(),
        agent: model,
        started_ms: now_ms(),
        is_running: true,
    });
    RunObject { response: Some(response), ..object(state, caller, listed) }
}

fn object(state: &ServerState, caller: &Caller, run: ListedRun) -> RunObject {
    let ListedRun { id, title, agent, started_ms, .. } = run;
    let text = id.to_string();
    let status = match state.runtime.attach_for(&caller.principal, id) {
        Ok(handle) if handle.is_finished() => RunStatus::Ended,
        Ok(handle) if handle.is_admitted() => RunStatus::InProgress,
        Ok(_) => RunStatus::Queued,
        Err(_) if state.pending_approvals.of_run(&caller.principal, &text).is_some() => {
            RunStatus::WaitingForApproval
        }
        Err(_) if state.continuations.of_run(&caller.principal, &text).is_some() => RunStatus::InProgress,
        Err(_) => RunStatus::Ended,
    };
    RunObject { id: text, status, agent, title, started_ms, response: None }
}

pub(super) fn unreadable() -> ApiError {
    ApiError::new(ApiErrorKind::ServerError, "the server cannot read its stored runs")
}
