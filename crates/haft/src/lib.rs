//! The product: haft as a library, its command line, and the wiring that alone knows every crate.
//!
//! A program that embeds haft calls [`init`] at the top of `main`, then uses [`executor::ToolExecutor`] or builds an
//! orchestrator with [`wiring`]. Tools of its own are a [`prelude::Tool`] in a [`prelude::Registry`]. Nothing here decides what a tool may do: that is the policy of `haft-sandbox`.

pub mod accounting;
pub mod agents;
pub mod approvals;
mod claude_code;
pub mod cli;
pub mod config;
pub mod executor;
pub mod governing;
pub mod home;
pub mod keyring;
mod learned;
pub mod models;
pub mod prelude;
pub mod recordings;
pub mod rest;
pub mod runs;
pub mod sampling;
pub mod sessions;
pub mod skills;
pub mod telemetry;
pub mod tokens;
pub mod wiring;

pub use haft_core as core;
pub use haft_engine as engine;
pub use haft_sandbox as sandbox;
pub use haft_tools as tools;
pub(crate) use haft_tools::private_file;

/// Makes this binary able to start confined commands. Call it at the top of `main`, before any thread is started.
///
/// When the process was started as a sandbox launcher, this does a launcher's work and never returns.
pub fn init() {
    haft_sandbox::init(&[
        (haft_tools::builtin::FILE_WORKER, haft_tools::builtin::serve_files),
        (haft_tools::output::EXTRACT_WORKER, haft_tools::output::serve),
    ]);
}

/// The Rust shown in documents is compiled and run with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/embedding.md")]
    mod embedding {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
