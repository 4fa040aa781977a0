//! One agent's work on one request: every decision of the loop, and none of its IO.
//!
//! Whoever drives a run asks for the [`next_step`](AgentRun::next_step), does it, and gives back what came of it, until the
//! step is [`Done`](Step::Done). The same step is given until it was answered, so a run that was stored between two steps,
//! as a [`RunSnapshot`](snapshot::RunSnapshot), goes on elsewhere as if nothing had happened.
//!
//! A turn is one useful reply of the model. A reply that is of no use (empty, cut off, against the tool choice, without the
//! report that was asked for) is asked for again within its turn, a bounded number of times.

pub mod budget;
mod calls;
pub mod choice;
pub mod chronicle;
pub mod context;
mod error;
pub mod event;
pub mod final_report;
pub mod final_turn;
pub mod finish;
pub mod limits;
pub mod meter;
mod note;
pub mod plan;
pub mod repeat;
mod reply;
pub mod scope;
pub mod snapshot;
mod state;
pub mod told;
mod turn;

use std::sync::Arc;

use crate::conversation::{Conversation, ConversationError, Message, ToolReply};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_reply::ModelReply;
use crate::model_request::{ModelRequest, ModelTool, ToolChoice};
use crate::result::ToolResult;
use crate::tool::{CallId, ToolCall};

use budget::Budget;
use calls::{CallState, From, OpenCalls, Waiting};
use choice::Moment;
use final_turn::WhyFinal;
use finish::{Finish, FinishReason};
use state::{Phase, Signal, State};
use told::CallEnd;

pub use error::RunError;
pub use note::RunNote;
pub use plan::{Offer, RunPlan};

/// What is to be done next.
#[derive(Debug, Clone)]
pub enum Step {
    CallModel(Box<ModelRequest>),
    /// Carry these out; the results may come in any order.
    CallTools(Vec<ToolCall>),
    /// Whoever asked carries these out; the run can be stored until then.
    AwaitClient(Vec<ToolCall>),
    /// A person has to answer first; the run can be stored until then.
    AwaitApproval(Vec<ToolCall>),
    Done(Finish),
}

/// What the driver knows and a run cannot: the clock, the meters of the whole tree, the size of the next request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Readings {
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// What may still be spent, here and by whoever this run works for; what others hold counts as spent.
    pub left: Budget,
    /// What the next request would have the model read; `None` when nobody counts.
    pub context_tokens: Option<u64>,
}

/// What a person says about a call that was put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is made again; what was remembered lets it through.
    Allowed,
    Denied,
}

/// Why a run ends at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abort {
    Interrupted,
    TimedOut,
    /// What it does can no longer be put on record, because of this.
    Unrecorded(String),
}

impl Abort {
    /// The stable name on every wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timed_out",
            Self::Unrecorded(_) => "unrecorded",
        }
    }
}

/// The state machine of one run.
#[derive(Debug, Clone)]
pub struct AgentRun {
    /// Everything that is asked of a model; the conversation in it grows.
    request: ModelRequest,
    plan: RunPlan,
    state: State,
    notes: Vec<RunNote>,
}

impl AgentRun {
    /// The request says what is asked: its conversation ends with the user's message. The run's own tools are added to
    /// those in it.
    pub fn new(request: ModelRequest, plan: RunPlan) -> Self {
        Self::with_state(request, plan, State::default())
    }

    fn with_state(mut request: ModelRequest, plan: RunPlan, state: State) -> Self {
        request.tools = plan.shown(&request.tools);
        Self { request, plan, state, notes: Vec::new() }
    }

    /// The catalog changed: from the next request on the model is shown these tools.
    pub fn set_tools(&mut self, tools: &Arc<[ModelTool]>) {
        self.request.tools = self.plan.shown(tools);
    }

    pub fn conversation(&self) -> &Conversation {
        &self.request.conversation
    }

    /// The tools that the model is shown, the run's own included.
    pub fn tools(&self) -> &[ModelTool] {
        &self.request.tools
    }

    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    pub fn counts(&self) -> &limits::Counts {
        &self.state.counts
    }

    /// The calls that were given out to be carried out, and have not ended.
    pub fn given_out(&self) -> Vec<ToolCall> {
        match &self.state.phase {
            Phase::Calls(calls) => calls.given_out(),
            Phase::Model | Phase::Ended(_) => Vec::new(),
        }
    }

    /// Takes what is worth telling whoever watches; each is told once.
    pub fn take_notes(&mut self) -> Vec<RunNote> {
        std::mem::take(&mut self.notes)
    }

    /// What is to be done now. Asked again without an answer in between, it is the same.
    pub fn next_step(&mut self, readings: &Readings) -> Step {
        if let Some(step) = self.step_for_calls(readings) {
            return step;
        }
        if let Phase::Ended(finish) = &mut self.state.phase {
            finish.ended_ms.get_or_insert(readings.now_ms);
            return Step::Done(finish.clone());
        }
        self.begin_final_turn(readings);
        self.ask()
    }

    /// The model answered.
    pub fn model_replied(&mut self, reply: ModelReply) -> Result<(), RunError> {
        self.expect_model("a reply of the model")?;
        self.take_reply(reply)
    }

    /// The model could not be asked, and to ask again is of no use.
    pub fn model_failed(&mut self, error: &ModelError) -> Result<(), RunError> {
        self.expect_model("a failure of the model")?;
        self.end(Finish::new(FinishReason::ModelFailed(error.kind)).with_detail(error.to_string()));
        Ok(())
    }

    /// Calls ended. Some may come before others; a call that waits for a person is put aside.
    pub fn tools_replied(&mut self, results: Vec<ToolResult>) -> Result<(), RunError> {
        self.calls_ended(results.into_iter().map(CallEnd::of).collect())
    }

    /// The same, for results that were put on record.
    pub fn calls_ended(&mut self, ends: Vec<CallEnd>) -> Result<(), RunError> {
        let answers = ends.into_iter().map(|end| (end.call().clone(), end.into_state())).collect();
        self.answer(From::Tools, answers)
    }

    /// Whoever asked carried out functions. Those that are left are still waited for.
    pub fn client_replied(&mut self, replies: Vec<ToolReply>) -> Result<(), RunError> {
        let answers =
            replies.into_iter().map(|reply| (reply.call.clone(), CallState::Ended(reply))).collect();
        self.answer(From::Client, answers)
    }

    /// A person answered.
    pub fn approval_given(&mut self, id: &CallId, verdict: Verdict) -> Result<(), RunError> {
        let call = ToolCall { id: id.clone(), ..self.open_call(id)? };
        let state = match verdict {
            Verdict::Allowed => CallState::New,
            Verdict::Denied => CallState::Ended(ToolReply::error(&call, "Error: a person denied this call")),
        };
        self.answer(From::Approval, vec![(id.clone(), state)])
    }

    /// Lets the run come to its end: what has not begun is not made, and the next turn is the last one.
    pub fn stop(&mut self) {
        self.state.signal = Signal::Stop;
    }

    /// Ends the run now. What was done so far is kept.
    pub fn abort(&mut self, why: Abort) {
        let finish = match why {
            Abort::Interrupted => Finish::new(FinishReason::Aborted),
            Abort::TimedOut => Finish::new(FinishReason::TimedOut),
            Abort::Unrecorded(problem) => Finish::new(FinishReason::Unrecorded).with_detail(problem),
        };
        if matches!(self.state.phase, Phase::Ended(_)) {
            return;
        }
        if let Phase::Calls(calls) = &mut self.state.phase {
            calls.refuse_all("Error: the run was ended before this call was");
            self.state.ending = Some(finish);
            return self.close_calls();
        }
        self.end(finish);
    }

    fn step_for_calls(&mut self, readings: &Readings) -> Option<Step> {
        let Phase::Calls(calls) = &mut self.state.phase else { return None };
        cut_short(calls, self.state.signal, readings);
        match calls.waiting() {
            Waiting::Tools(tools) => {
                calls.give_out();
                Some(Step::CallTools(tools))
            }
            Waiting::Approval(calls) => Some(Step::AwaitApproval(calls)),
            Waiting::Client(calls) => Some(Step::AwaitClient(calls)),
            Waiting::Nobody => {
                self.close_calls();
                None
            }
        }
    }

    /// All calls of the turn have ended: the model is told, and the run goes on or ends.
    fn close_calls(&mut self) {
        let Phase::Calls(calls) = std::mem::replace(&mut self.state.phase, Phase::Model) else { return };
        if let Err(error) = self.say(calls.into_message()) {
            return self.end_misfit(&error);
        }
        if let Some(finish) = self.state.ending.take() {
            return self.end(finish);
        }
        for words in std::mem::take(&mut self.state.to_tell) {
            self.tell(words);
        }
    }

    fn begin_final_turn(&mut self, readings: &Readings) {
        if self.state.final_turn.is_some() {
            return;
        }
        let Some(why) = self.why_final(readings) else { return };
        self.state.final_turn = Some(why);
        self.notes.push(RunNote::FinalTurn(why));
        if why != WhyFinal::OnlyTurn {
            self.tell(format!("{} {}", why.told(), self.plan.report.last_words()));
        }
    }

    /// The order is that of the reasons' weight: what somebody wants goes before what is used up.
    fn why_final(&self, readings: &Readings) -> Option<WhyFinal> {
        let Self { plan, state, .. } = self;
        let full =
            |limit: limits::ContextLimit| readings.context_tokens.is_some_and(|tokens| limit.is_full(tokens));
        if state.signal == Signal::Stop {
            return Some(WhyFinal::Stopped);
        }
        if readings.left.used_up().is_some() {
            return Some(WhyFinal::Budget);
        }
        if plan.limits.context.is_some_and(full) {
            return Some(WhyFinal::ContextFull);
        }
        state.forced.or_else(|| self.last_turn())
    }

    fn last_turn(&self) -> Option<WhyFinal> {
        let Self { plan, state, .. } = self;
        let is_last = state.counts.turns.saturating_add(1) >= plan.limits.turns_max;
        match (is_last, state.counts.turns) {
            (false, _) => None,
            (true, 0) => Some(WhyFinal::OnlyTurn),
            (true, _) => Some(WhyFinal::LastTurn),
        }
    }

    fn ask(&mut self) -> Step {
        let (sent, words) = choice::sent(&self.choice(), self.plan.support, &self.request.tools);
        if words != self.state.told_choice {
            let told = words.clone().unwrap_or_else(|| "You may call any tool now, or answer.".into());
            self.state.told_choice = words;
            // In the last turn the model was told already.
            if self.state.final_turn.is_none() {
                self.tell(told);
            }
        }
        self.request.tool_choice = sent;
        Step::CallModel(Box::new(self.request.clone()))
    }

    /// The choice that holds for the reply that is waited for.
    fn choice(&self) -> ToolChoice {
        let moment = match (self.state.final_turn, self.state.counts.tool_turns) {
            (Some(_), _) => Moment::Final,
            (None, 0) => Moment::First,
            (None, _) => Moment::Later,
        };
        let allowed = self.plan.allowed_tools.as_deref();
        choice::effective(&self.plan.tool_choice, allowed, moment, self.plan.answer_by())
    }

    fn answer(&mut self, from: From, answers: Vec<(CallId, CallState)>) -> Result<(), RunError> {
        let waits_for = self.state.phase.waits_for();
        match &mut self.state.phase {
            Phase::Calls(calls) => calls.answer(from, answers),
            Phase::Model | Phase::Ended(_) => {
                Err(RunError::Unexpected { given: "the end of a call", waits_for })
            }
        }
    }

    fn open_call(&self, id: &CallId) -> Result<ToolCall, RunError> {
        let open = match &self.state.phase {
            Phase::Calls(calls) => calls.0.iter().find(|open| open.call.id == *id),
            Phase::Model | Phase::Ended(_) => None,
        };
        open.map(|open| open.call.clone()).ok_or_else(|| RunError::UnknownCall { call: id.clone() })
    }

    fn expect_model(&self, given: &'static str) -> Result<(), RunError> {
        match &self.state.phase {
            Phase::Model => Ok(()),
            phase @ (Phase::Calls(_) | Phase::Ended(_)) => {
                Err(RunError::Unexpected { given, waits_for: phase.waits_for() })
            }
        }
    }

    fn say(&mut self, message: Message) -> Result<(), ConversationError> {
        Arc::make_mut(&mut self.request.conversation).push(message)
    }

    /// A word of the operator to the model. It is only said when no call is open, so it always fits.
    fn tell(&mut self, words: impl Into<String>) {
        if let Err(error) = self.say(Message::system(words)) {
            self.end_misfit(&error);
        }
    }

    fn end(&mut self, finish: Finish) {
        self.state.phase = Phase::Ended(finish);
    }

    fn end_misfit(&mut self, error: &ConversationError) {
        let reason = FinishReason::ModelFailed(ModelErrorKind::Malformed);
        self.end(Finish::new(reason).with_detail(error.to_string()));
    }
}

/// Ends calls that must not begin any more.
fn cut_short(calls: &mut OpenCalls, signal: Signal, readings: &Readings) {
    const USED_UP: &str = "Error: the budget of this run is used up; the call was not made";
    if signal == Signal::Stop {
        let why = "Error: the run was asked to stop; the call was not made";
        calls.refuse_new(0, why);
        calls.refuse_waiting(why);
    } else if readings.left.used_up().is_some() {
        calls.refuse_new(0, USED_UP);
    } else if let Some(left) = readings.left.calls {
        calls.refuse_new(usize::try_from(left).unwrap_or(usize::MAX), USED_UP);
    }
}

#[cfg(test)]
mod tests;
