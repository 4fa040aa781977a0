//! haft as a library: tools that run in a real sandbox, and agents that use them.
//!
//! A program that embeds haft calls [`init`] at the top of `main`, then uses [`executor::ToolExecutor`] or builds an
//! orchestrator with [`wiring`]. Tools of its own are a [`prelude::Tool`] in a [`prelude::Registry`]. This crate only
//! re-exports: the code lives in the crates named below, and heavy parts are features.

pub mod prelude;

pub use haft_config as config;
pub use haft_core as core;
pub use haft_engine as engine;
pub use haft_models as models;
pub use haft_runtime::{executor, init, runs, wiring};
pub use haft_sandbox as sandbox;
pub use haft_store as store;
pub use haft_tools as tools;

#[cfg(feature = "model-server")]
pub use haft_runtime::model_server;

/// The Rust shown in documents is compiled and run with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/embedding.md")]
    mod embedding {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
