//! haft as a library: tools that run in a real sandbox, and agents that use them.
//!
//! Start with [`Agent`] for one answer, with [`Runtime`] for runs that a program watches, approves and resumes, and
//! with [`executor::ToolExecutor`] for tool calls without a model. A program that uses the built-in tools must call
//! [`init`] at the top of `main`, because the sandbox starts the same binary again. The code is in the crates that are
//! re-exported below, and large optional parts are cargo features.

#![warn(missing_docs)]

mod agent;
pub mod prelude;

pub use agent::{Agent, AgentBuildError, AgentRunError};
pub use haft_config as config;
pub use haft_core as core;
pub use haft_engine as engine;
pub use haft_models as models;
pub use haft_runtime::{
    AnswerSource, ApprovalDecision, EventSeq, ParkReason, RunHandle, RunHooks, RunOutcome, RunSecrets,
    RunSpec, RunState, Runtime, Stores, WorkspaceSpec, executor, init, runtime, spec, wiring,
};
pub use haft_sandbox as sandbox;
pub use haft_store as store;
pub use haft_tools as tools;

#[cfg(feature = "model-server")]
pub use haft_runtime::model_server;
#[cfg(feature = "otlp")]
pub use haft_runtime::telemetry;

/// Compiles and runs the Rust code in the documentation with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/embedding.md")]
    mod embedding {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
