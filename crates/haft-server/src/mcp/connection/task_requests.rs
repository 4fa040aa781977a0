//! Requests about tasks in revision 2025-11-25. A client that waits for a result also gets the questions of the task.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::ClientConnection;
use super::calls::RequestedNotices;
use super::opened::OpenedClient;
use crate::mcp::era::RequestEra;
use crate::mcp::message::{self, ClientRequest, GatewayError};
use crate::mcp::tasks::{AwaitedTask, RESULT_PAUSE};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CoreTaskParams {
    task_id: String,
}

impl ClientConnection {
    /// Answers a request that does not wait.
    pub(super) fn core_task(self: &Arc<Self>, request: &ClientRequest) -> Result<String, GatewayError> {
        let tasks = &self.open_for(RequestEra::Handshake)?.shared.tasks;
        if request.method == "tasks/list" {
            return Ok(tasks.core_list());
        }
        let CoreTaskParams { task_id } = message::params(request.params.as_deref())?;
        match request.method.as_str() {
            "tasks/cancel" => tasks.core_cancel(&task_id),
            _ => tasks.core_state(&task_id),
        }
    }

    /// Replies with the result of a task as soon as it has ended.
    pub(super) async fn begin_task_result(
        self: &Arc<Self>,
        request: ClientRequest,
        notices: RequestedNotices,
    ) {
        let params = message::params::<CoreTaskParams>(request.params.as_deref());
        let opened = params.and_then(|params| Ok((params, self.open_for(RequestEra::Handshake)?)));
        let (params, opened) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let connection = Arc::clone(self);
        self.start(request, move |request| async move {
            let of_task = opened.shared.tasks.notices(&params.task_id).unwrap_or_default();
            let waiting = connection.task_result(&opened, &request.id, &params.task_id);
            let outcome = connection.with_notices(&of_task, (&request.id, notices), waiting).await;
            (request, outcome)
        })
        .await;
    }

    /// Waits for the end of a task, at most until its time is over.
    async fn task_result(
        &self,
        opened: &OpenedClient,
        request: &RawValue,
        task: &str,
    ) -> Result<String, GatewayError> {
        let tasks = &opened.shared.tasks;
        loop {
            match tasks.awaited(task)? {
                AwaitedTask::Finished(outcome) => return outcome,
                AwaitedTask::Working => sleep(RESULT_PAUSE).await,
                AwaitedTask::Asks(question) => {
                    let reply = tokio::select! {
                        reply = self.questions.pass_on(request, (task, &question)) => reply,
                        () = tasks.until_closed(task, &question.name) => continue,
                    };
                    match reply {
                        Some(reply) => tasks.answer(task, &question.name, reply),
                        // The question stays open, and this request asks again.
                        None => sleep(RESULT_PAUSE).await,
                    }
                }
            }
        }
    }
}
