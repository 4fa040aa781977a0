//! Limits failed logins per IP address.
//!
//! A valid key is always accepted: clients behind one proxy share an address, and one client must not lock out the
//! other clients. The limit keeps a client that guesses keys from filling the logs, and tells the client to stop.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of failures of one address within [`WINDOW`] that get status 401. Further failures get 429.
pub(crate) const FAILURES_MAX: u32 = 10;

const WINDOW: Duration = Duration::from_mins(1);

/// The maximum number of addresses whose failures are counted. When it is reached, the counts whose window is over are
/// removed, or all counts if no window is over.
const ADDRESSES_MAX: usize = 10_000;

/// The IP address of a client: the other end of the connection, or the client that a trusted proxy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl FailedLogins {
    /// Counts a failure. If the address has failed too often, returns the time until its failures get status 401 again.
    pub(crate) fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began: Instant| now.saturating_duration_since(began) >= WINDOW;
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&address) {
            failures.retain(|_, (began, _)| !is_over(*began));
            if failures.len() >= ADDRESSES_MAX {
                failures.clear();
            }
        }
        let (began, count) = failures.entry(address).or_insert((now, 0));
        if is_over(*began) {
            (*began, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        (*count > FAILURES_MAX).then(|| WINDOW.saturating_sub(now.saturating_duration_since(*began)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_per_address_and_minute() {
        let (logins, start) = (FailedLogins::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        let other: IpAddr = "192.0.2.2".parse().unwrap();
        for _ in 0..FAILURES_MAX {
            assert_eq!(logins.count(one, start), None);
        }
        let later = start + Duration::from_secs(20);
        assert_eq!(logins.count(one, later), Some(Duration::from_secs(40)));
        assert_eq!(logins.count(other, later), None);
        assert_eq!(logins.count(one, start + WINDOW), None, "a new minute begins");
    }

    #[test]
    fn number_of_counted_addresses_is_bounded() {
        let (logins, start) = (FailedLogins::default(), Instant::now());
        for number in 0..=ADDRESSES_MAX {
            let [_, a, b, c] = u32::try_from(number).unwrap().to_be_bytes();
            logins.count(IpAddr::from([10, a, b, c]), start);
        }
        assert!(logins.0.lock().unwrap().len() <= ADDRESSES_MAX);
    }
}
