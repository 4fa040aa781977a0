//! The state of each principal: the limits on its unread messages and its stateless requests, and the untrusted text
//! that its stateless requests have read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use haft_core::principal::Principal;
use haft_core::run::untrusted::UntrustedReads;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::message::LISTEN;

/// The maximum size of all messages that wait for the clients of one principal to read them, in bytes.
pub(super) const PRINCIPAL_WAITING_BYTES_MAX: usize = 192 << 20;

/// The maximum number of large results of one principal that are converted at the same time.
const LARGE_CONVERSIONS_MAX: usize = 1;

/// The maximum number of open stateless requests of one principal. Each of them is a connection of its own, so the limit
/// of a connection does not hold for them.
const STATELESS_REQUESTS_MAX: usize = 1_024;

/// The maximum number of open stateless requests of one principal that listen for changes.
const STATELESS_LISTENERS_MAX: usize = 256;

/// The number of principals beyond which haft forgets those that have neither open connections nor a record of untrusted
/// text.
const PRINCIPALS_KEPT: usize = 1_024;

/// The maximum number of principals with a state of their own. All further principals share one state, so that a record
/// of untrusted text is never lost.
const PRINCIPALS_MAX: usize = 65_536;

/// The state of all principals, by tenant and subject. A reload keeps it.
#[derive(Debug, Default)]
pub(super) struct PrincipalTable {
    states: Mutex<HashMap<(String, String), Arc<PrincipalState>>>,
    /// The state of the principals beyond the limit.
    shared: Arc<PrincipalState>,
}

/// The state of one principal.
#[derive(Debug)]
pub(super) struct PrincipalState {
    /// The untrusted text that stateless requests have read. A connection with many requests has a record of its own.
    pub(super) untrusted: Arc<UntrustedReads>,
    /// A permit for each byte that may still wait for the clients.
    pub(super) waiting_bytes: Arc<Semaphore>,
    /// The permit to convert a large result.
    pub(super) conversions: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    listeners: Arc<Semaphore>,
}

impl Default for PrincipalState {
    fn default() -> Self {
        Self {
            untrusted: Arc::default(),
            waiting_bytes: Arc::new(Semaphore::new(PRINCIPAL_WAITING_BYTES_MAX)),
            conversions: Arc::new(Semaphore::new(LARGE_CONVERSIONS_MAX)),
            requests: Arc::new(Semaphore::new(STATELESS_REQUESTS_MAX)),
            listeners: Arc::new(Semaphore::new(STATELESS_LISTENERS_MAX)),
        }
    }
}

impl PrincipalTable {
    /// Returns the state of a principal, which its connections share.
    pub(super) fn get(&self, principal: &Principal) -> Arc<PrincipalState> {
        let key = (principal.tenant().to_owned(), principal.subject().to_owned());
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = states.get(&key) {
            return Arc::clone(known);
        }
        if states.len() >= PRINCIPALS_KEPT {
            states.retain(|_, state| state.is_needed());
        }
        if states.len() >= PRINCIPALS_MAX {
            return Arc::clone(&self.shared);
        }
        Arc::clone(states.entry(key).or_default())
    }
}

impl PrincipalState {
    /// Admits a stateless request until the permit is dropped. The error is for the client.
    pub(super) fn admit(&self, method: &str) -> Result<OwnedSemaphorePermit, String> {
        let (permits, max, what) = match method {
            LISTEN => {
                (&self.listeners, STATELESS_LISTENERS_MAX, "stateless requests that listen for changes")
            }
            _ => (&self.requests, STATELESS_REQUESTS_MAX, "stateless requests"),
        };
        Arc::clone(permits)
            .try_acquire_owned()
            .map_err(|_| format!("a principal may have at most {max} open {what}; end some of them first"))
    }

    /// Returns true if the state must be kept: a connection uses it, or its record of untrusted text restricts later
    /// calls.
    fn is_needed(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
            || Arc::strong_count(&self.untrusted) > 1
            || self.untrusted.first_source().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(subject: &str) -> Principal {
        Principal::new("acme", subject, "key_1")
    }

    #[test]
    fn open_stateless_requests_of_a_principal_are_limited() {
        let table = PrincipalTable::default();
        for (method, max) in [("tools/call", STATELESS_REQUESTS_MAX), (LISTEN, STATELESS_LISTENERS_MAX)] {
            let mut open: Vec<_> =
                (0..max).map(|_| table.get(&principal("anna")).admit(method).unwrap()).collect();
            // Another key of the same subject has no requests of its own.
            let other_key = Principal::new("acme", "anna", "key_2");
            let refused = table.get(&other_key).admit(method).unwrap_err();
            assert!(refused.contains(&max.to_string()), "{refused}");
            assert!(table.get(&principal("bert")).admit(method).is_ok());
            open.pop();
            assert!(table.get(&principal("anna")).admit(method).is_ok());
        }
    }

    #[test]
    fn principal_that_has_read_untrusted_text_is_never_forgotten() {
        let table = PrincipalTable::default();
        table.get(&principal("anna")).untrusted.record("web__fetch");
        for number in 0..=PRINCIPALS_KEPT {
            table.get(&principal(&number.to_string()));
        }
        assert!(table.get(&principal("anna")).untrusted.first_source().is_some());
        assert!(table.states.lock().unwrap().len() < PRINCIPALS_KEPT, "unused principals are forgotten");
    }
}
