//! Keeps discovery out of private networks. A server names the addresses of its authorization server; a public server
//! must not name addresses in the operator's own network.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::rest::is_public;

/// Returns true if the host of `url` is a private IP address, unless the URL of the server has a private IP address or
/// `localhost` too.
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

/// The network of a server, determined by the IP address that answered a request. A DNS lookup of its name is not
/// enough: the owner of a public server could let the name resolve to a private address for that one lookup.
#[derive(Debug, Clone)]
pub(super) struct ServerNetwork(Arc<Mutex<Option<NetworkKind>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkKind {
    Private,
    Public,
}

impl ServerNetwork {
    /// Derives from the URL whether the server is in a private or a public network. Only an IP address and `localhost`
    /// show this; for other names, the kind is unknown.
    pub(super) fn of(server: &Url) -> Self {
        let is_local = matches!(server.host(), Some(Host::Domain("localhost")));
        let named = if is_local { Some(NetworkKind::Private) } else { literal(server).map(NetworkKind::of) };
        Self(Arc::new(Mutex::new(named)))
    }

    pub(super) fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Records the address of a connection to the server, unless the network is already known.
    pub(super) fn learn(&self, address: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(NetworkKind::of(address));
    }

    fn is_private(&self) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(NetworkKind::Private)
    }
}

impl NetworkKind {
    fn of(address: IpAddr) -> Self {
        if is_public(address) { Self::Public } else { Self::Private }
    }
}

/// A DNS resolver that returns no private address for a host that a public server names. The client connects only to
/// the returned addresses, so the name cannot lead to another address after the check.
pub(super) struct DiscoveryResolver {
    server: Url,
    network: ServerNetwork,
}

impl DiscoveryResolver {
    pub(super) fn new(server: &Url, network: &ServerNetwork) -> Self {
        Self { server: server.clone(), network: network.clone() }
    }
}

impl Resolve for DiscoveryResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (server, network) = (self.server.clone(), self.network.clone());
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_other = server.host_str() != Some(name.as_str());
            let has_private = found.iter().any(|address| !is_public(address.ip()));
            if is_other && has_private && !network.is_private() {
                let message =
                    "the MCP server names a login host in a private network, so haft refuses this host";
                return Err(message.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn public_server_cannot_refer_to_a_private_address() {
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
    async fn host_name_with_a_private_address_is_allowed_only_for_a_private_server() {
        let found = async |server: &str, answered_from: &[&str]| {
            let network = ServerNetwork::of(&url(server));
            for address in answered_from {
                network.learn(address.parse().unwrap());
            }
            let resolver = DiscoveryResolver::new(&url(server), &network);
            resolver.resolve(Name::from_str("localhost").unwrap()).await.map(std::iter::Iterator::count)
        };
        assert!(found("http://127.0.0.1:1/mcp", &[]).await.unwrap() > 0);
        assert!(found("http://localhost:1/mcp", &[]).await.unwrap() > 0);
        assert!(found("https://mcp.corp.example/mcp", &["10.0.0.1"]).await.unwrap() > 0);
        let refused = found("https://8.8.8.8/mcp", &["127.0.0.1"]).await.unwrap_err();
        assert!(refused.to_string().contains("private network"), "{refused}");
        // A host name that resolves to this machine proves nothing, because the owner of the name controls the answers
        // of its DNS server.
        assert!(found("http://name.localhost/mcp", &[]).await.is_err());
        assert!(found("https://mcp.example.com/mcp", &["8.8.8.8", "127.0.0.1"]).await.is_err());
    }
}
