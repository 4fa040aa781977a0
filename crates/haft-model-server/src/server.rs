//! The server, and a handle for tests.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::serve::{Listener, ListenerExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::decision::{PlannedResponse, ReceivedRequest, decide};
use crate::request_log::{RecordedRequest, RequestLog, RequestOutcome};
use crate::router::{RequestParts, router};
use crate::script::Script;
use crate::script_progress::ScriptProgress;

/// A scripted model server on its own port. It stops when it is dropped.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<ModelServerState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct ModelServerState {
    script: Script,
    /// One lock protects both values, so that the server stores a request and chooses its step atomically.
    state: Mutex<(ScriptProgress, RequestLog)>,
}

impl ModelServer {
    /// Starts the server on its own thread, so that it works in tests with and without a runtime.
    pub fn start(script: Script) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = ModelServerState::new(script, RequestLog::for_test());
        let (stop, stopped) = oneshot::channel();
        let router = router(Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    _ = axum::serve(sending_at_once(listener), router) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns `http://127.0.0.1:PORT`. Each SDK adds its own path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.state().1.all()
    }
}

impl Drop for ModelServer {
    /// Closes all open connections, because the runtime ends with its thread.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves a script until the listener fails.
pub async fn serve(script: Script, listener: TcpListener) -> io::Result<()> {
    let router = router(ModelServerState::new(script, RequestLog::counting()));
    axum::serve(sending_at_once(listener), router).await
}

/// Sends each chunk of a reply at once. Otherwise the kernel holds back a chunk until the client has acknowledged the
/// previous chunk, which takes up to 40 ms.
fn sending_at_once(listener: TcpListener) -> impl Listener<Addr = SocketAddr> {
    // Ignore an error: the connection then works, but slowly.
    listener.tap_io(|connection| drop(connection.set_nodelay(true)))
}

impl ModelServerState {
    fn new(script: Script, log: RequestLog) -> Arc<Self> {
        Arc::new(Self { script, state: Mutex::new((ScriptProgress::default(), log)) })
    }

    /// Locks the state. A poisoned lock is acceptable, because the test that panicked has already failed.
    fn state(&self) -> MutexGuard<'_, (ScriptProgress, RequestLog)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, serial: usize, outcome: RequestOutcome) {
        self.state().1.ended(serial, outcome);
    }

    /// Stores the request, and computes the response.
    pub(crate) fn decide(&self, parts: &RequestParts) -> (usize, PlannedResponse) {
        let mut state = self.state();
        let (progress, log) = &mut *state;
        let body = String::from_utf8_lossy(&parts.body);
        let serial = log.keep(parts.format, &parts.uri, &parts.headers, &body);
        (serial, decide(&self.script, progress, &ReceivedRequest { parts, body: &body, serial }))
    }
}
