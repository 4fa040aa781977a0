//! The log messages that a client wants to receive.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::client_relay::RelayedLog;
use haft_core::tool::CallId;
use serde_json::value::RawValue;

use super::message;
use super::outbox::{MessageScope, Outbox};

/// The levels of log messages, the least severe first.
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

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
    /// The requests that ask for a level of their own, by the call ids that haft assigned.
    calls: Mutex<HashMap<String, WantedLog>>,
}

/// The log messages that one request asks for.
#[derive(Debug)]
struct WantedLog {
    level: McpLogLevel,
    request: Box<RawValue>,
}

impl ClientLog {
    pub(super) fn new(out: Outbox) -> Self {
        Self { out, connection: Mutex::new(ConnectionLevel::Nothing), calls: Mutex::default() }
    }

    /// Sends all levels from now on, because the client has made a handshake.
    pub(super) fn begin(&self) {
        *self.connection() = ConnectionLevel::Unset;
    }

    /// Sets the least severe level that the client wants on its connection.
    pub(super) fn set_level(&self, level: McpLogLevel) {
        *self.connection() = ConnectionLevel::From(level);
    }

    /// Sends the log messages of a call on the stream of its request, until the guard is dropped.
    pub(super) fn watch(&self, call: &str, level: McpLogLevel, request: &RawValue) -> WatchedLog<'_> {
        self.calls().insert(call.to_owned(), WantedLog { level, request: request.to_owned() });
        WatchedLog { log: self, call: call.to_owned() }
    }

    /// Returns the level that the client requests for a call; `None` if the client requests no level.
    pub(super) fn level_of(&self, call: &CallId) -> Option<&'static str> {
        if let Some(request) = self.calls().get(&call.0) {
            return Some(request.level.name());
        }
        match *self.connection() {
            ConnectionLevel::From(level) => Some(level.name()),
            ConnectionLevel::Nothing | ConnectionLevel::Unset => None,
        }
    }

    /// Sends a log message of a call if the client wants its level. Drops the message if the outbox is full.
    pub(super) fn offer_of_call(&self, record: RelayedLog<'_>) {
        let RelayedLog { call, level, params } = record;
        let scope = match self.calls().get(&call.0) {
            Some(wanted) if McpLogLevel::of(level).is_some_and(|level| level >= wanted.level) => {
                MessageScope::Request(wanted.request.clone())
            }
            Some(_) => return,
            None => return self.offer(level, params),
        };
        self.out.offer(scope, message::raw_notification("notifications/message", params));
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

    fn calls(&self) -> MutexGuard<'_, HashMap<String, WantedLog>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops sending the log messages of a call when dropped.
#[derive(Debug)]
pub(super) struct WatchedLog<'a> {
    log: &'a ClientLog,
    call: String,
}

impl Drop for WatchedLog<'_> {
    fn drop(&mut self) {
        self.log.calls().remove(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_of_a_request_takes_precedence_over_the_level_of_the_connection() {
        let (out, mut messages) = Outbox::new();
        let log = ClientLog::new(out);
        let request = RawValue::from_string("7".into()).unwrap();
        let call = CallId("c".into());
        let mut sent = |log: &ClientLog, level: &str| {
            log.offer_of_call(RelayedLog { call: &call, level, params: "{}" });
            messages.try_recv().ok().map(|message| message.scope)
        };
        assert!(sent(&log, "emergency").is_none(), "neither asks for messages");
        assert_eq!(log.level_of(&call), None);
        let watched = log.watch("c", McpLogLevel::requested("warning").unwrap(), &request);
        assert!(matches!(sent(&log, "warning"), Some(MessageScope::Request(id)) if id.get() == "7"));
        assert!(sent(&log, "notice").is_none());
        assert!(sent(&log, "loud").is_none(), "an unknown level is never sent");
        assert_eq!(log.level_of(&call), Some("warning"));
        assert_eq!(log.level_of(&CallId("other".into())), None);
        drop(watched);
        assert!(sent(&log, "warning").is_none(), "the request has ended");
        log.begin();
        assert!(matches!(sent(&log, "debug"), Some(MessageScope::Connection)));
        assert_eq!(log.level_of(&call), None, "the client has not set a level");
        log.set_level(McpLogLevel::requested("error").unwrap());
        assert!(sent(&log, "warning").is_none() && sent(&log, "error").is_some());
        assert_eq!(log.level_of(&call), Some("error"));
    }
}
