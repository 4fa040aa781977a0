//! The operator's settings for the server.

use std::net::SocketAddr;
use std::time::Duration;

use haft_config::resolved::ServeSettings;
use haft_runtime::WorkspaceSpec;

use crate::event_stream::PING_INTERVAL;
use crate::operator_log::OperatorLog;

/// The default port of the server.
pub const DEFAULT_PORT: u16 = 8484;

/// The maximum size of a request body, in bytes. The largest input of the API fits: a file of 32 MiB in base64.
const BODY_BYTES_MAX: usize = 48 << 20;

/// The maximum time in which the body of a request must arrive.
const BODY_TIMEOUT: Duration = Duration::from_mins(2);

/// The maximum time in which the head of a request must arrive, including on a connection that was used before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum time that requests in progress get to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum age of a WebSocket connection. The Open Responses specification sets this limit.
const WEBSOCKET_AGE_MAX: Duration = Duration::from_hours(1);

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// Names that a `Host` header may have, in addition to `localhost` and the address itself.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages, such as `https://console.example.com`, that may send requests.
    pub allowed_origins: Vec<String>,
    /// Selects whether requests need a key.
    pub auth: AuthMode,
    /// The maximum size of a request body, in bytes.
    pub body_bytes_max: usize,
    /// The maximum time in which the body of a request must arrive.
    pub body_timeout: Duration,
    /// The maximum time in which the head of a request must arrive, including on a connection that was used before.
    pub head_timeout: Duration,
    /// The maximum time that requests in progress get to finish when the server stops.
    pub drain_timeout: Duration,
    /// The settings of the configuration. Reloading replaces most of them, but not the maximum number of connections.
    pub serve: ServeSettings,
    /// The times of WebSocket connections.
    pub websocket: WebSocketTimes,
    /// The sandbox of runs. Each run replaces the directory with the caller's workspace.
    pub workspace: WorkspaceSpec,
    /// Receives the warnings of the running server.
    pub log: OperatorLog,
}

/// The times of WebSocket connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketTimes {
    /// The age after which a connection takes no more requests.
    pub age_max: Duration,
    /// The time without a message from the server after which the server sends a ping.
    pub ping_interval: Duration,
}

impl Default for WebSocketTimes {
    fn default() -> Self {
        Self { age_max: WEBSOCKET_AGE_MAX, ping_interval: PING_INTERVAL }
    }
}

/// The way in which requests authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request below `/v1` needs a key.
    Keys,
    /// Requests need no key. The server then listens on the loopback interface only.
    NoAuth,
}

impl ServerSettings {
    /// Returns the default settings for a server that listens on this address: API keys are required, and no web origin
    /// is allowed (CORS).
    pub fn at(address: SocketAddr, workspace: WorkspaceSpec) -> Self {
        Self {
            address,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            auth: AuthMode::Keys,
            body_bytes_max: BODY_BYTES_MAX,
            body_timeout: BODY_TIMEOUT,
            head_timeout: HEAD_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
            serve: ServeSettings::default(),
            websocket: WebSocketTimes::default(),
            workspace,
            log: OperatorLog::default(),
        }
    }
}
