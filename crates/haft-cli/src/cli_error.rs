//! The error of a command: its exit code, its message, and the next step for the user.

use std::fmt::{self, Display};
use std::process::ExitCode;

use haft_config::agents::graph::AgentGraphError;
use haft_config::agents::loader::AgentLoadError;
use haft_models::cassette::RecordingError;
use haft_models::providers::SetupError;
use haft_runtime::models::ModelsError;
use haft_runtime::runs::ResumeError;
use haft_runtime::runtime::{ResumeFailure, StartError};
use haft_sandbox::PolicyError;
#[cfg(feature = "serve")]
use haft_server::ServeError;
use haft_store::sessions::SessionError;

use super::exit::ExitReason;
use super::{hints, terminal};

/// An error that ends a command.
#[derive(Debug)]
pub(super) struct CliError {
    exit: ExitReason,
    message: String,
    /// The next step for the user, printed on a separate line.
    hint: Option<String>,
}

impl CliError {
    pub(super) fn new(exit: ExitReason, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// The user called the command with wrong arguments, or in the wrong place.
    pub(super) fn usage(message: impl Display) -> Self {
        Self::new(ExitReason::Usage, message)
    }

    /// A file, a name or a value that the user gave is wrong.
    pub(super) fn input(message: impl Display) -> Self {
        Self::new(ExitReason::Input, message)
    }

    pub(super) fn denied(message: impl Display) -> Self {
        Self::new(ExitReason::Denied, message)
    }

    pub(super) fn unavailable(message: impl Display) -> Self {
        Self::new(ExitReason::Unavailable, message)
    }

    pub(super) fn failed(message: impl Display) -> Self {
        Self::new(ExitReason::Failed, message)
    }

    /// haft itself failed.
    pub(super) fn internal(message: impl Display) -> Self {
        Self::new(ExitReason::Internal, message)
    }

    pub(super) fn with_hint(self, hint: impl Display) -> Self {
        self.with_optional_hint(Some(hint))
    }

    pub(super) fn with_optional_hint(self, hint: Option<impl Display>) -> Self {
        Self { hint: hint.map(|hint| hint.to_string()), ..self }
    }

    pub(super) fn exit(&self) -> ExitReason {
        self.exit
    }

    /// Prints the error, and returns its exit code.
    pub(super) fn report(self) -> ExitCode {
        terminal::failed(self.exit, &self.to_string())
    }
}

impl Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hints::with(&self.message, self.hint.as_ref()))
    }
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> Self {
        Self::from(&error)
    }
}

impl From<&SessionError> for CliError {
    fn from(error: &SessionError) -> Self {
        let exit = match error {
            SessionError::NotFound { .. }
            | SessionError::TooShort { .. }
            | SessionError::Ambiguous { .. }
            | SessionError::Unreadable { .. } => ExitReason::Input,
            SessionError::Busy { .. } => ExitReason::Unavailable,
            SessionError::Exists { .. } | SessionError::Io { .. } => ExitReason::Internal,
        };
        Self::new(exit, error).with_optional_hint(hints::session(error))
    }
}

impl From<RecordingError> for CliError {
    fn from(error: RecordingError) -> Self {
        Self::input(&error).with_hint(hints::recording(&error))
    }
}

impl From<PolicyError> for CliError {
    fn from(error: PolicyError) -> Self {
        Self::usage(&error).with_hint(hints::policy(&error))
    }
}

impl From<AgentLoadError> for CliError {
    fn from(error: AgentLoadError) -> Self {
        Self::input(&error).with_optional_hint(hints::agent(&error))
    }
}

impl From<AgentGraphError> for CliError {
    fn from(error: AgentGraphError) -> Self {
        Self::input(&error).with_optional_hint(hints::agent_graph(&error))
    }
}

impl From<&ModelsError> for CliError {
    fn from(error: &ModelsError) -> Self {
        let exit = match error {
            ModelsError::NoModel | ModelsError::Name(_) | ModelsError::NoPrice { .. } => ExitReason::Usage,
            ModelsError::Setup { error: SetupError::NoKey { .. }, .. } => ExitReason::Unauthorized,
            ModelsError::Unknown { .. }
            | ModelsError::Variable { .. }
            | ModelsError::Setup { .. }
            | ModelsError::Command { .. } => ExitReason::Input,
            ModelsError::Client(error) => error.kind.into(),
        };
        Self::new(exit, error).with_optional_hint(hints::models(error))
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::from(&error)
    }
}

impl From<&StartError> for CliError {
    fn from(error: &StartError) -> Self {
        let refused = match error {
            // The inner error names the file already.
            StartError::Agent(AgentGraphError::Load { error, .. }) => Self::input(error),
            StartError::Agent(_) | StartError::Input { .. } | StartError::Config(_) => Self::input(error),
            StartError::Policy(_) | StartError::ToolChoice { .. } | StartError::UnknownTools { .. } => {
                Self::usage(error)
            }
            StartError::Models(error) => return Self::from(error),
            StartError::Outputs(_)
            | StartError::Store(_)
            | StartError::AlreadyStarted { .. }
            | StartError::QueueFull(_)
            | StartError::Run(_) => Self::internal(error),
        };
        refused.with_optional_hint(hints::start(error))
    }
}

impl From<ResumeFailure> for CliError {
    fn from(error: ResumeFailure) -> Self {
        let refused = match &error {
            ResumeFailure::Session(error) => return error.into(),
            ResumeFailure::NoSpec | ResumeFailure::Spec(_) => return Self::not_restored(&error),
            ResumeFailure::Start(error) => return error.into(),
            ResumeFailure::WorksForAnother { .. } | ResumeFailure::Run(ResumeError::Finished { .. }) => {
                Self::input(&error)
            }
            ResumeFailure::Run(ResumeError::Run(_)) => Self::internal(&error),
        };
        refused.with_optional_hint(hints::resume(&error))
    }
}

impl CliError {
    /// Returns the error for a stored run that cannot be restored.
    pub(super) fn not_restored(problem: impl Display) -> Self {
        Self::input(format!("haft cannot restore the run: {problem}")).with_hint(hints::NOT_RESTORED)
    }
}

#[cfg(feature = "serve")]
impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        let (exit, hint) = match &error {
            ServeError::OpenWithoutKeys { .. } => {
                (ExitReason::Usage, "leave out --no-auth, or listen on 127.0.0.1")
            }
            ServeError::Bind { .. } => {
                (ExitReason::Unavailable, "choose another address with --address IP:PORT")
            }
            ServeError::Webhook(_) => (ExitReason::Input, "set `serve.approvalWebhook.secret`"),
            ServeError::Threads(_) => (
                ExitReason::Internal,
                "raise the limits on processes (`ulimit -u`) and open files (`ulimit -n`)",
            ),
            ServeError::Tls(_) => {
                (ExitReason::Usage, "`serve.tls` names the files of the certificate and its key")
            }
            ServeError::Switches(_) => (
                ExitReason::Internal,
                "repair or remove `data/tool-switches.json` in haft's home; without the file, no tool is turned off on the server",
            ),
            ServeError::Keys(_) => {
                (ExitReason::Internal, "`haft keys list` reads the same file and shows the error")
            }
        };
        Self::new(exit, error).with_hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_printed_on_a_separate_line() {
        let error = CliError::usage("the request is missing");
        assert_eq!(error.to_string(), "the request is missing");
        let error = error.with_hint("give a request");
        assert_eq!(error.to_string(), "the request is missing\nhint: give a request");
        assert_eq!(error.exit(), ExitReason::Usage);
    }

    #[test]
    fn error_of_an_agent_file_is_not_labelled_twice() {
        let error = || AgentLoadError::Unknown { name: "helper".into() };
        let start = StartError::Agent(AgentGraphError::Load { by: "lead".into(), error: error() });
        assert_eq!(CliError::from(start).to_string(), CliError::from(error()).to_string());
    }
}
