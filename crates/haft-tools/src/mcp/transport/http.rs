//! Streamable HTTP for protocol revisions with and without a handshake: one HTTP request per message, answered by a
//! message or by an event stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use haft_core::framing::{SseDecoder, StreamLimits};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::client::{self, RemoteAddress, client};
use super::{ForgetOutcome, Inbox, MESSAGE_BYTES_MAX, Transport, TransportFailure};
use crate::mcp::auth::Authorizer;
use crate::mcp::era::MODERN;
use crate::mcp::message::{self, JsonRpcMessage, McpOutgoingMessage, RequestId};

const SESSION: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";

/// The maximum number of attempts to resume a broken stream.
const RESUMES_MAX: usize = 5;

/// The wait before a stream is resumed, if the server sets none.
const RESUME_WAIT: Duration = Duration::from_secs(1);

/// The maximum wait that a server may set before a stream is resumed.
const RESUME_WAIT_MAX: Duration = Duration::from_mins(1);

/// The minimum wait before a stream is resumed, even if the server asks for less. A server that ends every stream at
/// once must not cause a busy loop.
const RESUME_WAIT_MIN: Duration = Duration::from_millis(100);

/// The maximum length of a session id, in bytes. Every request repeats the id.
const SESSION_BYTES_MAX: usize = 1024;

/// The maximum number of replies and notifications in flight. haft refuses to send more, so that a server that sends
/// requests but accepts no replies cannot fill the memory.
const PENDING_POSTS_MAX: u32 = 64;

/// The time in which the server must accept one reply or notification.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// On closing, the maximum wait for the messages in flight, and then for the request that ends the session.
const FAREWELL_WAIT: Duration = Duration::from_secs(2);

/// The connection to an MCP server at a URL. Dropping it closes all its streams.
#[derive(Debug)]
pub(crate) struct StreamableHttpTransport {
    line: Arc<HttpSessionState>,
    tasks: Mutex<JoinSet<()>>,
    pending_posts: Arc<Semaphore>,
}

/// The state that all exchanges share.
struct HttpSessionState {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    url: Url,
    inbox: Arc<dyn Inbox>,
    /// The session id from the server; only protocol revisions with a handshake have sessions.
    session: Mutex<Option<String>>,
    /// The running exchanges, by request id.
    running: Mutex<HashMap<RequestId, RunningExchange>>,
    /// The protocol version header, for messages without headers of their own.
    version: Mutex<Vec<(String, String)>>,
}

struct RunningExchange {
    task: AbortHandle,
    /// True for protocol revisions without sessions, in which closing the stream cancels the request.
    modern: bool,
}

impl StreamableHttpTransport {
    pub(crate) fn new(
        address: RemoteAddress<'_>,
        auth: Option<Arc<Authorizer>>,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, TransportFailure> {
        let line = HttpSessionState {
            client: client(address)?,
            auth,
            url: address.url.clone(),
            inbox,
            session: Mutex::default(),
            running: Mutex::default(),
            version: Mutex::default(),
        };
        Ok(Self {
            line: Arc::new(line),
            tasks: Mutex::default(),
            pending_posts: Arc::new(Semaphore::new(PENDING_POSTS_MAX as usize)),
        })
    }

    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work)
    }
}

impl StreamableHttpTransport {
    /// Posts a message that gets no reply: an answer to a request from the server, or a notification.
    fn post_and_forget(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let permit = Arc::clone(&self.pending_posts).try_acquire_owned().map_err(|_| {
            TransportFailure::Broken(format!(
                "the MCP server has not answered the last {PENDING_POSTS_MAX} messages; restart the server, or send fewer calls at once"
            ))
        })?;
        let line = Arc::clone(&self.line);
        let initialized = message.method == "notifications/initialized";
        if initialized {
            line.version.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&message.headers);
        }
        self.begin(async move {
            // Ignore the outcome, because no caller waits for it.
            let _ = timeout(TAKE_WAIT, line.exchange(&message)).await;
            drop(permit);
            if initialized {
                line.listen().await;
            }
        });
        Ok(())
    }
}

impl Transport for StreamableHttpTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let line = Arc::clone(&self.line);
        let (id, modern) = (message.id, is_modern(&message));
        if id.is_none() {
            return self.post_and_forget(message);
        }
        // Hold the lock until the exchange is registered. Otherwise the exchange could end first, and its entry would
        // never be removed.
        let mut running = self.line.running.lock().unwrap_or_else(PoisonError::into_inner);
        let task = self.begin(async move {
            let outcome = line.exchange(&message).await;
            if let Some(id) = message.id {
                line.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                if let Err(failure) = outcome {
                    line.inbox.failed(id, failure);
                }
            }
        });
        if let Some(id) = id {
            running.insert(id, RunningExchange { task, modern });
        }
        Ok(())
    }

    fn forget(&self, id: RequestId) -> ForgetOutcome {
        let running = self.line.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        match running {
            Some(RunningExchange { task, modern }) => {
                task.abort();
                if modern { ForgetOutcome::Cancelled } else { ForgetOutcome::NeedsCancellation }
            }
            None => ForgetOutcome::Cancelled,
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.line.abort_running();
            self.line
                .inbox
                .closed(TransportFailure::Closed("the connection to the MCP server was closed".into()));
            // Wait for notifications in flight (such as `cancelled`) before closing.
            let _ = timeout(FAREWELL_WAIT, self.pending_posts.acquire_many(PENDING_POSTS_MAX)).await;
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
            if self.line.session().is_some() {
                let farewell = self.line.with_session_header(self.line.client.delete(self.line.url.clone()));
                let _ = timeout(FAREWELL_WAIT, self.line.send(farewell)).await;
            }
        })
    }
}

impl HttpSessionState {
    fn abort_running(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.drain().for_each(|(_, exchange)| exchange.task.abort());
    }

    /// Posts a message and delivers the response to it.
    async fn exchange(&self, message: &McpOutgoingMessage) -> Result<(), TransportFailure> {
        let response = self.send(self.post(message)).await?;
        if !response.status().is_success() {
            return self.refused(response, message).await;
        }
        if message.method == "initialize"
            && let Some(session) = response.headers().get(SESSION).and_then(|value| value.to_str().ok())
        {
            if session.len() > SESSION_BYTES_MAX {
                let bytes = session.len();
                let message = format!(
                    "the MCP server's session id has {bytes} bytes; the limit is {SESSION_BYTES_MAX}"
                );
                return Err(TransportFailure::Broken(message));
            }
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.to_owned());
        }
        match (client::media_type(&response).as_str(), message.id) {
            (_, None) => Ok(()),
            ("application/json", id) => {
                let text = client::text(response).await?;
                if message::read(&text).is_empty() {
                    return Err(TransportFailure::Broken(
                        "the MCP server's answer is not a JSON-RPC message".into(),
                    ));
                }
                self.inbox.received(&text, id);
                Ok(())
            }
            (EVENT_STREAM, Some(id)) => self.follow_reply(response, id, is_modern(message)).await,
            (other, Some(_)) => Err(TransportFailure::WrongTransport(format!(
                "the server answered with media type `{other}`, which is not MCP"
            ))),
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, TransportFailure> {
        client::send(self.auth.as_deref(), request).await
    }

    fn post(&self, message: &McpOutgoingMessage) -> RequestBuilder {
        let mut request = self.with_session_header(self.client.post(self.url.clone()));
        request = request.header(ACCEPT, "application/json, text/event-stream");
        request = request.header(CONTENT_TYPE, "application/json");
        if is_modern(message) {
            request = request.header("mcp-method", message.method.as_ref());
        }
        let headers: &[(String, String)] =
            if message.headers.is_empty() { &self.version() } else { &message.headers };
        client::with_headers(request, headers).body(message.text.clone())
    }

    fn with_session_header(&self, request: RequestBuilder) -> RequestBuilder {
        match self.session() {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    fn session(&self) -> Option<String> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn version(&self) -> Vec<(String, String)> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Handles an error status. The body may contain a JSON-RPC error with more details. In a session, the status may
    /// mean that the session has expired.
    async fn refused(
        &self,
        response: Response,
        message: &McpOutgoingMessage,
    ) -> Result<(), TransportFailure> {
        let (status, failure) = (response.status(), client::refusal(&response));
        let text = client::explanation(response).await;
        if self.session().is_some() && is_expired(status, &text) {
            return Err(TransportFailure::SessionExpired);
        }
        let replies = message::read(&text);
        match (&failure, message.id) {
            (TransportFailure::NeedsAuth(_), _) | (_, None) => Err(failure),
            (_, id) if replies.iter().any(|reply| matches!(reply, JsonRpcMessage::Reply { .. })) => {
                self.inbox.received(&text, id);
                Ok(())
            }
            (_, Some(_)) => Err(failure),
        }
    }

    /// Reads the event stream of one reply. For protocol revisions with a handshake, resumes a broken stream if the
    /// server sends event ids.
    async fn follow_reply(
        &self,
        response: Response,
        id: RequestId,
        modern: bool,
    ) -> Result<(), TransportFailure> {
        let mut events = SseDecoder::new(StreamLimits::per_frame(MESSAGE_BYTES_MAX));
        let mut ended = self.follow(response, &mut events, Some(id)).await;
        for _ in 0..RESUMES_MAX {
            match ended {
                Err(failure @ TransportFailure::TooLarge { .. }) => return Err(failure),
                Ok(()) | Err(_) if !self.inbox.waiting().contains(&id) => return Ok(()),
                Ok(()) | Err(_) if modern || events.last_id().is_none() => break,
                Ok(()) | Err(_) => {}
            }
            sleep(resume_wait(&events)).await;
            ended = match self.resume(&events).await {
                Ok(response) => self.follow(response, &mut events, Some(id)).await,
                Err(failure) => Err(failure),
            };
        }
        if !self.inbox.waiting().contains(&id) {
            return Ok(());
        }
        // The server accepted the request and may have performed it. Therefore report an error of the stream as
        // `Closed`, which tells the caller so.
        Err(match ended {
            Ok(()) => {
                TransportFailure::Closed("the MCP server ended the stream before it sent its reply".into())
            }
            Err(failure @ TransportFailure::TooLarge { .. }) => failure,
            Err(failure) => TransportFailure::Closed(failure.to_string()),
        })
    }

    async fn follow(
        &self,
        response: Response,
        events: &mut SseDecoder,
        answers: Option<RequestId>,
    ) -> Result<(), TransportFailure> {
        let mut stream = response.bytes_stream();
        let mut next = stream.next().await;
        while let Some(chunk) = next {
            let chunk = chunk.map_err(|error| client::dropped(&error))?;
            let found = events
                .push(&chunk)
                .map_err(|_| TransportFailure::TooLarge { bytes_max: MESSAGE_BYTES_MAX })?;
            // Before delivering the events, read the end of the stream if it has already arrived. The connection is
            // then free for a request that an event may trigger.
            let ready = stream.next().now_or_never();
            for event in found.iter().filter(|event| !event.data.is_empty()) {
                self.inbox.received(&event.data, answers);
            }
            next = match ready {
                Some(next) => next,
                None => stream.next().await,
            };
        }
        Ok(())
    }

    async fn resume(&self, events: &SseDecoder) -> Result<Response, TransportFailure> {
        let mut request =
            self.with_session_header(self.client.get(self.url.clone())).header(ACCEPT, EVENT_STREAM);
        if let Some(last) = events.last_id() {
            request = request.header("last-event-id", last);
        }
        let request = client::with_headers(request, &self.version());
        let response = self.send(request).await?;
        let is_stream = client::media_type(&response) == EVENT_STREAM;
        if response.status().is_success() && is_stream {
            Ok(response)
        } else {
            Err(client::refusal(&response))
        }
    }

    /// Reads the messages that a server with sessions sends outside of replies. Returns if the server does not offer
    /// such a stream.
    async fn listen(&self) {
        let mut events = SseDecoder::new(StreamLimits::per_frame(MESSAGE_BYTES_MAX));
        let mut failures = 0;
        while failures < RESUMES_MAX {
            match self.resume(&events).await {
                Ok(response) => {
                    let opened = Instant::now();
                    // Ignore the result and reopen the stream. Count a stream that ended at once as a failure, so that
                    // a server that always ends it causes no endless loop.
                    let _ = self.follow(response, &mut events, None).await;
                    failures = if opened.elapsed() < RESUME_WAIT { failures + 1 } else { 0 };
                }
                Err(
                    TransportFailure::Broken(_)
                    | TransportFailure::Closed(_)
                    | TransportFailure::Unreached(_),
                ) => failures += 1,
                Err(_) => return,
            }
            sleep(resume_wait(&events)).await;
        }
    }
}

impl std::fmt::Debug for HttpSessionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSessionState").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

fn is_modern(message: &McpOutgoingMessage) -> bool {
    message.headers.iter().any(|(name, value)| name == "mcp-protocol-version" && value == MODERN)
}

/// Returns whether the session has expired. The protocol specifies 404; real servers also send 400 with a text about
/// the session.
fn is_expired(status: StatusCode, text: &str) -> bool {
    status == StatusCode::NOT_FOUND
        || (status == StatusCode::BAD_REQUEST && text.to_ascii_lowercase().contains("session"))
}

fn resume_wait(events: &SseDecoder) -> Duration {
    events.retry_millis().map_or(RESUME_WAIT, Duration::from_millis).clamp(RESUME_WAIT_MIN, RESUME_WAIT_MAX)
}
