//! Builds the providers of MCP servers that the caller of a run names by URL.
//!
//! The caller is not the operator, so such a server has no OAuth, no cached tool list on the disk, no sampling and no
//! roots. A guard checks each address to which a connection is opened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use haft_config::ResolvedConfig;
use haft_config::expand::VariableSource;
use haft_core::digest::Digest;
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::settings::mcp::{HealthProbe, RequestedServers};
use haft_tools::mcp::{
    ConnectTarget, McpEnvironment, ParamHeaders, RemoteTransport, ServerConfig, SupervisedServer,
    ToolSelection,
};
use haft_tools::rest::{AllowedHosts, PrivateAddressRule};
use secrecy::SecretString;
use url::Url;

use super::mcp::{McpClientSettings, McpServers};
use crate::spec::{RequestedServer, requested_labels};

/// The maximum time from the start of the connection to the tool list.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum wait for a reply or for progress.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Builds the servers that are among the secrets of a run. Their names are the labels that the caller gave them.
pub fn requested_servers(
    secrets: &BTreeSet<String>,
    variables: VariableSource<'_>,
    config: &ResolvedConfig,
    face: &McpClientSettings,
) -> McpServers {
    let mut made = McpServers::default();
    let environment = McpEnvironment {
        elicitation: face.elicitation,
        trace: face.trace.clone(),
        parents: face.parents.clone(),
        ..McpEnvironment::default()
    };
    for label in requested_labels(secrets) {
        let server = RequestedServer::of_variable(label, variables);
        let checked = server.and_then(|server| server_config(label, &server, config));
        match checked {
            Ok(config) => {
                let principal = &face.principal;
                let owner = (principal.tenant(), principal.subject(), principal.credential_id());
                let key = Digest::of_text(&format!("{owner:?}\n{label}\n{}", config.digest)).to_string();
                let provider = face.shared.join(&key, || SupervisedServer::new(config, &environment));
                made.providers.push(Arc::new(provider));
            }
            Err(reason) => made.unusable.push((label.to_owned(), reason)),
        }
    }
    made
}

/// Checks the URL of a server that a caller names, as far as this is possible without a DNS lookup.
pub fn check_requested_url(text: &str, rule: RequestedServers) -> Result<(), String> {
    guarded(text, rule).map(|_| ())
}

fn guarded(text: &str, rule: RequestedServers) -> Result<(Url, AllowedHosts), String> {
    let url = Url::parse(text).map_err(|error| format!("the URL of the MCP server is not valid: {error}"))?;
    let guard = AllowedHosts::described(&url);
    let guard = match rule {
        RequestedServers::Off => {
            return Err("the operator allows only configured MCP servers (`serve.serverUrls`)".into());
        }
        RequestedServers::Public => guard,
        RequestedServers::Any => guard.with_private(PrivateAddressRule::Allowed),
    };
    // Replace the message of the guard, because it names a setting of REST tools.
    guard.check_url(&url).map_err(|reason| match reason {
        haft_tools::rest::RequestBlockReason::PrivateAddress { host, address } => {
            format!("the host {host} is at {address}, which is not a public address")
        }
        other => other.to_string(),
    })?;
    Ok((url, guard))
}

fn server_config(
    label: &str,
    server: &RequestedServer,
    config: &ResolvedConfig,
) -> Result<ServerConfig, String> {
    if config.mcp_servers.keys().any(|name| Namespace::sanitize(name) == Namespace::sanitize(label)) {
        return Err(format!("the configuration already has an MCP server `{label}`; use another label"));
    }
    let (url, guard) = guarded(&server.url, config.serve.server_urls)?;
    let secret = |text: &String| SecretString::from(text.clone());
    let everything = ToolGlob::new("*").map_err(|error| error.to_string())?;
    Ok(ServerConfig {
        name: label.to_owned(),
        namespace: Namespace::sanitize(label),
        digest: Digest::of_text(&format!("{}\n{:?}", server.url, server.headers)).to_string(),
        secrets: server.headers.values().map(secret).collect(),
        connect: ConnectTarget::Remote {
            url,
            headers: server.headers.iter().map(|(name, value)| (name.clone(), secret(value))).collect(),
            protocol: RemoteTransport::Http,
            auth: None,
            guard: Some(Arc::new(guard)),
        },
        request_timeout: REQUEST_TIMEOUT,
        startup_timeout: STARTUP_TIMEOUT,
        health_probe: HealthProbe::Ping,
        wanted: ToolSelection {
            allowed: vec![everything],
            param_headers: ParamHeaders::Sent,
            ..ToolSelection::default()
        },
        roots: Vec::new(),
        sampling: None,
    })
}
