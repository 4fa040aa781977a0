//! Finds the setting that an operator would change after a failed call.

#[cfg(feature = "serve")]
use haft_core::principal::Principal;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_tools::mcp::LOGIN_NEEDED;

use haft_config::ResolvedConfig;
use haft_config::mcp::ServerOfTool;
use haft_runtime::wiring;

use super::hints;

/// Returns the next step after an error, if there is one.
pub(super) fn of(error: &ToolError, tool: &str, config: &ResolvedConfig) -> Option<String> {
    let server = ServerOfTool::find(&config.mcp_servers, tool);
    match error.kind {
        ToolErrorKind::UnknownTool => Some(server.map_or_else(
            || "`haft tools` lists all tools".into(),
            |server| unknown(&server),
        )),
        ToolErrorKind::InvalidArguments => Some(format!("`haft tools {tool} --schema` shows the parameters of the tool")),
        ToolErrorKind::Denied => Some("`haft config show` shows the settings that apply, and the files that set them".into()),
        ToolErrorKind::Timeout => {
            let of_server =
                server.map_or(String::new(), |ServerOfTool { name, .. }| format!(", `mcpServers.{name}.requestTimeout`"));
            Some(format!(
                "raise the limit with --timeout for one call, or with `toolTimeout`, `tools.{tool}.timeout`{of_server} for all"
            ))
        }
        ToolErrorKind::QueueFull => Some(
            "raise `queues.NAME.maxConcurrency` to run more calls at once, or `queues.NAME.maxWaiting` to let more wait".into(),
        ),
        ToolErrorKind::Unavailable => match server {
            Some(ServerOfTool { name, .. }) if error.message.contains(LOGIN_NEEDED) => Some(hints::login_at(name)),
            Some(ServerOfTool { name, .. }) => Some(format!("`haft mcp test {name}` tests the server; its settings are in `mcpServers.{name}`")),
            // Built-in tools depend only on the sandbox, so the sandbox must be the cause.
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

/// Returns the next step after a failed call of a client of the gateway. The operator cannot log in for another
/// principal that has an account of its own.
#[cfg(feature = "serve")]
pub(super) fn for_client(
    error: &ToolError,
    tool: &str,
    (config, principal): (&ResolvedConfig, &Principal),
) -> Option<String> {
    let is_login = error.kind == ToolErrorKind::Unavailable && error.message.contains(LOGIN_NEEDED);
    let server = ServerOfTool::find(&config.mcp_servers, tool).filter(|_| is_login);
    match server {
        Some(server) if wiring::has_own_account(server.settings, principal) => Some(
            "each user logs in with a client that can open URLs (URL elicitation); with `oauth.account` set to \
             `operator`, all users use the account of the operator"
                .into(),
        ),
        Some(_) | None => of(error, tool, config),
    }
}

fn unknown(server: &ServerOfTool<'_>) -> String {
    let name = server.name;
    match (server.settings.enabled, &server.settings.reach) {
        (false, _) => format!("`mcpServers.{name}.enabled` is false"),
        (true, Err(reason)) => reason.clone(),
        (true, Ok(_)) => format!("`haft mcp test {name}` starts the server and lists its tools"),
    }
}
