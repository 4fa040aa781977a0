//! Takes a run up again where its session was left.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::budget::Budget;
use haft_core::conversation::ToolReply;
use haft_core::event::{Event, EventSink};
use haft_core::place::Place;
use haft_core::result::ToolErrorKind;
use haft_core::run::event::{Answered, Bill, RunEvent};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::told::{CallEnd, Told};
use haft_core::run::{AgentRun, RunError};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{CallOptions, Orchestrator, Unrecorded};

use super::context;
use super::errand::{Errand, Task};
use super::worker::Worker;
use crate::sessions::{Past, ReadError, SessionJournal, Standing};

/// Why a session does not go on.
#[derive(Debug)]
pub enum ResumeError {
    Unreadable(ReadError),
    /// It has ended, and nothing more is asked.
    Finished {
        reason: String,
    },
    Run(RunError),
    Unrecorded(Unrecorded),
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Finished { reason } => write!(f, "the session has ended ({reason})"),
            Self::Run(error) => error.fmt(f),
            Self::Unrecorded(unrecorded) => unrecorded.fmt(f),
        }
    }
}

impl std::error::Error for ResumeError {}

impl From<RunError> for ResumeError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// A session, and what it is to do.
#[derive(Debug)]
pub struct Resumed {
    pub past: Past,
    pub journal: SessionJournal,
    /// What is asked beside; without it the run goes on with what it was asked before.
    pub more: Option<String>,
}

impl Errand {
    /// Goes on. No call that has ended is made again; of those that had begun, only what may be repeated is, and of the
    /// others the model is told that nobody knows what became of them.
    pub fn resume(
        worker: Arc<Worker>,
        resumed: Resumed,
        watchers: Arc<dyn EventSink>,
    ) -> Result<Self, ResumeError> {
        let Resumed { past, journal, more } = resumed;
        if let (Standing::Finished { reason }, None) = (&past.standing, &more) {
            return Err(ResumeError::Finished { reason: reason.clone() });
        }
        let plan = past.plan().map_err(ResumeError::Unreadable)?;
        let request = worker.request(&plan);
        let (session, title) = (past.session(), past.opened.title.clone());
        let bill = if more.is_some() { Bill::default() } else { past.bill };
        let worked = if more.is_some() { Duration::ZERO } else { past.worked() };
        let scope = scope(&worker, watchers, bill, worked);
        let counter = &*worker.orchestrator().config().tokens;
        let budget = plan.limits.context.map(|limit| context::budget(limit, &request, &title, counter));
        let unfinished = past.run(request).map_err(ResumeError::Unreadable)?;
        known_context(budget.as_deref(), unfinished.context_tokens);
        let before = unfinished.turns_before + more.as_ref().map_or(0, |_| unfinished.run.counts().turns);
        let place = Place { turn: before + 1, ..Place::first(session) };
        let unknown = unknown(&unfinished.run, &unfinished.begun, worker.orchestrator());
        let request = more.clone().unwrap_or(title);
        let selection = worker.selection();
        let options = CallOptions { place, budget, selection, ..CallOptions::default() };
        let task = Task { request, place, scope };
        journal.resumed().map_err(ResumeError::Unrecorded)?;
        let mut errand = Self::of(worker, task, unfinished.run, options);
        errand.keep_with(Arc::new(journal));
        errand.tell_beginning();
        for call in unknown {
            errand.tell_unknown(&call)?;
        }
        if let Some(more) = more {
            errand.tell(Told::Requested(more))?;
        }
        Ok(errand)
    }

    /// The model decides what to do about a call whose end nobody knows.
    fn tell_unknown(&mut self, call: &ToolCall) -> Result<(), RunError> {
        const TOLD: &str = "Error: haft ended while this call was being made. It is not known whether it took effect: look \
            before you make it again.";
        self.show(RunEvent::Called(call.clone()));
        self.show(RunEvent::Answered(Answered {
            call: call.id.clone(),
            name: call.name.clone(),
            failure: Some(ToolErrorKind::UnknownOutcome),
            text: TOLD.into(),
            latency: Duration::ZERO,
        }));
        self.tell(Told::Ended(vec![CallEnd::Replied(ToolReply::error(call, TOLD))]))
    }

    fn show(&self, event: RunEvent) {
        let place =
            Place { turn: self.place().turn + self.run().counts().turns.saturating_sub(1), ..self.place() };
        self.task().scope.meter.emit(Event::Run { place, event: Arc::new(event) });
    }
}

/// Calls that reached their tool, have no end on record and must not be made again on our own account.
fn unknown(run: &AgentRun, begun: &[CallId], orchestrator: &Orchestrator) -> Vec<ToolCall> {
    let is_unknown = |call: &ToolCall| begun.contains(&call.id) && !orchestrator.may_repeat(&call.name);
    run.given_out().into_iter().filter(is_unknown).collect()
}

/// The time of the whole run begins anew; what was worked before counts for its budget.
fn scope(worker: &Worker, watchers: Arc<dyn EventSink>, bill: Bill, worked: Duration) -> Arc<RunScope> {
    let agent = worker.agent();
    let now = tokio::time::Instant::now().into_std();
    Arc::new(RunScope {
        meter: Meter::carried_on(watchers, agent.budget, bill),
        path: vec![agent.name.clone()],
        began: now.checked_sub(worked).unwrap_or(now),
        until: later(now, agent.times.run),
    })
}

fn later(now: Instant, timeout: Duration) -> Instant {
    now.checked_add(timeout).unwrap_or(now)
}

fn known_context(budget: Option<&Budget>, context_tokens: Option<u64>) {
    if let (Some(budget), Some(tokens)) = (budget, context_tokens) {
        budget.set_current(tokens.saturating_sub(budget.usage().schema_tokens));
    }
}
