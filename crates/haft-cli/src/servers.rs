//! MCP servers for one command: those that it may mean.

use std::sync::Arc;

use haft_core::provider::ToolProvider;
use haft_sandbox::Policy;
use haft_tools::mcp::{Elicitation, TraceParents, TraceSink, Traced};

use super::terminal;
use haft_config::Resolved;
use haft_runtime::wiring::{self, McpFace};

/// For what servers are wanted, and who is there while they work.
#[derive(Default)]
pub(super) struct Asked<'a> {
    /// The one tool that is meant; nothing means all.
    pub(super) tool: Option<&'a str>,
    pub(super) elicitation: Elicitation,
    /// Knows the spans of calls.
    pub(super) parents: Option<Arc<dyn TraceParents>>,
}

/// What gives the tools of the servers that may be meant. None of them runs yet.
pub(super) fn providers(config: &Resolved, policy: &Policy, asked: Asked<'_>) -> Vec<Arc<dyn ToolProvider>> {
    let Asked { tool, elicitation, parents } = asked;
    if config.mcp_servers.is_empty() || tool.is_some_and(is_builtin) {
        return Vec::new();
    }
    let face = McpFace { elicitation, parents, ..face(config) };
    let found = wiring::mcp_servers(config, policy, &face);
    let all = found.providers();
    let is_meant = |provider: &&Arc<dyn ToolProvider>| {
        tool.is_some_and(|tool| begins_with(tool, provider.namespace().as_str()))
    };
    let meant: Vec<Arc<dyn ToolProvider>> = all.iter().filter(is_meant).cloned().collect();
    // A name that begins with that of a server means a tool of that server; any other may be a tool of all.
    if !meant.is_empty() {
        return meant;
    }
    for (name, reason) in &found.unusable {
        terminal::warn(&format!("MCP server `{name}` cannot be used: {reason}"));
    }
    all
}

/// What the command line is to servers.
pub(super) fn face(config: &Resolved) -> McpFace {
    McpFace { trace: trace(config), ..McpFace::default() }
}

/// Shows messages to and from servers, where the user asked for that.
pub(super) fn trace(config: &Resolved) -> Option<Arc<dyn TraceSink>> {
    config.trace_mcp.then(|| Arc::new(OnStandardError) as _)
}

/// Shows messages where the log goes.
struct OnStandardError;

impl TraceSink for OnStandardError {
    fn line(&self, server: &str, what: Traced, text: &str) {
        let mark = match what {
            Traced::Sent => "►",
            Traced::Received => "◄",
            Traced::Life => "•",
        };
        terminal::note(&format!("mcp {server} {mark} {text}"));
    }
}

/// Whether a name may be that of a tool of this server.
pub(super) fn begins_with(tool: &str, namespace: &str) -> bool {
    let tool = tool.strip_prefix("mcp__").unwrap_or(tool);
    tool.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('_'))
}

fn is_builtin(tool: &str) -> bool {
    let own = haft_tools::builtin::definitions();
    tool == "tool_output" || own.iter().any(|definition| definition.name.as_str().eq_ignore_ascii_case(tool))
}
