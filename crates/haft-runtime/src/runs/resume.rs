//! Resumes a run from its stored session.

use std::sync::Arc;
use std::time::Duration;

use haft_core::budget::ContextWindow;
use haft_core::conversation::{PartBody, Role, ToolReply};
use haft_core::event::{Event, EventSink};
use haft_core::position::RunPosition;
use haft_core::result::ToolErrorKind;
use haft_core::run::context::RunContext;
use haft_core::run::event::{CallAnswer, RunBill, RunEvent};
use haft_core::run::input::{CallEnd, RunInput};
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::{AgentRun, DriverReadings, RunError, RunStep};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::drive::measure_conversation;
use haft_engine::{Concurrency, Orchestrator, Priority};

use super::active_run::{ActiveRun, RunRequest, with_functions};
use super::caller_choice::CallerChoice;
use super::prepared_agent::PreparedAgent;
use super::relay;
use crate::runtime::FinishedRun;
use crate::spec::FunctionTool;
use haft_store::sessions::{ReadError, SessionHistory, SessionJournal, SessionStatus};

/// The reason why a session cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The run has ended, and there is no further request.
    #[error("the session has already ended ({reason}) and continues only with a new request")]
    Finished {
        /// The name of the finish reason, such as `max_turns`.
        reason: String,
    },
    /// The run cannot be restored from its stored state.
    #[error("{0}")]
    Run(RunError),
}

impl From<RunError> for ResumeError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

/// A stored session and its next request.
#[derive(Debug)]
pub struct ResumedSession {
    /// The session as its journal describes it.
    pub past: SessionHistory,
    /// The journal, opened for appending. Only one process can have it open.
    pub journal: SessionJournal,
    /// A further request. If `None`, the run continues with its unfinished request.
    pub more: Option<String>,
    /// The tool choice of the caller. The journal contains it only for the agent that runs now; an agent that takes over
    /// the request gets it from here.
    pub choice: CallerChoice,
    /// Functions that the caller runs itself.
    pub functions: Vec<FunctionTool>,
    /// Selects the behaviour for a run that has already ended: refuse to resume it, or return its outcome again.
    pub finished: FinishedRun,
}

impl ActiveRun {
    /// Resumes the run. Finished calls are not repeated. Calls that had started are made again only if this is safe;
    /// for the others, the model gets an error that says that their outcome is unknown.
    pub fn resume(
        prepared_agent: Arc<PreparedAgent>,
        resumed: ResumedSession,
        context: Arc<RunContext>,
    ) -> Result<Self, ResumeError> {
        let ResumedSession { past, journal, more, choice, functions, finished } = resumed;
        let (bill, before) = match &more {
            Some(_) => (RunBill::default(), Duration::ZERO),
            None => (past.bill, past.worked()),
        };
        let run_request = RunRequest {
            request: past.opened.title.clone(),
            opening: Vec::new(),
            images: Vec::new(),
            place: RunPosition::first(past.session()),
            works_for: None,
            before: Vec::new(),
            spec: serde_json::Value::Null,
            choice,
            functions,
            scope: scope(&prepared_agent, Arc::clone(&context.events), bill, before),
            context,
            priority: Priority::default(),
            concurrency: Concurrency::default(),
        };
        let standing = past.standing.clone();
        let (mut run, unknown) = Self::restore_run(prepared_agent, run_request, past)?;
        run.original = first_request(&run.run).into();
        if let (SessionStatus::Finished { reason }, None, FinishedRun::Refused) = (standing, &more, finished)
            && !run.has_work_left()
        {
            return Err(ResumeError::Finished { reason });
        }
        Ok(run.go_on(journal, &unknown, more)?)
    }

    /// Continues a session with the budget and deadline of an existing run request.
    pub(super) fn resume_for_request(
        prepared_agent: Arc<PreparedAgent>,
        run_request: RunRequest,
        past: SessionHistory,
        journal: SessionJournal,
    ) -> Result<Self, RunError> {
        let (run, unknown) = Self::restore_run(prepared_agent, run_request, past)?;
        run.go_on(journal, &unknown, None)
    }

    /// Restores the run from its journal, and returns the calls whose outcome is unknown.
    fn restore_run(
        prepared_agent: Arc<PreparedAgent>,
        mut run_request: RunRequest,
        past: SessionHistory,
    ) -> Result<(Self, Vec<ToolCall>), RunError> {
        let broken = |error: ReadError| RunError::Unreadable { problem: error.to_string() };
        let plan = past.plan().map_err(broken)?;
        let mut request = prepared_agent.request(&plan, &prepared_agent.context(&run_request.context));
        request.tools = with_functions(&request.tools, &run_request.functions);
        let budget = Self::context(&prepared_agent, &run_request, &plan, &request);
        let mut unfinished = past.run(request).map_err(broken)?;
        known_context(budget.as_deref(), &unfinished.run, unfinished.context_tokens);
        run_request.place.turn = unfinished.turns_before + 1;
        let context = prepared_agent.context(&run_request.context);
        let appended = prepared_agent.tools_named(unfinished.run.appended(), &context);
        unfinished.run.append_tools(appended);
        let unknown = unknown(&unfinished.run, &unfinished.begun, prepared_agent.orchestrator());
        Ok((Self::of(prepared_agent, run_request, unfinished.run, budget), unknown))
    }

    fn go_on(
        mut self,
        journal: SessionJournal,
        unknown: &[ToolCall],
        more: Option<String>,
    ) -> Result<Self, RunError> {
        let done = more.as_ref().map_or(0, |_| self.run.counts().turns);
        self.start(journal.into(), self.run_request.place.turn + done);
        for call in unknown {
            self.tell_unknown(call)?;
        }
        if let Some(more) = more {
            self.ask_more(more)?;
        }
        Ok(self)
    }

    /// Adds a request to the same conversation. Turn numbers continue.
    fn ask_more(&mut self, more: String) -> Result<(), RunError> {
        self.run_request.place.turn += self.run.counts().turns;
        self.options.place = self.run_request.place;
        self.original = more.as_str().into();
        self.apply_input(RunInput::Requested(more))
    }

    /// Returns true if the ended run still has work: an unfinished step, or a handoff to another agent.
    fn has_work_left(&mut self) -> bool {
        match self.run.next_step(&DriverReadings::default()) {
            RunStep::Done(finish) => relay::next(&self.prepared_agent, &self.original, &finish).is_some(),
            RunStep::CallModel(_)
            | RunStep::Archive(_)
            | RunStep::Summarize(_)
            | RunStep::CallTools(_)
            | RunStep::AwaitClient(_)
            | RunStep::AwaitApproval(_) => true,
        }
    }

    /// Reports a call with an unknown outcome as failed, with its output so far, so that the model can decide how to
    /// continue.
    fn tell_unknown(&mut self, call: &ToolCall) -> Result<(), RunError> {
        const TOLD: &str = "Error: haft stopped during this call. It is not known whether the call took effect: check before you \
            repeat it.";
        let output =
            self.prepared_agent.environment().partial_output(self.run_request.place.session, &call.id);
        let output = output.map(|output| format!("\nThe last output before haft stopped:\n{output}"));
        let text = format!("{TOLD}{}", output.unwrap_or_default());
        self.show(RunEvent::Called(call.clone()));
        self.show(RunEvent::Answered(CallAnswer {
            call: call.id.clone(),
            name: call.name.clone(),
            failure: Some(ToolErrorKind::UnknownOutcome),
            text: text.clone(),
            latency: Duration::ZERO,
        }));
        self.apply_input(RunInput::Ended(vec![CallEnd::Replied(ToolReply::error(call, text))]))
    }

    fn show(&self, event: RunEvent) {
        let before = self.run_request.place.turn.saturating_sub(1);
        let place = RunPosition { turn: before + self.run.counts().turns.max(1), ..self.run_request.place };
        self.run_request.scope.meter.emit(Event::Run { place, event: Arc::new(event) });
    }
}

fn first_request(run: &AgentRun) -> String {
    let message = run.conversation().messages().iter().find(|message| message.role == Role::User);
    let parts = message.into_iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match &part.body {
        PartBody::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Returns the calls that reached their tool, have no result in the journal, and are not safe to repeat.
fn unknown(run: &AgentRun, begun: &[CallId], orchestrator: &Orchestrator) -> Vec<ToolCall> {
    let is_unknown = |call: &ToolCall| begun.contains(&call.id) && !orchestrator.may_repeat(&call.name);
    run.given_out().into_iter().filter(is_unknown).collect()
}

/// Returns the scope of the resumed run. The time that the run worked before is subtracted from its time limits.
fn scope(
    prepared_agent: &PreparedAgent,
    watchers: Arc<dyn EventSink>,
    bill: RunBill,
    before: Duration,
) -> Arc<RunScope> {
    let agent = prepared_agent.agent();
    let now = tokio::time::Instant::now().into_std();
    let meter = Meter::resume_with_bill(watchers, agent.budget, bill);
    let began = now.checked_sub(before).unwrap_or(now);
    let until = now.checked_add(time_left(agent.times.run, before)).unwrap_or(now);
    Arc::new(RunScope::new(meter, vec![agent.name.clone()], began, until))
}

/// Returns the time that a resumed run may still take. A run that has used all its time gets the full time again.
/// Otherwise it would end at once, although the user wants it to continue.
fn time_left(limit: Duration, worked: Duration) -> Duration {
    limit.checked_sub(worked).filter(|left| !left.is_zero()).unwrap_or(limit)
}

/// Sets the size of the context to the larger of two sizes: the size of the restored conversation, which is an
/// estimate, and the last recorded size, which does not include later outputs.
fn known_context(budget: Option<&ContextWindow>, run: &AgentRun, recorded_tokens: Option<u64>) {
    let Some(budget) = budget else { return };
    measure_conversation(budget, run);
    if let Some(tokens) = recorded_tokens.filter(|tokens| *tokens > budget.taken_tokens()) {
        budget.report(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_run_gets_the_full_time_only_if_no_time_is_left() {
        let check = |worked: u64, expected: u64| {
            assert_eq!(
                time_left(Duration::from_mins(1), Duration::from_secs(worked)),
                Duration::from_secs(expected)
            );
        };
        check(0, 60);
        check(45, 15);
        check(60, 60);
        check(3_600, 60);
    }
}
