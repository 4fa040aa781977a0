//! Sources of tools: built-in tools, tools of the embedding Rust program, MCP servers and HTTP APIs. Also contains the
//! file worker, which runs the tools that access files.
//!
//! Start reading at [`builtin`], [`rest`] or [`registry`]; [`files`] runs inside the confined worker process. This
//! crate must not depend on the engine that calls it or on the wire format of any model.

pub mod builtin;
pub mod files;
pub mod frame;
pub mod http_client;
pub mod mcp;
pub mod output;
pub mod registry;
pub mod rest;
mod worker_request;
