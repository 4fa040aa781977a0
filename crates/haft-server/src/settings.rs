//! The operator's settings of the server.

use std::net::SocketAddr;
use std::time::Duration;

use haft_config::resolved::ServeSettings;
use haft_runtime::WorkspaceSpec;

/// The port of the server, if the operator names none.
pub const DEFAULT_PORT: u16 = 8484;

/// The largest body of a request. It holds the largest input of the API, a file of 32 MiB in base64.
const BODY_BYTES_MAX: usize = 48 << 20;

/// The longest time for the body of a request to arrive.
const BODY_TIMEOUT: Duration = Duration::from_mins(2);

/// The most connections that are open at the same time.
const CONNECTIONS_MAX: usize = 1024;

/// The longest time for the head of a request to arrive, also on a connection that was used before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that requests in progress get to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// Names beside `localhost` and the address itself that a `Host` header may have.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages, such as `https://console.example.com`, that may send requests.
    pub allowed_origins: Vec<String>,
    /// Decides if requests need a key.
    pub auth: AuthMode,
    /// The largest body of a request.
    pub body_bytes_max: usize,
    /// The longest time for the body of a request to arrive.
    pub body_timeout: Duration,
    /// The most connections that are open at the same time. Further clients wait.
    pub connections_max: usize,
    /// The longest time for the head of a request to arrive, also on a connection that was used before.
    pub head_timeout: Duration,
    /// The time that requests in progress get to finish when the server stops.
    pub drain_timeout: Duration,
    /// The public address, and the issuers of access tokens. A new configuration replaces them.
    pub serve: ServeSettings,
    /// The sandbox of runs. Its directory is replaced by the workspace of the caller.
    pub workspace: WorkspaceSpec,
}

/// The way in which requests authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request below `/v1` needs a key.
    Keys,
    /// Requests need no key. The server then listens on the loopback only.
    NoAuth,
}

impl ServerSettings {
    /// The defaults on an address: keys are required, and no web page may send requests.
    pub fn at(address: SocketAddr, workspace: WorkspaceSpec) -> Self {
        Self {
            address,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            auth: AuthMode::Keys,
            body_bytes_max: BODY_BYTES_MAX,
            body_timeout: BODY_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            head_timeout: HEAD_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
            serve: ServeSettings::default(),
            workspace,
        }
    }
}
