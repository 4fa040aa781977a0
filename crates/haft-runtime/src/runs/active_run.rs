//! A request in progress: the agent that currently works on it, and the state of that agent's run.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use haft_core::approval::ApprovalId;
use haft_core::budget::ContextWindow as ContextBudget;
use haft_core::conversation::{Conversation, Media, Message, MessagePart, PartBody, ToolReply};
use haft_core::event::{Event, EventSink as _};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::position::{CallOperation, RunPosition};
use haft_core::provider::CallContext;
use haft_core::run::budget::SpendLimit;
use haft_core::run::context::RunContext;
use haft_core::run::event::{RunBill, RunEvent, RunStart, TextPurpose};
use haft_core::run::final_report::FinalReport;
use haft_core::run::finish::RunFinish;
use haft_core::run::input::RunInput;
use haft_core::run::meter::Meter;
use haft_core::run::park_clock::ParkClock;
use haft_core::run::scope::RunScope;
use haft_core::run::{AbortReason, AgentRun, CallDecision, RunError, RunPlan};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, Concurrency, DriveOutcome, Priority};
use serde_json::Value;
use tokio::time::Instant;

use super::caller_choice::CallerChoice;
use super::environment::RunSession;
use super::prepared_agent::PreparedAgent;
use super::{context, environment, lineage, relay};
use crate::recordings::{JournalSinks, RecordedCallId, RecordedStart};
use crate::spec::FunctionTool;
use haft_config::agents::AgentDefinition;
use haft_store::sessions::SessionError;

/// A request to an agent, with the budget, deadline and session that it runs under.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The text for the model. It is JSON for an agent with JSON input.
    pub request: String,
    /// The messages that the conversation begins with; empty if the request is the only message.
    pub opening: Vec<Message>,
    /// Images that belong to the request; only a root run has them.
    pub images: Vec<Media>,
    /// The principal, approver, output store and other state that belongs to this run alone.
    pub context: Arc<RunContext>,
    /// The session and turn of the run.
    pub place: RunPosition,
    /// The tool call that started this run; `None` for a root run.
    pub works_for: Option<Arc<CallOperation>>,
    /// The meter, budget and deadline of the run.
    pub scope: Arc<RunScope>,
    /// The priority of the run's calls in queues.
    pub priority: Priority,
    /// Selects whether the run's calls wait for slots of queues.
    pub concurrency: Concurrency,
    /// Events from before the start of the run, when its model was chosen. The journal stores them first.
    pub before: Vec<Event>,
    /// The tools that the caller lets the model call.
    pub choice: CallerChoice,
    /// The functions that the caller runs itself.
    pub functions: Vec<FunctionTool>,
    /// The stored spec of a root run, written to the start of its journal; null for sub-agents and handoffs.
    pub spec: Value,
}

impl RunRequest {
    /// Builds the request of a root run. `spent` is the cost of the model choice.
    pub fn first(
        prepared_agent: &PreparedAgent,
        request: String,
        place: RunPosition,
        context: Arc<RunContext>,
        spent: RunBill,
    ) -> Self {
        let agent = prepared_agent.agent();
        let began = Instant::now().into_std();
        let meter = Meter::resume_with_bill(Arc::clone(&context.events), agent.budget, spent);
        let before = Vec::new();
        let until = began + agent.times.run;
        let scope = RunScope::new(meter, vec![agent.name.clone()], began, until);
        let (priority, concurrency) = (Priority::default(), Concurrency::default());
        Self {
            request,
            opening: Vec::new(),
            images: Vec::new(),
            context,
            place,
            works_for: None,
            scope: Arc::new(scope),
            priority,
            concurrency,
            before,
            spec: Value::Null,
            choice: CallerChoice::default(),
            functions: Vec::new(),
        }
    }

    /// Builds the request of a sub-agent that a tool call starts. It gets its own session, and the remaining budget and
    /// time of the calling run.
    pub fn below(
        prepared_agent: &PreparedAgent,
        request: String,
        cx: &CallContext,
        above: &RunScope,
    ) -> Self {
        let operation = cx.operation();
        let session = lineage::below(operation.place.session, operation.place.turn, &cx.id);
        let place = operation.place.below(session, operation.id);
        let mut scope = within(prepared_agent.agent(), above);
        scope.until = cx.time_limit.map_or(scope.until, |limit| scope.until.min(limit.deadline));
        let (priority, concurrency) = (cx.priority, Concurrency::default());
        let works_for = Some(Arc::new(operation.clone()));
        let (before, context) = (Vec::new(), Arc::clone(&cx.run));
        Self {
            request,
            opening: Vec::new(),
            images: Vec::new(),
            context,
            place,
            works_for,
            scope: Arc::new(scope),
            priority,
            concurrency,
            before,
            spec: Value::Null,
            choice: CallerChoice::default(),
            functions: Vec::new(),
        }
    }

    /// Moves this request to a session of its own, for a call that starts several runs.
    #[must_use]
    pub(super) fn nth(mut self, number: usize) -> Self {
        self.place.session = lineage::nth(self.place.session, number);
        self
    }

    /// Builds the request for the agent that takes over after the request `before`. The new session has the same parent
    /// and uses the same budget.
    fn after(before: &Self, prepared_agent: &PreparedAgent, request: String) -> Self {
        let place = RunPosition { session: lineage::after(before.place.session), turn: 1, ..before.place };
        let end_request = Arc::clone(&before.scope.end_request);
        let scope = Arc::new(RunScope { end_request, ..within(prepared_agent.agent(), &before.scope) });
        let opening = Vec::new();
        Self { request, opening, place, scope, before: Vec::new(), spec: Value::Null, ..before.clone() }
    }
}

/// Returns the remaining budget and time of the parent run, reduced further where the agent sets lower limits.
fn within(agent: &AgentDefinition, above: &RunScope) -> RunScope {
    let began = Instant::now().into_std();
    let left = above.meter.left(above.elapsed(began));
    let budget = agent.budget.within(&SpendLimit { time: left.time, ..SpendLimit::default() });
    let path = above.path.iter().chain([&agent.name]).cloned().collect();
    RunScope {
        meter: above.meter.below(budget),
        path,
        began,
        until: above.deadline(began).min(began + agent.times.run),
        parked: above.parked.below(),
        end_request: Arc::default(),
    }
}

/// Returns the first message of the conversation: the text of the request and its images.
fn first_message(run_request: &RunRequest) -> Message {
    let mut message = Message::user(run_request.request.clone());
    message
        .parts
        .extend(run_request.images.iter().map(|image| MessagePart::new(PartBody::Image(image.clone()))));
    message
}

/// Returns the plan with the caller's tool choice and functions.
fn for_caller(plan: RunPlan, request: &RunRequest) -> RunPlan {
    let client_tools = request.functions.iter().map(|function| function.name.clone()).collect();
    request.choice.narrow(RunPlan { client_tools, ..plan })
}

/// Returns the tools of the agent, followed by the functions that the caller runs. A function hides a tool of the same
/// name.
pub(super) fn with_functions(tools: &Arc<[ModelTool]>, functions: &[FunctionTool]) -> Arc<[ModelTool]> {
    if functions.is_empty() {
        return Arc::clone(tools);
    }
    let hidden = |tool: &&ModelTool| functions.iter().all(|function| function.name != tool.name);
    let shown = |function: &FunctionTool| ModelTool {
        name: function.name.clone(),
        description: function.description.clone(),
        input_schema: Arc::clone(&function.parameters),
        strict: function.strict,
    };
    tools.iter().filter(hidden).cloned().chain(functions.iter().map(shown)).collect()
}

fn opening(run_request: &RunRequest) -> Vec<Message> {
    if run_request.opening.is_empty() {
        vec![first_message(run_request)]
    } else {
        run_request.opening.clone()
    }
}

/// Runs the functions that the caller provides.
pub trait ClientFunctions: Send + Sync {
    /// Returns the outputs of these calls, in any order.
    fn run<'a>(&'a self, calls: &'a [ToolCall]) -> BoxFuture<'a, Vec<ToolReply>>;
}

/// A caller that runs no functions. The model gets an error for every call of a function.
#[derive(Debug, Clone, Copy)]
pub struct NoFunctions;

impl ClientFunctions for NoFunctions {
    fn run<'a>(&'a self, calls: &'a [ToolCall]) -> BoxFuture<'a, Vec<ToolReply>> {
        let denied = |call: &ToolCall| {
            ToolReply::error(
                call,
                "the function has no result, because the caller of this run executes no functions",
            )
        };
        let replies = calls.iter().map(denied).collect();
        Box::pin(async move { replies })
    }
}

/// Marks the run as parked until this value is dropped, which also happens if the run is cancelled.
struct ParkedSpan(Arc<ParkClock>);

impl ParkedSpan {
    fn begin(scope: &RunScope) -> Self {
        scope.parked.park(Instant::now().into_std());
        Self(Arc::clone(&scope.parked))
    }
}

impl Drop for ParkedSpan {
    fn drop(&mut self) {
        self.0.unpark(Instant::now().into_std());
    }
}

/// A run together with the agent that drives it. If the caller drops the future of [`ActiveRun::drive`], the calls in
/// progress are cancelled, and this value still holds the state of the run.
#[derive(Debug)]
pub struct ActiveRun {
    pub(super) prepared_agent: Arc<PreparedAgent>,
    pub(super) run_request: RunRequest,
    pub(super) run: AgentRun,
    pub(super) options: CallOptions,
    /// The request to the first agent. A handoff passes this request on.
    pub(super) original: Arc<str>,
    /// The meter of the first agent's run. Agents that take over the request use the same meter.
    pub(super) account: Arc<Meter>,
    /// The reason why the session could not be stored; `None` if the session is stored, or if the run stores no
    /// session.
    pub(super) unkept: Option<SessionError>,
}

impl ActiveRun {
    /// Starts the run. Call this method once the tools are ready, because the model request lists them. If an earlier
    /// process left the session of this sub-agent unfinished, continues that session.
    pub async fn begin(
        prepared_agent: Arc<PreparedAgent>,
        mut run_request: RunRequest,
    ) -> Result<Self, RunError> {
        match prepared_agent.environment().session_for(&mut run_request, prepared_agent.agent()).await {
            RunSession::Left { past, journal } => {
                run_request.scope.meter.carry(past.bill);
                Self::resume_for_request(prepared_agent, run_request, *past, journal)
            }
            RunSession::New => {
                let mut run = Self::new(prepared_agent, run_request)?;
                let journal = run.open_session().await;
                run.start(journal, run.run_request.place.turn);
                // The journal and the recording contain the spec now. A run may last for hours, so free the memory.
                run.run_request.spec = Value::Null;
                Ok(run)
            }
        }
    }

    fn new(prepared_agent: Arc<PreparedAgent>, run_request: RunRequest) -> Result<Self, RunError> {
        let path = &run_request.scope.path;
        let context = prepared_agent.context(&run_request.context);
        let plan = prepared_agent.plan(&path[..path.len().saturating_sub(1)], &context);
        let mut plan = for_caller(plan, &run_request);
        plan.exposure = Some(prepared_agent.exposure(&plan, &context, run_request.functions.len()));
        let mut request = prepared_agent.request(&plan, &context);
        request.tools = with_functions(&request.tools, &run_request.functions);
        let mut conversation = Conversation::default();
        for message in opening(&run_request) {
            conversation.push(message).map_err(RunError::Misfit)?;
        }
        request.conversation = Arc::new(conversation);
        let budget = Self::context(&prepared_agent, &run_request, &plan, &request);
        Ok(Self::of(prepared_agent, run_request, AgentRun::new(request, plan), budget))
    }

    pub(super) fn context(
        prepared_agent: &PreparedAgent,
        run_request: &RunRequest,
        plan: &RunPlan,
        request: &ModelRequest,
    ) -> Option<Arc<ContextBudget>> {
        let counter = &prepared_agent.orchestrator().config().tokens;
        plan.limits.context.map(|limit| context::budget(limit, request, &run_request.request, counter))
    }

    pub(super) fn of(
        prepared_agent: Arc<PreparedAgent>,
        run_request: RunRequest,
        run: AgentRun,
        budget: Option<Arc<ContextBudget>>,
    ) -> Self {
        let options = CallOptions {
            context: prepared_agent.context(&run_request.context),
            place: run_request.place,
            priority: run_request.priority,
            concurrency: run_request.concurrency,
            budget,
            selection: prepared_agent.selection(),
            ..CallOptions::default()
        };
        let (original, account) = (run_request.request.as_str().into(), Arc::clone(&run_request.scope.meter));
        Self { prepared_agent, run_request, run, options, original, account, unkept: None }
    }

    /// Opens the journal of the run. A root run whose journal cannot be opened still runs, but cannot be resumed. A
    /// sub-agent then gets a journal that refuses every write: after a crash, the parent run could not know which calls
    /// the sub-agent made.
    async fn open_session(&mut self) -> JournalSinks {
        let opened = self
            .prepared_agent
            .environment()
            .open_session(&self.run_request, &self.prepared_agent, &self.run)
            .await;
        match opened {
            Some(Ok(journal)) => journal.into(),
            Some(Err(error)) if self.run_request.place.parent.is_some() => {
                lineage::LostJournal(error.to_string()).into()
            }
            Some(Err(error)) => {
                self.unkept = Some(error);
                JournalSinks::default()
            }
            None => JournalSinks::default(),
        }
    }

    /// Drives the run until the request is answered, or until it needs an approval or the caller's functions. An agent
    /// that receives the request or the answer by a handoff continues in the same loop.
    pub async fn drive(&mut self) -> Result<DriveOutcome, RunError> {
        loop {
            let Self { prepared_agent, run_request, run, options, .. } = self;
            let finish = match prepared_agent.driver(&run_request.scope, options).drive(run).await? {
                DriveOutcome::Done(finish) => finish,
                waits @ (DriveOutcome::AwaitsClient(_) | DriveOutcome::AwaitsApproval(_)) => {
                    return Ok(waits);
                }
            };
            let Some((next, request)) = relay::next(prepared_agent, &self.original, &finish) else {
                return Ok(DriveOutcome::Done(finish));
            };
            let run_request = RunRequest::after(&self.run_request, &next, request);
            let (original, account) = (Arc::clone(&self.original), Arc::clone(&self.account));
            *self = Self { original, account, ..Self::begin(next, run_request).await? };
        }
    }

    /// Drives the run to its end. The run's approver decides about calls that wait for approval; `client` runs the
    /// caller's functions.
    pub async fn drive_to_end(&mut self, client: &dyn ClientFunctions) -> Result<RunFinish, RunError> {
        loop {
            match self.drive().await? {
                DriveOutcome::Done(finish) => return Ok(finish),
                DriveOutcome::AwaitsApproval(calls) => {
                    let _parked = ParkedSpan::begin(&self.run_request.scope);
                    let mut decisions = self.decisions(calls);
                    while let Some((call, decision)) = decisions.next().await {
                        self.apply_input(RunInput::Decided { call, decision })?;
                    }
                }
                DriveOutcome::AwaitsClient(calls) => {
                    let _parked = ParkedSpan::begin(&self.run_request.scope);
                    let outputs = client.run(&calls).await;
                    self.apply_input(RunInput::ClientReplied(outputs))?;
                }
            }
        }
    }

    /// Pauses the deadline and the time budget of the run until `wait` completes.
    pub(crate) async fn parked_during(&self, wait: impl Future<Output = ()>) {
        let _parked = ParkedSpan::begin(&self.run_request.scope);
        wait.await;
    }

    /// Requests the decisions about all calls at the same time, and returns each decision when it arrives.
    fn decisions(
        &self,
        calls: Vec<ToolCall>,
    ) -> FuturesUnordered<BoxFuture<'static, (CallId, CallDecision)>> {
        let place = self.position();
        let approver = self.options.context.approver.clone();
        let decision = |call: ToolCall| -> BoxFuture<'static, (CallId, CallDecision)> {
            let approver = approver.clone();
            Box::pin(async move {
                let id = ApprovalId::of_call(place, &call.id);
                let decision = match approver {
                    Some(approver) => approver.resolve(id, place, &call).await,
                    None => CallDecision::Deny,
                };
                (call.id, decision)
            })
        };
        calls.into_iter().map(decision).collect()
    }

    /// Returns the session and turn of the calls in progress. A resumed session continues its turn numbers.
    pub(super) fn position(&self) -> RunPosition {
        let before = self.options.place.turn.saturating_sub(1);
        RunPosition { turn: before.saturating_add(self.run.counts().turns.max(1)), ..self.options.place }
    }

    /// Returns the agent that works on the request now.
    pub fn prepared_agent(&self) -> &Arc<PreparedAgent> {
        &self.prepared_agent
    }

    /// Returns the request that the run works on.
    pub fn run_request(&self) -> &RunRequest {
        &self.run_request
    }

    /// Returns the state of the current agent's run.
    pub fn run(&self) -> &AgentRun {
        &self.run
    }

    /// Ends the run now and records the end in the journal. Drop the future that drives the run first.
    pub async fn abort(&mut self, why: AbortReason) -> Result<DriveOutcome, RunError> {
        let Self { prepared_agent, run_request, run, options, .. } = self;
        prepared_agent.driver(&run_request.scope, options).abort(run, why).await
    }

    /// Passes an input from outside to the run and records it in the journal.
    pub fn apply_input(&mut self, input: RunInput) -> Result<(), RunError> {
        let Self { prepared_agent, run_request, run, options, .. } = self;
        prepared_agent.driver(&run_request.scope, options).apply_input(run, input)
    }

    /// Returns the reason why the session of the run could not be stored, if this failed.
    pub fn unkept(&self) -> Option<&SessionError> {
        self.unkept.as_ref()
    }

    /// Returns the cost so far, with all sub-agents.
    pub fn bill(&self) -> RunBill {
        self.account.bill()
    }

    /// Records the start of the run, if the run is recorded. Call this method before any other part of the run is
    /// recorded. The returned journal records the rest.
    fn recorded(&self, stored: JournalSinks, place: RunPosition, began: &RunStart) -> JournalSinks {
        let Some(recorder) = self.prepared_agent.environment().recorder() else { return stored };
        let RunStart { path, model: _, request, tools, speaks: _ } = began.clone();
        let works_for = self.run_request.works_for.as_deref();
        let timeout = self.prepared_agent.agent().times.llm;
        let start = RecordedStart {
            turn: place.turn,
            works_for: works_for.map(|operation| RecordedCallId::of(operation.place, &operation.call)),
            path,
            request,
            tools,
            reply_timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        recorder.begin(
            place,
            environment::opened(&self.run_request, &self.prepared_agent, &self.run),
            start,
            stored,
        )
    }

    fn speaks(&self) -> TextPurpose {
        match (&self.run.plan().report, &self.prepared_agent.links().handoff) {
            (FinalReport::None, None) => TextPurpose::Answer,
            (
                FinalReport::None | FinalReport::Text(_) | FinalReport::Tool(_) | FinalReport::Xml { .. },
                _,
            ) => TextPurpose::Draft,
        }
    }

    /// Attaches the journal of the run, and tells watchers that the run begins in this turn.
    pub(super) fn start(&mut self, stored: JournalSinks, turn: u32) {
        let before = std::mem::take(&mut self.run_request.before);
        let RunRequest { request, place, scope, .. } = &self.run_request;
        let shown = self.run.tools().iter();
        let began = RunStart {
            path: scope.path.clone(),
            model: self.prepared_agent.model().to_string(),
            request: request.clone(),
            tools: shown.map(|tool| tool.name.clone()).collect(),
            speaks: self.speaks(),
        };
        let place = RunPosition { turn, ..*place };
        let JournalSinks { inputs, events } = self.recorded(stored, place, &began);
        if let Some(journal) = events {
            for event in before {
                journal.emit(event);
            }
            scope.meter.set_keeper(journal);
        }
        self.options.journal = inputs;
        scope.meter.emit(Event::Run { place, event: Arc::new(RunEvent::Began(began)) });
    }
}
