//! The settings that the HTTP clients of this crate and of the server share.

use std::time::Duration;

/// The timeout for opening a connection, including DNS and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts building an HTTP client. The caller adds its redirect policy, because each kind of server has its own rule
/// about which hosts may receive its credentials.
pub fn builder() -> reqwest::ClientBuilder {
    install_crypto_provider();
    reqwest::Client::builder()
        .user_agent(concat!("haft/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
}

/// Installs the cryptography provider of rustls, unless the embedding program has already installed one.
pub(crate) fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
