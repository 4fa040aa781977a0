//! `/v1/conversations`: items that several responses share.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use haft_store::conversations::{ConversationRecord, ConversationRefusal, NewConversation};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::auth::{Caller, now_ms};
use crate::body::JsonObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::{
    InputItem, ListPage, RequestField, blocking, check_metadata, identified, invalid, resolve_references,
};
use crate::server::ServerState;
use crate::storage_limits;

/// The maximum number of items that one request may add.
const ITEMS_PER_REQUEST_MAX: usize = 20;

/// `POST /v1/conversations`: creates a conversation.
pub(crate) async fn create(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    JsonObject(body): JsonObject,
) -> Result<Json<Value>, ApiError> {
    storage_limits::check(&state, &caller.principal)?;
    let id = Uuid::new_v4().simple().to_string();
    let metadata = metadata(&body)?.unwrap_or_default();
    let items = items(&state, &caller, &body, &id).await?;
    let new = NewConversation { created_s: now_ms() / 1000, metadata, items };
    let (store, owner, id) = (state.conversations.clone(), caller.principal, format!("conv_{id}"));
    let (created, id) = blocking(move || Ok((store.create(&owner, &id, new)?, id))).await?;
    created.map(|record| Json(object(&record))).map_err(|refusal| refused(&id, refusal))
}

/// `GET /v1/conversations/{id}`: returns a conversation of the caller.
pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    find(&state, &caller, &id).await.map(|record| Json(object(&record)))
}

/// `POST /v1/conversations/{id}`: replaces the metadata.
pub(crate) async fn update(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonObject(body): JsonObject,
) -> Result<Json<Value>, ApiError> {
    storage_limits::check(&state, &caller.principal)?;
    let metadata = metadata(&body)?.ok_or_else(|| invalid("metadata", "`metadata` must be an object"))?;
    let changed = change(&state, &caller, &id, move |record| record.metadata = metadata).await?;
    Ok(Json(object(&changed)))
}

/// `DELETE /v1/conversations/{id}`: deletes a conversation, but keeps its responses.
pub(crate) async fn delete(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let (store, deleted) = (state.conversations.clone(), id.clone());
    if blocking(move || store.delete(&caller.principal, &deleted)).await? {
        return Ok(Json(json!({"id": id, "object": "conversation.deleted", "deleted": true})));
    }
    Err(missing(&id))
}

/// `POST /v1/conversations/{id}/items`: adds items to a conversation.
pub(crate) async fn add_items(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    JsonObject(body): JsonObject,
) -> Result<Json<Value>, ApiError> {
    storage_limits::check(&state, &caller.principal)?;
    // The ids begin with the id of the conversation, so that an item reference finds its conversation.
    let unique = format!("{}{:08x}", id.trim_start_matches("conv_"), Uuid::new_v4().as_fields().0);
    let added = items(&state, &caller, &body, &unique).await?;
    if added.is_empty() {
        return Err(invalid("items", "`items` is missing or empty"));
    }
    let listed = ListPage::all().of(added.iter().rev().cloned().collect())?;
    append(&state, &caller, &id, added).await?;
    Ok(Json(listed))
}

/// `GET /v1/conversations/{id}/items`: lists the items of a conversation.
pub(crate) async fn list_items(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(page): Query<ListPage>,
) -> Result<Json<Value>, ApiError> {
    let record = find(&state, &caller, &id).await?;
    page.of(record.items.into_iter().rev().collect()).map(Json)
}

/// `GET /v1/conversations/{id}/items/{item}`: returns one item of a conversation.
pub(crate) async fn get_item(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let record = find(&state, &caller, &id).await?;
    let found = record.items.into_iter().find(|one| one["id"] == item);
    found.map(Json).ok_or_else(|| no_item(&item))
}

/// `DELETE /v1/conversations/{id}/items/{item}`: removes one item of a conversation.
pub(crate) async fn delete_item(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let before = find(&state, &caller, &id).await?;
    if before.items.iter().all(|one| one["id"] != item) {
        return Err(no_item(&item));
    }
    let changed = change(&state, &caller, &id, move |record| record.items.retain(|one| one["id"] != item));
    changed.await.map(|record| Json(object(&record)))
}

/// Returns a conversation of the caller.
pub(crate) async fn find(
    state: &ServerState,
    caller: &Caller,
    id: &str,
) -> Result<ConversationRecord, ApiError> {
    stored(state, caller, id).await?.ok_or_else(|| missing(id))
}

/// Returns a conversation of the caller; `None` if there is none with this id.
pub(crate) async fn stored(
    state: &ServerState,
    caller: &Caller,
    id: &str,
) -> Result<Option<ConversationRecord>, ApiError> {
    let (store, owner, wanted) = (state.conversations.clone(), caller.principal.clone(), id.to_owned());
    blocking(move || store.get(&owner, &wanted)).await
}

/// Appends items, up to the limits of a conversation.
pub(crate) async fn append(
    state: &ServerState,
    caller: &Caller,
    id: &str,
    items: Vec<Value>,
) -> Result<(), ApiError> {
    change(state, caller, id, move |record| record.items.extend(items)).await.map(|_| ())
}

async fn change(
    state: &ServerState,
    caller: &Caller,
    id: &str,
    change: impl FnOnce(&mut ConversationRecord) + Send + 'static,
) -> Result<ConversationRecord, ApiError> {
    let (store, owner, wanted) = (state.conversations.clone(), caller.principal.clone(), id.to_owned());
    let changed = blocking(move || store.change(&owner, &wanted, change)).await?;
    changed.map_err(|refusal| refused(id, refusal))
}

fn refused(id: &str, refusal: ConversationRefusal) -> ApiError {
    match refusal {
        ConversationRefusal::NotFound => missing(id),
        ConversationRefusal::TooManyItems | ConversationRefusal::TooManyBytes => {
            invalid("items", refusal.to_string())
        }
    }
}

fn metadata(body: &Map<String, Value>) -> Result<Option<Map<String, Value>>, ApiError> {
    let field = RequestField::new("metadata", body.get("metadata").cloned());
    let Some(pairs) = field.object()? else { return Ok(None) };
    check_metadata(pairs)?;
    Ok(Some(pairs.clone()))
}

/// Returns the items of a request. Replaces each item reference by its item, and gives every item an id.
async fn items(
    state: &ServerState,
    caller: &Caller,
    body: &Map<String, Value>,
    unique: &str,
) -> Result<Vec<Value>, ApiError> {
    let field = RequestField::new("items", body.get("items").cloned());
    let Some(items) = field.array()? else { return Ok(Vec::new()) };
    if items.len() > ITEMS_PER_REQUEST_MAX {
        let message = format!("`items` has {} items; the limit is {ITEMS_PER_REQUEST_MAX}", items.len());
        return Err(invalid("items", message));
    }
    for (at, item) in items.iter().enumerate() {
        InputItem::parse(&format!("items[{at}]"), item)?;
    }
    let mut items = items.clone();
    resolve_references(state, caller, "items", &mut items).await?;
    Ok(identified(unique, items))
}

fn object(record: &ConversationRecord) -> Value {
    json!({
        "id": record.id, "object": "conversation", "created_at": record.created_s, "metadata": record.metadata,
    })
}

fn missing(id: &str) -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, format!("there is no conversation `{id}`"))
}

fn no_item(id: &str) -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, format!("the conversation has no item `{id}`"))
}
