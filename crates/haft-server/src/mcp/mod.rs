//! The MCP gateway: one MCP server that offers all tools of an orchestrator. It supports protocol revisions with and
//! without a handshake.
//!
//! Start reading at [`McpGateway`], then `connection` (one client: dispatch, calls, cancellation) and `era` (the
//! protocol revision of a request). `shared_tools` opens the tools that equal clients share. `upstream` and `address`
//! pass resources and prompts through, and `passed_methods` applies the stages of calls to them. `questions` sends
//! approval questions and requests of upstream servers to the client that made the call. If a client cannot or may not
//! ask its user, `operator_questions` asks the operator. `call_notices` sends progress and log messages to the requests
//! that want them. `tasks` keeps calls that outlive their request, and `logins` keeps logins at upstream servers.
//! `message` reads and writes JSON-RPC; `listing`, `meta_tools`, `result` and `rewrite` format lists and results;
//! `members` and `handshake_form` remove and change what clients refuse, and `older_content` converts content that older
//! revisions do not know. `outbox` and `principals` limit the memory of messages that clients do not read. This module
//! does not decide if a tool may run: every call passes the stages of the orchestrator.

mod address;
mod call_notices;
mod client_log;
mod client_outputs;
mod connection;
mod era;
mod gateway;
mod handshake_form;
mod held;
mod hidden_address;
pub(crate) mod http;
mod listing;
mod logins;
mod members;
mod message;
mod meta_tools;
mod object;
mod older_content;
mod operator_questions;
mod outbox;
mod passed_methods;
mod principals;
mod progress;
mod provider_changes;
mod questions;
mod result;
mod rewrite;
mod shared_tools;
mod tasks;
mod upstream;
mod url_questions;

pub use connection::serve;
pub use era::ClientAbilities;
pub use gateway::{
    BuiltinAccess, CallHints, CallingClient, GatewayClient, GatewayProfile, McpGateway, OpenedTools,
    OperatorApprovers, OutputsOpener, OwnApprovals, ToolView, ToolsOpener, WarningSink,
};
pub use meta_tools::{ListedTools, SearchSettings};
