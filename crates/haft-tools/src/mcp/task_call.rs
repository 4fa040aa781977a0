//! Follows a task of a server to its end: polls its state, answers its questions, fetches its result, and cancels the
//! task if the caller no longer waits.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use haft_core::event::CallProgress;
use haft_core::result::{ToolError, ToolErrorKind};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use super::call::{self, CallError, McpExchange, quoted};
use super::content::InputRequired;
use super::era::ProtocolEra;
use super::host::Host;
use super::param_header::encoded;
use super::peer::{FollowedProgress, Peer, PeerRequest};
use super::session::McpSession;
use super::task::{self, UpstreamTaskState, UpstreamTaskStatus};

/// The timeout of a request for the result of a task that has not ended. The polls show whether the server is alive.
const RESULT_PATIENCE: Duration = Duration::from_hours(24);

/// The number of failed polls in a row after which a task counts as lost. A proxy may fail for a moment while the task
/// continues.
const POLL_FAILURES_MAX: usize = 3;

/// The wait after a failed poll.
const POLL_AGAIN: Duration = Duration::from_secs(1);

/// A task that an MCP server created for a tool call.
pub(super) struct UpstreamTask<'a> {
    session: &'a McpSession,
    host: &'a Host,
    exchange: &'a McpExchange<'a>,
    id: String,
    /// The headers of every request about the task.
    headers: Vec<(String, String)>,
}

/// Follows a task to its end, and returns the result of its call. Dropping the future cancels the task.
pub(super) async fn finish(
    (session, host): (&McpSession, &Host),
    exchange: &McpExchange<'_>,
    created: UpstreamTaskState,
    mut progress: FollowedProgress<'_>,
) -> Result<Box<RawValue>, CallError> {
    exchange.in_flight.set_task(&created.id);
    let headers = match session.era {
        ProtocolEra::Legacy { .. } => Vec::new(),
        ProtocolEra::Modern => vec![("mcp-name".to_owned(), encoded(&created.id))],
    };
    let task = UpstreamTask { session, host, exchange, id: created.id.clone(), headers };
    let guard = CancelTaskOnDrop { peer: &session.peer, task: Some(&task) };
    let work = async {
        match session.era {
            ProtocolEra::Legacy { .. } => task.follow_core(created).await,
            ProtocolEra::Modern => task.follow_extension(created).await,
        }
    };
    let (outcome, end) = tokio::select! {
        biased;
        followed = work => followed,
        never = progress.forward(exchange.progress) => match never {},
    };
    match end {
        TaskEnd::Ended => guard.disarm(),
        TaskEnd::Abandoned => drop(guard),
    }
    outcome
}

/// States whether the server still works on a task after its call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    Ended,
    Abandoned,
}

type FollowedTask = (Result<Box<RawValue>, CallError>, TaskEnd);

type ResultRequest<'a> = Pin<Box<dyn Future<Output = Result<Box<RawValue>, CallError>> + Send + 'a>>;

impl UpstreamTask<'_> {
    /// Follows a task of revision 2025-11-25. While the task needs input, a request for its result must be open,
    /// because the server sends its questions on the stream of this request.
    async fn follow_core(&self, mut state: UpstreamTaskState) -> FollowedTask {
        let mut told = None;
        let mut early: Option<ResultRequest<'_>> = None;
        let mut may_ask_early = true;
        while !state.status.is_final() {
            self.tell(&state, &mut told);
            if state.status == UpstreamTaskStatus::InputRequired && may_ask_early {
                may_ask_early = false;
                early = Some(Box::pin(self.result(RESULT_PATIENCE)));
            }
            match paused(state.pause, &mut early).await {
                Some(Ok(raw)) => return (Ok(raw), TaskEnd::Ended),
                // The server may refuse to send the result before the task has ended. Ignore the error, because the
                // polls show how the task ends.
                Some(Err(_)) => early = None,
                None => {}
            }
            state = match self.poll().await {
                Ok(state) => state,
                Err(error) => return (Err(error), TaskEnd::Abandoned),
            };
        }
        if state.status == UpstreamTaskStatus::Cancelled {
            return (Err(cancelled(state.message.as_deref())), TaskEnd::Ended);
        }
        let patience = self.exchange.patience;
        let result = early.unwrap_or_else(|| Box::pin(self.result(patience)));
        let outcome = timeout(patience, result).await.unwrap_or(Err(CallError::Silent(patience)));
        (outcome, TaskEnd::Ended)
    }

    /// Follows a task of the extension, whose state contains its questions and its result.
    async fn follow_extension(&self, mut state: UpstreamTaskState) -> FollowedTask {
        let mut told = None;
        let mut answered = HashSet::new();
        while !state.status.is_final() {
            self.tell(&state, &mut told);
            let inputs = std::mem::take(&mut state.inputs);
            let asked = InputRequired { input_requests: inputs, request_state: None };
            if let Err(error) = self.answer(asked, &mut answered).await {
                return (Err(error), TaskEnd::Abandoned);
            }
            sleep(state.pause).await;
            state = match self.poll().await {
                Ok(state) => state,
                Err(error) => return (Err(error), TaskEnd::Abandoned),
            };
        }
        let outcome = match (state.status, state.result, state.error) {
            (UpstreamTaskStatus::Cancelled, _, _) => Err(cancelled(state.message.as_deref())),
            (UpstreamTaskStatus::Failed, _, Some(error)) => {
                Err(CallError::Rpc(self.session.peer.redacted(error)))
            }
            (UpstreamTaskStatus::Failed, None, None) => Err(failed(state.message.as_deref())),
            (_, Some(result), _) => Ok(result),
            (_, None, _) => Err(tool_error("the MCP server completed the task without a result".into())),
        };
        (outcome, TaskEnd::Ended)
    }

    /// Reports the server's message about the task as progress, if the message differs from the last reported one.
    fn tell(&self, state: &UpstreamTaskState, told: &mut Option<String>) {
        if state.message.is_some() && *told != state.message {
            told.clone_from(&state.message);
            let message = state.message.clone().unwrap_or_default();
            (self.exchange.progress)(CallProgress::Message(message));
        }
    }

    /// Answers the questions of a task that were not answered before.
    async fn answer(
        &self,
        mut asked: InputRequired,
        answered: &mut HashSet<String>,
    ) -> Result<(), CallError> {
        asked.input_requests.members.retain(|(name, _)| !answered.contains(name));
        if asked.input_requests.members.is_empty() && asked.input_requests.more == 0 {
            return Ok(());
        }
        let names = asked.input_requests.members.iter().map(|(name, _)| name.clone());
        answered.extend(names);
        let answers =
            call::inputs(&asked, self.host, self.exchange.in_flight).await.map_err(CallError::Tool)?;
        // Fail the call, because the server would wait for an answer that never comes.
        if answers.left_out > 0 {
            let message =
                "the task of the MCP server needs input that haft does not provide, so haft cancelled it";
            return Err(tool_error(message.into()));
        }
        let fields = format!("{}{}", self.fields(), answers.fields);
        self.request("tasks/update", fields, self.exchange.patience).await.map(drop)
    }

    /// Asks for the state of the task.
    async fn poll(&self) -> Result<UpstreamTaskState, CallError> {
        let mut failures = 0;
        loop {
            match self.request("tasks/get", self.fields(), self.exchange.patience).await {
                Ok(raw) => return task::state(&raw, Some(&self.id)).map_err(CallError::Tool),
                Err(error) if is_momentary(&error) && failures + 1 < POLL_FAILURES_MAX => {
                    failures += 1;
                    sleep(POLL_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn result(&self, patience: Duration) -> Result<Box<RawValue>, CallError> {
        self.request("tasks/result", self.fields(), patience).await
    }

    fn fields(&self) -> String {
        format!("\"taskId\":{}", quoted(&self.id))
    }

    async fn request(
        &self,
        method: &'static str,
        fields: String,
        patience: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let mut ask = PeerRequest::new(method, fields, patience);
        ask.headers.clone_from(&self.headers);
        ask.trace_parent.clone_from(&self.exchange.trace_parent);
        ask.call = Some(Arc::clone(self.exchange.in_flight));
        self.session.peer.request(ask).await.map_err(|error| in_task(call::failed(error)))
    }
}

/// Waits for the next poll, or for the reply to an open request for the result.
async fn paused(
    pause: Duration,
    early: &mut Option<ResultRequest<'_>>,
) -> Option<Result<Box<RawValue>, CallError>> {
    if let Some(early) = early {
        return timeout(pause, early.as_mut()).await.ok();
    }
    sleep(pause).await;
    None
}

/// Returns true for a failure after which the next poll may succeed.
fn is_momentary(error: &CallError) -> bool {
    match error {
        CallError::Tool(error) => error.kind == ToolErrorKind::Unavailable,
        CallError::Silent(_)
        | CallError::Rpc(_)
        | CallError::NeedsAuth(_)
        | CallError::SessionExpired
        | CallError::Lost(_) => false,
    }
}

/// Converts a failure during a task. The server has begun the work, so the call must never be repeated.
fn in_task(error: CallError) -> CallError {
    match error {
        CallError::SessionExpired => {
            CallError::Lost("the session expired while the MCP server worked on the task".into())
        }
        CallError::NeedsAuth(reason) => CallError::Lost(reason),
        error @ (CallError::Tool(_) | CallError::Rpc(_) | CallError::Silent(_) | CallError::Lost(_)) => error,
    }
}

fn cancelled(message: Option<&str>) -> CallError {
    let reason = message.map(|message| format!(": {message}")).unwrap_or_default();
    tool_error(format!("the MCP server cancelled the task{reason}"))
}

fn failed(message: Option<&str>) -> CallError {
    let reason = message.unwrap_or("the server gave no reason");
    tool_error(format!("the task of the MCP server failed: {reason}"))
}

fn tool_error(message: String) -> CallError {
    CallError::Tool(ToolError::new(ToolErrorKind::Failed, message))
}

/// Cancels a task on drop, unless it has ended.
struct CancelTaskOnDrop<'a> {
    peer: &'a Peer,
    task: Option<&'a UpstreamTask<'a>>,
}

impl CancelTaskOnDrop<'_> {
    fn disarm(mut self) {
        self.task = None;
    }
}

impl Drop for CancelTaskOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            // Do not wait for the reply: the caller has gone, and haft does not need the state of the task any more.
            self.peer.send_unawaited("tasks/cancel", &task.fields(), &task.headers);
        }
    }
}
