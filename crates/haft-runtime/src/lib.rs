//! Runs agents. The engine, models, tools, configuration and stores do not depend on each other; this crate connects
//! them.
//!
//! Start reading at [`runs`], which turns an agent and a request into a run; [`wiring`] builds the orchestrator that
//! makes its calls. A program that embeds haft calls [`init`] at the top of `main`. This crate does not write to a
//! terminal, has no exit codes, and does not decide what a tool may do: that is the policy of `haft-sandbox`.

#![warn(missing_docs)]

mod capability_cache;
mod claude_code;
pub mod definition_watch;
pub mod event_log;
pub mod executor;
pub mod governor;
mod handle;
pub mod home;
#[cfg(feature = "keyring")]
pub mod keyring;
pub mod lines;
pub mod models;
mod pending;
pub mod pricing;
pub mod recordings;
mod reporting_grants;
pub mod rest;
mod run_queue;
pub mod runs;
pub mod runtime;
pub mod sampling;
pub mod source_address;
pub mod spec;
pub mod stored_variables;
#[cfg(feature = "otlp")]
pub mod telemetry;
pub mod tokens;
pub mod wiring;

pub use event_log::{EventGap, EventSeq, RunEvents};
pub use handle::{ParkReason, RunDefect, RunHandle, RunOutcome, RunState, ServerListing, SubmitError};
pub use pending::{ApprovalDecision, DecideError, PendingApproval, PendingElicitation};
pub use reporting_grants::ReportingGrants;
pub use run_queue::{QueueEntry, RunQueue, RunQueueFull, RunQueueLimits, RunQueueStats};
pub use runtime::{
    AnswerSource, CIRCUIT_STATES, FinishedRun, OutputStorage, RunHooks, Runtime, RuntimeBuilder,
    RuntimeConfig, SERVER_STATES, SessionStorage, Stores, SuspendedRun, UnknownTools,
};
pub use spec::{RunSecrets, RunSpec, UserHomeView, WorkspaceSpec};

#[cfg(feature = "model-server")]
pub use haft_model_server as model_server;

/// Makes this binary able to start confined commands. Call it at the top of `main`, before any thread is started.
///
/// If the process was started as a sandbox launcher, this function does the launcher's work and never returns.
pub fn init() {
    haft_sandbox::init(&[
        (haft_tools::builtin::FILE_WORKER, haft_tools::builtin::serve_files),
        (haft_tools::output::EXTRACT_WORKER, haft_tools::output::serve),
    ]);
}
