//! Routes of the native API that return sessions: the stored records of runs, with their cost and their end.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use haft_core::run::event::RunBill;
use haft_runtime::runtime::ListedRun;
use haft_store::sessions::{SessionOverview, SessionStatus, SessionStore};
use schemars::JsonSchema;
use serde::Serialize;

use super::{NativePage, runs};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::responses::blocking;
use crate::server::ServerState;

/// The stored record of a run and of later requests in the same conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionObject {
    /// The id, which is also the id of the run
    id: String,
    /// The beginning of the first request
    title: String,
    /// The agent that received the first request
    agent: String,
    state: SessionState,
    /// The reason why the session has ended, such as `completed`; absent before
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    /// The start of the session, in milliseconds since 1970
    started_ms: u64,
    /// The time of the last entry, in milliseconds since 1970
    last_ms: u64,
    model_requests: u64,
    tool_calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The cost in billionths of a US dollar
    cost_nano_usd: u64,
    /// The number of model requests whose price is not known
    unpriced_requests: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SessionState {
    /// A process works on the session
    Running,
    /// The session has not ended: its run waits, or was interrupted
    Unfinished,
    Ended,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionList {
    data: Vec<SessionObject>,
    /// True if there are older sessions
    has_more: bool,
}

/// `GET /api/v1/sessions`: lists the stored sessions of the caller.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Query(page): Query<NativePage>,
) -> Result<Json<SessionList>, ApiError> {
    let (runs, has_more) = runs::page(&state, &caller, &page).await?;
    let store = store(&state, &caller);
    let data = blocking(move || {
        // A session that cannot be read, or that a sweep has just removed, must not hide the others.
        Ok(runs.into_iter().filter_map(|run| object(&store, run)).collect())
    })
    .await?;
    Ok(Json(SessionList { data, has_more }))
}

/// `GET /api/v1/sessions/{id}`: returns a stored session of the caller.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SessionObject>, ApiError> {
    let run = runs::find(&state, &caller, &id).await?;
    let store = store(&state, &caller);
    let found = blocking(move || Ok(object(&store, run))).await?;
    found.map(Json).ok_or_else(runs::unreadable)
}

fn store(state: &ServerState, caller: &Caller) -> SessionStore {
    let limits = state.runtime.config().sessions.limits;
    SessionStore::of(state.runtime.home(), limits).of_tenant(caller.principal.tenant())
}

fn object(store: &SessionStore, run: ListedRun) -> Option<SessionObject> {
    let SessionOverview { title, began_ms, last_ms, standing, total, .. } = store.overview(run.id).ok()?;
    let (state, end) = match standing {
        SessionStatus::Open if store.is_busy(run.id) => (SessionState::Running, None),
        SessionStatus::Open => (SessionState::Unfinished, None),
        SessionStatus::Cut { reason } | SessionStatus::Finished { reason } => {
            (SessionState::Ended, Some(reason))
        }
    };
    let RunBill { requests, usage, cost, unpriced, calls } = total;
    Some(SessionObject {
        id: run.id.to_string(),
        title,
        agent: run.agent,
        state,
        end,
        started_ms: began_ms,
        last_ms,
        model_requests: requests,
        tool_calls: calls,
        input_tokens: usage.input,
        output_tokens: usage.output,
        cost_nano_usd: cost.nano_usd,
        unpriced_requests: unpriced,
    })
}
