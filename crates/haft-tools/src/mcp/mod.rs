//! Tools of MCP servers: any transport, both eras of the protocol, and never a process left behind.
//!
//! Start reading at [`Server`] (one server kept alive by `driver`, which does what `supervisor` decides), then `open` (from a
//! configuration to a connection), `session` (how the era is found) and `peer` (requests by id). `transport` has one
//! file for each way to reach a server. Nothing here decides whether a call may be made.

mod call;
mod config;
mod content;
mod driver;
mod era;
mod host;
mod listing;
mod memory;
mod message;
mod open;
mod param_header;
mod peer;
mod process;
mod provider;
mod ring;
mod server;
mod session;
mod supervisor;
mod transport;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haft_core::result::ToolError;
use tokio::sync::Semaphore;

pub use config::{Connect, HealthProbe, Protocol, ServerConfig};
pub use era::{Era, LEGACY, MODERN};
pub use host::{Elicited, Elicitor};
pub use listing::{Listing, ParamHeaders, Skipped, TOOLS_MAX, Wanted};
pub use message::{Outgoing, RequestId};
pub use process::{Confined, ProcessConfig, server_policy};
pub use provider::McpProvider;
pub use ring::Ring;
pub use server::{Server, Status};
pub use session::Greeting;
pub use transport::{Failure, Forgotten, Inbox, MESSAGE_BYTES_MAX, Transport};

/// Starts servers side by side, so many at once, and waits until each is ready or has failed. What failed is told; the
/// others are not held up by it.
pub async fn start_all(servers: &[Arc<Server>], at_once: usize) -> Vec<(String, ToolError)> {
    let slots = Semaphore::new(at_once.max(1));
    let start = async |server: &Arc<Server>| {
        let _slot = slots.acquire().await;
        server.start().await.err().map(|error| (server.status().name, error))
    };
    servers
        .iter()
        .map(start)
        .collect::<FuturesUnordered<_>>()
        .filter_map(|failed| async { failed })
        .collect()
        .await
}
