//! The state of a task that a server runs instead of answering a call at once, in both variants of the protocol: the
//! core tasks of revision 2025-11-25, and the extension of revisions without sessions. This file parses; `task_call`
//! acts.

use std::time::Duration;

use haft_core::result::{ToolError, ToolErrorKind};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{BoundedObject, cut};
use super::content::{INPUTS_MAX, InputRequest};
use super::era::ProtocolEra;
use super::message::{self, RpcError};

/// The extension that a client declares to get tasks, in protocol revisions without sessions.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The only revision with a handshake that has tasks.
const CORE_TASKS: &str = "2025-11-25";

/// The metadata key with which a request from the server names its task.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The poll interval for a server that names none.
const POLL_PAUSE: Duration = Duration::from_secs(1);

/// The minimum poll interval. Without this limit, a server that requests 0 would get as many requests as the connection
/// can carry.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The maximum poll interval. Without this limit, a server that requests a year would delay the result by a year.
const POLL_PAUSE_MAX: Duration = Duration::from_secs(15);

/// The maximum size of a task id, in bytes. Every request about the task repeats the id.
const TASK_ID_BYTES_MAX: usize = 1024;

/// The maximum number of characters of a server's text that an error or a progress message repeats.
const TEXT_CHARS_MAX: usize = 400;

/// Whether a tool of a server can run as a task, from `execution.taskSupport` of its definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ToolTaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

impl ToolTaskSupport {
    pub(super) fn of(definition: &Value) -> Self {
        match definition["execution"]["taskSupport"].as_str() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            Some(_) | None => Self::Forbidden,
        }
    }
}

/// Returns true if this protocol revision has core tasks, for which the client must ask.
pub(super) fn has_core_tasks(era: &ProtocolEra) -> bool {
    match era {
        ProtocolEra::Modern => false,
        ProtocolEra::Legacy { version } => version == CORE_TASKS,
    }
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamTaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl UpstreamTaskStatus {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "working" => Self::Working,
            "input_required" => Self::InputRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => return None,
        })
    }

    /// Returns true if the status cannot change any more.
    pub(super) fn is_final(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// The state of a task, as the server reported it.
#[derive(Debug)]
pub(super) struct UpstreamTaskState {
    pub(super) id: String,
    pub(super) status: UpstreamTaskStatus,
    /// The server's text about the status.
    pub(super) message: Option<String>,
    /// The wait before the next poll, within our limits.
    pub(super) pause: Duration,
    /// The inputs that the task needs. Only servers with the tasks extension send the inputs, the result and the error
    /// as part of the state.
    pub(super) inputs: BoundedObject<InputRequest, INPUTS_MAX>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskStateJson {
    task_id: Option<String>,
    status: Option<String>,
    status_message: Option<String>,
    poll_interval: Option<Value>,
    poll_interval_ms: Option<Value>,
    input_requests: Option<BoundedObject<InputRequest, INPUTS_MAX>>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

/// Returns the task that a server created instead of a result; `None` for a result.
pub(super) fn created(era: &ProtocolEra, raw: &RawValue) -> Result<Option<UpstreamTaskState>, ToolError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreatedTask<'a> {
        result_type: Option<String>,
        #[serde(borrow)]
        task: Option<&'a RawValue>,
    }
    // Almost no result is a task. This check avoids parsing all other results twice.
    if !raw.get().contains("\"taskId\"") {
        return Ok(None);
    }
    let reply: CreatedTask<'_> = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
    match (era, reply.task, reply.result_type.as_deref()) {
        (ProtocolEra::Legacy { .. }, Some(task), _) => state(task, None).map(Some),
        (ProtocolEra::Modern, _, Some("task")) => state(raw, None).map(Some),
        (ProtocolEra::Legacy { .. } | ProtocolEra::Modern, _, _) => Ok(None),
    }
}

/// Parses the state of a task. `expected` is the id of the task that the request was about.
pub(super) fn state(raw: &RawValue, expected: Option<&str>) -> Result<UpstreamTaskState, ToolError> {
    let sent: TaskStateJson = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
    let id = sent.task_id.filter(|id| !id.is_empty() && id.len() <= TASK_ID_BYTES_MAX).ok_or_else(|| {
        broken(format!(
            "the MCP server sent a task whose id is missing or has more than {TASK_ID_BYTES_MAX} bytes"
        ))
    })?;
    if let Some(expected) = expected.filter(|expected| **expected != id) {
        let (asked, sent) = (cut(expected, TEXT_CHARS_MAX), cut(&id, TEXT_CHARS_MAX));
        return Err(broken(format!(
            "the MCP server sent the state of the task `{sent}` when haft asked about `{asked}`"
        )));
    }
    let status = sent.status.unwrap_or_default();
    let status = UpstreamTaskStatus::of(&status).ok_or_else(|| {
        broken(format!("the MCP server sent the unknown task status `{}`", cut(&status, TEXT_CHARS_MAX)))
    })?;
    Ok(UpstreamTaskState {
        id,
        status,
        message: sent
            .status_message
            .filter(|text| !text.trim().is_empty())
            .map(|text| cut(&text, TEXT_CHARS_MAX)),
        pause: pause(sent.poll_interval.or(sent.poll_interval_ms).as_ref()),
        inputs: sent.input_requests.unwrap_or_default(),
        result: sent.result,
        error: sent.error.as_deref().map(message::error_of),
    })
}

/// Returns the id of the task that a request from the server belongs to, if it names one.
pub(super) fn related_task(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct RelatedParams {
        #[serde(rename = "_meta")]
        meta: Value,
    }
    let text = params?.get();
    // Search the text first: almost no request belongs to a task, and parsing large parameters takes time.
    if !text.contains(RELATED_TASK) {
        return None;
    }
    let params: RelatedParams = serde_json::from_str(text).ok()?;
    params.meta[RELATED_TASK]["taskId"].as_str().map(str::to_owned)
}

/// Returns the poll interval that the server names in milliseconds, within our limits.
fn pause(named: Option<&Value>) -> Duration {
    let Some(millis) = named.and_then(Value::as_f64) else { return POLL_PAUSE };
    let (min, max) = (POLL_PAUSE_MIN.as_secs_f64(), POLL_PAUSE_MAX.as_secs_f64());
    Duration::from_secs_f64((millis / 1_000.0).clamp(min, max))
}

fn unreadable(error: &serde_json::Error) -> ToolError {
    broken(format!("haft cannot parse the task of the MCP server: {error}"))
}

fn broken(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Failed, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    #[test]
    fn poll_interval_stays_within_the_limits() {
        let check = |named: Value, expected: Duration| assert_eq!(pause(Some(&named)), expected, "{named}");
        check(json!(0), POLL_PAUSE_MIN);
        check(json!(-5), POLL_PAUSE_MIN);
        check(json!(2_000), Duration::from_secs(2));
        check(json!(31_536_000_000_u64), POLL_PAUSE_MAX);
        check(json!(1e300), POLL_PAUSE_MAX);
        check(json!("soon"), POLL_PAUSE);
        assert_eq!(pause(None), POLL_PAUSE);
    }

    #[test]
    fn result_is_a_task_only_in_the_format_of_its_protocol_revision() {
        let old = ProtocolEra::Legacy { version: CORE_TASKS.into() };
        let core = json!({"task": {"taskId": "t", "status": "working", "pollInterval": 500}});
        let extension = json!({"resultType": "task", "taskId": "t", "status": "working"});
        let result = json!({"content": [{"type": "text", "text": "\"taskId\""}]});
        let check = |era: &ProtocolEra, reply: &Value, expected: Option<&str>| {
            let found = created(era, &raw(reply)).unwrap().map(|task| task.id);
            assert_eq!(found.as_deref(), expected, "{reply}");
        };
        check(&old, &core, Some("t"));
        check(&ProtocolEra::Modern, &extension, Some("t"));
        check(&old, &extension, None);
        check(&ProtocolEra::Modern, &core, None);
        check(&old, &result, None);
        check(&ProtocolEra::Modern, &result, None);
        assert_eq!(created(&old, &raw(&core)).unwrap().unwrap().pause, Duration::from_millis(500));
    }

    #[test]
    fn task_state_with_another_id_or_an_unknown_status_is_an_error() {
        let check = |sent: Value, expected: &str| {
            let error = state(&raw(&sent), Some("t")).unwrap_err().message;
            assert!(error.contains(expected), "{error}");
        };
        check(json!({"taskId": "other", "status": "working"}), "`other` when haft asked about `t`");
        check(json!({"taskId": "t", "status": "resting"}), "unknown task status `resting`");
        check(json!({"taskId": "t"}), "unknown task status ``");
        check(json!({"status": "working"}), "whose id is missing or");
        check(json!({"taskId": "x".repeat(2_000), "status": "working"}), "whose id is missing or");
        check(json!(7), "cannot parse the task");
    }

    #[test]
    fn task_of_a_request_is_read_from_its_metadata() {
        let named = json!({"_meta": {RELATED_TASK: {"taskId": "t"}}, "message": "?"});
        assert_eq!(related_task(Some(&raw(&named))).as_deref(), Some("t"));
        assert_eq!(related_task(Some(&raw(&json!({"message": RELATED_TASK})))), None);
        assert_eq!(related_task(None), None);
    }
}
