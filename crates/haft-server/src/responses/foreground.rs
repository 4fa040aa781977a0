//! Responses whose clients wait on their connections. If a client disconnects, its run is cancelled, and the response is
//! stored with the output so far.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use haft_runtime::RunHandle;
use haft_store::audit_log::AuditEvent;
use tokio::runtime::Handle;

use super::cut_requests::RequestIdentity;
use super::drive::{ActiveResponse, EndedResponse};
use super::fold::StreamEvent;
use crate::server::ServerState;

/// A response that is streamed. Dropping it before the end means that the client has disconnected.
pub(crate) struct StreamedResponse {
    /// The steps of the response; `None` after its end. The stream owns the response and each future that works on it,
    /// so that a disconnect cannot interrupt the storing of the response.
    work: Option<BoxStream<'static, StreamStep>>,
    ended: Option<Box<ActiveResponse>>,
    client: WaitingClient,
}

/// Events of a response. The last events come together with the response itself.
type StreamStep = (Vec<StreamEvent>, Option<Box<ActiveResponse>>);

impl StreamedResponse {
    pub(crate) fn new(active: ActiveResponse) -> Self {
        let client = WaitingClient::of(&active);
        let steps = stream::unfold(Some(Box::new(active)), |active| async move {
            let mut active = active?;
            let events = active.next().await.unwrap_or_default();
            let (ended, rest) = if active.has_ended() { (Some(active), None) } else { (None, Some(active)) };
            Some(((events, ended), rest))
        });
        Self { work: Some(steps.boxed()), ended: None, client }
    }

    /// Returns the next events; `None` after the last ones. Cancelling this future loses no events.
    pub(crate) async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        loop {
            let (events, ended) = self.work.as_mut()?.next().await?;
            if ended.is_some() {
                self.work = None;
                self.ended = ended;
            }
            if !events.is_empty() {
                return Some(events);
            }
        }
    }

    /// Returns the response; `None` before it has ended.
    pub(crate) fn ended(&self) -> Option<&ActiveResponse> {
        self.ended.as_deref()
    }

    /// Returns the id of the response.
    pub(crate) fn id(&self) -> &str {
        &self.client.response
    }

    pub(crate) fn handle(&self) -> &RunHandle {
        &self.client.handle
    }
}

impl Drop for StreamedResponse {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.client.lost(work.for_each(|step| {
                drop(step);
                std::future::ready(())
            }));
        }
    }
}

/// A response whose client gets only the final object. Dropping it before the end means that the client has
/// disconnected.
pub(crate) struct WholeResponse {
    /// `None` after the end.
    work: Option<BoxFuture<'static, EndedResponse>>,
    client: WaitingClient,
    /// The request, if its client counts retries. The client of a stream does not retry after the first event.
    identity: Option<RequestIdentity>,
}

impl WholeResponse {
    pub(crate) fn new(active: ActiveResponse, identity: Option<RequestIdentity>) -> Self {
        let client = WaitingClient::of(&active);
        Self { client, work: Some(Box::pin(active.finished())), identity }
    }
}

impl Future for WholeResponse {
    type Output = EndedResponse;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<EndedResponse> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let ended = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(ended)
    }
}

impl Drop for WholeResponse {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let cuts = &self.client.state.cut_requests;
        let outcome = self.identity.take().map(|identity| cuts.add(identity, self.client.response.clone()));
        self.client.lost(async move {
            let tool_began = work.await.tool_began;
            if let Some(outcome) = outcome {
                outcome.set(tool_began);
            }
        });
    }
}

/// The data that is needed to cancel the run of a response and to record the disconnect.
struct WaitingClient {
    state: Arc<ServerState>,
    handle: RunHandle,
    response: String,
}

impl WaitingClient {
    fn of(active: &ActiveResponse) -> Self {
        Self {
            state: Arc::clone(active.state()),
            handle: active.handle().clone(),
            response: active.id().to_owned(),
        }
    }

    /// Cancels the run, and lets the rest of the work end in the background.
    fn lost(&self, rest: impl Future<Output = ()> + Send + 'static) {
        self.handle.cancel();
        let (principal, event) = (self.handle.principal(), AuditEvent::ClientDisconnected);
        self.state.audit.decided(principal, event, &self.response, "the run was cancelled");
        // Without an executor, the process is about to exit and cannot store the response.
        if let Ok(executor) = Handle::try_current() {
            executor.spawn(rest);
        }
    }
}
