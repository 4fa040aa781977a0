//! TLS: the server certificate, which is read again when the configuration is reloaded.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use haft_config::resolved::TlsFiles;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The ALPN name of HTTP/2. The server also offers HTTP/1.1, because `WebSockets` use it.
pub(crate) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The certificate in use. An open connection keeps the certificate that it began with.
#[derive(Debug)]
pub(crate) struct ServerTls(RwLock<Arc<ServerConfig>>);

impl ServerTls {
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, String> {
        Ok(Self(RwLock::new(Arc::new(config(files)?))))
    }

    /// Uses the certificate of the other value for new connections.
    pub(crate) fn replace(&self, next: Self) {
        let next = next.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, String> {
    let problem = |file: &Path, error: String| format!("`{}`: {error}", file.display());
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| problem(&files.certificate, error.to_string()))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| problem(&files.key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    // Refuse a private key that does not belong to the certificate, to detect an incomplete renewal.
    let config = config.with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(|error| problem(&files.certificate, error.to_string()))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(config)
}
