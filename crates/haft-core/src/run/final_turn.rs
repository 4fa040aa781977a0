//! The last turn of a run, in which the model may only answer.

use super::finish::FinishReason;

/// The reason why the next turn is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalTurnReason {
    /// A user asked the run to stop.
    Stopped,
    /// The budget of the run or of a parent run is used up.
    Budget,
    /// The next request would not fit into the context window.
    ContextFull,
    /// The run has reached its limit on tool calls.
    MaxToolCalls,
    /// The model exceeded the limit on calls per turn again.
    MaxToolCallsPerTurn,
    /// The model reported that the task is complete.
    TaskComplete,
    /// The run has only one turn in total, so making it the last turn interrupts no work.
    OnlyTurn,
    /// The run has one turn left.
    LastTurn,
}

crate::name_table!(FinalTurnReason {
    Stopped: "stopped",
    Budget: "budget",
    ContextFull: "context_full",
    MaxToolCalls: "max_tool_calls",
    MaxToolCallsPerTurn: "max_tool_calls_per_turn",
    TaskComplete: "task_complete",
    OnlyTurn: "only_turn",
    LastTurn: "last_turn",
});

impl FinalTurnReason {
    /// Returns the explanation for the model.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Stopped => "The run was asked to stop.",
            Self::Budget => "The budget of this run is used up.",
            Self::ContextFull => "The context is full.",
            Self::MaxToolCalls => "The tool calls of this run are used up.",
            Self::MaxToolCallsPerTurn => "Too many tools were called in one turn, again.",
            Self::TaskComplete => "You said that the task is complete.",
            Self::OnlyTurn | Self::LastTurn => "This is the last turn.",
        }
    }

    /// Returns the finish reason for the case that the model answered in this turn. A run that was stopped by a limit
    /// reports the limit, not success.
    pub(super) fn answered(self) -> FinishReason {
        match self {
            Self::TaskComplete | Self::OnlyTurn => FinishReason::Completed,
            Self::Stopped
            | Self::Budget
            | Self::ContextFull
            | Self::MaxToolCalls
            | Self::MaxToolCallsPerTurn
            | Self::LastTurn => self.unanswered().unwrap_or(FinishReason::MaxTurns),
        }
    }

    /// Returns the finish reason for the case that the model did not answer, or `None` if the problem with its reply is
    /// the finish reason.
    pub(super) fn unanswered(self) -> Option<FinishReason> {
        match self {
            Self::Stopped => Some(FinishReason::Stopped),
            Self::Budget => Some(FinishReason::Budget),
            Self::ContextFull => Some(FinishReason::ContextFull),
            Self::MaxToolCalls => Some(FinishReason::MaxToolCalls),
            Self::MaxToolCallsPerTurn => Some(FinishReason::MaxToolCallsPerTurn),
            Self::LastTurn => Some(FinishReason::MaxTurns),
            Self::TaskComplete | Self::OnlyTurn => None,
        }
    }
}
