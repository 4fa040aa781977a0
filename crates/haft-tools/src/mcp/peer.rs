//! The other end of a connection: requests by id, progress, cancellation, and answers to what the server asks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use haft_core::event::Progress;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::bounded::cut;
use super::host::Host;
use super::message::{self, Message, Outgoing, RequestId, RpcError};
use super::trace::Traced;
use super::trace_parent;
use super::transport::{Failure, Forgotten, Inbox, Transport};

/// How many progress messages of one call may wait to be told; more are let go, for the next says more.
const PROGRESS_WAITING_MAX: usize = 16;

/// How much is kept of what one of them says.
const PROGRESS_CHARS_MAX: usize = 1_000;

/// How many questions of one server are answered at the same time.
const QUESTIONS_MAX: usize = 8;

/// One server, as seen from here.
pub(super) struct Peer {
    table: Arc<Table>,
    transport: Arc<dyn Transport>,
    next_id: AtomicU64,
    /// The trace of what is asked for no call.
    trace: u128,
    manner: OnceLock<Manner>,
}

/// What every request carries once the era is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Manner {
    /// Members of `_meta`, without braces.
    pub(super) meta: String,
    pub(super) headers: Vec<(String, String)>,
}

/// A request to be made.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// The members of `params`, without braces.
    pub(super) fields: String,
    pub(super) headers: Vec<(String, String)>,
    /// The trace it belongs to; without one it is the connection's own.
    pub(super) trace_parent: Option<String>,
    /// How long nothing may be heard: a reply or progress.
    pub(super) patience: Duration,
    pub(super) progress: Option<&'a (dyn Fn(Progress) + Send + Sync)>,
    /// Said instead of what was settled, before anything is.
    pub(super) manner: Option<Manner>,
}

impl Ask<'_> {
    pub(super) fn new(method: &'static str, fields: impl Into<String>, patience: Duration) -> Self {
        Self {
            method,
            fields: fields.into(),
            headers: Vec::new(),
            trace_parent: None,
            patience,
            progress: None,
            manner: None,
        }
    }
}

/// Why there is no result.
#[derive(Debug)]
pub(super) enum PeerError {
    /// The server answered with an error.
    Rpc(RpcError),
    Silent(Duration),
    Failed(Failure),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rpc(error) => write!(f, "{} (code {})", error.message, error.code),
            Self::Silent(patience) => write!(f, "no reply within {} ms", patience.as_millis()),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl Peer {
    pub(super) fn new(table: Arc<Table>, transport: Arc<dyn Transport>) -> Self {
        let weak = Arc::downgrade(&transport);
        // A table belongs to one transport; whoever was first keeps it.
        let _ = table.transport.set(weak);
        let trace = uuid::Uuid::new_v4().as_u128();
        Self { table, transport, next_id: AtomicU64::new(1), trace, manner: OnceLock::new() }
    }

    /// Settles what every further request carries.
    pub(super) fn settle(&self, manner: Manner) {
        let _ = self.manner.set(manner);
    }

    /// Asks and waits. Dropping the future, or losing patience, cancels the request.
    pub(super) async fn request(&self, ask: Ask<'_>) -> Result<Box<RawValue>, PeerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, reply) = oneshot::channel();
        let (progress, told) = mpsc::channel(PROGRESS_WAITING_MAX);
        self.table.expect(id, Waiting { reply: tell, progress }).map_err(PeerError::Failed)?;
        let guard = Cancel { peer: self, id, method: ask.method };
        self.send(self.outgoing(id, &ask)).map_err(PeerError::Failed)?;
        let outcome = self.wait(&ask, reply, told).await;
        drop(guard);
        outcome
    }

    /// Says something that has no answer.
    pub(super) fn notify(&self, method: &'static str, fields: &str) {
        let params = if fields.is_empty() { String::new() } else { format!(",\"params\":{{{fields}}}") };
        let _ = self.send(Outgoing {
            id: None,
            method: Cow::Borrowed(method),
            headers: self.manner.get().map(|manner| manner.headers.clone()).unwrap_or_default(),
            text: format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"{params}}}"),
        });
    }

    /// Waits until the connection is gone, and says why.
    pub(super) async fn closed(&self) -> Failure {
        let mut closed = self.table.closed.subscribe();
        let gone = closed.wait_for(Option::is_some).await;
        gone.ok().and_then(|failure| failure.clone()).unwrap_or_else(|| Failure::Closed("closed".into()))
    }

    pub(super) async fn close(&self) {
        self.transport.close().await;
    }

    /// How many lines came that were no message, and replies that nobody waited for.
    pub(super) fn noise(&self) -> u64 {
        self.table.noise.load(Ordering::Relaxed)
    }

    fn send(&self, message: Outgoing) -> Result<(), Failure> {
        self.table.host.trace(Traced::Sent, &message.text);
        self.transport.send(message)
    }

    fn outgoing(&self, id: RequestId, ask: &Ask<'_>) -> Outgoing {
        let Ask { method, fields, headers, .. } = ask;
        let none = Manner::default();
        let manner = ask.manner.as_ref().or(self.manner.get()).unwrap_or(&none);
        let own = || trace_parent::of_connection(self.trace, id);
        let parent = ask.trace_parent.clone().unwrap_or_else(own);
        let mut text = String::with_capacity(240 + fields.len() + manner.meta.len());
        let (comma, meta_comma) = (separator(fields), separator(&manner.meta));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{fields}{comma}\"_meta\":{{{}{meta_comma}\"traceparent\":\"{parent}\",\"progressToken\":{id}}}}}}}",
            manner.meta
        );
        let traced = std::iter::once(("traceparent".to_owned(), parent));
        let headers = manner.headers.iter().chain(headers).cloned().chain(traced).collect();
        Outgoing { id: Some(id), method: Cow::Borrowed(method), headers, text }
    }

    /// Patience runs only while it is the server's turn: it cannot go on before its own questions are answered.
    async fn wait(
        &self,
        ask: &Ask<'_>,
        mut reply: oneshot::Receiver<Result<Box<RawValue>, PeerError>>,
        mut told: mpsc::Receiver<Progress>,
    ) -> Result<Box<RawValue>, PeerError> {
        let mut deadline = Instant::now() + ask.patience;
        loop {
            tokio::select! {
                biased;
                outcome = &mut reply => {
                    let gone = || Err(PeerError::Failed(Failure::Closed("the connection was closed".into())));
                    return outcome.unwrap_or_else(|_| gone());
                }
                Some(progress) = told.recv() => {
                    deadline = Instant::now() + ask.patience;
                    if let Some(tell) = ask.progress {
                        tell(progress);
                    }
                }
                () = sleep_until(deadline) => match self.table.is_answering() {
                    Answering::Yes => deadline = Instant::now() + ask.patience,
                    Answering::No => return Err(PeerError::Silent(ask.patience)),
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

/// Takes a request back when it ends without its reply.
struct Cancel<'a> {
    peer: &'a Peer,
    id: RequestId,
    method: &'static str,
}

/// Questions that open a connection; the protocol does not let them be taken back.
const OPENING: [&str; 2] = ["initialize", "server/discover"];

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let id = self.id;
        if !self.peer.table.forget(id) {
            return;
        }
        let told = self.peer.transport.forget(id) == Forgotten::Told || OPENING.contains(&self.method);
        if !told {
            let fields = format!("\"requestId\":{id},\"reason\":\"the caller no longer waits\"");
            self.peer.notify("notifications/cancelled", &fields);
        }
    }
}

/// Who waits for what, shared with the transport that fills it.
pub(super) struct Table {
    waiting: Mutex<HashMap<RequestId, Waiting>>,
    closed: watch::Sender<Option<Failure>>,
    noise: AtomicU64,
    questions: Arc<Semaphore>,
    host: Arc<Host>,
    transport: OnceLock<Weak<dyn Transport>>,
}

/// Whether questions of the server are being answered.
enum Answering {
    Yes,
    No,
}

struct Waiting {
    reply: oneshot::Sender<Result<Box<RawValue>, PeerError>>,
    progress: mpsc::Sender<Progress>,
}

impl Table {
    pub(super) fn new(host: Arc<Host>) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            closed: watch::Sender::new(None),
            noise: AtomicU64::new(0),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            host,
            transport: OnceLock::new(),
        })
    }

    fn expect(&self, id: RequestId, waiting: Waiting) -> Result<(), Failure> {
        let mut table = self.lock();
        // Looked at under the lock: whoever closes takes all that wait after having said so.
        if let Some(failure) = self.closed.borrow().as_ref() {
            return Err(failure.clone());
        }
        table.insert(id, waiting);
        Ok(())
    }

    /// Whether the request was still waiting.
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

    /// Whether the server waits for us.
    fn is_answering(&self) -> Answering {
        if self.questions.available_permits() < QUESTIONS_MAX { Answering::Yes } else { Answering::No }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, message: Message, answers: Option<RequestId>) {
        match message {
            Message::Reply { id, outcome } => match id.or(answers) {
                Some(id) => self.answer(id, outcome.map_err(|error| self.told(error))),
                None => self.noise("a reply without an id"),
            },
            Message::Request { id, method, params } => self.question(id, method, params),
            Message::Notification { method, params } => match method.as_str() {
                "notifications/progress" => self.progress(params.as_deref()),
                _ => self.host.notified(&method, params.as_deref()),
            },
        }
    }

    /// What the server says went wrong, without what it was told in confidence.
    fn told(&self, error: RpcError) -> PeerError {
        let message = self.host.withheld.left_of(error.message);
        PeerError::Rpc(RpcError { message, ..error })
    }

    fn progress(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            progress_token: RequestId,
            progress: Option<f64>,
            total: Option<f64>,
            message: Option<String>,
        }
        let Some(params) = params.and_then(|raw| serde_json::from_str::<Params>(raw.get()).ok()) else {
            return;
        };
        let amount = match (params.progress, params.total) {
            (Some(done), Some(total)) => format!("{done}/{total}"),
            (Some(done), None) => done.to_string(),
            (None, _) => String::new(),
        };
        let message = cut(&params.message.unwrap_or_default(), PROGRESS_CHARS_MAX);
        let text = [amount, message].join(" ").trim().to_owned();
        if let Some(waiting) = self.lock().get(&params.progress_token) {
            let _ = waiting.progress.try_send(Progress::Message(text));
        }
    }

    /// Answers a question of the server, on a task of its own: a person may have to think about it.
    fn question(&self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        let Some(transport) = self.transport.get().and_then(Weak::upgrade) else { return };
        let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else {
            let busy = "{\"code\":-32000,\"message\":\"too many questions at once\"}";
            return reply(transport.as_ref(), &id, "error", busy);
        };
        let host = Arc::clone(&self.host);
        tokio::spawn(async move {
            let asker = host.calls.asker();
            let answer = host.answer(&method, params.as_deref(), &asker).await;
            let (kind, content) =
                answer.map_or_else(|refusal| ("error", refusal.as_json()), |result| ("result", result));
            host.trace(Traced::Sent, &content);
            reply(transport.as_ref(), &id, kind, &content);
            drop(permit);
        });
    }
}

fn reply(transport: &dyn Transport, id: &RawValue, kind: &str, content: &str) {
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"{kind}\":{content}}}", id.get());
    let _ = transport.send(Outgoing { id: None, method: Cow::Borrowed(""), headers: Vec::new(), text });
}

impl Inbox for Table {
    fn received(&self, text: &str, answers: Option<RequestId>) {
        self.host.trace(Traced::Received, text);
        let messages = message::read(text);
        if messages.is_empty() {
            self.noise(text);
        }
        for message in messages {
            self.take(message, answers);
        }
    }

    fn failed(&self, id: RequestId, failure: Failure) {
        self.answer(id, Err(PeerError::Failed(failure)));
    }

    fn closed(&self, failure: Failure) {
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

    /// Counted always, told once in a while: a server that prints much must not fill the log.
    fn noise(&self, text: &str) {
        if self.noise.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            self.host.noise(text);
        }
    }
}

#[cfg(test)]
mod tests;
