//! HTTP with SSE, the oldest way to a server elsewhere: one stream from it, and a second address to write to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Url;

use super::client::{self, client};
use super::event_stream::{Event, EventStream};
use super::{Failure, Forgotten, Inbox, MESSAGE_BYTES_MAX, Transport};
use crate::mcp::auth::Authorizer;
use crate::mcp::message::{Outgoing, RequestId};

/// How often a stream that broke off is taken up again without anything new.
const RESUMES_MAX: usize = 5;

/// How long is waited before that, when the server does not say, and at most.
const RESUME_WAIT: Duration = Duration::from_secs(1);
const RESUME_WAIT_MAX: Duration = Duration::from_mins(1);

/// The shortest wait, whatever the server says.
const RESUME_WAIT_MIN: Duration = Duration::from_millis(100);

/// How many messages may be on their way; a server that takes none gets no more.
const UNTAKEN_MAX: u32 = 1024;

/// How long the server may take to take one.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// How long it may take to take the last.
const FAREWELL_WAIT: Duration = Duration::from_secs(2);

/// A server that is written to at one address and heard from another. Dropping it closes the stream.
pub(crate) struct Sse {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    endpoint: Url,
    inbox: Arc<dyn Inbox>,
    tasks: Mutex<JoinSet<()>>,
    untaken: Arc<Semaphore>,
}

impl Sse {
    /// Opens the stream and waits for the address to write to.
    pub(crate) async fn open(
        url: &Url,
        headers: &[(String, SecretString)],
        auth: Option<Arc<Authorizer>>,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, Failure> {
        let address = Address { client: client(headers)?, auth, url: url.clone() };
        let mut stream = Stream::new(address.stream(None).await?);
        let endpoint = stream.endpoint(url).await?;
        let Address { client, auth, .. } = address.clone();
        let sse = Self {
            client,
            auth,
            endpoint: endpoint.clone(),
            inbox: Arc::clone(&inbox),
            tasks: Mutex::default(),
            untaken: Arc::new(Semaphore::new(UNTAKEN_MAX as usize)),
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

impl Transport for Sse {
    fn send(&self, message: Outgoing) -> Result<(), Failure> {
        let permit = Arc::clone(&self.untaken).try_acquire_owned().map_err(|_| {
            Failure::Broken(format!("the server takes no messages; {UNTAKEN_MAX} are on their way"))
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
                Err(_) => Failure::Closed("the server does not say that it has taken the message".into()),
            };
            if let Some(id) = message.id {
                inbox.failed(id, failure);
            }
        });
        Ok(())
    }

    fn forget(&self, _: RequestId) -> Forgotten {
        Forgotten::NotTold
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.inbox.closed(Failure::Closed("the connection was closed".into()));
            // What was said last, that a call is not wanted any more for one, is still to get there.
            let _ = timeout(FAREWELL_WAIT, self.untaken.acquire_many(UNTAKEN_MAX)).await;
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        })
    }
}

/// Where the stream is to be had.
#[derive(Clone)]
struct Address {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    url: Url,
}

impl Address {
    /// Opens the stream, after the last event that was seen where there is one.
    async fn stream(&self, last: Option<&str>) -> Result<Response, Failure> {
        let mut request = self.client.get(self.url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = client::send(self.auth.as_deref(), request).await?;
        if !response.status().is_success() {
            return Err(client::refusal(&response));
        }
        if client::media_type(&response) != "text/event-stream" {
            return Err(Failure::WrongTransport("the address gives no stream of events".into()));
        }
        Ok(response)
    }
}

/// Reads to the end, and says how it came. Where the server numbers its events, a stream that broke off is taken up again; a
/// server that then names another address to write to has begun anew, and what waits is lost.
async fn follow(mut stream: Stream, address: &Address, endpoint: &Url, inbox: &dyn Inbox) -> Failure {
    let mut failures = 0;
    loop {
        let ended = match stream.follow(address, endpoint, inbox).await {
            failure @ (Failure::TooLarge { .. } | Failure::Broken(_)) => return failure,
            ended => ended,
        };
        let Some(last) = stream.events.last_id.clone().filter(|_| failures < RESUMES_MAX) else {
            return ended;
        };
        failures = if std::mem::take(&mut stream.moved) { 1 } else { failures + 1 };
        sleep(
            stream
                .events
                .retry_millis
                .map_or(RESUME_WAIT, Duration::from_millis)
                .clamp(RESUME_WAIT_MIN, RESUME_WAIT_MAX),
        )
        .await;
        match address.stream(Some(&last)).await {
            Ok(response) => stream.response = Some(response),
            // Nobody there for the moment is no reason to give up; a refusal is.
            Err(Failure::Broken(_) | Failure::Closed(_) | Failure::Unreached(_)) => {}
            Err(_) => return ended,
        }
    }
}

/// The stream, and events that came together with one that was waited for.
struct Stream {
    /// Nothing while it is broken off.
    response: Option<Response>,
    events: EventStream,
    early: Vec<Event>,
    /// Whether anything came since it was last taken up.
    moved: bool,
}

impl Stream {
    fn new(response: Response) -> Self {
        let events = EventStream::new(MESSAGE_BYTES_MAX);
        Self { response: Some(response), events, early: Vec::new(), moved: false }
    }

    /// The events of the next piece; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<Event>>, Failure> {
        let Some(response) = &mut self.response else { return Ok(None) };
        match response.chunk().await.map_err(|error| client::dropped(&error))? {
            Some(chunk) => self.events.push(&chunk).map(Some).map_err(|_| too_large()),
            None => Ok(None),
        }
    }

    /// The first event names the address to write to. It must be on the same host: our headers go there.
    async fn endpoint(&mut self, url: &Url) -> Result<Url, Failure> {
        loop {
            let mut found = self
                .next()
                .await?
                .ok_or_else(|| Failure::Closed("the server ended the stream before it began".into()))?;
            let Some(at) = found.iter().position(|event| event.name == "endpoint") else { continue };
            self.early = found.split_off(at + 1);
            let endpoint = url.join(found[at].data.trim()).ok();
            return endpoint.filter(|endpoint| endpoint.origin() == url.origin()).ok_or_else(|| {
                Failure::Broken("the server wants to be written to at another host, which is refused".into())
            });
        }
    }

    /// Reads to the end of this stream, and says how it came.
    async fn follow(&mut self, address: &Address, endpoint: &Url, inbox: &dyn Inbox) -> Failure {
        let mut events = std::mem::take(&mut self.early);
        loop {
            for event in events {
                match event.name.as_str() {
                    "" | "message" => inbox.received(&event.data, None),
                    "endpoint" if address.url.join(event.data.trim()).ok().as_ref() != Some(endpoint) => {
                        return Failure::Broken("the server has begun a new session".into());
                    }
                    _ => {}
                }
            }
            events = match self.next().await {
                Ok(Some(events)) => events,
                Ok(None) => return Failure::Closed("the server ended the stream".into()),
                Err(failure) => return failure,
            };
            self.moved |= !events.is_empty();
        }
    }
}

fn too_large() -> Failure {
    Failure::TooLarge { bytes_max: MESSAGE_BYTES_MAX }
}
