//! HTTP with SSE, the oldest remote transport: one event stream from the server, and a second URL to post messages to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::framing::{SseDecoder, SseEvent, StreamLimits};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

use super::client::{self, RemoteAddress, client};
use super::{ForgetOutcome, Inbox, MESSAGE_BYTES_MAX, Transport, TransportFailure};
use crate::mcp::auth::Authorizer;
use crate::mcp::message::{McpOutgoingMessage, RequestId};

/// The maximum number of attempts to resume a broken stream without a new event.
const RESUMES_MAX: usize = 5;

/// The wait before a stream is resumed, if the server sets none.
const RESUME_WAIT: Duration = Duration::from_secs(1);
/// The maximum wait that a server may set before a stream is resumed.
const RESUME_WAIT_MAX: Duration = Duration::from_mins(1);

/// The minimum wait before haft resumes a stream, even if the server asks for less.
const RESUME_WAIT_MIN: Duration = Duration::from_millis(100);

/// The maximum number of messages in flight. haft refuses further messages until the server accepts some.
const PENDING_POSTS_MAX: u32 = 1024;

/// The time in which the server must accept a message.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// On closing, the maximum wait for the messages in flight.
const FAREWELL_WAIT: Duration = Duration::from_secs(2);

/// The connection to an MCP server with two URLs: one for posting messages, and one for reading messages. Dropping it
/// closes the stream.
pub(crate) struct SseTransport {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    endpoint: Url,
    inbox: Arc<dyn Inbox>,
    tasks: Mutex<JoinSet<()>>,
    pending_posts: Arc<Semaphore>,
}

impl SseTransport {
    /// Opens the stream, and waits for the URL to post messages to.
    pub(crate) async fn open(
        remote: RemoteAddress<'_>,
        auth: Option<Arc<Authorizer>>,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, TransportFailure> {
        let address = SseEndpoint { client: client(remote)?, auth, url: remote.url.clone() };
        let mut stream = SseConnection::new(address.stream(None).await?);
        let endpoint = stream.endpoint(remote.url).await?;
        let SseEndpoint { client, auth, .. } = address.clone();
        let sse = Self {
            client,
            auth,
            endpoint: endpoint.clone(),
            inbox: Arc::clone(&inbox),
            tasks: Mutex::default(),
            pending_posts: Arc::new(Semaphore::new(PENDING_POSTS_MAX as usize)),
        };
        sse.begin(async move {
            let failure = follow(stream, &address, &endpoint, inbox.as_ref()).await;
            inbox.closed(failure);
        });
        Ok(sse)
    }

    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }
}

impl Transport for SseTransport {
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        let permit = Arc::clone(&self.pending_posts).try_acquire_owned().map_err(|_| {
            TransportFailure::Broken(format!(
                "the MCP server has not answered the last {PENDING_POSTS_MAX} messages; restart the server, or send fewer calls at once"
            ))
        })?;
        let request = self.client.post(self.endpoint.clone()).header(CONTENT_TYPE, "application/json");
        let request = client::with_headers(request, &message.headers).body(message.text);
        let (inbox, auth) = (Arc::clone(&self.inbox), self.auth.clone());
        self.begin(async move {
            let sent = timeout(TAKE_WAIT, client::send(auth.as_deref(), request)).await;
            drop(permit);
            let failure = match sent {
                Ok(Ok(response)) if response.status().is_success() => return,
                Ok(Ok(response)) => client::refusal(&response),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    TransportFailure::Closed("the MCP server did not confirm the message in time".into())
                }
            };
            if let Some(id) = message.id {
                inbox.failed(id, failure);
            }
        });
        Ok(())
    }

    fn forget(&self, _: RequestId) -> ForgetOutcome {
        ForgetOutcome::NeedsCancellation
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.inbox.closed(TransportFailure::Closed("the connection to the MCP server was closed".into()));
            // Wait for notifications in flight (such as `cancelled`) before closing.
            let _ = timeout(FAREWELL_WAIT, self.pending_posts.acquire_many(PENDING_POSTS_MAX)).await;
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        })
    }
}

/// The URL of the event stream, and the client for it.
#[derive(Clone)]
struct SseEndpoint {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    url: Url,
}

impl SseEndpoint {
    /// Opens the stream. If `last` is given, asks the server to continue after that event.
    async fn stream(&self, last: Option<&str>) -> Result<Response, TransportFailure> {
        let mut request = self.client.get(self.url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = client::send(self.auth.as_deref(), request).await?;
        if !response.status().is_success() {
            return Err(client::refusal(&response));
        }
        if client::media_type(&response) != "text/event-stream" {
            return Err(TransportFailure::WrongTransport(
                "the URL of the MCP server does not return an event stream".into(),
            ));
        }
        Ok(response)
    }
}

/// Reads the stream and returns the reason for its end. Resumes a broken stream if the server sends event ids. If the
/// server then names another URL for messages, it has begun a new session, and the waiting requests are lost.
async fn follow(
    mut stream: SseConnection,
    address: &SseEndpoint,
    endpoint: &Url,
    inbox: &dyn Inbox,
) -> TransportFailure {
    let mut failures = 0;
    loop {
        let ended = match stream.follow(address, endpoint, inbox).await {
            failure @ (TransportFailure::TooLarge { .. } | TransportFailure::Broken(_)) => return failure,
            ended => ended,
        };
        let Some(last) = stream.events.last_id().filter(|_| failures < RESUMES_MAX).map(str::to_owned) else {
            return ended;
        };
        failures = if std::mem::take(&mut stream.moved) { 1 } else { failures + 1 };
        sleep(
            stream
                .events
                .retry_millis()
                .map_or(RESUME_WAIT, Duration::from_millis)
                .clamp(RESUME_WAIT_MIN, RESUME_WAIT_MAX),
        )
        .await;
        match address.stream(Some(&last)).await {
            Ok(response) => stream.response = Some(response),
            // The server may be unavailable only for a moment, so try again. After any other error, the server refuses
            // the stream, so give up.
            Err(
                TransportFailure::Broken(_) | TransportFailure::Closed(_) | TransportFailure::Unreached(_),
            ) => {}
            Err(_) => return ended,
        }
    }
}

/// The stream, and the events that arrived in the same chunk as the `endpoint` event.
struct SseConnection {
    /// The current response. It stays here after its end until a resumed stream replaces it.
    response: Option<Response>,
    events: SseDecoder,
    early: Vec<SseEvent>,
    /// True when an event has arrived since the last resume.
    moved: bool,
}

impl SseConnection {
    fn new(response: Response) -> Self {
        let events = SseDecoder::new(StreamLimits::per_frame(MESSAGE_BYTES_MAX));
        Self { response: Some(response), events, early: Vec::new(), moved: false }
    }

    /// Returns the events of the next chunk; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<SseEvent>>, TransportFailure> {
        let Some(response) = &mut self.response else { return Ok(None) };
        match response.chunk().await.map_err(|error| client::dropped(&error))? {
            Some(chunk) => self.events.push(&chunk).map(Some).map_err(|_| too_large()),
            None => Ok(None),
        }
    }

    /// Waits for the `endpoint` event, which names the URL for messages. The URL must be on the same host, because the
    /// operator's headers are sent to it.
    async fn endpoint(&mut self, url: &Url) -> Result<Url, TransportFailure> {
        loop {
            let mut found = self.next().await?.ok_or_else(|| {
                TransportFailure::Closed(
                    "the MCP server ended the stream before it named its message endpoint".into(),
                )
            })?;
            let Some(at) = found.iter().position(|event| event.name == "endpoint") else { continue };
            self.early = found.split_off(at + 1);
            let endpoint = url.join(found[at].data.trim()).ok();
            return endpoint.filter(|endpoint| endpoint.origin() == url.origin()).ok_or_else(|| {
                TransportFailure::Broken(
                    "the MCP server's message endpoint is on another host, so haft refuses it".into(),
                )
            });
        }
    }

    /// Delivers the events of the current response, and returns the reason for its end.
    async fn follow(&mut self, address: &SseEndpoint, endpoint: &Url, inbox: &dyn Inbox) -> TransportFailure {
        let mut events = std::mem::take(&mut self.early);
        loop {
            for event in events {
                match event.name.as_str() {
                    "" | "message" => inbox.received(&event.data, None),
                    "endpoint" if address.url.join(event.data.trim()).ok().as_ref() != Some(endpoint) => {
                        return TransportFailure::Broken("the MCP server has begun a new session".into());
                    }
                    _ => {}
                }
            }
            events = match self.next().await {
                Ok(Some(events)) => events,
                Ok(None) => return TransportFailure::Closed("the MCP server ended the event stream".into()),
                Err(failure) => return failure,
            };
            self.moved |= !events.is_empty();
        }
    }
}

fn too_large() -> TransportFailure {
    TransportFailure::TooLarge { bytes_max: MESSAGE_BYTES_MAX }
}
