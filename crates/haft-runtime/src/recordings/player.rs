//! Replays a recorded run: uses the same driver, with recorded models, tools and clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use futures_util::{FutureExt, StreamExt};
use haft_core::conversation::ToolReply;
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_request::ModelRequest;
use haft_core::naming::NamingScheme;
use haft_core::position::{CallOperation, OperationId, RunPosition, SessionId};
use haft_core::provider::Principal;
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::budget::SpendLimit;
use haft_core::run::event::{RunBill, RunEvent, RunStart, TextPurpose};
use haft_core::run::final_report::FinalReport;
use haft_core::run::finish::RunFinish;
use haft_core::run::input::{ArchiveOutcome, RunInput};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::{AgentRun, CallDecision, DriverReadings, RunError};
use haft_core::tool::ToolCall;
use haft_engine::drive::reply_timeout_error;
use haft_engine::{
    CallOptions, Catalog, DriveOutcome, Orchestrator, OrchestratorConfig, RunDriver, RunObserver,
    ToolListChange,
};
use haft_models::cassette::{MatchRule, Recording, RecordingError, Replayer};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::call_event::RecordedCallEvent;
use super::line::{RecordedCallId, RecordedStart, RunStartLine};
use super::order::RecordedOrderSink;
use super::remaining::{RecordedCall, RemainingRecording};

/// The timeout of replayed runs. A replay never waits for the outside world, so only a replay of an inconsistent
/// recording takes so long.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The minimum number of polls without a new event after which the player considers a run or call idle. Only work that
/// the recorded run abandoned waits for this; all other work proceeds at once.
const QUIET_AFTER_POLLS: usize = 64;

/// The maximum nesting depth of runs that have idle thresholds of their own.
const DEPTH_MAX: usize = 32;

/// The kinds of work that a recorded run may have abandoned.
enum AbandonedWork {
    Run,
    Call,
}

/// A recorded run with all its sub-agents. Clones share the state.
#[derive(Debug, Clone)]
pub struct RunPlayer(Arc<PlayerShared>);

#[derive(Debug)]
struct PlayerShared {
    models: Replayer,
    /// An orchestrator without tools, because the results of calls come from the recording.
    orchestrator: Orchestrator,
    left: RemainingRecording,
    conductor: Arc<RecordedOrderSink>,
    operations: AtomicU64,
}

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayOutcome {
    /// The session of the recorded root run.
    pub session: SessionId,
    /// The answer, and the reason why the run ended.
    pub finish: RunFinish,
    /// The turns of the agent that ended the run.
    pub turns: u32,
    /// The cost of the recorded run with its sub-agents.
    pub bill: RunBill,
    /// The time that the recorded run took, not the time of the replay.
    pub took: Duration,
    /// The exit code of the program, if a signal or a closed pipe ended the run.
    pub stopped_by: Option<u8>,
    /// The first difference between the replay and the recorded run.
    pub difference: Option<String>,
}

/// The caller of a run: the tool call that started the run, and the meter to which the run adds its cost.
struct ParentCall<'a> {
    works_for: Option<&'a RecordedCallId>,
    parent: Option<OperationId>,
    origin: Option<SessionId>,
    account: ReplayMeter,
}

/// The meter of a replayed run: an existing meter, or a new one.
enum ReplayMeter {
    Own(Arc<Meter>),
    /// A new meter whose parent is this meter.
    Below(Arc<Meter>),
}

impl ReplayMeter {
    /// Returns the meter, without a budget: the recording already contains the remaining budget at each step.
    fn meter(self) -> Arc<Meter> {
        match self {
            Self::Own(meter) => meter,
            Self::Below(meter) => meter.below(SpendLimit::default()),
        }
    }
}

/// Selects whether another agent takes over the request after this run.
#[derive(Clone, Copy)]
enum NextAgent {
    Another,
    Nobody,
}

fn speaks(run: &AgentRun, after: NextAgent) -> TextPurpose {
    match (&run.plan().report, after) {
        (FinalReport::None, NextAgent::Nobody) => TextPurpose::Answer,
        (FinalReport::None | FinalReport::Text(_) | FinalReport::Tool(_) | FinalReport::Xml { .. }, _) => {
            TextPurpose::Draft
        }
    }
}

fn began(beginning: &RunStartLine, place: RunPosition, speaks: TextPurpose) -> Event {
    let RunStartLine { model, start, .. } = beginning.clone();
    let RecordedStart { path, request, tools, .. } = start;
    let began = RunStart { path, model, request, tools, speaks };
    Event::Run { place, event: Arc::new(RunEvent::Began(began)) }
}

/// The end of a replayed run.
struct ReplayedEnd {
    finish: RunFinish,
    turns: u32,
}

impl RunPlayer {
    /// Builds a player. The watchers receive events in the recorded order.
    pub fn of(recording: &Recording, watchers: Arc<dyn EventSink>) -> Result<Self, RecordingError> {
        let catalog = Catalog::new(Vec::new(), NamingScheme::Double);
        Ok(Self(Arc::new(PlayerShared {
            models: Replayer::new(recording, MatchRule::Digest)?,
            orchestrator: Orchestrator::new(catalog, OrchestratorConfig::default()),
            left: RemainingRecording::of(recording)?,
            conductor: Arc::new(RecordedOrderSink::new(recording, watchers)?),
            operations: AtomicU64::new(1),
        })))
    }

    /// Replays the run from its beginning to its end. Calls no model and no tool.
    pub async fn play(&self) -> Result<ReplayOutcome, RunError> {
        let PlayerShared { left, conductor, .. } = &*self.0;
        let spent = self.route(left.first()).await?;
        let account = Meter::resume_with_bill(Arc::clone(conductor) as _, SpendLimit::default(), spent);
        let own = ReplayMeter::Own(Arc::clone(&account));
        let above = ParentCall { works_for: None, parent: None, origin: None, account: own };
        let over = self.play_handoff_chain(above).await?;
        conductor.end();
        let ReplayedEnd { finish, turns } =
            over.ok_or_else(|| unreadable(&"the recording contains no run"))?;
        let session = session_id(&left.first().session)?;
        let (bill, took, stopped_by) = (account.bill(), left.took(), left.stopped_by());
        Ok(ReplayOutcome { session, finish, turns, bill, took, stopped_by, difference: left.difference() })
    }

    /// Replays the request that chose the model, if the recording has one.
    async fn route(&self, first: &RunStartLine) -> Result<RunBill, RunError> {
        let PlayerShared { models, conductor, .. } = &*self.0;
        let meter = Meter::new(Arc::clone(conductor) as _, SpendLimit::default());
        let id = format!("{}/0", first.session);
        if let Some(request) = models.request_with_id(&id) {
            let place = RunPosition { turn: 0, ..RunPosition::first(session_id(&first.session)?) };
            let cx = ModelContext::new(id, Principal::local(), Arc::clone(&meter) as _).at(place);
            models.ask(request, &cx).for_each(async |_| {}).await;
        }
        Ok(meter.bill())
    }

    /// Replays the chain of runs that worked on one call, or the chain of the root run. Each run in the chain hands off
    /// to the next.
    async fn play_handoff_chain(&self, above: ParentCall<'_>) -> Result<Option<ReplayedEnd>, RunError> {
        let ParentCall { works_for, parent, mut origin, mut account } = above;
        let mut over = None;
        let mut runs = self.0.left.runs_for(works_for).iter().peekable();
        while let Some(beginning) = runs.next() {
            let after = if runs.peek().is_some() { NextAgent::Another } else { NextAgent::Nobody };
            let session = session_id(&beginning.session)?;
            let origin = *origin.get_or_insert(session);
            let place = RunPosition { session, turn: beginning.start.turn, parent, origin };
            let mut run = self.run(beginning)?;
            let meter = account.meter();
            account = ReplayMeter::Below(Arc::clone(&meter));
            meter.emit(began(beginning, place, speaks(&run, after)));
            let finish = self.drive(beginning, place, &mut run, meter).await?;
            over = Some(ReplayedEnd { finish, turns: run.counts().turns });
        }
        Ok(over)
    }

    fn run(&self, beginning: &RunStartLine) -> Result<AgentRun, RunError> {
        let asked = self.0.models.request_with_id(&format!("{}/{}", beginning.session, beginning.start.turn));
        let (_, model) = beginning.model.split_once('/').unwrap_or_default();
        let request = asked.unwrap_or_else(|| ModelRequest::new(model, Arc::default()));
        beginning.run.clone().resume(request).map_err(|error| unreadable(&error))
    }

    async fn drive(
        &self,
        beginning: &RunStartLine,
        place: RunPosition,
        run: &mut AgentRun,
        meter: Arc<Meter>,
    ) -> Result<RunFinish, RunError> {
        let began = Instant::now().into_std();
        let scope = RunScope::new(meter, beginning.start.path.clone(), began, began + TIMEOUT);
        let driver = RunDriver {
            models: self,
            summary_models: self,
            orchestrator: &self.0.orchestrator,
            scope: Arc::new(scope),
            options: CallOptions { place, ..CallOptions::default() },
            reply_timeout: TIMEOUT,
            observer: Some(Arc::new(self.clone())),
        };
        let Some(why) = self.0.left.aborted(&beginning.session) else {
            return self.to_the_end(&driver, run, &beginning.session).await;
        };
        tokio::select! {
            biased;
            finish = self.to_the_end(&driver, run, &beginning.session) => return finish,
            () = self.quiet(AbandonedWork::Run, beginning.start.path.len()) => {}
        }
        match driver.abort(run, why).await? {
            DriveOutcome::Done(finish) => Ok(finish),
            DriveOutcome::AwaitsClient(_) | DriveOutcome::AwaitsApproval(_) => {
                Err(unreadable(&"the recording does not contain the end of the run"))
            }
        }
    }

    /// Drives the run to its end, with the recorded decisions about parked calls and the recorded outputs of the
    /// caller's functions.
    async fn to_the_end(
        &self,
        driver: &RunDriver<'_>,
        run: &mut AgentRun,
        session: &str,
    ) -> Result<RunFinish, RunError> {
        loop {
            match driver.drive(run).await? {
                DriveOutcome::Done(finish) => return Ok(finish),
                DriveOutcome::AwaitsApproval(calls) => {
                    for call in calls {
                        let denied = RunInput::Decided { call: call.id, decision: CallDecision::Deny };
                        driver.apply_input(run, self.outside_input(session, denied).await)?;
                    }
                }
                DriveOutcome::AwaitsClient(calls) => {
                    let none = |call: &ToolCall| {
                        ToolReply::error(call, "the recording has no output of this tool call")
                    };
                    let none = RunInput::ClientReplied(calls.iter().map(none).collect());
                    driver.apply_input(run, self.outside_input(session, none).await)?;
                }
            }
        }
    }

    /// Returns the next recorded input from outside. If the recording has none, waits forever if the recorded run was
    /// aborted, and otherwise returns `missing`.
    async fn outside_input(&self, session: &str, missing: RunInput) -> RunInput {
        match (self.0.left.outside_input(session), self.0.left.aborted(session)) {
            (Some(input), _) => input,
            (None, Some(_)) => pending().await,
            (None, None) => missing,
        }
    }

    /// Waits until no event has arrived for a number of polls. This number is smaller for nested runs, and smaller for a
    /// call than for its run. Therefore, the innermost abandoned work ends first.
    async fn quiet(&self, what: AbandonedWork, depth: usize) {
        let level = DEPTH_MAX.saturating_sub(depth) * 2;
        let polls = QUIET_AFTER_POLLS
            * match what {
                AbandonedWork::Call => level + 1,
                AbandonedWork::Run => level + 2,
            };
        let (mut left, mut seen) = (polls, self.0.conductor.seen());
        while left > 0 {
            yield_now().await;
            let now = self.0.conductor.seen();
            left = if now == seen { left - 1 } else { polls };
            seen = now;
        }
    }

    /// Replays a call: emits its events, runs its sub-agents, and returns the recorded result.
    async fn play_call(&self, call: ToolCall, options: CallOptions) -> ToolResult {
        let which = RecordedCallId::of(options.place, &call.id);
        let RecordedCall { happened, asides, recorded_result } = match self.0.left.take(&which, &call) {
            Ok(made) => made,
            Err(difference) => return self.differs(call, &difference),
        };
        let Some(scope) = options.scope else {
            return self.differs(call, "the call does not belong to a run");
        };
        let id = OperationId(self.0.operations.fetch_add(1, Ordering::Relaxed));
        let operation = Arc::new(CallOperation { id, call: which.call(), place: options.place });
        let (end, before): (Vec<RecordedCallEvent>, _) =
            happened.into_iter().partition(RecordedCallEvent::is_end);
        for what in &before {
            scope.meter.emit(what.event(&operation));
        }
        for aside in asides {
            match aside.into_event(&operation) {
                Ok(event) => scope.meter.emit(event),
                Err(error) => return self.differs(call, &error.to_string()),
            }
        }
        let meter = Arc::clone(&scope.meter);
        let end = FinalCallEvents { end, operation, meter: Arc::clone(&meter) };
        let above = ParentCall {
            works_for: Some(&which),
            parent: Some(id),
            origin: Some(options.place.origin),
            account: ReplayMeter::Below(meter),
        };
        let below = self.play_handoff_chain(above).boxed();
        let ended = tokio::select! {
            biased;
            over = below => over,
            // If the sub-agents are idle although the call has a recorded result, the recorded call returned without
            // waiting for them. Do the same.
            () = self.quiet(AbandonedWork::Call, scope.path.len()), if recorded_result.is_some() => Ok(None),
        };
        let Some(recorded_result) = recorded_result else { return pending().await };
        drop(end);
        let result = match ended {
            Ok(_) => recorded_result.into_result(call.clone()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        result.unwrap_or_else(|problem| self.differs(call, &problem))
    }

    /// Replays a reply that the recorded run did not receive. If the reply had timed out, the replay fails with the
    /// same timeout. If the recorded run was aborted, the reply never arrives.
    async fn waited_for(
        &self,
        session: SessionId,
        event: Result<ModelEvent, ModelError>,
    ) -> Result<ModelEvent, ModelError> {
        match event {
            Err(error) if error.kind == ModelErrorKind::Cancelled => {
                match self.0.left.reply_timeout(session) {
                    Some(limit) => Err(reply_timeout_error(limit)),
                    None => pending().await,
                }
            }
            event => event,
        }
    }

    fn differs(&self, call: ToolCall, difference: &str) -> ToolResult {
        let message = self.0.left.differs(difference);
        let error = ToolError::new(ToolErrorKind::Unavailable, message);
        ToolResult { call, outcome: Err(error), receipt: Receipt::default() }
    }
}

/// The last events of a call. They are emitted on drop, so that a cancelled call emits them too.
struct FinalCallEvents {
    end: Vec<RecordedCallEvent>,
    operation: Arc<CallOperation>,
    meter: Arc<Meter>,
}

impl Drop for FinalCallEvents {
    fn drop(&mut self) {
        self.end.iter().for_each(|what| self.meter.emit(what.event(&self.operation)));
    }
}

fn session_id(text: &str) -> Result<SessionId, RunError> {
    let id = uuid::Uuid::parse_str(text).map_err(|error| unreadable(&error))?;
    Ok(SessionId(id.as_u128()))
}

fn unreadable(problem: &dyn std::fmt::Display) -> RunError {
    RunError::Unreadable { problem: problem.to_string() }
}

impl RunObserver for RunPlayer {
    fn tools(&self, place: RunPosition, _: Option<ToolListChange>) -> Option<ToolListChange> {
        self.0.left.tools(place)
    }

    fn readings(&self, place: RunPosition, live: DriverReadings) -> DriverReadings {
        self.0.left.readings(place).unwrap_or(live)
    }

    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        Some(Box::pin(self.play_call(call.clone(), options.clone())))
    }

    fn archived(&self, place: RunPosition) -> Option<ArchiveOutcome> {
        let recorded = self.0.left.archived(place);
        Some(recorded.unwrap_or_else(|| {
            ArchiveOutcome::Failed(
                self.0.left.differs("the recorded run did not archive old messages at this point"),
            )
        }))
    }

    fn ended(&self, _: RunPosition, _: &ToolResult) {}
}

impl ModelProvider for RunPlayer {
    fn name(&self) -> &str {
        self.0.models.name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let session = cx.place.session;
        let replies = self.0.models.ask(request, cx);
        replies.then(move |event| self.waited_for(session, event)).boxed()
    }
}
