//! Asks the operator of a gateway at the terminal to approve the calls of clients.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver, shown};
use haft_core::principal::Principal;
use haft_server::mcp::{CallingClient, OperatorApprovers};

use super::ask;
use super::request_text::request_text;
use crate::{question, terminal};

/// The maximum number of characters of a client's name that are shown. The client chooses its name.
const CLIENT_NAME_CHARS_MAX: usize = 60;

const TERMINAL_IN_USE: &str = "haft does not run in the foreground of the operator's terminal";
const TERMINAL_GONE: &str = "the terminal of the operator is gone";

/// Returns the approvers for a server that was started at a terminal; `None` without a terminal.
pub(crate) fn operator_approvers() -> Option<OperatorApprovers> {
    question::is_interactive().then(|| {
        Arc::new(|client: &CallingClient| Arc::new(OperatorTerminal::of(client)) as Arc<dyn Approver>) as _
    })
}

/// An approver that asks the operator about the calls of one client.
struct OperatorTerminal {
    /// The line above the question, which names the client.
    heading: String,
    remembered: String,
}

impl OperatorTerminal {
    fn of(client: &CallingClient) -> Self {
        let CallingClient { principal, name } = client;
        let principal = shown(&principal.to_string());
        let name = name.as_deref().map(|name| name.chars().take(CLIENT_NAME_CHARS_MAX).collect::<String>());
        let name = name.map(|name| format!(" `{}`", shown(&name))).unwrap_or_default();
        let is_local = client.principal.is_subject_of(&Principal::local());
        let option = if is_local { String::new() } else { format!(" --principal {principal}") };
        Self {
            heading: format!("The MCP client{name} of {principal} asks for approval."),
            remembered: format!(
                "for {principal} in this workspace; `haft approvals list{option}` lists such answers"
            ),
        }
    }
}

impl Approver for OperatorTerminal {
    fn name(&self) -> &'static str {
        "operator"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async move {
            let mut turn = question::turn().await;
            // The operator may have closed the terminal, or moved the server to the background.
            if !question::is_interactive() {
                return ApprovalAnswer::Unanswered(TERMINAL_GONE);
            }
            if !question::is_in_foreground() {
                return ApprovalAnswer::Unanswered(TERMINAL_IN_USE);
            }
            let text = format!("{}\n{}", self.heading, request_text(request));
            let mut open = OpenPrompt { is_answered: false };
            let answer = ask(&mut turn, (&text, &self.remembered), request).await;
            open.is_answered = true;
            answer.unwrap_or(ApprovalAnswer::Unanswered(TERMINAL_GONE))
        })
    }
}

/// A question on the terminal. If it is dropped before the operator answers, it prints that the question is withdrawn.
struct OpenPrompt {
    is_answered: bool,
}

impl Drop for OpenPrompt {
    fn drop(&mut self) {
        if !self.is_answered {
            terminal::prompt(
                "→ withdrawn: the client cancelled the call or disconnected, or the time is over",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_names_the_client_without_deceptive_characters() {
        let check = |principal: Principal, name: Option<&str>, heading: &str, remembered: &str| {
            let asked = OperatorTerminal::of(&CallingClient { principal, name: name.map(str::to_owned) });
            assert_eq!(asked.heading, heading);
            assert!(asked.remembered.contains(remembered), "{}", asked.remembered);
        };
        let anna = || Principal::new("acme", "anna", "key_1");
        check(
            anna(),
            Some("cursor"),
            "The MCP client `cursor` of acme/anna asks for approval.",
            "for acme/anna in this workspace; `haft approvals list --principal acme/anna`",
        );
        check(
            Principal::local(),
            None,
            "The MCP client of local asks for approval.",
            "`haft approvals list` lists",
        );
        check(
            anna(),
            Some("a\nallow?\u{1b}[2A"),
            "The MCP client `a\\nallow?\\u{1b}[2A` of acme/anna asks for approval.",
            "",
        );
        let long = "x".repeat(1_000);
        let heading =
            format!("The MCP client `{}` of acme/anna asks for approval.", &long[..CLIENT_NAME_CHARS_MAX]);
        check(anna(), Some(&long), &heading, "");
    }
}
