//! The MCP servers of an executor. The executor connects to all of them at the same time, and shuts them down together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;
use haft_core::provider::ToolProvider;
use haft_engine::{RunContext, ToolFilter};
use haft_sandbox::SandboxPolicy;
use haft_tools::mcp::McpProvider;
use serde_json::json;

use super::ToolExecutor;
use crate::wiring::{self, McpClientSettings};
use haft_config::skills::Skill;
use haft_config::{self, resolved};

/// An MCP server to which an executor connects.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// The name of the server. The names of its tools begin with this name.
    pub name: String,
    /// The connection settings, or the reason why they are invalid.
    config: Result<resolved::McpServerSettings, String>,
}

impl McpServer {
    /// Describes a server that runs as a local program and communicates over its standard streams.
    pub fn new(name: &str, command: &str, args: &[&str]) -> Self {
        Self::configured(name, &json!({ "command": command, "args": args }))
    }

    /// Describes a server by an entry of `mcpServers`, as in `haft.json`.
    pub fn configured(name: &str, entry: &serde_json::Value) -> Self {
        let servers = [(name.to_owned(), entry.clone())].into_iter().collect();
        let found = haft_config::mcp_servers_of("mcpServers".as_ref(), &servers, &haft_config::environment);
        let config = match found {
            Ok(mut found) => found
                .remove(name)
                .ok_or_else(|| format!("the configuration has no server `{name}`; this is a bug in haft")),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        };
        Self { name: name.to_owned(), config }
    }

    /// Returns the resolved settings, or the reason why they cannot be used.
    pub fn resolved(&self) -> Result<resolved::McpServerSettings, String> {
        self.config.clone()
    }

    /// Returns the servers that a skill declares.
    pub fn of_skill(skill: &Skill) -> Vec<Self> {
        let server = |(name, config): (&String, &resolved::McpServerSettings)| Self {
            name: name.clone(),
            config: Ok(config.clone()),
        };
        skill.servers.iter().map(server).collect()
    }
}

/// A server that could not be connected, and the reason, as a message for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotConnected {
    /// The name that the caller gave the server.
    pub name: String,
    /// The problem, as a message for the operator.
    pub reason: String,
}

impl ToolExecutor {
    /// Connects to all servers at the same time. Returns the servers that failed; the others can be used.
    pub async fn connect_mcp_servers(&mut self, servers: &[McpServer]) -> Vec<NotConnected> {
        let policy = match &self.policy {
            Ok(policy) => policy.clone(),
            Err(reason) => return servers.iter().map(|server| not_connected(&server.name, reason)).collect(),
        };
        let connects = servers.iter().map(|server| connect(server, &policy));
        let mut failed = Vec::new();
        for (server, connected) in servers.iter().zip(join_all(connects).await) {
            match connected {
                Ok((provider, config)) => {
                    self.mcp_clients.insert(server.name.clone(), provider);
                    self.mcp_servers.insert(server.name.clone(), config);
                }
                Err(reason) => failed.push(not_connected(&server.name, &reason)),
            }
        }
        self.rebuild();
        failed
    }

    /// Returns the connected servers, by name.
    pub fn mcp_clients(&self) -> &HashMap<String, Arc<McpProvider>> {
        &self.mcp_clients
    }

    /// Returns the server of each tool, by the name under which a model calls the tool. The map is built on each call
    /// of this method, because servers change their tool lists.
    pub fn mcp_tool_map(&self) -> HashMap<String, String> {
        let namespaces: BTreeMap<&str, &String> =
            self.mcp_clients.iter().map(|(name, client)| (client.namespace().as_str(), name)).collect();
        let Ok(orchestrator) = &self.orchestrator else { return HashMap::new() };
        let tools = orchestrator.tools(&ToolFilter::default(), &RunContext::default()).into_iter();
        let served = tools.filter_map(|shown| {
            let identity = shown.entry.identity();
            let server = namespaces.get(identity.namespace.as_str())?;
            Some((shown.entry.exposed().to_string(), (*server).clone()))
        });
        served.collect()
    }

    /// Shuts down all MCP servers gracefully. A second call of this method does nothing.
    pub async fn shutdown_mcp(&mut self) {
        let clients: Vec<Arc<McpProvider>> = self.mcp_clients.drain().map(|(_, client)| client).collect();
        self.mcp_servers.clear();
        join_all(clients.iter().map(|client| client.shutdown())).await;
        self.rebuild();
    }
}

fn not_connected(name: &str, reason: &str) -> NotConnected {
    NotConnected { name: name.to_owned(), reason: reason.to_owned() }
}

async fn connect(
    server: &McpServer,
    policy: &SandboxPolicy,
) -> Result<(Arc<McpProvider>, resolved::McpServerSettings), String> {
    let settings = server.config.clone()?;
    let mut config = haft_config::defaults().map_err(|errors| errors.to_string())?;
    config.mcp_servers = [(server.name.clone(), settings.clone())].into_iter().collect();
    let mut made = wiring::mcp_servers(&config, policy, &McpClientSettings::default());
    if let Some((_, reason)) = made.unusable.pop() {
        return Err(reason);
    }
    let provider = made.providers.pop().ok_or("the configuration of the MCP server sets `enabled: false`")?;
    match provider.server().start().await {
        Ok(()) => Ok((provider, settings)),
        Err(error) => {
            provider.shutdown().await;
            Err(error.message)
        }
    }
}
