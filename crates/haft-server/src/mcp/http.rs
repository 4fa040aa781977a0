//! Streamable HTTP: one endpoint for protocol revisions with and without a handshake.
//!
//! A client that begins with a handshake has a session, which belongs to its principal. In revisions without sessions,
//! each request is a connection of its own, which ends with its response. The body of a request determines its protocol
//! revision; a header that contradicts the body is an error.

mod headers;
mod login_pages;
mod sessions;
mod stream;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use haft_store::api_keys::KeyScope;
use http::{HeaderMap, Method, StatusCode};
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::headers::{RequestTarget, SESSION_HEADER, check_stateless, param_headers, target};
use self::sessions::{GatewaySession, SessionTable};
use self::stream::{ErrorStatus, empty, event_stream, respond};
use super::client_outputs::OutputOwner;
use super::connection::{ClientConnection, MESSAGE_BYTES_MAX};
use super::gateway::{BuiltinAccess, GatewayUser, McpGateway, OperatorApprovers, TaskListAccess};
pub(crate) use super::logins::LOGIN_PATH;
use super::logins::LoginPlace;
use super::message::{self, ClientMessage, ClientRequest, GatewayError, INVALID_REQUEST};
use super::outbox::Outbox;
use super::shared_tools::ToolPool;
use crate::auth::{self, Caller};
use crate::error::{ApiError, ApiErrorKind};
use crate::protected_resource::ProtectedResource;
use crate::server::ServerState;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

/// The path of the endpoint with a profile.
const PROFILE_PATH: &str = "/mcp/{profile}";

/// The pause between two searches for unused sessions and tools.
const SWEEP_PAUSE: Duration = Duration::from_mins(1);

/// The time after which an unused session ends.
const SESSION_IDLE_MAX: Duration = Duration::from_mins(30);

/// The idle time after which the gateway closes tools that no client uses, and stops the servers behind them.
const TOOLS_IDLE_MAX: Duration = Duration::from_mins(10);

/// The gateway over HTTP.
pub(crate) struct HttpGateway {
    pool: Arc<ToolPool>,
    sessions: SessionTable,
    /// The access to built-in tools if the server requires no API keys; `None` if the scopes of the key decide.
    without_keys: Option<BuiltinAccess>,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

impl HttpGateway {
    /// Returns the name and the state of each upstream server that the gateway holds.
    pub(crate) fn server_states(&self) -> Vec<(String, &'static str)> {
        self.pool.server_states()
    }

    /// Creates the gateway. `approvers` asks callers of the approvals API about the calls of clients that cannot show
    /// forms. `address` is the address at which browsers reach this server.
    pub(crate) fn new(
        gateway: McpGateway,
        (without_keys, approvers): (Option<BuiltinAccess>, Option<OperatorApprovers>),
        address: Option<String>,
    ) -> Arc<Self> {
        let place = address.map_or(LoginPlace::Nowhere, |base| LoginPlace::Pages { base });
        let http = Arc::new(Self {
            pool: Arc::new(ToolPool::new(Arc::new(gateway), place).with_approvers(approvers)),
            sessions: SessionTable::default(),
            without_keys,
            sweeper: Mutex::default(),
        });
        let sweeping = tokio::spawn(sweep(Arc::downgrade(&http)));
        *http.sweeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(sweeping);
        http
    }

    /// Replaces the tools and agents, even in open sessions.
    pub(crate) fn replace(&self, gateway: McpGateway) {
        self.pool.replace(gateway);
    }

    /// Ends all sessions and their streams.
    pub(crate) fn end_sessions(&self) {
        self.sessions.end_all();
    }

    /// Stops the upstream servers.
    pub(crate) async fn close(&self) {
        let sweeping = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sweeping) = sweeping {
            sweeping.abort();
        }
        self.end_sessions();
        self.pool.close().await;
    }

    /// Returns the permissions of a caller. If the server requires no keys, all callers have the permissions that the
    /// operator chose.
    fn user(&self, caller: Caller) -> GatewayUser {
        let has_scope = caller.scopes.contains(&KeyScope::BuiltinTools);
        let by_key = if has_scope { BuiltinAccess::Offered } else { BuiltinAccess::Withheld };
        let task_list = match self.without_keys {
            None => TaskListAccess::Offered,
            Some(_) => TaskListAccess::Withheld,
        };
        let builtin_tools = self.without_keys.unwrap_or(by_key);
        GatewayUser { principal: caller.principal, builtin_tools, task_list, profile: None }
    }

    /// Handles a request whose path names a profile.
    async fn handle_profile(
        &self,
        profile: String,
        caller: Caller,
        request: Request,
        body_timeout: Duration,
    ) -> Response {
        if !self.pool.gateway().profiles.contains_key(&profile) {
            let message = "the gateway has no profile with the name in this path";
            return ApiError::new(ApiErrorKind::NotFound, message).into_response();
        }
        let user = GatewayUser { profile: Some(profile), ..self.user(caller) };
        self.handle(user, request, body_timeout).await
    }

    async fn handle(&self, user: GatewayUser, request: Request, body_timeout: Duration) -> Response {
        let (parts, body) = request.into_parts();
        match parts.method {
            Method::POST => match message_bytes(body, body_timeout).await {
                Ok(bytes) => self.post(user, &parts.headers, &String::from_utf8_lossy(&bytes)).await,
                Err((status, message)) => refusal(status, None, &GatewayError::new(INVALID_REQUEST, message)),
            },
            Method::GET => self.listen(&user, &parts.headers),
            Method::DELETE => self.end_session(&user, &parts.headers),
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(&self, user: GatewayUser, headers: &HeaderMap, body: &str) -> Response {
        let message = match message::read(body) {
            Ok(message) => message,
            Err(unusable) => {
                return refusal(StatusCode::BAD_REQUEST, unusable.id.as_deref(), &unusable.error);
            }
        };
        match target(headers, &message) {
            Ok(RequestTarget::Session(id)) => match self.sessions.find(&id, &user) {
                Some(session) => post_to_session(&session, message).await,
                None => refusal(StatusCode::NOT_FOUND, None, &unknown_session()),
            },
            Ok(RequestTarget::NewSession) => self.begin_session(user, message).await,
            Ok(RequestTarget::Stateless) => self.post_stateless(user, headers, message).await,
            Err(error) => refusal(StatusCode::BAD_REQUEST, id_of(&message), &error),
        }
    }

    async fn begin_session(&self, user: GatewayUser, message: ClientMessage) -> Response {
        let session = GatewaySession::begin(Arc::clone(&self.pool), user);
        let mut response = post_to_session(&session, message).await;
        // A failed handshake leaves no session behind.
        if response.status() == StatusCode::OK && session.is_open() {
            if let Ok(id) = session.id().parse() {
                response.headers_mut().insert(SESSION_HEADER, id);
            }
            self.sessions.add(session);
        }
        response
    }

    async fn post_stateless(
        &self,
        user: GatewayUser,
        headers: &HeaderMap,
        message: ClientMessage,
    ) -> Response {
        let ClientMessage::Request(request) = message else {
            // In these revisions, the response stream is the connection, so a notification has no connection to act on.
            return empty(StatusCode::ACCEPTED);
        };
        if let Err(error) = check_stateless(headers, &request) {
            return refusal(StatusCode::BAD_REQUEST, Some(&request.id), &error);
        }
        let (out, messages) = Outbox::new();
        let connection = ClientConnection::new(Arc::clone(&self.pool), (user, OutputOwner::Principal), out);
        let connection = Arc::new(connection.with_param_headers(param_headers(headers)));
        let receiving = Arc::clone(&connection);
        // Receive in a task, because the outbox must be read at the same time, by `respond`.
        let received = tokio::spawn(async move { receiving.receive(ClientMessage::Request(request)).await });
        respond(messages, ErrorStatus::ByCode, ConnectionGuard { connection, _received: received }).await
    }

    fn listen(&self, user: &GatewayUser, headers: &HeaderMap) -> Response {
        let Some(session) = self.session(user, headers) else {
            return without_session(headers);
        };
        let Some(messages) = session.listen() else {
            let error = GatewayError::new(INVALID_REQUEST, "the session already has an open stream");
            return refusal(StatusCode::CONFLICT, None, &error);
        };
        event_stream(None, messages, session)
    }

    fn end_session(&self, user: &GatewayUser, headers: &HeaderMap) -> Response {
        match self.session(user, headers) {
            Some(session) => {
                self.sessions.end(session.id());
                empty(StatusCode::NO_CONTENT)
            }
            None => without_session(headers),
        }
    }

    fn session(&self, user: &GatewayUser, headers: &HeaderMap) -> Option<Arc<GatewaySession>> {
        let id = headers.get(SESSION_HEADER)?.to_str().ok()?;
        self.sessions.find(id, user)
    }
}

impl std::fmt::Debug for HttpGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpGateway").field("gateway", &self.pool.gateway()).finish_non_exhaustive()
    }
}

/// Returns the routes of the endpoint and of its profiles, which require an API key, and the pages for logins.
pub(crate) fn routes(state: &Arc<ServerState>, gateway: &Arc<HttpGateway>) -> Router<Arc<ServerState>> {
    let pages = login_pages::routes(gateway);
    let body_timeout = state.settings.body_timeout;
    let [gateway, of_profiles] = std::array::from_fn(|_| Arc::clone(gateway));
    let handler = move |caller: Caller, request: Request| {
        let gateway = Arc::clone(&gateway);
        async move { gateway.handle(gateway.user(caller), request, body_timeout).await }
    };
    let profile_handler = move |Path(profile): Path<String>, caller: Caller, request: Request| {
        let gateway = Arc::clone(&of_profiles);
        async move { gateway.handle_profile(profile, caller, request, body_timeout).await }
    };
    let check = from_fn_with_state((Arc::clone(state), ProtectedResource::Mcp), auth::check);
    let routes = Router::new().route(PATH, any(handler)).route(PROFILE_PATH, any(profile_handler));
    routes.layer(check).merge(pages)
}

/// Reads the body of a message. Without the time limit, a client that sends half a message would keep its connection
/// open forever.
async fn message_bytes(body: Body, wait: Duration) -> Result<Bytes, (StatusCode, String)> {
    match timeout(wait, to_bytes(body, MESSAGE_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let message = format!("a message may have at most {MESSAGE_BYTES_MAX} bytes");
            Err((StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => {
            let message = format!("the message did not arrive within {} s", wait.as_secs());
            Err((StatusCode::BAD_REQUEST, message))
        }
    }
}

/// Cancels the calls of a stateless connection when its response ends.
struct ConnectionGuard {
    connection: Arc<ClientConnection>,
    _received: JoinHandle<()>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connection.close();
    }
}

async fn post_to_session(session: &Arc<GatewaySession>, message: ClientMessage) -> Response {
    let id = match &message {
        ClientMessage::Request(ClientRequest { id, .. }) => id.clone(),
        ClientMessage::Notification { .. } | ClientMessage::Reply { .. } => {
            session.connection().receive(message).await;
            return empty(StatusCode::ACCEPTED);
        }
    };
    let Some(messages) = session.open_stream(&id) else {
        let error = GatewayError::new(
            INVALID_REQUEST,
            "this id belongs to a request that has not ended; use another id",
        );
        return refusal(StatusCode::BAD_REQUEST, None, &error);
    };
    session.connection().receive(message).await;
    respond(messages, ErrorStatus::Ok, ReplyReader { session: Arc::clone(session), request: id }).await
}

/// Marks the reply to a session's request as no longer read when the response ends. This does not cancel the request.
struct ReplyReader {
    session: Arc<GatewaySession>,
    request: Box<RawValue>,
}

impl Drop for ReplyReader {
    fn drop(&mut self) {
        self.session.connection().reader_leaves(&self.request);
    }
}

async fn sweep(gateway: std::sync::Weak<HttpGateway>) {
    let mut ticks = interval(SWEEP_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.sessions.end_idle(SESSION_IDLE_MAX);
        gateway.pool.close_idle(TOOLS_IDLE_MAX).await;
    }
}

fn id_of(message: &ClientMessage) -> Option<&RawValue> {
    match message {
        ClientMessage::Request(request) => Some(&request.id),
        ClientMessage::Notification { .. } | ClientMessage::Reply { .. } => None,
    }
}

fn unknown_session() -> GatewayError {
    // Return the same error for the session of another principal, so that the client does not learn that it exists.
    GatewayError::new(
        message::SESSION_NOT_FOUND,
        "there is no session with this `Mcp-Session-Id`; send `initialize` to begin a session",
    )
}

fn without_session(headers: &HeaderMap) -> Response {
    if headers.contains_key(SESSION_HEADER) {
        return refusal(StatusCode::NOT_FOUND, None, &unknown_session());
    }
    empty(StatusCode::METHOD_NOT_ALLOWED)
}

fn refusal(status: StatusCode, id: Option<&RawValue>, error: &GatewayError) -> Response {
    stream::json_response(status, message::failure(id, error))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn incomplete_message_is_refused() {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
        let body = Body::from_stream(first.chain(stream::pending()));
        let began = tokio::time::Instant::now();
        let (status, message) = message_bytes(body, Duration::from_secs(30)).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
        assert_eq!(
            (status, message.as_str()),
            (StatusCode::BAD_REQUEST, "the message did not arrive within 30 s")
        );
    }
}
