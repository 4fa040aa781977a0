//! Limits failed logins per IP address.
//!
//! A valid key is always accepted: clients behind one proxy share an address, and one client must not lock out the
//! other clients. The limit keeps a client that guesses keys from filling the logs, and tells the client to stop.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
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
        let address = counted(address);
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

/// Returns the address under which a failure is counted. A network of IPv6 addresses usually has one owner, who can use
/// each of its addresses, so all addresses of a /64 network count together.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
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
    fn failures_of_an_ipv6_network_are_counted_together() {
        let (logins, start) = (FailedLogins::default(), Instant::now());
        let of_host = |host: u32| -> IpAddr { format!("2001:db8:0:1::{host:x}").parse().unwrap() };
        for host in 0..FAILURES_MAX {
            assert_eq!(logins.count(of_host(host), start), None);
        }
        assert_eq!(logins.count(of_host(9_999), start), Some(WINDOW));
        assert_eq!(logins.count("2001:db8:0:2::1".parse().unwrap(), start), None);
        for host in 0..=FAILURES_MAX {
            let mapped: IpAddr = format!("::ffff:192.0.2.{host}").parse().unwrap();
            assert_eq!(logins.count(mapped, start), None, "an IPv4 address counts alone");
        }
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
