//! The state machine of one agent's work on one request: it makes every decision of the loop and does no IO.
//!
//! The driver asks for the [`next_step`](AgentRun::next_step), carries it out and reports the outcome, until the step
//! is [`Done`](RunStep::Done). The run returns the same step until the driver reports its outcome. Therefore a run can
//! be stored between two steps, as a [`RunSnapshot`](snapshot::RunSnapshot), and resumed in another process with the
//! same result.
//!
//! A turn is one useful reply of the model. If a reply is unusable (it is empty or cut off, breaks the tool choice, or
//! lacks the required report), the run asks again within the same turn, up to a limit.

pub mod budget;
pub mod caller_approvals;
mod calls;
mod compacting;
pub mod context;
mod error;
pub mod event;
pub mod exposure;
pub mod final_report;
pub mod final_turn;
pub mod finish;
pub mod input;
pub mod journal;
pub mod limits;
pub mod meter;
mod note;
pub mod park_clock;
pub mod plan;
pub mod repeat;
mod reply;
pub mod scope;
pub mod snapshot;
mod state;
pub mod tool_choice;
mod turn;
pub mod untrusted;

use std::sync::Arc;

use crate::conversation::{Conversation, ConversationError, Message, PartBody, ToolReply};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_reply::ModelReply;
use crate::model_request::{ModelRequest, ModelTool, OutputShape, ParallelCalls, ToolChoice};
use crate::output_store::StoreEntry;
use crate::result::ToolResult;
use crate::tool::{CallId, ToolCall};

use budget::SpendLimit;
use calls::{AwaitedParty, CallState, OpenCalls, ResultSender};
use final_turn::FinalTurnReason;
use finish::{FinishReason, RunFinish};
use input::CallEnd;
use state::{AgentRunState, RunPhase, StopSignal};
use tool_choice::ChoiceStage;

pub use error::RunError;
pub use note::{Compaction, RunNote, SummaryAuthor, UnusableText};
pub use plan::{OptionalTools, RunPlan};

/// The next action of the driver.
#[derive(Debug, Clone)]
pub enum RunStep {
    /// Send this request to the model, then report the reply or the error.
    CallModel(Box<ModelRequest>),
    /// Append this text to the session's archive, then report the outcome.
    Archive(ArchiveRequest),
    /// Ask the model for a summary of old turns, then report the reply or the error. Events of the run do not contain
    /// the summary.
    Summarize(Box<ModelRequest>),
    /// Run these tools. The results may arrive in any order.
    CallTools(Vec<ToolCall>),
    /// The client must run these tools. The run can be stored until the client replies.
    AwaitClient(Vec<ToolCall>),
    /// A user must approve or deny these calls first. The run can be stored until then.
    AwaitApproval(Vec<ToolCall>),
    /// The run has ended. All further steps are `Done` too.
    Done(RunFinish),
}

/// Text that is removed from the conversation and must stay readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveRequest {
    /// The archive so far; `None` for the first text.
    pub archive: Option<StoreEntry>,
    /// The text to append. It ends with a newline.
    pub text: String,
}

/// Values that only the driver can measure: the time, the remaining budget of this run and its parents, and the size
/// and cost of the next request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DriverReadings {
    /// The current time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The remaining budget of this run and its parents. The reservations of other runs are subtracted too.
    pub left: SpendLimit,
    /// The input tokens of the next request; `None` if the driver does not count them.
    pub context_tokens: Option<u64>,
    /// The expected cost of these input tokens, in US dollars; `None` while the price is unknown.
    pub request_usd: Option<f64>,
    /// The estimated part of `context_tokens` that the system text and the tools take; `None` if the driver does not
    /// count them. The decision about a compaction needs this value from the journal, so that a replay makes the same
    /// decision.
    pub fixed_tokens: Option<u64>,
}

impl DriverReadings {
    /// Returns true if the remaining budget is too small for the next request.
    pub fn is_short(&self) -> bool {
        self.left.is_below(self.context_tokens.unwrap_or(0), self.request_usd.unwrap_or(0.0))
    }
}

/// A user's decision about a call that waits for approval. The run needs no more than this part of the decision: the
/// engine stores whether later calls are allowed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDecision {
    /// The run repeats the call, and the stored approval permits it.
    Allow,
    /// The call is refused, and the model gets an error that says that the user refused.
    Deny,
}

/// The reason to end a run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbortReason {
    /// A user or the program aborted the run.
    Interrupted,
    /// The run exceeded its timeout.
    TimedOut,
    /// The journal can no longer record the run. The text is the reason.
    JournalFailed(String),
    /// The user sent new input, and another run continues with it. The driver ends a run for this reason only between
    /// two turns.
    Steered,
}

impl AbortReason {
    /// Returns the stable name that all wire formats use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::TimedOut => "timed_out",
            // Stored journals and JSON results contain this word.
            Self::JournalFailed(_) => "unrecorded",
            Self::Steered => "steered",
        }
    }
}

/// The state machine of one run.
#[derive(Debug, Clone)]
pub struct AgentRun {
    /// The model request. Its conversation grows during the run.
    request: ModelRequest,
    plan: RunPlan,
    state: AgentRunState,
    notes: Vec<RunNote>,
}

impl AgentRun {
    /// Creates a run. The conversation in `request` must end with the user's message. The run adds its own tools to the
    /// tools in the request.
    pub fn new(request: ModelRequest, plan: RunPlan) -> Self {
        Self::with_state(request, plan, AgentRunState::default())
    }

    fn with_state(mut request: ModelRequest, plan: RunPlan, state: AgentRunState) -> Self {
        request.tools = plan.shown(&request.tools);
        Self { request, plan, state, notes: Vec::new() }
    }

    /// Replaces the tools after the catalog has changed. The model sees the new tools starting with the next request.
    pub fn set_tools(&mut self, tools: &Arc<[ModelTool]>) {
        self.request.tools = self.plan.shown(tools);
    }

    /// Appends tools to the list that the model sees. The other tools keep their order, and the run's own tools stay
    /// before the appended ones, so that as much of a cached prompt as possible stays valid.
    pub fn append_tools(&mut self, tools: impl IntoIterator<Item = ModelTool>) {
        let mut all = self.request.tools.to_vec();
        for tool in tools {
            if all.iter().all(|known| known.name != tool.name) {
                all.push(tool);
            }
        }
        self.request.tools = all.into();
    }

    /// Returns the names of the tools that were appended to the list during the run, in order.
    pub fn appended(&self) -> &[String] {
        &self.state.appended
    }

    /// Returns the messages so far, including those with which the run was created.
    pub fn conversation(&self) -> &Conversation {
        &self.request.conversation
    }

    /// Returns the conversation that requests share. A compaction replaces it.
    pub fn shared_conversation(&self) -> &Arc<Conversation> {
        &self.request.conversation
    }

    /// Returns the instructions before the first message.
    pub fn system(&self) -> &str {
        &self.request.system
    }

    /// Returns the tools that the model sees, including the run's own.
    pub fn tools(&self) -> &Arc<[ModelTool]> {
        &self.request.tools
    }

    /// Returns the settings, which never change during a run.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Returns whether the calls of one turn may run in parallel.
    pub fn parallel_calls(&self) -> ParallelCalls {
        self.request.parallel_calls
    }

    /// Returns the numbers of turns and calls so far.
    pub fn counts(&self) -> &limits::RunCounters {
        &self.state.counts
    }

    /// Returns the calls that were given to the driver and have not ended yet.
    pub fn given_out(&self) -> Vec<ToolCall> {
        match &self.state.phase {
            RunPhase::Calls(calls) => calls.given_out(),
            RunPhase::Model | RunPhase::Compacting(_) | RunPhase::Ended(_) => Vec::new(),
        }
    }

    /// Returns true if a turn is complete and another one would begin: the model's reply was usable, and all its calls
    /// have ended. An abort at this point loses no work.
    pub fn is_between_turns(&self) -> bool {
        let AgentRunState { phase, counts, ending, partial, .. } = &self.state;
        match phase {
            RunPhase::Calls(calls) => ending.is_none() && matches!(calls.waiting(), AwaitedParty::Nobody),
            RunPhase::Model => counts.turns > 0 && counts.attempts == 0 && partial.is_none(),
            RunPhase::Compacting(_) | RunPhase::Ended(_) => false,
        }
    }

    /// Takes the notes for observers. The run returns each note once.
    pub fn take_notes(&mut self) -> Vec<RunNote> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the next action. A second call returns the same action until the outcome is reported.
    pub fn next_step(&mut self, readings: &DriverReadings) -> RunStep {
        if let Some(step) = self.step_for_calls(readings) {
            return step;
        }
        if let RunPhase::Ended(finish) = &mut self.state.phase {
            finish.ended_ms.get_or_insert(readings.now_ms);
            return RunStep::Done(finish.clone());
        }
        if let Some(step) = self.step_for_compaction(readings) {
            return step;
        }
        self.begin_final_turn(readings);
        self.ask()
    }

    /// Reports the model's reply.
    pub fn model_replied(&mut self, reply: ModelReply) -> Result<(), RunError> {
        self.expect_model("a model reply")?;
        self.take_reply(reply)
    }

    /// Reports that the model request failed and that a retry cannot help.
    pub fn model_failed(&mut self, error: &ModelError) -> Result<(), RunError> {
        self.expect_model("a model error")?;
        let finish = RunFinish::new(FinishReason::ModelFailed(error.kind)).with_detail(error.to_string());
        self.end(RunFinish { retry_after: error.retry_after, ..finish });
        Ok(())
    }

    /// Reports the results of some calls, in any order. A call that needs approval stays open.
    pub fn tools_replied(&mut self, results: Vec<ToolResult>) -> Result<(), RunError> {
        self.calls_ended(results.into_iter().map(CallEnd::of).collect())
    }

    /// Reports results in the form that the journal records.
    pub fn calls_ended(&mut self, ends: Vec<CallEnd>) -> Result<(), RunError> {
        let answers = ends.into_iter().map(|end| (end.call().clone(), end.into_state())).collect();
        self.answer(ResultSender::Tools, answers)
    }

    /// Reports the client's results. The run still waits for calls without a result.
    pub fn client_replied(&mut self, replies: Vec<ToolReply>) -> Result<(), RunError> {
        let answers =
            replies.into_iter().map(|reply| (reply.call.clone(), CallState::Ended(reply))).collect();
        self.answer(ResultSender::Client, answers)
    }

    /// Reports a user's decision.
    pub fn approval_given(&mut self, id: &CallId, decision: CallDecision) -> Result<(), RunError> {
        let call = ToolCall { id: id.clone(), ..self.open_call(id)? };
        let state = match decision {
            CallDecision::Allow => CallState::New,
            CallDecision::Deny => {
                CallState::Ended(ToolReply::error(&call, "Error: a person denied this call"))
            }
        };
        self.answer(ResultSender::Approval, vec![(id.clone(), state)])
    }

    /// Ends the run gracefully: it makes no further calls, and the next turn is the last one.
    pub fn stop(&mut self) {
        self.state.signal = StopSignal::Stop;
    }

    /// Ends the run now and keeps the conversation so far.
    pub fn abort(&mut self, why: AbortReason) {
        let finish = match why {
            AbortReason::Interrupted => RunFinish::new(FinishReason::Aborted),
            AbortReason::TimedOut => RunFinish::new(FinishReason::TimedOut),
            AbortReason::JournalFailed(problem) => {
                RunFinish::new(FinishReason::JournalFailed).with_detail(problem)
            }
            AbortReason::Steered => RunFinish::new(FinishReason::Steered),
        };
        if matches!(self.state.phase, RunPhase::Ended(_)) {
            return;
        }
        if let RunPhase::Calls(calls) = &mut self.state.phase {
            calls.refuse_all("Error: the run ended before this call finished");
            self.state.ending = Some(finish);
            return self.close_calls();
        }
        self.end(finish);
    }

    fn step_for_calls(&mut self, readings: &DriverReadings) -> Option<RunStep> {
        let RunPhase::Calls(calls) = &mut self.state.phase else { return None };
        end_unstarted_calls(calls, self.state.signal, readings);
        match calls.waiting() {
            AwaitedParty::Tools(tools) => {
                calls.mark_new_running();
                Some(RunStep::CallTools(tools))
            }
            AwaitedParty::Approval(calls) => Some(RunStep::AwaitApproval(calls)),
            AwaitedParty::Client(calls) => Some(RunStep::AwaitClient(calls)),
            AwaitedParty::Nobody => {
                self.close_calls();
                None
            }
        }
    }

    /// Appends the results of all calls to the conversation, then continues or ends the run.
    fn close_calls(&mut self) {
        let RunPhase::Calls(calls) = std::mem::replace(&mut self.state.phase, RunPhase::Model) else {
            return;
        };
        let message = self.with_written_names(calls.into_message());
        if let Err(error) = self.push_message(message) {
            return self.end_on_conversation_error(&error);
        }
        if let Some(finish) = self.state.ending.take() {
            return self.end(finish);
        }
        for words in std::mem::take(&mut self.state.pending_instructions) {
            self.add_instruction(words);
        }
    }

    /// Gives each reply the tool name that the model wrote. Without this change, the reply to a call of the `tool_call`
    /// tool would have the name of the tool that it ran, but some wire formats match replies to calls by name.
    fn with_written_names(&self, mut message: Message) -> Message {
        for part in &mut message.parts {
            if let PartBody::Reply(reply) = &mut part.body
                && let Some(call) = self.conversation().open_calls().find(|call| call.id == reply.call)
            {
                reply.name.clone_from(&call.name);
            }
        }
        message
    }

    fn begin_final_turn(&mut self, readings: &DriverReadings) {
        if self.state.final_turn.is_some() {
            return self.cap_final_turn(readings);
        }
        let Some(why) = self.why_final(readings) else { return };
        self.state.final_turn = Some(why);
        self.notes.push(RunNote::FinalTurn(why));
        if why != FinalTurnReason::OnlyTurn {
            self.add_instruction(format!("{} {}", why.message(), self.plan.report.final_instruction()));
        }
    }

    /// Handles a budget that runs out between two attempts of the final turn: the budget becomes the reason for this
    /// turn. The run then allows no further attempts.
    fn cap_final_turn(&mut self, readings: &DriverReadings) {
        let again = self.state.counts.attempts > 0;
        if again && self.state.final_turn != Some(FinalTurnReason::Budget) && self.is_budget_spent(readings) {
            self.state.final_turn = Some(FinalTurnReason::Budget);
            self.notes.push(RunNote::FinalTurn(FinalTurnReason::Budget));
        }
    }

    /// Returns the reason to make the next turn the last one. Checks a user's stop request first and the exhausted
    /// limits after it, because the first match becomes the finish reason.
    fn why_final(&self, readings: &DriverReadings) -> Option<FinalTurnReason> {
        let Self { plan, state, .. } = self;
        let full = |limit: limits::RunContextLimit| {
            readings.context_tokens.is_some_and(|tokens| limit.is_full(tokens))
        };
        if state.signal == StopSignal::Stop {
            return Some(FinalTurnReason::Stopped);
        }
        if self.is_budget_spent(readings) {
            return Some(FinalTurnReason::Budget);
        }
        if plan.limits.context.is_some_and(full) {
            return Some(FinalTurnReason::ContextFull);
        }
        state.forced.or_else(|| self.last_turn())
    }

    /// Returns true if only one more request may be sent: a limit is reached, or the next request would probably exceed
    /// it. The cost is estimated, because the exact cost is known only after the request. The first request is not
    /// estimated: no size has been measured yet, and an estimate from the tools alone would end a run with a small
    /// budget before its first request.
    fn is_budget_spent(&self, readings: &DriverReadings) -> bool {
        readings.left.used_up().is_some() || self.state.counts.has_asked() && readings.is_short()
    }

    fn last_turn(&self) -> Option<FinalTurnReason> {
        let Self { plan, state, .. } = self;
        let is_last = state.counts.turns.saturating_add(1) >= plan.limits.turns_max;
        match (is_last, state.counts.turns) {
            (false, _) => None,
            (true, 0) => Some(FinalTurnReason::OnlyTurn),
            (true, _) => Some(FinalTurnReason::LastTurn),
        }
    }

    fn ask(&mut self) -> RunStep {
        let (sent, words) = tool_choice::sent(&self.choice(), &self.plan, &self.request.tools);
        if words != self.state.told_choice {
            let prompt = words.clone().unwrap_or_else(|| "You may call any tool now, or answer.".into());
            self.state.told_choice = words;
            // In the final turn, `begin_final_turn` gives the instruction if one is needed.
            if self.state.final_turn.is_none() {
                self.add_instruction(prompt);
            }
        }
        self.request.tool_choice = sent;
        // Some providers reject tools together with an output format, and Ollama forces every reply into the format.
        let is_without_tools = self.request.tools.is_empty();
        self.request.output =
            if is_without_tools { self.plan.report.output_shape() } else { OutputShape::Text };
        RunStep::CallModel(Box::new(self.request.clone()))
    }

    /// Returns the tool choice for the next reply.
    fn choice(&self) -> ToolChoice {
        let moment = match (self.state.final_turn, self.state.counts.tool_turns) {
            (Some(_), _) => ChoiceStage::Final,
            (None, 0) => ChoiceStage::First,
            (None, _) => ChoiceStage::Later,
        };
        let allowed = self.plan.allowed_tools.as_deref();
        tool_choice::effective(&self.plan.tool_choice, allowed, moment, self.plan.answer_by())
    }

    fn answer(&mut self, from: ResultSender, answers: Vec<(CallId, CallState)>) -> Result<(), RunError> {
        let waits_for = self.state.phase.waits_for();
        match &mut self.state.phase {
            RunPhase::Calls(calls) => calls.answer(from, answers),
            RunPhase::Model | RunPhase::Compacting(_) | RunPhase::Ended(_) => {
                Err(RunError::Unexpected { given: "a call result", waits_for })
            }
        }
    }

    fn open_call(&self, id: &CallId) -> Result<ToolCall, RunError> {
        let open = match &self.state.phase {
            RunPhase::Calls(calls) => calls.0.iter().find(|open| open.call.id == *id),
            RunPhase::Model | RunPhase::Compacting(_) | RunPhase::Ended(_) => None,
        };
        open.map(|open| open.call.clone()).ok_or_else(|| RunError::UnknownCall { call: id.clone() })
    }

    fn expect_model(&self, given: &'static str) -> Result<(), RunError> {
        match &self.state.phase {
            RunPhase::Model => Ok(()),
            phase @ (RunPhase::Calls(_) | RunPhase::Compacting(_) | RunPhase::Ended(_)) => {
                Err(RunError::Unexpected { given, waits_for: phase.waits_for() })
            }
        }
    }

    fn push_message(&mut self, message: Message) -> Result<(), ConversationError> {
        Arc::make_mut(&mut self.request.conversation).push(message)
    }

    /// Appends an operator message. No call is open at this point, so the conversation always accepts it.
    fn add_instruction(&mut self, words: impl Into<String>) {
        if let Err(error) = self.push_message(Message::system(words)) {
            self.end_on_conversation_error(&error);
        }
    }

    fn end(&mut self, finish: RunFinish) {
        self.state.phase = RunPhase::Ended(finish);
    }

    fn end_on_conversation_error(&mut self, error: &ConversationError) {
        let reason = FinishReason::ModelFailed(ModelErrorKind::Malformed);
        self.end(RunFinish::new(reason).with_detail(error.to_string()));
    }
}

/// Ends the calls that have not started and must not start any more.
fn end_unstarted_calls(calls: &mut OpenCalls, signal: StopSignal, readings: &DriverReadings) {
    const USED_UP: &str = "Error: the budget of this run is used up; the call was not made";
    if signal == StopSignal::Stop {
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
