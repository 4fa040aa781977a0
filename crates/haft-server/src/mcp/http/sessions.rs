//! Sessions of clients that begin with `initialize`. A session belongs to one principal, and sends each message on the
//! stream of its request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::mcp::client_outputs::OutputOwner;
use crate::mcp::connection::ClientConnection;
use crate::mcp::gateway::GatewayUser;
use crate::mcp::message::{self, GatewayError, INTERNAL_ERROR};
use crate::mcp::outbox::{HeldBytes, MessageNeed, MessageScope, OutMessage};
use crate::mcp::shared_tools::ToolPool;

/// The maximum number of sessions of one principal. A new session beyond it ends the session that was unused for the
/// longest time.
const SESSIONS_PER_PRINCIPAL_MAX: usize = 256;

/// The maximum number of messages that wait for the reader of one stream, not counting the reply. If more would wait,
/// haft closes the stream. It does not wait for the reader, because the other streams of the session would have to wait
/// too.
const STREAM_WAITING_MAX: usize = 64;

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct SessionTable(Mutex<HashMap<String, Arc<GatewaySession>>>);

impl SessionTable {
    pub(super) fn add(&self, session: Arc<GatewaySession>) {
        let mut sessions = self.sessions();
        let own = sessions.values().filter(|other| other.user.principal == session.user.principal);
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

    /// Ends sessions that have no open stream and have not been used for some time.
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
        let streams = Arc::new(SessionStreams::default());
        let owner = (user.clone(), OutputOwner::new_connection());
        let (connection, messages) = ClientConnection::with_outbox(pool, owner);
        let connection = Arc::new(connection);
        Arc::new(Self {
            id: uuid::Uuid::new_v4().to_string(),
            router: tokio::spawn(route_all(messages, Arc::clone(&streams), Arc::clone(&connection))),
            connection,
            user,
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

    /// Opens the stream of a request; returns `None` if a stream with this id is open.
    pub(super) fn open_stream(&self, id: &RawValue) -> Option<mpsc::Receiver<OutMessage>> {
        self.streams.open(id)
    }

    /// Opens the stream for messages that belong to no request; returns `None` if this stream is already open. If the
    /// client missed messages, notifies the client that all lists may have changed.
    pub(super) fn listen(&self) -> Option<mpsc::Receiver<OutMessage>> {
        let opened = self.streams.listen()?;
        if self.streams.take_missed() {
            let connection = Arc::clone(&self.connection);
            tokio::spawn(async move { connection.announce_everything().await });
        }
        Some(opened)
    }

    /// Notes that the client missed a message that belongs to no request.
    pub(super) fn miss_message(&self) {
        self.streams.lock().has_missed = true;
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
        streams.requests.drain(..).for_each(|stream| stream.fail("the session has ended"));
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
    /// The streams of requests, the newest last.
    requests: Vec<RequestStream>,
    general: Option<mpsc::Sender<OutMessage>>,
    /// True if a message that belongs to no request had no reader.
    has_missed: bool,
}

/// The stream of one request.
#[derive(Debug)]
struct RequestStream {
    id: Box<RawValue>,
    messages: mpsc::Sender<OutMessage>,
    /// The reserved slot for the reply, which is free even if the stream is full.
    last: mpsc::OwnedPermit<OutMessage>,
}

impl RequestStream {
    fn open(id: &RawValue) -> Option<(Self, mpsc::Receiver<OutMessage>)> {
        let (messages, receive) = mpsc::channel(STREAM_WAITING_MAX + 1);
        let last = messages.clone().try_reserve_owned().ok()?;
        Some((Self { id: id.to_owned(), messages, last }, receive))
    }

    /// Ends the stream with an error instead of the reply.
    fn fail(self, reason: &str) {
        let error = GatewayError::new(INTERNAL_ERROR, reason);
        let text = message::failure(Some(&self.id), &error);
        let scope = MessageScope::Reply(self.id);
        let held = HeldBytes::default();
        self.last.send(OutMessage { scope, need: MessageNeed::Required, text, held });
    }
}

impl SessionStreams {
    fn open(&self, id: &RawValue) -> Option<mpsc::Receiver<OutMessage>> {
        let mut streams = self.lock();
        if streams.requests.iter().any(|stream| stream.id.get() == id.get()) {
            return None;
        }
        let (stream, receive) = RequestStream::open(id)?;
        streams.requests.push(stream);
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

    /// Returns true once after a message had no reader.
    fn take_missed(&self) -> bool {
        std::mem::take(&mut self.lock().has_missed)
    }

    /// Puts a message into its stream, without waiting. Returns the id of a request whose stream had to be ended.
    fn deliver(&self, message: OutMessage) -> Option<Box<RawValue>> {
        let mut streams = self.lock();
        let position = |id: &RawValue| streams.requests.iter().position(|open| open.id.get() == id.get());
        match &message.scope {
            MessageScope::Reply(id) | MessageScope::Cancelled(id) => {
                let at = position(id)?;
                streams.requests.remove(at).last.send(message);
                None
            }
            MessageScope::Request(id) => match position(id) {
                Some(at) => streams.deliver_to_request(at, message),
                None => streams.deliver_to_general(message),
            },
            MessageScope::Connection => streams.deliver_to_general(message),
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStreams {
    /// Delivers a message to the stream of a request. If the stream is full, the request fails: otherwise its client
    /// could wait for an answer to a question that it never saw.
    fn deliver_to_request(&mut self, at: usize, message: OutMessage) -> Option<Box<RawValue>> {
        match self.requests[at].messages.try_send(message) {
            Ok(()) | Err(TrySendError::Full(OutMessage { need: MessageNeed::Optional, .. })) => None,
            Err(TrySendError::Full(_)) => {
                let stream = self.requests.remove(at);
                let id = stream.id.clone();
                stream.fail(&format!(
                    "the request was cancelled: {STREAM_WAITING_MAX} messages wait on its stream, which the client does not read"
                ));
                Some(id)
            }
            // The client has closed the response but may still listen on the general stream, so try that stream.
            Err(TrySendError::Closed(message)) => self.deliver_to_general(message),
        }
    }

    /// Delivers a message that belongs to no request: on the general stream if it is open, otherwise on the stream of
    /// the newest request. If a required message cannot be delivered, ends the general stream, so that the client opens
    /// another one and learns that it missed messages.
    fn deliver_to_general(&mut self, message: OutMessage) -> Option<Box<RawValue>> {
        let general = self.general.as_ref().filter(|stream| !stream.is_closed());
        let newest = self.requests.last().map(|stream| &stream.messages);
        let sent = match general.or(newest) {
            Some(stream) => stream.try_send(message),
            None => Err(TrySendError::Closed(message)),
        };
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(message) | TrySendError::Closed(message)) => {
                if message.need == MessageNeed::Required {
                    self.has_missed = true;
                    self.general = None;
                }
            }
        }
        None
    }
}

/// Distributes messages to their streams. Never waits for a reader.
async fn route_all(
    mut messages: mpsc::Receiver<OutMessage>,
    streams: Arc<SessionStreams>,
    connection: Arc<ClientConnection>,
) {
    while let Some(message) = messages.recv().await {
        if let Some(ended) = streams.deliver(message) {
            connection.cancel(&ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use haft_core::principal::Principal;

    use super::*;
    use crate::mcp::gateway::tests::empty_gateway;
    use crate::mcp::gateway::{BuiltinAccess, OwnApprovals, TaskListAccess};
    use crate::mcp::logins::LoginPlace;

    fn user(subject: &str) -> GatewayUser {
        GatewayUser {
            principal: Principal::new("acme", subject, "key_1"),
            builtin_tools: BuiltinAccess::Withheld,
            task_list: TaskListAccess::Offered,
            own_approvals: OwnApprovals::Forbidden,
            profile: None,
        }
    }

    /// The tools of a gateway that opens none.
    fn pool() -> Arc<ToolPool> {
        Arc::new(ToolPool::new(Arc::new(empty_gateway()), LoginPlace::Nowhere))
    }

    #[tokio::test(start_paused = true)]
    async fn new_session_beyond_the_limit_ends_the_oldest_session_of_its_principal() {
        let (table, pool) = (SessionTable::default(), pool());
        let begin = |subject: &str| {
            let session = GatewaySession::begin(Arc::clone(&pool), user(subject));
            table.add(Arc::clone(&session));
            session.id().to_owned()
        };
        let (foreign, oldest) = (begin("bert"), begin("anna"));
        tokio::time::advance(Duration::from_secs(1)).await;
        let others: Vec<String> = (0..SESSIONS_PER_PRINCIPAL_MAX).map(|_| begin("anna")).collect();
        assert!(table.find(&oldest, &user("anna")).is_none());
        assert!(others.iter().all(|id| table.find(id, &user("anna")).is_some()));
        assert!(table.find(&foreign, &user("anna")).is_none());
        assert!(table.find(&foreign, &user("bert")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_ends_only_if_it_has_no_stream() {
        let (table, pool) = (SessionTable::default(), pool());
        let sessions = ["unused", "listening", "used"].map(|subject| {
            let session = GatewaySession::begin(Arc::clone(&pool), user(subject));
            table.add(Arc::clone(&session));
            session
        });
        let _stream = sessions[1].listen().unwrap();
        tokio::time::advance(Duration::from_mins(1)).await;
        let is_open = |at: usize, subject: &str| table.find(sessions[at].id(), &user(subject)).is_some();
        assert!(is_open(2, "used"));
        table.end_idle(Duration::from_mins(1));
        assert!(!is_open(0, "unused") && is_open(1, "listening") && is_open(2, "used"));
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn message(scope: MessageScope) -> OutMessage {
        let (need, held) = (MessageNeed::Required, HeldBytes::default());
        OutMessage { scope, need, text: "{}".into(), held }
    }

    #[test]
    fn message_is_sent_on_the_stream_of_its_request() {
        let streams = SessionStreams::default();
        let mut one = streams.open(&raw("1")).unwrap();
        let mut text = streams.open(&raw("\"1\"")).unwrap();
        assert!(streams.open(&raw("1")).is_none());
        streams.deliver(message(MessageScope::Request(raw("1"))));
        streams.deliver(message(MessageScope::Connection));
        assert_eq!(
            (one.len(), text.len()),
            (1, 1),
            "without a listener, the newest request gets the message"
        );
        let mut general = streams.listen().unwrap();
        assert!(streams.listen().is_none());
        streams.deliver(message(MessageScope::Connection));
        assert_eq!((general.len(), text.len()), (1, 1));
        streams.deliver(message(MessageScope::Reply(raw("1"))));
        streams.deliver(message(MessageScope::Reply(raw("1"))));
        assert_eq!(one.len(), 2, "a request has one reply");
        assert!(streams.open(&raw("1")).is_some(), "a reply ends its stream");
        drop(general);
        general = streams.listen().unwrap();
        assert!(!streams.take_missed() && general.try_recv().is_err());
        assert!(one.try_recv().is_ok() && text.try_recv().is_ok());
    }

    #[test]
    fn overflowing_request_stream_ends_without_blocking_other_streams() {
        let streams = SessionStreams::default();
        let mut full = streams.open(&raw("1")).unwrap();
        let other = streams.open(&raw("2")).unwrap();
        let question = || streams.deliver(message(MessageScope::Request(raw("1"))));
        for _ in 0..STREAM_WAITING_MAX {
            assert!(question().is_none());
        }
        let optional = OutMessage { need: MessageNeed::Optional, ..message(MessageScope::Request(raw("1"))) };
        assert!(streams.deliver(optional).is_none(), "a full stream drops progress messages");
        assert_eq!(question().unwrap().get(), "1");
        streams.deliver(message(MessageScope::Reply(raw("2"))));
        assert_eq!(other.len(), 1);
        let mut last = full.try_recv().unwrap();
        while let Ok(next) = full.try_recv() {
            last = next;
        }
        assert!(last.scope.is_last() && last.text.contains("\"error\""), "{last:?}");
    }

    #[test]
    fn reply_is_delivered_on_a_full_stream() {
        let streams = SessionStreams::default();
        let full = streams.open(&raw("1")).unwrap();
        for _ in 0..STREAM_WAITING_MAX {
            streams.deliver(message(MessageScope::Request(raw("1"))));
        }
        streams.deliver(message(MessageScope::Reply(raw("1"))));
        assert_eq!(full.len(), STREAM_WAITING_MAX + 1);
    }

    #[test]
    fn general_stream_after_an_overflow_reports_missed_messages() {
        let streams = SessionStreams::default();
        let general = streams.listen().unwrap();
        for _ in 0..=STREAM_WAITING_MAX {
            streams.deliver(message(MessageScope::Connection));
        }
        assert!(general.is_closed() && general.len() == STREAM_WAITING_MAX);
        assert!(streams.listen().is_some() && streams.take_missed() && !streams.take_missed());
    }
}
