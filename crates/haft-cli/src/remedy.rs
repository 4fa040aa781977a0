//! Finds the setting that an operator would change after a failed call.

#[cfg(feature = "serve")]
use haft_core::principal::Principal;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_tools::mcp::LOGIN_NEEDED;
use serde_json::json;

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
        ToolErrorKind::Denied => match Denial::of(error) {
            Denial::NeedsApproval | Denial::ByRule => Some(allowing(tool)),
            Denial::ByUser => None,
            Denial::Inactive => Some("`haft config show` shows the settings that apply, and the files that set them".into()),
        },
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

/// Returns the next step after a failed call of a gateway client. If each user needs a separate account at the server,
/// the operator cannot log in for the user.
#[cfg(feature = "serve")]
pub(super) fn for_client(
    error: &ToolError,
    tool: &str,
    (config, principal): (&ResolvedConfig, &Principal),
) -> Option<String> {
    if error.kind == ToolErrorKind::Denied {
        return denied_to_client(error, tool);
    }
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

/// The reason why a call was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denial {
    /// A rule requires an approval, and no user could be asked.
    NeedsApproval,
    ByRule,
    ByUser,
    /// The tool is not offered.
    Inactive,
}

impl Denial {
    fn of(error: &ToolError) -> Self {
        let message = &error.message;
        if message.contains("needs approval") {
            Self::NeedsApproval
        } else if message.contains("is denied") {
            Self::ByRule
        } else if message.contains("the user refused") {
            Self::ByUser
        } else {
            Self::Inactive
        }
    }
}

/// Returns the next step for the user of a client, who cannot change the configuration of haft.
#[cfg(feature = "serve")]
fn denied_to_client(error: &ToolError, tool: &str) -> Option<String> {
    let by_operator = || format!("the operator of haft can allow the call: {}", allowing(tool));
    match Denial::of(error) {
        Denial::NeedsApproval => Some(format!(
            "use a client that can show forms (elicitation), so that you can approve the call yourself (at `haft \
             serve` with a key that has the scope `approvals`), or ask the operator; {}",
            by_operator()
        )),
        Denial::ByRule => Some(by_operator()),
        Denial::ByUser => None,
        Denial::Inactive => Some("only the operator of haft can offer this tool".into()),
    }
}

/// Returns the settings that allow a denied tool.
fn allowing(tool: &str) -> String {
    let rule = json!({ "tool": tool, "decision": "allow" });
    format!(
        "to allow such calls, change the rule that the message names, or add the rule `{rule}` to `policy.rules` in \
         `haft.json`; `haft policy explain {tool}` shows the rule that decides, and `haft config show` the file that \
         sets it"
    )
}

fn unknown(server: &ServerOfTool<'_>) -> String {
    let name = server.name;
    match (server.settings.enabled, &server.settings.reach) {
        (false, _) => format!("`mcpServers.{name}.enabled` is false"),
        (true, Err(reason)) => reason.clone(),
        (true, Ok(_)) => format!("`haft mcp test {name}` starts the server and lists its tools"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_reason_is_parsed_from_the_error_message() {
        let of = |message: &str| Denial::of(&ToolError::new(ToolErrorKind::Denied, message));
        for (message, expected) in [
            (
                "this call of `bash` needs approval, and no user is available to approve it: x",
                Denial::NeedsApproval,
            ),
            ("this call of `bash` is denied: rule x", Denial::ByRule),
            ("tool `bash` is denied by the operator", Denial::ByRule),
            ("the user refused this call", Denial::ByUser),
            ("tool `bash` is not active: quarantined", Denial::Inactive),
        ] {
            assert_eq!(of(message), expected, "{message}");
        }
        assert!(allowing("bash").contains(r#"{"decision":"allow","tool":"bash"}"#), "{}", allowing("bash"));
    }
}
