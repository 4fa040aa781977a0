//! Compaction: `POST /v1/responses/compact`, and responses that compact their conversation before they begin.
//!
//! The client gets the compacted conversation encrypted, in an item of type `compaction`. The server does not store it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use haft_core::compaction::size::conversation_tokens;
use haft_core::conversation::{Conversation, Message};
use haft_core::model_reply::TokenUsage;
use haft_core::stored::StoredMessage;
use haft_engine::compact::CompactError;
use haft_runtime::runtime::CompactFailure;
use http::HeaderMap;
use serde_json::{Value, json};

use super::field::invalid;
use super::object::{provider_retry_s, usage_object};
use super::request::CreateRequest;
use super::{new_id, opening, request, sealed_text, spec, trace_context, warnings_header, workspace};
use crate::auth::{Caller, now_ms};
use crate::body::JsonObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::{ActiveWork, ServerState};

/// A compacted conversation, both decrypted and encrypted.
pub(super) struct SealedConversation {
    pub(super) messages: Vec<Message>,
    pub(super) encrypted: String,
    pub(super) usage: Option<TokenUsage>,
}

/// `POST /v1/responses/compact`: replaces old turns with a summary. If a summary would not shorten the conversation,
/// encrypts it unchanged.
pub(crate) async fn compact(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    headers: HeaderMap,
    JsonObject(body): JsonObject,
) -> Result<Response, ApiError> {
    let request = CreateRequest { trace: trace_context(&headers), ..request::parse(body)? };
    if request.model.is_none() {
        // The specification requires the field here, even if the server has a default model.
        return Err(invalid("model", "`model` is missing; name the model that writes the summary"));
    }
    state.unknown_fields.note(&request.unknown_fields);
    let _active = ActiveWork::admit(&state)?;
    let messages = opening(&state, &caller, &request, None).await?.messages;
    let (messages, usage) =
        summarized(&state, &caller, &request, messages.clone()).await?.unwrap_or((messages, None));
    let sealed = sealed(&state, &caller, messages, usage).await?;
    let id = new_id().simple().to_string();
    let mut reply = Json(json!({
        "id": format!("resp_{id}"), "object": "response.compaction", "created_at": now_ms() / 1000,
        "output": [item(&format!("cmp_{id}0000"), &sealed.encrypted)], "usage": usage_object(sealed.usage.unwrap_or_default().into()),
    }))
    .into_response();
    warnings_header::add(&mut reply, &request.warnings.join("; "));
    Ok(reply)
}

/// Compacts the conversation of a response if the conversation is larger than the threshold in the request. Returns
/// `None` if the conversation is smaller, or if a summary would not shorten it.
pub(super) async fn before_response(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    messages: &[Message],
) -> Result<Option<SealedConversation>, ApiError> {
    let Some(threshold) = request.compact_threshold else { return Ok(None) };
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message.clone()).map_err(|error| invalid("input", error.to_string()))?;
    }
    if conversation_tokens(&conversation) <= threshold {
        return Ok(None);
    }
    match summarized(state, caller, request, messages.to_vec()).await? {
        Some((messages, usage)) => sealed(state, caller, messages, usage).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the item that contains an encrypted conversation.
pub(super) fn item(id: &str, encrypted: &str) -> Value {
    json!({"type": "compaction", "id": id, "status": "completed", "encrypted_content": encrypted})
}

/// Replaces old turns with a summary; `None` if a summary would not shorten the conversation.
async fn summarized(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    messages: Vec<Message>,
) -> Result<Option<(Vec<Message>, Option<TokenUsage>)>, ApiError> {
    let target = spec::check(state, caller, request)?;
    let workspace = workspace::of_principal(state, &caller.principal)?;
    let spec = spec::build(&target, caller, request, workspace, messages)?;
    match state.runtime.compact(spec, request.trace.clone()).await {
        Ok(compacted) => {
            let messages = compacted.conversation.messages().iter();
            let messages = messages.map(|message| Message::clone(message)).collect();
            Ok(Some((messages, compacted.usage)))
        }
        Err(CompactFailure::Compact(CompactError::NothingToCompact)) => Ok(None),
        Err(failure) => Err(refused(&failure)),
    }
}

async fn sealed(
    state: &ServerState,
    caller: &Caller,
    messages: Vec<Message>,
    usage: Option<TokenUsage>,
) -> Result<SealedConversation, ApiError> {
    let stored: Vec<StoredMessage> = messages.iter().map(StoredMessage::of).collect();
    let encrypted = sealed_text::seal(state, caller, move || serde_json::to_vec(&stored)).await?;
    Ok(SealedConversation { messages, encrypted, usage })
}

/// Decrypts the compacted conversation of an item. `path` is the JSON path of the item, for error messages.
pub(super) async fn opened(
    state: &ServerState,
    caller: &Caller,
    path: &str,
    encrypted: &str,
) -> Result<Vec<Message>, ApiError> {
    let text = sealed_text::open(state, caller, path, encrypted).await?;
    let param = format!("{path}.encrypted_content");
    let unreadable = |error: String| {
        invalid(param.clone(), format!("the encrypted item contains no valid conversation: {error}"))
            .with_code(sealed_text::INVALID)
    };
    let stored: Vec<StoredMessage> =
        serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    let messages = stored.into_iter().map(StoredMessage::into_message);
    messages.collect::<Result<_, _>>().map_err(|error| unreadable(error.to_string()))
}

fn refused(failure: &CompactFailure) -> ApiError {
    match failure {
        CompactFailure::Start(error) => spec::not_started(error),
        CompactFailure::Conversation(error) => invalid("input", error.to_string()),
        CompactFailure::Compact(CompactError::Limited(error)) => {
            ApiError::new(ApiErrorKind::TooManyRequests, failure.to_string())
                .with_code("rate_limit_exceeded")
                .after(provider_retry_s(error.retry_after))
        }
        CompactFailure::Compact(error) => {
            ApiError::new(ApiErrorKind::ServerError, error.to_string()).with_code("compaction_failed")
        }
    }
}
