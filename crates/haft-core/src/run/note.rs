//! What is worth telling whoever watches a run.

use super::final_turn::WhyFinal;
use crate::internal::task_status::TaskStatus;

/// Something a run decided, for logs and screens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunNote {
    /// The model said where it stands.
    Status(TaskStatus),
    /// A call that nobody will make.
    Refused {
        tool: String,
        why: String,
    },
    /// The reply was of no use and is asked for again.
    AskedAgain {
        attempt: u32,
        why: String,
    },
    /// The same call in turn after turn.
    Circling {
        tool: String,
        times: u32,
    },
    FinalTurn(WhyFinal),
}

impl RunNote {
    /// The stable name on every wire.
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
