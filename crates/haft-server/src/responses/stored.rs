//! The routes of stored responses: read, list, delete and cancel them, and list their input items.

use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use haft_core::principal::Principal;
use haft_store::responses::{ListOrder, ResponseListQuery, ResponsePage, ResponseRecord, StoredEvents};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::drive::EndedResponse;
use super::event_block::EventBlock;
use super::field::invalid;
use super::object::{ResponseEnd, ResponseFailure, is_open};
use super::replayed_events::ReplayedEvents;
use super::request::DeltaPadding;
use super::restart;
use super::sse::{self, EventSource};
use super::websocket::{self, SocketOptions};
use super::{event_options, trace_context};
use crate::accept::ConnectionSlot;
use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;

/// The maximum number of entries on a page.
const PAGE_MAX: usize = 100;

/// The default number of entries on a page.
const PAGE_DEFAULT: usize = 20;

/// The `Retry-After` time for a response that is not continued yet, in seconds.
const CONTINUE_RETRY_S: u64 = 1;

/// The page of a list that a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListPage {
    after: Option<String>,
    limit: Option<String>,
    order: Option<String>,
}

/// The query of `GET /v1/responses/{id}`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RetrieveQuery {
    stream: Option<String>,
    starting_after: Option<String>,
    include_obfuscation: Option<String>,
}

impl RetrieveQuery {
    /// Returns the number of the first event; `None` if the client wants the object.
    fn first_event(&self) -> Result<Option<usize>, ApiError> {
        let from = match self.starting_after.as_deref().map(str::parse::<usize>) {
            None => 0,
            Some(Ok(number)) => number.saturating_add(1),
            Some(Err(_)) => {
                return Err(invalid("starting_after", "`starting_after` must be an event number"));
            }
        };
        let streams = boolean("stream", self.stream.as_deref())?;
        Ok((streams == Some(true)).then_some(from))
    }

    /// Returns the padding of the stream; `None` for the padding that the creating request asked for.
    fn padding(&self) -> Result<Option<DeltaPadding>, ApiError> {
        let pads = boolean("include_obfuscation", self.include_obfuscation.as_deref())?;
        Ok(pads.map(|pads| if pads { DeltaPadding::On } else { DeltaPadding::Off }))
    }
}

/// Reads a parameter of a query.
fn boolean(name: &'static str, written: Option<&str>) -> Result<Option<bool>, ApiError> {
    written
        .map(|text| text.parse().map_err(|_| invalid(name, format!("`{name}` must be true or false"))))
        .transpose()
}

/// `GET /v1/responses/{id}`: returns the object, or streams a background response starting at a given event.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<RetrieveQuery>,
) -> Result<Response, ApiError> {
    let (first, padding) = (query.first_event()?, query.padding()?);
    let live = state.live.get(&caller.principal, &id);
    let Some(from) = first else {
        return Ok(match live {
            Some(live) => Json(live.snapshot()).into_response(),
            None => Json(found(&state, &caller, &id).await?.response).into_response(),
        });
    };
    let source = match live {
        Some(live) => EventSource::Follower(live.follow(from)),
        None => EventSource::Recorded(recorded_events(&state, &caller, &id, from).await?),
    };
    Ok(match padding {
        None => sse::stream_response(source),
        Some(padding) => sse::stream_with_padding(source, padding),
    })
}

/// Returns the stored events of a response that has ended, starting at a number.
async fn recorded_events(
    state: &ServerState,
    caller: &Caller,
    id: &str,
    from: usize,
) -> Result<ReplayedEvents, ApiError> {
    let found = find_with_events(state, caller, id).await?.ok_or_else(|| missing(id))?;
    check_continued(&found.record)?;
    let FoundResponse { record, mut events, .. } = found;
    if !record.has_events {
        return Err(invalid(
            "stream",
            "only a response with `background: true` can be streamed after its creation",
        ));
    }
    let events = blocking(move || events.skip(from).map(|()| events)).await?;
    Ok(ReplayedEvents::new(events))
}

/// `GET /v1/responses`: lists the caller's responses, the newest first. With an `Upgrade` header, opens the WebSocket.
pub(crate) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Query(page): Query<ListPage>,
    slot: Option<Extension<ConnectionSlot>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    if let Ok(upgrade) = upgrade {
        let slot = slot.map(|Extension(slot)| slot);
        let options = SocketOptions { events: event_options(&headers)?, trace: trace_context(&headers) };
        return Ok(websocket::accept(upgrade, state, caller, options, slot));
    }
    let (limit, order) = (page_limit(page.limit.as_deref())?, page.order()?);
    let (store, owner, after) = (state.responses.clone(), caller.principal.clone(), page.after.clone());
    let listed =
        blocking(move || store.list(&owner, &ResponseListQuery { after: after.as_deref(), limit, order }));
    let ResponsePage { records, has_more } = listed.await?.ok_or_else(|| page.unknown_after())?;
    let mut responses = Vec::new();
    for record in records {
        responses.push(current_object(&state, &caller, record).await?);
    }
    Ok(Json(list_object(&responses, has_more)).into_response())
}

/// Returns the object of a stored response. Replaces the status of a response that has not ended, because the store has
/// the initial status until then.
async fn current_object(
    state: &ServerState,
    caller: &Caller,
    record: ResponseRecord,
) -> Result<Value, ApiError> {
    if let Some(live) = state.live.get(&caller.principal, &record.id) {
        return Ok(live.snapshot());
    }
    if !is_open(&record.response) {
        return Ok(record.response);
    }
    let current = find(state, caller, &record.id).await?;
    Ok(current.map_or(record.response, |record| record.response))
}

/// `DELETE /v1/responses/{id}`: deletes a response.
pub(crate) async fn delete(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    // A run in progress would store its response again when it ends, so cancel it first.
    stop(&state, &caller.principal, &id).await;
    let (store, deleted) = (state.responses.clone(), id.clone());
    if blocking(move || store.delete(&caller.principal, &deleted)).await? {
        state.pending_approvals.remove(&id);
        return Ok(Json(json!({"id": id, "object": "response", "deleted": true})));
    }
    Err(missing(&id))
}

/// `POST /v1/responses/{id}/cancel`: cancels a background response. Other responses cannot be cancelled by their id.
pub(crate) async fn cancel(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    if let Some(ended) = stop(&state, &caller.principal, &id).await {
        return Ok(Json(ended.response));
    }
    let record = found(&state, &caller, &id).await?;
    check_continued(&record)?;
    if record.response["background"] != true {
        let message = "only a response with `background: true` can be cancelled";
        return Err(ApiError::new(ApiErrorKind::InvalidRequest, message));
    }
    Ok(Json(record.response))
}

/// Cancels a response in progress, and waits for its end. First continues a response of an earlier process, so that its
/// stream and its conversation have the end of the run. Returns `None` if the response is not in progress, or has ended
/// in the meantime.
pub(crate) async fn stop(state: &Arc<ServerState>, owner: &Principal, id: &str) -> Option<EndedResponse> {
    if let Some(continuation) = state.continuations.get(owner, id) {
        restart::continue_cancelled(state, continuation).await;
    }
    let live = state.live.get(owner, id)?;
    Some(live.cancel().await)
}

/// `GET /v1/responses/{id}/input_items`: lists the input items of a response.
pub(crate) async fn input_items(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(page): Query<ListPage>,
) -> Result<Json<Value>, ApiError> {
    let record = found(&state, &caller, &id).await?;
    // Lists begin with the newest item unless the client asks for another order.
    let items = record.input.into_iter().rev().collect();
    page.of(items).map(Json)
}

impl ListPage {
    /// Returns the largest page, the oldest entry first.
    pub(crate) fn all() -> Self {
        Self { after: None, limit: Some(PAGE_MAX.to_string()), order: Some("asc".into()) }
    }

    /// Returns the page of the list `newest_first`.
    pub(crate) fn of(&self, newest_first: Vec<Value>) -> Result<Value, ApiError> {
        let limit = page_limit(self.limit.as_deref())?;
        let mut all = newest_first;
        match self.order()? {
            ListOrder::NewestFirst => {}
            ListOrder::OldestFirst => all.reverse(),
        }
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let place = all.iter().position(|entry| entry["id"] == **after);
                place.ok_or_else(|| self.unknown_after())? + 1
            }
        };
        let rest = &all[start..];
        let data = &rest[..rest.len().min(limit)];
        Ok(list_object(data, rest.len() > data.len()))
    }

    fn order(&self) -> Result<ListOrder, ApiError> {
        match self.order.as_deref() {
            None | Some("desc") => Ok(ListOrder::NewestFirst),
            Some("asc") => Ok(ListOrder::OldestFirst),
            Some(_) => Err(invalid("order", "`order` must be asc or desc")),
        }
    }

    fn unknown_after(&self) -> ApiError {
        let after = self.after.as_deref().unwrap_or_default();
        invalid("after", format!("the list has no entry `{after}`"))
    }
}

/// Returns one page of a list.
fn list_object(data: &[Value], has_more: bool) -> Value {
    let id = |entry: Option<&Value>| entry.map(|entry| entry["id"].clone());
    json!({
        "object": "list", "data": data, "first_id": id(data.first()), "last_id": id(data.last()),
        "has_more": has_more,
    })
}

/// Reads the parameter `limit` of a list.
pub(crate) fn page_limit(written: Option<&str>) -> Result<usize, ApiError> {
    match written.map(str::parse::<usize>) {
        None => Ok(PAGE_DEFAULT),
        Some(Ok(limit)) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(invalid("limit", format!("`limit` must be a number from 1 to {PAGE_MAX}"))),
    }
}

/// A stored response.
pub(crate) struct FoundResponse {
    pub(crate) record: ResponseRecord,
    pub(crate) events: StoredEvents,
    /// True if the process that ran the response ended before the response did, and no process continues it.
    is_interrupted: bool,
}

/// The error of a response whose process has ended before it.
const INTERRUPTED: &str = "the server stopped before the response was complete";

impl FoundResponse {
    /// Returns the reason why the response has failed; `None` if it has not.
    pub(super) fn failure(&self) -> Option<ResponseFailure> {
        ResponseFailure::of_stored(&self.record.response, self.record.error_type.as_deref())
    }

    /// Returns the stream of an interrupted response, whose events are not stored; `None` for other responses.
    pub(super) fn interrupted_events(&self) -> Option<Vec<EventBlock>> {
        self.is_interrupted.then(|| {
            let end = ResponseEnd::failed("server_error", "server_error", INTERRUPTED);
            let (_, events) = restart::ended_object(&self.record, &end);
            events.iter().map(EventBlock::of).collect()
        })
    }

    /// Reports the response as failed, because only background responses are continued.
    fn interrupted(mut self) -> Self {
        self.record.response["status"] = "failed".into();
        self.record.response["error"] = json!({"code": "server_error", "message": INTERRUPTED});
        Self { is_interrupted: true, ..self }
    }
}

/// Returns the record of one of the caller's responses.
pub(crate) async fn find(
    state: &ServerState,
    caller: &Caller,
    id: &str,
) -> Result<Option<ResponseRecord>, ApiError> {
    Ok(find_with_events(state, caller, id).await?.map(|found| found.record))
}

async fn found(state: &ServerState, caller: &Caller, id: &str) -> Result<ResponseRecord, ApiError> {
    find(state, caller, id).await?.ok_or_else(|| missing(id))
}

/// Returns the record of one of the caller's responses, and its stream events.
pub(super) async fn find_with_events(
    state: &ServerState,
    caller: &Caller,
    id: &str,
) -> Result<Option<FoundResponse>, ApiError> {
    let Some(found) = read(state, caller, id).await? else { return Ok(None) };
    let is_running = || state.live.get(&caller.principal, id).is_some() || state.live.is_starting(id);
    if !is_open(&found.record.response) || is_unfinished(&found.record) || is_running() {
        return Ok(Some(found));
    }
    // The response may have ended between the first read and the check. It is stored before it is no longer live, so
    // the second read finds its end.
    let found = read(state, caller, id).await?;
    Ok(found.map(|found| if is_open(&found.record.response) { found.interrupted() } else { found }))
}

async fn read(state: &ServerState, caller: &Caller, id: &str) -> Result<Option<FoundResponse>, ApiError> {
    let (store, owner, id) = (state.responses.clone(), caller.principal.clone(), id.to_owned());
    let read = blocking(move || store.get_with_events(&owner, &id)).await?;
    Ok(read.map(|(record, events)| FoundResponse { record, events, is_interrupted: false }))
}

/// Refuses to read the events of a response, or to cancel it, while no process has continued it after a restart.
pub(super) fn check_continued(record: &ResponseRecord) -> Result<(), ApiError> {
    if !is_unfinished(record) {
        return Ok(());
    }
    let message = "the server has restarted and has not continued this response yet; try again in a moment";
    Err(ApiError::new(ApiErrorKind::Unavailable, message).after(CONTINUE_RETRY_S))
}

/// Returns true if the response is in progress, in this process or in the next one.
fn is_unfinished(record: &ResponseRecord) -> bool {
    is_open(&record.response) && record.response["background"] == true
}

fn missing(id: &str) -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, format!("there is no response `{id}`"))
}

/// Reads or writes files on another thread, because slow disk access would block other requests.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |problem: String| {
        ApiError::new(
            ApiErrorKind::ServerError,
            format!("the server cannot access its stored data: {problem}"),
        )
    };
    match tokio::task::spawn_blocking(work).await {
        // The full error may contain a path of the server, which the client must not see.
        Ok(done) => done.map_err(|error| failed(error.kind().to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_response_list_contain_every_entry_exactly_once() {
        let all: Vec<Value> = (0..5).map(|number| json!({"id": format!("i{number}")})).collect();
        let ids = |page: &Value| -> Vec<String> {
            let data = page["data"].as_array().unwrap().iter();
            data.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
        };
        let page = |after: Option<&str>, order: Option<&str>| {
            let page = ListPage {
                after: after.map(Into::into),
                limit: Some("2".into()),
                order: order.map(Into::into),
            };
            page.of(all.clone()).unwrap()
        };
        let first = page(None, None);
        assert_eq!((ids(&first), &first["has_more"]), (vec!["i0".into(), "i1".into()], &json!(true)));
        let last = page(Some("i3"), None);
        assert_eq!(
            (ids(&last), &last["has_more"], &last["last_id"]),
            (vec!["i4".into()], &json!(false), &json!("i4"))
        );
        assert_eq!(ids(&page(None, Some("asc"))), ["i4", "i3"]);
        for limit in ["0", "101", "x"] {
            let page = ListPage { limit: Some(limit.into()), ..ListPage::default() };
            assert_eq!(page.of(all.clone()).unwrap_err().param.as_deref(), Some("limit"));
        }
        let page = ListPage { after: Some("none".into()), ..ListPage::default() };
        assert_eq!(page.of(all.clone()).unwrap_err().param.as_deref(), Some("after"));
    }
}
