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
        ToolErrorKind::InvalidArguments => Some(format!("`haft tools {tool} --schema` shows its parameters")),
        ToolErrorKind::Denied => Some("`haft config show` shows the settings that decide, and the files that set them".into()),
        ToolErrorKind::Timeout => {
            let of_server =
                server.map_or(String::new(), |(name, ..)| format!(", `mcpServers.{name}.requestTimeout`"));
            Some(format!(
                "raise the limit with --timeout for one call, or with `toolTimeout`, `tools.{tool}.timeout`{of_server} for all"
            ))
        }
        ToolErrorKind::QueueFull => Some(
            "raise `queues.NAME.maxConcurrency` to run more calls at once, or `queues.NAME.maxWaiting` to let more wait".into(),
        ),
        ToolErrorKind::Unavailable => match server {
            Some((name, ..)) if error.message.contains(LOGIN_NEEDED) => Some(hints::login_at(name)),
            Some((name, ..)) => Some(format!("`haft mcp test {name}` tests the server; its settings are in `mcpServers.{name}`")),
            // The other tools of haft need nothing but the sandbox.
            None if wiring::is_builtin(tool) => Some(
                "`haft doctor` tests the sandbox; `haft call --help` lists the options that change it".into(),
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
    // The longest match wins: `a_b` may be a server as well as `a`.
    named.max_by_key(|(name, ..)| name.len())
}

/// Returns the setting of a server that excludes a tool; `None` if no setting does.
pub(super) fn excluded(tool: &str, config: &ResolvedConfig) -> Option<String> {
    let (name, server, own) = server(tool, config)?;
    let is_usable = server.enabled && server.reach.is_ok();
    is_usable.then(|| exclusion(name, server, own)).flatten()
}

fn exclusion(name: &str, server: &McpServerSettings, own: &str) -> Option<String> {
    let denies = server.tools_denied.iter().any(|glob| glob.matches(own));
    let allows = server.tools_allowed.is_empty() || server.tools_allowed.iter().any(|glob| glob.matches(own));
    match (denies, allows) {
        (true, _) => Some(format!("`mcpServers.{name}.toolsDenied` excludes it")),
        (false, false) => Some(format!("`mcpServers.{name}.toolsAllowed` does not include it")),
        (false, true) => None,
    }
}

fn unknown(name: &str, server: &McpServerSettings, own: &str) -> String {
    match (server.enabled, &server.reach) {
        (false, _) => format!("`mcpServers.{name}.enabled` is false"),
        (true, Err(reason)) => reason.clone(),
        (true, Ok(_)) => exclusion(name, server, own)
            .unwrap_or_else(|| format!("`haft mcp test {name}` starts the server and shows what it has")),
    }
}
