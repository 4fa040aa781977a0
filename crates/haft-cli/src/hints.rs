//! Hints for errors of the libraries: the next step for a user at the command line.
//!
//! An error of a library names no command and no option, because any program can embed the libraries. Each function in
//! this module takes one error type and matches all its variants, so that each new variant needs a decision about a
//! hint.

use std::fmt::Display;

use haft_config::UntrustedReason;
use haft_config::agents::graph::AgentGraphError;
use haft_config::agents::loader::AgentLoadError;
use haft_core::run::finish::FinishReason;
use haft_models::cassette::{RecordingError, RecordingProblem};
use haft_runtime::models::ModelsError;
use haft_runtime::runs::ResumeError;
use haft_runtime::runtime::{ResumeFailure, StartError};
use haft_sandbox::{PlanError, PolicyError, SandboxError};
use haft_store::sessions::SessionError;
use haft_tools::mcp::{AuthError, LOGIN_NEEDED};

/// The hint for a stored output that is not text.
pub(super) const BINARY_OUTPUT: &str = "--raw prints the bytes; -o FILE writes the bytes to a file";

/// The hint for spans that the collector did not receive.
pub(super) const SPANS_LOST: &str =
    "OTEL_EXPORTER_OTLP_ENDPOINT sets the URL of the collector; OTEL_SDK_DISABLED=true turns telemetry off";

/// Adds a hint to the text of an error, on a separate line.
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
            Some(format!("haft has not changed the session; `haft sessions rm {id}` removes it"))
        }
        SessionError::Busy { id } => Some(format!(
            "if the other process hangs or was stopped, `haft resume {id} --take-over` continues the run"
        )),
        SessionError::Exists { .. } | SessionError::Io { .. } => None,
    }
}

pub(super) fn agent(error: &AgentLoadError) -> Option<String> {
    match error {
        AgentLoadError::Unknown { .. } => Some(
            "give the path of an agent file, or the name of an agent that `haft agents list` shows".into(),
        ),
        AgentLoadError::Untrusted { reason, .. } => untrusted(reason).map(Into::into),
        AgentLoadError::UntrustedInclude(_) => Some(TRUST.into()),
        AgentLoadError::Unreadable { .. } | AgentLoadError::Wrong(_) => None,
    }
}

pub(super) fn agent_graph(error: &AgentGraphError) -> Option<String> {
    match error {
        AgentGraphError::Load { error, .. } => agent(error),
        AgentGraphError::Cycle(_)
        | AgentGraphError::TooDeep { .. }
        | AgentGraphError::TooMany { .. }
        | AgentGraphError::Name { .. } => None,
    }
}

pub(super) fn untrusted(reason: &UntrustedReason) -> Option<&'static str> {
    match reason {
        UntrustedReason::Never | UntrustedReason::Changed => Some(TRUST),
        UntrustedReason::Undecided(_) => None,
    }
}

const TRUST: &str = "run `haft trust` in the project to review its files and trust them";

pub(super) fn models(error: &ModelsError) -> Option<String> {
    match error {
        ModelsError::NoModel => Some("choose a model with -m PROVIDER/MODEL".into()),
        ModelsError::NoPrice { .. } => {
            Some("--allow-unpriced starts the run anyway; requests to a model without a known price then do not count against the budget".into())
        }
        ModelsError::Name(_)
        | ModelsError::Unknown { .. }
        | ModelsError::Variable { .. }
        | ModelsError::Setup { .. }
        | ModelsError::Client(_)
        | ModelsError::Command { .. } => None,
    }
}

pub(super) fn recording(error: &RecordingError) -> &'static str {
    match error.problem {
        RecordingProblem::Exists => "choose another file name, or remove the existing file",
        RecordingProblem::Io(_) => "check that the path exists and that you have access to it",
        RecordingProblem::NotAFile | RecordingProblem::NotARecording => {
            "give the path of a recording that --record wrote"
        }
        RecordingProblem::TooLarge { .. } => "record a run with fewer turns",
        RecordingProblem::UnknownVersion { .. } => {
            "record the run again, or replay the file with the version of haft that wrote it"
        }
        RecordingProblem::BadLine { .. } => "remove this line from the recording, or record the run again",
        RecordingProblem::NoModel => {
            "either the file is not a recording, or the run ended before it called a model; give another file"
        }
        RecordingProblem::NoRun => "give the path of a recording that `haft run --record` wrote",
        RecordingProblem::NoJournal => {
            "only recordings since version 3 contain a journal; record the run again"
        }
        RecordingProblem::BadJournal { .. } => "record the run again",
    }
}

pub(super) fn start(error: &StartError) -> Option<String> {
    match error {
        StartError::Agent(error) => agent_graph(error),
        StartError::Input { .. } => Some("send JSON that matches the `input` schema of the agent".into()),
        StartError::ToolChoice { .. } | StartError::UnknownTools { .. } => {
            Some("`haft tools` lists all tools".into())
        }
        StartError::Policy(error) => Some(policy(error).into()),
        StartError::Models(error) => models(error),
        StartError::Outputs(_) => Some("set HAFT_HOME to a directory that you can write to".into()),
        StartError::Config(_)
        | StartError::Store(_)
        | StartError::AlreadyStarted { .. }
        | StartError::QueueFull(_)
        | StartError::Run(_) => None,
    }
}

pub(super) fn resume(error: &ResumeFailure) -> Option<String> {
    match error {
        ResumeFailure::Session(error) => session(error),
        ResumeFailure::WorksForAnother { origin } => {
            Some(format!("`haft resume {origin}` continues the root run and its sub-agents"))
        }
        ResumeFailure::NoSpec | ResumeFailure::Spec(_) => Some(NOT_RESTORED.into()),
        ResumeFailure::Start(error) => start(error),
        ResumeFailure::Run(ResumeError::Finished { .. }) => {
            Some("`haft resume ID 'your request'` adds a request to the conversation".into())
        }
        ResumeFailure::Run(ResumeError::Run(_)) => None,
    }
}

/// The hint for a stored run that cannot be restored.
pub(super) const NOT_RESTORED: &str =
    "`haft sessions show ID` shows the calls of the run; `haft run` starts a new run";

pub(super) fn policy(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::Missing { .. } => "create the directory, or choose another workspace",
        PolicyError::NotADirectory { .. } => {
            "choose a directory as the workspace, for example the one that contains the file"
        }
        PolicyError::Unreadable { .. } => "`ls -ld` shows the owner and the permissions of the directory",
        PolicyError::InPrivateTmp { .. } => "choose a workspace outside /tmp",
        PolicyError::WholeFileSystem => {
            "change to a project directory, or choose a workspace with `--workspace`"
        }
        PolicyError::ExposesHome { .. } => {
            "choose a project directory below this one as the workspace, or move haft's home with HAFT_HOME"
        }
        PolicyError::ExposesSecret { .. } => {
            "choose a project directory as the workspace, or let commands read the secret with --readable"
        }
    }
}

pub(super) fn sandbox(error: &SandboxError) -> Option<&'static str> {
    match error {
        SandboxError::Plan(PlanError::GitUnprotected { .. }) => {
            Some("--git writable turns the protection of git hooks and git configuration off")
        }
        SandboxError::Plan(PlanError::DotGitSymlink { .. }) => Some(
            "replace the link .git by a file that names the target of the link: `t=$(readlink -f .git) && rm .git && echo \"gitdir: $t\" > .git`; git works as before",
        ),
        SandboxError::Layer { .. } => Some(SANDBOX_LAYERS),
        SandboxError::Plan(
            PlanError::GitSymlink { .. }
            | PlanError::NameUnprotected { .. }
            | PlanError::NotUtf8 { .. }
            | PlanError::NoNamedSockets
            | PlanError::TooManySockets { .. }
            | PlanError::NoPrivateTmp,
        )
        | SandboxError::NoLauncher
        | SandboxError::Launcher { .. }
        | SandboxError::Exposed { .. }
        | SandboxError::Start { .. } => None,
    }
}

/// The hint for a sandbox that cannot be set up.
pub(super) const SANDBOX_LAYERS: &str = "`haft doctor` shows which sandbox layers work on this machine";

pub(super) fn login(server: &str, error: &AuthError) -> Option<String> {
    match error {
        AuthError::NotNeeded => {
            Some(format!("`haft mcp test {server}` shows whether the server works without a login"))
        }
        AuthError::PersonNeeded(_) | AuthError::Refused(_) | AuthError::Unreachable(_) => None,
    }
}

/// Returns the hint for a server that needs a login.
pub(super) fn login_at(server: &str) -> String {
    format!("`haft mcp login {server}` logs in at the server")
}

/// Returns the hint for a warning. A warning about tools is a string, not an error type, so this function
/// recognizes the warning by its text.
pub(super) fn warning(text: &str) -> Option<String> {
    if text.starts_with("there is no tool `") {
        return Some("`haft tools` lists all tools".into());
    }
    let (_, named) = text.split_once("MCP server `").filter(|_| text.contains(LOGIN_NEEDED))?;
    named.split_once('`').map(|(server, _)| login_at(server))
}

/// Returns a hint for the end of a run. It replaces the hint of the library, which names no command.
pub(super) fn finish(reason: &FinishReason) -> Option<&'static str> {
    match reason {
        FinishReason::JournalFailed => {
            Some("free disk space for haft's home directory, then continue the run with `haft resume`")
        }
        FinishReason::Completed
        | FinishReason::Handoff(_)
        | FinishReason::MaxTurns
        | FinishReason::MaxToolCalls
        | FinishReason::MaxToolCallsPerTurn
        | FinishReason::ContextFull
        | FinishReason::Budget
        | FinishReason::Stopped
        | FinishReason::Aborted
        | FinishReason::Steered
        | FinishReason::TimedOut
        | FinishReason::DoomLoop
        | FinishReason::EmptyReplies
        | FinishReason::MaxOutputTokens
        | FinishReason::CutReplies
        | FinishReason::ToolChoiceUnmet
        | FinishReason::NoReport
        | FinishReason::InvalidReport
        | FinishReason::Refused
        | FinishReason::Filtered
        | FinishReason::ModelFailed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_warning_names_login_command_for_server() {
        let check =
            |text: &str, expected: Option<&str>| assert_eq!(warning(text).as_deref(), expected, "{text}");
        let asked =
            format!("provider `far_off`: MCP server `far off`: the server requires a login; {LOGIN_NEEDED}");
        check(&asked, Some("`haft mcp login far off` logs in at the server"));
        check("tool provider `far`: MCP server `far`: the server was stopped", None);
        check("there is no tool `bsh`", Some("`haft tools` lists all tools"));
    }

    #[test]
    fn hint_is_printed_on_separate_line() {
        let error = SessionError::NotFound { id: "ffff".into() };
        let expected = "there is no session `ffff`\nhint: `haft sessions list` lists the sessions";
        assert_eq!(with(&error, session(&error)), expected);
        assert_eq!(with(&"done", None::<&str>), "done");
    }
}
