//! The notes of a run for its observers.

use super::final_turn::WhyFinal;
use crate::internal::task_status::TaskStatus;

/// A decision of a run, for logs and screens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunNote {
    /// The model reported its progress.
    Status(TaskStatus),
    /// The run refused a call.
    Refused {
        tool: String,
        why: String,
    },
    /// The reply was unusable, and the run asks again.
    AskedAgain {
        attempt: u32,
        why: String,
    },
    /// The same call occurred in several consecutive turns.
    Circling {
        tool: String,
        times: u32,
    },
    FinalTurn(WhyFinal),
}

impl RunNote {
    /// Returns the stable name for all wire formats.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Refused { .. } => "refused",
            Self::AskedAgain { .. } => "asked_again",
            Self::Circling { .. } => "circling",
            Self::FinalTurn(_) => "final_turn",
        }
    }
}
