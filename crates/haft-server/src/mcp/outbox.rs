//! The queue of messages to the client. Each message names its request, because a transport may have several streams.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::message::{self, GatewayError, INTERNAL_ERROR};
use super::principals::PrincipalState;

/// The maximum number of messages that wait for a slow reader. When the queue is full, haft reads no further requests.
pub(super) const OUTBOX_MAX: usize = 256;

/// The maximum size of all messages that wait for the reader of one connection, in bytes.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The free part of a limit, in bytes, below which haft refuses new requests. The replies to requests that have already
/// begun use this part.
const RESERVED_BYTES: usize = 16 << 20;

/// The size up to which a message does not count, in bytes. The number of waiting messages already limits such messages.
const UNCOUNTED_BYTES_MAX: usize = 4 << 10;

/// The size up to which results of one principal are converted at the same time, in bytes.
const SMALL_RESULT_BYTES_MAX: usize = 1 << 20;

/// A message for the client.
#[derive(Debug)]
pub(super) struct OutMessage {
    pub(super) scope: MessageScope,
    pub(super) need: MessageNeed,
    pub(super) text: String,
    /// The bytes that the message occupies until it is sent.
    pub(super) held: HeldBytes,
}

impl OutMessage {
    /// Returns the bytes to send, with a text before and after the message. The message occupies its bytes until the
    /// returned value is dropped.
    pub(super) fn into_bytes(self, (before, after): (&str, &str)) -> Bytes {
        let Self { text, held, .. } = self;
        let text = if before.is_empty() && after.is_empty() { text } else { [before, &text, after].concat() };
        Bytes::from_owner(SentText { text, _held: held })
    }
}

/// The text of a message that is being sent.
struct SentText {
    text: String,
    _held: HeldBytes,
}

impl AsRef<[u8]> for SentText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The bytes that a message occupies, of the limits of its connection and of its principal.
#[derive(Debug, Default)]
pub(super) struct HeldBytes {
    permits: Option<[OwnedSemaphorePermit; 2]>,
}

impl HeldBytes {
    fn count(&self) -> usize {
        self.permits.as_ref().map_or(0, |[own, _]| own.num_permits())
    }

    fn add(&mut self, more: Self) {
        match (&mut self.permits, more.permits) {
            (Some(permits), Some(more)) => {
                permits.iter_mut().zip(more).for_each(|(permit, more)| permit.merge(more));
            }
            (permits @ None, more) => *permits = more,
            (Some(_), None) => {}
        }
    }

    /// Releases the bytes beyond this number.
    fn shrink_to(&mut self, bytes: usize) {
        let excess = self.count().saturating_sub(bytes);
        for permit in self.permits.iter_mut().flatten() {
            drop(permit.split(excess));
        }
    }
}

/// Selects whether a message may be dropped if the reader is too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageNeed {
    /// The client waits for the message, or would have a wrong state without it.
    Required,
    /// The client does not need the message: progress and log messages.
    Optional,
}

/// The request that a message belongs to, identified by the request id.
#[derive(Debug, Clone)]
pub(super) enum MessageScope {
    /// The message belongs to the connection as a whole.
    Connection,
    /// The message comes before the reply.
    Request(Box<RawValue>),
    /// The message is the reply.
    Reply(Box<RawValue>),
    /// The request was cancelled and gets no reply. The message has no text.
    Cancelled(Box<RawValue>),
}

impl MessageScope {
    /// Returns true if this is the last message about the request.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Reply(_) | Self::Cancelled(_) => true,
            Self::Connection | Self::Request(_) => false,
        }
    }
}

/// Sends messages to one client.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    messages: mpsc::Sender<OutMessage>,
    /// A permit for each byte that may still wait for the reader.
    waiting_bytes: Arc<Semaphore>,
    principal: Arc<PrincipalState>,
}

impl Outbox {
    /// Creates an outbox that shares its limit with no other.
    #[cfg(test)]
    pub(super) fn new() -> (Self, mpsc::Receiver<OutMessage>) {
        Self::of_principal(&Arc::default())
    }

    /// Creates the outbox of a connection of this principal.
    pub(super) fn of_principal(principal: &Arc<PrincipalState>) -> (Self, mpsc::Receiver<OutMessage>) {
        let (messages, receive) = mpsc::channel(OUTBOX_MAX);
        let waiting_bytes = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
        (Self { messages, waiting_bytes, principal: Arc::clone(principal) }, receive)
    }

    /// Sends a message. Returns false if the client has disconnected; the connection then closes. If too many bytes
    /// wait, an error takes the place of a reply, and other messages wait.
    pub(super) async fn send(&self, scope: MessageScope, text: String) -> bool {
        match scope {
            MessageScope::Reply(id) => self.send_reply(id, text, HeldBytes::default()).await,
            MessageScope::Connection | MessageScope::Request(_) | MessageScope::Cancelled(_) => {
                let text = one_line(text);
                let held = self.hold(text.len()).await;
                self.send_held(scope, text, held).await
            }
        }
    }

    /// Sends a reply, for whose result [`Outbox::hold_result`] may already hold bytes. If too many bytes wait, an error
    /// takes its place.
    pub(super) async fn send_reply(&self, id: Box<RawValue>, text: String, held: HeldBytes) -> bool {
        let text = one_line(text);
        let (text, held) = match self.try_resize(held, text.len()) {
            Some(held) => (text, held),
            None => (message::failure(Some(&id), &unread_error(text.len())), HeldBytes::default()),
        };
        self.send_held(MessageScope::Reply(id), text, held).await
    }

    async fn send_held(&self, scope: MessageScope, text: String, held: HeldBytes) -> bool {
        self.messages.send(OutMessage { scope, need: MessageNeed::Required, text, held }).await.is_ok()
    }

    /// Counts the bytes of a result that has arrived from an upstream server. Without this, results that become replies
    /// at the same time would use memory beyond the limits. The error takes the place of the reply.
    pub(super) fn hold_result(&self, bytes: usize) -> Result<HeldBytes, GatewayError> {
        self.try_hold(bytes).ok_or_else(|| unread_error(bytes))
    }

    /// Waits until no other large result of the principal is being converted. Each step of a conversion copies the
    /// result, so several conversions at the same time would use several times the memory of the limits. A small result
    /// does not wait.
    pub(super) async fn conversion_turn(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= SMALL_RESULT_BYTES_MAX {
            return None;
        }
        // Waiting cannot fail, because nothing closes the semaphore.
        Arc::clone(&self.principal.conversions).acquire_owned().await.ok()
    }

    /// Sends a message that may be dropped if the client is slow.
    pub(super) fn offer(&self, scope: MessageScope, text: String) {
        let text = one_line(text);
        if let Some(held) = self.try_hold(text.len()) {
            let _ = self.messages.try_send(OutMessage { scope, need: MessageNeed::Optional, text, held });
        }
    }

    /// Returns the error for a new request if too many bytes wait for the client.
    pub(super) fn check_room(&self) -> Result<(), GatewayError> {
        let left = self.limits().map(|limit| limit.available_permits());
        if left.iter().all(|left| *left >= RESERVED_BYTES) {
            return Ok(());
        }
        let message =
            "the client has not read the replies to earlier requests; read them, and send the request again";
        Err(GatewayError::new(INTERNAL_ERROR, message))
    }

    fn limits(&self) -> [&Arc<Semaphore>; 2] {
        [&self.waiting_bytes, &self.principal.waiting_bytes]
    }

    fn try_hold(&self, bytes: usize) -> Option<HeldBytes> {
        let Some(permits) = counted(bytes) else { return Some(HeldBytes::default()) };
        let [own, of_principal] =
            self.limits().map(|limit| Arc::clone(limit).try_acquire_many_owned(permits));
        Some(HeldBytes { permits: Some([own.ok()?, of_principal.ok()?]) })
    }

    fn try_resize(&self, mut held: HeldBytes, bytes: usize) -> Option<HeldBytes> {
        let bytes = bytes.min(WAITING_BYTES_MAX);
        held.shrink_to(bytes);
        held.add(self.try_hold(bytes - held.count())?);
        Some(held)
    }

    async fn hold(&self, bytes: usize) -> HeldBytes {
        let Some(permits) = counted(bytes) else { return HeldBytes::default() };
        let [own, of_principal] = self.limits().map(|limit| Arc::clone(limit).acquire_many_owned(permits));
        // Waiting cannot fail, because nothing closes the semaphores.
        let held = own.await.ok().zip(of_principal.await.ok());
        HeldBytes { permits: held.map(Into::into) }
    }

    /// Waits until the client has disconnected.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }
}

/// Returns the number of permits for a message; `None` if the message does not count. A message larger than a whole limit
/// can be sent if nothing else waits.
fn counted(bytes: usize) -> Option<u32> {
    let counted = Some(bytes.min(WAITING_BYTES_MAX)).filter(|bytes| *bytes > UNCOUNTED_BYTES_MAX);
    counted.and_then(|bytes| u32::try_from(bytes).ok())
}

/// Returns the error that takes the place of a reply for which there is no room.
fn unread_error(bytes: usize) -> GatewayError {
    let message = format!(
        "haft carried out the request and dropped its reply of {bytes} bytes, because the client has not read the \
         replies to earlier requests"
    );
    GatewayError::new(INTERNAL_ERROR, message)
}

/// Replaces line breaks, because transports send a message as one line, and an upstream server may indent its JSON. This
/// is safe: JSON strings contain no raw line breaks, so all of them are white space between tokens.
fn one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::principals::PRINCIPAL_WAITING_BYTES_MAX;
    use super::*;

    #[tokio::test]
    async fn indented_message_is_sent_as_one_line() {
        let (out, mut messages) = Outbox::new();
        out.send(MessageScope::Connection, "{\r\n  \"a\": \"b\\n\"\n}".to_owned()).await;
        assert_eq!(messages.recv().await.unwrap().text, "{    \"a\": \"b\\n\" }");
    }

    fn raw(id: &str) -> Box<RawValue> {
        RawValue::from_string(id.into()).unwrap()
    }

    fn reply(id: &str) -> MessageScope {
        MessageScope::Reply(raw(id))
    }

    #[tokio::test]
    async fn reply_becomes_an_error_if_too_many_bytes_wait_for_the_client() {
        let (out, mut messages) = Outbox::new();
        let size = WAITING_BYTES_MAX / 4;
        for id in ["1", "2", "3", "4"] {
            assert!(out.send(reply(id), "x".repeat(size)).await);
        }
        assert!(out.check_room().is_err(), "a new request is refused");
        assert!(out.send(reply("5"), "x".repeat(size)).await);
        out.offer(MessageScope::Connection, "x".repeat(size));
        assert!(out.send(reply("6"), "small".into()).await, "a small message always has room");
        let sent: Vec<OutMessage> = (0..6).map(|_| messages.try_recv().unwrap()).collect();
        assert!(messages.try_recv().is_err(), "the optional message was dropped");
        assert!(sent[..4].iter().all(|message| message.text.len() == size));
        assert!(sent[4].text.contains("has not read"), "{}", sent[4].text);
        assert_eq!(sent[5].text, "small");
        // The bytes stay occupied until the text has been written.
        let written: Vec<Bytes> = sent.into_iter().map(|message| message.into_bytes(("", ""))).collect();
        assert!(out.check_room().is_err());
        drop(written);
        assert!(out.check_room().is_ok());
    }

    #[tokio::test]
    async fn result_counts_from_its_arrival_until_its_reply_is_written() {
        let (out, mut messages) = Outbox::new();
        let size = WAITING_BYTES_MAX / 4;
        let held: Vec<HeldBytes> = (0..4).map(|_| out.hold_result(size).unwrap()).collect();
        assert!(out.hold_result(size).unwrap_err().message.contains("has not read"));
        let mut held = held.into_iter();
        let mut next = || held.next().unwrap();
        assert!(out.send_reply(raw("1"), "x".repeat(size), next()).await);
        assert!(out.check_room().is_err(), "the reply still occupies the bytes of its result");
        assert!(out.send_reply(raw("2"), "x".repeat(size / 4), next()).await);
        assert!(out.hold_result(size / 2).is_ok(), "a smaller reply releases the rest");
        assert!(out.send_reply(raw("3"), "x".repeat(2 * size), next()).await);
        let sent: Vec<OutMessage> = (0..3).map(|_| messages.try_recv().unwrap()).collect();
        assert_eq!((sent[0].text.len(), sent[1].text.len()), (size, size / 4));
        assert!(sent[2].text.contains("has not read"), "a larger reply needs more room: {}", sent[2].text);
        drop((sent, next()));
        assert!(out.hold_result(WAITING_BYTES_MAX).is_ok(), "all bytes are released");
    }

    #[tokio::test]
    async fn only_small_results_of_a_principal_are_converted_at_the_same_time() {
        let principal = Arc::default();
        let [(one, _), (two, _)] = [(); 2].map(|()| Outbox::of_principal(&principal));
        let turn = one.conversion_turn(SMALL_RESULT_BYTES_MAX + 1).await;
        assert!(two.conversion_turn(SMALL_RESULT_BYTES_MAX).await.is_none());
        let mut waiting = std::pin::pin!(two.conversion_turn(SMALL_RESULT_BYTES_MAX + 1));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(turn);
        assert!(waiting.await.is_some());
    }

    #[tokio::test]
    async fn connections_of_a_principal_share_a_limit() {
        let principal = Arc::default();
        let size = WAITING_BYTES_MAX;
        let full = PRINCIPAL_WAITING_BYTES_MAX / size;
        let open: Vec<_> = (0..=full).map(|_| Outbox::of_principal(&principal)).collect();
        for (out, _) in &open {
            out.send(reply("1"), "x".repeat(size)).await;
        }
        let mut sent = open.into_iter().map(|(_, mut messages)| messages.try_recv().unwrap());
        assert!(sent.by_ref().take(full).all(|message| message.text.len() == size));
        assert!(sent.next().unwrap().text.contains("has not read"));
        let (other, _messages) = Outbox::new();
        assert!(other.check_room().is_ok(), "another principal is not affected");
    }

    #[tokio::test]
    async fn message_that_is_not_a_reply_waits_for_room() {
        let (out, mut messages) = Outbox::new();
        out.send(reply("1"), "x".repeat(WAITING_BYTES_MAX)).await;
        let waiting = tokio::spawn({
            let out = out.clone();
            async move { out.send(MessageScope::Connection, "x".repeat(UNCOUNTED_BYTES_MAX + 1)).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(messages.len(), 1);
        drop(messages.recv().await);
        assert!(waiting.await.unwrap());
        assert_eq!(messages.len(), 1);
    }
}
