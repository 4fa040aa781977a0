//! Who goes on with a request when a run has ended, and what they are told.

use std::sync::Arc;

use haft_core::run::finish::{Answer, Finish, FinishClass, FinishReason};

use super::prepared_agent::PreparedAgent;

/// Who goes on, and with what words; nobody when the answer is the answer. `original` is what was asked first.
pub(super) fn next(
    worker: &PreparedAgent,
    original: &str,
    finish: &Finish,
) -> Option<(Arc<PreparedAgent>, String)> {
    let from = &worker.agent().name;
    let links = worker.links();
    if let FinishReason::Handoff(handoff) = &finish.reason {
        let to = links.destinations.iter().find(|to| to.agent().name == handoff.agent)?;
        return Some((Arc::clone(to), handed_on(original, from, handoff.message.as_deref())));
    }
    let to = links.handoff.as_ref()?;
    match (finish.reason.row().class, &finish.answer) {
        (FinishClass::Answered, Some(answer)) => Some((Arc::clone(to), finished(original, from, answer))),
        _ => None,
    }
}

fn handed_on(original: &str, from: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => {
            format!("{original}\n\nThe agent `{from}` hands this request to you and says:\n{message}")
        }
        None => original.to_owned(),
    }
}

fn finished(original: &str, from: &str, answer: &Answer) -> String {
    format!("The request was:\n{original}\n\nThe agent `{from}` answered:\n{}", answer.text())
}
