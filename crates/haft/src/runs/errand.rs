//! A request on its way: which agent has it now, and how far that run is.

use std::sync::Arc;
use std::time::Duration;

use haft_core::conversation::{Conversation, Message};
use haft_core::event::{Event, EventSink};
use haft_core::place::Place;
use haft_core::run::event::{Began, Bill, RunEvent};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::{AgentRun, RunError};
use haft_engine::{CallOptions, Driven};
use tokio::time::Instant;

use super::context;
use super::worker::Worker;

/// What an agent is asked, and on whose account.
#[derive(Debug, Clone)]
pub struct Task {
    pub request: String,
    /// The session of the run.
    pub place: Place,
    pub scope: Arc<RunScope>,
}

impl Task {
    /// For nobody else: `watchers` see everything that comes of it.
    pub fn first(worker: &Worker, request: String, place: Place, watchers: Arc<dyn EventSink>) -> Self {
        let agent = worker.agent();
        let meter = Meter::new(watchers, agent.budget);
        Self { request, place, scope: scope(meter, vec![agent.name.clone()], agent.times.run) }
    }
}

fn scope(meter: Arc<Meter>, path: Vec<String>, timeout: Duration) -> Arc<RunScope> {
    let began = Instant::now().into_std();
    Arc::new(RunScope { meter, path, began, until: began + timeout })
}

/// A run and whoever drives it. To drop the future of [`Errand::drive`] is to cancel whatever is under way; what was done so
/// far is still here.
#[derive(Debug)]
pub struct Errand {
    worker: Arc<Worker>,
    task: Task,
    run: AgentRun,
    options: CallOptions,
}

impl Errand {
    /// The run, once the tools are ready: they are a part of what the model is told.
    pub fn begin(worker: Arc<Worker>, task: Task) -> Result<Self, RunError> {
        let plan = worker.plan(&task.scope.path[..task.scope.path.len().saturating_sub(1)]);
        let mut request = worker.request(&plan);
        let mut conversation = Conversation::default();
        conversation.push(Message::user(task.request.clone())).map_err(RunError::Misfit)?;
        request.conversation = Arc::new(conversation);
        let counter = &*worker.orchestrator().config().tokens;
        let budget =
            plan.limits.context.map(|limit| context::budget(limit, &request, &task.request, counter));
        let options = CallOptions {
            place: task.place,
            budget,
            selection: worker.selection(),
            ..CallOptions::default()
        };
        let began = Began {
            path: task.scope.path.clone(),
            model: worker.model().to_string(),
            request: task.request.clone(),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        let event = Arc::new(RunEvent::Began(began));
        task.scope.meter.emit(Event::Run { place: task.place, event });
        Ok(Self { run: AgentRun::new(request, plan), worker, task, options })
    }

    /// Until the request is answered, or somebody outside has to do something first.
    pub async fn drive(&mut self) -> Result<Driven, RunError> {
        let Self { worker, task, run, options } = self;
        worker.driver(&task.scope, options).drive(run).await
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
        self.task.scope.meter.bill()
    }
}
