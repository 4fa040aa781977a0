//! The Responses API: `POST /v1/responses`, and the routes of stored responses.
//!
//! Start reading at [`create`]. `request` and its neighbours parse without IO, `spec` makes the run, `fold` turns its
//! events into items and stream events, and `drive` joins them.

mod drive;
mod field;
mod fold;
mod items;
mod object;
mod request;
mod spec;
mod sse;
mod stored;
mod tool_choice;
mod tools;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use haft_core::conversation::Message;
use haft_core::stored::StoredMessage;
use haft_runtime::{AnswerSource, RunHooks, RunSecrets};
use http::HeaderValue;
use uuid::Uuid;

use crate::auth::{Caller, now_ms};
use crate::body::JsonObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;
use drive::{ActiveResponse, EndedResponse, ResponseStorage};
use field::invalid;
use fold::ResponseFold;
use items::ConversationBuilder;
use object::ResponseHead;
use request::CreateRequest;

pub(crate) use stored::{cancel, delete, get, input_items, list};

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    JsonObject(body): JsonObject,
) -> Result<Response, ApiError> {
    let request = request::parse(body)?;
    if request.background {
        return Err(invalid("background", "`background: true` is not supported yet; leave it out"));
    }
    let warnings = request.warnings.join("; ");
    let (stream, active) = (request.stream, start(&state, &caller, request).await?);
    let mut response = if stream { sse::stream_response(active) } else { whole(active.finished().await) };
    if let (false, Ok(value)) = (warnings.is_empty(), HeaderValue::from_str(&warnings)) {
        response.headers_mut().insert("haft-warnings", value);
    }
    Ok(response)
}

async fn start(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: CreateRequest,
) -> Result<ActiveResponse, ApiError> {
    let opening = opening(state, caller, &request).await?;
    let spec = spec::build(state, caller, &request, opening)?;
    let head = ResponseHead {
        id: format!("resp_{}", Uuid::new_v4().simple()),
        created_s: now_ms() / 1000,
        model: request.model.clone().unwrap_or_else(|| default_model(state)),
        echo: request.echo,
        mcp_servers: state.runtime.config().mcp_servers.keys().cloned().collect(),
    };
    let hooks = RunHooks {
        approvals: AnswerSource::Denied,
        elicitations: AnswerSource::Denied,
        keeps_session: request.store,
        ..RunHooks::default()
    };
    let started = state.runtime.start_with(spec, RunSecrets::none(), hooks).await;
    let handle = started.map_err(|error| spec::not_started(&error))?;
    let storage = if request.store { ResponseStorage::Stored } else { ResponseStorage::Discarded };
    let input = identified(&head.id, request.input_items);
    Ok(ActiveResponse::new(Arc::clone(state), handle, ResponseFold::new(head), input, storage))
}

/// The whole conversation: that of the previous response, and the new items.
async fn opening(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
) -> Result<Vec<Message>, ApiError> {
    let mut builder = match &request.previous_response_id {
        None if request.input.is_empty() => return Err(invalid("input", "`input` is missing or empty")),
        None => ConversationBuilder::default(),
        Some(id) => {
            let missing = || {
                let message = format!("there is no stored response `{id}`");
                invalid("previous_response_id", message).with_code("previous_response_not_found")
            };
            let record = stored::find(state, caller, id).await?.ok_or_else(missing)?;
            let messages = record.messages.into_iter().map(StoredMessage::into_message);
            let messages = messages.collect::<Result<Vec<_>, _>>().map_err(|error| {
                ApiError::new(ApiErrorKind::ServerError, format!("the response {id} cannot be read: {error}"))
            })?;
            ConversationBuilder::after(messages, &record.open_calls)
        }
    };
    for (at, item) in request.input.iter().enumerate() {
        builder.push(&format!("input[{at}]"), item.clone())?;
    }
    builder.finish()
}

fn default_model(state: &ServerState) -> String {
    state.runtime.config().models.default.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Gives each input item an id, for `/input_items`.
fn identified(response: &str, items: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    let of_response = response.trim_start_matches("resp_");
    let identify = |(at, mut item): (usize, serde_json::Value)| {
        if item.get("id").is_none_or(serde_json::Value::is_null) {
            item["id"] = format!("item_{of_response}{at:04x}").into();
        }
        if item.get("type").is_none_or(serde_json::Value::is_null) {
            item["type"] = "message".into();
        }
        item
    };
    items.into_iter().enumerate().map(identify).collect()
}

/// A failed run is an HTTP error, as clients expect. They would repeat the request by themselves, unless a tool has begun.
fn whole(ended: EndedResponse) -> Response {
    let EndedResponse { response, end, tool_began } = ended;
    let Some(error) = end.error else { return Json(response).into_response() };
    let kind = match error.kind {
        "too_many_requests" => ApiErrorKind::TooManyRequests,
        "model_error" => ApiErrorKind::ModelError,
        _ => ApiErrorKind::ServerError,
    };
    let mut failed = ApiError::new(kind, error.message).with_code(error.code);
    failed.should_retry = tool_began.then_some(false);
    failed.into_response()
}
