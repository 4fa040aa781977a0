//! Replays a recorded run: the same driver, with recorded models, tools and clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use futures_util::{FutureExt, StreamExt};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_request::{ModelRequest, ModelTool};
use haft_core::naming::Scheme;
use haft_core::place::{Operation, OperationId, Place, SessionId};
use haft_core::provider::Principal;
use haft_core::result::{Receipt, ToolError, ToolErrorKind, ToolResult};
use haft_core::run::budget::Budget;
use haft_core::run::event::{Began, Bill, RunEvent, Speaks};
use haft_core::run::final_report::FinalReport;
use haft_core::run::finish::Finish;
use haft_core::run::input::RunInput;
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::{AgentRun, ApprovalVerdict, Readings, RunError};
use haft_core::tool::ToolCall;
use haft_engine::drive::not_in_time;
use haft_engine::{CallOptions, Catalog, Driven, Driver, Orchestrator, OrchestratorConfig, RunObserver};
use haft_models::cassette::{Matching, Recording, RecordingError, Replayer};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::left::{Left, Made};
use super::line::{Beginning, RecordedStart, What, Which};
use super::order::Conductor;

/// The timeout of replayed runs. A replay never waits for the outside world, so only a contradictory recording reaches
/// it.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The least number of polls without a new event after which a run or call counts as idle. Only work that the recorded
/// run abandoned has to wait for this; everything else proceeds at once.
const QUIET_AFTER_POLLS: usize = 64;

/// The deepest nesting of runs that gets its own idle threshold.
const DEPTH_MAX: usize = 32;

/// The kinds of work that a recorded run may have abandoned.
enum Leaves {
    Run,
    Call,
}

/// A recorded run with all its sub-agents. Clones share the state.
#[derive(Debug, Clone)]
pub struct RunPlayer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    models: Replayer,
    /// An orchestrator without tools: results of calls come from the recording.
    orchestrator: Orchestrator,
    left: Left,
    conductor: Arc<Conductor>,
    operations: AtomicU64,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Played {
    /// The session of the recorded root run.
    pub session: SessionId,
    /// The answer, and the reason the run ended.
    pub finish: Finish,
    /// The turns of the agent that ended the run.
    pub turns: u32,
    /// The cost of the recorded run with its sub-agents.
    pub bill: Bill,
    /// The time that the recorded run took, not the time of the replay.
    pub took: Duration,
    /// The exit code of the program, if a signal or a closed pipe ended the run.
    pub stopped_by: Option<u8>,
    /// The first difference between the replay and the recorded run.
    pub difference: Option<String>,
}

/// The caller of a run: the call it works for, and the meter that pays for it.
struct Above<'a> {
    works_for: Option<&'a Which>,
    parent: Option<OperationId>,
    origin: Option<SessionId>,
    account: Account,
}

/// The meter of a run.
enum Account {
    Own(Arc<Meter>),
    /// A new meter below this one.
    Below(Arc<Meter>),
}

impl Account {
    /// Returns the meter, without a budget: the recorded readings already contain the remaining budget.
    fn meter(self) -> Arc<Meter> {
        match self {
            Self::Own(meter) => meter,
            Self::Below(meter) => meter.below(Budget::default()),
        }
    }
}

/// Tells if another agent takes over the request after this run.
#[derive(Clone, Copy)]
enum After {
    Another,
    Nobody,
}

fn speaks(run: &AgentRun, after: After) -> Speaks {
    match (&run.plan().report, after) {
        (FinalReport::None, After::Nobody) => Speaks::Answer,
        (FinalReport::None | FinalReport::Tool(_) | FinalReport::Xml { .. }, _) => Speaks::Draft,
    }
}

fn began(beginning: &Beginning, place: Place, speaks: Speaks) -> Event {
    let Beginning { model, start, .. } = beginning.clone();
    let RecordedStart { path, request, tools, .. } = start;
    let began = Began { path, model, request, tools, speaks };
    Event::Run { place, event: Arc::new(RunEvent::Began(began)) }
}

/// The end of a run.
struct Over {
    finish: Finish,
    turns: u32,
}

impl RunPlayer {
    /// Builds a player. The watchers receive events in the recorded order.
    pub fn of(recording: &Recording, watchers: Arc<dyn EventSink>) -> Result<Self, RecordingError> {
        let catalog = Catalog::new(Vec::new(), Scheme::Double);
        Ok(Self(Arc::new(Shared {
            models: Replayer::new(recording, Matching::Digest)?,
            orchestrator: Orchestrator::new(catalog, OrchestratorConfig::default()),
            left: Left::of(recording)?,
            conductor: Arc::new(Conductor::new(recording, watchers)?),
            operations: AtomicU64::new(1),
        })))
    }

    /// Replays the run from its beginning to its end. Calls no model and no tool.
    pub async fn play(&self) -> Result<Played, RunError> {
        let Shared { left, conductor, .. } = &*self.0;
        let spent = self.route(left.first()).await?;
        let account = Meter::carried_on(Arc::clone(conductor) as _, Budget::default(), spent);
        let own = Account::Own(Arc::clone(&account));
        let above = Above { works_for: None, parent: None, origin: None, account: own };
        let over = self.one_after_another(above).await?;
        conductor.end();
        let Over { finish, turns } = over.ok_or_else(|| unreadable(&"it holds no run"))?;
        let session = session_id(&left.first().session)?;
        let (bill, took, stopped_by) = (account.bill(), left.took(), left.stopped_by());
        Ok(Played { session, finish, turns, bill, took, stopped_by, difference: left.difference() })
    }

    /// Replays the request that chose the model, if the recording has one.
    async fn route(&self, first: &Beginning) -> Result<Bill, RunError> {
        let Shared { models, conductor, .. } = &*self.0;
        let meter = Meter::new(Arc::clone(conductor) as _, Budget::default());
        let id = format!("{}/0", first.session);
        if let Some(request) = models.request_asked(&id) {
            let place = Place { turn: 0, ..Place::first(session_id(&first.session)?) };
            let cx = ModelContext::new(id, Principal::local(), Arc::clone(&meter) as _).at(place);
            models.ask(request, &cx).for_each(async |_| {}).await;
        }
        Ok(meter.bill())
    }

    /// Replays the runs for one call (or the root run), each handing over to the next.
    async fn one_after_another(&self, above: Above<'_>) -> Result<Option<Over>, RunError> {
        let Above { works_for, parent, mut origin, mut account } = above;
        let mut over = None;
        let mut runs = self.0.left.runs_for(works_for).iter().peekable();
        while let Some(beginning) = runs.next() {
            let after = if runs.peek().is_some() { After::Another } else { After::Nobody };
            let session = session_id(&beginning.session)?;
            let origin = *origin.get_or_insert(session);
            let place = Place { session, turn: beginning.start.turn, parent, origin };
            let mut run = self.run(beginning)?;
            let meter = account.meter();
            account = Account::Below(Arc::clone(&meter));
            meter.emit(began(beginning, place, speaks(&run, after)));
            let finish = self.drive(beginning, place, &mut run, meter).await?;
            over = Some(Over { finish, turns: run.counts().turns });
        }
        Ok(over)
    }

    fn run(&self, beginning: &Beginning) -> Result<AgentRun, RunError> {
        let asked = self.0.models.request_asked(&format!("{}/{}", beginning.session, beginning.start.turn));
        let (_, model) = beginning.model.split_once('/').unwrap_or_default();
        let request = asked.unwrap_or_else(|| ModelRequest::new(model, Arc::default()));
        beginning.run.clone().resume(request).map_err(|error| unreadable(&error))
    }

    async fn drive(
        &self,
        beginning: &Beginning,
        place: Place,
        run: &mut AgentRun,
        meter: Arc<Meter>,
    ) -> Result<Finish, RunError> {
        let began = Instant::now().into_std();
        let scope = RunScope { meter, path: beginning.start.path.clone(), began, until: began + TIMEOUT };
        let driver = Driver {
            models: self,
            orchestrator: &self.0.orchestrator,
            scope: Arc::new(scope),
            options: CallOptions { place, ..CallOptions::default() },
            reply_timeout: TIMEOUT,
            observer: Some(Arc::new(self.clone())),
        };
        let Some(why) = self.0.left.aborted(&beginning.session) else {
            return to_the_end(&driver, run).await;
        };
        tokio::select! {
            biased;
            finish = to_the_end(&driver, run) => return finish,
            () = self.quiet(Leaves::Run, beginning.start.path.len()) => {}
        }
        match driver.abort(run, why).await? {
            Driven::Done(finish) => Ok(finish),
            Driven::AwaitsClient(_) | Driven::AwaitsApproval(_) => Err(unreadable(&"its end is none")),
        }
    }

    /// Waits until no event has arrived for a number of polls. Deeper runs have a lower threshold and a call a lower
    /// one than its run, so that the innermost abandoned work ends first.
    async fn quiet(&self, what: Leaves, depth: usize) {
        let level = DEPTH_MAX.saturating_sub(depth) * 2;
        let polls = QUIET_AFTER_POLLS
            * match what {
                Leaves::Call => level + 1,
                Leaves::Run => level + 2,
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
        let which = Which::of(options.place, &call.id);
        let Made { happened, asides, given } = match self.0.left.take(&which, &call) {
            Ok(made) => made,
            Err(difference) => return self.differs(call, &difference),
        };
        let Some(scope) = options.scope else { return self.differs(call, "it is not made by a run") };
        let id = OperationId(self.0.operations.fetch_add(1, Ordering::Relaxed));
        let operation = Arc::new(Operation { id, call: which.call(), place: options.place });
        let (end, before): (Vec<What>, _) = happened.into_iter().partition(What::is_end);
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
        let end = Ends { end, operation, meter: Arc::clone(&meter) };
        let above = Above {
            works_for: Some(&which),
            parent: Some(id),
            origin: Some(options.place.origin),
            account: Account::Below(meter),
        };
        let below = self.one_after_another(above).boxed();
        let ended = tokio::select! {
            biased;
            over = below => over,
            // The recorded call returned without waiting for its sub-agents.
            () = self.quiet(Leaves::Call, scope.path.len()), if given.is_some() => Ok(None),
        };
        let Some(given) = given else { return pending().await };
        drop(end);
        let result = match ended {
            Ok(_) => given.into_result(call.clone()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        result.unwrap_or_else(|problem| self.differs(call, &problem))
    }

    /// Handles a reply that the recorded run abandoned: it ends with the recorded reply timeout, or never arrives when
    /// the run itself was aborted.
    async fn waited_for(
        &self,
        session: SessionId,
        event: Result<ModelEvent, ModelError>,
    ) -> Result<ModelEvent, ModelError> {
        match event {
            Err(error) if error.kind == ModelErrorKind::Cancelled => {
                match self.0.left.reply_timeout(session) {
                    Some(limit) => Err(not_in_time(limit)),
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

/// The final events of a call. Dropping this emits them, so that a call whose future is cancelled emits them too.
struct Ends {
    end: Vec<What>,
    operation: Arc<Operation>,
    meter: Arc<Meter>,
}

impl Drop for Ends {
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

/// Drives the run to its end. It denies calls that wait for an approval or a client: a replay has neither.
async fn to_the_end(driver: &Driver<'_>, run: &mut AgentRun) -> Result<Finish, RunError> {
    loop {
        let calls = match driver.drive(run).await? {
            Driven::Done(finish) => return Ok(finish),
            Driven::AwaitsClient(calls) | Driven::AwaitsApproval(calls) => calls,
        };
        for call in calls {
            driver.tell_run(run, RunInput::Judged { call: call.id, verdict: ApprovalVerdict::Denied })?;
        }
    }
}

impl RunObserver for RunPlayer {
    fn tools(&self, place: Place, _: Option<Arc<[ModelTool]>>) -> Option<Arc<[ModelTool]>> {
        self.0.left.tools(place)
    }

    fn readings(&self, place: Place, live: Readings) -> Readings {
        self.0.left.readings(place).unwrap_or(live)
    }

    fn instead(&self, call: &ToolCall, options: &CallOptions) -> Option<BoxFuture<'_, ToolResult>> {
        Some(Box::pin(self.play_call(call.clone(), options.clone())))
    }

    fn ended(&self, _: Place, _: &ToolResult) {}
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
