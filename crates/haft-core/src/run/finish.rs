//! The end of a run and its reason.

use crate::internal::final_report::Report;
use crate::internal::handoff::Handoff;
use crate::model_error::ModelErrorKind;

/// The end of a run. Every run has exactly one.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub reason: FinishReason,
    /// The model's answer. It may also exist after a limit was reached.
    pub answer: Option<Answer>,
    /// The error for the user; empty if there was none.
    pub detail: String,
    /// The end time in milliseconds since the Unix epoch, by the driver's clock.
    pub ended_ms: Option<u64>,
}

/// The answer of a run to its caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Text(String),
    Report(Report),
}

impl Answer {
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
    /// Another agent takes over.
    Handoff(Handoff),
    MaxTurns,
    MaxToolCalls,
    MaxToolCallsPerTurn,
    ContextFull,
    Budget,
    /// A user asked the run to stop, and it stopped gracefully.
    Stopped,
    /// A user aborted the run.
    Aborted,
    /// The run exceeded its timeout.
    TimedOut,
    /// The journal could no longer record the run.
    Unrecorded,
    DoomLoop,
    EmptyReplies,
    CutReplies,
    ToolChoiceUnmet,
    NoReport,
    InvalidReport,
    /// The model refused to answer.
    Refused,
    /// The provider's filter withheld the answer.
    Filtered,
    ModelFailed(ModelErrorKind),
}

/// One row of the table of finish reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishRow {
    /// The stable name for all wire formats.
    pub name: &'static str,
    pub class: FinishClass,
    pub hint: &'static str,
}

/// The category of an end, which determines the exit code and the status on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishClass {
    Answered,
    Limited,
    Budget,
    Interrupted,
    TimedOut,
    Failed,
}

impl FinishReason {
    pub fn row(&self) -> FinishRow {
        use FinishClass::{Answered, Budget, Failed, Interrupted, Limited, TimedOut};
        let (name, class, hint) = match self {
            Self::Completed => ("completed", Answered, "the model answered"),
            Self::Handoff(_) => ("handoff", Answered, "another agent takes over"),
            Self::MaxTurns => ("max_turns", Limited, "raise `maxTurns` or ask for less"),
            Self::MaxToolCalls => ("max_tool_calls", Limited, "raise `maxToolCalls` or ask for less"),
            Self::MaxToolCallsPerTurn => (
                "max_tool_calls_per_turn",
                Limited,
                "raise `maxToolCallsPerTurn`, or take a model that listens",
            ),
            Self::ContextFull => {
                ("context_full", Limited, "raise `contextWindow` if the model has more, or ask for less")
            }
            Self::Budget => ("budget", Budget, "raise `budget` or ask for less"),
            Self::Stopped => ("stopped", Interrupted, "the run was asked to come to an end"),
            Self::Aborted => ("aborted", Interrupted, "the run was ended at once"),
            Self::TimedOut => ("timed_out", TimedOut, "raise the timeout of the run or ask for less"),
            Self::Unrecorded => {
                ("unrecorded", Failed, "make room where haft keeps its sessions, then `haft resume`")
            }
            Self::DoomLoop => {
                ("doom_loop", Failed, "the model repeats itself; say more clearly what is wanted")
            }
            Self::EmptyReplies => ("empty_replies", Failed, "the model says nothing; try another one"),
            Self::CutReplies => ("cut_replies", Failed, "raise `maxOutputTokens` or ask for less"),
            Self::ToolChoiceUnmet => {
                ("tool_choice_unmet", Failed, "the model does not call the tool it must; try another one")
            }
            Self::NoReport => {
                ("no_report", Failed, "the model answers without a final report; try `finalReport: xml`")
            }
            Self::InvalidReport => {
                ("invalid_report", Failed, "the report does not fit the output format or schema")
            }
            Self::Refused => ("refused", Failed, "the model declined"),
            Self::Filtered => ("filtered", Failed, "the provider's filter kept the answer back"),
            Self::ModelFailed(_) => ("model_failed", Failed, "the model gave no reply; see the error before"),
        };
        FinishRow { name, class, hint }
    }

    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// The reasons without data, which their name alone identifies.
    pub(super) const PLAIN: [FinishReason; 18] = [
        Self::Completed,
        Self::MaxTurns,
        Self::MaxToolCalls,
        Self::MaxToolCallsPerTurn,
        Self::ContextFull,
        Self::Budget,
        Self::Stopped,
        Self::Aborted,
        Self::TimedOut,
        Self::Unrecorded,
        Self::DoomLoop,
        Self::EmptyReplies,
        Self::CutReplies,
        Self::ToolChoiceUnmet,
        Self::NoReport,
        Self::InvalidReport,
        Self::Refused,
        Self::Filtered,
    ];
}

impl Finish {
    pub(super) fn new(reason: FinishReason) -> Self {
        Self { reason, answer: None, detail: String::new(), ended_ms: None }
    }

    #[must_use]
    pub(super) fn with_answer(mut self, answer: Option<Answer>) -> Self {
        self.answer = answer;
        self
    }

    #[must_use]
    pub(super) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }
}
