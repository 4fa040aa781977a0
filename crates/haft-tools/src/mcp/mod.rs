//! Tools of MCP servers: every transport, both eras of the protocol, and no processes left behind.
//!
//! Start reading at [`Server`] (one server, kept alive by `driver`, which performs what `supervisor` decides), then
//! `open` (from a configuration to a connection), `session` (detects the era) and `peer` (requests by id). `transport`
//! has one file per transport. Nothing here decides whether a call is allowed.

mod auth;
mod bounded;
mod call;
mod config;
mod content;
mod driver;
mod era;
mod host;
mod in_flight;
mod listing;
mod memory;
mod message;
mod open;
mod overdue;
mod param_header;
mod peer;
mod process;
mod prompts;
mod provider;
mod refusal;
mod ring;
mod sampling;
mod server;
mod session;
mod settling;
mod shared;
mod supervisor;
mod trace;
mod trace_parent;
mod transport;

pub use auth::{
    AuthError, Authorizer, Consent, Grant, Keyring, KnownClient, LOGIN_NEEDED, OauthConfig, Preference,
    TokenFile,
};
pub use config::{Connect, ServerConfig};
pub use era::{Era, LEGACY, MODERN};
pub use haft_core::elicitation::{Elicited, Elicitor};
pub use haft_core::sampling::{Caller, Sample, Sampled, Sampler};
pub use haft_core::settings::mcp::{Confined, HealthProbe, Protocol, Sampling, SamplingConsent};
pub use host::Elicitation;
pub use listing::{Listing, ParamHeaders, Skipped, TOOLS_MAX, Wanted};
pub use memory::{Remembrance, remembrance};
pub use message::{Outgoing, RequestId};
pub use process::{ProcessConfig, server_policy};
pub use provider::McpProvider;
pub use ring::{Ring, kept_log};
pub use server::{McpEnvironment, Server, Status};
pub use session::Greeting;
pub use shared::SharedServers;
pub use trace::{TraceSink, Traced};
pub use trace_parent::TraceParents;
pub use transport::{Failure, Forgotten, Inbox, MESSAGE_BYTES_MAX, Opener, Transport};
