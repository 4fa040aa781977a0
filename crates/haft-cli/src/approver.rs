//! Asks the person at the terminal to approve a call.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{Answer, ApprovalRequest, Approver, shown};

use super::{question, terminal};

/// Asks on standard error and reads the answer from standard input.
#[derive(Debug)]
pub(super) struct TerminalApprover;

impl TerminalApprover {
    /// Returns an approver only when standard input and standard error are both a terminal; a script is never asked.
    pub(super) fn when_somebody_is_there() -> Option<Arc<dyn Approver>> {
        let there = io::stdin().is_terminal() && io::stderr().is_terminal();
        there.then(|| Arc::new(TerminalApprover) as Arc<dyn Approver>)
    }
}

impl Approver for TerminalApprover {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let mut turn = question::turn().await;
            terminal::note(&asked(request));
            let may_allow_rule = !request.rules.is_empty();
            turn.line().await.map_or(Answer::Deny, |line| answer(line.trim(), may_allow_rule))
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
    let rule = if request.rules.is_empty() { "" } else { ", [r] always by this rule" };
    let _ = write!(
        text,
        "{}\nallow? [o] once, [e] always this exact call{rule}, anything else: no",
        shown(&request.why)
    );
    text
}

/// Parses the answer. Anything that is not understood denies the call.
fn answer(line: &str, may_allow_rule: bool) -> Answer {
    match line {
        "o" | "y" | "yes" | "once" => Answer::AllowOnce,
        "e" | "exact" => Answer::AllowExact,
        "r" | "rule" if may_allow_rule => Answer::AllowRule,
        _ => Answer::Deny,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        let check =
            |line: &str, rule: bool, expected: Answer| assert_eq!(answer(line, rule), expected, "{line}");
        check("o", false, Answer::AllowOnce);
        check("e", false, Answer::AllowExact);
        check("r", true, Answer::AllowRule);
        check("r", false, Answer::Deny);
        check("", true, Answer::Deny);
        check("O", true, Answer::Deny);
    }
}
