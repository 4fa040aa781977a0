//! The reasons a run does not start or continue. They carry no hints of a command line: an interface adds its own.

use std::fmt;

use haft_config::ConfigErrors;
use haft_config::agents::graph::AgentGraphError;
use haft_core::output_store::StoreError;
use haft_core::position::SessionId;
use haft_core::run::RunError;
use haft_sandbox::PolicyError;
use haft_store::sessions::SessionError;

use crate::models::ModelsError;
use crate::runs::ResumeError;
use crate::spec::SpecError;

/// A run that does not start.
#[derive(Debug)]
pub enum StartError {
    /// An agent that the run can reach cannot be loaded.
    Agent(AgentGraphError),
    /// The agent takes JSON, and the request does not fit.
    Input {
        /// The name of the agent.
        agent: String,
        /// The part of the request that does not fit.
        problem: String,
    },
    /// No tool of the agent can meet its tool choice.
    ToolChoice {
        /// The name of the agent.
        agent: String,
        /// The choice that cannot be met.
        problem: String,
    },
    /// The workspace or a path of the sandbox policy cannot be used.
    Policy(PolicyError),
    /// No model of the agent can be used.
    Models(ModelsError),
    /// The configuration cannot be used with the secrets of the run.
    Config(ConfigErrors),
    /// The store of large tool outputs cannot be opened.
    Outputs(StoreError),
    /// The idempotency key or the agents of the run could not be stored.
    Store(StoreError),
    /// The idempotency key belongs to a run that has ended, or that another process drives.
    AlreadyStarted {
        /// The run that the key belongs to.
        run: SessionId,
    },
    /// The run refused its first step.
    Run(RunError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(error) => error.fmt(f),
            Self::Input { agent, problem } => {
                write!(f, "the request does not match the input of agent `{agent}`: {problem}")
            }
            Self::ToolChoice { agent, problem } => {
                write!(f, "`toolChoice` of `{agent}` cannot be met: {problem}")
            }
            Self::Policy(error) => error.fmt(f),
            Self::Models(error) => error.fmt(f),
            Self::Config(errors) => errors.fmt(f),
            Self::Outputs(error) => write!(f, "the output store cannot be opened: {}", reason(error)),
            Self::Store(error) => write!(f, "the run cannot be stored: {}", reason(error)),
            Self::AlreadyStarted { run } => write!(f, "the idempotency key belongs to run {run}"),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

/// Returns the cause alone. The text of a store error is about stored outputs of tools.
pub(super) fn reason(error: &StoreError) -> &str {
    match error {
        StoreError::NotFound => "it is not in the store",
        StoreError::Unavailable { reason } => reason,
    }
}

/// A stored run that does not continue.
#[derive(Debug)]
pub enum ResumeFailure {
    /// The session does not exist, is in use by another process, or cannot be read.
    Session(SessionError),
    /// The run belongs to a sub-agent. Resume its parent run, which continues it.
    WorksForAnother {
        /// The session id of the root run.
        origin: String,
    },
    /// The session is of version 1, which stored a command line instead of a spec.
    NoSpec,
    /// The stored spec or its blob cannot be read.
    Spec(SpecError),
    /// The run cannot be prepared again, for example because its model is gone.
    Start(StartError),
    /// The stored state cannot continue.
    Run(ResumeError),
}

impl fmt::Display for ResumeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::WorksForAnother { origin } => {
                write!(f, "the run belongs to a sub-agent of run {origin}; resume that run")
            }
            Self::NoSpec => f.write_str("the session is of version 1 and has no spec"),
            Self::Spec(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResumeFailure {}
