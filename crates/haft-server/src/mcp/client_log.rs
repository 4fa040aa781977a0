//! The log messages that a client wants to receive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::client_relay::RelayedLog;
use haft_core::tool::CallId;
use haft_tools::mcp::LOG_LEVELS;

use super::call_notices::NoticeTable;
use super::message;
use super::outbox::{MessageScope, Outbox};

/// The level of a log message: its index in `LOG_LEVELS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct McpLogLevel(usize);

impl McpLogLevel {
    /// Reads a level that a client requests.
    pub(super) fn requested(name: &str) -> Result<Self, String> {
        let unknown = || format!("unknown log level `{name}`; expected one of {}", LOG_LEVELS.join(", "));
        Self::of(name).ok_or_else(unknown)
    }

    fn of(name: &str) -> Option<Self> {
        LOG_LEVELS.iter().position(|known| *known == name).map(Self)
    }

    fn name(self) -> &'static str {
        LOG_LEVELS[self.0]
    }
}

/// The log messages that a client gets on its connection. A single request can ask for other levels.
#[derive(Debug, Clone, Copy)]
enum ConnectionLevel {
    /// No messages. In protocol revisions without sessions, each request asks for the messages it wants.
    Nothing,
    /// All messages, because the client has made a handshake but has not set a level.
    Unset,
    /// This level, and all levels that are more severe.
    From(McpLogLevel),
}

/// Sends log messages to one client.
#[derive(Debug)]
pub(super) struct ClientLog {
    out: Outbox,
    connection: Mutex<ConnectionLevel>,
    /// The calls, whose requests may ask for levels of their own.
    pub(super) calls: Arc<NoticeTable>,
}

impl ClientLog {
    pub(super) fn new(out: Outbox) -> Self {
        Self { out, connection: Mutex::new(ConnectionLevel::Nothing), calls: Arc::default() }
    }

    /// Sends all levels from now on, because the client has made a handshake.
    pub(super) fn begin(&self) {
        *self.connection() = ConnectionLevel::Unset;
    }

    /// Sets the least severe level that the client wants on its connection.
    pub(super) fn set_level(&self, level: McpLogLevel) {
        *self.connection() = ConnectionLevel::From(level);
    }

    /// Returns the level that the client has set on its connection; `None` if it has set none.
    pub(super) fn connection_level(&self) -> Option<&'static str> {
        match *self.connection() {
            ConnectionLevel::From(level) => Some(level.name()),
            ConnectionLevel::Nothing | ConnectionLevel::Unset => None,
        }
    }

    /// Returns the level that the client requests for a call; `None` if the client requests no level.
    pub(super) fn level_of(&self, call: &CallId) -> Option<&'static str> {
        if let Some(level) = self.calls.of_call(&call.0).and_then(|notices| notices.log_level()) {
            return Some(level.name());
        }
        self.connection_level()
    }

    /// Sends a log message of a call if the client wants its level. Drops the message if the outbox is full.
    pub(super) fn offer_of_call(&self, record: RelayedLog<'_>) {
        let RelayedLog { call, level, params } = record;
        match self.calls.of_call(&call.0).filter(|notices| notices.log_level().is_some()) {
            Some(notices) => {
                if let Some(level) = McpLogLevel::of(level) {
                    notices.log(level, params);
                }
            }
            None => self.offer(level, params),
        }
    }

    /// Sends a log message that belongs to no call, if the client wants its level. Drops it if the outbox is full.
    pub(super) fn offer(&self, level: &str, params: &str) {
        let Some(level) = McpLogLevel::of(level) else { return };
        let is_wanted = match *self.connection() {
            ConnectionLevel::Nothing => false,
            ConnectionLevel::Unset => true,
            ConnectionLevel::From(wanted) => level >= wanted,
        };
        if is_wanted {
            let text = message::raw_notification("notifications/message", params);
            self.out.offer(MessageScope::Connection, text);
        }
    }

    fn connection(&self) -> MutexGuard<'_, ConnectionLevel> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call_notices::tests::receiver;
    use super::*;

    #[test]
    fn log_level_of_a_request_takes_precedence_over_the_level_of_the_connection() {
        let (out, mut messages) = Outbox::new();
        let log = ClientLog::new(out);
        let call = CallId("c".into());
        let (of_request, mut request_messages) =
            receiver(None, Some(McpLogLevel::requested("warning").unwrap()));
        let mut sent = |log: &ClientLog, level: &str| {
            log.offer_of_call(RelayedLog { call: &call, level, params: "{}" });
            let sent = messages.try_recv().or_else(|_| request_messages.try_recv());
            sent.ok().map(|message| message.scope)
        };
        assert!(sent(&log, "emergency").is_none(), "neither asks for messages");
        assert_eq!(log.level_of(&call), None);
        let watched = log.calls.watch("c");
        let receiving = watched.notices.add(of_request);
        assert!(matches!(sent(&log, "warning"), Some(MessageScope::Request(id)) if id.get() == "7"));
        assert!(sent(&log, "notice").is_none());
        assert!(sent(&log, "loud").is_none(), "an unknown level is never sent");
        assert_eq!(log.level_of(&call), Some("warning"));
        assert_eq!(log.level_of(&CallId("other".into())), None);
        drop(receiving);
        assert!(sent(&log, "warning").is_none(), "the request has ended");
        log.begin();
        assert!(matches!(sent(&log, "debug"), Some(MessageScope::Connection)));
        assert_eq!(log.level_of(&call), None, "the client has not set a level");
        log.set_level(McpLogLevel::requested("error").unwrap());
        assert!(sent(&log, "warning").is_none() && sent(&log, "error").is_some());
        assert_eq!(log.level_of(&call), Some("error"));
    }
}
