//! A request on its way: which agent has it now, and how far that run is.

use std::sync::Arc;
use std::time::Duration;

use haft_core::conversation::{Conversation, Message};
use haft_core::event::{Event, EventSink};
use haft_core::place::Place;
use haft_core::run::event::{Began, Bill, RunEvent};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::told::Told;
use haft_core::run::{Abort, AgentRun, RunError};
use haft_engine::{CallOptions, Driven};
use tokio::time::Instant;

use super::context;
use super::worker::Worker;
use crate::sessions::{SessionError, SessionJournal};

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
    unkept: Option<SessionError>,
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
        let run = AgentRun::new(request, plan);
        let mut errand = Self::of(worker, task, run, options);
        errand.open_session();
        errand.tell_beginning();
        Ok(errand)
    }

    pub(super) fn of(worker: Arc<Worker>, task: Task, run: AgentRun, options: CallOptions) -> Self {
        Self { worker, task, run, options, unkept: None }
    }

    /// A run that cannot be put on record from its beginning is made all the same: nothing is promised about it.
    fn open_session(&mut self) {
        let request = &self.task.request;
        match self.worker.workshop().open_session(self.task.place.session, request, &self.run) {
            Some(Ok(journal)) => self.keep_with(Arc::new(journal)),
            Some(Err(error)) => self.unkept = Some(error),
            None => {}
        }
    }

    pub(super) fn keep_with(&mut self, journal: Arc<SessionJournal>) {
        self.task.scope.meter.keep_with(Arc::clone(&journal) as _);
        self.options.chronicle = Some(journal);
    }

    pub(super) fn tell_beginning(&self) {
        let task = &self.task;
        let began = Began {
            path: task.scope.path.clone(),
            model: self.worker.model().to_string(),
            request: task.request.clone(),
            tools: self.run.tools().iter().map(|tool| tool.name.clone()).collect(),
        };
        let event = Arc::new(RunEvent::Began(began));
        task.scope.meter.emit(Event::Run { place: task.place, event });
    }

    /// Until the request is answered, or somebody outside has to do something first.
    pub async fn drive(&mut self) -> Result<Driven, RunError> {
        let Self { worker, task, run, options, .. } = self;
        worker.driver(&task.scope, options).drive(run).await
    }

    /// Ends the run now, on record. To drop what drives it comes first.
    pub async fn abort(&mut self, why: Abort) -> Result<Driven, RunError> {
        let Self { worker, task, run, options, .. } = self;
        worker.driver(&task.scope, options).abort(run, why).await
    }

    /// Tells the run what came from outside, on record.
    pub fn tell(&mut self, told: Told) -> Result<(), RunError> {
        let Self { worker, task, run, options, .. } = self;
        worker.driver(&task.scope, options).tell_run(run, told)
    }

    pub fn run(&self) -> &AgentRun {
        &self.run
    }

    /// Why it is not kept, where it should be.
    pub fn unkept(&self) -> Option<&SessionError> {
        self.unkept.as_ref()
    }

    pub(super) fn task(&self) -> &Task {
        &self.task
    }

    /// The first turn of what is asked now.
    pub(super) fn place(&self) -> Place {
        self.task.place
    }

    /// What it has cost so far, with everybody who worked for it.
    pub fn bill(&self) -> Bill {
        self.task.scope.meter.bill()
    }
}
