//! Sessions of the era with a handshake: each belongs to one principal, and sorts its messages into the streams of requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::mcp::connection::ClientConnection;
use crate::mcp::gateway::GatewayUser;
use crate::mcp::outbox::{MessageScope, OutMessage, Outbox};
use crate::mcp::shared_tools::ToolPool;

/// The most sessions of one principal. A further one ends the session that was not used for the longest time.
const SESSIONS_PER_PRINCIPAL_MAX: usize = 256;

/// The most messages that wait for the reader of one stream.
const STREAM_WAITING_MAX: usize = 64;

/// The longest time that a full stream holds up the other streams of its session. After that the message is dropped.
const SLOW_READER_MAX: Duration = Duration::from_secs(10);

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct SessionTable(Mutex<HashMap<String, Arc<GatewaySession>>>);

impl SessionTable {
    pub(super) fn add(&self, session: Arc<GatewaySession>) {
        let mut sessions = self.sessions();
        let own = sessions.values().filter(|other| other.user == session.user);
        let own: Vec<(String, Duration)> = own.map(|other| (other.id.clone(), other.idle_for())).collect();
        if own.len() >= SESSIONS_PER_PRINCIPAL_MAX {
            let oldest = own.into_iter().max_by_key(|(_, idle)| *idle);
            if let Some(oldest) = oldest.and_then(|(id, _)| sessions.remove(&id)) {
                oldest.end();
            }
        }
        sessions.insert(session.id.clone(), session);
    }

    /// Finds a session of this user.
    pub(super) fn find(&self, id: &str, user: &GatewayUser) -> Option<Arc<GatewaySession>> {
        let sessions = self.sessions();
        let session = sessions.get(id).filter(|session| session.user == *user)?;
        session.mark_used();
        Some(Arc::clone(session))
    }

    pub(super) fn end(&self, id: &str) {
        let ended = self.sessions().remove(id);
        if let Some(session) = ended {
            session.end();
        }
    }

    /// Ends sessions that have no open stream and were not used for a time.
    pub(super) fn end_idle(&self, idle_max: Duration) {
        let is_idle = |session: &GatewaySession| !session.has_streams() && session.idle_for() >= idle_max;
        let idle: Vec<_> = self.sessions().extract_if(|_, session| is_idle(session)).collect();
        for (_, session) in &idle {
            session.end();
        }
    }

    pub(super) fn end_all(&self) {
        let all: Vec<_> = self.sessions().drain().collect();
        for (_, session) in &all {
            session.end();
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<GatewaySession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session.
pub(super) struct GatewaySession {
    id: String,
    user: GatewayUser,
    connection: Arc<ClientConnection>,
    streams: Arc<SessionStreams>,
    router: JoinHandle<()>,
    last_used: Mutex<Instant>,
}

impl GatewaySession {
    pub(super) fn begin(pool: Arc<ToolPool>, user: GatewayUser) -> Arc<Self> {
        let (out, messages) = Outbox::new();
        let streams = Arc::new(SessionStreams::default());
        Arc::new(Self {
            id: uuid::Uuid::new_v4().to_string(),
            connection: Arc::new(ClientConnection::new(pool, user.clone(), out)),
            user,
            router: tokio::spawn(route_all(messages, Arc::clone(&streams))),
            streams,
            last_used: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn connection(&self) -> &Arc<ClientConnection> {
        &self.connection
    }

    /// Returns true if the handshake succeeded.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// Opens the stream of a request; `None` if one with this id is open.
    pub(super) fn open_stream(&self, id: &RawValue) -> Option<mpsc::Receiver<OutMessage>> {
        self.streams.open(id)
    }

    /// Opens the stream for messages that belong to no request; `None` if it is open already.
    pub(super) fn listen(&self) -> Option<mpsc::Receiver<OutMessage>> {
        self.streams.listen()
    }

    fn has_streams(&self) -> bool {
        let streams = self.streams.lock();
        !streams.requests.is_empty() || streams.general.as_ref().is_some_and(|stream| !stream.is_closed())
    }

    fn mark_used(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle_for(&self) -> Duration {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Cancels the calls and closes the streams.
    fn end(&self) {
        self.connection.close();
        self.router.abort();
        let mut streams = self.streams.lock();
        streams.requests.clear();
        streams.general = None;
    }
}

impl Drop for GatewaySession {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for GatewaySession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewaySession").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The open streams of a session.
#[derive(Debug, Default)]
struct SessionStreams(Mutex<OpenStreams>);

#[derive(Debug, Default)]
struct OpenStreams {
    /// The streams of requests by id, the newest last.
    requests: Vec<(String, mpsc::Sender<OutMessage>)>,
    general: Option<mpsc::Sender<OutMessage>>,
}

impl SessionStreams {
    fn open(&self, id: &RawValue) -> Option<mpsc::Receiver<OutMessage>> {
        let mut streams = self.lock();
        if streams.requests.iter().any(|(open, _)| open == id.get()) {
            return None;
        }
        let (send, receive) = mpsc::channel(STREAM_WAITING_MAX);
        streams.requests.push((id.get().to_owned(), send));
        Some(receive)
    }

    fn listen(&self) -> Option<mpsc::Receiver<OutMessage>> {
        let mut streams = self.lock();
        if streams.general.as_ref().is_some_and(|stream| !stream.is_closed()) {
            return None;
        }
        let (send, receive) = mpsc::channel(STREAM_WAITING_MAX);
        streams.general = Some(send);
        Some(receive)
    }

    /// Returns the stream of a message. A reply or a cancellation ends its stream.
    fn of(&self, scope: &MessageScope) -> Option<mpsc::Sender<OutMessage>> {
        let mut streams = self.lock();
        match scope {
            MessageScope::Reply(id) | MessageScope::Cancelled(id) => {
                let at = streams.requests.iter().position(|(open, _)| open == id.get())?;
                Some(streams.requests.remove(at).1)
            }
            MessageScope::Request(id) => {
                let own = streams.requests.iter().find(|(open, _)| open == id.get());
                own.map(|(_, stream)| stream.clone()).or_else(|| streams.general.clone())
            }
            // Without a stream of its own, the message takes that of the newest request.
            MessageScope::Connection => {
                let general = streams.general.clone().filter(|stream| !stream.is_closed());
                general.or_else(|| streams.requests.last().map(|(_, stream)| stream.clone()))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sorts messages into streams. A message without a stream is lost, as the protocol allows.
async fn route_all(mut messages: mpsc::Receiver<OutMessage>, streams: Arc<SessionStreams>) {
    while let Some(message) = messages.recv().await {
        if let Some(stream) = streams.of(&message.scope) {
            let _ = timeout(SLOW_READER_MAX, stream.send(message)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn message_goes_to_the_stream_of_its_request() {
        let streams = SessionStreams::default();
        assert!(streams.of(&MessageScope::Connection).is_none());
        let one = streams.open(&raw("1")).unwrap();
        let text = streams.open(&raw("\"1\"")).unwrap();
        assert!(streams.open(&raw("1")).is_none());
        let is = |sender: Option<mpsc::Sender<OutMessage>>, receiver: &mpsc::Receiver<OutMessage>| {
            sender.is_some_and(|sender| sender.try_send(message()).is_ok()) && receiver.len() == 1
        };
        assert!(is(streams.of(&MessageScope::Request(raw("1"))), &one));
        assert!(is(streams.of(&MessageScope::Connection), &text));
        let general = streams.listen().unwrap();
        assert!(streams.listen().is_none());
        assert!(is(streams.of(&MessageScope::Connection), &general));
        assert!(streams.of(&MessageScope::Reply(raw("1"))).is_some());
        assert!(streams.of(&MessageScope::Reply(raw("1"))).is_none());
        drop(general);
        assert!(streams.listen().is_some());
    }

    fn message() -> OutMessage {
        OutMessage { scope: MessageScope::Connection, text: String::new() }
    }
}
