//! The reasons why a command did not run. The text is for the operator.

use std::io;
use std::path::PathBuf;

use crate::plan::PlanError;

/// haft could not set up the sandbox, or could not start a program in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("{0}")]
    Plan(PlanError),
    /// The embedding program did not call `init`, and haft found no launcher.
    #[error(
        "haft found no sandbox launcher; call haft::init() at the top of main, set HAFT_LAUNCHER to a haft binary, or put haft on PATH"
    )]
    NoLauncher,
    /// haft could not start the launcher, or the launcher ended before its first report.
    #[error("the sandbox launcher failed: {reason}")]
    Launcher { reason: String },
    /// haft could not set up a sandbox layer.
    #[error("the sandbox cannot be set up ({stage}): {reason}")]
    Layer { stage: String, reason: String },
    /// A process outside the sandbox replaced a protected file, and the command may have changed the file before it was
    /// protected again.
    #[error("another program replaced `{}` while the command ran, and the command may have changed the new file; review this file before you use it", .path.display())]
    Exposed { path: PathBuf },
    /// The sandbox was ready, but haft could not start the program.
    #[error("{reason}")]
    Start { reason: String },
}

impl SandboxError {
    pub(crate) fn launcher(error: &io::Error) -> Self {
        Self::Launcher { reason: error.to_string() }
    }
}

impl From<PlanError> for SandboxError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}
