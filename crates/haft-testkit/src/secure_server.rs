//! A model server behind TLS, or without it, that tells in which version of HTTP it was asked and over which connection.

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

/// What a chat model says to everything.
const REPLY: &str = r#"{"id":"r","model":"m","choices":[{"message":{"content":"safe"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

/// What the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// TLS, and by ALPN both versions, the newer first.
    Http2,
    /// TLS, and only HTTP/1.1.
    Http1,
    /// No TLS at all.
    Plain,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    pub version: Version,
    /// Of all connections, from 0.
    pub connection: usize,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct SecureServer {
    address: SocketAddr,
    offer: Offer,
    directory: tempfile::TempDir,
    desk: Desk,
    _stop: oneshot::Sender<()>,
}

impl SecureServer {
    /// Answers at once, but for `together` requests after the first: these are answered when all of them are there.
    pub fn start(offer: Offer, together: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let acceptor = acceptor(offer, directory.path());
        let listener = StdListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let desk = Desk { together: Arc::new(Barrier::new(together.max(1))), ..Desk::default() };
        let served = desk.clone();
        thread::spawn(move || serve(listener, acceptor.as_ref(), &served, stopped));
        Self { address, offer, directory, desk, _stop: stop }
    }

    /// Where it speaks chat completions.
    pub fn url(&self) -> String {
        let scheme = if self.offer == Offer::Plain { "http" } else { "https" };
        format!("{scheme}://{}/v1", self.address)
    }

    /// The certificate of who vouches for it, in a file.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub fn arrived(&self) -> Vec<Arrived> {
        self.desk.arrived.lock().unwrap().clone()
    }

    /// How many requests were given up before they were answered.
    pub fn abandoned(&self) -> usize {
        self.desk.abandoned.load(Ordering::SeqCst)
    }

    /// On all connections so far nothing is heard and nothing said any more, as when a cable is cut.
    pub fn freeze(&self) {
        self.desk.lines.lock().unwrap().drain(..).for_each(|frozen| frozen.store(true, Ordering::SeqCst));
    }
}

#[derive(Debug, Clone)]
struct Desk {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    abandoned: Arc<AtomicUsize>,
    together: Arc<Barrier>,
    lines: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            arrived: Arc::default(),
            abandoned: Arc::default(),
            together: Arc::new(Barrier::new(1)),
            lines: Arc::default(),
        }
    }
}

/// Counts a request that is dropped.
struct Unanswered<'a>(Option<&'a AtomicUsize>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.0 {
            abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Desk {
    async fn answer(self, request: Request<hyper::body::Incoming>, connection: usize) -> Response<Body> {
        let first = {
            let mut arrived = self.arrived.lock().unwrap();
            arrived.push(Arrived { version: request.version(), connection });
            arrived.len() == 1
        };
        let mut unanswered = Unanswered(Some(&self.abandoned));
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
    desk: &Desk,
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
                    // A client that does not trust us hangs up.
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

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Desk, connection: usize) {
    let frozen = Arc::<AtomicBool>::default();
    desk.lines.lock().unwrap().push(Arc::clone(&frozen));
    let stream = Line { stream, frozen };
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(request, connection).await) }
    });
    // How a connection ends is the client's affair.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// A connection that may fall silent.
struct Line<S> {
    stream: S,
    frozen: Arc<AtomicBool>,
}

impl<S> Line<S> {
    /// Nothing happens on it any more, and nobody is woken.
    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_frozen() { Poll::Pending } else { Pin::new(&mut self.stream).poll_read(cx, buffer) }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
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

/// A certificate for the loopback, by an authority that only `directory` knows.
fn acceptor(offer: Offer, directory: &Path) -> Option<TlsAcceptor> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(directory.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let protocols: &[&[u8]] = match offer {
        Offer::Http2 => &[b"h2", b"http/1.1"],
        Offer::Http1 => &[b"http/1.1"],
        Offer::Plain => return None,
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
