//! The requests of a client that take time: each runs in its own task, can be cancelled, and is answered once.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::approval::ApprovalId;
use haft_core::arguments::RawArguments;
use haft_core::digest::Digest;
use haft_core::result::ToolResult;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::CallOptions;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::ClientConnection;
use super::tools::{ClientTools, abilities_of};
use crate::mcp::era::RequestEra;
use crate::mcp::held::{AbortOnDrop, DetachedCall, DetachedStep};
use crate::mcp::message::{self, ClientRequest, GatewayError, INTERNAL_ERROR, INVALID_REQUEST};
use crate::mcp::progress::{HEARTBEAT_PAUSE, WatchedProgress};
use crate::mcp::result::{DeclaredOutput, call_result};

/// The most requests that a client may have open. More would only fill the memory.
const REQUESTS_OPEN_MAX: usize = 1_024;

/// The open requests of a client, by id.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    open: Mutex<HashMap<String, AbortHandle>>,
    next: AtomicU64,
}

/// The reason why a request was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartRefusal {
    IdInUse,
    TooMany,
}

impl CallTable {
    /// Cancels a request. It gets no reply.
    pub(super) fn cancel(&self, id: &RawValue) {
        if let Some(task) = self.open().remove(id.get()) {
            task.abort();
        }
    }

    pub(super) fn cancel_all(&self) {
        self.open().drain().for_each(|(_, task)| task.abort());
    }

    /// Spawns the task of a request. The table stays locked until the task is in it, so that a task that ends at once
    /// finds itself there.
    fn start(
        &self,
        id: &RawValue,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), StartRefusal> {
        let mut open = self.open();
        if open.contains_key(id.get()) {
            return Err(StartRefusal::IdInUse);
        }
        if open.len() >= REQUESTS_OPEN_MAX {
            return Err(StartRefusal::TooMany);
        }
        open.insert(id.get().to_owned(), tokio::spawn(task).abort_handle());
        Ok(())
    }

    /// Ends a request. Returns false if it was cancelled, so that it gets no reply.
    fn end(&self, id: &RawValue) -> bool {
        self.open().remove(id.get()).is_some()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parameters of `tools/call`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallParams {
    name: String,
    arguments: Option<Box<RawValue>>,
    #[serde(default)]
    input_responses: Map<String, Value>,
    request_state: Option<String>,
}

impl CallParams {
    fn arguments(&self) -> &str {
        self.arguments.as_ref().map_or("{}", |arguments| arguments.get())
    }

    /// Identifies the call that a repeated request continues.
    fn digest(&self) -> Digest {
        Digest::of_parts([self.name.as_bytes(), self.arguments().as_bytes()])
    }
}

impl ClientConnection {
    /// Runs a request in a task of its own and replies with its outcome.
    pub(super) async fn start<F>(
        self: &Arc<Self>,
        request: ClientRequest,
        work: impl FnOnce(ClientRequest) -> F + Send + 'static,
    ) where
        F: Future<Output = (ClientRequest, Result<String, GatewayError>)> + Send + 'static,
    {
        let connection = Arc::clone(self);
        let id = request.id.clone();
        let started = self.calls.start(&id, async move {
            let (request, outcome) = work(request).await;
            if connection.calls.end(&request.id) {
                match outcome {
                    Ok(result) => connection.send(message::success(&request.id, &result)).await,
                    Err(error) => connection.fail(Some(&request.id), &error).await,
                }
            }
        });
        if let Err(refusal) = started {
            self.refuse(&id, refusal).await;
        }
    }

    async fn refuse(&self, id: &RawValue, refusal: StartRefusal) {
        match refusal {
            // Without the id: the reply to the first request with this id must stay the only one.
            StartRefusal::IdInUse => {
                let message = format!("the id {} belongs to a request that is still open", id.get());
                self.fail(None, &GatewayError::new(INVALID_REQUEST, message)).await;
            }
            StartRefusal::TooMany => {
                let message = format!("a client may have at most {REQUESTS_OPEN_MAX} open requests");
                self.fail(Some(id), &GatewayError::new(INTERNAL_ERROR, message)).await;
            }
        }
    }

    /// Runs a request that ends only by its cancellation, and gets no reply.
    pub(super) async fn start_silent(
        self: &Arc<Self>,
        id: &RawValue,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        if let Err(refusal) = self.calls.start(id, work) {
            self.refuse(id, refusal).await;
        }
    }

    pub(super) async fn begin_call(
        self: &Arc<Self>,
        request: ClientRequest,
        era: RequestEra,
        progress: Option<Box<RawValue>>,
    ) {
        let params: CallParams = match message::params(request.params.as_deref()) {
            Ok(params) => params,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let tools = self.open(abilities_of(era));
        let connection = Arc::clone(self);
        self.start(request, move |request| async move {
            let outcome = connection.call(&tools, params, era, progress).await;
            (request, outcome)
        })
        .await;
    }

    async fn call(
        self: &Arc<Self>,
        tools: &Arc<ClientTools>,
        params: CallParams,
        era: RequestEra,
        progress: Option<Box<RawValue>>,
    ) -> Result<String, GatewayError> {
        if tools.orchestrator.catalog().resolve(&params.name).is_err() {
            // The server of the tool may still be starting.
            tools.until_ready(self.gateway.ready_wait).await;
        }
        let id = format!("mcp-{}", self.calls.next.fetch_add(1, Ordering::Relaxed));
        let watched = self.progress.watch(&id, progress);
        let beats = beat(watched.as_ref());
        let work = async {
            match era {
                RequestEra::Handshake => {
                    let result = execute(tools, &params, id.clone(), self.options(tools)).await;
                    self.result_json(tools, &result, era)
                }
                RequestEra::Stateless(_) => self.call_in_rounds(tools, params, id.clone(), era).await,
            }
        };
        tokio::select! {
            biased;
            outcome = work => outcome,
            never = beats => match never {},
        }
    }

    /// Makes a call that may ask the client in its reply, or continues one with the client's answer.
    async fn call_in_rounds(
        self: &Arc<Self>,
        tools: &Arc<ClientTools>,
        params: CallParams,
        id: String,
        era: RequestEra,
    ) -> Result<String, GatewayError> {
        let mut call = match &params.request_state {
            Some(state) => self.held.resume(state, params.digest(), &params.input_responses)?,
            None => self.detach(tools, params, id),
        };
        match call.step().await {
            DetachedStep::Finished(result) => self.result_json(tools, &result, era),
            DetachedStep::Asks(question) => {
                let state = uuid::Uuid::new_v4().simple().to_string();
                Ok(self.held.hold(call, question, state).to_string())
            }
            DetachedStep::Lost => Err(GatewayError::new(INTERNAL_ERROR, "the call was cancelled")),
        }
    }

    /// Runs a call in a task that outlives its request.
    fn detach(self: &Arc<Self>, tools: &Arc<ClientTools>, params: CallParams, id: String) -> DetachedCall {
        let (finished, result) = oneshot::channel();
        let (ask, questions) = mpsc::channel(1);
        let approval = ApprovalId::of_call(tools.place, &CallId(id.clone()));
        let carrying = self.questions.carry(approval, ask);
        let request = params.digest();
        let (tools, options) = (Arc::clone(tools), self.options(tools));
        let task = tokio::spawn(async move {
            // The request that waits for the result may be gone.
            let _ = finished.send(execute(&tools, &params, id, options).await);
        });
        DetachedCall {
            result,
            questions,
            _task: AbortOnDrop(task.abort_handle()),
            _carrying: carrying,
            request,
        }
    }

    fn options(&self, tools: &ClientTools) -> CallOptions {
        CallOptions {
            context: Arc::clone(&tools.context),
            place: tools.place,
            selection: self.gateway.selection.clone(),
            ..CallOptions::default()
        }
    }

    fn result_json(
        &self,
        tools: &ClientTools,
        result: &ToolResult,
        era: RequestEra,
    ) -> Result<String, GatewayError> {
        let tool = tools.orchestrator.catalog().resolve(&result.call.name);
        let declared = match tool {
            Ok(tool) if tool.definition().output_schema.is_some() => DeclaredOutput::Structured,
            Ok(_) | Err(_) => DeclaredOutput::Content,
        };
        let hint =
            result.outcome.as_ref().err().and_then(|error| (self.gateway.hints)(error, &result.call.name));
        call_result(result, declared, hint, era)
    }
}

async fn execute(tools: &ClientTools, params: &CallParams, id: String, options: CallOptions) -> ToolResult {
    let arguments = RawArguments::from_text(params.arguments());
    let call = ToolCall { id: CallId(id), name: params.name.clone(), arguments };
    tools.orchestrator.execute_with(call, options).await
}

/// Sends heartbeats for ever.
async fn beat(watched: Option<&WatchedProgress<'_>>) -> std::convert::Infallible {
    let Some(watched) = watched else { return std::future::pending().await };
    let mut ticks = interval(HEARTBEAT_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        watched.beat();
    }
}
