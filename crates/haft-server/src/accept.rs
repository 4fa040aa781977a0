//! Accepts connections, up to a maximum number. Closes a connection whose client does not send the head of a request in
//! time, or does not read its replies.
//!
//! Without these limits, a client without a key could keep connections open forever and use up the file descriptors of
//! the process.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::failed_logins::ClientAddress;
use crate::server_threads::ThreadHandles;
use crate::settings::ServerSettings;
use crate::stalled_streams::{self, StreamExecutor};
use crate::tls::{HTTP2, ServerTls};

/// The pause after a failed accept. The usual reason is a lack of file descriptors, which ends when other connections
/// close.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// The maximum number of requests that one HTTP/2 connection may have open at the same time.
const STREAMS_MAX: u32 = 100;

/// The maximum number of requests that the client of one HTTP/2 connection may reset before the server begins to handle
/// them. If the client exceeds this number, the server closes the connection: the client evades [`STREAMS_MAX`] with
/// resets (rapid reset, CVE-2023-44487). An ordinary client does not reach this number, because it resets only single
/// requests and the server begins to handle each request at once.
const UNSERVED_RESETS_MAX: usize = 20;

/// The maximum number of requests that the server itself resets on one HTTP/2 connection because they break the
/// protocol. After that, the server closes the connection.
const ERROR_RESETS_MAX: usize = 1_000;

/// The maximum size of the headers of an HTTP/2 request, in bytes. HTTP/1.1 has a limit of its own.
const HTTP2_HEAD_BYTES_MAX: u32 = 64 << 10;

/// Serves connections until `stop` resolves, and then until the requests in progress have ended. Dropping the future
/// closes all connections.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    (settings, threads): (&ServerSettings, &ThreadHandles),
    tls: Option<&ServerTls>,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(settings.serve.connections_max.min(Semaphore::MAX_PERMITS)));
    let (stopped, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (stream, client, place) = accepted(&listener, &places) => {
                limit_unread_time(&stream, settings.serve.send_timeout);
                // Ignore a connection that cannot be moved to its thread: it is already broken.
                let Ok(stream) = stream.into_std() else { continue };
                let connection = Connection {
                    app: app.clone(),
                    client,
                    head_timeout: settings.head_timeout,
                    send_timeout: settings.serve.send_timeout,
                    stopping: stopping.clone(),
                    place,
                };
                threads.spawn_connection(&mut connections, connection.serve(stream, tls.map(ServerTls::acceptor)));
            }
        }
    }
    drop((listener, stopped));
    while connections.join_next().await.is_some() {}
}

/// Waits for a free slot, and only then for a connection, so that further clients wait in the kernel's accept queue.
async fn accepted(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, ClientAddress, Option<OwnedSemaphorePermit>) {
    // Acquiring cannot fail, because the semaphore is never closed.
    let place = Arc::clone(places).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                // Set `TCP_NODELAY`. Otherwise the kernel holds back an event until the client has acknowledged the
                // previous event, which takes up to 40 ms. Ignore a failure: the connection works, but slowly.
                let _ = stream.set_nodelay(true);
                return (stream, ClientAddress(client.ip()), place);
            }
            Err(_) => sleep(PAUSE_AFTER_ERROR).await,
        }
    }
}

/// Sets the time after which the kernel closes the connection if the client acknowledges no data or keeps its receive
/// window closed. The kernel sees every byte that a slow client reads. A timer around our own writes would not: the
/// kernel takes no further write until a third of its send buffer is free, which can be megabytes.
///
/// If this fails, the connection works without the limit.
#[cfg(target_os = "linux")]
fn limit_unread_time(stream: &TcpStream, send_timeout: Duration) {
    let milliseconds = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds);
}

/// Does nothing, because other operating systems do not have this socket option.
#[cfg(not(target_os = "linux"))]
fn limit_unread_time(_: &TcpStream, _: Duration) {}

/// The slot of a connection. A WebSocket keeps the slot, because it outlives the HTTP exchange with which it began.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSlot {
    _place: Arc<Option<OwnedSemaphorePermit>>,
}

struct Connection {
    app: Router,
    client: ClientAddress,
    head_timeout: Duration,
    send_timeout: Duration,
    /// The signal that the server stops: the channel closes when the server drops the sender.
    stopping: watch::Receiver<()>,
    /// The slot, held until the connection ends.
    place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    async fn serve(self, stream: std::net::TcpStream, tls: Option<TlsAcceptor>) {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        match tls {
            None => self.serve_http1(stream).await,
            // Box the future. Otherwise a connection without TLS would use as much memory as a connection with TLS.
            Some(tls) => Box::pin(self.serve_tls(stream, tls)).await,
        }
    }

    async fn serve_tls(self, stream: TcpStream, tls: TlsAcceptor) {
        // Ignore the error, which affects only this connection: the client went away, or does not trust our
        // certificate.
        let Ok(Ok(stream)) = timeout(self.head_timeout, tls.accept(stream)).await else { return };
        if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
            self.serve_http2(stream).await;
        } else {
            self.serve_http1(stream).await;
        }
    }

    async fn serve_http1(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.head_timeout);
        let (routes, client) = (TowerToHyperService::new(self.app), self.client);
        let slot = ConnectionSlot { _place: Arc::new(self.place) };
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(client);
            request.extensions_mut().insert(slot.clone());
            routes.call(request)
        });
        let mut exchange = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
        // Ignore the error, which affects only this connection: the client went away, or did not send HTTP.
        let ended = tokio::select! {
            _ = exchange.as_mut() => true,
            _ = self.stopping.changed() => false,
        };
        if !ended {
            exchange.as_mut().graceful_shutdown();
            let _ = exchange.await;
        }
    }

    /// Serves the requests of one HTTP/2 connection. If no new request begins within the head timeout, finishes the
    /// requests in progress, including their streams, and closes the connection.
    async fn serve_http2(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let streams = StreamExecutor::new(self.send_timeout);
        let mut http = http2::Builder::new(streams.clone());
        http.timer(TokioTimer::new())
            .keep_alive_interval(self.head_timeout)
            .keep_alive_timeout(self.head_timeout);
        http.max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HTTP2_HEAD_BYTES_MAX)
            .max_pending_accept_reset_streams(UNSERVED_RESETS_MAX)
            .max_local_error_reset_streams(ERROR_RESETS_MAX);
        let begun = Arc::new(AtomicU64::new(0));
        let (routes, client, counter) = (TowerToHyperService::new(self.app), self.client, Arc::clone(&begun));
        let service = service_fn(move |mut request: Request<Incoming>| {
            counter.fetch_add(1, Ordering::Relaxed);
            request.extensions_mut().insert(client);
            let reply = routes.call(request);
            async { reply.await.map(stalled_streams::counted) }
        });
        let stream = TokioIo::new(streams.counted(stream));
        let mut exchange = pin!(http.serve_connection(stream, service));
        let ended = tokio::select! {
            _ = exchange.as_mut() => true,
            _ = self.stopping.changed() => false,
            () = idle(&begun, self.head_timeout) => false,
        };
        if !ended {
            exchange.as_mut().graceful_shutdown();
            tokio::select! {
                _ = exchange => {}
                () = streams.without_streams() => {}
            }
        }
        drop(self.place);
    }
}

/// Returns after the connection has had no new request for `time`.
async fn idle(begun: &AtomicU64, time: Duration) {
    let mut before = begun.load(Ordering::Relaxed);
    loop {
        sleep(time).await;
        let now = begun.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kernel_does_not_hold_back_events_of_accepted_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, ..) = accepted(&listener, &Arc::new(Semaphore::new(1))).await;
        assert!(stream.nodelay().unwrap());
    }
}
