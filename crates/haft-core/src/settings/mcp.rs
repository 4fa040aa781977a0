//! Connection, sandbox and authorization settings of MCP servers.

/// Selects whether OAuth tokens may be stored outside the desktop's keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyringPreference {
    /// Tokens are stored in the keyring, or in a file if no keyring is available.
    WhereThereIsOne,
    /// Tokens are stored in the keyring. A login fails if no keyring is available.
    Required,
    /// Tokens are stored in files. haft still reads a token that an earlier login stored in the keyring, and writes it
    /// to a file when the token changes.
    Never,
}

/// The OAuth grant with which tokens are requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OAuthGrant {
    /// Authorization code: a person logs in.
    #[default]
    Person,
    /// Client credentials: the client authenticates itself with its secret or its key.
    ClientCredentials,
    /// JWT bearer: the client authenticates itself with a token from the platform on which it runs.
    JwtBearer,
    /// Enterprise-managed authorization: the identity provider of the organization confirms the identity of the user.
    Enterprise,
}

/// Selects whose account at a server is used, if a person logs in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OAuthAccount {
    /// Each principal logs in with an account of its own.
    #[default]
    Principal,
    /// All principals use the account of the operator.
    Operator,
}

/// Selects whether a server process runs in the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerConfinement {
    /// The server runs in the sandbox.
    #[default]
    Yes,
    /// The server runs without the sandbox, but the blocklist and haft's own data stay protected, and its process tree
    /// still ends with haft.
    No,
}

/// Selects whether a run waits until a server is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerStartup {
    /// The run waits a short time, then starts without the server's tools.
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
    /// Returns the name that the configuration uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::WebSocket => "websocket",
        }
    }
}

/// The request that checks if a server is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthProbe {
    /// Sends `ping`, or `server/discover` in the protocol revision without `ping`.
    #[default]
    Ping,
    /// Sends `tools/list`, for servers that do not answer `ping`.
    ListTools,
}

/// The limits on one server's model requests (MCP sampling).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingLimits {
    /// The approval that each request needs.
    pub consent: SamplingConsent,
    /// The model, as `provider/model`. If `None`, the sampler chooses: the model of the calling run, else the default
    /// model.
    pub model: Option<String>,
    /// The maximum number of tokens that the model may write for one request.
    pub output_tokens_max: u32,
    /// The maximum number of model requests that the server may make during one tool call.
    pub requests_per_call_max: u32,
}

/// The approval that each sampling request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingConsent {
    /// A person must approve each request. If there is no person to ask, the request is refused.
    Ask,
    /// The operator has approved all requests in the configuration.
    Given,
}

/// The MCP servers that the caller of a run may name by their addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestedServers {
    /// The caller may name no server.
    Off,
    /// The caller may name servers at public addresses.
    #[default]
    Public,
    /// The caller may name all servers, also servers at private addresses.
    Any,
}
