//! Hands over a request or an answer to the next agent after a run has ended.

use std::sync::Arc;

use haft_core::run::finish::{FinishClass, FinishReason, RunAnswer, RunFinish};

use super::prepared_agent::PreparedAgent;

/// Returns the next agent and its request, or `None` if the answer is final. `original` is the request to the first
/// agent.
pub(super) fn next(
    prepared_agent: &PreparedAgent,
    original: &str,
    finish: &RunFinish,
) -> Option<(Arc<PreparedAgent>, String)> {
    let from = &prepared_agent.agent().name;
    let links = prepared_agent.links();
    if let FinishReason::Handoff(handoff) = &finish.reason {
        let to = links.destinations.iter().find(|to| to.agent().name == handoff.agent)?;
        return Some((Arc::clone(to), handoff_request(original, from, handoff.message.as_deref())));
    }
    let to = links.handoff.as_ref()?;
    match (finish.reason.row().class, &finish.answer) {
        (FinishClass::Answered, Some(answer)) => Some((Arc::clone(to), finished(original, from, answer))),
        _ => None,
    }
}

fn handoff_request(original: &str, from: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => {
            format!("{original}\n\nThe agent `{from}` hands this request to you and says:\n{message}")
        }
        None => original.to_owned(),
    }
}

fn finished(original: &str, from: &str, answer: &RunAnswer) -> String {
    format!("The request was:\n{original}\n\nThe agent `{from}` answered:\n{}", answer.text())
}
