//! A server as the operator wants it. Every value is settled; variables and defaults are somebody else's work.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::Namespace;
use haft_sandbox::Policy;
use secrecy::SecretString;
use url::Url;

use super::auth::Authorizer;
use super::listing::Wanted;
use super::transport::Opener;
use haft_core::settings::mcp::{HealthProbe, Protocol, Sampling};

/// One server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// As the operator wrote it.
    pub name: String,
    /// What of it becomes a part of tool names.
    pub namespace: Namespace,
    pub connect: Connect,
    /// How long a request may go without a reply or progress.
    pub request_timeout: Duration,
    /// How long it may take from the start to the list of tools; a package may have to be downloaded first.
    pub startup_timeout: Duration,
    pub health_probe: HealthProbe,
    pub wanted: Wanted,
    /// Directories it is told of when it asks; some servers take them for all that they may touch.
    pub roots: Vec<PathBuf>,
    /// What it may have of models; nothing means that it is never told that there are any.
    pub sampling: Option<Sampling>,
    /// What it is given to be let in elsewhere, or lets us in. Where it repeats that beside an answer, it is not shown.
    pub secrets: Vec<SecretString>,
    /// Changes whenever anything above does that could make it another server.
    pub digest: String,
}

/// How the server is reached.
#[derive(Clone)]
pub enum Connect {
    /// A process of ours, in this sandbox.
    Process { program: String, args: Vec<String>, policy: Box<Policy> },
    Remote {
        url: Url,
        headers: Vec<(String, SecretString)>,
        protocol: Protocol,
        /// Gets and renews tokens; none where the operator gives the server its `Authorization` outright.
        auth: Option<Arc<Authorizer>>,
    },
    /// In a way that the program itself knows.
    Own(Arc<dyn Opener>),
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Arguments and queries may hold secrets.
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
