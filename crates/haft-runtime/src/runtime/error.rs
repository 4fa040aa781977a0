//! The reasons why a run does not start or continue. They contain no hints, because each user interface adds its own.

use haft_config::ConfigErrors;
use haft_config::agents::graph::AgentGraphError;
use haft_core::output_store::StoreError;
use haft_core::position::SessionId;
use haft_core::run::RunError;
use haft_sandbox::PolicyError;
use haft_store::sessions::SessionError;

use crate::models::ModelsError;
use crate::run_queue::RunQueueFull;
use crate::runs::ResumeError;
use crate::spec::SpecError;

/// The reason why a run does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An agent that the run can reach cannot be loaded.
    #[error("{0}")]
    Agent(AgentGraphError),
    /// The agent expects JSON, and the request does not match its input schema.
    #[error("the request does not match the input of agent `{agent}`: {problem}")]
    Input {
        /// The name of the agent.
        agent: String,
        /// The part of the request that does not match.
        problem: String,
    },
    /// The run names tools or groups that do not exist.
    #[error("there is no tool or group `{}`", .names.join("`, `"))]
    UnknownTools {
        /// The names and patterns that match no tool and no group.
        names: Vec<String>,
    },
    /// No tool of the agent can meet its tool choice.
    #[error("agent `{agent}` cannot do what its `toolChoice` requires: {problem}")]
    ToolChoice {
        /// The name of the agent.
        agent: String,
        /// The choice that cannot be met.
        problem: String,
    },
    /// The workspace or a path of the sandbox policy cannot be used.
    #[error("{0}")]
    Policy(PolicyError),
    /// No model of the agent can be used.
    #[error("{0}")]
    Models(ModelsError),
    /// The configuration cannot be used with the secrets of the run.
    #[error("{0}")]
    Config(ConfigErrors),
    /// The store of large tool outputs cannot be opened.
    #[error("haft cannot open the store of tool outputs: {}", reason(.0))]
    Outputs(StoreError),
    /// The idempotency key or the agents of the run could not be stored.
    #[error("haft cannot store the run: {}", reason(.0))]
    Store(StoreError),
    /// The idempotency key belongs to a run that has ended, or that another process drives.
    #[error("the idempotency key belongs to run {run}, which has ended or is driven by another process")]
    AlreadyStarted {
        /// The run that the key belongs to.
        run: SessionId,
    },
    /// The run queue is full.
    #[error("{0}")]
    QueueFull(RunQueueFull),
    /// The run failed at its first step.
    #[error("{0}")]
    Run(RunError),
}

/// Returns only the cause, because the full text of a store error mentions stored tool outputs.
pub(super) fn reason(error: &StoreError) -> &str {
    match error {
        StoreError::NotFound => "the store does not contain the requested entry",
        StoreError::Unavailable { reason } => reason,
        StoreError::Fenced => "another process has taken over the run",
    }
}

/// The reason why a stored run does not continue.
#[derive(Debug, thiserror::Error)]
pub enum ResumeFailure {
    /// The session does not exist, is in use by another process, or cannot be read.
    #[error("{0}")]
    Session(SessionError),
    /// The run belongs to a sub-agent. Resume its parent run, which continues the sub-agent.
    #[error("the run belongs to a sub-agent of run {origin}; resume run {origin} instead")]
    WorksForAnother {
        /// The session id of the root run.
        origin: String,
    },
    /// The session is of version 1, which stored a command line instead of a spec.
    #[error("the session has format version 1, which stores no run specification; start a new run")]
    NoSpec,
    /// The stored spec or its blob cannot be read.
    #[error("{0}")]
    Spec(SpecError),
    /// The run cannot be prepared again, for example because its model is not configured any more.
    #[error("{0}")]
    Start(StartError),
    /// The run cannot continue from its stored state.
    #[error("{0}")]
    Run(ResumeError),
}
