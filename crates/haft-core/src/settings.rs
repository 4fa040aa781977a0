//! Operator settings that more than one crate uses.
//!
//! `haft-config` fills them from `haft.json`. The sandbox, the tool providers, the model client and the stores read
//! them. They are in this crate because the crates that use them do not depend on each other.

pub mod limits;
pub mod mcp;
pub mod method;
pub mod mode;
pub mod models;
pub mod outputs;
pub mod rest;
pub mod sandbox;
pub mod server;
pub mod sessions;
pub mod tool_search;
