//! Asks the user at the terminal to approve a call.

#[cfg(feature = "serve")]
mod operator;
mod request_text;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use haft_core::grant::GrantScope;

#[cfg(feature = "serve")]
pub(super) use self::operator::operator_approvers;
use self::request_text::request_text;
use super::question::{self, QuestionTurn};
use super::terminal;

/// An approver that asks on standard error and reads the answer from standard input.
#[derive(Debug)]
pub(super) struct TerminalApprover;

impl TerminalApprover {
    /// Returns an approver only if standard input and standard error are both a terminal; a script is never asked.
    pub(super) fn for_interactive_terminal() -> Option<Arc<dyn Approver>> {
        question::is_interactive().then(|| Arc::new(TerminalApprover) as Arc<dyn Approver>)
    }
}

impl Approver for TerminalApprover {
    fn name(&self) -> &'static str {
        "terminal"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async move {
            let mut turn = question::turn().await;
            let remembered = "in this workspace; `haft approvals` lists and revokes such answers";
            let answer = ask(&mut turn, (&request_text(request), remembered), request).await;
            answer.unwrap_or(ApprovalAnswer::Deny)
        })
    }
}

/// Shows a question, and returns the answer; `None` if the terminal is gone. `remembered` is the text that says where
/// an "always" answer applies.
async fn ask(
    turn: &mut QuestionTurn,
    (text, remembered): (&str, &str),
    request: &ApprovalRequest,
) -> Option<ApprovalAnswer> {
    terminal::prompt(text);
    let offers = offers(request);
    let typed = turn.key(&choices(&offers, remembered)).await?;
    let chosen = chosen(&typed, &offers);
    terminal::prompt(chosen.map_or("→ denied", |offer| offer.confirmation));
    Some(chosen.map_or(ApprovalAnswer::Deny, |offer| offer.answer))
}

/// A key that allows the call.
#[derive(Debug, Clone)]
struct KeyOffer {
    /// The key in lower case. The upper case letter has the same effect.
    key: char,
    answer: ApprovalAnswer,
    text: String,
    confirmation: &'static str,
}

/// Returns the keys that allow this call. Every other key denies it.
fn offers(request: &ApprovalRequest) -> Vec<KeyOffer> {
    let offer = |key, answer, text: String, confirmation| KeyOffer { key, answer, text, confirmation };
    let mut offers = vec![
        offer('y', ApprovalAnswer::AllowOnce, "once".into(), "→ allowed once"),
        offer(
            'e',
            ApprovalAnswer::AllowExact,
            "always this exact call".into(),
            "→ this exact call is always allowed",
        ),
    ];
    if let Some(words) = &request.prefix {
        let text = format!("always `{}`", GrantScope::CommandPrefix(words.clone()));
        offers.push(offer(
            'p',
            ApprovalAnswer::AllowPrefix,
            text,
            "→ commands with this prefix are always allowed",
        ));
    }
    if !request.rules.is_empty() {
        offers.push(offer(
            'r',
            ApprovalAnswer::AllowRule,
            "always every call that this rule matches".into(),
            "→ every call that this rule matches is always allowed",
        ));
    }
    offers
}

fn choices(offers: &[KeyOffer], remembered: &str) -> String {
    let keys: Vec<String> = offers.iter().map(|offer| format!("[{}] {}", offer.key, offer.text)).collect();
    format!(
        "(always: {remembered})\n\
         allow? {}, any other key: no",
        keys.join(", ")
    )
}

/// Finds the offer for the typed key. Ignores an Enter after the key. If more text follows, the input was pasted, and
/// no call is allowed.
fn chosen<'a>(typed: &str, offers: &'a [KeyOffer]) -> Option<&'a KeyOffer> {
    let typed = typed.trim_end_matches(['\r', '\n']);
    offers.iter().find(|offer| typed.eq_ignore_ascii_case(offer.key.encode_utf8(&mut [0; 4])))
}

#[cfg(test)]
mod tests {
    use haft_core::approval::ApprovalId;
    use haft_core::digest::Digest;
    use haft_core::position::RunPosition;

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
    fn only_a_single_offered_key_allows_a_call() {
        let bare = request(None, &[]);
        let full = request(Some(&["git", "status"]), &["ask bash: git *"]);
        let check = |typed: &str, request: &ApprovalRequest, expected: ApprovalAnswer| {
            let offers = offers(request);
            let answer = chosen(typed, &offers).map_or(ApprovalAnswer::Deny, |offer| offer.answer);
            assert_eq!(answer, expected, "{typed:?}");
        };
        check("y", &bare, ApprovalAnswer::AllowOnce);
        check("Y", &bare, ApprovalAnswer::AllowOnce);
        check("y\r\n", &bare, ApprovalAnswer::AllowOnce);
        check("e", &bare, ApprovalAnswer::AllowExact);
        check("r", &full, ApprovalAnswer::AllowRule);
        check("R", &full, ApprovalAnswer::AllowRule);
        check("p", &full, ApprovalAnswer::AllowPrefix);
        for denied in ["", "\n", "n", "o", "yes", "y\ny\n", "y please", "\u{1b}[A", " y", "\u{443}"] {
            check(denied, &full, ApprovalAnswer::Deny);
        }
        check("r", &bare, ApprovalAnswer::Deny);
        check("p", &bare, ApprovalAnswer::Deny);
    }

    #[test]
    fn approval_question_lists_every_key_that_allows_the_call() {
        let choices_of = |request: &ApprovalRequest| choices(&offers(request), "here");
        let full = choices_of(&request(Some(&["git", "status"]), &["ask bash: git *"]));
        let expected = "allow? [y] once, [e] always this exact call, [p] always `git status *`, \
                        [r] always every call that this rule matches, any other key: no";
        assert!(full.ends_with(expected), "{full}");
        let bare = choices_of(&request(None, &[]));
        assert!(bare.ends_with("allow? [y] once, [e] always this exact call, any other key: no"), "{bare}");
    }
}
