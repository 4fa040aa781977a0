//! The transports that send messages to a server and receive its messages: one small trait, and one file per transport.

pub(super) mod client;
pub(super) mod http;
pub(super) mod sse;
pub(super) mod stdio;
pub(super) mod websocket;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::message::{McpOutgoingMessage, RequestId};

/// The maximum size of a message from a server, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Sends messages to one server. Delivers messages from the server to the [`Inbox`] that it was opened with.
pub trait Transport: Send + Sync {
    /// Queues a message and returns at once. Reports later failures to the inbox.
    fn send(&self, message: McpOutgoingMessage) -> Result<(), TransportFailure>;

    /// Removes a request whose reply no caller waits for any more.
    fn forget(&self, id: RequestId) -> ForgetOutcome;

    /// Closes the connection in an orderly way, within a bounded time. Dropping the transport closes it at once.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Opens a transport that the embedding program implements.
pub trait TransportOpener: Send + Sync {
    /// Returns the name of the transport, for display.
    fn name(&self) -> &'static str;

    /// Opens a new connection each time. The transport delivers messages from the server to the inbox.
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, TransportFailure>>;
}

/// Whether `forget` also cancelled the request at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// The transport closed the reply stream, which the server treats as a cancellation.
    Cancelled,
    /// The caller must send a cancellation message.
    NeedsCancellation,
}

/// Receives the messages of a server.
pub trait Inbox: Send + Sync {
    /// Delivers a message. `answers` is the request on whose reply stream the message came, for transports with such
    /// streams.
    fn received(&self, text: &str, answers: Option<RequestId>);

    /// Reports that no reply to this request will come.
    fn failed(&self, id: RequestId, failure: TransportFailure);

    /// Reports that the connection has ended.
    fn closed(&self, failure: TransportFailure);

    /// Returns the requests that wait for a reply.
    fn waiting(&self) -> Vec<RequestId>;

    /// Reports output that is not a message.
    fn noise(&self, text: &str);
}

/// The reason why a request has no reply, as a message for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportFailure {
    /// The connection ended for this reason; the server may have performed the request.
    #[error("{0}")]
    Closed(String),
    /// haft did not reach the server, so the server did nothing.
    #[error("{0}")]
    Unreached(String),
    #[error(
        "the reply of the MCP server is larger than {bytes_max} bytes, so haft did not read it; ask for less"
    )]
    TooLarge { bytes_max: usize },
    /// The server does not recognise the session any more, so it did not perform the request.
    #[error("the MCP server does not recognise the session any more")]
    SessionExpired,
    /// The server requires authorization.
    #[error("{0}")]
    NeedsAuth(String),
    /// The server at this address does not support this transport.
    #[error("{0}")]
    WrongTransport(String),
    /// The server sent an invalid or unexpected response.
    #[error("{0}")]
    Broken(String),
}
