//! The settings that all HTTP clients of this crate share.

use std::time::Duration;

/// The time to open a connection, with DNS and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts an HTTP client. The caller adds its redirect policy: each kind of server has another rule about the hosts that
/// may see its credentials.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    install_crypto_provider();
    reqwest::Client::builder()
        .user_agent(concat!("haft/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Installs the cryptography provider of rustls. The embedding program may have installed its own already; that one
/// stays.
pub(crate) fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
