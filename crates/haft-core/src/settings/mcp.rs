//! Connection, sandbox and authorization settings of MCP servers.

/// Whether OAuth tokens may be kept outside the desktop's keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyringPreference {
    /// Tokens are in the keyring, or in a file if no keyring answers.
    WhereThereIsOne,
    /// Tokens are in the keyring. A login fails if no keyring answers.
    Required,
    /// Tokens are in files. A token that is still in the keyring is read, and moves to a file when it changes.
    Never,
}

/// The OAuth grant by which tokens are requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OAuthGrant {
    /// Authorization code: a person logs in.
    #[default]
    Person,
    /// Client credentials: the client itself, with its secret.
    ClientCredentials,
}

/// Whether the sandbox confines a server process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerConfinement {
    /// The server runs in the sandbox.
    #[default]
    Yes,
    /// Unconfined except for the blocklist and haft's own data; its process tree still ends with ours.
    No,
}

/// Decides if a run waits until a server is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerStartup {
    /// The run waits a short time and then begins without the tools of the server.
    #[default]
    Background,
    /// The run waits for the server, up to its startup timeout.
    Required,
}

/// The transport of a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteTransport {
    /// Streamable HTTP, with the older HTTP+SSE as a fallback.
    Http,
    /// The older HTTP+SSE transport only.
    Sse,
    /// Messages over a WebSocket, which no MCP specification defines.
    WebSocket,
}

impl RemoteTransport {
    /// Returns the name for the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }
}

/// The request that checks whether a server is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthProbe {
    /// `ping`, or `server/discover` in the protocol era without ping.
    #[default]
    Ping,
    /// `tools/list`, for servers that do not answer a ping.
    ListTools,
}

/// The limits of one server's requests to models (MCP sampling).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingLimits {
    /// The approval that each request needs.
    pub consent: SamplingConsent,
    /// As `provider/model`; without it the caller chooses.
    pub model: Option<String>,
    /// The most tokens that are written for one request.
    pub output_tokens_max: u32,
    /// The most model requests that the server may make during one tool call.
    pub requests_per_call_max: u32,
}

/// The approval that each sampling request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingConsent {
    /// A person; refused when there is none to ask.
    Ask,
    /// The operator approved all of them in the configuration.
    Given,
}
