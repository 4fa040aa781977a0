//! Sends responses over a WebSocket, one at a time. The connection remembers the last response. While a response is in
//! progress, the client can send more input, with which the next response continues (see `steer.rs`).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::{Message as SocketMessage, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use bytes::Bytes;
use haft_core::trace_context::TraceContext;
use haft_store::audit_log::AuditEvent;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::drive::{ActiveResponse, LastResponse};
use super::field::{RequestField, invalid};
use super::foreground::StreamedResponse;
use super::object::EventOptions;
use super::request::CreateRequest;
use super::steer::{self, SteerQueue, SteerStep, SteeredRequest, TakenInput};
use super::warm_up::{WarmedResponse, warm_up};
use super::{model_settings, new_id, request, start};
use crate::accept::ConnectionSlot;
use crate::auth::{self, Caller};
use crate::error::{ApiError, ApiErrorKind};
use crate::rate_limit;
use crate::request_json::parse_object;
use crate::server::ServerState;

/// The maximum number of requests that wait while a response is in progress.
const WAITING_MAX: usize = 16;

/// The error message for a connection that takes no more requests.
const TOO_OLD: &str = "this connection has reached its maximum age; open a new one";

/// The error that the connection is closed, so that the server can send no answer.
struct SocketClosed;

/// A connection and its state.
struct ResponseSocket {
    socket: WebSocket,
    state: Arc<ServerState>,
    caller: Caller,
    /// Requests that arrived while a response was in progress.
    waiting: VecDeque<String>,
    /// The last response, even if it is not stored.
    last: Option<LastResponse>,
    steers: SteerQueue,
    /// The number of the next event. The events of a response and of its steering messages are numbered together.
    sequence: u64,
    /// The time at which the connection takes no more requests.
    end: Instant,
    /// The time at which the server sends a ping, unless it sends another message earlier. Without pings, proxies close
    /// silent connections.
    next_ping: Instant,
    /// The `stream_id` of the current request. Every event of the request repeats it.
    stream_id: Option<String>,
    options: SocketOptions,
}

/// The options that the headers of the handshake set for all responses of a connection.
#[derive(Debug, Clone)]
pub(crate) struct SocketOptions {
    pub(crate) events: EventOptions,
    /// The client's trace context, which all responses of the connection continue.
    pub(crate) trace: Option<TraceContext>,
}

/// A `response.create` message.
struct CreateMessage {
    body: Map<String, Value>,
    stream_id: Option<String>,
    generation: Generation,
}

/// Selects whether a `response.create` message calls the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    On,
    /// The message only prepares the conversation, so that the next message can continue from it.
    WarmUp,
}

/// Answers the handshake. The connection keeps its slot until it closes.
pub(crate) fn accept(
    upgrade: WebSocketUpgrade,
    state: Arc<ServerState>,
    caller: Caller,
    options: SocketOptions,
    slot: Option<ConnectionSlot>,
) -> Response {
    let (bytes_max, times) = (state.settings.body_bytes_max, state.settings.websocket);
    upgrade.max_message_size(bytes_max).max_frame_size(bytes_max).on_upgrade(move |socket| async move {
        let connection = ResponseSocket {
            socket,
            state,
            caller,
            waiting: VecDeque::new(),
            last: None,
            steers: SteerQueue::default(),
            sequence: 0,
            end: Instant::now() + times.age_max,
            next_ping: Instant::now() + times.ping_interval,
            stream_id: None,
            options,
        };
        // Ignore the error: a closed connection needs no further work.
        let _ = connection.serve().await;
        drop(slot);
    })
}

impl ResponseSocket {
    async fn serve(mut self) -> Result<(), SocketClosed> {
        loop {
            let Some(received) = self.request_in_time().await else {
                let error = ApiError::new(ApiErrorKind::InvalidRequest, TOO_OLD);
                let error = error.with_code("websocket_connection_limit_reached");
                self.stream_id = None;
                return self.refuse(&error, &HeaderMap::new()).await;
            };
            let text = received?;
            self.answer(&text).await?;
        }
    }

    /// Returns the next request; `None` if the connection is too old. A request that waits is refused too, because
    /// otherwise a client could keep the connection by always sending the next request early.
    async fn request_in_time(&mut self) -> Option<Result<String, SocketClosed>> {
        if Instant::now() >= self.end {
            return None;
        }
        timeout_at(self.end, self.next_request()).await.ok()
    }

    async fn next_request(&mut self) -> Result<String, SocketClosed> {
        loop {
            if let Some(text) = self.waiting.pop_front() {
                return Ok(text);
            }
            let received = self.next_message().await;
            self.receive(received).await?;
        }
    }

    /// Returns the next message of the client. Sends pings while the connection is silent.
    async fn next_message(&mut self) -> Option<Result<SocketMessage, axum::Error>> {
        loop {
            tokio::select! {
                received = self.socket.recv() => return received,
                () = sleep_until(self.next_ping) => {}
            }
            self.next_ping = Instant::now() + self.state.settings.websocket.ping_interval;
            if let Err(error) = self.socket.send(SocketMessage::Ping(Bytes::new())).await {
                return Some(Err(error));
            }
        }
    }

    /// Answers a steering message at once. Other messages wait for their turn.
    async fn receive(
        &mut self,
        received: Option<Result<SocketMessage, axum::Error>>,
    ) -> Result<(), SocketClosed> {
        match received {
            Some(Ok(SocketMessage::Text(text))) if steer::is_steer(&text) => {
                let answer = self.steers.submit(&text);
                self.send_event(answer).await
            }
            Some(Ok(SocketMessage::Text(text))) if self.waiting.len() < WAITING_MAX => {
                self.waiting.push_back(text.to_string());
                Ok(())
            }
            Some(Ok(SocketMessage::Binary(_) | SocketMessage::Ping(_) | SocketMessage::Pong(_))) => Ok(()),
            // Close the connection of a client that sends more requests than may wait.
            Some(Ok(SocketMessage::Text(_) | SocketMessage::Close(_)) | Err(_)) | None => Err(SocketClosed),
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), SocketClosed> {
        let read = self.read_create(text);
        let continued = read.as_ref().ok().and_then(|(body, _)| continued_id(body));
        let (request, input) = match read {
            Ok((body, Generation::WarmUp)) => return self.warm_up(body, continued.as_deref()).await,
            Ok((body, Generation::On)) => match self.join_steered(body) {
                Ok(SteeredRequest { request, input }) => (Ok(request), input),
                Err(error) => (Err(error), TakenInput::default()),
            },
            Err(error) => (Err(error), TakenInput::default()),
        };
        match self.begin(request).await {
            Ok(response) => {
                self.steers.begin(response.id(), input);
                self.follow(response).await
            }
            Err((error, headers)) => {
                self.forget(continued.as_deref());
                self.refuse(&error, &headers).await?;
                self.send_all(input.returned(&error.message)).await
            }
        }
    }

    fn read_create(&mut self, text: &str) -> Result<(Map<String, Value>, Generation), ApiError> {
        self.stream_id = None;
        let CreateMessage { body, stream_id, generation } = create_message(text)?;
        self.stream_id = stream_id;
        Ok((body, generation))
    }

    /// Prepares a conversation without a model request. Only this connection knows the response.
    async fn warm_up(
        &mut self,
        body: Map<String, Value>,
        continued: Option<&str>,
    ) -> Result<(), SocketClosed> {
        match self.warmed_up(body).await {
            Ok(WarmedResponse { events, last }) => {
                self.sequence = 0;
                self.last = Some(last);
                self.send_all(events.into_iter().map(|event| event.data)).await
            }
            Err((error, headers)) => {
                self.forget(continued);
                self.refuse(&error, &headers).await
            }
        }
    }

    /// Forgets the last response if the refused message named it as `previous_response_id`, so that no later message
    /// continues from it. After any other refused message, the client can still continue from the last response.
    fn forget(&mut self, continued: Option<&str>) {
        self.last.take_if(|last| continued == Some(&last.id));
    }

    async fn warmed_up(
        &mut self,
        body: Map<String, Value>,
    ) -> Result<WarmedResponse, (ApiError, Box<HeaderMap>)> {
        self.caller = auth::renewed(&self.state, &self.caller).map_err(|error| (error, Box::default()))?;
        let starting = async {
            let request = request::parse(body)?;
            Box::pin(warm_up(&self.state, &self.caller, request, self.last.as_ref())).await
        };
        let warmed = rate_limit::start_counted(&self.state, &self.caller, starting).await;
        warmed.inspect_err(|(error, _)| self.audit_refusal(error))
    }

    fn join_steered(&mut self, body: Map<String, Value>) -> Result<SteeredRequest, ApiError> {
        let settings = steer::settings_of(&body);
        let request = request::parse(body)?;
        Ok(self.steers.join(settings, request))
    }

    /// Starts a response. It counts towards the limits of the key, like an HTTP request.
    async fn begin(
        &mut self,
        request: Result<CreateRequest, ApiError>,
    ) -> Result<StreamedResponse, (ApiError, Box<HeaderMap>)> {
        self.caller = auth::renewed(&self.state, &self.caller).map_err(|error| (error, Box::default()))?;
        let starting = async {
            let SocketOptions { events: event_options, trace } = self.options.clone();
            let mut request = CreateRequest { trace, event_options, ..request? };
            model_settings::warn_of_unsupported(&self.state, &mut request);
            // Box the future, because each of the futures around it would otherwise have its size.
            Box::pin(start(&self.state, &self.caller, request, new_id(), self.last.as_ref())).await
        };
        let started = rate_limit::start_counted(&self.state, &self.caller, starting).await;
        started.map(StreamedResponse::new).inspect_err(|(error, _)| self.audit_refusal(error))
    }

    /// Sends the events of a response, and of the successors that continue it with queued input.
    async fn follow(&mut self, mut response: StreamedResponse) -> Result<(), SocketClosed> {
        loop {
            self.send_events(&mut response).await?;
            self.last = response.ended().and_then(ActiveResponse::continuation);
            let step = self.steers.end(response.ended().and_then(ActiveResponse::ended));
            // Drop the ended response first. Otherwise it would still count among the responses in progress when its
            // successor starts, and the limit of the key could refuse the successor.
            drop(response);
            let (input, request) = match step {
                SteerStep::Events(events) => return self.send_all(events).await,
                SteerStep::Successor(input, request) => (input, request),
            };
            if Instant::now() >= self.end {
                return self.send_all(input.returned(TOO_OLD)).await;
            }
            response = match self.begin(request.map(|request| *request)).await {
                Ok(successor) => successor,
                Err((error, _)) => return self.send_all(input.returned(&error.message)).await,
            };
            self.steers.begin(response.id(), input);
        }
    }

    /// Sends the events of a response. Requests that arrive during this time wait.
    async fn send_events(&mut self, response: &mut StreamedResponse) -> Result<(), SocketClosed> {
        self.sequence = 0;
        let handle = response.handle().clone();
        loop {
            if self.steers.is_steered() {
                handle.end_after_turn();
            }
            let events = {
                let mut next = pin!(response.next());
                loop {
                    // Do not use `biased`: a response with many events must not delay the answer to a steering message.
                    let received = tokio::select! {
                        events = &mut next => break events,
                        received = self.next_message() => received,
                    };
                    self.receive(received).await?;
                    if self.steers.is_steered() {
                        handle.end_after_turn();
                    }
                }
            };
            let Some(events) = events else { return Ok(()) };
            self.send_all(events.into_iter().map(|event| event.data)).await?;
        }
    }

    async fn send_all(&mut self, events: impl IntoIterator<Item = Value>) -> Result<(), SocketClosed> {
        for event in events {
            self.send_event(event).await?;
        }
        Ok(())
    }

    /// Sends an event with the next number.
    async fn send_event(&mut self, mut event: Value) -> Result<(), SocketClosed> {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.send(event).await
    }

    /// Writes a refused scope to the audit log, as for a request over HTTP.
    fn audit_refusal(&self, error: &ApiError) {
        if error.code == Some("insufficient_scope") {
            let (principal, event) = (&self.caller.principal, AuditEvent::ScopeDenied);
            self.state.audit.decided(principal, event, "/v1/responses", &error.message);
        }
    }

    async fn refuse(&mut self, error: &ApiError, limits: &HeaderMap) -> Result<(), SocketClosed> {
        let (status, kind) = error.kind.row();
        let code = error.code.unwrap_or(kind);
        let mut body = json!({"type": kind, "code": code, "message": error.message, "param": error.param});
        if let Some(headers) = headers_of(error, limits) {
            body["headers"] = headers;
        }
        self.send(json!({"type": "error", "status": status.as_u16(), "error": body})).await
    }

    async fn send(&mut self, mut value: Value) -> Result<(), SocketClosed> {
        if let Some(id) = &self.stream_id {
            value["stream_id"] = id.as_str().into();
        }
        self.next_ping = Instant::now() + self.state.settings.websocket.ping_interval;
        let sent = self.socket.send(SocketMessage::Text(value.to_string().into())).await;
        sent.map_err(|_| SocketClosed)
    }
}

/// Returns the headers of the error as JSON, because a WebSocket message has no headers.
fn headers_of(error: &ApiError, limits: &HeaderMap) -> Option<Value> {
    let texts =
        limits.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?.to_owned())));
    let after = error.retry_after_s.map(|seconds| ("retry-after", seconds.to_string()));
    let headers: Map<String, Value> =
        texts.chain(after).map(|(name, value)| (name.to_owned(), Value::String(value))).collect();
    (!headers.is_empty()).then_some(Value::Object(headers))
}

/// Returns the id of the response that a message continues.
fn continued_id(body: &Map<String, Value>) -> Option<String> {
    body.get("previous_response_id")?.as_str().map(str::to_owned)
}

/// Reads a `response.create` message. A WebSocket always streams, and does not support background responses.
fn create_message(text: &str) -> Result<CreateMessage, ApiError> {
    let mut body = parse_object(text.as_bytes(), "the message")?;
    match body.remove("type") {
        Some(Value::String(kind)) if kind == "response.create" => {}
        _ => return Err(invalid("type", "`type` must be `response.create` or `response.steer`")),
    }
    // Codex sends the same body as over HTTP, so accept `stream: true` and `background: false`, which change nothing
    // here.
    for (name, usual) in [("stream", true), ("background", false)] {
        if body.get(name) == Some(&Value::Bool(usual)) {
            body.remove(name);
        }
    }
    for name in ["stream", "stream_options", "background"] {
        if body.contains_key(name) {
            return Err(invalid(
                name,
                format!("`{name}` is not supported over a WebSocket; leave the field out"),
            ));
        }
    }
    let stream_id = RequestField::new("stream_id", body.remove("stream_id")).text()?;
    let generates = RequestField::new("generate", body.remove("generate")).boolean()?;
    let generation = if generates == Some(false) { Generation::WarmUp } else { Generation::On };
    Ok(CreateMessage { body, stream_id, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websocket_accepts_only_response_create_messages() {
        let param = |text: &str| create_message(text).map(|_| ()).unwrap_err().param;
        let message = create_message("{\"type\":\"response.create\",\"input\":\"x\"}").unwrap();
        assert_eq!((message.body.contains_key("input"), message.generation), (true, Generation::On));
        assert_eq!(param("{\"type\":\"response.create\",\"stream_id\":1}").as_deref(), Some("stream_id"));
        assert_eq!(param("{\"type\":\"response.create\",\"generate\":0}").as_deref(), Some("generate"));
        assert_eq!(param("{\"type\":\"response.steer\"}").as_deref(), Some("type"));
        let with = |field: &str| format!("{{\"type\":\"response.create\",{field}}}");
        for (field, name) in [
            ("\"stream\":false", "stream"),
            ("\"stream\":1", "stream"),
            ("\"background\":true", "background"),
            ("\"stream_options\":{}", "stream_options"),
        ] {
            assert_eq!(param(&with(field)).as_deref(), Some(name), "{field}");
        }
        for field in ["\"stream\":true", "\"background\":false"] {
            assert!(create_message(&with(field)).unwrap().body.is_empty(), "{field}");
        }
        assert_eq!(param("["), None);
        assert_eq!(param(&with("\"input\":1,\"input\":2")).as_deref(), Some("input"));
    }
}
