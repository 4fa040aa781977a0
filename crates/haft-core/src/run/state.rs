//! The mutable state of a run.

use super::calls::{OpenCalls, Place, Waiting};
use super::final_turn::WhyFinal;
use super::finish::Finish;
use super::limits::Counts;
use super::repeat::Repeats;
use crate::tool::CallId;

/// Everything that changes in a run besides its conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) counts: Counts,
    pub(super) repeats: Repeats,
    pub(super) signal: Signal,
    /// The reason to make the next turn the last one, once the calls of this turn have ended.
    pub(super) forced: Option<WhyFinal>,
    /// Set when the last turn has begun.
    pub(super) final_turn: Option<WhyFinal>,
    /// The end of the run, once the calls of this turn have ended.
    pub(super) ending: Option<Finish>,
    /// The messages for the model after the calls of this turn.
    pub(super) to_tell: Vec<String>,
    /// The last instruction to the model about its tool choice.
    pub(super) told_choice: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Phase {
    /// The model request is due or in progress.
    #[default]
    Model,
    Calls(OpenCalls),
    Ended(Finish),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Signal {
    #[default]
    Go,
    Stop,
}

impl Phase {
    /// Returns the calls directly in the reply, without those inside batches.
    pub(super) fn turn_calls(&self) -> impl Iterator<Item = &CallId> {
        let calls = match self {
            Self::Calls(calls) => calls.0.as_slice(),
            Self::Model | Self::Ended(_) => &[],
        };
        calls.iter().filter(|open| open.place == Place::Turn).map(|open| &open.call.id)
    }

    /// Describes the expected input, for errors.
    pub(super) fn waits_for(&self) -> &'static str {
        match self {
            Self::Model => "the model",
            Self::Calls(calls) => match calls.waiting() {
                Waiting::Tools(_) => "the results of tools",
                Waiting::Approval(_) => "a person's answer",
                Waiting::Client(_) => "the outputs of client functions",
                Waiting::Nobody => "the next step to be asked for",
            },
            Self::Ended(_) => "nothing: it has ended",
        }
    }
}
