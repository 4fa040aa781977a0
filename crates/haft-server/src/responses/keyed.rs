//! Requests with an idempotency key: a repeated request gets the response of the first one.
//!
//! The run starts in a task of its own. Otherwise a cut connection would end the start after the key was bound, and the
//! repeated request would find neither a response nor a free key.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use haft_core::idempotency_store::IdempotencyStore as _;
use haft_core::output_store::StoreError;
use haft_core::position::SessionId;
use http::HeaderMap;
use uuid::Uuid;

use super::drive::EndedResponse;
use super::live::{LiveResponse, StartingResponse};
use super::object::ResponseFailure;
use super::replayed_events::ReplayedEvents;
use super::request::CreateRequest;
use super::sse::{self, EventSource};
use super::stored::{self, FoundResponse};
use super::{detach, field::invalid, first_reply, in_own_task, new_id, response_id};
use crate::auth::{Caller, now_ms};
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;
use crate::store_errors::StoreKind;

/// The time for which an idempotency key returns the first response.
const KEY_LIFETIME: Duration = Duration::from_hours(24);

/// The maximum length of an idempotency key, in characters.
const KEY_CHARS_MAX: usize = 255;

/// The response of an idempotency key.
pub(super) enum KeyedResponse {
    InProgress(Arc<LiveResponse>),
    Stored(Box<FoundResponse>),
}

/// Reads the header with the idempotency key.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        // The prefix separates these keys from the keys of the runtime.
        Ok(key) if !key.is_empty() && key.len() <= KEY_CHARS_MAX => Ok(Some(format!("response {key}"))),
        _ => {
            let message = format!("`Idempotency-Key` must have 1 to {KEY_CHARS_MAX} visible characters");
            Err(invalid("Idempotency-Key", message))
        }
    }
}

/// Starts a response, or returns the response that an earlier request with the same idempotency key started. Both
/// requests get the same reply.
pub(super) async fn once(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    key: String,
) -> Result<Response, ApiError> {
    let form @ (stream, background) = (request.stream, request.background);
    let found = match start_once(state, caller, request, key).await?.1 {
        KeyedResponse::InProgress(live) => return Ok(first_reply(&live, form).await),
        KeyedResponse::Stored(found) => *found,
    };
    if stream {
        return streamed(found);
    }
    let failure = found.failure().filter(|_| !background);
    Ok(failure.map_or_else(|| Json(&found.record.response).into_response(), failed))
}

/// Streams a stored response from its first event on.
fn streamed(found: FoundResponse) -> Result<Response, ApiError> {
    if let Some(events) = found.interrupted_events() {
        return Ok(sse::stream_response(EventSource::InMemory(Some(events))));
    }
    stored::check_continued(&found.record)?;
    Ok(sse::stream_response(EventSource::Recorded(ReplayedEvents::new(found.events))))
}

/// Returns the reply to the first request of a key when its response has ended.
pub(super) fn whole(ended: EndedResponse) -> Response {
    match &ended.end.error {
        Some(failure) => failed(failure.clone()),
        None => super::whole(ended),
    }
}

/// Returns the reply for a failed run. Tells clients not to retry, because a retry with the same key gets the same
/// reply.
fn failed(failure: ResponseFailure) -> Response {
    let error = ApiError { retry_after_s: None, ..failure.api_error() };
    error.not_retryable().into_response()
}

/// Starts a response, or returns the response that an earlier request with the same key started, with its id. Waits
/// while an earlier request starts it.
pub(super) async fn start_once(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    key: String,
) -> Result<(String, KeyedResponse), ApiError> {
    let mut missing = None;
    loop {
        let id = new_id();
        // Register the start before the key is bound: a concurrent request that reads the key must find the start.
        let starting = state.live.begin_start(response_id(id));
        let first = bind(state, caller, &key, id).await?;
        if first == id {
            let live = start_first(state, caller, request, (id, key, starting)).await?;
            return Ok((response_id(id), KeyedResponse::InProgress(live)));
        }
        drop(starting);
        match find_first(state, caller, &request, &response_id(first)).await? {
            FirstResponse::Found(response) => return Ok((response_id(first), response)),
            FirstResponse::Outdated => release(state, caller, &key, first).await,
            FirstResponse::HasStarted => {}
            // Try again once: after this request read the key, the start may have failed and released the key.
            FirstResponse::Missing if missing != Some(first) => missing = Some(first),
            FirstResponse::Missing => return Err(not_stored()),
        }
    }
}

/// Binds the key to a response, unless it is bound. Returns the response that the key is bound to.
async fn bind(state: &ServerState, caller: &Caller, key: &str, id: Uuid) -> Result<Uuid, ApiError> {
    let bound = state.idempotency.bind(&caller.principal, key, SessionId(id.as_u128())).await;
    bound.map(|bound| Uuid::from_u128(bound.0)).map_err(|error: StoreError| {
        state.store_errors.note(StoreKind::IdempotencyKeys, &error);
        ApiError::new(
            ApiErrorKind::ServerError,
            format!("the server cannot store the idempotency key: {error}"),
        )
    })
}

/// Releases a key, unless another request has bound it to another response in the meantime.
async fn release(state: &ServerState, caller: &Caller, key: &str, id: Uuid) {
    state.idempotency.release(&caller.principal, key, SessionId(id.as_u128())).await;
}

/// Starts the response of a key that this request has bound. A disconnect of the client does not interrupt the start.
async fn start_first(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
    (id, key, starting): (Uuid, String, StartingResponse),
) -> Result<Arc<LiveResponse>, ApiError> {
    let (state, caller) = (Arc::clone(state), caller.clone());
    in_own_task(async move {
        let started = detach(&state, &caller, request, id).await;
        if started.is_err() {
            // No run has started, so a corrected request may use the same key.
            release(&state, &caller, &key, id).await;
        }
        // The end of the start wakes up repeated requests, which now find the response or the released key.
        drop(starting);
        started
    })
    .await
}

/// The response that an earlier request has bound to a key.
enum FirstResponse {
    Found(KeyedResponse),
    /// The earlier request was starting the response; this start has ended in the meantime, with or without success.
    HasStarted,
    /// The response is older than the lifetime of keys.
    Outdated,
    Missing,
}

async fn find_first(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    id: &str,
) -> Result<FirstResponse, ApiError> {
    if state.live.wait_for_start(id).await {
        return Ok(FirstResponse::HasStarted);
    }
    if let Some(live) = state.live.get(&caller.principal, id) {
        check_same_request(request, live.request_digest())?;
        return Ok(FirstResponse::Found(KeyedResponse::InProgress(live)));
    }
    let Some(found) = stored::find_with_events(state, caller, id).await? else {
        return Ok(FirstResponse::Missing);
    };
    let lifetime_ms = u64::try_from(KEY_LIFETIME.as_millis()).unwrap_or(u64::MAX);
    if found.record.created_ms.saturating_add(lifetime_ms) < now_ms() {
        return Ok(FirstResponse::Outdated);
    }
    check_same_request(request, found.record.request_digest.as_deref())?;
    Ok(FirstResponse::Found(KeyedResponse::Stored(Box::new(found))))
}

/// The error for a key whose response does not exist. A retry gets the same error, but a new key could repeat the
/// effects of tools, so the client must decide.
fn not_stored() -> ApiError {
    let message = "the response for this idempotency key was not stored, or was deleted; its tools may have had \
                   effects. To run the request again, use a new key";
    ApiError::new(ApiErrorKind::Conflict, message).with_code("idempotency_key_in_use").not_retryable()
}

/// Refuses a key that was used for a different request, because the client would get the response to that request.
fn check_same_request(request: &CreateRequest, first: Option<&str>) -> Result<(), ApiError> {
    match (&request.digest, first) {
        (Some(own), Some(first)) if own != first => {
            let message = "this `Idempotency-Key` was used for a request with another body; use a new key";
            Err(invalid("Idempotency-Key", message).with_code("idempotency_key_reused"))
        }
        _ => Ok(()),
    }
}
