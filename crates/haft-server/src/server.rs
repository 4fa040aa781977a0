//! `Server`: binds the address, serves requests, and stops in good order.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haft_runtime::Runtime;
use haft_store::api_keys::ApiKeyStore;
use haft_store::conversations::ConversationStore;
use haft_store::idempotency::FileIdempotencyKeys;
use haft_store::responses::ResponseStore;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::accept;
use crate::access::AccessRules;
use crate::agents::AgentCatalog;
use crate::auth::{KeyRing, now_ms};
use crate::responses::LiveResponses;
use crate::router::router;
use crate::settings::{AuthMode, ServerSettings};

/// A server that is bound to its address and serves from [`run`](Server::run) on.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<ServerState>,
}

/// Everything that handlers share.
pub(crate) struct ServerState {
    pub(crate) settings: ServerSettings,
    pub(crate) runtime: Runtime,
    pub(crate) agents: AgentCatalog,
    pub(crate) access: AccessRules,
    pub(crate) keys: KeyRing,
    pub(crate) responses: ResponseStore,
    pub(crate) conversations: ConversationStore,
    pub(crate) idempotency: FileIdempotencyKeys,
    pub(crate) live: Arc<LiveResponses>,
    /// Set once the server was asked to stop.
    pub(crate) stopping: AtomicBool,
    /// When the server started, in seconds since 1970.
    pub(crate) started_s: u64,
}

/// The reason a server does not start.
#[derive(Debug)]
pub enum ServeError {
    /// Without keys the server must not be reachable from other machines.
    OpenWithoutKeys {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address cannot be bound.
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file of keys cannot be read.
    Keys(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenWithoutKeys { address } => {
                write!(f, "a server without keys listens on the loopback only; got {address}")
            }
            Self::Bind { address, error } => write!(f, "the address {address} cannot be used: {error}"),
            Self::Keys(error) => write!(f, "the API keys cannot be read: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl Server {
    /// Binds the address. Requests wait until [`run`](Self::run).
    pub async fn bind(
        settings: ServerSettings,
        runtime: Runtime,
        agents: AgentCatalog,
    ) -> Result<Self, ServeError> {
        let address = settings.address;
        if settings.auth == AuthMode::NoAuth && !address.ip().is_loopback() {
            return Err(ServeError::OpenWithoutKeys { address });
        }
        let keys = KeyRing::open(ApiKeyStore::of(runtime.home())).map_err(ServeError::Keys)?;
        let unusable = |error| ServeError::Bind { address, error };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let access = AccessRules::of(&settings, address);
        let responses = ResponseStore::of(runtime.home());
        let conversations = ConversationStore::of(runtime.home());
        let idempotency = FileIdempotencyKeys::of(runtime.home());
        let state = ServerState {
            settings,
            runtime,
            agents,
            access,
            keys,
            responses,
            conversations,
            idempotency,
            live: Arc::default(),
            stopping: AtomicBool::new(false),
            started_s: now_ms() / 1000,
        };
        Ok(Self { listener, address, state: Arc::new(state) })
    }

    /// Returns the address that the server listens on, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves. Requests in progress then get the drain timeout to finish; after that all runs are
    /// cancelled.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) {
        let Self { listener, state, .. } = self;
        let app = router(&state);
        let (stopped, stopping) = oneshot::channel();
        let marked = Arc::clone(&state);
        let signal = async move {
            stop.await;
            marked.stopping.store(true, Ordering::Relaxed);
            let _ = stopped.send(());
        };
        let settings = state.settings.clone();
        let mut served = tokio::spawn(async move { accept::serve(listener, app, &settings, signal).await });
        tokio::select! {
            _ = &mut served => {}
            Ok(()) = stopping => drop(timeout(state.settings.drain_timeout, &mut served).await),
        }
        served.abort();
        state.runtime.shut_down().await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}
