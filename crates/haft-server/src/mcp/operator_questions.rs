//! Approvals by the operator of the gateway, at the terminal or through the approvals API, for calls of clients that
//! cannot show a form to their users.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use haft_core::principal::Principal;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::connection::ClientConnection;
use super::gateway::OperatorApprovers;
use super::questions::ANSWER_WAIT_MAX;

/// The maximum number of questions that wait for the operator at the terminal, including the open one.
const WAITING_MAX: usize = 64;

/// The maximum number of questions of one principal that wait for the operator at the terminal. Otherwise one principal
/// could fill the queue, and the calls of all others would be denied.
const WAITING_PER_PRINCIPAL_MAX: usize = 16;

/// The maximum number of calls that wait in the approvals API. It is higher than for a terminal, because more
/// principals share the API.
const API_WAITING_MAX: usize = 1_024;

/// The maximum number of calls of one principal that wait in the approvals API.
const API_WAITING_PER_PRINCIPAL_MAX: usize = 64;

const QUEUE_FULL: &str = "too many calls already wait for approval";
const TOO_LATE: &str = "the operator did not answer within 10 minutes";
const READER_LEFT: &str = "the client closed the stream of its request before the call was approved";

/// Counts the questions that wait for an answer.
#[derive(Debug)]
pub(super) struct OperatorQueue {
    waiting: Mutex<HashMap<Principal, usize>>,
    waiting_max: usize,
    per_principal_max: usize,
}

/// The approvals API of the server, and the calls that wait there.
pub(super) struct ApprovalsApi {
    pub(super) approvers: OperatorApprovers,
    pub(super) queue: Arc<OperatorQueue>,
}

impl ApprovalsApi {
    pub(super) fn new(approvers: OperatorApprovers) -> Self {
        Self { approvers, queue: Arc::new(OperatorQueue::of_api()) }
    }
}

impl fmt::Debug for ApprovalsApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalsApi").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl OperatorQueue {
    pub(super) fn of_terminal() -> Self {
        Self::limited(WAITING_MAX, WAITING_PER_PRINCIPAL_MAX)
    }

    fn of_api() -> Self {
        Self::limited(API_WAITING_MAX, API_WAITING_PER_PRINCIPAL_MAX)
    }

    fn limited(waiting_max: usize, per_principal_max: usize) -> Self {
        Self { waiting: Mutex::default(), waiting_max, per_principal_max }
    }

    /// Adds a question to the queue until the returned guard is dropped; returns `None` if too many questions wait.
    fn enter(&self, principal: &Principal) -> Option<QueuedQuestion<'_>> {
        let mut waiting = self.waiting();
        let own = waiting.get(principal).copied().unwrap_or_default();
        if own >= self.per_principal_max || waiting.values().sum::<usize>() >= self.waiting_max {
            return None;
        }
        waiting.insert(principal.clone(), own + 1);
        Some(QueuedQuestion { queue: self, principal: principal.clone() })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The request that waits for the operator. If the client stops reading its reply, the question is withdrawn.
pub(super) struct ClientReply {
    pub(super) connection: Arc<ClientConnection>,
    pub(super) request: Box<RawValue>,
}

/// Selects the time limit for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerWait {
    /// The usual limit for questions to a person, [`ANSWER_WAIT_MAX`].
    Minutes,
    /// The approver itself ends the wait.
    ByApprover,
}

/// Asks the operator about the calls of one principal, within the limits of the gateway.
pub(super) struct OperatorQuestions {
    pub(super) operator: Arc<dyn Approver>,
    pub(super) queue: Arc<OperatorQueue>,
    pub(super) wait: AnswerWait,
    pub(super) principal: Principal,
    /// The reply that waits for the answer. If the client stops reading it, the question is withdrawn. `None` if the
    /// question stays open without a reader.
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
            answer = self.answer(request) => answer,
        }
    }

    async fn answer(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let answer = self.operator.ask(request);
        match self.wait {
            AnswerWait::Minutes => {
                timeout(ANSWER_WAIT_MAX, answer).await.unwrap_or(ApprovalAnswer::Unanswered(TOO_LATE))
            }
            AnswerWait::ByApprover => answer.await,
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
            wait: AnswerWait::Minutes,
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
        let queue = Arc::new(OperatorQueue::of_terminal());
        let began = tokio::time::Instant::now();
        let answer = questions("anna", &queue).ask(&request()).await;
        assert_eq!((answer, began.elapsed()), (ApprovalAnswer::Unanswered(TOO_LATE), ANSWER_WAIT_MAX));
        assert!(TOO_LATE.contains(&format!("{} minutes", ANSWER_WAIT_MAX.as_secs() / 60)));
        assert!(queue.waiting().is_empty(), "the question has left the queue");
    }

    #[test]
    fn number_of_waiting_questions_is_limited_per_principal_and_in_total() {
        let queue = OperatorQueue::of_terminal();
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
