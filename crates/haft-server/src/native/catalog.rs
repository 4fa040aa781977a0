//! Routes of the native API that list the names that requests can use, and statistics about the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use haft_config::resolved::McpEndpoint;
use haft_store::api_keys::KeyScope;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::server::ServerState;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentList {
    data: Vec<AgentObject>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AgentObject {
    name: String,
    description: String,
}

/// `GET /api/v1/agents`: lists the agents that requests can name.
pub(super) async fn agents(State(state): State<Arc<ServerState>>) -> Json<AgentList> {
    let object = |(name, description): (&str, &str)| AgentObject {
        name: name.to_owned(),
        description: description.to_owned(),
    };
    Json(AgentList { data: state.agents.get().list().map(object).collect() })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ServerList {
    data: Vec<ServerObject>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ServerObject {
    name: String,
    kind: ServerKind,
    enabled: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ServerKind {
    /// The MCP server is a program on the machine of the haft server
    Process,
    Remote,
    /// A variable in the configuration of the MCP server is not set
    Unavailable,
}

/// `GET /api/v1/servers`: lists the configured MCP servers.
pub(super) async fn servers(State(state): State<Arc<ServerState>>) -> Json<ServerList> {
    let config = state.runtime.config();
    let data = config.mcp_servers.iter().map(|(name, server)| ServerObject {
        name: name.clone(),
        kind: match &server.reach {
            Ok(McpEndpoint::Process { .. }) => ServerKind::Process,
            Ok(McpEndpoint::Remote { .. }) => ServerKind::Remote,
            Err(_) => ServerKind::Unavailable,
        },
        enabled: server.enabled,
    });
    Json(ServerList { data: data.collect() })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueList {
    tenant: QueueNumbers,
    /// The runs of all tenants; absent without the scope `admin`
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<QueueNumbers>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct QueueNumbers {
    running: usize,
    waiting: usize,
}

/// `GET /api/v1/queues`: returns the numbers of running and waiting runs.
pub(super) async fn queues(State(state): State<Arc<ServerState>>, caller: Caller) -> Json<QueueList> {
    let queue = state.runtime.queue();
    let (running, waiting) = queue.of_tenant(caller.principal.tenant());
    let all = caller.require(KeyScope::Admin).is_ok().then(|| queue.stats());
    Json(QueueList {
        tenant: QueueNumbers { running, waiting },
        all: all.map(|stats| QueueNumbers { running: stats.running, waiting: stats.waiting }),
    })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ServerStats {
    /// The start of the server, in seconds since 1970
    started_s: u64,
    active_responses: usize,
    running_runs: usize,
    waiting_runs: usize,
    pending_approvals: usize,
    oldest_approval_age_s: u64,
}

/// `GET /api/v1/stats`: returns statistics about the server.
pub(super) async fn stats(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
) -> Result<Json<ServerStats>, ApiError> {
    caller.require(KeyScope::Admin)?;
    let (queue, approvals) = (state.runtime.queue().stats(), state.approval_stats());
    Ok(Json(ServerStats {
        started_s: state.started_s,
        active_responses: state.active_responses(),
        running_runs: queue.running,
        waiting_runs: queue.waiting,
        pending_approvals: approvals.requests,
        oldest_approval_age_s: approvals.oldest_age.as_secs(),
    }))
}
