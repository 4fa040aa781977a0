//! The MCP servers that one command needs.

use std::sync::Arc;

use haft_core::provider::ToolProvider;
use haft_sandbox::{Home, SandboxPolicy};
use haft_tools::mcp::{ElicitationSupport, TraceLineKind, TraceParents, TraceSink};

use super::terminal;
use haft_config::ResolvedConfig;
use haft_runtime::wiring::{self, McpClientSettings};

/// The parts of a command that determine which servers it needs: its tool, and whether it can ask a user.
#[derive(Default)]
pub(super) struct ServerRequirements<'a> {
    /// The only tool of the command; `None` for all tools.
    pub(super) tool: Option<&'a str>,
    pub(super) elicitation: ElicitationSupport,
    /// The lookup that finds the parent span for a request to a server.
    pub(super) parents: Option<Arc<dyn TraceParents>>,
}

/// Returns the providers of the servers that the command may need. No server is started yet.
pub(super) fn providers(
    config: &ResolvedConfig,
    policy: &SandboxPolicy,
    asked: ServerRequirements<'_>,
) -> Vec<Arc<dyn ToolProvider>> {
    let ServerRequirements { tool, elicitation, parents } = asked;
    if config.mcp_servers.is_empty() || tool.is_some_and(wiring::is_builtin) {
        return Vec::new();
    }
    let face = McpClientSettings { elicitation, parents, ..face(config) };
    let found = wiring::mcp_servers(config, policy, &face);
    let all = found.providers();
    let is_meant = |provider: &&Arc<dyn ToolProvider>| {
        tool.is_some_and(|tool| begins_with(tool, provider.namespace().as_str()))
    };
    let meant: Vec<Arc<dyn ToolProvider>> = all.iter().filter(is_meant).cloned().collect();
    // The prefix of the tool name selects one server. Without a known prefix, the tool may belong to any server.
    if !meant.is_empty() {
        return meant;
    }
    for (name, reason) in &found.unusable {
        terminal::warn(&format!("haft cannot use MCP server `{name}`: {reason}"));
    }
    all
}

/// Returns the servers that can be used, for the clients of the MCP gateway.
#[cfg(feature = "serve")]
pub(super) fn usable(
    config: &ResolvedConfig,
    policy: &SandboxPolicy,
    face: &McpClientSettings,
) -> Vec<Arc<haft_tools::mcp::McpProvider>> {
    let found = wiring::mcp_servers(config, policy, face);
    for (name, reason) in &found.unusable {
        terminal::warn(&format!("haft cannot use MCP server `{name}`: {reason}"));
    }
    found.providers
}

/// Returns the names of the servers whose tools are not known yet, for the status line of a run that waits for them.
pub(super) fn awaited<'a>(config: &'a ResolvedConfig, home: &Home) -> Vec<&'a str> {
    let unknown = config.mcp_servers.iter().filter(|(name, server)| {
        server.enabled && server.reach.is_ok() && wiring::remembered(name, server, home).is_none()
    });
    unknown.map(|(name, _)| name.as_str()).collect()
}

/// Returns the settings with which the command line connects to servers as a client.
pub(super) fn face(config: &ResolvedConfig) -> McpClientSettings {
    McpClientSettings { trace: trace(config), ..McpClientSettings::default() }
}

/// Returns a sink that shows messages to and from servers, if the user enabled it.
pub(super) fn trace(config: &ResolvedConfig) -> Option<Arc<dyn TraceSink>> {
    config.trace_mcp.then(|| Arc::new(StderrTraceSink) as _)
}

/// Writes messages to standard error, like the log.
struct StderrTraceSink;

impl TraceSink for StderrTraceSink {
    fn line(&self, server: &str, what: TraceLineKind, text: &str) {
        let mark = match what {
            TraceLineKind::Sent => "►",
            TraceLineKind::Received => "◄",
            TraceLineKind::Life => "•",
        };
        terminal::note(&format!("mcp {server} {mark} {text}"));
    }
}

/// Returns true if the name may belong to a tool of this server.
pub(super) fn begins_with(tool: &str, namespace: &str) -> bool {
    let tool = tool.strip_prefix("mcp__").unwrap_or(tool);
    tool.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('_'))
}
