//! Calls of the era without sessions that wait for an answer of the client. The client repeats its request with the answer
//! and the state that it was given.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::digest::Digest;
use haft_core::result::ToolResult;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::message::{GatewayError, INVALID_PARAMS};
use super::questions::{ANSWER_WAIT_MAX, CallQuestion, CarryingCall, ELICITATION};

/// The most calls of one client that wait for answers.
const HELD_MAX: usize = 64;

/// A call that runs in a task of its own, because the request that began it ends before the call does.
#[derive(Debug)]
pub(super) struct DetachedCall {
    pub(super) result: oneshot::Receiver<ToolResult>,
    pub(super) questions: mpsc::Receiver<CallQuestion>,
    pub(super) _task: AbortOnDrop,
    pub(super) _carrying: CarryingCall,
    /// The tool and arguments that the state belongs to.
    pub(super) request: Digest,
}

/// Cancels a task with its owner.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The next event of a detached call.
pub(super) enum DetachedStep {
    Finished(Box<ToolResult>),
    Asks(CallQuestion),
    /// The task ended without a result, because it was cancelled.
    Lost,
}

impl DetachedCall {
    /// Waits for the result or for a question. A result wins.
    pub(super) async fn step(&mut self) -> DetachedStep {
        tokio::select! {
            biased;
            result = &mut self.result => match result {
                Ok(result) => DetachedStep::Finished(Box::new(result)),
                Err(_) => DetachedStep::Lost,
            },
            Some(question) = self.questions.recv() => DetachedStep::Asks(question),
        }
    }
}

/// A call with its open question.
#[derive(Debug)]
struct HeldCall {
    call: DetachedCall,
    answer: oneshot::Sender<Value>,
    until: Instant,
}

/// The calls of one client that wait for answers, by the state that the client was given. The state is random, and it is
/// valid once, for the same tool and arguments, and for a limited time.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(Mutex<HashMap<String, HeldCall>>);

/// The name of our only question in a reply.
const QUESTION_KEY: &str = "question";

impl HeldCalls {
    /// Keeps a call, and returns the result that asks the client. The oldest call is cancelled if there are too many.
    pub(super) fn hold(&self, call: DetachedCall, question: CallQuestion, state: String) -> Value {
        let CallQuestion { params, answer } = question;
        let mut held = self.lock();
        let now = Instant::now();
        held.retain(|_, call| call.until > now);
        if held.len() >= HELD_MAX {
            let oldest = held.iter().min_by_key(|(_, call)| call.until).map(|(state, _)| state.clone());
            oldest.and_then(|state| held.remove(&state));
        }
        let reply = json!({
            "resultType": "input_required",
            "inputRequests": { QUESTION_KEY: { "method": ELICITATION, "params": params } },
            "requestState": state,
        });
        held.insert(state, HeldCall { call, answer, until: now + ANSWER_WAIT_MAX });
        reply
    }

    /// Continues a call with the client's answer.
    pub(super) fn resume(
        &self,
        state: &str,
        request: Digest,
        answers: &Map<String, Value>,
    ) -> Result<DetachedCall, GatewayError> {
        let unknown = || {
            GatewayError::new(INVALID_PARAMS, "`requestState` is unknown, was used before, or has expired")
        };
        let mut held = self.lock();
        let found = held.get(state).ok_or_else(unknown)?;
        if found.call.request != request {
            let message = "`requestState` belongs to a call with another tool or other arguments";
            return Err(GatewayError::new(INVALID_PARAMS, message));
        }
        let Some(answer) = answers.get(QUESTION_KEY) else {
            let message = format!("`inputResponses` has no `{QUESTION_KEY}`");
            return Err(GatewayError::new(INVALID_PARAMS, message));
        };
        let HeldCall { call, answer: waiting, until } = held.remove(state).ok_or_else(unknown)?;
        if until <= Instant::now() {
            return Err(unknown());
        }
        // The call may have ended meanwhile; its result is then the reply.
        let _ = waiting.send(answer.clone());
        Ok(call)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HeldCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
