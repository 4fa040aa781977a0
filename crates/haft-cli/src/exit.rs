//! Exit codes, in one table.

use std::process::ExitCode;

use haft_core::model_error::ModelErrorKind;
use haft_core::result::ToolErrorKind;

/// The exit status of the program. A test keeps this table equal to the one in `docs/exit-codes.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
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

impl Exit {
    pub const ALL: [Exit; 16] = [
        Exit::Success,
        Exit::Internal,
        Exit::Usage,
        Exit::Failed,
        Exit::Denied,
        Exit::Unavailable,
        Exit::Unauthorized,
        Exit::Quota,
        Exit::Network,
        Exit::Limit,
        Exit::Budget,
        Exit::Input,
        Exit::Timeout,
        Exit::Cancelled,
        Exit::ClosedPipe,
        Exit::Terminated,
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
            Exit::Success => (0, "success"),
            Exit::Internal => (1, "haft itself failed"),
            Exit::Usage => (2, "the command line is wrong"),
            Exit::Failed => (3, "the tool ran and reported a failure, or the model gave no complete answer"),
            Exit::Denied => (4, "the policy denied the call"),
            Exit::Unavailable => (5, "the sandbox, the tool or the model is not available"),
            Exit::Unauthorized => (6, "there is no key for the provider, or it is not accepted"),
            Exit::Quota => (7, "the provider's quota or rate limit is used up"),
            Exit::Network => (8, "the provider cannot be reached"),
            Exit::Limit => (9, "the run reached one of its limits before it was done"),
            Exit::Budget => (10, "the budget of the run is used up"),
            Exit::Input => (42, "unknown tool or model, input that does not fit, or a bad configuration"),
            Exit::Timeout => (124, "the call took too long and was stopped"),
            Exit::Cancelled => (130, "interrupted with Ctrl-C"),
            Exit::ClosedPipe => (141, "the reader of the output closed it"),
            Exit::Terminated => (143, "terminated by a signal"),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

impl From<ModelErrorKind> for Exit {
    fn from(kind: ModelErrorKind) -> Self {
        match kind {
            ModelErrorKind::Unauthorized | ModelErrorKind::Forbidden => Exit::Unauthorized,
            ModelErrorKind::RateLimited | ModelErrorKind::QuotaExhausted => Exit::Quota,
            ModelErrorKind::Unreachable => Exit::Network,
            ModelErrorKind::Timeout => Exit::Timeout,
            ModelErrorKind::Overloaded | ModelErrorKind::ServerFailed => Exit::Unavailable,
            ModelErrorKind::UnknownModel
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ContextTooLong
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::RequestTooLarge
            | ModelErrorKind::NotRecorded => Exit::Input,
            ModelErrorKind::Blocked | ModelErrorKind::Malformed | ModelErrorKind::ReplyTooLarge => {
                Exit::Failed
            }
            ModelErrorKind::Cancelled => Exit::Cancelled,
        }
    }
}

impl From<ToolErrorKind> for Exit {
    fn from(kind: ToolErrorKind) -> Self {
        match kind {
            ToolErrorKind::UnknownTool | ToolErrorKind::InvalidArguments => Exit::Input,
            ToolErrorKind::Denied | ToolErrorKind::ApprovalPending | ToolErrorKind::LimitExceeded => {
                Exit::Denied
            }
            ToolErrorKind::Timeout => Exit::Timeout,
            ToolErrorKind::Unavailable | ToolErrorKind::QueueFull => Exit::Unavailable,
            ToolErrorKind::Failed | ToolErrorKind::UnknownOutcome => Exit::Failed,
            ToolErrorKind::Cancelled => Exit::Cancelled,
            ToolErrorKind::Internal => Exit::Internal,
        }
    }
}
