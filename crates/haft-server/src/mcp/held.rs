//! Requests that wait for answers from the client, in protocol revisions without sessions. The client repeats its
//! request with the answers and with the state that it received.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::digest::Digest;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::call_notices::{ReceivingRequest, WatchedCall};
use super::message::{GatewayError, INVALID_PARAMS};
use super::questions::{ANSWER_WAIT_MAX, CallQuestion, CarryingCall};

/// The maximum number of requests of one principal and profile that wait for answers.
const HELD_MAX: usize = 64;

/// The time for which haft collects further questions of a server, so that the client gets them in one reply.
const GATHER_TIME: Duration = Duration::from_millis(5);

/// Work that runs in a separate task, because the request that started it ends before the work does.
#[derive(Debug)]
pub(super) struct DetachedCall {
    pub(super) result: oneshot::Receiver<Result<String, GatewayError>>,
    pub(super) questions: mpsc::Receiver<CallQuestion>,
    pub(super) _task: AbortOnDrop,
    /// The guard that lets the call send questions to the client. `None` for an MCP task, whose questions have a
    /// channel of their own.
    pub(super) _carrying: Option<CarryingCall>,
    /// The progress and log messages of the call.
    pub(super) watched: WatchedCall,
    /// The guard that sends the notices of a task to the request that began it. `None` for a call that is not a task.
    pub(super) _receiving: Option<ReceivingRequest>,
    /// A digest of the principal, method and parameters. Only the same request can resume the call.
    pub(super) request: Digest,
}

/// Aborts a task when its owner is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The next event of a detached call.
pub(super) enum DetachedStep {
    Finished(Result<String, GatewayError>),
    Asks(Vec<CallQuestion>),
    /// The task ended without a result, because it was cancelled.
    Lost,
}

impl DetachedCall {
    /// Waits for the result or for questions. If both are available, returns the result.
    pub(super) async fn step(&mut self) -> DetachedStep {
        tokio::select! {
            biased;
            result = &mut self.result => result.map_or(DetachedStep::Lost, DetachedStep::Finished),
            Some(question) = self.questions.recv() => {
                sleep(GATHER_TIME).await;
                let mut questions = vec![question];
                while let Ok(question) = self.questions.try_recv() {
                    questions.push(question);
                }
                DetachedStep::Asks(questions)
            }
        }
    }
}

/// A call that waits for answers of the client, with its open questions. The client received each question under a
/// name.
#[derive(Debug)]
struct HeldCall {
    /// The name that the client gave itself.
    client: String,
    call: DetachedCall,
    questions: Vec<(String, CallQuestion)>,
    until: Instant,
}

/// The calls of one principal and profile that wait for answers, by the state that the client received. The state is
/// random. It is valid once, for the same principal, method and parameters, and for a limited time.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(Mutex<HashMap<String, HeldCall>>);

/// The state of a held call after the client repeated its request with answers.
#[derive(Debug)]
pub(super) enum ResumedCall {
    /// All questions are answered, and the call continues.
    Running(DetachedCall),
    /// The reply that asks for the missing answers.
    Incomplete(Value),
}

/// Returns a name for a question that no other question has.
pub(super) fn question_name(question: &CallQuestion, is_taken: impl Fn(&str) -> bool) -> String {
    let wanted = question.key.as_deref().unwrap_or(QUESTION_KEY);
    let mut name = wanted.to_owned();
    let mut number = 1;
    while is_taken(&name) {
        number += 1;
        name = format!("{wanted}-{number}");
    }
    name
}

/// The default name of a question.
const QUESTION_KEY: &str = "question";

impl HeldCalls {
    /// Stores a call, and returns the result that asks the client. If there are too many calls, cancels the oldest call
    /// of the client name with the most calls.
    pub(super) fn hold(&self, client: &str, call: DetachedCall, questions: Vec<CallQuestion>) -> Value {
        let mut named: Vec<(String, CallQuestion)> = Vec::new();
        for question in questions {
            let name = question_name(&question, |name| named.iter().any(|(taken, _)| taken == name));
            named.push((name, question));
        }
        self.keep(client.to_owned(), call, named)
    }

    fn keep(&self, client: String, call: DetachedCall, questions: Vec<(String, CallQuestion)>) -> Value {
        let mut held = self.lock();
        let now = Instant::now();
        held.retain(|_, call| call.until > now);
        if held.len() >= HELD_MAX {
            let evicted = evicted_state(&held, &client);
            evicted.and_then(|state| held.remove(&state));
        }
        let asked = |(name, question): &(String, CallQuestion)| (name.clone(), question.json());
        let requests: Map<String, Value> = questions.iter().map(asked).collect();
        let state = uuid::Uuid::new_v4().simple().to_string();
        let reply =
            json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state });
        held.insert(state, HeldCall { client, call, questions, until: now + ANSWER_WAIT_MAX });
        reply
    }

    /// Continues a call with the client's answers, or asks again for the missing ones.
    pub(super) fn resume(
        &self,
        state: &str,
        request: Digest,
        answers: &HashMap<String, Box<RawValue>>,
    ) -> Result<ResumedCall, GatewayError> {
        let unknown = || {
            GatewayError::new(INVALID_PARAMS, "`requestState` is unknown, was used before, or has expired")
        };
        let mut held = self.lock();
        let found = held.get(state).ok_or_else(unknown)?;
        if found.call.request != request {
            let message = "`requestState` belongs to another request";
            return Err(GatewayError::new(INVALID_PARAMS, message));
        }
        let HeldCall { client, call, questions, until } = held.remove(state).ok_or_else(unknown)?;
        drop(held);
        if until <= Instant::now() {
            return Err(unknown());
        }
        let mut missing = Vec::new();
        for (name, question) in questions {
            match answers.get(&name) {
                // Ignore a send error: the call has ended in the meantime, and its result is the reply.
                Some(answer) => drop(question.answer.send(answer.clone())),
                None => missing.push((name, question)),
            }
        }
        if missing.is_empty() {
            return Ok(ResumedCall::Running(call));
        }
        Ok(ResumedCall::Incomplete(self.keep(client, call, missing)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HeldCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Selects the call to cancel for a new call of `client`. On a server without keys, the calls of all clients with the
/// same profile are here, so one client would otherwise cancel the calls of the others.
fn evicted_state(held: &HashMap<String, HeldCall>, client: &str) -> Option<String> {
    let mut counts: HashMap<&str, usize> = HashMap::from([(client, 1)]);
    for call in held.values() {
        *counts.entry(&call.client).or_default() += 1;
    }
    let count = |call: &HeldCall| counts.get(call.client.as_str()).copied().unwrap_or_default();
    let evicted = held.iter().min_by_key(|(_, call)| (Reverse(count(call)), call.until));
    evicted.map(|(state, _)| state.clone())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::super::call_notices::NoticeTable;
    use super::*;

    /// A call that never ends. The text is the request that it belongs to.
    pub(in crate::mcp) fn endless_call(request: &str) -> DetachedCall {
        asking_call(request).0
    }

    /// A call that never ends, and the channel of its questions.
    pub(in crate::mcp) fn asking_call(request: &str) -> (DetachedCall, mpsc::Sender<CallQuestion>) {
        let (ask, questions) = mpsc::channel(2);
        let (finished, result) = oneshot::channel();
        let task = tokio::spawn(async move {
            std::future::pending::<()>().await;
            let _ = finished.send(Ok(String::new()));
        });
        let call = DetachedCall {
            result,
            questions,
            _task: AbortOnDrop(task.abort_handle()),
            _carrying: None,
            watched: Arc::<NoticeTable>::default().watch("call"),
            _receiving: None,
            request: Digest::of_text(request),
        };
        (call, ask)
    }

    fn hold(held: &HeldCalls, request: &str) -> String {
        hold_for(held, "editor", request)
    }

    fn hold_for(held: &HeldCalls, client: &str, request: &str) -> String {
        held.hold(client, endless_call(request), Vec::new())["requestState"].as_str().unwrap().to_owned()
    }

    fn resume(held: &HeldCalls, state: &str, request: &str) -> Result<ResumedCall, GatewayError> {
        held.resume(state, Digest::of_text(request), &HashMap::new())
    }

    #[tokio::test(start_paused = true)]
    async fn request_state_is_valid_once_for_its_request_and_a_limited_time() {
        let held = HeldCalls::default();
        let state = hold(&held, "one");
        assert!(resume(&held, &state, "two").unwrap_err().message.contains("another request"));
        assert!(resume(&held, &state, "one").is_ok());
        assert!(resume(&held, &state, "one").is_err(), "a request state can be used only once");
        let late = hold(&held, "one");
        tokio::time::advance(ANSWER_WAIT_MAX).await;
        assert!(resume(&held, &late, "one").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn call_beyond_the_limit_cancels_the_oldest_held_call() {
        let held = HeldCalls::default();
        let oldest = hold(&held, "one");
        tokio::time::advance(Duration::from_secs(1)).await;
        let others: Vec<String> = (0..HELD_MAX).map(|_| hold(&held, "one")).collect();
        assert!(resume(&held, &oldest, "one").is_err());
        assert!(others.iter().all(|state| resume(&held, state, "one").is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn call_beyond_the_limit_cancels_a_held_call_of_the_client_with_the_most_calls() {
        let held = HeldCalls::default();
        let other = hold_for(&held, "other", "one");
        tokio::time::advance(Duration::from_secs(1)).await;
        let oldest = hold(&held, "one");
        tokio::time::advance(Duration::from_secs(1)).await;
        let later: Vec<String> = (1..HELD_MAX).map(|_| hold(&held, "one")).collect();
        assert!(resume(&held, &oldest, "one").is_err());
        assert!(resume(&held, &other, "one").is_ok(), "the older call of the other client continues");
        assert!(later.iter().all(|state| resume(&held, state, "one").is_ok()));
        // If both clients have half of the calls, the client that adds a call loses one.
        let halves = ["other", "editor"]
            .map(|client| (0..HELD_MAX / 2).map(|_| hold_for(&held, client, "one")).collect::<Vec<_>>());
        hold(&held, "one");
        assert!(halves[0].iter().all(|state| resume(&held, state, "one").is_ok()));
        assert_eq!(halves[1].iter().filter(|state| resume(&held, state, "one").is_err()).count(), 1);
    }
}
