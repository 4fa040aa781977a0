//! Questions to the client that called: approvals of calls, and questions that upstream servers put to a person.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, shown};
use haft_core::elicitation::{ElicitationAnswer, Elicitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::message;

/// The longest wait for an answer of the client's user.
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_mins(10);

/// The most questions that one client has open at a time.
const QUESTIONS_OPEN_MAX: usize = 64;

/// The method of a question to a person, in both eras.
pub(super) const ELICITATION: &str = "elicitation/create";

/// A question of a call that the client answers with a later request.
#[derive(Debug)]
pub(super) struct CallQuestion {
    pub(super) params: Value,
    pub(super) answer: oneshot::Sender<Value>,
}

/// A running call of the era without sessions, which can only ask in its own reply.
#[derive(Debug)]
struct GatewayCall {
    number: u64,
    approval: ApprovalId,
    questions: mpsc::Sender<CallQuestion>,
}

/// Puts questions to one client. Each connection has its own, so that a question never reaches another client.
#[derive(Debug)]
pub(super) struct ClientQuestions {
    out: mpsc::Sender<String>,
    next: AtomicU64,
    /// Questions that were sent as requests.
    sent: Mutex<SentQuestions>,
    /// Calls that carry questions in their replies; empty in the era with a handshake.
    calls: Mutex<Vec<GatewayCall>>,
}

/// The places that wait for answers, by the id of the request.
type SentQuestions = HashMap<u64, oneshot::Sender<Result<Box<RawValue>, String>>>;

impl ClientQuestions {
    pub(super) fn new(out: mpsc::Sender<String>) -> Self {
        Self { out, next: AtomicU64::new(1), sent: Mutex::default(), calls: Mutex::default() }
    }

    /// Lets a call carry questions until the guard is dropped.
    pub(super) fn carry(
        self: &Arc<Self>,
        approval: ApprovalId,
        questions: mpsc::Sender<CallQuestion>,
    ) -> CarryingCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls().push(GatewayCall { number, approval, questions });
        CarryingCall { questions: Arc::clone(self), number }
    }

    /// Delivers the client's reply to one of our requests. Returns false if none waits for it.
    pub(super) fn answered(&self, id: u64, outcome: Result<Box<RawValue>, String>) -> bool {
        let waiting = self.sent().remove(&id);
        waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }

    /// Asks the client's user, and returns the result of the elicitation.
    async fn ask(&self, params: Value, approval: Option<ApprovalId>) -> Result<Value, String> {
        let carrier = self.carrier(approval);
        let asked = async {
            match carrier {
                Some(call) => ask_in_reply(&call, params).await,
                None => self.ask_by_request(params).await,
            }
        };
        let late = || format!("no answer came within {} s", ANSWER_WAIT_MAX.as_secs());
        timeout(ANSWER_WAIT_MAX, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// Returns the call that carries a question: the one to approve, else the newest. All calls of a connection belong to
    /// the same client, so its user gets the question in any case.
    fn carrier(&self, approval: Option<ApprovalId>) -> Option<mpsc::Sender<CallQuestion>> {
        let calls = self.calls();
        let own = calls.iter().find(|call| Some(call.approval) == approval);
        own.or(calls.last()).map(|call| call.questions.clone())
    }

    async fn ask_by_request(&self, params: Value) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut sent = self.sent();
            if sent.len() >= QUESTIONS_OPEN_MAX {
                return Err(format!("the client already has {QUESTIONS_OPEN_MAX} open questions"));
            }
            sent.insert(id, answer);
        }
        let _withdrawal = SentQuestion { questions: self, id };
        let gone = || "the client is gone".to_owned();
        self.out.send(message::request(id, ELICITATION, &params)).await.map_err(|_| gone())?;
        let raw = answered.await.map_err(|_| gone())??;
        serde_json::from_str(raw.get()).map_err(|error| error.to_string())
    }

    fn sent(&self) -> MutexGuard<'_, SentQuestions> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<GatewayCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_in_reply(call: &mpsc::Sender<CallQuestion>, params: Value) -> Result<Value, String> {
    let (answer, answered) = oneshot::channel();
    let gone = || "the call ended before the answer".to_owned();
    call.send(CallQuestion { params, answer }).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())
}

/// Withdraws a question that is not wanted any more.
struct SentQuestion<'a> {
    questions: &'a ClientQuestions,
    id: u64,
}

impl Drop for SentQuestion<'_> {
    fn drop(&mut self) {
        if self.questions.sent().remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            // A full queue only means that the client answers a question in vain.
            let _ = self.questions.out.try_send(message::notification("notifications/cancelled", &params));
        }
    }
}

/// Keeps a call in the list of calls that carry questions.
#[derive(Debug)]
pub(super) struct CarryingCall {
    questions: Arc<ClientQuestions>,
    number: u64,
}

impl Drop for CarryingCall {
    fn drop(&mut self) {
        self.questions.calls().retain(|call| call.number != self.number);
    }
}

impl Elicitor for ClientQuestions {
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async move {
            let mut params = request;
            // The user must know which of the servers behind the gateway asks.
            if let Some(text) = params["message"].as_str() {
                params["message"] = format!("{server}: {text}").into();
            }
            match self.ask(params, None).await {
                Ok(answer) => match answer["action"].as_str() {
                    Some("accept") => ElicitationAnswer::Accepted(answer["content"].clone()),
                    Some("decline") => ElicitationAnswer::Declined,
                    Some(_) | None => ElicitationAnswer::Cancelled,
                },
                Err(_) => ElicitationAnswer::Cancelled,
            }
        })
    }
}

impl Approver for ClientQuestions {
    fn name(&self) -> &'static str {
        "mcp-client"
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async move {
            let choices = choices(request);
            let answer = ClientQuestions::ask(self, form(request, &choices), Some(request.id)).await;
            answer.map_or(ApprovalAnswer::Deny, |answer| decided(&answer, &choices))
        })
    }
}

/// The answers that a user can choose, with their texts.
fn choices(request: &ApprovalRequest) -> Vec<(String, ApprovalAnswer)> {
    let mut choices = vec![
        ("allow once".to_owned(), ApprovalAnswer::AllowOnce),
        ("always allow this exact call".to_owned(), ApprovalAnswer::AllowExact),
    ];
    if let Some(prefix) = &request.prefix {
        let text = format!("always allow commands that begin with {}", shown(&prefix.join(" ")));
        choices.push((text, ApprovalAnswer::AllowPrefix));
    }
    choices.push(("deny".to_owned(), ApprovalAnswer::Deny));
    choices
}

fn form(request: &ApprovalRequest, choices: &[(String, ApprovalAnswer)]) -> Value {
    let arguments = Value::Object(request.arguments.clone()).to_string();
    let message = format!(
        "haft asks before it calls `{}` with {} in {}: {}",
        shown(&request.tool),
        shown(&arguments),
        shown(&request.workspace.to_string_lossy()),
        shown(&request.why)
    );
    let texts: Vec<&str> = choices.iter().map(|(text, _)| text.as_str()).collect();
    json!({
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "decision": { "type": "string", "title": "Decision", "enum": texts } },
            "required": ["decision"],
        },
    })
}

/// Only a complete answer allows a call; everything else denies it.
fn decided(answer: &Value, choices: &[(String, ApprovalAnswer)]) -> ApprovalAnswer {
    let chosen = answer["content"]["decision"].as_str().filter(|_| answer["action"] == "accept");
    let found = chosen.and_then(|chosen| choices.iter().find(|(text, _)| text == chosen));
    found.map_or(ApprovalAnswer::Deny, |(_, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use haft_core::digest::Digest;
    use haft_core::position::RunPosition;
    use haft_core::tool::CallId;
    use serde_json::Map;

    use super::*;

    fn request(prefix: Option<&str>) -> ApprovalRequest {
        let place = RunPosition::default();
        ApprovalRequest {
            id: ApprovalId::of_call(place, &CallId("1".into())),
            place,
            tool: "bash".into(),
            arguments: Map::from_iter([("command".to_owned(), json!("git \u{202e}push"))]),
            workspace: "/w".into(),
            digest: Digest::of_text(""),
            rules: Vec::new(),
            prefix: prefix.map(|words| words.split(' ').map(str::to_owned).collect()),
            why: "a rule asks".into(),
        }
    }

    #[test]
    fn only_an_accepted_known_choice_allows_a_call() {
        let choices = choices(&request(Some("git push")));
        let check = |answer: Value, expected: ApprovalAnswer| {
            assert_eq!(decided(&answer, &choices), expected, "{answer}");
        };
        let accept = |decision: &str| json!({"action": "accept", "content": {"decision": decision}});
        check(accept("allow once"), ApprovalAnswer::AllowOnce);
        check(accept("always allow this exact call"), ApprovalAnswer::AllowExact);
        check(accept("always allow commands that begin with git push"), ApprovalAnswer::AllowPrefix);
        check(accept("deny"), ApprovalAnswer::Deny);
        check(accept("yes"), ApprovalAnswer::Deny);
        check(json!({"action": "accept"}), ApprovalAnswer::Deny);
        check(json!({"action": "decline", "content": {"decision": "allow once"}}), ApprovalAnswer::Deny);
        check(Value::Null, ApprovalAnswer::Deny);
    }

    #[test]
    fn approval_form_shows_deceptive_characters() {
        let request = request(None);
        let form = form(&request, &choices(&request));
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("\\u{202e}push") && message.contains("a rule asks"), "{message}");
        assert_eq!(form["requestedSchema"]["properties"]["decision"]["enum"].as_array().unwrap().len(), 3);
    }
}
