//! Tasks: calls that continue after the reply to their request. The client polls the state of a task, answers its
//! questions, and can cancel it. In revisions without sessions, haft decides which calls become tasks. In revision
//! 2025-11-25, the client asks for a task, and gets the questions while it waits for the result.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::provider::ProviderKind;
use haft_engine::CatalogEntry;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, sleep, timeout};

use super::call_notices::{CallNotices, ProgressText};
use super::held::{DetachedCall, question_name};
use super::message::{GatewayError, INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY};
use super::object::RawObject;
use super::questions::CallQuestion;

/// The name of the protocol extension for tasks, which a client must declare.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The longest time that a task may work, if the client asks for no other time. The limits of the agent or of the tool
/// usually end it earlier.
const WORK_MAX: Duration = Duration::from_hours(24);

/// The time for which the server keeps the result of a task after its end, if the client asks for no other time.
const RESULT_TIME: Duration = Duration::from_hours(1);

/// The longest time that a client can ask for.
const TASK_TTL_MAX: Duration = Duration::from_hours(25);

/// The shortest time that a client can ask for. With less, the result would be gone before a client that polls in the
/// suggested interval can fetch it.
const TASK_TTL_MIN: Duration = Duration::from_secs(5);

/// The interval at which haft checks whether a task has a result, while a client waits for it.
pub(super) const RESULT_PAUSE: Duration = Duration::from_millis(50);

/// The key in the `_meta` of a result that contains the id of its task, in revision 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The poll interval that haft suggests to the client.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of tasks of one principal and profile. If all of them still work, a call returns its result in its
/// reply. Otherwise the task that ended first makes room.
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

/// The tasks of one principal, by id. All its clients with the same profile share them, so that a client can fetch a
/// result after it has connected again. The ids are random, because a server that requires no keys cannot tell its
/// clients apart: only a client that received an id can use the task.
#[derive(Debug, Default)]
pub(super) struct TaskTable(Mutex<HashMap<String, GatewayTask>>);

#[derive(Debug)]
struct GatewayTask {
    state: TaskState,
    created: SystemTime,
    updated: SystemTime,
    lifetime: TaskLifetime,
    began: Instant,
    ended: Option<Instant>,
    /// The names of all questions so far. A name is never reused: a late answer to one question must not approve another.
    used_names: HashSet<String>,
}

/// The request of a client to run a call as a task, in revision 2025-11-25.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TaskRequest {
    /// The time in milliseconds for which the client wants the task to be kept; `None` if the client names no time.
    ttl: Option<u64>,
}

impl TaskRequest {
    /// Returns the lifetime of the task.
    pub(super) fn lifetime(&self) -> TaskLifetime {
        let requested = |ttl| Duration::from_millis(ttl).clamp(TASK_TTL_MIN, TASK_TTL_MAX);
        self.ttl.map_or(TaskLifetime::AfterEnd, |ttl| TaskLifetime::Requested(requested(ttl)))
    }
}

/// The time for which the server keeps a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskLifetime {
    /// The time that the client asked for, counted from the start. The server then cancels a task that still works.
    Requested(Duration),
    /// Until [`RESULT_TIME`] after the end of the work, which may take [`WORK_MAX`].
    AfterEnd,
}

impl TaskLifetime {
    /// Returns the longest time that the task may work.
    pub(super) fn work_max(self) -> Duration {
        match self {
            Self::Requested(ttl) => ttl,
            Self::AfterEnd => WORK_MAX,
        }
    }

    /// Returns the whole time, counted from the start. `worked` is the time of the work; `None` before its end.
    fn ttl(self, worked: Option<Duration>) -> Duration {
        match (self, worked) {
            (Self::Requested(ttl), _) => ttl,
            (Self::AfterEnd, Some(worked)) => worked + RESULT_TIME,
            (Self::AfterEnd, None) => WORK_MAX + RESULT_TIME,
        }
    }
}

/// Ends the work of a task when its time is over. Otherwise the work could continue after a client has disconnected,
/// although no request can fetch its result.
pub(super) async fn within(
    work_max: Duration,
    work: impl Future<Output = Result<String, GatewayError>>,
) -> Result<String, GatewayError> {
    let over =
        || GatewayError::new(INTERNAL_ERROR, "the task reached its time limit, so the server cancelled it");
    timeout(work_max, work).await.unwrap_or_else(|_| Err(over()))
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
    /// Makes room for another task: if there are too many tasks, removes the one that ended first. Returns false if all
    /// of them still work.
    pub(super) fn make_room(&self) -> bool {
        let mut tasks = self.current();
        if tasks.len() < TASKS_MAX {
            return true;
        }
        let ended = tasks.iter().filter_map(|(id, task)| Some((task.ended?, task.began, id)));
        let first = ended.min().map(|(_, _, id)| id.clone());
        first.is_some_and(|id| tasks.remove(&id).is_some())
    }

    /// Removes expired tasks with their results, and returns true if no task is left.
    pub(super) fn is_empty(&self) -> bool {
        self.current().is_empty()
    }

    /// Returns the time at which the last task ended; `None` if a task still works, or if there is no task.
    pub(super) fn last_ended(&self) -> Option<Instant> {
        let tasks = self.current();
        let ended: Option<Vec<Instant>> = tasks.values().map(|task| task.ended).collect();
        ended?.into_iter().max()
    }

    /// Stores a call as a task, and returns the reply to its request.
    pub(super) fn begin(&self, call: DetachedCall, lifetime: TaskLifetime) -> String {
        let (id, task) = GatewayTask::new(call, lifetime);
        let mut reply = task.json(&id);
        reply["resultType"] = "task".into();
        self.lock().insert(id, task);
        reply.to_string()
    }

    /// Stores a call as a task of revision 2025-11-25, and returns the reply to its request.
    pub(super) fn begin_requested(&self, call: DetachedCall, lifetime: TaskLifetime) -> String {
        let (id, task) = GatewayTask::new(call, lifetime);
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
        let tasks = self.current();
        let listed = tasks.iter().map(|(id, task)| (task.created, task.core_json(id)));
        let mut listed: Vec<(SystemTime, Value)> = listed.collect();
        listed.sort_by_key(|(created, _)| *created);
        json!({ "tasks": listed.into_iter().map(|(_, task)| task).collect::<Vec<_>>() }).to_string()
    }

    /// Cancels a task of revision 2025-11-25. In this revision, cancelling a task that has ended is an error.
    pub(super) fn core_cancel(&self, id: &str) -> Result<String, GatewayError> {
        self.with_task(id, |task| match task.state {
            TaskState::Working(_) | TaskState::InputRequired(..) => {
                task.end(TaskState::Cancelled);
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
        let task = tasks.get_mut(id).filter(|task| !task.is_expired()).ok_or_else(unknown)?;
        task.refresh();
        read(task)
    }

    /// Returns the progress and log messages of a task that has not ended.
    pub(super) fn notices(&self, id: &str) -> Option<Arc<CallNotices>> {
        let notices = |task: &mut GatewayTask| Ok(task.notices().cloned());
        self.with_task(id, notices).ok().flatten()
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
                task.end(TaskState::Cancelled);
            }
            Ok(ACKNOWLEDGED.to_owned())
        })
    }

    /// Returns the tasks with their current states. Removes expired tasks with their results.
    fn current(&self) -> MutexGuard<'_, HashMap<String, GatewayTask>> {
        let mut tasks = self.lock();
        tasks.retain(|_, task| !task.is_expired());
        tasks.values_mut().for_each(GatewayTask::refresh);
        tasks
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GatewayTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a request that changes a task. The client sees the effect when it next polls the task.
const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

impl GatewayTask {
    /// Returns a new task with its id.
    fn new(call: DetachedCall, lifetime: TaskLifetime) -> (String, Self) {
        let now = SystemTime::now();
        let task = Self {
            state: TaskState::Working(call),
            created: now,
            updated: now,
            lifetime,
            began: Instant::now(),
            ended: None,
            used_names: HashSet::new(),
        };
        (uuid::Uuid::new_v4().to_string(), task)
    }

    /// Ends the task with this state.
    fn end(&mut self, state: TaskState) {
        self.state = state;
        self.updated = SystemTime::now();
        self.ended = Some(Instant::now());
    }

    fn ttl(&self) -> Duration {
        self.lifetime.ttl(self.ended.map(|ended| ended - self.began))
    }

    fn is_expired(&self) -> bool {
        self.began.elapsed() >= self.ttl()
    }

    /// Returns the progress and log messages of the call; `None` after its end.
    fn notices(&self) -> Option<&Arc<CallNotices>> {
        match &self.state {
            TaskState::Working(call) | TaskState::InputRequired(call, _) => Some(&call.watched.notices),
            TaskState::Finished(_) | TaskState::Cancelled => None,
        }
    }

    /// Moves the result or new questions of the call into the state, if there are any.
    fn refresh(&mut self) {
        let (TaskState::Working(call) | TaskState::InputRequired(call, _)) = &mut self.state else { return };
        match call.result.try_recv() {
            Ok(outcome) => return self.end(TaskState::Finished(outcome)),
            Err(TryRecvError::Closed) => return self.end(TaskState::Cancelled),
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
        self.state_json(id, ("ttlMs", "pollIntervalMs"))
    }

    /// Returns the state in the form of revision 2025-11-25.
    fn core_json(&self, id: &str) -> Value {
        self.state_json(id, ("ttl", "pollInterval"))
    }

    fn state_json(&self, id: &str, (ttl, poll_interval): (&str, &str)) -> Value {
        let progress = self.notices().and_then(|notices| notices.status());
        let updated = progress.as_ref().map_or(self.updated, |progress| self.updated.max(progress.at));
        let mut state = json!({
            "taskId": id,
            "status": self.status(),
            "createdAt": timestamp(self.created),
            "lastUpdatedAt": timestamp(updated),
        });
        state[ttl] = millis(self.ttl()).into();
        state[poll_interval] = millis(POLL_PAUSE).into();
        if let Some(message) = self.status_message(progress) {
            state["statusMessage"] = message.into();
        }
        state
    }

    /// Returns the last progress text of a task that has not ended, or the error of a task that failed.
    fn status_message(&self, progress: Option<ProgressText>) -> Option<String> {
        match &self.state {
            TaskState::Working(_) | TaskState::InputRequired(..) => progress.map(|progress| progress.text),
            TaskState::Finished(Err(error)) => Some(error.message.clone()),
            TaskState::Finished(Ok(_)) | TaskState::Cancelled => None,
        }
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

/// Adds the task id to the `_meta` of a result or of the parameters of a question, and leaves the rest unchanged.
pub(super) fn related(json: &str, id: &str) -> String {
    let Some(mut object) = RawObject::of(json) else { return json.to_owned() };
    let meta = object.get(META).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut meta = meta.filter(Value::is_object).unwrap_or_else(|| json!({}));
    meta[RELATED_TASK] = json!({ "taskId": id });
    object.set(META, meta.to_string());
    object.to_string()
}

/// Removes the task id of an upstream server from the `_meta` of a result or of the parameters of a question, because
/// the client does not know this task.
pub(super) fn unrelated(json: String) -> String {
    // Almost no text contains such an id, so most are not parsed. The slash in the key may be escaped.
    if !json.contains("related-task") {
        return json;
    }
    let Some(mut object) = RawObject::of(&json) else { return json };
    let Some(mut meta) = object.get(META).and_then(RawObject::of) else { return json };
    if meta.get(RELATED_TASK).is_none() {
        return json;
    }
    meta.remove(RELATED_TASK);
    let meta = meta.to_string();
    if meta == "{}" {
        object.remove(META);
    } else {
        object.set(META, meta);
    }
    object.to_string()
}

/// The member with the metadata of a message.
const META: &str = "_meta";

/// Formats a time as RFC 3339.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(seconds.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use haft_core::event::CallProgress;
    use tokio::sync::{mpsc, oneshot};

    use super::super::call_notices::NoticeTable;
    use super::super::held::tests::{asking_call, endless_call};
    use super::*;

    fn begin(tasks: &TaskTable) -> String {
        begin_call(tasks, endless_call("call"))
    }

    fn begin_call(tasks: &TaskTable, call: DetachedCall) -> String {
        let reply: Value = serde_json::from_str(&tasks.begin(call, TaskLifetime::AfterEnd)).unwrap();
        reply["taskId"].as_str().unwrap().to_owned()
    }

    /// A call that has ended.
    fn ended_call() -> DetachedCall {
        let (finished, result) = oneshot::channel();
        finished.send(Ok("{}".into())).unwrap();
        DetachedCall { result, ..endless_call("call") }
    }

    #[test]
    fn requested_lifetime_of_a_task_has_a_minimum_and_a_maximum() {
        let check = |ttl: u64, expected: Duration| {
            let lifetime = TaskRequest { ttl: Some(ttl) }.lifetime();
            assert_eq!(lifetime, TaskLifetime::Requested(expected), "{ttl}");
        };
        check(0, TASK_TTL_MIN);
        check(1, TASK_TTL_MIN);
        check(60_000, Duration::from_mins(1));
        check(u64::MAX, TASK_TTL_MAX);
        assert_eq!(TaskRequest { ttl: None }.lifetime(), TaskLifetime::AfterEnd);
        assert_eq!(TASK_TTL_MAX, TaskLifetime::AfterEnd.ttl(None));
    }

    #[tokio::test(start_paused = true)]
    async fn task_is_kept_for_an_hour_after_its_end() {
        let tasks = TaskTable::default();
        let (finished, result) = oneshot::channel();
        let id = begin_call(&tasks, DetachedCall { result, ..endless_call("call") });
        tokio::time::advance(RESULT_TIME * 3).await;
        assert!(tasks.get(&id).unwrap().contains("\"working\""), "a task may work for hours");
        finished.send(Ok("{}".into())).unwrap();
        let ended: Value = serde_json::from_str(&tasks.get(&id).unwrap()).unwrap();
        assert_eq!(
            (&ended["status"], &ended["ttlMs"]),
            (&json!("completed"), &json!(4 * 3_600_000)),
            "{ended}"
        );
        tokio::time::advance(RESULT_TIME / 2).await;
        assert!(tasks.get(&id).is_ok());
        tokio::time::advance(RESULT_TIME / 2).await;
        assert!(tasks.get(&id).is_err() && tasks.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_task_is_unknown_and_makes_room_for_another() {
        let tasks = TaskTable::default();
        let ids: Vec<String> = (0..TASKS_MAX).map(|_| begin(&tasks)).collect();
        assert!(!tasks.make_room() && !tasks.is_empty(), "all tasks still work");
        assert!(tasks.get(&ids[0]).unwrap().contains("\"working\""));
        tokio::time::advance(TASK_TTL_MAX).await;
        assert!(ids.iter().all(|id| tasks.get(id).is_err()));
        assert!(tasks.is_empty() && tasks.make_room());
        assert!(tasks.cancel(&ids[0]).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_ended_first_makes_room_for_another() {
        let tasks = TaskTable::default();
        let working = begin(&tasks);
        let mut ended = Vec::new();
        for _ in 1..=TASKS_MAX {
            assert!(tasks.make_room());
            ended.push(begin_call(&tasks, ended_call()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(tasks.get(&working).is_ok(), "a task that works is not removed");
        assert!(tasks.get(&ended[0]).is_err());
        assert!(ended[1..].iter().all(|id| tasks.get(id).is_ok()));
    }

    #[tokio::test]
    async fn status_message_is_the_last_progress_text_or_the_error() {
        let tasks = TaskTable::default();
        let table = Arc::<NoticeTable>::default();
        let (finished, result) = oneshot::channel();
        let call = DetachedCall { result, watched: table.watch("c"), ..endless_call("call") };
        let id = begin_call(&tasks, call);
        let message = |state: String| serde_json::from_str::<Value>(&state).unwrap()["statusMessage"].clone();
        assert_eq!(message(tasks.get(&id).unwrap()), Value::Null);
        table.progress("c", &CallProgress::Message("asking the model".into()));
        assert_eq!(message(tasks.get(&id).unwrap()), "asking the model");
        assert_eq!(message(tasks.core_state(&id).unwrap()), "asking the model");
        finished.send(Err(GatewayError::new(INTERNAL_ERROR, "the disk is full"))).unwrap();
        assert_eq!(message(tasks.get(&id).unwrap()), "the disk is full");
    }

    #[test]
    fn task_id_of_an_upstream_server_is_removed_and_other_metadata_stays() {
        let check = |json: &str, expected: &str| assert_eq!(unrelated(json.to_owned()), expected);
        let own = r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"a":1.0}"#;
        check(own, r#"{"a":1.0}"#);
        check(&own.replace('/', "\\/"), r#"{"a":1.0}"#);
        let more = r#"{"_meta":{"b":[ ],"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#;
        check(more, r#"{"_meta":{"b":[ ]}}"#);
        for other in ["{}", "7", r#"{"text":"related-task","_meta":{"b":1}}"#] {
            check(other, other);
        }
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
        let ended = within(TASK_TTL_MIN, std::future::pending()).await;
        assert!(ended.unwrap_err().message.contains("the task reached its time limit"));
    }
}
