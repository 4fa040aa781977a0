//! MCP servers for one command: those it needs, ready or told why not.

use std::sync::Arc;

use haft_core::result::ToolError;
use haft_sandbox::Policy;
use haft_tools::mcp::{self, Server};

use super::terminal;
use crate::config::Resolved;
use crate::wiring::{self, McpServers};

/// The servers whose tools may be meant. Those that are known from another time are not started before they are called;
/// the others are, side by side, because what they have must be known.
pub(super) async fn servers(config: &Resolved, policy: &Policy, tool: Option<&str>) -> Vec<Arc<Server>> {
    if config.mcp_servers.is_empty() || tool.is_some_and(is_builtin) {
        return Vec::new();
    }
    let McpServers { servers, unusable } = wiring::mcp_servers(config, policy, None);
    let others_meant = tool.is_some_and(|tool| servers.iter().any(|one| begins_with(tool, one.namespace())));
    for (name, reason) in unusable.into_iter().filter(|_| !others_meant) {
        terminal::warn(&format!("MCP server `{name}` cannot be used: {reason}"));
    }
    let servers = meant(servers, tool);
    let unknown: Vec<Arc<Server>> = servers.iter().filter(|server| !server.is_known()).cloned().collect();
    for (_, ToolError { message, .. }) in mcp::start_all(&unknown, config.mcp_init_concurrency).await {
        terminal::warn(&message);
    }
    servers
}

/// A name that begins with that of a server means a tool of that server; any other may be a tool of all.
fn meant(servers: Vec<Arc<Server>>, tool: Option<&str>) -> Vec<Arc<Server>> {
    let named = |server: &&Arc<Server>| tool.is_some_and(|tool| begins_with(tool, server.namespace()));
    let named: Vec<Arc<Server>> = servers.iter().filter(named).cloned().collect();
    if named.is_empty() { servers } else { named }
}

fn begins_with(tool: &str, namespace: &str) -> bool {
    let tool = tool.strip_prefix("mcp__").unwrap_or(tool);
    tool.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('_'))
}

fn is_builtin(tool: &str) -> bool {
    let own = haft_tools::builtin::definitions();
    tool == "tool_output" || own.iter().any(|definition| definition.name.as_str().eq_ignore_ascii_case(tool))
}
