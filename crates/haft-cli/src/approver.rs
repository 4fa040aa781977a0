//! Asks the person at the terminal to approve a call.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver, shown};
use haft_core::grant::GrantScope;

use super::{question, terminal};

/// Asks on standard error and reads the answer from standard input.
#[derive(Debug)]
pub(super) struct TerminalApprover;

impl TerminalApprover {
    /// Returns an approver only when standard input and standard error are both a terminal; a script is never asked.
    pub(super) fn for_interactive_terminal() -> Option<Arc<dyn Approver>> {
        let there = io::stdin().is_terminal() && io::stderr().is_terminal();
        there.then(|| Arc::new(TerminalApprover) as Arc<dyn Approver>)
    }
}

impl Approver for TerminalApprover {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async move {
            let mut turn = question::turn().await;
            terminal::note(&asked(request));
            turn.line().await.map_or(ApprovalAnswer::Deny, |line| answer(line.trim(), request))
        })
    }
}

/// Describes the call, with invisible characters made visible so that none can hide a part of it.
fn asked(request: &ApprovalRequest) -> String {
    let mut text =
        format!("{} wants to run in {}:\n", request.tool, shown(&request.workspace.to_string_lossy()));
    for (name, value) in &request.arguments {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "  {}: {}", shown(name), shown(&value));
    }
    let prefix = request.prefix.as_ref().map_or_else(String::new, |words| {
        format!(", [p] always `{}`", GrantScope::CommandPrefix(words.clone()))
    });
    let rule = if request.rules.is_empty() { "" } else { ", [r] always by this rule" };
    let _ = write!(
        text,
        "{}\nallow? [o] once, [e] always this exact call{prefix}{rule}, anything else: no\n\
         (always: in this workspace; `haft approvals` lists and revokes)",
        shown(&request.why)
    );
    text
}

/// Parses the answer. Anything that is not understood, or that was not offered, denies the call.
fn answer(line: &str, request: &ApprovalRequest) -> ApprovalAnswer {
    match line {
        "o" | "y" | "yes" | "once" => ApprovalAnswer::AllowOnce,
        "e" | "exact" => ApprovalAnswer::AllowExact,
        "p" | "prefix" if request.prefix.is_some() => ApprovalAnswer::AllowPrefix,
        "r" | "rule" if !request.rules.is_empty() => ApprovalAnswer::AllowRule,
        _ => ApprovalAnswer::Deny,
    }
}

#[cfg(test)]
mod tests {
    use haft_core::approval::ApprovalId;
    use haft_core::digest::Digest;
    use haft_core::place::RunPosition;

    use super::*;

    fn request(prefix: Option<&[&str]>, rules: &[&str]) -> ApprovalRequest {
        ApprovalRequest {
            id: ApprovalId::parse(&"1".repeat(32)).unwrap(),
            place: RunPosition::default(),
            tool: "bash".into(),
            arguments: serde_json::Map::new(),
            workspace: "/w".into(),
            digest: Digest::of_text(""),
            rules: rules.iter().map(ToString::to_string).collect(),
            prefix: prefix.map(|words| words.iter().map(ToString::to_string).collect()),
            why: "why".into(),
        }
    }

    #[test]
    fn unrecognized_or_unoffered_approval_key_denies() {
        let bare = request(None, &[]);
        let full = request(Some(&["git", "status"]), &["ask bash: git *"]);
        let check = |line: &str, request: &ApprovalRequest, expected: ApprovalAnswer| {
            assert_eq!(answer(line, request), expected, "{line}");
        };
        check("o", &bare, ApprovalAnswer::AllowOnce);
        check("e", &bare, ApprovalAnswer::AllowExact);
        check("r", &full, ApprovalAnswer::AllowRule);
        check("r", &bare, ApprovalAnswer::Deny);
        check("p", &full, ApprovalAnswer::AllowPrefix);
        check("prefix", &full, ApprovalAnswer::AllowPrefix);
        check("p", &bare, ApprovalAnswer::Deny);
        check("", &full, ApprovalAnswer::Deny);
        check("O", &full, ApprovalAnswer::Deny);
    }

    #[test]
    fn approval_prompt_lists_only_offered_choices() {
        let full = asked(&request(Some(&["git", "status"]), &["ask bash: git *"]));
        for part in ["[o] once", "[e] always this exact call", "[p] always `git status *`", "[r] always by"] {
            assert!(full.contains(part), "{part}: {full}");
        }
        let bare = asked(&request(None, &[]));
        assert!(!bare.contains("[p]") && !bare.contains("[r]"), "{bare}");
    }
}
