//! A model server, with or without TLS, that records the HTTP version and the connection of each request.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{io, thread};

use axum::body::Body;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The chat completion with which the server answers every request.
const REPLY: &str = r#"{"id":"r","model":"m","choices":[{"message":{"content":"safe"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

/// The protocols that the server offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedProtocols {
    /// TLS with both HTTP versions through ALPN, the newer one first.
    Http2,
    /// TLS with only HTTP/1.1.
    Http1,
    /// No TLS at all.
    Plain,
}

/// A request that the server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedHttpRequest {
    pub version: Version,
    /// The number of the connection, counted from 0 since the start of the server.
    pub connection: usize,
}

/// A model server that runs until it is dropped.
#[derive(Debug)]
pub struct SecureServer {
    address: SocketAddr,
    offer: OfferedProtocols,
    directory: tempfile::TempDir,
    desk: SecureServerState,
    _stop: oneshot::Sender<()>,
}

impl SecureServer {
    /// Starts a server that answers its first request at once. Later requests wait until `together` requests have
    /// arrived, and are then answered together.
    pub fn start(offer: OfferedProtocols, together: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let acceptor = acceptor(offer, directory.path());
        let listener = StdListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let desk = SecureServerState {
            together: Arc::new(Barrier::new(together.max(1))),
            ..SecureServerState::default()
        };
        let served = desk.clone();
        thread::spawn(move || serve(listener, acceptor.as_ref(), &served, stopped));
        Self { address, offer, directory, desk, _stop: stop }
    }

    /// Returns the base URL of the server's chat completions API.
    pub fn url(&self) -> String {
        let scheme = if self.offer == OfferedProtocols::Plain { "http" } else { "https" };
        format!("{scheme}://{}/v1", self.address)
    }

    /// Returns the path of the certificate of the authority that signed the server's certificate.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub fn arrived(&self) -> Vec<ReceivedHttpRequest> {
        self.desk.arrived.lock().unwrap().clone()
    }

    /// Returns the number of requests that clients cancelled before they were answered.
    pub fn abandoned(&self) -> usize {
        self.desk.abandoned.load(Ordering::SeqCst)
    }

    /// Silences all current connections in both directions, as if a cable were cut.
    pub fn freeze(&self) {
        self.desk.lines.lock().unwrap().drain(..).for_each(|frozen| frozen.store(true, Ordering::SeqCst));
    }
}

#[derive(Debug, Clone)]
struct SecureServerState {
    arrived: Arc<Mutex<Vec<ReceivedHttpRequest>>>,
    abandoned: Arc<AtomicUsize>,
    together: Arc<Barrier>,
    lines: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Default for SecureServerState {
    fn default() -> Self {
        Self {
            arrived: Arc::default(),
            abandoned: Arc::default(),
            together: Arc::new(Barrier::new(1)),
            lines: Arc::default(),
        }
    }
}

/// Counts a request as abandoned if it is dropped before its answer.
struct AbandonGuard<'a>(Option<&'a AtomicUsize>);

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.0 {
            abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl SecureServerState {
    async fn answer(self, request: Request<hyper::body::Incoming>, connection: usize) -> Response<Body> {
        let first = {
            let mut arrived = self.arrived.lock().unwrap();
            arrived.push(ReceivedHttpRequest { version: request.version(), connection });
            arrived.len() == 1
        };
        let mut unanswered = AbandonGuard(Some(&self.abandoned));
        if !first {
            self.together.wait().await;
        }
        unanswered.0 = None;
        Response::builder().header("content-type", "application/json").body(Body::from(REPLY)).unwrap()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn serve(
    listener: StdListener,
    acceptor: Option<&TlsAcceptor>,
    desk: &SecureServerState,
    stopped: oneshot::Receiver<()>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let accept = async {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, desk) = (acceptor.cloned(), desk.clone());
            tokio::spawn(async move {
                match acceptor {
                    None => speak(stream, desk, connection).await,
                    // A client that does not trust the certificate closes the connection during the handshake.
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            speak(stream, desk, connection).await;
                        }
                    }
                }
            });
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stopped => {}
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    desk: SecureServerState,
    connection: usize,
) {
    let frozen = Arc::<AtomicBool>::default();
    desk.lines.lock().unwrap().push(Arc::clone(&frozen));
    let stream = FreezableStream { stream, frozen };
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(request, connection).await) }
    });
    // The client may end the connection in any way, so an error is not a failure.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// A connection that can stop responding.
struct FreezableStream<S> {
    stream: S,
    frozen: Arc<AtomicBool>,
}

impl<S> FreezableStream<S> {
    /// Returns true if the connection was frozen. Reads and writes of a frozen connection stay pending forever.
    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FreezableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_frozen() { Poll::Pending } else { Pin::new(&mut self.stream).poll_read(cx, buffer) }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FreezableStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_frozen() { Poll::Pending } else { Pin::new(&mut self.stream).poll_write(cx, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Creates a certificate for localhost, signed by an authority whose certificate is only in `directory`.
fn acceptor(offer: OfferedProtocols, directory: &Path) -> Option<TlsAcceptor> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(directory.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let protocols: &[&[u8]] = match offer {
        OfferedProtocols::Http2 => &[b"h2", b"http/1.1"],
        OfferedProtocols::Http1 => &[b"http/1.1"],
        OfferedProtocols::Plain => return None,
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Some(TlsAcceptor::from(Arc::new(config)))
}
