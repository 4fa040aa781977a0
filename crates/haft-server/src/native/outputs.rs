//! Stored tool outputs of the native API: read by range, and searched starting at any byte.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use haft_core::event_store::RunKey;
use haft_core::output_store::{Handle, OutputStore, OutputStores as _, StoreError};
use haft_store::outputs::FileOutputs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::line_search::{FoundLine, LineSearch};
use super::{number, runs};
use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::invalid;
use crate::server::ServerState;

/// The maximum number of bytes of one reply, and of one read during a search.
const PART_BYTES_MAX: u64 = 1 << 20;

/// The default number of bytes of a reply.
const PART_BYTES_DEFAULT: u64 = 64 << 10;

/// The maximum number of bytes that one request searches.
const SEARCH_BYTES_MAX: u64 = 64 << 20;

/// The maximum length of the text to search for (`find`), in bytes.
const FIND_BYTES_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct OutputPartQuery {
    from: Option<String>,
    bytes: Option<String>,
    find: Option<String>,
}

/// A part of a stored tool output, or the lines of it that contain a string.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutputPart {
    /// The first byte of the part, or of the search
    from: u64,
    /// The first byte after the part, or after the searched part; the next request continues there
    to: u64,
    /// True if the output ends at `to`
    is_end: bool,
    /// The part; absent for a search. Bytes that are not UTF-8 are replaced
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The lines that contain the searched text; absent without `find`
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<OutputLine>>,
}

/// A line of a stored output.
#[derive(Debug, Serialize, JsonSchema)]
struct OutputLine {
    /// The first byte of the line in the output
    from: u64,
    /// The first byte after the line
    to: u64,
    /// The line, or its beginning if it is long
    text: String,
}

/// `GET /api/v1/runs/{id}/outputs/{handle}`: returns a part of a stored output, or its matching lines. The model of the
/// run got the handle in a tool result.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path((id, handle)): Path<(String, String)>,
    Query(query): Query<OutputPartQuery>,
) -> Result<Json<OutputPart>, ApiError> {
    let run = runs::find(&state, &caller, &id).await?.id;
    let request = OutputRequest::of(query)?;
    let missing =
        || ApiError::new(ApiErrorKind::NotFound, format!("the run has no stored output `{handle}`"));
    let parsed = Handle::parse(&handle).ok_or_else(missing)?;
    let key = RunKey { tenant: caller.principal.tenant().to_owned(), run };
    let limits = state.runtime.config().tool_output.limits.clone();
    let unreadable = |error: StoreError| match error {
        StoreError::NotFound => missing(),
        // The full error may contain a path of the server, which the client must not see.
        _ => ApiError::new(ApiErrorKind::ServerError, "the server cannot read the stored output"),
    };
    let store = FileOutputs::of(state.runtime.home()).open(&key, &limits).map_err(unreadable)?;
    let part = match request {
        OutputRequest::Part { from, bytes } => read(&*store, &parsed, from, bytes).await,
        OutputRequest::Search { from, find } => search(&*store, &parsed, from, &find).await,
    };
    part.map(Json).map_err(unreadable)
}

/// The checked query of a request for a stored output.
enum OutputRequest {
    Part { from: u64, bytes: u64 },
    Search { from: u64, find: String },
}

impl OutputRequest {
    fn of(query: OutputPartQuery) -> Result<Self, ApiError> {
        let from = number("from", query.from.as_deref(), 0)?;
        let bytes = number("bytes", query.bytes.as_deref(), PART_BYTES_DEFAULT)?;
        match query.find.filter(|find| !find.is_empty()) {
            Some(_) if query.bytes.is_some() => Err(invalid(
                "bytes",
                "`bytes` cannot be used with `find`, because a search reads to the end; leave `bytes` out",
            )),
            Some(find) if find.len() > FIND_BYTES_MAX || find.contains('\n') => {
                let message = format!("`find` must be one line of at most {FIND_BYTES_MAX} bytes");
                Err(invalid("find", message))
            }
            Some(find) => Ok(Self::Search { from, find }),
            None if !(1..=PART_BYTES_MAX).contains(&bytes) => {
                Err(invalid("bytes", format!("`bytes` must be a number from 1 to {PART_BYTES_MAX}")))
            }
            None => Ok(Self::Part { from, bytes }),
        }
    }
}

async fn read(
    store: &dyn OutputStore,
    handle: &Handle,
    from: u64,
    bytes: u64,
) -> Result<OutputPart, StoreError> {
    // Read one byte more than requested, to find out whether the output ends here.
    let mut part = store.read_range(handle, from..from.saturating_add(bytes).saturating_add(1)).await?;
    let is_end = part.len() as u64 <= bytes;
    part.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
    let to = from.saturating_add(part.len() as u64);
    let text = Some(String::from_utf8_lossy(&part).into_owned());
    Ok(OutputPart { from, to, is_end, text, lines: None })
}

/// Reads the output in chunks, up to its end or up to one of the search limits.
async fn search(
    store: &dyn OutputStore,
    handle: &Handle,
    from: u64,
    find: &str,
) -> Result<OutputPart, StoreError> {
    let (mut search, mut next) = (LineSearch::new(find, from), from);
    let is_end = loop {
        let piece = store.read_range(handle, next..next.saturating_add(PART_BYTES_MAX)).await?;
        next = next.saturating_add(piece.len() as u64);
        search.push(&piece);
        if search.is_full() {
            break false;
        }
        if (piece.len() as u64) < PART_BYTES_MAX {
            search.finish();
            break !search.is_full();
        }
        if next - from >= SEARCH_BYTES_MAX {
            break false;
        }
    };
    let to = if is_end { next } else { search.position() };
    let line = |FoundLine { from, to, text }| OutputLine { from, to, text };
    let lines = Some(search.found.into_iter().map(line).collect());
    Ok(OutputPart { from, to, is_end, text: None, lines })
}
