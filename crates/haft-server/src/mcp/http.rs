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
use axum::extract::{Path, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use haft_store::api_keys::KeyScope;
use http::{HeaderMap, Method, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::headers::{RequestTarget, SESSION_HEADER, check_stateless, param_headers, target};
use self::sessions::{GatewaySession, SessionTable};
use self::stream::{ErrorStatus, StreamAccess, batch_stream, empty, event_stream, respond};
use super::client_outputs::OutputOwner;
use super::connection::{ClientConnection, MESSAGE_BYTES_MAX};
use super::gateway::{
    BuiltinAccess, GatewayUser, McpGateway, OperatorApprovers, OwnApprovals, TaskListAccess,
};
pub(crate) use super::logins::LOGIN_PATH;
use super::logins::LoginPlace;
use super::message::{
    self, ClientMessage, ClientRequest, GatewayError, INTERNAL_ERROR, INVALID_REQUEST, LISTEN,
};
use super::shared_tools::ToolPool;
use crate::auth::{self, Caller};
use crate::error::{ApiError, ApiErrorKind};
use crate::protected_resource::ProtectedResource;
use crate::server::{ServedRoutes, ServerState};
use crate::settings::AuthMode;

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

/// The settings of the server that determine the permissions of callers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatewayAccess {
    pub(crate) auth: AuthMode,
    pub(crate) routes: ServedRoutes,
}

impl GatewayAccess {
    /// Returns the permissions of a caller.
    fn user(self, caller: Caller) -> GatewayUser {
        let task_list = match self.auth {
            AuthMode::Keys => TaskListAccess::Offered,
            AuthMode::NoAuth => TaskListAccess::Withheld,
        };
        GatewayUser {
            builtin_tools: self.builtin_tools(&caller.scopes),
            own_approvals: self.own_approvals(&caller.scopes),
            principal: caller.principal,
            task_list,
            profile: None,
        }
    }

    /// Decides if a caller may use the built-in tools. If the server has only the gateway and no keys, every caller
    /// may, because the caller is the person who started the server. Otherwise, the key of the caller needs a scope.
    fn builtin_tools(self, scopes: &[KeyScope]) -> BuiltinAccess {
        match (self.auth, self.routes) {
            (AuthMode::NoAuth, ServedRoutes::McpOnly) => BuiltinAccess::Offered,
            (AuthMode::Keys, _) if scopes.contains(&KeyScope::BuiltinTools) => BuiltinAccess::Offered,
            (AuthMode::NoAuth, ServedRoutes::All) | (AuthMode::Keys, _) => BuiltinAccess::Withheld,
        }
    }

    /// Decides if a caller may approve its own calls. On a server with all routes, the caller needs the same scope as
    /// for the approvals API. A server with only the gateway needs no scope, because its clients belong to the person
    /// who started it.
    fn own_approvals(self, scopes: &[KeyScope]) -> OwnApprovals {
        match (self.auth, self.routes) {
            (_, ServedRoutes::McpOnly) => OwnApprovals::Permitted,
            (AuthMode::Keys, ServedRoutes::All) if scopes.contains(&KeyScope::Approvals) => {
                OwnApprovals::Permitted
            }
            (AuthMode::Keys | AuthMode::NoAuth, ServedRoutes::All) => OwnApprovals::Forbidden,
        }
    }
}

/// The gateway over HTTP.
pub(crate) struct HttpGateway {
    pool: Arc<ToolPool>,
    sessions: SessionTable,
    access: GatewayAccess,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

impl HttpGateway {
    /// Returns the name and the state of each upstream server that the gateway holds.
    pub(crate) fn server_states(&self) -> Vec<(String, &'static str)> {
        self.pool.server_states()
    }

    /// Creates the gateway. `approvers` asks callers of the approvals API about the calls of clients that cannot show forms
    /// or may not approve calls. `address` is the address at which browsers reach this server.
    pub(crate) fn new(
        gateway: McpGateway,
        (access, approvers): (GatewayAccess, Option<OperatorApprovers>),
        address: Option<String>,
    ) -> Arc<Self> {
        let place = login_place(address);
        let http = Arc::new(Self {
            pool: Arc::new(ToolPool::new(Arc::new(gateway), place).with_approvers(approvers)),
            sessions: SessionTable::default(),
            access,
            sweeper: Mutex::default(),
        });
        let sweeping = tokio::spawn(sweep(Arc::downgrade(&http)));
        *http.sweeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(sweeping);
        http
    }

    /// Replaces the tools and agents, even in open sessions. `address` is the address at which browsers reach this
    /// server from now on.
    pub(crate) fn replace(&self, gateway: McpGateway, address: Option<String>) {
        self.pool.logins.set_place(login_place(address));
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

    /// Handles a request whose path names a profile.
    async fn handle_profile(&self, profile: String, caller: RenewableCaller, request: Request) -> Response {
        if !self.pool.gateway().profiles.contains_key(&profile) {
            let message = "the gateway has no profile with the name in this path";
            return ApiError::new(ApiErrorKind::NotFound, message).into_response();
        }
        self.handle(Some(profile), caller, request).await
    }

    async fn handle(&self, profile: Option<String>, caller: RenewableCaller, request: Request) -> Response {
        let user = GatewayUser { profile, ..self.access.user(caller.caller.clone()) };
        let body_timeout = caller.state.settings.body_timeout;
        let (parts, body) = request.into_parts();
        match parts.method {
            Method::POST => match message_bytes(body, body_timeout).await {
                Ok(bytes) => {
                    self.post((user, caller), &parts.headers, &String::from_utf8_lossy(&bytes)).await
                }
                Err((status, message)) => refusal(status, None, &GatewayError::new(INVALID_REQUEST, message)),
            },
            Method::GET => self.listen((&user, caller), &parts.headers),
            Method::DELETE => self.end_session(&user, &parts.headers),
            _ => empty(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(
        &self,
        (user, caller): (GatewayUser, RenewableCaller),
        headers: &HeaderMap,
        body: &str,
    ) -> Response {
        if message::is_batch(body)
            && let Some(session) = self.session(&user, headers)
            && session.connection().has_batches()
        {
            return post_batch(&session, body).await;
        }
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
            Ok(RequestTarget::Stateless) => self.post_stateless((user, caller), headers, message).await,
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
        (user, caller): (GatewayUser, RenewableCaller),
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
        let admitted = match self.pool.principals.get(&user.principal).admit(&request.method) {
            Ok(admitted) => admitted,
            Err(message) => {
                let error = GatewayError::new(INTERNAL_ERROR, message);
                return refusal(StatusCode::TOO_MANY_REQUESTS, Some(&request.id), &error);
            }
        };
        let access = match request.method.as_str() {
            LISTEN => StreamAccess::While(Box::new(move || caller.is_valid())),
            _ => StreamAccess::Reply,
        };
        let owner = (user, OutputOwner::Principal);
        let (connection, messages) = ClientConnection::with_outbox(Arc::clone(&self.pool), owner);
        let connection = Arc::new(connection.with_param_headers(param_headers(headers)));
        let receiving = Arc::clone(&connection);
        // Receive in a task, because the outbox must be read at the same time, by `respond`.
        let received = tokio::spawn(async move { receiving.receive(ClientMessage::Request(request)).await });
        let guard = ConnectionGuard { connection, _received: received, _admitted: admitted };
        respond(messages, (access, ErrorStatus::ByCode), guard).await
    }

    fn listen(&self, (user, caller): (&GatewayUser, RenewableCaller), headers: &HeaderMap) -> Response {
        let Some(session) = self.session(user, headers) else {
            return without_session(headers);
        };
        let Some(messages) = session.listen() else {
            let error = GatewayError::new(INVALID_REQUEST, "the session already has an open stream");
            return refusal(StatusCode::CONFLICT, None, &error);
        };
        let of_stream = Arc::clone(&session);
        let has_access = move || {
            let is_valid = caller.is_valid();
            if !is_valid {
                // Note that the client misses a message. If it listens again with a new token, haft tells it that all
                // lists may have changed.
                of_stream.miss_message();
            }
            is_valid
        };
        event_stream(None, messages, StreamAccess::While(Box::new(has_access)), session)
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

fn login_place(address: Option<String>) -> LoginPlace {
    address.map_or(LoginPlace::Nowhere, |base| LoginPlace::Pages { base })
}

impl std::fmt::Debug for HttpGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpGateway").field("gateway", &self.pool.gateway()).finish_non_exhaustive()
    }
}

/// Returns the routes of the endpoint and of its profiles, which require an API key, and the pages for logins.
pub(crate) fn routes(state: &Arc<ServerState>, gateway: &Arc<HttpGateway>) -> Router<Arc<ServerState>> {
    let pages = login_pages::routes(gateway);
    let [gateway, of_profiles] = std::array::from_fn(|_| Arc::clone(gateway));
    let handler = move |State(state): State<Arc<ServerState>>, caller: Caller, request: Request| {
        let gateway = Arc::clone(&gateway);
        async move { gateway.handle(None, RenewableCaller { state, caller }, request).await }
    };
    let profile_handler = move |State(state): State<Arc<ServerState>>,
                                Path(profile): Path<String>,
                                caller: Caller,
                                request: Request| {
        let gateway = Arc::clone(&of_profiles);
        async move { gateway.handle_profile(profile, RenewableCaller { state, caller }, request).await }
    };
    let check = from_fn_with_state((Arc::clone(state), ProtectedResource::Mcp), auth::check);
    let routes = Router::new().route(PATH, any(handler)).route(PROFILE_PATH, any(profile_handler));
    routes.layer(check).merge(pages)
}

/// A caller whose key or token can be checked again.
struct RenewableCaller {
    state: Arc<ServerState>,
    caller: Caller,
}

impl RenewableCaller {
    /// Returns false if the key was revoked, if the key or token has expired, or if its permissions have changed.
    fn is_valid(&self) -> bool {
        let renewed = auth::renewed(&self.state, &self.caller);
        renewed.is_ok_and(|renewed| renewed.scopes == self.caller.scopes)
    }
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
    _admitted: OwnedSemaphorePermit,
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
        return refusal(StatusCode::BAD_REQUEST, None, &id_in_use());
    };
    session.connection().receive(message).await;
    let reader = ReplyReader { session: Arc::clone(session), request: id };
    respond(messages, (StreamAccess::Reply, ErrorStatus::Ok), reader).await
}

/// Handles a batch of messages. The response contains the replies to all its requests. If a message is not valid, refuses
/// the whole batch, before a request has an effect.
async fn post_batch(session: &Arc<GatewaySession>, body: &str) -> Response {
    let refuse = |id: Option<&RawValue>, error: &GatewayError| refusal(StatusCode::BAD_REQUEST, id, error);
    let messages = match message::read_batch(body) {
        Ok(messages) => messages.into_iter().collect::<Result<Vec<ClientMessage>, _>>(),
        Err(error) => return refuse(None, &error),
    };
    let messages = match messages {
        Ok(messages) => messages,
        Err(unusable) => return refuse(unusable.id.as_deref(), &unusable.error),
    };
    let mut streams = Vec::new();
    for message in messages {
        match id_of(&message).map(|id| (session.open_stream(id), id.to_owned())) {
            None => session.connection().receive(message).await,
            Some((Some(stream), request)) => {
                let reader = ReplyReader { session: Arc::clone(session), request };
                streams.push((stream, Some(reader)));
                session.connection().receive(message).await;
            }
            Some((None, _)) => streams.push((stream::single(message::failure(None, &id_in_use())), None)),
        }
    }
    if streams.is_empty() { empty(StatusCode::ACCEPTED) } else { batch_stream(streams) }
}

fn id_in_use() -> GatewayError {
    let message = "this id belongs to a request that has not ended; use another id";
    GatewayError::new(INVALID_REQUEST, message)
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
    stream::json_response(status, message::failure(id, error).into())
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
