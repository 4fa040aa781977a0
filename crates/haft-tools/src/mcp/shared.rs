//! Shares one server process between all users of the same server. The first user starts the process, the last one
//! stops it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::provider::McpProvider;
use super::server::SupervisedServer;

/// The servers, by the digest of their configuration and credentials ([`ServerConfig::digest`](super::ServerConfig)).
#[derive(Default)]
pub struct SharedServers {
    by_digest: Mutex<HashMap<String, Weak<SupervisedServer>>>,
}

impl SharedServers {
    /// Adds a user to the running server that has this digest, or creates the server.
    pub fn join(&self, digest: &str, make: impl FnOnce() -> SupervisedServer) -> McpProvider {
        // Hold the lock until the end. Otherwise the last user could leave a server while another one joins it.
        let mut servers = self.by_digest.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, server| server.strong_count() > 0);
        let found = servers.get(digest).and_then(Weak::upgrade);
        if let Some(joined) = found.and_then(McpProvider::join) {
            return joined;
        }
        let server = Arc::new(make());
        servers.insert(digest.to_owned(), Arc::downgrade(&server));
        McpProvider::new(server)
    }

    /// Returns the name and the state of each server that has users. A name can occur several times, because principals
    /// do not share servers.
    pub fn states(&self) -> Vec<(String, &'static str)> {
        let servers = self.by_digest.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = servers.values().filter_map(Weak::upgrade);
        in_use.map(|server| (server.name().to_owned(), server.state_name())).collect()
    }
}

impl fmt::Debug for SharedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedServers").finish_non_exhaustive()
    }
}

/// The number of users of a server. After the last user has left, the server has ended and cannot be joined again.
#[derive(Debug, Default)]
pub(super) struct ServerUsers(Mutex<UserCount>);

#[derive(Debug, Default)]
struct UserCount {
    now: usize,
    over: bool,
}

impl ServerUsers {
    /// Adds a user. Returns false if the server has ended.
    pub(super) fn join(&self) -> bool {
        let mut count = self.lock();
        count.now += usize::from(!count.over);
        !count.over
    }

    /// Removes a user. Returns true if it was the last one.
    pub(super) fn leave(&self) -> bool {
        let mut count = self.lock();
        count.now = count.now.saturating_sub(1);
        count.over = count.now == 0;
        count.over
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, UserCount> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_server_ends_with_its_last_user_and_accepts_no_new_users() {
        let users = ServerUsers::default();
        assert!(users.join() && users.join());
        assert!(!users.leave());
        assert!(users.leave());
        assert!(!users.join());
    }
}
