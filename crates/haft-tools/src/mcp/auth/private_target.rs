//! Keeps discovery out of private networks: a server names the addresses of its authorization server, and those of a
//! public server must not lead to the operator's own network.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::rest::is_public;

/// Returns true for an address in a private network, written as a number, that a server outside of it names.
pub(super) fn leads_inside(url: &Url, server: &Url) -> bool {
    let is_private = |url: &Url| literal(url).is_some_and(|address| !is_public(address));
    let is_local = matches!(server.host(), Some(Host::Domain("localhost")));
    is_private(url) && !is_private(server) && !is_local
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// A DNS resolver that finds no private address for a host that a public server names. The client connects to exactly
/// these addresses, so the name cannot lead to another address after the check.
pub(super) struct DiscoveryResolver {
    server: Url,
}

impl DiscoveryResolver {
    pub(super) fn new(server: &Url) -> Self {
        Self { server: server.clone() }
    }
}

impl Resolve for DiscoveryResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let server = self.server.clone();
        Box::pin(async move {
            let found = lookup(name.as_str()).await?;
            let is_other = server.host_str() != Some(name.as_str());
            if is_other && has_private(&found) && !is_inside(&server).await? {
                let message = "the server names a host in a private network, which is refused";
                return Err(message.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Returns true if the server itself is in a private network. Its authorization server may be there too.
async fn is_inside(server: &Url) -> std::io::Result<bool> {
    match literal(server) {
        Some(address) => Ok(!is_public(address)),
        None => Ok(has_private(&lookup(server.host_str().unwrap_or_default()).await?)),
    }
}

fn has_private(found: &[SocketAddr]) -> bool {
    found.iter().any(|address| !is_public(address.ip()))
}

async fn lookup(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, 0)).await?.collect())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_public_server_cannot_name_a_private_address() {
        let check = |address: &str, server: &str, expected: bool| {
            assert_eq!(leads_inside(&url(address), &url(server)), expected, "{address} for {server}");
        };
        check("https://169.254.169.254/latest", "https://mcp.example.com/", true);
        check("https://[::1]/token", "https://mcp.example.com/", true);
        check("https://10.0.0.1/token", "https://8.8.8.8/", true);
        check("https://10.0.0.1/token", "https://10.0.0.2/", false);
        check("https://127.0.0.1:1/token", "http://localhost:2/", false);
        check("https://auth.example.com/", "https://mcp.example.com/", false);
    }

    #[tokio::test]
    async fn a_name_of_a_private_address_is_found_only_for_a_private_server() {
        let found = async |server: &str| {
            let resolver = DiscoveryResolver::new(&url(server));
            resolver.resolve(Name::from_str("localhost").unwrap()).await.map(std::iter::Iterator::count)
        };
        assert!(found("http://127.0.0.1:1/mcp").await.unwrap() > 0);
        assert!(found("http://localhost:1/mcp").await.unwrap() > 0);
        let refused = found("https://8.8.8.8/mcp").await.unwrap_err();
        assert!(refused.to_string().contains("private network"), "{refused}");
    }
}
