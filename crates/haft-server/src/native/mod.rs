//! The native API, `/api/v1`: runs with their events and outputs, sessions, approval requests, tools and groups, and the
//! names that requests can use.
//!
//! [`ROUTES`] is the list of all routes. The router and the `OpenAPI` document are both built from it, so that no route
//! is missing in the document. A new run starts like a background response of `/v1/responses`. No route changes the
//! configuration or adds a command: a route can only turn tools off, and on again.

mod approvals;
mod catalog;
mod line_search;
mod new_run;
mod openapi;
mod outputs;
mod runs;
mod sessions;
mod skills;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post, put};
use schemars::{Schema, SchemaGenerator};
use serde::Deserialize;

pub(crate) use self::tools::http_tools;
use crate::error::ApiError;
use crate::responses::{invalid, page_limit};
use crate::server::ServerState;

/// One route and its description.
struct NativeRoute {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// The parameters of the query, with their types and descriptions.
    query: &'static [(&'static str, QueryType, &'static str)],
    body: Option<fn(&mut SchemaGenerator) -> Schema>,
    reply: NativeReply,
    handler: fn() -> MethodRouter<Arc<ServerState>>,
}

/// The type of a parameter of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryType {
    Integer,
    Text,
}

impl QueryType {
    /// Returns the name of the type in JSON Schema.
    fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Text => "string",
        }
    }
}

/// The kind of reply that a route sends.
enum NativeReply {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A JSON object with the status 202: the work continues after the reply.
    Accepted(fn(&mut SchemaGenerator) -> Schema),
    /// A JSON object that another specification describes.
    Other(&'static str),
    /// Server-sent events.
    Events,
}

const PAGE: [(&str, QueryType, &str); 2] = [
    ("limit", QueryType::Integer, "The number of entries, from 1 to 100; by default 20"),
    ("skip", QueryType::Integer, "The number of newer entries to skip"),
];

/// All routes below `/api/v1`.
const ROUTES: [NativeRoute; 23] = [
    NativeRoute {
        method: "get",
        path: "/runs",
        summary: "Lists the runs of the caller, the newest first.",
        query: &PAGE,
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<runs::RunList>),
        handler: || get(runs::list),
    },
    NativeRoute {
        method: "post",
        path: "/runs",
        summary: "Starts a run, like a background response. The header `Idempotency-Key` makes a repeated request return the first run.",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<new_run::NewRunBody>),
        reply: NativeReply::Accepted(SchemaGenerator::subschema_for::<runs::RunObject>),
        handler: || post(new_run::create),
    },
    NativeRoute {
        method: "get",
        path: "/runs/{id}",
        summary: "Returns a run of the caller.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<runs::RunObject>),
        handler: || get(runs::get),
    },
    NativeRoute {
        method: "post",
        path: "/runs/{id}/cancel",
        summary: "Cancels a run that is in progress, waits in the queue, or waits for approval.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<runs::RunObject>),
        handler: || post(runs::cancel),
    },
    NativeRoute {
        method: "get",
        path: "/runs/{id}/events",
        summary: "Returns the events of a run as server-sent events: first the past ones, then the new ones.",
        query: &[(
            "after",
            QueryType::Integer,
            "The number of an event; the stream begins with the event after it",
        )],
        body: None,
        reply: NativeReply::Events,
        handler: || get(runs::events),
    },
    NativeRoute {
        method: "get",
        path: "/runs/{id}/outputs/{handle}",
        summary: "Returns a part of a stored tool output, or all its lines that contain a string.",
        query: &[
            ("from", QueryType::Integer, "The first byte of the part or of the search; by default 0"),
            (
                "bytes",
                QueryType::Integer,
                "The number of bytes, at most 1048576; by default 65536; not together with `find`",
            ),
            (
                "find",
                QueryType::Text,
                "Returns the lines that contain this string, starting at `from`: at most 200 lines, out of \
                 at most 67108864 bytes",
            ),
        ],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<outputs::OutputPart>),
        handler: || get(outputs::get),
    },
    NativeRoute {
        method: "get",
        path: "/sessions",
        summary: "Lists the stored sessions of the caller with their cost, the newest first.",
        query: &PAGE,
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<sessions::SessionList>),
        handler: || get(sessions::list),
    },
    NativeRoute {
        method: "get",
        path: "/sessions/{id}",
        summary: "Returns a stored session of the caller with its cost.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<sessions::SessionObject>),
        handler: || get(sessions::get),
    },
    NativeRoute {
        method: "get",
        path: "/approvals",
        summary: "Lists the approval requests of the caller that wait for an answer, the oldest first.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<approvals::ApprovalList>),
        handler: || get(approvals::list),
    },
    NativeRoute {
        method: "post",
        path: "/approvals/{id}",
        summary: "Approves or denies a call. The run continues as a background response, which the reply contains. After a decision about a call of an MCP client, the reply contains `id` and `approve`.",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<approvals::ApprovalDecisionBody>),
        reply: NativeReply::Other(
            "A response object of the Open Responses specification; for a call of an MCP client, an object with `id` \
             and `approve`",
        ),
        handler: || post(approvals::decide),
    },
    NativeRoute {
        method: "get",
        path: "/agents",
        summary: "Lists the agents that requests can name.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::AgentList>),
        handler: || get(catalog::agents),
    },
    NativeRoute {
        method: "get",
        path: "/models",
        summary: "Lists the models that requests can name.",
        query: &[],
        body: None,
        reply: NativeReply::Other("The same list as `/v1/models`"),
        handler: || get(crate::models::list),
    },
    NativeRoute {
        method: "get",
        path: "/servers",
        summary: "Lists the configured MCP servers by name, without commands, addresses and secrets.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::ServerList>),
        handler: || get(catalog::servers),
    },
    NativeRoute {
        method: "get",
        path: "/tools",
        summary: "Lists the tools that the key may use, without schemas.",
        query: &PAGE,
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<tools::ToolList>),
        handler: || get(tools::list),
    },
    NativeRoute {
        method: "get",
        path: "/tools/{name}",
        summary: "Returns a tool with its definition.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<tools::ToolObject>),
        handler: || get(tools::get),
    },
    NativeRoute {
        method: "put",
        path: "/tools/{name}",
        summary: "Turns a tool off for all new calls, or on again; needs the scope `admin`.",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<tools::SwitchBody>),
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<tools::SwitchObject>),
        handler: || put(tools::set),
    },
    NativeRoute {
        method: "get",
        path: "/groups",
        summary: "Lists the groups of the tools that the key may use.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<tools::GroupList>),
        handler: || get(tools::groups),
    },
    NativeRoute {
        method: "put",
        path: "/groups/{name}",
        summary: "Turns a group of tools off for all new calls, or on again; needs the scope `admin`.",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<tools::SwitchBody>),
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<tools::SwitchObject>),
        handler: || put(tools::set_group),
    },
    NativeRoute {
        method: "get",
        path: "/skills",
        summary: "Lists the skills that requests can trigger.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<skills::SkillList>),
        handler: || get(skills::list),
    },
    NativeRoute {
        method: "get",
        path: "/skills/{name}",
        summary: "Returns a skill, without its text and the commands of its servers.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<skills::SkillObject>),
        handler: || get(skills::get),
    },
    NativeRoute {
        method: "get",
        path: "/queues",
        summary: "Returns the active and waiting runs of the caller's tenant; with the scope `admin`, of all tenants.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::QueueList>),
        handler: || get(catalog::queues),
    },
    NativeRoute {
        method: "get",
        path: "/stats",
        summary: "Returns statistics about the server; needs the scope `admin`.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::ServerStats>),
        handler: || get(catalog::stats),
    },
    NativeRoute {
        method: "get",
        path: "/openapi.json",
        summary: "Returns this OpenAPI document.",
        query: &[],
        body: None,
        reply: NativeReply::Other("An OpenAPI document"),
        handler: || get(openapi::show),
    },
];

/// Returns the routes of the native API, without the checks around them.
pub(crate) fn router() -> Router<Arc<ServerState>> {
    ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
}

/// The part of a list that a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NativePage {
    limit: Option<String>,
    skip: Option<String>,
}

impl NativePage {
    fn limit(&self) -> Result<usize, ApiError> {
        page_limit(self.limit.as_deref())
    }

    fn skip(&self) -> Result<usize, ApiError> {
        let skip = number("skip", self.skip.as_deref(), 0)?;
        Ok(usize::try_from(skip).unwrap_or(usize::MAX))
    }
}

/// Reads a number of the query.
fn number(name: &str, text: Option<&str>, default: u64) -> Result<u64, ApiError> {
    let Some(text) = text else { return Ok(default) };
    text.parse().map_err(|_| invalid(name, format!("`{name}` must be a whole number; got `{text}`")))
}
