//! HTTP clients that several providers share, so that many runs in one process use the same connections.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use haft_core::settings::models::ModelTimeouts;
use reqwest::{Request, Response, Url, redirect};
use tokio::runtime::{self, Handle};

use super::client::CertificateAuthorities;
use crate::tool_blocks::ToolBlocks;

/// The maximum number of providers that use one client at the same time. Over HTTP/2 a client opens one connection to
/// each server, and many servers accept 100 concurrent requests per connection, so a further request would wait until
/// another one ends. A provider may have several requests in progress, because agents call other agents.
const PROVIDERS_PER_CLIENT_MAX: usize = 32;

/// HTTP clients for providers. Clones share the clients.
///
/// A client holds the system's certificates and open connections, which take far more memory than a run. A client has
/// no cookies, and API keys are part of each request, so runs of different principals can share it.
#[derive(Debug, Clone, Default)]
pub struct ClientPool {
    clients: Arc<Mutex<Vec<Arc<SharedClient>>>>,
    tool_blocks: ToolBlocks,
}

impl ClientPool {
    /// Returns the encoded tool lists that the conversations of all providers share.
    pub(super) fn tool_blocks(&self) -> &ToolBlocks {
        &self.tool_blocks
    }

    /// Returns a client from the pool with these settings. Creates a client if all existing ones have the maximum
    /// number of providers. A client that trusts other certificate authorities is used by its provider alone.
    pub(super) fn connections(
        &self,
        settings: ClientSettings,
        authorities: &CertificateAuthorities,
    ) -> reqwest::Result<Arc<SharedClient>> {
        if !authorities.certificates().is_empty() {
            return Ok(Arc::new(SharedClient::new(settings, authorities)?));
        }
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // The pool itself holds one of the counted references.
        let has_room = |client: &&Arc<SharedClient>| Arc::strong_count(client) <= PROVIDERS_PER_CLIENT_MAX;
        if let Some(client) = clients.iter().filter(has_room).find(|client| client.settings == settings) {
            return Ok(Arc::clone(client));
        }
        clients.retain(|client| Arc::strong_count(client) > 1);
        let client = Arc::new(SharedClient::new(settings, authorities)?);
        clients.push(Arc::clone(&client));
        Ok(client)
    }
}

/// The settings with which a client is created. Providers share a client only if all settings are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientSettings {
    connect: Duration,
    ping_after: Duration,
    pong_within: Duration,
    proxies: ProxyChoice,
    certificates: CertificateUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateUse {
    OfSystem,
    /// Load no certificates, because the client reaches this server without TLS. Loading the system's certificates
    /// takes 5 ms.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyChoice {
    OfEnvironment,
    /// Use no proxy, because a proxy could not reach a server on this machine.
    None,
}

impl ClientSettings {
    pub(super) fn of(timeouts: &ModelTimeouts, server: &Url) -> Self {
        let ModelTimeouts { connect, ping_after, pong_within, first_byte: _, between_chunks: _, total: _ } =
            *timeouts;
        let proxies = if is_local_server(server) { ProxyChoice::None } else { ProxyChoice::OfEnvironment };
        // A proxy may need TLS although the server does not.
        let certificates = match (proxies, server.scheme()) {
            (ProxyChoice::None, "http") => CertificateUse::None,
            (ProxyChoice::None | ProxyChoice::OfEnvironment, _) => CertificateUse::OfSystem,
        };
        Self { connect, ping_after, pong_within, proxies, certificates }
    }
}

fn is_local_server(server: &Url) -> bool {
    let host = server.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// An HTTP client with its connections. It never follows redirects, because they would send the API key to another
/// server.
///
/// Each tokio runtime has its own connections. The task of a connection runs on the runtime that opened it. With a shared
/// connection, each part of a reply to another runtime would wake up two threads.
#[derive(Debug)]
pub(super) struct SharedClient {
    settings: ClientSettings,
    authorities: CertificateAuthorities,
    of_runtimes: RwLock<Vec<(Option<runtime::Id>, reqwest::Client)>>,
}

impl SharedClient {
    /// Creates the client and its connections for the current tokio runtime.
    fn new(settings: ClientSettings, authorities: &CertificateAuthorities) -> reqwest::Result<Self> {
        let client = Self { settings, authorities: authorities.clone(), of_runtimes: RwLock::default() };
        client.of_this_runtime()?;
        Ok(client)
    }

    fn of_this_runtime(&self) -> reqwest::Result<reqwest::Client> {
        // A client can be created outside of a runtime, but not used.
        let id = Handle::try_current().ok().map(|runtime| runtime.id());
        let of = |clients: &[(Option<runtime::Id>, reqwest::Client)]| {
            clients.iter().find(|(of, _)| *of == id).map(|(_, client)| client.clone())
        };
        if let Some(client) = of(&self.of_runtimes.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(client);
        }
        let client = Self::connect(self.settings, &self.authorities)?;
        let mut clients = self.of_runtimes.write().unwrap_or_else(PoisonError::into_inner);
        // Another task of this runtime may have created a client in the meantime.
        let client = of(&clients).unwrap_or(client);
        clients.retain(|(of, _)| *of != id);
        clients.push((id, client.clone()));
        Ok(client)
    }

    fn connect(
        settings: ClientSettings,
        authorities: &CertificateAuthorities,
    ) -> reqwest::Result<reqwest::Client> {
        // Ignore the error: another crypto provider is already installed, which works too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = match settings.proxies {
            ProxyChoice::OfEnvironment => reqwest::Client::builder(),
            ProxyChoice::None => reqwest::Client::builder().no_proxy(),
        };
        let extra = authorities.certificates().iter().cloned();
        let builder = match settings.certificates {
            CertificateUse::OfSystem => builder.tls_certs_merge(extra),
            CertificateUse::None => builder.tls_certs_only(extra),
        };
        builder
            .connect_timeout(settings.connect)
            .http2_keep_alive_interval(settings.ping_after)
            .http2_keep_alive_timeout(settings.pong_within)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("haft/", env!("CARGO_PKG_VERSION")))
            .build()
    }

    pub(super) async fn execute(&self, request: Request) -> reqwest::Result<Response> {
        self.of_this_runtime()?.execute(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(server: &str, connect: Duration) -> ClientSettings {
        let timeouts = ModelTimeouts { connect, ..ModelTimeouts::default() };
        ClientSettings::of(&timeouts, &Url::parse(server).unwrap())
    }

    #[test]
    fn providers_with_equal_settings_share_a_client() {
        let pool = ClientPool::default();
        let second = Duration::from_secs(1);
        let first =
            pool.connections(settings("https://a.test", second), &CertificateAuthorities::default()).unwrap();
        let check = |server: &str, connect: Duration, shared: bool| {
            let other =
                pool.connections(settings(server, connect), &CertificateAuthorities::default()).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &other), shared, "{server} {connect:?}");
        };
        check("https://a.test", second, true);
        check("https://b.test/v1", second, true);
        check("https://a.test", 2 * second, false);
        // haft never uses a proxy to reach a server on this machine.
        check("http://127.0.0.1:8080", second, false);
        let local = |server: &str| settings(server, second);
        assert_eq!(local("http://127.0.0.1:8080"), local("http://localhost:9"));
        assert_ne!(
            local("http://127.0.0.1:8080"),
            local("https://127.0.0.1:8080"),
            "only https loads certificates"
        );
        assert_eq!(
            local("http://a.test"),
            local("https://a.test"),
            "http to a remote host may use a proxy with TLS"
        );
    }

    #[test]
    fn client_pool_shares_no_full_client_and_drops_unused_clients() {
        let pool = ClientPool::default();
        let of = |server: &str| {
            pool.connections(settings(server, Duration::from_secs(1)), &CertificateAuthorities::default())
                .unwrap()
        };
        let mut users: Vec<_> = (0..=PROVIDERS_PER_CLIENT_MAX).map(|_| of("https://a.test")).collect();
        let further = users.pop().unwrap();
        assert!(users.iter().all(|user| Arc::ptr_eq(user, &users[0])));
        assert!(!Arc::ptr_eq(&further, &users[0]));
        users.pop();
        assert!(Arc::ptr_eq(&of("https://a.test"), &users[0]), "the client has room for a provider again");
        drop(further);
        let _other = of("http://localhost");
        assert_eq!(pool.clients.lock().unwrap().len(), 2);
    }
}
