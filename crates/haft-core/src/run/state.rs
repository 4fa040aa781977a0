//! The mutable state of a run.

use super::calls::{AwaitedParty, CallPosition, OpenCalls};
use super::compacting::{CompactionStage, CompactionState};
use super::final_turn::FinalTurnReason;
use super::finish::RunFinish;
use super::limits::RunCounters;
use super::repeat::RepeatCounts;
use crate::tool::CallId;

/// Everything that changes in a run besides its conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AgentRunState {
    pub(super) phase: RunPhase,
    pub(super) counts: RunCounters,
    pub(super) repeats: RepeatCounts,
    pub(super) signal: StopSignal,
    /// The reason to make the next turn the last one, once the calls of this turn have ended.
    pub(super) forced: Option<FinalTurnReason>,
    /// Set when the last turn has begun.
    pub(super) final_turn: Option<FinalTurnReason>,
    /// The end of the run, once the calls of this turn have ended.
    pub(super) ending: Option<RunFinish>,
    /// The messages for the model after the calls of this turn.
    pub(super) pending_instructions: Vec<String>,
    /// Set when the model called a tool that it may not call at that moment, above all in its last turn.
    pub(super) wanted_more: bool,
    /// The text so far of a reply that reached the limit of output tokens and is being continued.
    pub(super) partial: Option<String>,
    /// The last instruction to the model about its tool choice.
    pub(super) told_choice: Option<String>,
    pub(super) compaction: CompactionState,
    /// The exposed names of tools that joined the list, in order.
    pub(super) appended: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum RunPhase {
    /// The model request is due or in progress.
    #[default]
    Model,
    Calls(OpenCalls),
    /// The conversation becomes smaller before the next model request.
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
    /// Returns the calls directly in the reply, without those inside batches.
    pub(super) fn turn_calls(&self) -> impl Iterator<Item = &CallId> {
        let calls = match self {
            Self::Calls(calls) => calls.0.as_slice(),
            Self::Model | Self::Compacting(_) | Self::Ended(_) => &[],
        };
        calls.iter().filter(|open| open.position == CallPosition::Turn).map(|open| &open.call.id)
    }

    /// Describes the expected input, for errors.
    pub(super) fn waits_for(&self) -> &'static str {
        match self {
            Self::Model => "the model",
            Self::Calls(calls) => match calls.waiting() {
                AwaitedParty::Tools(_) => "the results of tools",
                AwaitedParty::Approval(_) => "a person's answer",
                AwaitedParty::Client(_) => "the outputs of client functions",
                AwaitedParty::Nobody => "a request for its next step",
            },
            Self::Compacting(stage) => stage.waits_for(),
            Self::Ended(_) => "nothing: it has ended",
        }
    }
}
