//! One process for all who want the same server: whoever comes first starts it, whoever leaves last ends it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::provider::McpProvider;
use super::server::Server;

/// Servers by what they are: configuration and credentials, as [`ServerConfig::digest`](super::ServerConfig) sums them up.
#[derive(Default)]
pub struct SharedServers {
    by_digest: Mutex<HashMap<String, Weak<Server>>>,
}

impl SharedServers {
    /// Joins the server that is there already, or makes it.
    pub fn join(&self, digest: &str, make: impl FnOnce() -> Server) -> McpProvider {
        // Held to the end: nobody may leave a server for good while somebody else joins it.
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
}

impl fmt::Debug for SharedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedServers").finish_non_exhaustive()
    }
}

/// How many use a server. Once nobody does it is over, and nobody can join any more.
#[derive(Debug, Default)]
pub(super) struct Users(Mutex<Count>);

#[derive(Debug, Default)]
struct Count {
    now: usize,
    over: bool,
}

impl Users {
    /// Whether there is still something to join.
    pub(super) fn join(&self) -> bool {
        let mut count = self.lock();
        count.now += usize::from(!count.over);
        !count.over
    }

    /// Whether that was the last one.
    pub(super) fn leave(&self) -> bool {
        let mut count = self.lock();
        count.now = count.now.saturating_sub(1);
        count.over = count.now == 0;
        count.over
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_who_leaves_ends_it_and_nobody_joins_what_is_over() {
        let users = Users::default();
        assert!(users.join() && users.join());
        assert!(!users.leave());
        assert!(users.leave());
        assert!(!users.join());
    }
}
