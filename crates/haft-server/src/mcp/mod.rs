//! The MCP server: every tool of an orchestrator as the tools of one server, in both eras of the protocol.
//!
//! Start reading at [`McpGateway`], then `connection` (one client: dispatch, calls, cancellation) and `era` (which protocol a
//! request speaks). `message` reads and writes JSON-RPC, `listing` and `result` give tools and results their JSON form, and
//! `questions` puts approvals and questions of upstream servers to the client that called. Nothing here decides if a tool
//! may run: every call goes through the stages of the orchestrator.

mod connection;
mod era;
mod gateway;
mod held;
mod lines;
mod listing;
mod message;
mod object;
mod progress;
mod questions;
mod result;

pub use connection::serve;
pub use era::ClientAbilities;
pub use gateway::{CallHints, McpGateway, OpenedTools, ToolsOpener, WarningSink};
