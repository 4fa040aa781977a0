//! The sandbox and the environment of a server that runs as a child process.

use haft_core::settings::mcp::ServerConfinement;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::redact::names_a_secret;
use haft_sandbox::{
    OutputPipes, PolicyError, ResourceAccess, SandboxError, SandboxMode, SandboxPolicy, SandboxedChild,
    StandardInput, sandboxed_command,
};

/// The operator's settings for the process besides its command line.
#[derive(Debug, Clone, Default)]
pub struct ProcessConfig {
    /// The directory for the downloads of the server, in haft's cache.
    pub cache: PathBuf,
    pub env: BTreeMap<String, String>,
    /// The working directory, which the server may write to; `None` for the operator's workspace.
    pub directory: Option<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub unix_sockets: Option<ResourceAccess>,
    /// The unix sockets that the server may connect to.
    pub sockets: Vec<PathBuf>,
    pub confinement: ServerConfinement,
}

/// The variables of haft's own environment that a server gets: proxies and trusted certificates.
const PASSED: [&str; 13] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// The prefixes of package manager settings that a server gets, such as the address of the registry.
const PASSED_PREFIXES: [&str; 4] = ["npm_config_", "NPM_CONFIG_", "UV_", "PIP_"];

/// The cache variables of package managers, each with its directory in the server's cache.
const CACHES: [(&str, &str); 5] = [
    ("npm_config_cache", "npm"),
    ("UV_CACHE_DIR", "uv"),
    ("UV_TOOL_DIR", "uv-tools"),
    ("PIP_CACHE_DIR", "pip"),
    ("XDG_CACHE_HOME", "xdg"),
];

/// Builds the sandbox policy of a server. `base` is the operator's policy; the paths that it protects stay protected.
pub fn server_policy(base: &SandboxPolicy, config: &ProcessConfig) -> Result<SandboxPolicy, PolicyError> {
    let mode = match config.confinement {
        ServerConfinement::Yes => SandboxMode::Network,
        ServerConfinement::No => SandboxMode::Full,
    };
    let directory = config.directory.as_deref().unwrap_or_else(|| base.workspace());
    let mut policy = base.derive(mode, directory)?.cache_at(&config.cache)?;
    for path in &config.writable {
        policy = policy.writable(path)?;
    }
    if let Some(access) = config.unix_sockets {
        policy = policy.unix_sockets(access);
    }
    for path in &config.sockets {
        policy = policy.socket(path)?;
    }
    Ok(with_environment(policy, &config.cache, &config.env))
}

fn with_environment(
    mut policy: SandboxPolicy,
    cache: &Path,
    declared: &BTreeMap<String, String>,
) -> SandboxPolicy {
    for name in PASSED {
        policy = policy.environment(name);
    }
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, _) in ours.filter(|(name, value)| is_package_setting(name, value)) {
        policy = policy.environment(name);
    }
    for (name, directory) in CACHES {
        policy = policy.variable(name, cache.join(directory));
    }
    for (name, value) in declared {
        policy = policy.variable(name, value);
    }
    policy
}

/// Returns true for a package manager setting that contains no secret. Settings with secrets (publish tokens, index
/// passwords, URLs with a password) are not passed to servers. A server that needs one gets it through `env`.
fn is_package_setting(name: &str, value: &str) -> bool {
    PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !names_a_secret(name)
        && !value.split_whitespace().any(has_credentials)
}

/// Returns true for a URL such as `https://user:password@host/`, with or without a `name=` before it.
fn has_credentials(word: &str) -> bool {
    let Some((_, after)) = word.split_once("://") else { return false };
    after.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// Starts the process with all three standard streams piped.
pub(super) async fn start(
    program: &str,
    args: &[String],
    policy: &SandboxPolicy,
) -> Result<SandboxedChild, Arc<SandboxError>> {
    sandboxed_command(program, policy)
        .args(args)
        .stdin(StandardInput::Piped)
        .output(OutputPipes::Separate)
        .spawn()
        .await
        .map_err(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_environment_has_no_secrets_of_package_managers() {
        let check = |name: &str, value: &str, expected: bool| {
            assert_eq!(is_package_setting(name, value), expected, "{name}={value}");
        };
        check("UV_PUBLISH_TOKEN", "pypi-x", false);
        check("UV_INDEX_PRIVATE_PASSWORD", "x", false);
        check("PIP_INDEX_URL", "https://user:secret@pypi.example.com/simple", false);
        check("PIP_EXTRA_INDEX_URL", "https://a.example.com/ https://token@b.example.com/", false);
        check("UV_INDEX", "private=https://user:secret@pypi.example.com/simple", false);
        check("npm_config__authToken", "x", false);
        check("npm_config_//registry.example.com/:_password", "x", false);
        check("PIP_INDEX_URL", "https://pypi.example.com/simple/@scope", true);
        check("npm_config_registry", "https://registry.example.com/", true);
        check("UV_PYTHON", "3.12", true);
        check("HOME", "/root", false);
    }
}
