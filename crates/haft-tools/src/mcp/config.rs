//! The settings of one server. The caller has already resolved variables and defaults.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_core::digest::Digest;
use haft_core::name::Namespace;
use haft_sandbox::SandboxPolicy;
use secrecy::SecretString;
use url::Url;

use super::auth::Authorizer;
use super::listing::ToolSelection;
use super::transport::TransportOpener;
use crate::rest::AllowedHosts;
use haft_core::settings::mcp::{HealthProbe, RemoteTransport, SamplingLimits};

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The name of the server as the operator wrote it.
    pub name: String,
    /// The sanitized name of the server, which is the prefix of its tool names.
    pub namespace: Namespace,
    pub connect: ConnectTarget,
    /// The maximum wait for the reply to a request. Each progress notification starts the wait again.
    pub request_timeout: Duration,
    /// The maximum time from the start of the server to its list of tools. The server's package may have to be
    /// downloaded in this time.
    pub startup_timeout: Duration,
    pub health_probe: HealthProbe,
    pub wanted: ToolSelection,
    /// The directories that haft returns for the MCP request `roots/list`. Some servers access only these directories.
    pub roots: Vec<PathBuf>,
    /// The sampling settings; with `None`, the client does not advertise sampling.
    pub sampling: Option<SamplingLimits>,
    /// The secrets that haft passes to the server or uses to authenticate to it. Logs, traces and error messages mask
    /// these secrets if the server repeats them.
    pub secrets: Vec<SecretString>,
    /// A digest of the settings above that identify the server. haft finds shared server processes and cached tool
    /// lists by this digest.
    pub digest: String,
}

impl ServerConfig {
    /// Returns a digest of the settings, the credentials in them and the confinement; `None` for a transport of the
    /// embedding program, whose target is unknown.
    pub(super) fn source_digest(&self) -> Option<Digest> {
        let confinement = match &self.connect {
            ConnectTarget::Process { policy, .. } => format!("{policy:?}"),
            ConnectTarget::Remote { .. } => String::new(),
            ConnectTarget::Own(_) => return None,
        };
        Some(Digest::of_parts([self.digest.as_bytes(), confinement.as_bytes()]))
    }
}

/// The way to connect to the server.
#[derive(Clone)]
pub enum ConnectTarget {
    /// The server is a child process in this sandbox.
    Process {
        program: String,
        args: Vec<String>,
        policy: Box<SandboxPolicy>,
        /// The lock on the caches of the server's owner. While this file is open, no sweep removes these caches. `None`
        /// for the local user, whose caches do not expire.
        cache_lock: Option<Arc<File>>,
    },
    Remote {
        url: Url,
        headers: Vec<(String, SecretString)>,
        protocol: RemoteTransport,
        /// Gets and renews tokens; `None` if the operator sets the `Authorization` header.
        auth: Option<Arc<Authorizer>>,
        /// Checks every IP address before haft connects to it. `None` for a URL that the operator wrote, because haft
        /// trusts it.
        guard: Option<Arc<AllowedHosts>>,
    },
    /// The embedding program implements the transport to the server.
    Own(Arc<dyn TransportOpener>),
}

impl ConnectTarget {
    /// Returns the host and port of a remote server.
    pub(super) fn authority(&self) -> Option<String> {
        let Self::Remote { url, .. } = self else { return None };
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    }
}

impl fmt::Debug for ConnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Do not print arguments and URL queries: they may contain secrets.
            Self::Process { program, .. } => {
                f.debug_struct("Process").field("program", program).finish_non_exhaustive()
            }
            Self::Remote { url, protocol, .. } => f
                .debug_struct("Remote")
                .field("host", &url.host_str())
                .field("protocol", protocol)
                .finish_non_exhaustive(),
            Self::Own(opener) => f.debug_tuple("Own").field(&opener.name()).finish(),
        }
    }
}
