//! Questions to the client that made a call: approvals, and requests that upstream servers send during the call.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, shown};
use haft_core::client_relay::{ClientRelay, RelayedLog, RelayedRequest};
use haft_core::tool::CallId;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::client_log::ClientLog;
use super::message;
use super::object::RawObject;
use super::outbox::{MessageScope, Outbox};
use super::tasks::{TaskQuestion, related, unrelated};
use super::url_questions::{AwaitedUrls, IdentifiedUrl, with_id, without_id};

/// The maximum wait for an answer of the client's user.
pub(super) const ANSWER_WAIT_MAX: Duration = Duration::from_mins(10);

/// The maximum number of questions that one client has open at the same time.
const QUESTIONS_OPEN_MAX: usize = 64;

/// The name of the client's user as an approver.
const APPROVER: &str = "mcp-client";

const CALL_ENDED: &str = "the call has ended";

/// The method of a question to a user, in all protocol revisions.
pub(super) const ELICITATION: &str = "elicitation/create";

/// A question of a call that the client answers with a later request.
#[derive(Debug)]
pub(super) struct CallQuestion {
    /// The key that the upstream server gave the question.
    pub(super) key: Option<String>,
    pub(super) method: String,
    /// The parameters as JSON.
    pub(super) params: String,
    pub(super) answer: oneshot::Sender<Box<RawValue>>,
}

impl CallQuestion {
    /// Returns the question as a member of `inputRequests` in a reply.
    pub(super) fn json(&self) -> Value {
        let params: Value = serde_json::from_str(&self.params).unwrap_or_default();
        json!({ "method": self.method, "params": without_id(params) })
    }
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RelayedQuestionFailure {
    /// The client replied with this error.
    Refused(String),
    Late,
    TooMany,
    Disconnected,
    /// The request or the task that carried the question has ended.
    NoAnswer,
}

impl RelayedQuestionFailure {
    /// Returns the reason why a call is not approved. It does not contain the client's own text.
    fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "the client answered the question with an error",
            Self::Late => "the user of the client did not answer within 10 minutes",
            Self::TooMany => "the client has not answered 64 earlier questions",
            Self::Disconnected => "the client has disconnected",
            Self::NoAnswer => "the client did not answer the question",
        }
    }
}

impl fmt::Display for RelayedQuestionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => f.write_str(error),
            Self::Late => write!(f, "the client did not answer within {} s", ANSWER_WAIT_MAX.as_secs()),
            Self::TooMany => write!(f, "the client has not answered {QUESTIONS_OPEN_MAX} questions yet"),
            Self::Disconnected => f.write_str("the client has disconnected"),
            Self::NoAnswer => f.write_str("the call ended before the client answered"),
        }
    }
}

/// The way in which a question is sent to the client.
#[derive(Debug, Clone)]
pub(super) enum QuestionCarrier {
    /// In haft's reply to the client's call request. Used in protocol revisions without sessions.
    Reply(mpsc::Sender<CallQuestion>),
    /// As a request from haft, on the stream of the request with this id.
    Request(Box<RawValue>),
}

/// A running call through which haft can send questions to the client.
#[derive(Debug)]
struct GatewayCall {
    number: u64,
    approval: Option<ApprovalId>,
    carrier: QuestionCarrier,
}

/// Sends questions to one client. Each connection has its own value, so that a question never reaches another client.
#[derive(Debug)]
pub(super) struct ClientQuestions {
    out: Outbox,
    log: Arc<ClientLog>,
    next: AtomicU64,
    /// Questions that were sent as requests.
    sent: Mutex<SentQuestions>,
    calls: Mutex<Vec<GatewayCall>>,
    /// The questions about URLs whose end upstream servers will report.
    pub(super) urls: AwaitedUrls,
}

/// The senders that deliver the answers, by request id.
type SentQuestions = HashMap<u64, oneshot::Sender<Result<Box<RawValue>, String>>>;

impl ClientQuestions {
    pub(super) fn new(out: Outbox, log: Arc<ClientLog>) -> Self {
        Self {
            out,
            log,
            next: AtomicU64::new(1),
            sent: Mutex::default(),
            calls: Mutex::default(),
            urls: AwaitedUrls::default(),
        }
    }

    /// Lets haft send questions through a call, until the guard is dropped.
    pub(super) fn carry(
        self: &Arc<Self>,
        approval: Option<ApprovalId>,
        carrier: QuestionCarrier,
    ) -> CarryingCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls().push(GatewayCall { number, approval, carrier });
        CarryingCall { questions: Arc::clone(self), number }
    }

    /// Delivers the client's reply to one of our requests. Returns false if no request waits for it.
    pub(super) fn answered(&self, id: u64, outcome: Result<Box<RawValue>, String>) -> bool {
        let waiting = self.sent().remove(&id);
        waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }

    /// Asks the client, and returns its result.
    async fn ask(
        &self,
        (key, method, params): (Option<&str>, &str, String),
        carrier: Option<QuestionCarrier>,
    ) -> Result<Box<RawValue>, RelayedQuestionFailure> {
        let asked = async {
            match carrier {
                Some(QuestionCarrier::Reply(call)) => {
                    let (answer, answered) = oneshot::channel();
                    let (key, method) = (key.map(str::to_owned), method.to_owned());
                    let question = CallQuestion { key, method, params, answer };
                    call.send(question).await.map_err(|_| RelayedQuestionFailure::NoAnswer)?;
                    answered.await.map_err(|_| RelayedQuestionFailure::NoAnswer)
                }
                Some(QuestionCarrier::Request(id)) => {
                    self.ask_by_request(MessageScope::Request(id), method, &params).await
                }
                None => self.ask_by_request(MessageScope::Connection, method, &params).await,
            }
        };
        timeout(ANSWER_WAIT_MAX, asked).await.unwrap_or(Err(RelayedQuestionFailure::Late))
    }

    async fn approve_with(
        &self,
        request: &ApprovalRequest,
        carrier: Option<QuestionCarrier>,
    ) -> ApprovalAnswer {
        let choices = choices(request);
        let form = form(request, &choices).to_string();
        match ClientQuestions::ask(self, (None, ELICITATION, form), carrier).await {
            Ok(answer) => decided(&serde_json::from_str(answer.get()).unwrap_or_default(), &choices),
            Err(failure) => ApprovalAnswer::Unanswered(failure.reason()),
        }
    }

    async fn relay_with(
        &self,
        request: RelayedRequest<'_>,
        carrier: Option<QuestionCarrier>,
    ) -> Result<Box<RawValue>, String> {
        let RelayedRequest { server, key, method, params, call: _ } = request;
        let params = if method == ELICITATION { self.elicitation(server, params) } else { params.to_owned() };
        let answer = self.ask((key, method, unrelated(params)), carrier).await;
        answer.map_err(|failure| failure.to_string())
    }

    /// Returns the parameters of a server's question to the user. The reply to a client without sessions leaves out the
    /// id of a question about a URL.
    fn elicitation(&self, server: &str, params: &str) -> String {
        let named = named_question(server, params);
        let Some(IdentifiedUrl { of_server, params }) = with_id(&named) else { return named };
        if let Some(id) = of_server {
            self.urls.add(server, id);
        }
        params
    }

    /// Sends a question of a task as a request, on the stream of the request that waits for the task. The question names
    /// the task. Returns the client's reply; `None` if the question did not reach the client or the client has
    /// disconnected.
    pub(super) async fn pass_on(
        &self,
        request: &RawValue,
        (task, question): (&str, &TaskQuestion),
    ) -> Option<Result<Box<RawValue>, String>> {
        let scope = MessageScope::Request(request.to_owned());
        self.request(scope, &question.method, &related(&question.params, task)).await.ok()
    }

    /// Returns the carrier of a call. In the reply to another call, the question could wait until that call is repeated.
    fn carrier_of(&self, call: ApprovalId) -> Result<QuestionCarrier, String> {
        let calls = self.calls();
        let own = calls.iter().find(|other| other.approval == Some(call));
        own.map(|call| call.carrier.clone()).ok_or_else(|| CALL_ENDED.to_owned())
    }

    /// Returns the carrier of the newest call, for a question that belongs to no call.
    fn newest_carrier(&self) -> Option<QuestionCarrier> {
        self.calls().last().map(|call| call.carrier.clone())
    }

    async fn ask_by_request(
        &self,
        scope: MessageScope,
        method: &str,
        params: &str,
    ) -> Result<Box<RawValue>, RelayedQuestionFailure> {
        self.request(scope, method, params).await?.map_err(RelayedQuestionFailure::Refused)
    }

    /// Sends a request to the client, and returns its reply. The outer error says why there is no reply.
    async fn request(
        &self,
        scope: MessageScope,
        method: &str,
        params: &str,
    ) -> Result<Result<Box<RawValue>, String>, RelayedQuestionFailure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut sent = self.sent();
            if sent.len() >= QUESTIONS_OPEN_MAX {
                return Err(RelayedQuestionFailure::TooMany);
            }
            sent.insert(id, answer);
        }
        let _withdrawal = SentQuestion { questions: self, id, scope: scope.clone() };
        if !self.out.send(scope, message::request(id, method, params)).await {
            return Err(RelayedQuestionFailure::Disconnected);
        }
        answered.await.map_err(|_| RelayedQuestionFailure::Disconnected)
    }

    fn sent(&self) -> MutexGuard<'_, SentQuestions> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<GatewayCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Withdraws a question on drop, if it is not answered yet.
struct SentQuestion<'a> {
    questions: &'a ClientQuestions,
    id: u64,
    scope: MessageScope,
}

impl Drop for SentQuestion<'_> {
    fn drop(&mut self) {
        if self.questions.sent().remove(&self.id).is_some() {
            let params = json!({ "requestId": self.id });
            // If the outbox is full, the client does not get this notification. Its late answer is then ignored.
            let text = message::notification("notifications/cancelled", &params);
            self.questions.out.offer(self.scope.clone(), text);
        }
    }
}

/// Lets haft send questions through a call until this value is dropped.
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

impl ClientRelay for ClientQuestions {
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>> {
        let carrier = match request.call {
            Some(call) => self.carrier_of(call).map(Some),
            None => Ok(self.newest_carrier()),
        };
        Box::pin(async move { self.relay_with(request, carrier?).await })
    }

    fn log(&self, record: RelayedLog<'_>) {
        self.log.offer_of_call(record);
    }

    fn log_level(&self, call: &CallId) -> Option<&'static str> {
        self.log.level_of(call)
    }
}

/// Sends the questions of a call, and the approvals of an agent that runs for it, only through this call. Otherwise a
/// question could end up in the reply to another call.
#[derive(Debug)]
pub(super) struct SingleCallQuestions {
    client: Arc<ClientQuestions>,
    call: ApprovalId,
}

impl ClientQuestions {
    /// Returns a sender for the questions of the call with this approval id.
    pub(super) fn with_call(self: &Arc<Self>, call: ApprovalId) -> SingleCallQuestions {
        SingleCallQuestions { client: Arc::clone(self), call }
    }
}

impl ClientRelay for SingleCallQuestions {
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>> {
        Box::pin(async move {
            let carrier = self.client.carrier_of(self.call)?;
            self.client.relay_with(request, Some(carrier)).await
        })
    }

    fn log(&self, record: RelayedLog<'_>) {
        self.client.log(record);
    }

    fn log_level(&self, call: &CallId) -> Option<&'static str> {
        self.client.log_level(call)
    }
}

impl Approver for SingleCallQuestions {
    fn name(&self) -> &'static str {
        APPROVER
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async move {
            match self.client.carrier_of(self.call) {
                Ok(carrier) => self.client.approve_with(request, Some(carrier)).await,
                Err(_) => ApprovalAnswer::Unanswered(CALL_ENDED),
            }
        })
    }
}

/// Sends the questions of a task only through this task. Otherwise a question could wait in another task, and would be
/// denied when that task ends.
#[derive(Debug)]
pub(super) struct TaskQuestions {
    pub(super) client: Arc<ClientQuestions>,
    pub(super) task: mpsc::Sender<CallQuestion>,
}

impl TaskQuestions {
    fn carrier(&self) -> QuestionCarrier {
        QuestionCarrier::Reply(self.task.clone())
    }
}

impl ClientRelay for TaskQuestions {
    fn relay<'a>(&'a self, request: RelayedRequest<'a>) -> BoxFuture<'a, Result<Box<RawValue>, String>> {
        Box::pin(self.client.relay_with(request, Some(self.carrier())))
    }

    fn log(&self, record: RelayedLog<'_>) {
        self.client.log(record);
    }

    fn log_level(&self, call: &CallId) -> Option<&'static str> {
        self.client.log_level(call)
    }
}

impl Approver for TaskQuestions {
    fn name(&self) -> &'static str {
        APPROVER
    }

    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(self.client.approve_with(request, Some(self.carrier())))
    }
}

/// Adds the server name to the message, because the user must know which server behind the gateway asks.
fn named_question(server: &str, params: &str) -> String {
    let changed = RawObject::of(params).and_then(|mut object| {
        let message: String = serde_json::from_str(object.get("message")?).ok()?;
        object.set("message", Value::from(format!("{server}: {message}")).to_string());
        Some(object.to_string())
    });
    changed.unwrap_or_else(|| params.to_owned())
}

/// Returns the answers that a user can choose, with their texts.
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
        "Allow haft to call `{}`?\narguments: {}\nworkspace: {}\nreason: {}",
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

/// Converts the answer to a decision. Only a complete answer allows a call; every other answer denies it.
fn decided(answer: &Value, choices: &[(String, ApprovalAnswer)]) -> ApprovalAnswer {
    let chosen = answer["content"]["decision"].as_str().filter(|_| answer["action"] == "accept");
    let found = chosen.and_then(|chosen| choices.iter().find(|(text, _)| text == chosen));
    found.map_or(ApprovalAnswer::Deny, |(_, answer)| *answer)
}

#[cfg(test)]
mod tests {
    use haft_core::digest::Digest;
    use haft_core::position::RunPosition;
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

    // The clock is paused, so a question that exceeds the limit times out at once instead of after ten minutes.
    #[tokio::test(start_paused = true)]
    async fn client_has_a_limited_number_of_open_questions() {
        let (out, mut messages) = Outbox::new();
        let questions = Arc::new(ClientQuestions::new(out.clone(), Arc::new(ClientLog::new(out))));
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..QUESTIONS_OPEN_MAX {
            let questions = Arc::clone(&questions);
            asking.spawn(async move { questions.ask((None, ELICITATION, "{}".into()), None).await });
            messages.recv().await.unwrap();
        }
        let ask = || questions.ask((None, ELICITATION, "{}".into()), None);
        assert!(ask().await.unwrap_err().to_string().contains("not answered 64 questions"));
        assert!(messages.try_recv().is_err(), "the client does not see a refused question");
        asking.shutdown().await;
        let withdrawn = messages.try_recv().unwrap().text;
        assert!(withdrawn.contains("notifications/cancelled"), "{withdrawn}");
    }

    #[tokio::test(start_paused = true)]
    async fn call_is_not_approved_if_the_client_answers_with_an_error_or_not_at_all() {
        let (out, mut messages) = Outbox::new();
        let questions = Arc::new(ClientQuestions::new(out.clone(), Arc::new(ClientLog::new(out))));
        let raw = RawValue::from_string("7".into()).unwrap();
        let call = request(None).id;
        let carrying = questions.carry(Some(call), QuestionCarrier::Request(raw));
        let ask = || {
            let questions = questions.with_call(call);
            tokio::spawn(async move { questions.ask(&request(None)).await })
        };
        let allow = r#"{"action": "accept", "content": {"decision": "allow once"}}"#;
        let unanswered = |failure: RelayedQuestionFailure| ApprovalAnswer::Unanswered(failure.reason());
        let answers = [
            (Ok(RawValue::from_string(allow.into()).unwrap()), ApprovalAnswer::AllowOnce),
            (Err("not supported".into()), unanswered(RelayedQuestionFailure::Refused(String::new()))),
        ];
        for (answer, expected) in answers {
            let asked = ask();
            let question: Value = serde_json::from_str(&messages.recv().await.unwrap().text).unwrap();
            assert!(questions.answered(question["id"].as_u64().unwrap(), answer));
            assert_eq!(asked.await.unwrap(), expected);
        }
        let late = unanswered(RelayedQuestionFailure::Late);
        assert_eq!(ask().await.unwrap(), late, "the time for the answer is over");
        assert!(matches!(late, ApprovalAnswer::Unanswered(reason) if reason.contains("10 minutes")));
        assert_eq!(ANSWER_WAIT_MAX, Duration::from_mins(10));
        while messages.try_recv().is_ok() {}
        drop(carrying);
        assert_eq!(ask().await.unwrap(), ApprovalAnswer::Unanswered(CALL_ENDED));
        assert!(messages.try_recv().is_err(), "the client gets no question of a call that has ended");
    }

    #[tokio::test]
    async fn questions_and_approvals_of_a_call_go_only_through_this_call() {
        let (out, _messages) = Outbox::new();
        let questions = Arc::new(ClientQuestions::new(out.clone(), Arc::new(ClientLog::new(out))));
        let call = |name: &str| ApprovalId::of_call(RunPosition::default(), &CallId(name.into()));
        let (ask_own, mut own) = mpsc::channel(2);
        let (ask_newer, mut newer) = mpsc::channel(2);
        let _own = questions.carry(Some(call("own")), QuestionCarrier::Reply(ask_own));
        let _newer = questions.carry(Some(call("newer")), QuestionCarrier::Reply(ask_newer));
        let asked = RelayedRequest {
            call: Some(call("own")),
            server: "up",
            key: None,
            method: ELICITATION,
            params: "{}",
        };
        let relaying = Arc::clone(&questions);
        let relayed = tokio::spawn(async move { relaying.relay(asked).await.is_ok() });
        // The approval of an agent that runs for this call has another id.
        let approving = questions.with_call(call("own"));
        let approved = tokio::spawn(async move { approving.ask(&request(None)).await });
        for _ in 0..2 {
            let question = own.recv().await.unwrap();
            assert!(question.answer.send(RawValue::from_string("{}".into()).unwrap()).is_ok());
        }
        assert_eq!((relayed.await.unwrap(), approved.await.unwrap()), (true, ApprovalAnswer::Deny));
        assert!(newer.try_recv().is_err(), "the newer call gets no question");
        let ended = RelayedRequest { call: Some(call("ended")), ..asked };
        assert!(questions.relay(ended).await.is_err());
        assert!(newer.try_recv().is_err());
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
