//! The client end of a connection: matches replies to requests by id, reports progress, cancels requests, and answers
//! requests from the server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use haft_core::duration_text;
use haft_core::event::{CallProgress, ProgressAmount};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::bounded::cut;
use super::host::Host;
use super::in_flight::{InFlight, RequestingCall};
use super::message::{self, ERROR_CHARS_MAX, JsonRpcMessage, McpOutgoingMessage, RequestId, RpcError};
use super::task::related_task;
use super::trace::TraceLineKind;
use super::trace_parent;
use super::transport::{ForgetOutcome, Inbox, Transport, TransportFailure};

/// The maximum number of queued progress messages of one call. Further messages are dropped, because a later message
/// replaces them anyway.
const PROGRESS_WAITING_MAX: usize = 16;

/// The maximum number of characters that are kept of a progress message.
const PROGRESS_CHARS_MAX: usize = 1_000;

/// The maximum number of requests from one server that are answered at the same time.
const QUESTIONS_MAX: usize = 8;

/// A connection to one MCP server.
pub(super) struct Peer {
    table: Arc<PendingRequests>,
    transport: Arc<dyn Transport>,
    next_id: AtomicU64,
    /// The trace id of requests that belong to no call.
    trace: u128,
    manner: OnceLock<RequestMetadata>,
}

/// The metadata and headers that every request contains once the protocol revision is known.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestMetadata {
    /// The members of `_meta`, without braces.
    pub(super) meta: String,
    pub(super) headers: Vec<(String, String)>,
}

/// A request to the MCP server.
pub(super) struct PeerRequest<'a> {
    pub(super) method: &'static str,
    /// The members of `params`, without braces.
    pub(super) fields: String,
    pub(super) headers: Vec<(String, String)>,
    /// The `traceparent` of the call; `None` selects the connection's own trace.
    pub(super) trace_parent: Option<String>,
    /// The maximum wait for a reply or for progress.
    pub(super) patience: Duration,
    pub(super) progress: Option<&'a (dyn Fn(CallProgress) + Send + Sync)>,
    /// The least severe level of log messages that the server shall send during this request. Only protocol revisions
    /// without sessions have it.
    pub(super) log_level: Option<&'static str>,
    /// The call that the request is made for; `None` for a request of haft itself.
    pub(super) call: Option<Arc<InFlight>>,
    /// Metadata that replaces the connection's, for requests that are sent before the protocol revision is known.
    pub(super) manner: Option<RequestMetadata>,
}

impl PeerRequest<'_> {
    pub(super) fn new(method: &'static str, fields: impl Into<String>, patience: Duration) -> Self {
        Self {
            method,
            fields: fields.into(),
            headers: Vec::new(),
            trace_parent: None,
            patience,
            progress: None,
            log_level: None,
            call: None,
            manner: None,
        }
    }
}

/// The reason why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// The server answered with an error.
    #[error("{} (code {})", .0.message, .0.code)]
    Rpc(RpcError),
    /// The server sent no reply and no progress within this time.
    #[error("the MCP server did not reply within {}", duration_text::in_words(*.0))]
    Silent(Duration),
    #[error("{0}")]
    Failed(TransportFailure),
}

impl Peer {
    pub(super) fn new(table: Arc<PendingRequests>, transport: Arc<dyn Transport>) -> Self {
        let weak = Arc::downgrade(&transport);
        // Ignore the error: each table has one transport, and only this line sets it.
        let _ = table.transport.set(weak);
        let trace = uuid::Uuid::new_v4().as_u128();
        Self { table, transport, next_id: AtomicU64::new(1), trace, manner: OnceLock::new() }
    }

    /// Sets the metadata and headers of all later requests.
    pub(super) fn settle(&self, manner: RequestMetadata) {
        let _ = self.manner.set(manner);
    }

    /// Sends a request and waits for the reply. Dropping the future, or a timeout, cancels the request.
    pub(super) async fn request(&self, ask: PeerRequest<'_>) -> Result<Box<RawValue>, PeerError> {
        self.request_numbered(ask).await.map(|(_, reply)| reply)
    }

    /// Sends a request as [`Peer::request`] does, and also returns its id, which is its progress token.
    pub(super) async fn request_numbered(
        &self,
        ask: PeerRequest<'_>,
    ) -> Result<(RequestId, Box<RawValue>), PeerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, reply) = oneshot::channel();
        let (progress, progress_updates) = mpsc::channel(PROGRESS_WAITING_MAX);
        self.table
            .expect(id, ReplyWaiter { reply: tell, progress, call: ask.call.clone() })
            .map_err(PeerError::Failed)?;
        let guard = CancelOnDrop { peer: self, id, method: ask.method };
        self.send(self.outgoing(id, &ask)).map_err(PeerError::Failed)?;
        let outcome = self.wait(&ask, reply, progress_updates).await;
        drop(guard);
        outcome.map(|reply| (id, reply))
    }

    /// Sends a request whose reply is not needed. The transport gets no id for this request, as for a notification, so
    /// closing the connection waits until the request is sent.
    pub(super) fn send_unawaited(&self, method: &'static str, fields: &str, headers: &[(String, String)]) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut ask = PeerRequest::new(method, fields, Duration::ZERO);
        ask.headers = headers.to_vec();
        // Ignore the error: a closed connection cannot carry the request.
        let _ = self.send(McpOutgoingMessage { id: None, ..self.outgoing(id, &ask) });
    }

    /// Receives the progress of a request that already has its reply: the progress token stays valid while the server
    /// works on a task.
    pub(super) fn follow_progress(&self, token: RequestId) -> FollowedProgress<'_> {
        let (tell, updates) = mpsc::channel(PROGRESS_WAITING_MAX);
        self.table.followed().insert(token, tell);
        FollowedProgress { table: &self.table, token, updates }
    }

    /// Removes our secrets and the address of the server from an error.
    pub(super) fn redacted(&self, error: RpcError) -> RpcError {
        self.table.redacted(error)
    }

    /// Sends a notification.
    pub(super) fn notify(&self, method: &'static str, fields: &str) {
        let params = if fields.is_empty() { String::new() } else { format!(",\"params\":{{{fields}}}") };
        let _ = self.send(McpOutgoingMessage {
            id: None,
            method: Cow::Borrowed(method),
            headers: self.manner.get().map(|manner| manner.headers.clone()).unwrap_or_default(),
            text: format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"{params}}}"),
        });
    }

    /// Waits until the connection is closed, and returns the reason.
    pub(super) async fn closed(&self) -> TransportFailure {
        let mut closed = self.table.closed.subscribe();
        let gone = closed.wait_for(Option::is_some).await;
        gone.ok()
            .and_then(|failure| failure.clone())
            .unwrap_or_else(|| TransportFailure::Closed("closed".into()))
    }

    pub(super) async fn close(&self) {
        self.transport.close().await;
    }

    /// Returns the number of stray lines: output that is not a message, and replies to requests that no longer wait.
    pub(super) fn noise(&self) -> u64 {
        self.table.noise.load(Ordering::Relaxed)
    }

    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure> {
        self.table.host.trace(TraceLineKind::Sent, &message.text);
        self.transport.send(message)
    }

    fn outgoing(&self, id: RequestId, ask: &PeerRequest<'_>) -> McpOutgoingMessage {
        let PeerRequest { method, fields, headers, .. } = ask;
        let none = RequestMetadata::default();
        let manner = ask.manner.as_ref().or(self.manner.get()).unwrap_or(&none);
        let own = || trace_parent::of_connection(self.trace, id);
        let parent = ask.trace_parent.clone().unwrap_or_else(own);
        let mut text = String::with_capacity(300 + fields.len() + manner.meta.len());
        let (comma, meta_comma) = (separator(fields), separator(&manner.meta));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{fields}{comma}\"_meta\":{{{}{meta_comma}\"traceparent\":\"{parent}\",\"progressToken\":{id}",
            manner.meta
        );
        if let Some(level) = ask.log_level {
            let _ = write!(text, ",\"io.modelcontextprotocol/logLevel\":\"{level}\"");
        }
        text.push_str("}}}");
        let traced = std::iter::once(("traceparent".to_owned(), parent));
        let headers = manner.headers.iter().chain(headers).cloned().chain(traced).collect();
        McpOutgoingMessage { id: Some(id), method: Cow::Borrowed(method), headers, text }
    }

    /// Waits for the reply. Extends the timeout while haft answers requests from the server, because the server cannot
    /// continue without the answers.
    async fn wait(
        &self,
        ask: &PeerRequest<'_>,
        mut reply: oneshot::Receiver<Result<Box<RawValue>, PeerError>>,
        mut progress_updates: mpsc::Receiver<CallProgress>,
    ) -> Result<Box<RawValue>, PeerError> {
        let mut deadline = Instant::now() + ask.patience;
        loop {
            tokio::select! {
                biased;
                outcome = &mut reply => {
                    // Report the progress that is still queued. The server sent it before the reply, and the caller
                    // would otherwise never get it.
                    while let Ok(progress) = progress_updates.try_recv() {
                        if let Some(tell) = ask.progress {
                            tell(progress);
                        }
                    }
                    let gone = || TransportFailure::Closed("the connection to the MCP server was closed".into());
                    return outcome.unwrap_or_else(|_| Err(PeerError::Failed(gone())));
                }
                Some(progress) = progress_updates.recv() => {
                    deadline = Instant::now() + ask.patience;
                    if let Some(tell) = ask.progress {
                        tell(progress);
                    }
                }
                () = sleep_until(deadline) => match self.table.is_answering() {
                    ReplyMode::Yes => deadline = Instant::now() + ask.patience,
                    ReplyMode::No => return Err(PeerError::Silent(ask.patience)),
                },
            }
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("noise", &self.noise()).finish_non_exhaustive()
    }
}

fn separator(before: &str) -> &'static str {
    if before.is_empty() { "" } else { "," }
}

/// Receives the progress of a task until it is dropped.
pub(super) struct FollowedProgress<'a> {
    table: &'a PendingRequests,
    token: RequestId,
    updates: mpsc::Receiver<CallProgress>,
}

impl FollowedProgress<'_> {
    /// Passes each progress message on, until the future is dropped.
    pub(super) async fn forward(&mut self, tell: &(dyn Fn(CallProgress) + Send + Sync)) -> Infallible {
        while let Some(progress) = self.updates.recv().await {
            tell(progress);
        }
        std::future::pending().await
    }
}

impl Drop for FollowedProgress<'_> {
    fn drop(&mut self) {
        self.table.followed().remove(&self.token);
    }
}

/// Cancels a request on drop, unless its reply has come.
struct CancelOnDrop<'a> {
    peer: &'a Peer,
    id: RequestId,
    method: &'static str,
}

/// The requests that open a connection; the protocol does not allow cancelling them.
const OPENING: [&str; 2] = ["initialize", "server/discover"];

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let id = self.id;
        if !self.peer.table.forget(id) {
            return;
        }
        let server_knows =
            self.peer.transport.forget(id) == ForgetOutcome::Cancelled || OPENING.contains(&self.method);
        if !server_knows {
            let fields = format!("\"requestId\":{id},\"reason\":\"the caller no longer waits\"");
            self.peer.notify("notifications/cancelled", &fields);
        }
    }
}

/// The requests that wait for a reply, shared with the transport that delivers the replies.
pub(super) struct PendingRequests {
    waiting: Mutex<HashMap<RequestId, ReplyWaiter>>,
    /// The channels to which the progress of tasks is sent, by the progress token of the call that created the task.
    followed: Mutex<HashMap<RequestId, mpsc::Sender<CallProgress>>>,
    closed: watch::Sender<Option<TransportFailure>>,
    noise: AtomicU64,
    questions: Arc<Semaphore>,
    host: Arc<Host>,
    transport: OnceLock<Weak<dyn Transport>>,
}

/// Whether the server currently waits for our answer to one of its requests.
enum ReplyMode {
    Yes,
    No,
}

struct ReplyWaiter {
    reply: oneshot::Sender<Result<Box<RawValue>, PeerError>>,
    progress: mpsc::Sender<CallProgress>,
    call: Option<Arc<InFlight>>,
}

impl PendingRequests {
    pub(super) fn new(host: Arc<Host>) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            followed: Mutex::default(),
            closed: watch::Sender::new(None),
            noise: AtomicU64::new(0),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            host,
            transport: OnceLock::new(),
        })
    }

    fn expect(&self, id: RequestId, waiting: ReplyWaiter) -> Result<(), TransportFailure> {
        let mut table = self.lock();
        // Check under the lock: `closed` sets the failure and empties the table under the same lock, so a request added
        // later would never get a reply.
        if let Some(failure) = self.closed.borrow().as_ref() {
            return Err(failure.clone());
        }
        table.insert(id, waiting);
        Ok(())
    }

    /// Removes a request; returns whether it was still waiting.
    fn forget(&self, id: RequestId) -> bool {
        self.lock().remove(&id).is_some()
    }

    fn answer(&self, id: RequestId, outcome: Result<Box<RawValue>, PeerError>) {
        let waiting = self.lock().remove(&id);
        match waiting {
            Some(waiting) => drop(waiting.reply.send(outcome)),
            None => {
                self.noise.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns `Yes` while the server waits for our answers.
    fn is_answering(&self) -> ReplyMode {
        if self.questions.available_permits() < QUESTIONS_MAX { ReplyMode::Yes } else { ReplyMode::No }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, ReplyWaiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followed(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, mpsc::Sender<CallProgress>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, message: JsonRpcMessage, answers: Option<RequestId>) {
        match message {
            JsonRpcMessage::Reply { id, outcome } => match id.or(answers) {
                Some(id) => self.answer(id, outcome.map_err(|error| PeerError::Rpc(self.redacted(error)))),
                None => self.noise("a JSON-RPC reply without an id"),
            },
            JsonRpcMessage::Request { id, method, params } => {
                let asker = self.origin(params.as_deref(), answers);
                self.question(id, (method, params), asker);
            }
            JsonRpcMessage::Notification { method, params } => match method.as_str() {
                "notifications/progress" => self.progress(params.as_deref()),
                "notifications/message" => {
                    self.host.logged(params.as_deref(), &self.origin(params.as_deref(), answers));
                }
                _ => self.host.notified(&method, params.as_deref()),
            },
        }
    }

    /// Returns the call that a message of the server belongs to. A message on a reply stream belongs to the call whose
    /// request opened the stream. After this request has ended, haft does not know any more which client the message is
    /// for.
    fn origin(&self, params: Option<&RawValue>, answers: Option<RequestId>) -> RequestingCall {
        let Some(id) = answers.filter(|_| related_task(params).is_none()) else {
            return self.host.calls.asker_of(params);
        };
        match self.lock().get(&id) {
            Some(ReplyWaiter { call: Some(call), .. }) => RequestingCall::Call(Arc::clone(call)),
            Some(ReplyWaiter { call: None, .. }) => RequestingCall::None,
            None => RequestingCall::Ambiguous,
        }
    }

    /// Redacts an error of the server. Its message may reach a client of the gateway, who must not see our secrets or
    /// the address of the server. Its data may contain a URL that the user must open, so only our secrets are masked in
    /// the data.
    fn redacted(&self, error: RpcError) -> RpcError {
        let Host { withheld, address, .. } = &*self.host;
        let message = cut(&address.redact(withheld.redact(error.message)), ERROR_CHARS_MAX);
        let data = error.data.and_then(|data| serde_json::from_str(&withheld.redact(data.to_string())).ok());
        RpcError { message, data, ..error }
    }

    fn progress(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ProgressParams {
            progress_token: RequestId,
            progress: Option<f64>,
            total: Option<f64>,
            message: Option<String>,
        }
        let Some(params) = params.and_then(|raw| serde_json::from_str::<ProgressParams>(raw.get()).ok())
        else {
            return;
        };
        let message = params.message.map(|message| cut(&message, PROGRESS_CHARS_MAX));
        let progress = match params.progress {
            Some(done) => CallProgress::Amount(ProgressAmount { done, total: params.total, message }),
            None => CallProgress::Message(message.unwrap_or_default()),
        };
        let token = params.progress_token;
        let waiting = self.lock().get(&token).map(|waiting| waiting.progress.clone());
        if let Some(tell) = waiting.or_else(|| self.followed().get(&token).cloned()) {
            // Ignore the error: haft drops the message if too many messages wait.
            let _ = tell.try_send(progress);
        }
    }

    /// Answers a request from the server in a separate task, because a user may need time to answer.
    fn question(
        &self,
        id: Box<RawValue>,
        (method, params): (String, Option<Box<RawValue>>),
        asker: RequestingCall,
    ) {
        let Some(transport) = self.transport.get().and_then(Weak::upgrade) else { return };
        let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else {
            let busy = "{\"code\":-32000,\"message\":\"too many requests at once\"}";
            return reply(transport.as_ref(), &id, "error", busy);
        };
        let host = Arc::clone(&self.host);
        tokio::spawn(async move {
            let answer = host.answer(&method, params.as_deref(), (None, &asker)).await;
            let (kind, content) =
                answer.map_or_else(|refusal| ("error", refusal.as_json()), |result| ("result", result));
            host.trace(TraceLineKind::Sent, &content);
            reply(transport.as_ref(), &id, kind, &content);
            drop(permit);
        });
    }
}

fn reply(transport: &dyn Transport, id: &RawValue, kind: &str, content: &str) {
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"{kind}\":{content}}}", id.get());
    let _ =
        transport.send(McpOutgoingMessage { id: None, method: Cow::Borrowed(""), headers: Vec::new(), text });
}

impl Inbox for PendingRequests {
    fn received(&self, text: &str, answers: Option<RequestId>) {
        self.host.trace(TraceLineKind::Received, text);
        let messages = message::read(text);
        if messages.is_empty() {
            self.noise(text);
        }
        for message in messages {
            self.take(message, answers);
        }
    }

    fn failed(&self, id: RequestId, failure: TransportFailure) {
        self.answer(id, Err(PeerError::Failed(failure)));
    }

    fn closed(&self, failure: TransportFailure) {
        let mut table = self.lock();
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert_with(|| failure.clone());
            first
        });
        let waiting = std::mem::take(&mut *table);
        drop(table);
        for (_, waiting) in waiting {
            let _ = waiting.reply.send(Err(PeerError::Failed(failure.clone())));
        }
    }

    fn waiting(&self) -> Vec<RequestId> {
        self.lock().keys().copied().collect()
    }

    /// Counts every stray line. Logs fewer of them as their number grows, so that a server with much stray output does
    /// not fill the log.
    fn noise(&self, text: &str) {
        if self.noise.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            self.host.noise(text);
        }
    }
}

#[cfg(test)]
mod tests;
