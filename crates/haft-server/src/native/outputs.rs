//! Stored tool outputs of the native API.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use haft_core::event_store::RunKey;
use haft_core::output_store::{Handle, OutputStores as _, StoreError};
use haft_store::outputs::FileOutputs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{number, runs};
use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::invalid;
use crate::server::ServerState;

/// The most bytes of one reply.
const PART_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a reply, if the request does not say.
const PART_BYTES_DEFAULT: u64 = 64 << 10;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct OutputPartQuery {
    from: Option<String>,
    bytes: Option<String>,
    find: Option<String>,
}

/// A part of a stored tool output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutputPart {
    /// The first byte of the part
    from: u64,
    /// The first byte after the part
    to: u64,
    /// The part, or its lines that contain the searched text; bytes that are not UTF-8 are replaced
    text: String,
}

/// `GET /api/v1/runs/{id}/outputs/{handle}`. The handle is the one that the model of the run got.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path((id, handle)): Path<(String, String)>,
    Query(query): Query<OutputPartQuery>,
) -> Result<Json<OutputPart>, ApiError> {
    let run = runs::find(&state, &caller, &id).await?.id;
    let from = number("from", query.from.as_deref(), 0)?;
    let bytes = number("bytes", query.bytes.as_deref(), PART_BYTES_DEFAULT)?;
    if !(1..=PART_BYTES_MAX).contains(&bytes) {
        return Err(invalid("bytes", format!("`bytes` must be a number from 1 to {PART_BYTES_MAX}")));
    }
    let missing = || ApiError::new(ApiErrorKind::NotFound, format!("the run has no output `{handle}`"));
    let parsed = Handle::parse(&handle).ok_or_else(missing)?;
    let key = RunKey { tenant: caller.principal.tenant().to_owned(), run };
    let limits = state.runtime.config().tool_output.limits.clone();
    let unreadable = |error: StoreError| match error {
        StoreError::NotFound => missing(),
        // The reason may contain a path of the server.
        _ => ApiError::new(ApiErrorKind::ServerError, "the output cannot be read"),
    };
    let store = FileOutputs::of(state.runtime.home()).open(&key, &limits).map_err(unreadable)?;
    let range = from..from.saturating_add(bytes);
    let part = store.read_range(&parsed, range).await.map_err(unreadable)?;
    let text = String::from_utf8_lossy(&part);
    let text = match query.find.filter(|find| !find.is_empty()) {
        None => text.into_owned(),
        Some(find) => text.lines().filter(|line| line.contains(&*find)).collect::<Vec<_>>().join("\n"),
    };
    Ok(Json(OutputPart { from, to: from.saturating_add(part.len() as u64), text }))
}
