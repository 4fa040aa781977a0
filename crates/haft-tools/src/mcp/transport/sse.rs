//! HTTP with SSE, the oldest way to a server elsewhere: one stream from it, and a second address to write to.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response};
use secrecy::SecretString;
use tokio::task::JoinSet;
use url::Url;

use super::client::{self, client};
use super::event_stream::{Event, EventStream};
use super::{Failure, Forgotten, Inbox, MESSAGE_BYTES_MAX, Transport};
use crate::mcp::auth::Authorizer;
use crate::mcp::message::{Outgoing, RequestId};

/// A server that is written to at one address and heard from another. Dropping it closes the stream.
pub(crate) struct Sse {
    client: Client,
    auth: Option<Arc<Authorizer>>,
    endpoint: Url,
    inbox: Arc<dyn Inbox>,
    tasks: Mutex<JoinSet<()>>,
}

impl Sse {
    /// Opens the stream and waits for the address to write to.
    pub(crate) async fn open(
        url: &Url,
        headers: &[(String, SecretString)],
        auth: Option<Arc<Authorizer>>,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Self, Failure> {
        let client = client(headers)?;
        let request = client.get(url.clone()).header(ACCEPT, "text/event-stream");
        let response = client::send(auth.as_deref(), request).await?;
        if !response.status().is_success() {
            return Err(client::refusal(&response));
        }
        if client::media_type(&response) != "text/event-stream" {
            return Err(Failure::WrongTransport("the address gives no stream of events".into()));
        }
        let mut stream = Stream::new(response);
        let endpoint = stream.endpoint(url).await?;
        let sse = Self { client, auth, endpoint, inbox: Arc::clone(&inbox), tasks: Mutex::default() };
        sse.begin(async move {
            let failure = stream.follow(inbox.as_ref()).await;
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
        let request = self.client.post(self.endpoint.clone()).header(CONTENT_TYPE, "application/json");
        let request = client::with_headers(request, &message.headers).body(message.text);
        let (inbox, auth) = (Arc::clone(&self.inbox), self.auth.clone());
        self.begin(async move {
            let failure = match client::send(auth.as_deref(), request).await {
                Ok(response) if response.status().is_success() => return,
                Ok(response) => client::refusal(&response),
                Err(failure) => failure,
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
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
            self.inbox.closed(Failure::Closed("the connection was closed".into()));
        })
    }
}

/// The stream, and events that came together with one that was waited for.
struct Stream {
    response: Response,
    events: EventStream,
    early: Vec<Event>,
}

impl Stream {
    fn new(response: Response) -> Self {
        Self { response, events: EventStream::new(MESSAGE_BYTES_MAX), early: Vec::new() }
    }

    /// The first event names the address to write to. It must be on the same host: our headers go there.
    async fn endpoint(&mut self, url: &Url) -> Result<Url, Failure> {
        loop {
            let chunk = self.response.chunk().await.map_err(|error| client::dropped(&error))?;
            let chunk =
                chunk.ok_or_else(|| Failure::Closed("the server ended the stream before it began".into()))?;
            let mut found = self.events.push(&chunk).map_err(|_| too_large())?;
            let Some(at) = found.iter().position(|event| event.name == "endpoint") else { continue };
            self.early = found.split_off(at + 1);
            let endpoint = url.join(found[at].data.trim()).ok();
            return endpoint.filter(|endpoint| endpoint.origin() == url.origin()).ok_or_else(|| {
                Failure::Broken("the server wants to be written to at another host, which is refused".into())
            });
        }
    }

    /// Reads to the end, and says how it came.
    async fn follow(mut self, inbox: &dyn Inbox) -> Failure {
        let receive = |events: Vec<Event>| {
            let messages = events.into_iter().filter(|event| matches!(event.name.as_str(), "" | "message"));
            messages.for_each(|event| inbox.received(&event.data, None));
        };
        receive(std::mem::take(&mut self.early));
        let mut stream = self.response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            match chunk.map(|chunk| self.events.push(&chunk)) {
                Ok(Ok(events)) => receive(events),
                Ok(Err(_)) => return too_large(),
                Err(error) => return client::dropped(&error),
            }
        }
        Failure::Closed("the server ended the stream".into())
    }
}

fn too_large() -> Failure {
    Failure::TooLarge { bytes_max: MESSAGE_BYTES_MAX }
}
