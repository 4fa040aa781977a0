//! The end of a run, and the reason for it.

use std::time::Duration;

use crate::internal_tools::final_report::RunReport;
use crate::internal_tools::handoff::Handoff;
use crate::model_error::ModelErrorKind;

/// The end of a run. Every run ends exactly once.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFinish {
    /// The finish reason, which determines the status and the exit code.
    pub reason: FinishReason,
    /// The model's answer. A run that reached a limit may have an answer too.
    pub answer: Option<RunAnswer>,
    /// The error text for the user; empty if there was no error.
    pub detail: String,
    /// The end time in milliseconds since the Unix epoch, by the driver's clock.
    pub ended_ms: Option<u64>,
    /// The time after which the model provider accepts the failed request again; `None` if the provider named none.
    pub retry_after: Option<Duration>,
}

/// The answer of a run to its caller.
#[derive(Debug, Clone, PartialEq)]
pub enum RunAnswer {
    /// The text of the last reply.
    Text(String),
    /// A final report, already checked.
    Report(RunReport),
}

impl RunAnswer {
    /// Returns the answer as text. For a report, this is only its content.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Report(report) => report.content.as_text(),
        }
    }
}

/// The reason why a run ended. One table, [`FinishReason::row`], holds the properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model answered.
    Completed,
    /// Another agent gets the request.
    Handoff(Handoff),
    /// The run used all its turns.
    MaxTurns,
    /// The run reached its limit on tool calls.
    MaxToolCalls,
    /// The model repeatedly exceeded the limit on calls per turn.
    MaxToolCallsPerTurn,
    /// The next request did not fit into the context window.
    ContextFull,
    /// The budget of the run or of a parent run was used up.
    Budget,
    /// A user asked the run to stop, and it stopped gracefully.
    Stopped,
    /// A user aborted the run.
    Aborted,
    /// The user sent new input, and another run continues with it.
    Steered,
    /// The run exceeded its timeout.
    TimedOut,
    /// The journal could no longer record the run.
    JournalFailed,
    /// The model repeated the same call in spite of a warning.
    DoomLoop,
    /// The model's replies had no content, several times in a row.
    EmptyReplies,
    /// The reply and its continuation both reached the limit on output tokens.
    MaxOutputTokens,
    /// The provider ended the model's replies too early, several times in a row.
    CutReplies,
    /// The model did not call the required tool, several times in a row.
    ToolChoiceUnmet,
    /// The model ended without the required report, several times in a row.
    NoReport,
    /// The model's reports did not match the required format or schema.
    InvalidReport,
    /// The model refused to answer.
    Refused,
    /// The provider's filter withheld the answer.
    Filtered,
    /// The model request failed, after all retries and fallbacks.
    ModelFailed(ModelErrorKind),
}

/// One row in the table of finish reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishRow {
    /// The stable name that all wire formats use.
    pub name: &'static str,
    /// The category, which determines the exit code.
    pub class: FinishClass,
    /// The advice for the operator.
    pub hint: &'static str,
}

/// The category of a finish reason, which determines the exit code and the status in wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishClass {
    /// The model answered, or another agent gets the request.
    Answered,
    /// The run reached one of its own limits.
    Limited,
    /// The run spent its budget.
    Budget,
    /// A user or the program ended the run.
    Interrupted,
    /// The run exceeded its timeout.
    TimedOut,
    /// The run could not complete.
    Failed,
}

impl FinishReason {
    /// Returns the properties of this reason.
    pub fn row(&self) -> FinishRow {
        use FinishClass::{Answered, Budget, Failed, Interrupted, Limited, TimedOut};
        let (name, class, hint) = match self {
            Self::Completed => ("completed", Answered, "the model answered"),
            Self::Handoff(_) => ("handoff", Answered, "another agent takes over"),
            Self::MaxTurns => ("max_turns", Limited, "raise `maxTurns` or ask for less"),
            Self::MaxToolCalls => ("max_tool_calls", Limited, "raise `maxToolCalls` or ask for less"),
            Self::MaxToolCallsPerTurn => {
                ("max_tool_calls_per_turn", Limited, "raise `maxToolCallsPerTurn`, or use another model")
            }
            Self::ContextFull => {
                ("context_full", Limited, "raise `contextTokens` if the model has more, or ask for less")
            }
            Self::Budget => ("budget", Budget, "raise `budget` or ask for less"),
            Self::Stopped => ("stopped", Interrupted, "the run was asked to stop"),
            Self::Aborted => ("aborted", Interrupted, "the run was aborted"),
            Self::Steered => ("steered", Interrupted, "another run continues with the new input"),
            Self::TimedOut => ("timed_out", TimedOut, "raise the timeout of the run or ask for less"),
            Self::JournalFailed => (
                "unrecorded",
                Failed,
                "haft could not write the journal of the run; if the disk is full, make room, then resume the run",
            ),
            Self::DoomLoop => {
                ("doom_loop", Failed, "the model repeats itself; make the request more specific")
            }
            Self::EmptyReplies => {
                ("empty_replies", Failed, "the model sends empty replies; try another model")
            }
            Self::MaxOutputTokens => {
                ("max_output_tokens", Limited, "raise `maxOutputTokens` or ask for less")
            }
            Self::CutReplies => ("cut_replies", Failed, "the replies end too early; try again"),
            Self::ToolChoiceUnmet => {
                ("tool_choice_unmet", Failed, "the model does not call the required tool; try another model")
            }
            Self::NoReport => (
                "no_report",
                Failed,
                "the model answers without a final report; try another `finalReport` or model",
            ),
            Self::InvalidReport => {
                ("invalid_report", Failed, "the report does not match the output format or schema")
            }
            Self::Refused => ("refused", Failed, "the model refused to answer"),
            Self::Filtered => ("filtered", Failed, "the provider's content filter blocked the answer"),
            Self::ModelFailed(_) => ("model_failed", Failed, "the model gave no reply; see the error above"),
        };
        FinishRow { name, class, hint }
    }

    /// Returns the stable name that all wire formats use.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// The reasons without data. The name alone identifies such a reason.
    pub(super) const PLAIN: [FinishReason; 20] = [
        Self::Completed,
        Self::MaxTurns,
        Self::MaxToolCalls,
        Self::MaxToolCallsPerTurn,
        Self::ContextFull,
        Self::Budget,
        Self::Stopped,
        Self::Aborted,
        Self::Steered,
        Self::TimedOut,
        Self::JournalFailed,
        Self::DoomLoop,
        Self::EmptyReplies,
        Self::MaxOutputTokens,
        Self::CutReplies,
        Self::ToolChoiceUnmet,
        Self::NoReport,
        Self::InvalidReport,
        Self::Refused,
        Self::Filtered,
    ];
}

impl RunFinish {
    pub(super) fn new(reason: FinishReason) -> Self {
        Self { reason, answer: None, detail: String::new(), ended_ms: None, retry_after: None }
    }

    #[must_use]
    pub(super) fn with_answer(mut self, answer: Option<RunAnswer>) -> Self {
        self.answer = answer;
        self
    }

    #[must_use]
    pub(super) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }
}
