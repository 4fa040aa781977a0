//! The reasons a command did not run. The text is for the operator.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::plan::PlanError;

/// A failure to set up the sandbox, or to start a program in it.
#[derive(Debug)]
pub enum SandboxError {
    Plan(PlanError),
    /// The embedding program did not call `init`, and no launcher was found.
    NoLauncher,
    /// The launcher could not be started, or died before its first report.
    Launcher {
        reason: String,
    },
    /// A layer could not be set up.
    Layer {
        stage: String,
        reason: String,
    },
    /// Someone outside replaced a protected file, and the command may have changed it before it was covered again.
    Exposed {
        path: PathBuf,
    },
    /// The sandbox was ready, but the program could not be started.
    Start {
        reason: String,
    },
}

impl SandboxError {
    pub(crate) fn launcher(error: &io::Error) -> Self {
        Self::Launcher { reason: error.to_string() }
    }
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::NoLauncher => f.write_str(
                "no sandbox launcher found; call haft::init() at the top of main, set HAFT_LAUNCHER to a haft binary, or put haft on PATH",
            ),
            Self::Launcher { reason } => write!(f, "the sandbox launcher failed: {reason}"),
            Self::Layer { stage, reason } => write!(f, "the sandbox cannot be set up ({stage}): {reason}"),
            Self::Exposed { path } => write!(
                f,
                "`{}` was replaced by another program while the command ran, and the command may have changed it; look at it before you use it",
                path.display()
            ),
            Self::Start { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for SandboxError {}

impl From<PlanError> for SandboxError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}
