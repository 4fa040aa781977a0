//! The notes of a run for its observers.

use super::final_turn::FinalTurnReason;
use crate::compaction::CompactionScope;
use crate::internal_tools::task_status::TaskStatus;

/// A decision of a run, for logs and user interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunNote {
    /// The model reported its progress.
    Status(TaskStatus),
    /// The run refused a call.
    Refused {
        /// The tool name as the model wrote it.
        tool: String,
        /// The reason, as the model sees it.
        why: String,
    },
    /// The reply was unusable, and the run asks again.
    AskedAgain {
        /// The number of unusable replies in this turn so far.
        attempt: u32,
        /// The problem with the reply.
        why: String,
        /// The use of the text of the reply.
        text: UnusableText,
    },
    /// The same call occurred in several consecutive turns.
    Circling {
        /// The tool name as the model wrote it.
        tool: String,
        /// The number of consecutive turns with the call.
        times: u32,
    },
    /// New tools that did not exist when the run started. The model does not see them, but a search finds them.
    ToolsFound(Vec<String>),
    /// Tools that were appended to the list that the model sees.
    ToolsAppended(Vec<String>),
    /// The next turn is the last one, for this reason.
    FinalTurn(FinalTurnReason),
    /// The run made its conversation smaller.
    Compacted(Compaction),
    /// A step of a compaction failed. The run continues.
    CompactionFault {
        /// The problem, as a sentence for the operator.
        why: String,
    },
}

/// The use that a run makes of the text of an unusable reply. A reader that shows the text needs it to show the answer
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnusableText {
    /// The next reply continues the text.
    Continued,
    /// The next reply begins again from the start, and its text replaces this text.
    Replaced,
    /// The text is not a part of the answer.
    Unused,
}

/// A finished compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// The size of the next request before compaction, in tokens.
    pub before_tokens: u64,
    /// The size of the next request after compaction, in tokens, by haft's own count.
    pub after_tokens: u64,
    /// The kind of content that was removed from the conversation.
    pub scope: CompactionScope,
    /// The number of outputs or messages that were removed.
    pub items: u64,
    /// The author of the text that replaces old turns; `None` if only outputs were removed.
    pub summary: Option<SummaryAuthor>,
}

/// The author of the text that replaces old turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryAuthor {
    /// A model wrote a summary.
    Model,
    /// No model wrote a usable summary, so haft listed the calls.
    List,
}

impl RunNote {
    /// Returns the stable name that all wire formats use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Refused { .. } => "refused",
            Self::AskedAgain { .. } => "asked_again",
            Self::Circling { .. } => "circling",
            Self::ToolsFound(_) => "tools_found",
            Self::ToolsAppended(_) => "tools_appended",
            Self::FinalTurn(_) => "final_turn",
            Self::Compacted(_) => "compacted",
            Self::CompactionFault { .. } => "compaction_fault",
        }
    }
}

crate::name_table!(SummaryAuthor { Model: "model", List: "list" });
crate::name_table!(UnusableText { Continued: "continued", Replaced: "replaced", Unused: "unused" });
