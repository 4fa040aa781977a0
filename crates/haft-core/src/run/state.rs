//! The mutable state of a run.

use super::calls::{AwaitedParty, CallPosition, OpenCalls};
use super::compacting::{CompactionStage, CompactionState};
use super::final_turn::FinalTurnReason;
use super::finish::RunFinish;
use super::limits::RunCounters;
use super::repeat::RepeatCounts;
use crate::tool::CallId;

/// All parts of a run that change while it runs, except its conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AgentRunState {
    pub(super) phase: RunPhase,
    pub(super) counts: RunCounters,
    pub(super) repeats: RepeatCounts,
    pub(super) signal: StopSignal,
    /// The reason to make the next turn the last one. It takes effect when the calls of this turn have ended.
    pub(super) forced: Option<FinalTurnReason>,
    /// The reason for the last turn. Set when the last turn has started.
    pub(super) final_turn: Option<FinalTurnReason>,
    /// The end of the run. It takes effect when the calls of this turn have ended.
    pub(super) ending: Option<RunFinish>,
    /// The messages to send to the model after the calls of this turn.
    pub(super) pending_instructions: Vec<String>,
    /// True if the model called a tool that it must not call in this turn, usually in its last turn.
    pub(super) wanted_more: bool,
    /// The text so far of a reply that reached the limit on output tokens and is being continued.
    pub(super) partial: Option<String>,
    /// The last instruction to the model about its tool choice.
    pub(super) told_choice: Option<String>,
    pub(super) compaction: CompactionState,
    /// The exposed names of the tools that were appended to the list, in order.
    pub(super) appended: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum RunPhase {
    /// A model request must be sent or is in progress.
    #[default]
    Model,
    Calls(OpenCalls),
    /// The conversation is being compacted before the next model request.
    Compacting(CompactionStage),
    Ended(RunFinish),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StopSignal {
    #[default]
    Go,
    Stop,
}

impl RunPhase {
    /// Returns the calls directly in the reply, without the calls inside batches.
    pub(super) fn turn_calls(&self) -> impl Iterator<Item = &CallId> {
        let calls = match self {
            Self::Calls(calls) => calls.0.as_slice(),
            Self::Model | Self::Compacting(_) | Self::Ended(_) => &[],
        };
        calls.iter().filter(|open| open.position == CallPosition::Turn).map(|open| &open.call.id)
    }

    /// Describes the input for which the run waits, for error messages.
    pub(super) fn waits_for(&self) -> &'static str {
        match self {
            Self::Model => "the model",
            Self::Calls(calls) => match calls.waiting() {
                AwaitedParty::Tools(_) => "tool results",
                AwaitedParty::Approval(_) => "a person's answer",
                AwaitedParty::Client(_) => "client function outputs",
                AwaitedParty::Nobody => "a call to `next_step`",
            },
            Self::Compacting(stage) => stage.waits_for(),
            Self::Ended(_) => "nothing, because it has ended",
        }
    }
}
