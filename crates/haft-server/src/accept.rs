//! Accepts a limited number of connections, each with a time limit for the head of a request.
//!
//! Without these limits, a client without a key could keep connections open for ever and use up the file descriptors of
//! the process.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::failed_logins::ClientAddress;
use crate::settings::ServerSettings;

/// The pause after a failed accept. The usual reason is a lack of file descriptors, which ends when other connections
/// close.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Serves connections until `stop` resolves, and then until the requests in progress have ended. Dropping the future
/// closes all connections.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    settings: &ServerSettings,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let (stopped, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (stream, client, place) = accepted(&listener, &places) => {
                let connection = Connection { stream, client, head_timeout: settings.head_timeout, place };
                connections.spawn(connection.serve(app.clone(), stopping.clone()));
            }
        }
    }
    drop((listener, stopped));
    while connections.join_next().await.is_some() {}
}

/// Waits for a free slot, and only then for a connection, so that further clients wait in the queue of the system.
async fn accepted(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, ClientAddress, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = Arc::clone(places).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => return (stream, ClientAddress(client.ip()), place),
            Err(_) => sleep(PAUSE_AFTER_ERROR).await,
        }
    }
}

struct Connection {
    stream: TcpStream,
    client: ClientAddress,
    head_timeout: Duration,
    /// The slot, held until the connection ends.
    place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    async fn serve(self, app: Router, mut stopping: watch::Receiver<()>) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.head_timeout);
        let routes = TowerToHyperService::new(app);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(self.client);
            routes.call(request)
        });
        let mut exchange = pin!(http.serve_connection(TokioIo::new(self.stream), service).with_upgrades());
        // Ignore the error, which is only about this connection: the client went away, or did not send HTTP.
        let ended = tokio::select! {
            _ = exchange.as_mut() => true,
            // The sender is dropped when the server stops.
            _ = stopping.changed() => false,
        };
        if !ended {
            exchange.as_mut().graceful_shutdown();
            let _ = exchange.await;
        }
        drop(self.place);
    }
}
