//! A request on its way: which agent has it now, and how far that run is.

use std::sync::Arc;

use haft_core::conversation::{Conversation, Message};
use haft_core::event::{Event, EventSink};
use haft_core::place::{Place, SessionId};
use haft_core::provider::CallContext;
use haft_core::run::budget::Budget;
use haft_core::run::event::{Began, Bill, RunEvent};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::{AgentRun, RunError};
use haft_engine::{CallOptions, Concurrency, Driven, Priority};
use tokio::time::Instant;

use super::worker::Worker;
use super::{context, relay};
use crate::agents::Agent;

/// What an agent is asked, and on whose account.
#[derive(Debug, Clone)]
pub struct Task {
    pub request: String,
    /// The session of the run.
    pub place: Place,
    pub scope: Arc<RunScope>,
    pub priority: Priority,
    pub concurrency: Concurrency,
}

impl Task {
    /// For nobody else: `watchers` see everything that comes of it. `spent` is what it cost to find the worker.
    pub fn first(
        worker: &Worker,
        request: String,
        place: Place,
        watchers: Arc<dyn EventSink>,
        spent: Bill,
    ) -> Self {
        let agent = worker.agent();
        let began = Instant::now().into_std();
        let meter = Meter::carried_on(watchers, agent.budget, spent);
        let until = began + agent.times.run;
        let scope = RunScope { meter, path: vec![agent.name.clone()], began, until };
        let (priority, concurrency) = (Priority::default(), Concurrency::default());
        Self { request, place, scope: Arc::new(scope), priority, concurrency }
    }

    /// For a call: in a session of its own, within what the run above has left of money and time.
    pub fn below(worker: &Worker, request: String, cx: &CallContext, above: &RunScope) -> Self {
        let operation = cx.operation();
        let place = operation.place.below(new_session(), operation.id);
        let mut scope = within(worker.agent(), above);
        scope.until = cx.time_limit.map_or(scope.until, |limit| scope.until.min(limit.deadline));
        let (priority, concurrency) = (cx.priority, Concurrency::default());
        Self { request, place, scope: Arc::new(scope), priority, concurrency }
    }

    /// For whoever goes on with the request: beside the session before, on the same account.
    fn after(before: &Self, worker: &Worker, request: String) -> Self {
        let place = Place { session: new_session(), turn: 1, ..before.place };
        let scope = Arc::new(within(worker.agent(), &before.scope));
        Self { request, place, scope, ..before.clone() }
    }
}

fn new_session() -> SessionId {
    SessionId(uuid::Uuid::new_v4().as_u128())
}

/// What is left of the run above, or less if the agent says so.
fn within(agent: &Agent, above: &RunScope) -> RunScope {
    let began = Instant::now();
    let time = began.duration_since(Instant::from_std(above.began));
    let budget = agent.budget.within(&Budget { time: above.meter.left(time).time, ..Budget::default() });
    let began = began.into_std();
    let path = above.path.iter().chain([&agent.name]).cloned().collect();
    RunScope {
        meter: above.meter.below(budget),
        path,
        began,
        until: above.until.min(began + agent.times.run),
    }
}

/// A run and whoever drives it. To drop the future of [`Errand::drive`] is to cancel whatever is under way; what was done so
/// far is still here.
#[derive(Debug)]
pub struct Errand {
    worker: Arc<Worker>,
    task: Task,
    run: AgentRun,
    options: CallOptions,
    /// What was asked of the first agent that had it.
    original: Arc<str>,
    /// Of that agent's run: whoever goes on spends from it.
    account: Arc<Meter>,
}

impl Errand {
    /// The run, once the tools are ready: they are a part of what the model is told.
    pub fn begin(worker: Arc<Worker>, task: Task) -> Result<Self, RunError> {
        let (original, account) = (task.request.as_str().into(), Arc::clone(&task.scope.meter));
        let path = &task.scope.path;
        let plan = worker.plan(&path[..path.len().saturating_sub(1)]);
        let mut request = worker.request(&plan);
        let mut conversation = Conversation::default();
        conversation.push(Message::user(task.request.clone())).map_err(RunError::Misfit)?;
        request.conversation = Arc::new(conversation);
        let counter = &*worker.orchestrator().config().tokens;
        let limit = plan.limits.context;
        let budget = limit.map(|limit| context::budget(limit, &request, &task.request, counter));
        let options = CallOptions {
            place: task.place,
            priority: task.priority,
            concurrency: task.concurrency,
            budget,
            selection: worker.selection(),
            ..CallOptions::default()
        };
        let run = AgentRun::new(request, plan);
        let errand = Self { worker, task, run, options, original, account };
        errand.tell_beginning();
        Ok(errand)
    }

    /// Until the request is answered, or somebody outside has to do something first. Agents that are handed the request, or
    /// the answer, go on with it here.
    pub async fn drive(&mut self) -> Result<Driven, RunError> {
        loop {
            let Self { worker, task, run, options, .. } = self;
            let finish = match worker.driver(&task.scope, options).drive(run).await? {
                Driven::Done(finish) => finish,
                waits @ (Driven::AwaitsClient(_) | Driven::AwaitsApproval(_)) => return Ok(waits),
            };
            let Some((next, request)) = relay::next(worker, &self.original, &finish) else {
                return Ok(Driven::Done(finish));
            };
            let task = Task::after(&self.task, &next, request);
            let (original, account) = (Arc::clone(&self.original), Arc::clone(&self.account));
            *self = Self { original, account, ..Self::begin(next, task)? };
        }
    }

    /// The agent that has the request now.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    pub fn task(&self) -> &Task {
        &self.task
    }

    pub fn run(&self) -> &AgentRun {
        &self.run
    }

    /// To tell it what came from outside, or to end it.
    pub fn run_mut(&mut self) -> &mut AgentRun {
        &mut self.run
    }

    /// What it has cost so far, with everybody who worked for it.
    pub fn bill(&self) -> Bill {
        self.account.bill()
    }

    fn tell_beginning(&self) {
        let Task { request, place, scope, .. } = &self.task;
        let shown = self.run.tools().iter();
        let began = Began {
            path: scope.path.clone(),
            model: self.worker.model().to_string(),
            request: request.clone(),
            tools: shown.map(|tool| tool.name.clone()).collect(),
        };
        scope.meter.emit(Event::Run { place: *place, event: Arc::new(RunEvent::Began(began)) });
    }
}
