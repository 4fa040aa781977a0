//! The queue of messages to the client. Each message names its request, because a transport may have several streams.

use serde_json::value::RawValue;
use tokio::sync::mpsc;

/// The maximum number of messages that wait for a slow reader. When the queue is full, haft reads no further requests.
pub(super) const OUTBOX_MAX: usize = 256;

/// A message for the client.
#[derive(Debug)]
pub(super) struct OutMessage {
    pub(super) scope: MessageScope,
    pub(super) need: MessageNeed,
    pub(super) text: String,
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
pub(super) struct Outbox(mpsc::Sender<OutMessage>);

impl Outbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<OutMessage>) {
        let (send, receive) = mpsc::channel(OUTBOX_MAX);
        (Self(send), receive)
    }

    /// Sends a message. Returns false if the client has disconnected; the connection then closes.
    pub(super) async fn send(&self, scope: MessageScope, text: String) -> bool {
        self.0.send(OutMessage { scope, need: MessageNeed::Required, text: one_line(text) }).await.is_ok()
    }

    /// Sends a message that may be dropped if the client is slow.
    pub(super) fn offer(&self, scope: MessageScope, text: String) {
        let _ = self.0.try_send(OutMessage { scope, need: MessageNeed::Optional, text: one_line(text) });
    }

    /// Waits until the client has disconnected.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Replaces line breaks, because transports send a message as one line, and an upstream server may indent its JSON. This
/// is safe: JSON strings contain no raw line breaks, so all of them are white space between tokens.
fn one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn indented_message_is_sent_as_one_line() {
        let (out, mut messages) = Outbox::new();
        out.send(MessageScope::Connection, "{\r\n  \"a\": \"b\\n\"\n}".to_owned()).await;
        assert_eq!(messages.recv().await.unwrap().text, "{    \"a\": \"b\\n\" }");
    }
}
