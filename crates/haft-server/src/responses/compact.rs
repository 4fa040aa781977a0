//! Compaction: `POST /v1/responses/compact`, and responses that compact their conversation before they begin.
//!
//! The compacted conversation goes to the client, sealed in an item `compaction`. The server keeps nothing of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use haft_core::compaction::size::conversation_tokens;
use haft_core::conversation::{Conversation, Message};
use haft_core::model_reply::TokenUsage;
use haft_core::stored::StoredMessage;
use haft_engine::compact::CompactError;
use haft_runtime::runtime::CompactFailure;
use serde_json::{Value, json};

use super::field::invalid;
use super::request::CreateRequest;
use super::stored::blocking;
use super::{new_id, opening, request, spec};
use crate::auth::{Caller, now_ms};
use crate::body::JsonObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::seal::{self, UnsealError};
use crate::server::ServerState;

/// A conversation after compaction, and its sealed form.
pub(super) struct SealedConversation {
    pub(super) messages: Vec<Message>,
    pub(super) encrypted: String,
    usage: Option<TokenUsage>,
}

/// `POST /v1/responses/compact`: a summary in the place of old turns. A conversation that a summary would not shorten is
/// sealed as it is.
pub(crate) async fn compact(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    JsonObject(body): JsonObject,
) -> Result<Json<Value>, ApiError> {
    let request = request::parse(body)?;
    let messages = opening(&state, &caller, &request, None).await?;
    let sealed = compacted(&state, &caller, &request, messages).await?;
    let id = new_id().simple().to_string();
    Ok(Json(json!({
        "id": format!("resp_{id}"), "object": "response.compaction", "created_at": now_ms() / 1000,
        "output": [item(&format!("cmp_{id}0000"), &sealed.encrypted)], "usage": usage(sealed.usage),
    })))
}

/// Compacts the conversation of a response if it is larger than the request permits. Returns `None` if it is not, or if a
/// summary would not shorten it.
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
    compacted(state, caller, request, messages.to_vec()).await.map(Some)
}

/// Returns the item of a sealed conversation.
pub(super) fn item(id: &str, encrypted: &str) -> Value {
    json!({"type": "compaction", "id": id, "status": "completed", "encrypted_content": encrypted})
}

async fn compacted(
    state: &Arc<ServerState>,
    caller: &Caller,
    request: &CreateRequest,
    messages: Vec<Message>,
) -> Result<SealedConversation, ApiError> {
    let spec = spec::build(state, caller, request, messages.clone())?;
    let (messages, usage) = match state.runtime.compact(spec).await {
        Ok(compacted) => {
            let messages = compacted.conversation.messages().iter();
            (messages.map(|message| Message::clone(message)).collect(), compacted.usage)
        }
        Err(CompactFailure::Compact(CompactError::NothingToCompact)) => (messages, None),
        Err(failure) => return Err(refused(&failure)),
    };
    let stored: Vec<StoredMessage> = messages.iter().map(StoredMessage::of).collect();
    let (keys, owner) = (state.seal_keys.clone(), caller.principal.clone());
    let sealed = blocking(move || {
        let text = serde_json::to_vec(&stored)?;
        seal::seal(&keys, &owner, &text, now_ms())
    });
    Ok(SealedConversation { messages, encrypted: sealed.await?, usage })
}

/// Opens the sealed conversation of an item at `path`.
pub(super) async fn opened(
    state: &ServerState,
    caller: &Caller,
    path: &str,
    encrypted: &str,
) -> Result<Vec<Message>, ApiError> {
    let (keys, owner, text) = (state.seal_keys.clone(), caller.principal.clone(), encrypted.to_owned());
    let opened = blocking(move || Ok(seal::open(&keys, &owner, &text))).await?;
    let param = format!("{path}.encrypted_content");
    let text = opened.map_err(|error| match error {
        UnsealError::Invalid => {
            invalid(param.clone(), "this is not a conversation that this server sealed for you")
                .with_code("invalid_encrypted_content")
        }
        UnsealError::UnknownKey => {
            let message = "the key of this sealed conversation is no longer kept";
            invalid(param.clone(), message).with_code("invalid_encrypted_content")
        }
        UnsealError::Keys(error) => {
            ApiError::new(ApiErrorKind::ServerError, format!("the keys cannot be read: {error}"))
        }
    })?;
    let unreadable =
        |error: String| invalid(param.clone(), format!("the conversation cannot be read: {error}"));
    let stored: Vec<StoredMessage> =
        serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    let messages = stored.into_iter().map(StoredMessage::into_message);
    messages.collect::<Result<_, _>>().map_err(|error| unreadable(error.to_string()))
}

fn refused(failure: &CompactFailure) -> ApiError {
    match failure {
        CompactFailure::Start(error) => spec::not_started(error),
        CompactFailure::Conversation(error) => invalid("input", error.to_string()),
        CompactFailure::Compact(error) => {
            ApiError::new(ApiErrorKind::ServerError, error.to_string()).with_code("compaction_failed")
        }
    }
}

fn usage(usage: Option<TokenUsage>) -> Value {
    let usage = usage.unwrap_or_default();
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
