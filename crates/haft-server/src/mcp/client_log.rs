//! The log messages that a client wants to receive.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::message;
use super::outbox::{MessageScope, Outbox};

/// The levels of log messages, the least severe first.
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Sends log messages to one client.
#[derive(Debug)]
pub(super) struct ClientLog {
    out: Outbox,
    /// The index in `LOG_LEVELS` of the least severe level that the client wants. The number of levels if the client
    /// wants none, as in protocol revisions without sessions, in which each request would have to ask for them.
    rank: AtomicUsize,
}

impl ClientLog {
    pub(super) fn new(out: Outbox) -> Self {
        Self { out, rank: AtomicUsize::new(LOG_LEVELS.len()) }
    }

    /// Sends all levels from now on, because the client has made a handshake.
    pub(super) fn begin(&self) {
        self.rank.store(0, Ordering::Relaxed);
    }

    /// Sets the least severe level that the client wants.
    pub(super) fn set_level(&self, level: &str) -> Result<(), String> {
        let unknown = || format!("unknown log level `{level}`; expected one of {}", LOG_LEVELS.join(", "));
        self.rank.store(rank(level).ok_or_else(unknown)?, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a message with these parameters if the client wants its level. A client that does not read loses the
    /// message.
    pub(super) fn offer(&self, level: &str, params: &str) {
        if rank(level).is_some_and(|rank| rank >= self.rank.load(Ordering::Relaxed)) {
            let text = message::raw_notification("notifications/message", params);
            self.out.offer(MessageScope::Connection, text);
        }
    }
}

fn rank(level: &str) -> Option<usize> {
    LOG_LEVELS.iter().position(|known| *known == level)
}
