//! Exit codes, in one table.

use std::process::ExitCode;

use haft_core::model_error::ModelErrorKind;
use haft_core::result::ToolErrorKind;

/// The exit status of the program. A test compares this table with the one in `docs/exit-codes.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    Success,
    Internal,
    Usage,
    Failed,
    Denied,
    Unavailable,
    Unauthorized,
    Quota,
    Network,
    Limit,
    Budget,
    Input,
    Timeout,
    Cancelled,
    ClosedPipe,
    Terminated,
}

impl ExitReason {
    pub const ALL: [ExitReason; 16] = [
        ExitReason::Success,
        ExitReason::Internal,
        ExitReason::Usage,
        ExitReason::Failed,
        ExitReason::Denied,
        ExitReason::Unavailable,
        ExitReason::Unauthorized,
        ExitReason::Quota,
        ExitReason::Network,
        ExitReason::Limit,
        ExitReason::Budget,
        ExitReason::Input,
        ExitReason::Timeout,
        ExitReason::Cancelled,
        ExitReason::ClosedPipe,
        ExitReason::Terminated,
    ];

    pub fn code(self) -> u8 {
        self.row().0
    }

    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| exit.code() == code)
    }

    /// Returns the code and its meaning.
    pub fn row(self) -> (u8, &'static str) {
        match self {
            ExitReason::Success => (0, "success"),
            ExitReason::Internal => (1, "haft itself failed"),
            ExitReason::Usage => (2, "the command-line arguments are invalid"),
            ExitReason::Failed => {
                (3, "the tool ran and reported a failure, or the model gave no complete answer")
            }
            ExitReason::Denied => (4, "the policy denied the call"),
            ExitReason::Unavailable => (5, "the sandbox, the tool or the model is not available"),
            ExitReason::Unauthorized => (6, "the API key of the provider is missing or was rejected"),
            ExitReason::Quota => (7, "the provider's quota or rate limit is used up"),
            ExitReason::Network => (8, "haft cannot reach the provider"),
            ExitReason::Limit => (9, "the run reached one of its limits before it was done"),
            ExitReason::Budget => (10, "the budget of the run is used up"),
            ExitReason::Input => (42, "unknown tool or model, invalid input, or an invalid configuration"),
            ExitReason::Timeout => (124, "haft stopped the call, because it took too long"),
            ExitReason::Cancelled => (130, "the user interrupted haft with Ctrl-C"),
            ExitReason::ClosedPipe => (141, "the reader of the output closed the pipe"),
            ExitReason::Terminated => (143, "a signal terminated haft"),
        }
    }
}

impl From<ExitReason> for ExitCode {
    fn from(exit: ExitReason) -> Self {
        ExitCode::from(exit.code())
    }
}

impl From<ModelErrorKind> for ExitReason {
    fn from(kind: ModelErrorKind) -> Self {
        match kind {
            ModelErrorKind::Unauthorized | ModelErrorKind::Forbidden => ExitReason::Unauthorized,
            ModelErrorKind::RateLimited | ModelErrorKind::QuotaExhausted => ExitReason::Quota,
            ModelErrorKind::Unreachable => ExitReason::Network,
            ModelErrorKind::Timeout => ExitReason::Timeout,
            ModelErrorKind::Overloaded | ModelErrorKind::ServerFailed => ExitReason::Unavailable,
            ModelErrorKind::UnknownModel
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::RequestTooLarge
            | ModelErrorKind::NotRecorded => ExitReason::Input,
            ModelErrorKind::Blocked | ModelErrorKind::Malformed | ModelErrorKind::ReplyTooLarge => {
                ExitReason::Failed
            }
            ModelErrorKind::Cancelled => ExitReason::Cancelled,
        }
    }
}

impl From<ToolErrorKind> for ExitReason {
    fn from(kind: ToolErrorKind) -> Self {
        match kind {
            ToolErrorKind::UnknownTool | ToolErrorKind::InvalidArguments => ExitReason::Input,
            ToolErrorKind::Denied | ToolErrorKind::ApprovalPending | ToolErrorKind::LimitExceeded => {
                ExitReason::Denied
            }
            ToolErrorKind::Timeout => ExitReason::Timeout,
            ToolErrorKind::Unavailable | ToolErrorKind::QueueFull => ExitReason::Unavailable,
            ToolErrorKind::Failed | ToolErrorKind::UnknownOutcome => ExitReason::Failed,
            ToolErrorKind::Cancelled => ExitReason::Cancelled,
            ToolErrorKind::Internal => ExitReason::Internal,
        }
    }
}
