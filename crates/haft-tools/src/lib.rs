//! Sources of tools: the built-in ones, those of the embedding Rust program, MCP servers, APIs over HTTP, and the file
//! worker that runs the tools that access files.
//!
//! Start reading at [`builtin`], [`rest`] or [`registry`]; [`files`] runs inside the confined worker process. This
//! crate must not know the engine that calls it or the wire format of any model.

pub mod builtin;
pub mod files;
pub mod frame;
mod http_client;
pub mod mcp;
pub mod output;
pub mod registry;
pub mod rest;
mod worker_request;
