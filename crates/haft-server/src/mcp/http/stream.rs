//! Responses: one JSON message if the reply is available at once, otherwise a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
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
use crate::mcp::outbox::{HeldBytes, MessageNeed, MessageScope, OutMessage};

/// The time to wait for a reply before the response becomes a stream. Most replies are faster.
const REPLY_WAIT: Duration = Duration::from_millis(200);

/// The maximum size of one frame of a response, in bytes.
const FRAME_BYTES_MAX: usize = 1 << 20;

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

/// The time for which a stream may send messages.
pub(super) enum StreamAccess {
    /// The stream may send messages until the reply to its request. The request had access when it arrived.
    Reply,
    /// The stream may send messages as long as this check returns true. Without the check, a stream of notifications
    /// would continue after the key of its client was revoked.
    While(Box<dyn Fn() -> bool + Send>),
}

impl StreamAccess {
    fn is_valid(&self) -> bool {
        match self {
            Self::Reply => true,
            Self::While(is_valid) => is_valid(),
        }
    }
}

/// Returns the response to a request. `guard` is dropped when the response or its stream ends.
pub(super) async fn respond(
    mut messages: mpsc::Receiver<OutMessage>,
    (access, errors): (StreamAccess, ErrorStatus),
    guard: impl Send + 'static,
) -> Response {
    let first = match timeout(REPLY_WAIT, messages.recv()).await {
        Ok(Some(reply @ OutMessage { scope: MessageScope::Reply(_), .. })) => {
            let status = match errors {
                ErrorStatus::Ok => StatusCode::OK,
                ErrorStatus::ByCode => status_of(&reply.text),
            };
            return json_response(status, reply.into_bytes(("", "")));
        }
        Ok(Some(OutMessage { scope: MessageScope::Cancelled(_), .. })) => return empty(StatusCode::ACCEPTED),
        Ok(Some(other)) => Some(other),
        Ok(None) => return json_response(StatusCode::INTERNAL_SERVER_ERROR, "{}".into()),
        Err(_) => None,
    };
    event_stream(first, messages, access, guard)
}

/// Returns a stream of messages, which ends after a reply, and before the first message without access.
pub(super) fn event_stream(
    first: Option<OutMessage>,
    messages: mpsc::Receiver<OutMessage>,
    access: StreamAccess,
    guard: impl Send + 'static,
) -> Response {
    let state =
        EventStreamState { first, rest: Bytes::new(), messages, access, is_over: false, _guard: guard };
    let events = unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((event, state))
    });
    streamed(event_stream::response(events))
}

/// Returns a stream with the messages of several requests, one request after the other. It ends after the last reply.
pub(super) fn batch_stream<G: Send + 'static>(requests: Vec<(mpsc::Receiver<OutMessage>, G)>) -> Response {
    let states = requests.into_iter().map(|(messages, guard)| EventStreamState {
        first: None,
        rest: Bytes::new(),
        messages,
        access: StreamAccess::Reply,
        is_over: false,
        _guard: guard,
    });
    let states: VecDeque<EventStreamState<G>> = states.collect();
    let events = unfold(states, |mut states| async move {
        loop {
            match states.front_mut()?.next().await {
                Some(event) => return Some((event, states)),
                None => drop(states.pop_front()),
            }
        }
    });
    streamed(event_stream::response(events))
}

/// Returns the messages of a request that ends at once with this message.
pub(super) fn single(text: String) -> mpsc::Receiver<OutMessage> {
    let (send, messages) = mpsc::channel(1);
    let (scope, need, held) = (MessageScope::Connection, MessageNeed::Required, HeldBytes::default());
    // Sending cannot fail, because the channel is empty.
    let _ = send.try_send(OutMessage { scope, need, text, held });
    messages
}

fn streamed(mut response: Response) -> Response {
    let cache = HeaderValue::from_static("no-cache, no-transform");
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

pub(super) fn json_response(status: StatusCode, text: Bytes) -> Response {
    let length = text.len();
    let mut response = Response::new(json_body(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a body whose frames have a limited size. An encrypted connection copies each frame that waits, so a single
/// large frame would stay in memory without being counted.
fn json_body(text: Bytes) -> Body {
    if text.len() <= FRAME_BYTES_MAX {
        return Body::from(text);
    }
    Body::from_stream(unfold(text, |mut rest| async move {
        let frame = next_frame(&mut rest)?;
        Some((Ok::<Bytes, Infallible>(frame), rest))
    }))
}

/// Takes the next frame from the rest of a message; `None` at its end.
fn next_frame(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.len().min(FRAME_BYTES_MAX);
    (length > 0).then(|| rest.split_to(length))
}

struct EventStreamState<G> {
    first: Option<OutMessage>,
    /// The rest of a message whose first frames have been sent.
    rest: Bytes,
    messages: mpsc::Receiver<OutMessage>,
    access: StreamAccess,
    is_over: bool,
    _guard: G,
}

impl<G> EventStreamState<G> {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(frame) = next_frame(&mut self.rest) {
            return Some(frame);
        }
        if self.is_over {
            return None;
        }
        let message = match self.first.take() {
            Some(first) => Some(first),
            None => match timeout(KEEP_ALIVE_PAUSE, self.messages.recv()).await {
                Ok(message) => Some(message?),
                Err(_) => None,
            },
        };
        if !self.access.is_valid() {
            return None;
        }
        let Some(message) = message else { return Some(Bytes::from_static(b":\n\n")) };
        self.is_over = message.scope.is_last();
        if matches!(message.scope, MessageScope::Cancelled(_)) {
            return None;
        }
        self.rest = message.into_bytes(("event: message\ndata: ", "\n\n"));
        next_frame(&mut self.rest)
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::mcp::outbox::{HeldBytes, MessageNeed};

    fn event_state(messages: mpsc::Receiver<OutMessage>, access: StreamAccess) -> EventStreamState<()> {
        EventStreamState { first: None, rest: Bytes::new(), messages, access, is_over: false, _guard: () }
    }

    #[tokio::test(start_paused = true)]
    async fn stream_ends_within_one_pause_after_its_client_loses_access() {
        let (_sender, messages) = mpsc::channel(1);
        let has_access = Arc::new(AtomicBool::new(true));
        let checked = Arc::clone(&has_access);
        let access = StreamAccess::While(Box::new(move || checked.load(Ordering::Relaxed)));
        let mut state = event_state(messages, access);
        assert_eq!(state.next().await.as_deref(), Some(&b":\n\n"[..]));
        has_access.store(false, Ordering::Relaxed);
        assert_eq!(state.next().await, None);
    }

    #[tokio::test]
    async fn notification_is_not_sent_after_its_client_has_lost_access() {
        let (sender, messages) = mpsc::channel(1);
        let access = StreamAccess::While(Box::new(|| false));
        let mut state = event_state(messages, access);
        let message = OutMessage {
            scope: MessageScope::Connection,
            need: MessageNeed::Required,
            text: "secret".into(),
            held: HeldBytes::default(),
        };
        sender.try_send(message).unwrap();
        assert_eq!(state.next().await, None);
    }

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
