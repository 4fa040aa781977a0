//! Responses: one JSON message if the reply is available at once, otherwise a stream of server-sent events.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::event_stream;
use crate::mcp::message::{HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::mcp::outbox::{MessageScope, OutMessage};

/// The time to wait for a reply before the response becomes a stream. Most replies are faster.
const REPLY_WAIT: Duration = Duration::from_millis(200);

/// The interval between two comments on a silent stream, which proxies would otherwise close.
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(15);

/// The HTTP status of an error reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorStatus {
    /// Status 200, because a client interprets 404 as the end of its session.
    Ok,
    /// The status that protocol revisions without sessions define for some errors.
    ByCode,
}

/// Returns the response to a request. `guard` is dropped when the response or its stream ends.
pub(super) async fn respond(
    mut messages: mpsc::Receiver<OutMessage>,
    errors: ErrorStatus,
    guard: impl Send + 'static,
) -> Response {
    let first = match timeout(REPLY_WAIT, messages.recv()).await {
        Ok(Some(OutMessage { scope: MessageScope::Reply(_), text, .. })) => {
            let status = match errors {
                ErrorStatus::Ok => StatusCode::OK,
                ErrorStatus::ByCode => status_of(&text),
            };
            return json_response(status, text);
        }
        Ok(Some(OutMessage { scope: MessageScope::Cancelled(_), .. })) => return empty(StatusCode::ACCEPTED),
        Ok(Some(other)) => Some(other),
        Ok(None) => return json_response(StatusCode::INTERNAL_SERVER_ERROR, "{}".into()),
        Err(_) => None,
    };
    event_stream(first, messages, guard)
}

/// Returns a stream of messages, which ends after a reply.
pub(super) fn event_stream(
    first: Option<OutMessage>,
    messages: mpsc::Receiver<OutMessage>,
    guard: impl Send + 'static,
) -> Response {
    let state = EventStreamState { first, messages, is_over: false, _guard: guard };
    let events = unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((event, state))
    });
    let mut response = event_stream::response(events);
    let cache = HeaderValue::from_static("no-cache, no-transform");
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

pub(super) fn json_response(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

struct EventStreamState<G> {
    first: Option<OutMessage>,
    messages: mpsc::Receiver<OutMessage>,
    is_over: bool,
    _guard: G,
}

impl<G> EventStreamState<G> {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let message = match self.first.take() {
            Some(first) => first,
            None => match timeout(KEEP_ALIVE_PAUSE, self.messages.recv()).await {
                Ok(message) => message?,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            },
        };
        self.is_over = message.scope.is_last();
        if matches!(message.scope, MessageScope::Cancelled(_)) {
            return None;
        }
        Some(Bytes::from(format!("event: message\ndata: {}\n\n", message.text)))
    }
}

/// Returns the HTTP status of a reply. The protocol defines a status for some errors.
fn status_of(reply: &str) -> StatusCode {
    #[derive(Deserialize)]
    struct ErrorReply {
        error: Option<ErrorCode>,
    }
    #[derive(Deserialize)]
    struct ErrorCode {
        code: i64,
    }
    let reply: Option<ErrorReply> = serde_json::from_str(reply).ok();
    match reply.and_then(|reply| reply.error).map(|error| error.code) {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(UNSUPPORTED_VERSION | HEADER_MISMATCH | MISSING_CAPABILITY) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_errors_have_the_http_status_of_the_specification() {
        let check = |reply: &str, expected: u16| assert_eq!(status_of(reply).as_u16(), expected, "{reply}");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}"#, 200);
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}"#, 404);
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":""}}"#, 400);
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":""}}"#, 400);
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":""}}"#, 200);
    }
}
