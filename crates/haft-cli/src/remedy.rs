//! The setting an operator would change after a failed call.

use haft_core::name::Namespace;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_tools::mcp::LOGIN_NEEDED;

use haft_config::ResolvedConfig;
use haft_config::mcp::McpServerSettings;
use haft_runtime::wiring;

use super::hints;

/// Returns the next step after an error, if there is one.
pub(super) fn of(error: &ToolError, tool: &str, config: &ResolvedConfig) -> Option<String> {
    let server = server(tool, config);
    match error.kind {
        ToolErrorKind::UnknownTool => Some(server.map_or_else(
            || "`haft tools` lists all tools".into(),
            |(name, server, own)| unknown(name, server, own),
        )),
        ToolErrorKind::InvalidArguments => Some(format!("`haft tools {tool} --schema` shows what it takes")),
        ToolErrorKind::Denied => Some("`haft config show` shows what decides, and which file says so".into()),
        ToolErrorKind::Timeout => {
            let of_server =
                server.map_or(String::new(), |(name, ..)| format!(", `mcpServers.{name}.requestTimeoutMs`"));
            Some(format!(
                "--timeout allows more for one call; `toolTimeout`, `tools.{tool}.timeout`{of_server} for all"
            ))
        }
        ToolErrorKind::QueueFull => Some(
            "`queues.NAME.concurrent` lets more calls run at once, `queues.NAME.maxWaiting` more wait".into(),
        ),
        ToolErrorKind::Unavailable => match server {
            Some((name, ..)) if error.message.contains(LOGIN_NEEDED) => Some(hints::login_at(name)),
            Some((name, ..)) => Some(format!("`haft mcp test {name}` tries what `mcpServers.{name}` says")),
            // The other tools of haft need nothing but the sandbox.
            None if wiring::is_builtin(tool) => Some(
                "`haft doctor` tries the sandbox; `haft call --help` lists the options that change it".into(),
            ),
            None => None,
        },
        ToolErrorKind::ApprovalPending
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Failed
        | ToolErrorKind::Internal
        | ToolErrorKind::UnknownOutcome => None,
    }
}

/// Returns the server that a tool name refers to, and the server's own name for the tool.
fn server<'a>(
    tool: &'a str,
    config: &'a ResolvedConfig,
) -> Option<(&'a str, &'a McpServerSettings, &'a str)> {
    let tool = tool.strip_prefix("mcp__").unwrap_or(tool);
    let named = config.mcp_servers.iter().filter_map(|(name, server)| {
        let own = tool.strip_prefix(Namespace::sanitize(name).as_str())?.strip_prefix('_')?;
        Some((name.as_str(), server, own.trim_start_matches('_')))
    });
    // The longest match wins: `a_b` may be a server beside `a`.
    named.max_by_key(|(name, ..)| name.len())
}

fn unknown(name: &str, server: &McpServerSettings, own: &str) -> String {
    let denies = server.tools_denied.iter().any(|glob| glob.matches(own));
    let allows = server.tools_allowed.is_empty() || server.tools_allowed.iter().any(|glob| glob.matches(own));
    match (server.enabled, &server.reach) {
        (false, _) => format!("`mcpServers.{name}.enabled` is false"),
        (true, Err(reason)) => reason.clone(),
        (true, Ok(_)) if denies => format!("`mcpServers.{name}.toolsDenied` keeps it out"),
        (true, Ok(_)) if !allows => format!("`mcpServers.{name}.toolsAllowed` does not name it"),
        (true, Ok(_)) => format!("`haft mcp test {name}` starts the server and shows what it has"),
    }
}
