//! Values that an operator sets and that more than one crate reads.
//!
//! `haft-config` fills them from `haft.json`; the sandbox, the tool providers, the model client and the stores go by them.
//! They live here because those crates do not know each other.

pub mod limits;
pub mod mcp;
pub mod method;
pub mod mode;
pub mod models;
pub mod outputs;
pub mod rest;
pub mod sandbox;
pub mod sessions;
