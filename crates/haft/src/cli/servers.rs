//! MCP servers for one command: those that it may mean.

use std::sync::Arc;

use haft_core::provider::ToolProvider;
use haft_sandbox::Policy;
use haft_tools::mcp::Server;

use super::terminal;
use crate::config::Resolved;
use crate::wiring;

/// What gives the tools of the servers that may be meant. None of them runs yet.
pub(super) fn providers(
    config: &Resolved,
    policy: &Policy,
    tool: Option<&str>,
) -> Vec<Arc<dyn ToolProvider>> {
    if config.mcp_servers.is_empty() || tool.is_some_and(is_builtin) {
        return Vec::new();
    }
    let mut found = wiring::mcp_servers(config, policy, None);
    let others_meant =
        tool.is_some_and(|tool| found.servers.iter().any(|one| begins_with(tool, one.namespace())));
    for (name, reason) in found.unusable.iter().filter(|_| !others_meant) {
        terminal::warn(&format!("MCP server `{name}` cannot be used: {reason}"));
    }
    found.servers = meant(found.servers, tool);
    found.providers()
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
