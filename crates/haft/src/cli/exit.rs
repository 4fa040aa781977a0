//! Exit codes, in one table.

use std::process::ExitCode;

use haft_core::result::ToolErrorKind;

/// How the program ended. The same table stands in `docs/exit-codes.md`, held equal by a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    Internal,
    Usage,
    Failed,
    Denied,
    Unavailable,
    Input,
    Timeout,
    Cancelled,
    ClosedPipe,
    Terminated,
}

impl Exit {
    pub const ALL: [Exit; 11] = [
        Exit::Success,
        Exit::Internal,
        Exit::Usage,
        Exit::Failed,
        Exit::Denied,
        Exit::Unavailable,
        Exit::Input,
        Exit::Timeout,
        Exit::Cancelled,
        Exit::ClosedPipe,
        Exit::Terminated,
    ];

    /// The code, and what it means.
    pub fn row(self) -> (u8, &'static str) {
        match self {
            Exit::Success => (0, "success"),
            Exit::Internal => (1, "haft itself failed"),
            Exit::Usage => (2, "the command line is wrong"),
            Exit::Failed => (3, "the tool ran and reported a failure"),
            Exit::Denied => (4, "the policy denied the call"),
            Exit::Unavailable => (5, "the sandbox or the tool is not available"),
            Exit::Input => (42, "unknown tool, arguments that do not fit, or a bad configuration"),
            Exit::Timeout => (124, "the call took too long and was stopped"),
            Exit::Cancelled => (130, "interrupted with Ctrl-C"),
            Exit::ClosedPipe => (141, "whoever read the output went away"),
            Exit::Terminated => (143, "terminated by a signal"),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.row().0)
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
