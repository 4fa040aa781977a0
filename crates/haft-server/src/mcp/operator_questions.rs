//! Approvals by the operator of the gateway, for calls of clients that cannot show a form to their users.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use haft_core::principal::Principal;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::connection::ClientConnection;
use super::questions::ANSWER_WAIT_MAX;

/// The maximum number of questions that wait for the operator, including the open one.
const WAITING_MAX: usize = 64;

/// The maximum number of questions of one principal that wait for the operator. Otherwise one principal could fill the
/// queue, and the calls of all others would be denied.
const WAITING_PER_PRINCIPAL_MAX: usize = 16;

const QUEUE_FULL: &str = "too many questions already wait for the operator";
const TOO_LATE: &str = "the operator did not answer within 10 minutes";
const READER_LEFT: &str = "the client closed the stream of its request before the operator answered";

/// Counts the questions that wait for the operator.
#[derive(Debug, Default)]
pub(super) struct OperatorQueue(Mutex<HashMap<Principal, usize>>);

impl OperatorQueue {
    /// Adds a question until the place is dropped; returns `None` if too many wait.
    fn enter(&self, principal: &Principal) -> Option<QueuedQuestion<'_>> {
        let mut waiting = self.waiting();
        let own = waiting.get(principal).copied().unwrap_or_default();
        if own >= WAITING_PER_PRINCIPAL_MAX || waiting.values().sum::<usize>() >= WAITING_MAX {
            return None;
        }
        waiting.insert(principal.clone(), own + 1);
        Some(QueuedQuestion { queue: self, principal: principal.clone() })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One question in the queue.
#[derive(Debug)]
struct QueuedQuestion<'a> {
    queue: &'a OperatorQueue,
    principal: Principal,
}

impl Drop for QueuedQuestion<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting();
        if let Some(own) = waiting.get_mut(&self.principal) {
            *own -= 1;
        }
        waiting.retain(|_, own| *own > 0);
    }
}

/// The request whose reply the client reads while the operator is asked.
pub(super) struct ClientReply {
    pub(super) connection: Arc<ClientConnection>,
    pub(super) request: Box<RawValue>,
}

/// Asks the operator about the calls of one principal, within the limits of the gateway.
pub(super) struct OperatorQuestions {
    pub(super) operator: Arc<dyn Approver>,
    pub(super) queue: Arc<OperatorQueue>,
    pub(super) principal: Principal,
    /// `None` if the end of the call does not depend on the reader of a reply.
    pub(super) reply: Option<ClientReply>,
}

impl OperatorQuestions {
    async fn ask_within_limits(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let Some(_place) = self.queue.enter(&self.principal) else {
            return ApprovalAnswer::Unanswered(QUEUE_FULL);
        };
        tokio::select! {
            biased;
            () = self.reader_left() => ApprovalAnswer::Unanswered(READER_LEFT),
            answer = timeout(ANSWER_WAIT_MAX, self.operator.ask(request)) => {
                answer.unwrap_or(ApprovalAnswer::Unanswered(TOO_LATE))
            }
        }
    }

    async fn reader_left(&self) {
        match &self.reply {
            Some(reply) => reply.connection.reader_left(&reply.request).await,
            None => std::future::pending().await,
        }
    }
}

impl Approver for OperatorQuestions {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(self.ask_within_limits(request))
    }
}

#[cfg(test)]
mod tests {
    use haft_core::approval::ApprovalId;
    use haft_core::digest::Digest;
    use haft_core::position::RunPosition;
    use haft_core::tool::CallId;
    use serde_json::Map;

    use super::*;

    /// An operator who is not at the terminal.
    struct AbsentOperator;

    impl Approver for AbsentOperator {
        fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
            Box::pin(std::future::pending())
        }
    }

    fn questions(subject: &str, queue: &Arc<OperatorQueue>) -> OperatorQuestions {
        OperatorQuestions {
            operator: Arc::new(AbsentOperator),
            queue: Arc::clone(queue),
            principal: Principal::new("acme", subject, "key_1"),
            reply: None,
        }
    }

    fn request() -> ApprovalRequest {
        let place = RunPosition::default();
        ApprovalRequest {
            id: ApprovalId::of_call(place, &CallId("1".into())),
            place,
            tool: "bash".into(),
            arguments: Map::new(),
            workspace: "/w".into(),
            digest: Digest::of_text(""),
            rules: Vec::new(),
            prefix: None,
            why: "a rule asks".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_is_denied_with_the_reason_if_the_operator_does_not_answer() {
        let queue = Arc::new(OperatorQueue::default());
        let began = tokio::time::Instant::now();
        let answer = questions("anna", &queue).ask(&request()).await;
        assert_eq!((answer, began.elapsed()), (ApprovalAnswer::Unanswered(TOO_LATE), ANSWER_WAIT_MAX));
        assert!(TOO_LATE.contains(&format!("{} minutes", ANSWER_WAIT_MAX.as_secs() / 60)));
        assert!(queue.waiting().is_empty(), "the question left the queue");
    }

    #[test]
    fn number_of_waiting_questions_is_limited_per_principal_and_in_total() {
        let queue = OperatorQueue::default();
        let enter = |subject: usize| queue.enter(&Principal::new("acme", subject.to_string(), "key_1"));
        let mut places: Vec<_> = (0..WAITING_PER_PRINCIPAL_MAX).map(|_| enter(0).unwrap()).collect();
        assert!(enter(0).is_none());
        for subject in 1..WAITING_MAX / WAITING_PER_PRINCIPAL_MAX {
            places.extend((0..WAITING_PER_PRINCIPAL_MAX).map(|_| enter(subject).unwrap()));
        }
        assert!(enter(WAITING_MAX).is_none());
        places.pop();
        assert!(enter(WAITING_MAX).is_some(), "an answered question makes room");
    }
}
