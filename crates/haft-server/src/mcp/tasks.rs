//! Tasks: calls that continue after the reply to their request. The client polls the state of a task, answers its
//! questions, and can cancel it. In revisions without sessions, haft decides which calls become tasks. In revision
//! 2025-11-25, the client asks for a task, and gets the questions while it waits for the result.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::provider::ProviderKind;
use haft_engine::CatalogEntry;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, sleep, timeout};

use super::held::{DetachedCall, question_name};
use super::message::{GatewayError, INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY};
use super::object::RawObject;
use super::questions::CallQuestion;

/// The name of the protocol extension for tasks, which a client must declare.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The time for which the server keeps a task, counted from its start. After this time, the server cancels a task that
/// still runs. This is also the longest time that a client can ask for.
const TASK_TTL: Duration = Duration::from_hours(1);

/// The shortest time that a client can ask for. With less, the result would be gone before a client that polls in the
/// suggested interval can fetch it.
const TASK_TTL_MIN: Duration = Duration::from_secs(5);

/// The interval at which haft checks whether a task has a result, while a client waits for it.
pub(super) const RESULT_PAUSE: Duration = Duration::from_millis(50);

/// The key in the `_meta` of a result that contains the id of its task, in revision 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The poll interval that haft suggests to the client.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of tasks of one client. If there are more, a call returns its result in its reply.
const TASKS_MAX: usize = 64;

/// The task support that the client of a request declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskSupport {
    Declared,
    Undeclared,
}

impl TaskSupport {
    /// Refuses a request that only a client with task support can send.
    pub(super) fn require(self) -> Result<(), GatewayError> {
        match self {
            Self::Declared => Ok(()),
            Self::Undeclared => {
                let message = format!("the client must declare the extension `{TASKS_EXTENSION}`");
                let required = json!({ "extensions": { TASKS_EXTENSION: {} } });
                Err(GatewayError::new(MISSING_CAPABILITY, message)
                    .with_data(json!({ "requiredCapabilities": required })))
            }
        }
    }
}

/// The task support that a tool declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskOffer {
    Forbidden,
    Optional,
    Required,
}

impl TaskOffer {
    /// Creates the offer of a tool from the `execution.taskSupport` of its definition. An agent can always be a task.
    pub(super) fn of(tool: &CatalogEntry) -> Self {
        #[derive(Deserialize)]
        struct Definition {
            execution: Option<Execution>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            task_support: Option<String>,
        }
        if tool.identity().kind == ProviderKind::Agent {
            return Self::Optional;
        }
        // Search the text before parsing it, because this runs for every call, and few tools declare task support.
        let raw = tool.definition().raw.as_ref().filter(|raw| raw.get().contains("taskSupport"));
        let read: Option<Definition> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let support = read.and_then(|definition| definition.execution?.task_support);
        match support.as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            Some(_) | None => Self::Forbidden,
        }
    }
}

/// The tasks of one principal, by id. All its clients with the same capabilities share them, so that a client can fetch
/// a result after it has connected again. The ids are random, because a server that requires no keys cannot tell its
/// clients apart: only a client that received an id can use the task.
#[derive(Debug, Default)]
pub(super) struct TaskTable(Mutex<HashMap<String, GatewayTask>>);

#[derive(Debug)]
struct GatewayTask {
    state: TaskState,
    created: SystemTime,
    updated: SystemTime,
    ttl: Duration,
    until: Instant,
    /// The names of all questions so far. A name is never reused: a late answer to one question must not approve another.
    used_names: HashSet<String>,
}

/// The request of a client to run a call as a task, in revision 2025-11-25.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TaskRequest {
    /// The time in milliseconds for which the client wants the task to be kept.
    ttl: Option<u64>,
}

impl TaskRequest {
    /// Returns the time for which the task is kept.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl.map_or(TASK_TTL, |wanted| Duration::from_millis(wanted).clamp(TASK_TTL_MIN, TASK_TTL))
    }
}

/// Ends the work of a task when the task expires. Otherwise the work could continue after a client has disconnected,
/// although no request can fetch its result.
pub(super) async fn within_ttl(
    ttl: Duration,
    work: impl Future<Output = Result<String, GatewayError>>,
) -> Result<String, GatewayError> {
    let over =
        || GatewayError::new(INTERNAL_ERROR, "the task reached its time limit, so the server cancelled it");
    timeout(ttl, work).await.unwrap_or_else(|_| Err(over()))
}

/// The state of a task for a client that waits for its result.
pub(super) enum AwaitedTask {
    Finished(Result<String, GatewayError>),
    /// The first question without an answer.
    Asks(TaskQuestion),
    Working,
}

/// A copy of a task's question. The task keeps the question until it is answered, because the request that passes the
/// copy to the client can be cancelled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskQuestion {
    pub(super) name: String,
    pub(super) method: String,
    /// The parameters as JSON.
    pub(super) params: String,
}

#[derive(Debug)]
enum TaskState {
    Working(DetachedCall),
    /// The call waits for answers. The questions have the names that the client received.
    InputRequired(DetachedCall, Vec<(String, CallQuestion)>),
    Finished(Result<String, GatewayError>),
    Cancelled,
}

impl TaskTable {
    /// Returns true if another task can be started.
    pub(super) fn has_room(&self) -> bool {
        let mut tasks = self.lock();
        let now = Instant::now();
        tasks.retain(|_, task| task.until > now);
        tasks.len() < TASKS_MAX
    }

    /// Removes expired tasks with their results, and returns true if no task is left.
    pub(super) fn is_empty(&self) -> bool {
        let mut tasks = self.lock();
        let now = Instant::now();
        tasks.retain(|_, task| task.until > now);
        tasks.is_empty()
    }

    /// Stores a call as a task, and returns the reply to its request.
    pub(super) fn begin(&self, call: DetachedCall, ttl: Duration) -> String {
        let (id, task) = GatewayTask::new(call, ttl);
        let mut reply = task.json(&id);
        reply["resultType"] = "task".into();
        self.lock().insert(id, task);
        reply.to_string()
    }

    /// Stores a call as a task of revision 2025-11-25, and returns the reply to its request.
    pub(super) fn begin_requested(&self, call: DetachedCall, ttl: Duration) -> String {
        let (id, task) = GatewayTask::new(call, ttl);
        let reply = json!({ "task": task.core_json(&id) });
        self.lock().insert(id, task);
        reply.to_string()
    }

    /// Returns the state of a task in the form of revision 2025-11-25.
    pub(super) fn core_state(&self, id: &str) -> Result<String, GatewayError> {
        self.with_task(id, |task| Ok(task.core_json(id).to_string()))
    }

    /// Lists the tasks in the form of revision 2025-11-25, the oldest first. They fit into one page.
    pub(super) fn core_list(&self) -> String {
        let mut tasks = self.lock();
        let now = Instant::now();
        tasks.retain(|_, task| task.until > now);
        let mut listed: Vec<(SystemTime, Value)> = Vec::new();
        for (id, task) in tasks.iter_mut() {
            task.refresh();
            listed.push((task.created, task.core_json(id)));
        }
        listed.sort_by_key(|(created, _)| *created);
        json!({ "tasks": listed.into_iter().map(|(_, task)| task).collect::<Vec<_>>() }).to_string()
    }

    /// Cancels a task of revision 2025-11-25. In this revision, cancelling a task that has ended is an error.
    pub(super) fn core_cancel(&self, id: &str) -> Result<String, GatewayError> {
        self.with_task(id, |task| match task.state {
            TaskState::Working(_) | TaskState::InputRequired(..) => {
                task.set(TaskState::Cancelled);
                Ok(task.core_json(id).to_string())
            }
            TaskState::Finished(_) | TaskState::Cancelled => {
                Err(GatewayError::new(INVALID_PARAMS, "the task has already ended"))
            }
        })
    }

    /// Returns the result of a task, or the question that it waits for. The caller must ask the client and call again.
    pub(super) fn awaited(&self, id: &str) -> Result<AwaitedTask, GatewayError> {
        self.with_task(id, |task| {
            Ok(match &task.state {
                TaskState::Working(_) => AwaitedTask::Working,
                TaskState::InputRequired(_, questions) => {
                    questions.first().map_or(AwaitedTask::Working, |(name, question)| {
                        let CallQuestion { method, params, .. } = question;
                        let (name, method, params) = (name.clone(), method.clone(), params.clone());
                        AwaitedTask::Asks(TaskQuestion { name, method, params })
                    })
                }
                TaskState::Finished(Ok(result)) => AwaitedTask::Finished(Ok(related(result, id))),
                TaskState::Finished(Err(error)) => AwaitedTask::Finished(Err(error.clone())),
                TaskState::Cancelled => {
                    AwaitedTask::Finished(Err(GatewayError::new(INVALID_PARAMS, "the task was cancelled")))
                }
            })
        })
    }

    /// Waits until a question no longer needs an answer: another request has answered it, or the task has ended.
    pub(super) async fn until_closed(&self, id: &str, name: &str) {
        while self.with_task(id, |task| Ok(task.has_open(name))).unwrap_or(false) {
            sleep(RESULT_PAUSE).await;
        }
    }

    /// Delivers the reply of the client to one question. An error counts as a refusal to answer.
    pub(super) fn answer(&self, id: &str, name: &str, reply: Result<Box<RawValue>, String>) {
        // Ignore the error: the task has expired in the meantime, and the client no longer finds it.
        let _ = self.with_task(id, |task| {
            task.close_question(name, reply.ok());
            Ok(())
        });
    }

    fn with_task<T>(
        &self,
        id: &str,
        read: impl FnOnce(&mut GatewayTask) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        let mut tasks = self.lock();
        let task = tasks.get_mut(id).filter(|task| task.until > Instant::now()).ok_or_else(unknown)?;
        task.refresh();
        read(task)
    }

    /// Returns the state of a task, with its result, its error or its questions.
    pub(super) fn get(&self, id: &str) -> Result<String, GatewayError> {
        self.with_task(id, |task| Ok(task.detailed(id)))
    }

    /// Delivers answers. Ignores names that no question has.
    pub(super) fn update(
        &self,
        id: &str,
        answers: HashMap<String, Box<RawValue>>,
    ) -> Result<String, GatewayError> {
        self.with_task(id, |task| {
            for (name, answer) in answers {
                task.close_question(&name, Some(answer));
            }
            Ok(ACKNOWLEDGED.to_owned())
        })
    }

    /// Cancels a task. Has no effect on a task that has ended.
    pub(super) fn cancel(&self, id: &str) -> Result<String, GatewayError> {
        self.with_task(id, |task| {
            if matches!(task.state, TaskState::Working(_) | TaskState::InputRequired(..)) {
                task.set(TaskState::Cancelled);
            }
            Ok(ACKNOWLEDGED.to_owned())
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GatewayTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a request that changes a task. The client sees the effect when it next polls the task.
const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

impl GatewayTask {
    /// Returns a new task with its id.
    fn new(call: DetachedCall, ttl: Duration) -> (String, Self) {
        let now = SystemTime::now();
        let state = TaskState::Working(call);
        let (until, used_names) = (Instant::now() + ttl, HashSet::new());
        let task = Self { state, created: now, updated: now, ttl, until, used_names };
        (uuid::Uuid::new_v4().to_string(), task)
    }

    fn set(&mut self, state: TaskState) {
        self.state = state;
        self.updated = SystemTime::now();
    }

    /// Moves the result or new questions of the call into the state, if there are any.
    fn refresh(&mut self) {
        let (TaskState::Working(call) | TaskState::InputRequired(call, _)) = &mut self.state else { return };
        match call.result.try_recv() {
            Ok(outcome) => return self.set(TaskState::Finished(outcome)),
            Err(TryRecvError::Closed) => return self.set(TaskState::Cancelled),
            Err(TryRecvError::Empty) => {}
        }
        let mut asked = Vec::new();
        while let Ok(question) = call.questions.try_recv() {
            let name = question_name(&question, |name| self.used_names.contains(name));
            self.used_names.insert(name.clone());
            asked.push((name, question));
        }
        // Remove questions that the call no longer waits for: after a timeout, it drops the receiver of the answer.
        self.change_questions(|open| {
            open.retain(|(_, question)| !question.answer.is_closed());
            open.extend(asked);
        });
    }

    fn has_open(&self, name: &str) -> bool {
        let TaskState::InputRequired(_, questions) = &self.state else { return false };
        questions.iter().any(|(open, _)| open == name)
    }

    /// Closes a question, with its answer if there is one. Ignores names that no open question has.
    fn close_question(&mut self, name: &str, answer: Option<Box<RawValue>>) {
        self.change_questions(|open| {
            let Some(at) = open.iter().position(|(known, _)| known == name) else { return };
            let (_, question) = open.remove(at);
            if let Some(answer) = answer {
                // Ignore the error: the call has ended in the meantime, and the next poll shows its result.
                let _ = question.answer.send(answer);
            }
        });
    }

    /// Updates the pending questions of a running call, and sets the status of its task to match.
    fn change_questions(&mut self, change: impl FnOnce(&mut Vec<(String, CallQuestion)>)) {
        let state = std::mem::replace(&mut self.state, TaskState::Cancelled);
        let (call, mut questions) = match state {
            TaskState::Working(call) => (call, Vec::new()),
            TaskState::InputRequired(call, questions) => (call, questions),
            ended @ (TaskState::Finished(_) | TaskState::Cancelled) => return self.state = ended,
        };
        let before = questions.len();
        change(&mut questions);
        if questions.len() != before {
            self.updated = SystemTime::now();
        }
        self.state = if questions.is_empty() {
            TaskState::Working(call)
        } else {
            TaskState::InputRequired(call, questions)
        };
    }

    fn status(&self) -> &'static str {
        match &self.state {
            TaskState::Working(_) => "working",
            TaskState::InputRequired(..) => "input_required",
            TaskState::Finished(Ok(_)) => "completed",
            TaskState::Finished(Err(_)) => "failed",
            TaskState::Cancelled => "cancelled",
        }
    }

    fn json(&self, id: &str) -> Value {
        json!({
            "taskId": id,
            "status": self.status(),
            "createdAt": timestamp(self.created),
            "lastUpdatedAt": timestamp(self.updated),
            "ttlMs": millis(self.ttl),
            "pollIntervalMs": millis(POLL_PAUSE),
        })
    }

    /// Returns the state in the form of revision 2025-11-25.
    fn core_json(&self, id: &str) -> Value {
        json!({
            "taskId": id,
            "status": self.status(),
            "createdAt": timestamp(self.created),
            "lastUpdatedAt": timestamp(self.updated),
            "ttl": millis(self.ttl),
            "pollInterval": millis(POLL_PAUSE),
        })
    }

    fn detailed(&self, id: &str) -> String {
        let mut task = self.json(id);
        task["resultType"] = "complete".into();
        match &self.state {
            TaskState::Working(_) | TaskState::Cancelled => {}
            TaskState::InputRequired(_, questions) => {
                let asked = questions.iter().map(|(name, question)| (name.clone(), question.json()));
                task["inputRequests"] = Value::Object(asked.collect::<Map<String, Value>>());
            }
            // Append the result as text, so that it stays unchanged.
            TaskState::Finished(Ok(result)) => {
                let text = task.to_string();
                return format!("{},\"result\":{result}}}", text.trim_end_matches('}'));
            }
            TaskState::Finished(Err(GatewayError { code, message, data })) => {
                task["error"] = json!({ "code": code, "message": message });
                if let Some(data) = data {
                    task["error"]["data"] = data.clone();
                }
            }
        }
        task.to_string()
    }
}

fn unknown() -> GatewayError {
    GatewayError::new(INVALID_PARAMS, "there is no task with this id, or the task has expired")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Adds the task id to the `_meta` of a result, and leaves the rest of the result unchanged.
fn related(result: &str, id: &str) -> String {
    let Some(mut object) = RawObject::of(result) else { return result.to_owned() };
    let meta = object.get("_meta").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut meta = meta.filter(Value::is_object).unwrap_or_else(|| json!({}));
    meta[RELATED_TASK] = json!({ "taskId": id });
    object.set("_meta", meta.to_string());
    object.to_string()
}

/// Formats a time as RFC 3339.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(seconds.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::super::held::tests::{asking_call, endless_call};
    use super::*;

    fn begin(tasks: &TaskTable) -> String {
        begin_call(tasks, endless_call("call"))
    }

    fn begin_call(tasks: &TaskTable, call: DetachedCall) -> String {
        let reply: Value = serde_json::from_str(&tasks.begin(call, TASK_TTL)).unwrap();
        reply["taskId"].as_str().unwrap().to_owned()
    }

    #[test]
    fn lifetime_of_a_task_has_a_minimum_and_a_maximum() {
        let check = |ttl: Option<u64>, expected: Duration| assert_eq!(TaskRequest { ttl }.ttl(), expected);
        check(None, TASK_TTL);
        check(Some(0), TASK_TTL_MIN);
        check(Some(1), TASK_TTL_MIN);
        check(Some(60_000), Duration::from_mins(1));
        check(Some(u64::MAX), TASK_TTL);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_task_is_unknown_and_makes_room_for_another() {
        let tasks = TaskTable::default();
        let ids: Vec<String> = (0..TASKS_MAX).map(|_| begin(&tasks)).collect();
        assert!(!tasks.has_room() && !tasks.is_empty());
        assert!(tasks.get(&ids[0]).unwrap().contains("\"working\""));
        tokio::time::advance(TASK_TTL).await;
        assert!(ids.iter().all(|id| tasks.get(id).is_err()));
        assert!(tasks.is_empty() && tasks.has_room());
        assert!(tasks.cancel(&ids[0]).is_err());
    }

    #[tokio::test]
    async fn cancelled_task_stays_cancelled() {
        let tasks = TaskTable::default();
        let id = begin(&tasks);
        tasks.cancel(&id).unwrap();
        assert!(tasks.get(&id).unwrap().contains("\"cancelled\""));
        tasks.update(&id, HashMap::new()).unwrap();
        assert!(tasks.get(&id).unwrap().contains("\"cancelled\""));
    }
    /// Sends a question on the channel of a call.
    fn ask(ask: &mpsc::Sender<CallQuestion>) -> oneshot::Receiver<Box<RawValue>> {
        let (answer, answered) = oneshot::channel();
        let question =
            CallQuestion { key: None, method: "elicitation/create".into(), params: "{}".into(), answer };
        ask.try_send(question).unwrap();
        answered
    }

    fn name_of_question(tasks: &TaskTable, id: &str) -> Option<String> {
        match tasks.awaited(id).unwrap() {
            AwaitedTask::Asks(question) => Some(question.name),
            AwaitedTask::Working => None,
            AwaitedTask::Finished(outcome) => panic!("{outcome:?}"),
        }
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn question_stays_with_its_task_until_it_is_answered() {
        let tasks = TaskTable::default();
        let (call, channel) = asking_call("call");
        let id = begin_call(&tasks, call);
        let (mut first, mut second) = (ask(&channel), ask(&channel));
        assert_eq!(name_of_question(&tasks, &id).as_deref(), Some("question"));
        assert_eq!(
            name_of_question(&tasks, &id).as_deref(),
            Some("question"),
            "the question still waits for its answer"
        );
        assert!(
            first.try_recv().is_err_and(|error| error == TryRecvError::Empty),
            "the channel of the question is still open"
        );
        tasks.answer(&id, "question", Ok(raw("1")));
        assert_eq!(first.try_recv().unwrap().get(), "1");
        assert_eq!(name_of_question(&tasks, &id).as_deref(), Some("question-2"));
        tasks.answer(&id, "question-2", Err("refused".into()));
        assert_eq!(second.try_recv().unwrap_err(), TryRecvError::Closed);
        assert_eq!(name_of_question(&tasks, &id), None);
    }

    #[tokio::test]
    async fn late_answer_is_not_used_for_a_later_question() {
        let tasks = TaskTable::default();
        let (call, channel) = asking_call("call");
        let id = begin_call(&tasks, call);
        let _first = ask(&channel);
        tasks.answer(&id, &name_of_question(&tasks, &id).unwrap(), Ok(raw("1")));
        let mut later = ask(&channel);
        assert_eq!(name_of_question(&tasks, &id).as_deref(), Some("question-2"));
        tasks.answer(&id, "question", Ok(raw("1")));
        assert_eq!(later.try_recv().unwrap_err(), TryRecvError::Empty);
    }

    #[tokio::test]
    async fn question_abandoned_by_its_call_is_not_asked_again() {
        let tasks = TaskTable::default();
        let (call, channel) = asking_call("call");
        let id = begin_call(&tasks, call);
        let given_up = ask(&channel);
        assert!(tasks.get(&id).unwrap().contains("input_required"));
        drop(given_up);
        assert!(tasks.get(&id).unwrap().contains("working"));
        tasks.until_closed(&id, "question").await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_when_the_lifetime_of_its_task_ends() {
        let ended = within_ttl(TASK_TTL_MIN, std::future::pending()).await;
        assert!(ended.unwrap_err().message.contains("the task reached its time limit"));
    }
}
