//! Classifies each call in a turn: the party that runs it, or the reason to refuse it.

use super::calls::{CallPosition, CallState, OpenCall};
use super::final_report::FinalReport;
use super::limits::RunCounters;
use super::plan::RunPlan;
use super::tool_choice;
use crate::conversation::ToolReply;
use crate::internal_tools::batch::{self, BATCH, BatchPlan};
use crate::internal_tools::final_report::{FINAL_REPORT, RunReport};
use crate::internal_tools::handoff::{HANDOFF, Handoff};
use crate::internal_tools::task_status::{TASK_STATUS, TaskCompletion, TaskStatus};
use crate::internal_tools::tool_search::{self, TOOL_CALL, TOOL_SEARCH};
use crate::model_reply::StopReason;
use crate::model_request::ToolChoice;
use crate::tool::{CallId, ToolCall};

/// The classified calls in one turn, and their effects on the run.
#[derive(Debug, Default)]
pub(super) struct ClassifiedTurn {
    pub(super) calls: Vec<OpenCall>,
    /// The number of permitted calls, including calls in batches.
    pub(super) let_through: u32,
    /// The number of permitted calls that the client runs. The limit on calls per turn does not include them: if the
    /// run refused such a call, the call would never reach the client.
    client_calls: u32,
    /// The number of calls that can advance the run. If it is zero, the run asks the model again within the same turn.
    pub(super) useful: u32,
    pub(super) report: Option<RunReport>,
    pub(super) bad_report: Option<String>,
    pub(super) handoff: Option<Handoff>,
    pub(super) statuses: Vec<TaskStatus>,
    /// The number of calls beyond the limit per turn.
    pub(super) too_many: u32,
    /// The number of calls beyond the limit of the whole run.
    pub(super) beyond_run: u32,
    /// The number of permitted tool searches. They are included in `let_through`.
    pub(super) searches: u32,
    /// The number of calls with incomplete arguments.
    pub(super) cut: u32,
    /// The refused tools, each with the reason.
    pub(super) refused: Vec<(String, String)>,
}

/// The rules for classifying calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassifierInput<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) counts: &'a RunCounters,
    pub(super) choice: &'a ToolChoice,
    pub(super) stop: &'a StopReason,
}

impl ClassifiedTurn {
    pub(super) fn of(rules: ClassifierInput<'_>, calls: &[ToolCall]) -> Self {
        let mut turn = Self::default();
        for call in calls {
            turn.take(rules, call, calls);
        }
        turn
    }

    pub(super) fn take_report(&mut self, report: Option<RunReport>) {
        if let Some(report) = report {
            self.useful += 1;
            self.report.get_or_insert(report);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.statuses.last().is_some_and(|status| status.completion() == TaskCompletion::Complete)
    }

    /// Classifies a call that is directly in the reply, not inside a batch. Of the run's own tools, only the task
    /// status can also be called inside a batch.
    fn take(&mut self, rules: ClassifierInput<'_>, call: &ToolCall, all: &[ToolCall]) {
        let plan = rules.plan;
        let Some(call) = self.unwrapped(rules, call, &CallPosition::Turn) else { return };
        let call = &call;
        if let Some(why) = tool_choice::refusal(rules.choice, &call.name, plan) {
            return self.refuse(call, CallPosition::Turn, &why);
        }
        match (call.name.as_str(), &plan.report) {
            (FINAL_REPORT, FinalReport::Tool(shape)) => match shape.read(&call.arguments) {
                Ok(report) => self.accept_report(call, report),
                Err(why) => self.refuse_report(call, why),
            },
            (HANDOFF, _) if plan.routes.tool().is_some() => match plan.routes.read(&call.arguments) {
                Ok(handoff) => self.accept_handoff(call, handoff),
                Err(why) => self.misread(call, CallPosition::Turn, &why),
            },
            (BATCH, _) if plan.offer.batch => match batch::plan(&call.arguments) {
                Ok(batch) => self.take_batch(rules, call, batch, all),
                Err(why) => self.misread(call, CallPosition::Turn, &why),
            },
            _ => self.take_plain(rules, call, CallPosition::Turn),
        }
    }

    fn take_batch(
        &mut self,
        rules: ClassifierInput<'_>,
        call: &ToolCall,
        batch: BatchPlan,
        all: &[ToolCall],
    ) {
        let parent = self.calls.len();
        self.put(call.clone(), CallPosition::Turn, CallState::Batch(batch.extent));
        for (at, item) in batch.items.into_iter().enumerate() {
            let id = inner_id(&call.id, at, all);
            let inner = ToolCall { id, name: item.tool, arguments: item.arguments };
            let position = CallPosition::Batch { parent, item: item.id };
            let Some(inner) = self.unwrapped(rules, &inner, &position) else { continue };
            let refusal = batch::refusal(&inner.name)
                .or_else(|| tool_choice::refusal(rules.choice, &inner.name, rules.plan));
            match refusal {
                Some(why) => self.refuse(&inner, position, &why),
                None => self.take_plain(rules, &inner, position),
            }
        }
    }

    /// Unwraps a call of the `tool_call` tool, which runs a tool that a search found. Returns any other call unchanged.
    /// Refuses a `tool_call` that contains no call.
    fn unwrapped(
        &mut self,
        rules: ClassifierInput<'_>,
        call: &ToolCall,
        position: &CallPosition,
    ) -> Option<ToolCall> {
        if call.name != TOOL_CALL || rules.plan.search().is_none() {
            return Some(call.clone());
        }
        if was_cut(rules.stop, call) {
            self.cut += 1;
            self.refuse(call, position.clone(), CUT_OFF);
            return None;
        }
        match tool_search::unwrap(call) {
            Ok(inner) => Some(inner),
            Err(why) => {
                self.misread(call, position.clone(), &why);
                None
            }
        }
    }

    fn take_plain(&mut self, rules: ClassifierInput<'_>, call: &ToolCall, position: CallPosition) {
        if call.name == TASK_STATUS && rules.plan.offer.task_status {
            return match TaskStatus::read(&call.arguments) {
                Ok(status) => self.accept_status(call, position, status),
                Err(why) => self.misread(call, position, &why),
            };
        }
        if was_cut(rules.stop, call) {
            self.cut += 1;
            return self.refuse(call, position, CUT_OFF);
        }
        let limits = &rules.plan.limits;
        let is_client = rules.plan.client_tools.contains(&call.name);
        if !is_client && self.let_through - self.client_calls >= limits.tool_calls_per_turn_max {
            // A call refused because of a limit counts as useful, so that the run continues with the next turn instead
            // of asking again.
            self.too_many += 1;
            self.useful += 1;
            let max = limits.tool_calls_per_turn_max;
            let why = format!(
                "a turn has at most {max} tool calls; this call was not made: repeat it in the next turn if needed"
            );
            return self.refuse(call, position, &why);
        }
        if limits
            .tool_calls_max
            .is_some_and(|max| rules.counts.tool_calls.saturating_add(self.let_through) >= max)
        {
            self.beyond_run += 1;
            self.useful += 1;
            return self.refuse(
                call,
                position,
                "the tool calls of this run are used up; answer with what you have",
            );
        }
        self.let_through += 1;
        self.useful += 1;
        self.client_calls += u32::from(is_client);
        self.searches += u32::from(call.name == TOOL_SEARCH);
        self.put(call.clone(), position, if is_client { CallState::Client } else { CallState::New });
    }

    fn accept_report(&mut self, call: &ToolCall, report: RunReport) {
        self.useful += 1;
        self.report = Some(report);
        self.put(
            call.clone(),
            CallPosition::Turn,
            CallState::Ended(ToolReply::text(call, "the report was accepted")),
        );
    }

    fn refuse_report(&mut self, call: &ToolCall, why: String) {
        self.refuse(call, CallPosition::Turn, &why);
        self.bad_report = Some(why);
    }

    fn accept_handoff(&mut self, call: &ToolCall, handoff: Handoff) {
        self.useful += 1;
        let message = format!("`{}` takes over", handoff.agent);
        self.handoff = Some(handoff);
        self.put(call.clone(), CallPosition::Turn, CallState::Ended(ToolReply::text(call, message)));
    }

    fn accept_status(&mut self, call: &ToolCall, position: CallPosition, status: TaskStatus) {
        self.useful += 1;
        let message = status.completion().message();
        self.statuses.push(status);
        self.put(call.clone(), position, CallState::Ended(ToolReply::text(call, message)));
    }

    /// Refuses a call to one of the run's own tools whose arguments cannot be parsed. It is counted like any failed
    /// call.
    fn misread(&mut self, call: &ToolCall, position: CallPosition, why: &str) {
        self.useful += 1;
        self.refuse(call, position, why);
    }

    fn refuse(&mut self, call: &ToolCall, position: CallPosition, why: &str) {
        self.refused.push((call.name.clone(), why.to_owned()));
        self.put(call.clone(), position, CallState::Ended(ToolReply::error(call, format!("Error: {why}"))));
    }

    fn put(&mut self, call: ToolCall, position: CallPosition, state: CallState) {
        self.calls.push(OpenCall { call, position, state });
    }
}

const CUT_OFF: &str =
    "the call was cut off by the length limit of the reply and was not made; send it again, shorter";

/// Returns an id for a call inside a batch that differs from the id of every call in the reply.
fn inner_id(batch: &CallId, at: usize, all: &[ToolCall]) -> CallId {
    let mut id = format!("{}.{at}", batch.0);
    while all.iter().any(|call| call.id.0 == id) {
        id.push('_');
    }
    CallId(id)
}

/// Returns true if the reply was cut off inside the arguments. Such a call is not repaired, because it would do only a
/// part of what the model meant.
fn was_cut(stop: &StopReason, call: &ToolCall) -> bool {
    match stop {
        StopReason::Length | StopReason::CutOff => {
            serde_json::from_str::<serde::de::IgnoredAny>(call.arguments.as_text()).is_err()
        }
        StopReason::EndOfTurn
        | StopReason::ToolCalls
        | StopReason::StopSequence
        | StopReason::Refusal
        | StopReason::Filtered
        | StopReason::Paused
        | StopReason::Other(_) => false,
    }
}
