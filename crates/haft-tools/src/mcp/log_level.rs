//! The levels of log messages that the clients of a gateway request from a server with a handshake.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// The levels of log messages, the least severe first.
pub const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The levels that clients request. The server gets the lowest of them, and the gateway selects the messages for each
/// client.
#[derive(Debug, Default)]
pub(super) struct RequestedLogLevels {
    requests: Mutex<LevelRequests>,
    /// The index of the lowest level in `LOG_LEVELS`; `None` before the first request.
    lowest: watch::Sender<Option<usize>>,
}

/// The indexes of the requested levels, by the number of the request.
#[derive(Debug, Default)]
struct LevelRequests {
    levels: BTreeMap<u64, usize>,
    next: u64,
}

impl RequestedLogLevels {
    /// Requests a level until the returned value is dropped; `None` for an unknown level.
    pub(super) fn add(self: &Arc<Self>, level: &str) -> Option<LogLevelRequest> {
        let level = LOG_LEVELS.iter().position(|known| *known == level)?;
        let number = self.change(|requests| {
            requests.next += 1;
            requests.levels.insert(requests.next, level);
            requests.next
        });
        Some(LogLevelRequest { levels: Arc::clone(self), number })
    }

    /// Returns the lowest requested level and its changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<usize>> {
        self.lowest.subscribe()
    }

    /// Changes the requests. If no request is left, the lowest level stays, because the protocol has no way to withdraw it.
    fn change<T>(&self, change: impl FnOnce(&mut LevelRequests) -> T) -> T {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut requests);
        let lowest = requests.levels.values().min().copied();
        self.lowest.send_if_modified(|known| {
            let is_changed = lowest.is_some() && *known != lowest;
            if is_changed {
                *known = lowest;
            }
            is_changed
        });
        changed
    }
}

/// A level that a client of a gateway requests, until this value is dropped.
#[derive(Debug)]
pub struct LogLevelRequest {
    levels: Arc<RequestedLogLevels>,
    number: u64,
}

impl Drop for LogLevelRequest {
    fn drop(&mut self) {
        self.levels.change(|requests| requests.levels.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_gets_the_lowest_level_of_all_clients() {
        let levels = Arc::<RequestedLogLevels>::default();
        let mut lowest = levels.subscribe();
        let mut check = |expected: Option<&str>| {
            let now = lowest.borrow_and_update().map(|level| LOG_LEVELS[level]);
            assert_eq!(now, expected);
        };
        check(None);
        let error = levels.add("error").unwrap();
        check(Some("error"));
        let notice = levels.add("notice").unwrap();
        check(Some("notice"));
        assert!(levels.add("loud").is_none());
        let debug = levels.add("debug");
        drop((debug, notice));
        check(Some("error"));
        drop(error);
        check(Some("error"));
    }
}
