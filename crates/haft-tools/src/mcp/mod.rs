//! Tools of MCP servers, over every transport and with every protocol revision. No server process outlives its
//! connection.
//!
//! Start reading at [`SupervisedServer`] (one server, kept alive by `driver`, which performs the actions that
//! `supervisor` decides), then `open` (from a configuration to a connection), `session` (detects the protocol revision)
//! and `peer` (requests by id). `transport` has one file per transport. This module does not decide whether a call is
//! allowed.

mod auth;
mod bounded;
mod call;
mod call_timeout;
mod catalog_cache;
mod config;
mod content;
mod debounce;
mod driver;
mod era;
mod host;
mod in_flight;
mod listing;
mod log_level;
mod log_ring;
mod login_tool;
mod message;
mod news;
mod open;
mod param_header;
mod passed;
mod peer;
mod process;
mod prompts;
mod provider;
mod refusal;
mod sampling;
mod server;
#[doc(hidden)]
pub mod server_input;
mod session;
mod shared;
mod supervisor;
mod task;
mod task_call;
mod trace;
mod trace_parent;
mod transport;
mod watched_resources;

pub use auth::{
    AuthError, Authorizer, IdentityProvider, Keyring, KeyringPreference, LOGIN_NEEDED, LoopbackRedirect,
    OauthConfig, OauthConsent, OauthGrantConfig, PreregisteredClient, SigningKey, TokenFile,
    is_login_redirect, login_state,
};
pub use catalog_cache::{CatalogCacheSummary, catalog_cache_summary};
pub use config::{ConnectTarget, ServerConfig};
pub use era::{LEGACY, MODERN, ProtocolEra};
pub use haft_core::elicitation::{ElicitationAnswer, Elicitor};
pub use haft_core::sampling::{OriginatingCall, Sampler, SamplingReply, SamplingRequest};
pub use haft_core::settings::mcp::{
    HealthProbe, OAuthAccount, OAuthGrant, RemoteTransport, SamplingConsent, SamplingLimits,
    ServerConfinement,
};
pub use host::{ElicitationSupport, RelayedCapabilities};
pub use listing::{McpToolList, ParamHeaders, SkippedTool, TOOLS_MAX, ToolSelection};
pub use log_level::{LOG_LEVELS, LogLevelRequest};
pub use log_ring::{LogRing, read_saved_log};
pub use message::{
    ID_BYTES_MAX, JsonRpcEnvelope, METHOD_NOT_FOUND, MISSING_CAPABILITY, McpOutgoingMessage, RequestId,
    SESSION_NOT_FOUND, UNSUPPORTED_VERSION, URL_REQUIRED,
};
pub use news::{LogRecord, ServerNews};
pub use param_header::{PARAM_HEADER_PREFIX, SentParamHeaders, check_param_headers};
pub use passed::{PassError, PassedMethod, PassedRequest};
pub use process::{ProcessConfig, server_policy};
pub use provider::McpProvider;
pub use server::{LogStorage, LoginOffer, McpEnvironment, McpServerStatus, SupervisedServer};
pub use session::{ServerDescription, ServerOffers};
pub use shared::SharedServers;
pub use supervisor::SERVER_STATES;
pub use trace::{TraceLineKind, TraceSink};
pub use trace_parent::TraceParents;
pub use transport::{ForgetOutcome, Inbox, MESSAGE_BYTES_MAX, Transport, TransportFailure, TransportOpener};
pub use watched_resources::ResourceWatch;
