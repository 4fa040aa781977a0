//! The address of a client behind reverse proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// The header to which each proxy appends the address that it got the request from.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns the address of the client: the last address in `X-Forwarded-For` that is not a trusted proxy. The entries
/// before it could be invented by the client, and so could the whole header if `peer` is not a trusted proxy.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut address = peer.to_canonical();
    let values: Vec<&str> =
        headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
    let mut entries = values.iter().flat_map(|value| value.split(',')).rev();
    while trusted.iter().any(|network| network.contains(&address)) {
        let Some(before) = entries.next().and_then(parse) else { break };
        address = before;
    }
    address
}

/// Parses an entry, which some proxies write with a port.
fn parse(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let with_port = || entry.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    entry.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_can_name_the_client() {
        let trusted: Vec<IpNet> =
            ["10.0.0.0/8", "fd00::/8"].iter().map(|network| network.parse().unwrap()).collect();
        let check = |peer: &str, values: &[&str], expected: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(FORWARDED_FOR, value.parse().unwrap());
            }
            let found = client_address(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(found.to_string(), expected, "{peer} {values:?}");
        };
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["203.0.113.7"], "203.0.113.7");
        check("203.0.113.9", &["203.0.113.7"], "203.0.113.9");
        check("10.0.0.1", &["198.51.100.1, 203.0.113.7, 10.0.0.2"], "203.0.113.7");
        check("10.0.0.1", &["198.51.100.1", "203.0.113.7"], "203.0.113.7");
        check("::ffff:10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1");
        check("fd00::1", &["203.0.113.7:5000"], "203.0.113.7");
        check("10.0.0.1", &["203.0.113.7, unknown"], "10.0.0.1");
        check("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
    }
}
