//! Hints for errors of the libraries: the next step of a person at the command line.
//!
//! An error of a library names no command and no option, because any program can embed the libraries. Each function here
//! takes one error type and matches all of its variants, so that a new variant gets a hint, or a decision against one.

use std::fmt::Display;

use haft_runtime::models::ModelsError;
use haft_runtime::runs::ResumeError;
use haft_runtime::runtime::{ResumeFailure, StartError};
use haft_store::sessions::SessionError;

/// The hint for spans that the collector did not receive.
pub(super) const SPANS_LOST: &str =
    "OTEL_EXPORTER_OTLP_ENDPOINT names the collector; OTEL_SDK_DISABLED=true turns telemetry off";

/// Adds a hint to the text of an error, on a line of its own.
pub(super) fn with(error: &dyn Display, hint: Option<impl Display>) -> String {
    match hint {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

pub(super) fn session(error: &SessionError) -> Option<String> {
    match error {
        SessionError::NotFound { .. } | SessionError::TooShort { .. } | SessionError::Ambiguous { .. } => {
            Some("`haft sessions list` lists the sessions".into())
        }
        SessionError::Unreadable { id, .. } => {
            Some(format!("`haft sessions rm {id}` removes it; nothing in it was changed"))
        }
        SessionError::Busy { .. } | SessionError::Io { .. } => None,
    }
}

pub(super) fn models(error: &ModelsError) -> Option<String> {
    match error {
        ModelsError::NoModel => Some("-m PROVIDER/MODEL names one here".into()),
        ModelsError::Name(_)
        | ModelsError::Unknown { .. }
        | ModelsError::Variable { .. }
        | ModelsError::Setup { .. }
        | ModelsError::Client(_)
        | ModelsError::Command { .. } => None,
    }
}

pub(super) fn start(error: &StartError) -> Option<String> {
    match error {
        StartError::Input { .. } => Some("give JSON as the agent's `input` says".into()),
        StartError::Models(error) => models(error),
        StartError::Outputs(_) => Some("set HAFT_HOME to a directory that you may write".into()),
        StartError::Agent(_)
        | StartError::Policy(_)
        | StartError::Store(_)
        | StartError::AlreadyStarted { .. }
        | StartError::Run(_) => None,
    }
}

pub(super) fn resume(error: &ResumeFailure) -> Option<String> {
    match error {
        ResumeFailure::Session(error) => session(error),
        ResumeFailure::WorksForAnother { origin } => Some(format!("`haft resume {origin}` continues both")),
        ResumeFailure::NoSpec | ResumeFailure::Spec(_) => Some(NOT_RESTORED.into()),
        ResumeFailure::Start(error) => start(error),
        ResumeFailure::Run(ResumeError::Finished { .. }) => {
            Some("haft resume ID 'what else it shall do'".into())
        }
        ResumeFailure::Run(ResumeError::Run(_)) => None,
    }
}

/// The hint for a stored run that cannot be restored.
pub(super) const NOT_RESTORED: &str =
    "`haft sessions show` shows what the run did; `haft run` starts a new one";
