//! How messages get to a server and back: one small trait, one file for each way.

mod client;
mod event_stream;
pub(super) mod http;
pub(super) mod sse;
pub(super) mod stdio;
pub(super) mod websocket;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

pub(super) use client::provide_cryptography;

use super::message::{Outgoing, RequestId};

/// The longest message that is taken from a server.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Carries messages to one server. What comes back goes to the [`Inbox`] it was opened with.
pub trait Transport: Send + Sync {
    /// Hands a message over and returns at once. What goes wrong later is told to the inbox.
    fn send(&self, message: Outgoing) -> Result<(), Failure>;

    /// Nobody waits for that reply any more.
    fn forget(&self, id: RequestId) -> Forgotten;

    /// Ends the connection in good order, within a bounded time. Dropping the transport ends it at once.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Opens a transport of the program's own, for a server that is reached in no way that is known here.
pub trait Opener: Send + Sync {
    /// What the way is called, to those who look.
    fn name(&self) -> &'static str;

    /// A new connection each time. What comes from the server goes to the inbox.
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Failure>>;
}

/// Whether the server learns from the transport itself that a reply is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// The stream of the reply was closed, which says it all.
    Told,
    /// The server needs to be sent a notification.
    NotTold,
}

/// Takes what a server sends.
pub trait Inbox: Send + Sync {
    /// A message. `answers` is the request whose reply stream it came on, where there is such a thing.
    fn received(&self, text: &str, answers: Option<RequestId>);

    /// The reply to one request will not come.
    fn failed(&self, id: RequestId, failure: Failure);

    /// Nothing will come any more.
    fn closed(&self, failure: Failure);

    /// The requests that wait for a reply.
    fn waiting(&self) -> Vec<RequestId>;

    /// Something came that is no message.
    fn noise(&self, text: &str);
}

/// Why a reply does not come. Written for whoever made the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The connection is gone, with how it ended; what was asked may have been done.
    Closed(String),
    /// Nobody was reached, so nothing was done.
    Unreached(String),
    TooLarge {
        bytes_max: usize,
    },
    /// The server has forgotten our session, and so has not done what was asked.
    SessionExpired,
    /// The server wants to know who we are.
    NeedsAuth(String),
    /// What is at this address does not speak this transport.
    WrongTransport(String),
    /// An answer that is none.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(reason)
            | Self::Unreached(reason)
            | Self::NeedsAuth(reason)
            | Self::WrongTransport(reason)
            | Self::Broken(reason) => f.write_str(reason),
            Self::TooLarge { bytes_max } => {
                write!(f, "the reply is larger than {bytes_max} bytes and was not read; ask for less")
            }
            Self::SessionExpired => f.write_str("the server has forgotten the session"),
        }
    }
}

impl std::error::Error for Failure {}
