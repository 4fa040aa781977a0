//! Tasks: calls that continue after the reply to their request. The client polls the state of a task, answers its
//! questions, and can cancel it. In revisions without sessions, haft makes a call a task; in revision 2025-11-25, the
//! client asks for it, and gets the questions while it waits for the result.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::provider::ProviderKind;
use haft_engine::CatalogEntry;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use super::held::{DetachedCall, question_name};
use super::message::{GatewayError, INVALID_PARAMS, MISSING_CAPABILITY};
use super::object::RawObject;
use super::questions::CallQuestion;

/// The protocol extension that a client declares.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The time for which a task is kept, counted from its start. A task that still runs then is cancelled.
const TASK_TTL: Duration = Duration::from_hours(1);

/// The interval in which haft looks for the result of a task that the client waits for.
pub(super) const RESULT_PAUSE: Duration = Duration::from_millis(50);

/// The key in the metadata of a result that names its task, in revision 2025-11-25.
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
    /// Reads `execution.taskSupport` of an upstream server. An agent can always be a task.
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
        let raw = tool.definition().raw.as_ref();
        let read: Option<Definition> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let support = read.and_then(|definition| definition.execution?.task_support);
        match support.as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            Some(_) | None => Self::Forbidden,
        }
    }
}

/// The tasks of one client, by id. The ids are random, so that only the client that received an id can use it.
#[derive(Debug, Default)]
pub(super) struct TaskTable(Mutex<HashMap<String, GatewayTask>>);

#[derive(Debug)]
struct GatewayTask {
    state: TaskState,
    created: SystemTime,
    updated: SystemTime,
    ttl: Duration,
    until: Instant,
}

/// The wish of a client for a task, in revision 2025-11-25.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TaskWish {
    /// The time in milliseconds for which the client wants the task to be kept.
    ttl: Option<u64>,
}

impl TaskWish {
    fn ttl(&self) -> Duration {
        self.ttl.map_or(TASK_TTL, |wanted| Duration::from_millis(wanted).min(TASK_TTL))
    }
}

/// The state of a task for a client that waits for its result.
pub(super) enum AwaitedTask {
    Finished(Result<String, GatewayError>),
    Asks(Vec<CallQuestion>),
    Working,
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

    pub(super) fn is_empty(&self) -> bool {
        let now = Instant::now();
        self.lock().values().all(|task| task.until <= now)
    }

    /// Stores a call as a task, and returns the reply to its request.
    pub(super) fn begin(&self, call: DetachedCall) -> String {
        let (id, task) = GatewayTask::new(call, TASK_TTL);
        let mut reply = task.json(&id);
        reply["resultType"] = "task".into();
        self.lock().insert(id, task);
        reply.to_string()
    }

    /// Stores a call as a task of revision 2025-11-25, and returns the reply to its request.
    pub(super) fn begin_wished(&self, call: DetachedCall, wish: &TaskWish) -> String {
        let (id, task) = GatewayTask::new(call, wish.ttl());
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

    /// Cancels a task of revision 2025-11-25. In this revision, a task that has ended is an error.
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

    /// Returns the result of a task, or the questions that it waits for. The caller asks the client and calls again.
    pub(super) fn awaited(&self, id: &str) -> Result<AwaitedTask, GatewayError> {
        self.with_task(id, |task| {
            Ok(match &mut task.state {
                TaskState::Working(_) => AwaitedTask::Working,
                TaskState::InputRequired(_, questions) => {
                    AwaitedTask::Asks(questions.drain(..).map(|(_, question)| question).collect())
                }
                TaskState::Finished(Ok(result)) => AwaitedTask::Finished(Ok(related(result, id))),
                TaskState::Finished(Err(error)) => AwaitedTask::Finished(Err(error.clone())),
                TaskState::Cancelled => {
                    AwaitedTask::Finished(Err(GatewayError::new(INVALID_PARAMS, "the task was cancelled")))
                }
            })
        })
    }

    /// Marks a task whose questions the client has answered.
    pub(super) fn answered(&self, id: &str) {
        if let Some(task) = self.lock().get_mut(id) {
            let state = std::mem::replace(&mut task.state, TaskState::Cancelled);
            task.state = match state {
                TaskState::InputRequired(call, open) if open.is_empty() => TaskState::Working(call),
                other => other,
            };
        }
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
        mut answers: HashMap<String, Box<RawValue>>,
    ) -> Result<String, GatewayError> {
        let mut tasks = self.lock();
        let task = tasks.get_mut(id).ok_or_else(unknown)?;
        task.refresh();
        let state = std::mem::replace(&mut task.state, TaskState::Cancelled);
        task.state = match state {
            TaskState::InputRequired(call, questions) => {
                let mut open = Vec::new();
                for (name, question) in questions {
                    match answers.remove(&name) {
                        // The call may have ended in the meantime; the next state shows this.
                        Some(answer) => drop(question.answer.send(answer)),
                        None => open.push((name, question)),
                    }
                }
                if open.is_empty() { TaskState::Working(call) } else { TaskState::InputRequired(call, open) }
            }
            other => other,
        };
        Ok(ACKNOWLEDGED.to_owned())
    }

    /// Cancels a task. Has no effect on a task that has ended.
    pub(super) fn cancel(&self, id: &str) -> Result<String, GatewayError> {
        let mut tasks = self.lock();
        let task = tasks.get_mut(id).ok_or_else(unknown)?;
        task.refresh();
        if matches!(task.state, TaskState::Working(_) | TaskState::InputRequired(..)) {
            task.set(TaskState::Cancelled);
        }
        Ok(ACKNOWLEDGED.to_owned())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GatewayTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a request that changes a task. The next state of the task shows the effect.
const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

impl GatewayTask {
    /// Returns a new task with its id.
    fn new(call: DetachedCall, ttl: Duration) -> (String, Self) {
        let now = SystemTime::now();
        let state = TaskState::Working(call);
        let task = Self { state, created: now, updated: now, ttl, until: Instant::now() + ttl };
        (uuid::Uuid::new_v4().to_string(), task)
    }

    fn set(&mut self, state: TaskState) {
        self.state = state;
        self.updated = SystemTime::now();
    }

    /// Stores the result or the new questions of the call, if there are any.
    fn refresh(&mut self) {
        let (TaskState::Working(call) | TaskState::InputRequired(call, _)) = &mut self.state else { return };
        match call.result.try_recv() {
            Ok(outcome) => return self.set(TaskState::Finished(outcome)),
            Err(TryRecvError::Closed) => return self.set(TaskState::Cancelled),
            Err(TryRecvError::Empty) => {}
        }
        let mut asked = Vec::new();
        while let Ok(question) = call.questions.try_recv() {
            asked.push(question);
        }
        if asked.is_empty() {
            return;
        }
        let state = std::mem::replace(&mut self.state, TaskState::Cancelled);
        let (call, mut questions) = match state {
            TaskState::Working(call) => (call, Vec::new()),
            TaskState::InputRequired(call, questions) => (call, questions),
            other @ (TaskState::Finished(_) | TaskState::Cancelled) => return self.set(other),
        };
        for question in asked {
            questions.push((question_name(&question, &questions), question));
        }
        self.set(TaskState::InputRequired(call, questions));
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
            // The text of the result is passed unchanged.
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
    GatewayError::new(INVALID_PARAMS, "there is no such task, or it has expired")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Adds the task to the metadata of its result. The rest of the result is passed unchanged.
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
    use super::super::held::tests::endless_call;
    use super::*;

    fn begin(tasks: &TaskTable) -> String {
        let reply: Value = serde_json::from_str(&tasks.begin(endless_call("call"))).unwrap();
        reply["taskId"].as_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn task_is_unknown_after_its_time_and_makes_room() {
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
}
