//! The HTTP server. It turns requests of the Open Responses API into runs, and the event logs of runs into replies.
//!
//! Start reading at [`Server`] and `router.rs`, which lists every route. This crate does not decide if a tool may run:
//! a request becomes a `RunSpec`, and the runtime applies the operator's rules. The crate does not write to a terminal
//! or parse a command line. [`mcp`] is another interface to the same tools, the server side of the Model Context
//! Protocol.

#![warn(missing_docs)]

mod accept;
mod access;
mod agents;
mod audit;
mod auth;
mod body;
mod conversations;
mod cors;
mod error;
mod event_stream;
mod failed_logins;
mod forwarded;
mod health;
mod key_spending;
pub mod mcp;
mod metrics;
mod models;
mod native;
mod observe;
mod operator_log;
mod pending_approvals;
mod protected_resource;
mod rate_limit;
mod request_id;
mod request_json;
mod responses;
mod router;
mod seal;
mod server;
mod server_threads;
mod settings;
mod stalled_streams;
mod storage_limits;
mod store_errors;
mod sweeper;
mod tls;
mod token;
mod tool_switchboard;
mod unknown_fields;
mod used_approvals;
mod v1_routes;
mod waiting_calls;
mod webhook;

pub use agents::AgentCatalog;
pub use error::{ApiError, ApiErrorKind};
pub use operator_log::OperatorLog;
pub use responses::needs_builtin_tools;
pub use server::{ConfigReloads, ReloadedFiles, ServeError, ServedRoutes, Server};
pub use settings::{AuthMode, DEFAULT_PORT, ServerSettings, WebSocketTimes};
pub use v1_routes::v1_routes;
