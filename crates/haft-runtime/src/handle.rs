//! `RunHandle`: watches and controls a run that a [`Runtime`](crate::Runtime) drives. Dropping the handle does not stop
//! the run.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures_util::future::BoxFuture;
use haft_core::approval::ApprovalId;
use haft_core::conversation::{Conversation, ToolReply};
use haft_core::elicitation::ElicitationAnswer;
use haft_core::naming::ToolIdentity;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::run::event::RunBill;
use haft_core::run::finish::RunFinish;
use haft_core::run::meter::Meter;
use haft_core::run::scope::{EndRequest, RunScope};
use haft_core::run::{AbortReason, RunError};
use haft_core::tool::{CallId, ToolCall, ToolDefinition};
use haft_engine::DriveOutcome;
use tokio::sync::{oneshot, watch};

use crate::event_log::{EventLog, EventSeq, RunEvents};
use crate::pending::{ApprovalDecision, DecideError, PendingApproval, PendingDecisions, PendingElicitation};
use crate::run_queue::QueuePlace;
use crate::runs::{ActiveRun, ClientFunctions, PreparedAgent};
use crate::runtime::{MemorySession, SuspendedRun};

/// A handle to a run. Clones are handles to the same run.
#[derive(Clone)]
pub struct RunHandle {
    shared: Arc<RunShared>,
}

/// The state of a run that a caller waits for.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// The run has ended, with or without an answer.
    Finished(Box<RunOutcome>),
    /// The run is parked: it waits for an answer from outside, such as an approval.
    Parked(ParkReason),
    /// [`RunHandle::suspend`] stopped the run; resume it to continue.
    Suspended,
}

/// The reason why a run waits.
#[derive(Debug, Clone, PartialEq)]
pub enum ParkReason {
    /// Calls that wait for approval. Decide with [`RunHandle::decide`].
    Approval(Vec<PendingApproval>),
    /// Elicitation requests of MCP servers. Answer with [`RunHandle::answer`].
    Elicitation(Vec<PendingElicitation>),
    /// Calls to the caller's functions. Run the functions and [`submit`](RunHandle::submit) their outputs.
    ClientOutputs(Vec<ToolCall>),
    /// Names of secrets that the run was started with and now lacks. Secrets are never stored, so resume the run with
    /// them.
    Credentials(Vec<String>),
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The answer, and the reason why the run ended.
    pub finish: RunFinish,
    /// The turns of the agent that ended the run; turns of agents that handed over the request are not counted.
    pub turns: u32,
    /// The cost of the whole run, with all its agents.
    pub bill: RunBill,
}

/// The reason why submitted outputs are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The run does not wait for outputs.
    #[error("the run is not waiting for function call outputs")]
    NotWaiting,
    /// The run does not wait for this call.
    #[error("the run is not waiting for an output of the call `{call}`")]
    UnknownCall {
        /// The id that the model gave the call.
        call: String,
    },
    /// The outputs contain two outputs of the same call.
    #[error("the submitted outputs contain two outputs of the call `{call}`")]
    Twice {
        /// The id that the model gave the call.
        call: String,
    },
}

/// The tools of an MCP server that the caller of a run named.
#[derive(Debug, Clone)]
pub struct ServerListing {
    /// The name that the caller gave the server.
    pub label: String,
    /// The tools of the server, or the reason why the server offers none.
    pub tools: Result<Arc<[ToolDefinition]>, String>,
}

pub(crate) struct RunShared {
    pub(crate) id: SessionId,
    pub(crate) principal: Principal,
    pub(crate) log: EventLog,
    pub(crate) desk: Arc<PendingDecisions>,
    client: ClientCallSlot,
    outcome: watch::Sender<Option<Arc<RunEnd>>>,
    stop: watch::Sender<StopRequest>,
    closed: watch::Sender<bool>,
    /// True after the run was admitted by the run queue.
    admitted: watch::Sender<bool>,
    /// The names of secrets that a resumed run lacks. The run is not driven until it gets them.
    lacks: Vec<String>,
    warnings: Arc<Mutex<Vec<String>>>,
    /// The tools of the MCP servers that the caller named.
    listings: Vec<ServerListing>,
    /// The agent with which the run began, for the identities of its tools.
    agent: Option<Arc<PreparedAgent>>,
    /// A weak reference, because the meter keeps the journal open, and a handle must not keep a finished session
    /// locked.
    meter: Weak<Meter>,
    end_request: Arc<EndRequest>,
    /// The messages of the agent that ended the run.
    conversation: OnceLock<Conversation>,
    /// The session while the run is driven, if it is only in memory; otherwise `None`.
    memory: Mutex<Option<MemorySession>>,
    /// The suspended run, if its session is only in memory.
    suspended: OnceLock<SuspendedRun>,
}

/// The result of driving a run: an outcome, an internal error, or a run that can be resumed.
#[derive(Debug)]
pub(crate) enum RunEnd {
    Outcome(Box<RunOutcome>),
    Defect(String),
    Suspended,
}

/// The caller's request to stop a run, ordered by strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopRequest {
    None,
    Suspend,
    Cancel,
}

/// An internal error of haft. It is never caused by a model or a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunDefect(pub String);

impl RunHandle {
    pub(crate) fn new(shared: Arc<RunShared>) -> Self {
        Self { shared }
    }

    /// Returns the session id of the run.
    pub fn id(&self) -> SessionId {
        self.shared.id
    }

    /// Returns the principal that the run works for. Only programs of this principal should get the handle.
    pub fn principal(&self) -> &Principal {
        &self.shared.principal
    }

    /// Returns the events of the run and of its sub-agents, beginning with this number: first the past ones, then the
    /// new ones.
    pub fn events(&self, from: EventSeq) -> RunEvents {
        self.shared.log.events(from)
    }

    /// Returns the meter of the run; `None` once the run is no longer driven.
    pub fn meter(&self) -> Option<Arc<Meter>> {
        self.shared.meter.upgrade()
    }

    /// Returns all messages of the run, including the request and the answer; `None` until the run has ended. After a
    /// handoff, returns the messages of the last agent.
    pub fn conversation(&self) -> Option<&Conversation> {
        self.shared.conversation.get()
    }

    /// Returns the tools of the MCP servers that the caller named, as they were when the run began.
    pub fn server_listings(&self) -> &[ServerListing] {
        &self.shared.listings
    }

    /// Returns the identity of a tool by its exposed name or by a name that a model wrote; `None` if the run has no such
    /// tool.
    pub fn tool_identity(&self, name: &str) -> Option<ToolIdentity> {
        self.shared.agent.as_ref()?.tool_identity(name)
    }

    /// Returns problems that do not stop the run, such as a tool in an agent file that does not exist.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decides whether a call that waits for approval is made.
    ///
    /// The journal stores the decision before the call is made. If the process ends before that, the run asks again. If
    /// the decision is to be remembered, it is in the grant store before the call is made.
    pub fn decide(&self, approval: ApprovalId, decision: ApprovalDecision) -> Result<(), DecideError> {
        self.shared.desk.decide(approval, decision)
    }

    /// Answers an elicitation request of an MCP server.
    pub fn answer(&self, elicitation: u64, answer: ElicitationAnswer) -> Result<(), DecideError> {
        self.shared.desk.answer(elicitation, answer)
    }

    /// Submits some or all outputs of the functions that the caller ran.
    pub fn submit(&self, outputs: Vec<ToolReply>) -> Result<(), SubmitError> {
        self.shared.client.submit(outputs)
    }

    /// Ends the run now. Cancels the calls in progress and records the end in the journal.
    pub fn cancel(&self) {
        self.shared.stop.send_replace(StopRequest::Cancel);
    }

    /// Ends the run before its next turn, with the reason `steered`. The model's reply in progress is completed, and all
    /// its calls are made, so the conversation is complete. A run whose reply has no calls ends as usual.
    pub fn end_after_turn(&self) {
        self.shared.end_request.make();
    }

    /// Returns true after [`cancel`](Self::cancel), even if the run had already stopped before.
    pub fn is_cancelled(&self) -> bool {
        *self.shared.stop.borrow() == StopRequest::Cancel
    }

    /// Stops driving the run without ending it: its journal stays open for [`resume`](crate::Runtime::resume), in this
    /// or another process. Suspend a run preferably while it is parked: a call in progress is interrupted, and the
    /// resumed run does not repeat a call that may have taken effect.
    pub fn suspend(&self) {
        self.shared.stop.send_modify(|stop| *stop = (*stop).max(StopRequest::Suspend));
    }

    /// Returns the whole run if it is suspended and its session is only in memory. Pass it to
    /// [`Runtime::resume_suspended`](crate::Runtime::resume_suspended) to continue.
    pub fn suspended_run(&self) -> Option<&SuspendedRun> {
        self.shared.suspended.get()
    }

    /// Returns the calls that wait for a decision, even if the run is suspended.
    pub fn pending_approvals(&self) -> Vec<PendingApproval> {
        self.shared.desk.approvals()
    }

    /// Returns the number of the first event since the run was started or resumed. A reader that starts at this number
    /// sees no event of an earlier process.
    pub fn first_event(&self) -> EventSeq {
        self.shared.log.first_of_process()
    }

    /// Waits until all events so far are stored, so that a reader in another process finds them.
    pub async fn events_stored(&self) {
        self.shared.log.flushed().await;
    }

    /// Waits until the run has finished or parks.
    pub async fn wait(&self) -> Result<RunState, RunDefect> {
        if !self.shared.lacks.is_empty() {
            return Ok(RunState::Parked(ParkReason::Credentials(self.shared.lacks.clone())));
        }
        let (mut desk, mut client) = (self.shared.desk.changes(), self.shared.client.changed.subscribe());
        let mut outcome = self.shared.outcome.subscribe();
        loop {
            if let Some(end) = outcome.borrow_and_update().clone() {
                return state_of(&end);
            }
            if let Some(reason) = self.parked() {
                return Ok(RunState::Parked(reason));
            }
            tokio::select! {
                _ = outcome.changed() => {}
                _ = desk.changed() => {}
                _ = client.changed() => {}
            }
        }
    }

    /// Waits until the run has finished, including any time in which it is parked. Returns an error if the run is
    /// suspended.
    pub async fn finished(&self) -> Result<RunOutcome, RunDefect> {
        match self.stopped().await? {
            RunState::Finished(outcome) => Ok(*outcome),
            RunState::Suspended => {
                Err(RunDefect("the run is suspended and has no outcome yet; resume the run".into()))
            }
            RunState::Parked(_) => Err(RunDefect("the run stopped before it finished".into())),
        }
    }

    /// Waits until the run is no longer driven: it has finished, or it is suspended.
    pub async fn stopped(&self) -> Result<RunState, RunDefect> {
        if !self.shared.lacks.is_empty() {
            let names = self.shared.lacks.join(", ");
            return Err(RunDefect(format!("the run cannot continue without these secrets: {names}")));
        }
        let mut outcome = self.shared.outcome.subscribe();
        // Waiting cannot fail, because this handle keeps the sender alive.
        let end = outcome.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.map_or_else(|| Err(RunDefect("the run stopped before it finished".into())), |end| state_of(&end))
    }

    /// Returns true if the run has been admitted by the run queue, so that it is driven or has ended.
    pub fn is_admitted(&self) -> bool {
        *self.shared.admitted.borrow()
    }

    /// Waits until the run leaves the run queue, because it was admitted or stopped.
    pub async fn admitted(&self) {
        let (mut admitted, mut outcome) = (self.shared.admitted.subscribe(), self.shared.outcome.subscribe());
        tokio::select! {
            _ = admitted.wait_for(|admitted| *admitted) => {}
            _ = outcome.wait_for(Option::is_some) => {}
        }
    }

    /// Waits until the run and all processes that it started, such as MCP servers, have ended.
    pub async fn closed(&self) {
        let mut closed = self.shared.closed.subscribe();
        // Waiting cannot fail, because this handle keeps the sender alive.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Returns true if the outcome is known. The MCP servers of the run may still be shutting down.
    pub fn is_finished(&self) -> bool {
        self.shared.outcome.borrow().is_some()
    }

    fn parked(&self) -> Option<ParkReason> {
        let approvals = self.shared.desk.approvals();
        if !approvals.is_empty() {
            return Some(ParkReason::Approval(approvals));
        }
        let elicitations = self.shared.desk.elicitations();
        if !elicitations.is_empty() {
            return Some(ParkReason::Elicitation(elicitations));
        }
        let calls = self.shared.client.pending();
        (!calls.is_empty()).then_some(ParkReason::ClientOutputs(calls))
    }
}

fn state_of(end: &RunEnd) -> Result<RunState, RunDefect> {
    match end {
        RunEnd::Outcome(outcome) => Ok(RunState::Finished(outcome.clone())),
        RunEnd::Defect(problem) => Err(RunDefect(problem.clone())),
        RunEnd::Suspended => Ok(RunState::Suspended),
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Selects whether the caller of the run executes functions for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerFunctions {
    None,
    OfCaller,
}

impl RunShared {
    pub(crate) fn new(
        id: SessionId,
        principal: Principal,
        log: EventLog,
        desk: Arc<PendingDecisions>,
    ) -> Self {
        Self {
            id,
            principal,
            log,
            desk,
            client: ClientCallSlot::default(),
            outcome: watch::Sender::new(None),
            stop: watch::Sender::new(StopRequest::None),
            closed: watch::Sender::new(false),
            admitted: watch::Sender::new(false),
            lacks: Vec::new(),
            warnings: Arc::default(),
            listings: Vec::new(),
            agent: None,
            meter: Weak::new(),
            end_request: Arc::default(),
            conversation: OnceLock::new(),
            memory: Mutex::default(),
            suspended: OnceLock::new(),
        }
    }

    pub(crate) fn with_scope(mut self, scope: &RunScope) -> Self {
        self.meter = Arc::downgrade(&scope.meter);
        self.end_request = Arc::clone(&scope.end_request);
        self
    }

    /// Sets the session of a run that leaves no files.
    pub(crate) fn in_memory(self, session: MemorySession) -> Self {
        Self { memory: Mutex::new(Some(session)), ..self }
    }

    /// Sets the tools of the MCP servers that the caller named.
    pub(crate) fn listing(mut self, listings: Vec<ServerListing>) -> Self {
        self.listings = listings;
        self
    }

    /// Sets the agent with which the run began.
    pub(crate) fn with_agent(mut self, agent: Arc<PreparedAgent>) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Marks a run that cannot continue without these secrets.
    pub(crate) fn lacking(mut self, names: Vec<String>) -> Self {
        self.lacks = names;
        self
    }

    /// Returns a function that adds a warning while the run is driven.
    pub(crate) fn warner(&self) -> impl Fn(String) + Send + Sync + 'static {
        let warnings = Arc::clone(&self.warnings);
        move |warning| warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning)
    }

    pub(crate) fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    /// Announces that the run was admitted and no longer waits in the queue.
    pub(crate) fn admit(&self) {
        self.admitted.send_replace(true);
    }

    /// Announces that the run and all processes that it started have ended.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Drives a run to its end and publishes the result.
    pub(crate) async fn drive(
        &self,
        mut run: Box<ActiveRun>,
        functions: CallerFunctions,
        mut place: QueuePlace,
    ) {
        let end = self.to_the_end(&mut run, functions, &mut place).await;
        // Release the journal before the result is published, because a caller may resume the run at once.
        drop(run);
        drop(place);
        self.end_memory_session(&end);
        self.log.close();
        self.log.flushed().await;
        self.outcome.send_replace(Some(Arc::new(end)));
    }

    /// Removes the session from memory. Keeps its content only if the run is suspended.
    fn end_memory_session(&self, end: &RunEnd) {
        let session = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (RunEnd::Suspended, Some(session)) = (end, session) {
            self.suspended.get_or_init(|| session.suspend());
        }
    }

    /// Waits for a slot in the run queue, and drives the run to its end. The time limits of the run do not include the
    /// wait.
    async fn drive_admitted(
        &self,
        run: &mut ActiveRun,
        client: &dyn ClientFunctions,
        place: &mut QueuePlace,
    ) -> Result<RunFinish, RunError> {
        run.parked_during(place.admitted()).await;
        self.admit();
        run.drive_to_end(client).await
    }

    async fn to_the_end(
        &self,
        run: &mut ActiveRun,
        functions: CallerFunctions,
        place: &mut QueuePlace,
    ) -> RunEnd {
        let mut stop = self.stop.subscribe();
        let client: &dyn ClientFunctions = match functions {
            CallerFunctions::None => &crate::runs::NoFunctions,
            CallerFunctions::OfCaller => &self.client,
        };
        // If the run was stopped before this point, for example before it was resumed, do not drive it: it must make no
        // request and no call.
        let is_stopped = *stop.borrow() != StopRequest::None;
        let driven = tokio::select! {
            biased;
            driven = self.drive_admitted(run, client, place), if !is_stopped => Some(driven),
            _ = stop.wait_for(|stop| *stop != StopRequest::None) => None,
        };
        if driven.is_none() && *self.stop.borrow() == StopRequest::Suspend {
            self.conversation.get_or_init(|| run.run().conversation().clone());
            return RunEnd::Suspended;
        }
        let finish = match driven {
            Some(finish) => finish,
            None => match run.abort(AbortReason::Interrupted).await {
                Ok(DriveOutcome::Done(finish)) => Ok(finish),
                Ok(DriveOutcome::AwaitsClient(_) | DriveOutcome::AwaitsApproval(_)) => {
                    return RunEnd::Defect(
                        "the run did not end after its cancellation; this is a bug in haft".into(),
                    );
                }
                Err(error) => Err(error),
            },
        };
        self.conversation.get_or_init(|| run.run().conversation().clone());
        match finish {
            Ok(finish) => RunEnd::Outcome(Box::new(RunOutcome {
                finish,
                turns: run.run().counts().turns,
                bill: run.bill(),
            })),
            Err(error) => RunEnd::Defect(error.to_string()),
        }
    }
}

/// The calls of functions that the caller executes, and the channel for their outputs.
type PendingCalls = (Vec<ToolCall>, oneshot::Sender<Vec<ToolReply>>);

/// Passes calls to the caller and waits for their outputs.
struct ClientCallSlot {
    pending: Mutex<Option<PendingCalls>>,
    changed: watch::Sender<u64>,
}

impl Default for ClientCallSlot {
    fn default() -> Self {
        Self { pending: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl ClientCallSlot {
    fn pending(&self) -> Vec<ToolCall> {
        self.lock().as_ref().map(|(calls, _)| calls.clone()).unwrap_or_default()
    }

    fn submit(&self, outputs: Vec<ToolReply>) -> Result<(), SubmitError> {
        let mut pending = self.lock();
        let Some((calls, _)) = pending.as_ref() else { return Err(SubmitError::NotWaiting) };
        let mut seen: Vec<&CallId> = Vec::new();
        for output in &outputs {
            let call = output.call.0.clone();
            if !calls.iter().any(|pending| pending.id == output.call) {
                return Err(SubmitError::UnknownCall { call });
            }
            if seen.contains(&&output.call) {
                return Err(SubmitError::Twice { call });
            }
            seen.push(&output.call);
        }
        if outputs.is_empty() {
            return Ok(());
        }
        if let Some((_, waiting)) = pending.take() {
            // Ignore the error: a cancelled run does not wait for outputs any more.
            let _ = waiting.send(outputs);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<PendingCalls>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientFunctions for ClientCallSlot {
    fn run<'a>(&'a self, calls: &'a [ToolCall]) -> BoxFuture<'a, Vec<ToolReply>> {
        let (sender, receiver) = oneshot::channel();
        *self.lock() = Some((calls.to_vec(), sender));
        self.changed.send_modify(|count| *count += 1);
        Box::pin(async move { receiver.await.unwrap_or_default() })
    }
}
