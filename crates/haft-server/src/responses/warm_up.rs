//! Warm-up over a WebSocket: a message with `generate: false` prepares a conversation without a model request.

use std::sync::Arc;

use haft_core::conversation::Message;

use super::drive::LastResponse;
use super::field::invalid;
use super::fold::{ResponseFold, StreamEvent};
use super::object::ResponseEnd;
use super::request::CreateRequest;
use super::{Opening, approvals, head_without_run, known_lists, new_id, opening, spec};
use crate::auth::{Caller, now_ms};
use crate::error::ApiError;
use crate::server::ServerState;

/// A response without output, from which the next message of the connection can continue.
pub(super) struct WarmedResponse {
    pub(super) events: Vec<StreamEvent>,
    pub(super) last: LastResponse,
}

/// Checks the request like a request that calls a model, and reads its conversation. The response is never
/// stored: only the next message on the same connection can continue from it.
pub(super) async fn warm_up(
    state: &Arc<ServerState>,
    caller: &Caller,
    mut request: CreateRequest,
    last: Option<&LastResponse>,
) -> Result<WarmedResponse, ApiError> {
    if !approvals::answers(&request)?.is_empty() {
        let message =
            "a message with `generate: false` cannot answer approval requests; leave `generate` out";
        return Err(invalid("generate", message));
    }
    spec::check(state, caller, &request)?;
    let listed = known_lists(state, caller, &request, last).await?;
    let Opening { messages, workspace } = conversation(state, caller, &request, last).await?;
    request.echo.insert("store".into(), false.into());
    let mut fold = ResponseFold::new(head_without_run(state, &mut request, new_id()));
    let mut events = fold.start();
    let id = fold.head().id.clone();
    let end = ResponseEnd { completed_s: Some(now_ms() / 1000), ..ResponseEnd::completed() };
    events.extend(fold.end(&end).1);
    Ok(WarmedResponse {
        events,
        last: LastResponse { id, messages, open_calls: Vec::new(), workspace, listed, suspended: None },
    })
}

/// Returns the conversation of the request. A warm-up may have no input yet.
async fn conversation(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    last: Option<&LastResponse>,
) -> Result<Opening, ApiError> {
    let is_empty =
        request.input.is_empty() && request.previous_response_id.is_none() && request.conversation.is_none();
    if is_empty {
        let messages: Vec<Message> = Vec::new();
        return Ok(Opening { messages, workspace: None });
    }
    opening(state, caller, request, last).await
}
