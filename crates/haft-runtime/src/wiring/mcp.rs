//! Builds the providers of MCP tools from the configuration.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::{GroupName, Namespace};
use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_core::redact::names_a_secret;
use haft_core::settings::mcp::ServerStartup;
use haft_sandbox::{Home, SandboxPolicy};
use haft_store::mcp_tokens::token_directory;
use haft_store::server_caches::ServerCaches;
use haft_tools::mcp::{
    CatalogCacheSummary, ConnectTarget, ElicitationSupport, KeyringPreference, LogStorage, LoginOffer,
    McpEnvironment, McpProvider, ParamHeaders, ProcessConfig, RelayedCapabilities, RemoteTransport,
    ServerConfig, SharedServers, SupervisedServer, ToolSelection, TraceParents, TraceSink,
    catalog_cache_summary, server_policy,
};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use url::Url;

use super::authorization::{self, TokenStorage};
use haft_config::ResolvedConfig;
use haft_config::namespace_conflict::namespace_conflict;
use haft_config::resolved::{ExpandedSecret, McpEndpoint, McpRootsReply, McpServerSettings};

/// The MCP servers of a configuration. Building them starts none of them.
#[derive(Debug, Default)]
pub struct McpServers {
    /// The servers that can be used. Each starts at its first use.
    pub providers: Vec<Arc<McpProvider>>,
    /// The names of servers that cannot be used, each with a message for the operator.
    pub unusable: Vec<(String, String)>,
}

impl McpServers {
    /// Returns the tool providers, for [`orchestrator_with`](super::orchestrator_with).
    pub fn providers(&self) -> Vec<Arc<dyn ToolProvider>> {
        self.providers.iter().map(|provider| Arc::clone(provider) as _).collect()
    }
}

/// The settings of MCP servers that come from the run and not from the configuration.
#[derive(Clone, Default)]
pub struct McpClientSettings {
    /// Selects whether haft offers elicitation to servers: only if the run has a user who can answer.
    pub elicitation: ElicitationSupport,
    /// The capabilities of the gateway's client; empty for a run.
    pub relayed: RelayedCapabilities,
    /// The owner of the connections. Principals never share a connection, because it may contain credentials and state.
    pub principal: Principal,
    /// Receives every message to and from servers.
    pub trace: Option<Arc<dyn TraceSink>>,
    /// Looks up the spans of calls, so that requests to servers contain the trace context.
    pub parents: Option<Arc<dyn TraceParents>>,
    /// The servers that other runs of this process already use.
    pub shared: Arc<SharedServers>,
    /// Selects how long a run waits for MCP servers whose tools are not known yet.
    pub patience: ServerPatience,
    /// Selects whether the user of the run can log in at a server.
    pub login: LoginOffer,
}

/// Selects how long a run waits for the tools of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerPatience {
    /// Waits until each server is ready, or its startup timeout has passed: for a command that needs these tools.
    #[default]
    Ready,
    /// Waits as configured for runs: a short time, except for servers that a run requires.
    Run,
}

impl ServerPatience {
    /// Returns the maximum wait for a server; `None` for its startup timeout.
    fn wait(self, config: &ResolvedConfig, server: &McpServerSettings) -> Option<Duration> {
        match (self, server.startup) {
            (Self::Ready, _) | (Self::Run, ServerStartup::Required) => None,
            (Self::Run, ServerStartup::Background) => Some(config.mcp_ready_wait),
        }
    }
}

/// Builds the enabled servers. `policy` is the operator's policy; the paths that it protects stay protected.
///
/// Call this function inside a tokio runtime, because each server starts a supervising task.
pub fn mcp_servers(config: &ResolvedConfig, policy: &SandboxPolicy, face: &McpClientSettings) -> McpServers {
    let mut made = McpServers::default();
    let environment = McpEnvironment {
        login: LoginOffer::NotOffered,
        directory: None,
        log_storage: LogStorage::default(),
        elicitation: face.elicitation,
        relayed: face.relayed,
        starts: Arc::new(Semaphore::new(config.mcp_starts_max)),
        trace: face.trace.clone(),
        parents: face.parents.clone(),
    };
    for (name, server) in config.mcp_servers.iter().filter(|(_, server)| server.enabled) {
        if let Some(reason) = namespace_conflict(&config.mcp_servers, name) {
            made.unusable.push((name.clone(), reason));
            continue;
        }
        let wait = face.patience.wait(config, server);
        match server_config(name, server, policy, (config.token_store, &face.principal)) {
            Ok(config) => {
                // The digest covers all values that distinguish a server: principal, name, confinement and tool
                // selection.
                let principal = &face.principal;
                let owner = (principal.tenant(), principal.subject(), principal.credential_id());
                let digest = format!("{owner:?}\n{name}\n{}\n{server:?}\n{policy:?}", config.digest);
                let own = environment_of(&environment, server, policy.home(), face);
                let fresh = || SupervisedServer::new(config, &own);
                let provider = if server.shared {
                    face.shared.join(&digest, fresh)
                } else {
                    McpProvider::new(Arc::new(fresh()))
                };
                let provider = match wait {
                    Some(wait) => provider.waiting_at_most(wait),
                    None => provider,
                };
                made.providers.push(Arc::new(provider));
            }
            Err(reason) => made.unusable.push((name.clone(), reason)),
        }
    }
    made
}

/// Returns the environment of one server: the directory of its tool list, and whether the caller's user can log in.
fn environment_of(
    common: &McpEnvironment,
    server: &McpServerSettings,
    home: &Home,
    face: &McpClientSettings,
) -> McpEnvironment {
    let has_own_account = authorization::has_own_account(server, &face.principal);
    let may_log_in = authorization::may_log_in_at(server, &face.principal);
    McpEnvironment {
        // The cached tool list and the log of one account must not be visible to another account.
        directory: Some(if has_own_account {
            token_directory(home, &face.principal).join("mcp")
        } else {
            directory(home)
        }),
        log_storage: if face.principal.is_subject_of(&Principal::local()) {
            LogStorage::File
        } else {
            LogStorage::Memory
        },
        login: if may_log_in { face.login } else { LoginOffer::NotOffered },
        ..common.clone()
    }
}

fn server_config(
    name: &str,
    server: &McpServerSettings,
    policy: &SandboxPolicy,
    tokens: (KeyringPreference, &Principal),
) -> Result<ServerConfig, String> {
    let namespace = Namespace::sanitize(name);
    let reach = server.reach.as_ref().map_err(Clone::clone)?;
    Ok(ServerConfig {
        name: name.to_owned(),
        connect: connect(name, reach, policy, tokens)?,
        request_timeout: server.request_timeout,
        startup_timeout: server.startup_timeout,
        health_probe: server.health_probe,
        wanted: tool_selection(&namespace, server, reach),
        namespace,
        roots: match server.roots {
            McpRootsReply::Nothing => Vec::new(),
            McpRootsReply::Workspace => vec![policy.workspace().to_owned()],
        },
        sampling: server.sampling.clone(),
        secrets: secrets(reach),
        digest: digest(server, reach),
    })
}

fn tool_selection(namespace: &Namespace, server: &McpServerSettings, reach: &McpEndpoint) -> ToolSelection {
    ToolSelection {
        allowed: server.tools_allowed.clone(),
        denied: server.tools_denied.clone(),
        schemas: server.tool_schemas.clone(),
        effects: server.effects.clone(),
        group: GroupName::new(namespace.as_str()).ok(),
        param_headers: match reach {
            McpEndpoint::Remote { protocol: RemoteTransport::Http, .. } => ParamHeaders::Sent,
            McpEndpoint::Remote { .. } | McpEndpoint::Process { .. } => ParamHeaders::Ignored,
        },
    }
}

/// Returns the secrets that a server receives: environment variables or headers whose names suggest a secret, and the
/// OAuth client secrets.
fn secrets(reach: &McpEndpoint) -> Vec<SecretString> {
    let (named, clients) = match reach {
        McpEndpoint::Process { env, .. } => (env, [None, None]),
        McpEndpoint::Remote { headers, oauth, .. } => {
            let provider = oauth.identity_provider.as_ref();
            let at_provider = provider.and_then(|provider| provider.client_secret.as_ref());
            (headers, [oauth.client_secret.as_ref(), at_provider])
        }
    };
    let named = named.iter().filter(|(name, _)| names_a_secret(name)).map(|(_, value)| value);
    named.chain(clients.into_iter().flatten()).map(|value| SecretString::from(value.0.clone())).collect()
}

/// Returns the cached catalog of a server, without starting it.
pub fn remembered(name: &str, server: &McpServerSettings, home: &Home) -> Option<CatalogCacheSummary> {
    let (namespace, reach) = (Namespace::sanitize(name), server.reach.as_ref().ok()?);
    let tool_selection = tool_selection(&namespace, server, reach);
    catalog_cache_summary(&directory(home), namespace.as_str(), &digest(server, reach), &tool_selection)
}

/// Returns the directory of the catalog cache.
fn directory(home: &Home) -> PathBuf {
    home.data().join("mcp")
}

fn connect(
    name: &str,
    reach: &McpEndpoint,
    policy: &SandboxPolicy,
    (keyring, principal): (KeyringPreference, &Principal),
) -> Result<ConnectTarget, String> {
    match reach {
        McpEndpoint::Process { command, args, env, directory, writable, unix_sockets, sockets, confined } => {
            let (cache, cache_lock) = cache_of(name, principal, policy.home())?;
            let process = ProcessConfig {
                cache,
                env: env.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect(),
                directory: directory.clone(),
                writable: writable.clone(),
                unix_sockets: *unix_sockets,
                sockets: sockets.clone(),
                confinement: *confined,
            };
            let policy = server_policy(policy, &process).map_err(|error| error.to_string())?;
            let args = args.iter().map(|word| word.0.clone()).collect();
            Ok(ConnectTarget::Process {
                program: command.clone(),
                args,
                policy: Box::new(policy),
                cache_lock,
            })
        }
        McpEndpoint::Remote { url, headers, protocol, .. } => {
            let url = Url::parse(&url.0).map_err(|error| format!("`url` is not a valid URL: {error}"))?;
            let schemes: &[&str] = match protocol {
                RemoteTransport::Http | RemoteTransport::Sse => &["http", "https"],
                RemoteTransport::WebSocket => &["ws", "wss"],
            };
            if !schemes.contains(&url.scheme()) {
                let schemes = schemes.join(":// or ");
                return Err(format!("`url` must begin with {schemes}://; got `{}://`", url.scheme()));
            }
            let keeping = TokenStorage { home: policy.home(), keyring, principal };
            let auth = authorization::authorizer(name, reach, keeping, None)?;
            let secret = |(name, value): (&String, &ExpandedSecret)| {
                (name.clone(), SecretString::from(value.0.clone()))
            };
            Ok(ConnectTarget::Remote {
                url,
                headers: headers.iter().map(secret).collect(),
                protocol: *protocol,
                auth: auth.map(Arc::new),
                guard: None,
            })
        }
    }
}

/// Returns the cache directory of a server that works for this principal, with its lock.
fn cache_of(name: &str, principal: &Principal, home: &Home) -> Result<(PathBuf, Option<Arc<File>>), String> {
    let name = Namespace::sanitize(name);
    if principal.is_subject_of(&Principal::local()) {
        return Ok((home.cache(name.as_str()), None));
    }
    let opened = ServerCaches::of(home).open(principal);
    let caches = opened.map_err(|error| format!("haft cannot use the cache of the MCP server: {error}"))?;
    Ok((caches.directory.join(name.as_str()), Some(Arc::new(caches.lock))))
}

/// Returns a digest that identifies a server in the catalog cache. The digest is safe to store, because the settings
/// and their secrets cannot be derived from it.
fn digest(server: &McpServerSettings, reach: &McpEndpoint) -> String {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    };
    // Include roots and sampling, because a server may offer other tools to clients that support them.
    part(&format!("{:?} {}", server.roots, server.sampling.is_some()));
    match reach {
        McpEndpoint::Process { command, args, env, directory, .. } => {
            part(command);
            for word in args {
                part(&word.0);
            }
            for (name, value) in env {
                part(&format!("{name}={}", value.0));
            }
            part(&directory.as_ref().map(|path| path.display().to_string()).unwrap_or_default());
        }
        McpEndpoint::Remote { url, headers, protocol, oauth } => {
            part(oauth.client_id.as_deref().unwrap_or_default());
            part(&url.0);
            for (name, value) in headers {
                part(&format!("{name}: {}", value.0));
            }
            part(&format!("{protocol:?}"));
        }
    }
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Debug for McpClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClientSettings").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_waits_only_a_limited_time_for_a_server_that_it_does_not_require() {
        let text = r#"{
            "mcp": {"readyWait": "3s"},
            "mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "startup": "required"}}
        }"#;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let sources = haft_config::ConfigSources { home: None, project: None, named: Some(file.path()) };
        let config = haft_config::load(sources, &|_| None).unwrap().resolved;
        let check = |patience: ServerPatience, server: &str, expected: Option<u64>| {
            let wait = patience.wait(&config, &config.mcp_servers[server]);
            assert_eq!(wait, expected.map(Duration::from_secs), "{patience:?} {server}");
        };
        check(ServerPatience::Run, "a", Some(3));
        check(ServerPatience::Run, "b", None);
        check(ServerPatience::Ready, "a", None);
    }
}
