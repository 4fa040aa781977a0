//! The native API, `/api/v1`: runs with their events and outputs, approval requests, and the names that requests can
//! use.
//!
//! [`ROUTES`] is the list of all routes. The router and the `OpenAPI` document are both built from it, so that no route
//! is missing in the document. No route starts a run or changes the configuration: `POST /v1/responses` starts runs,
//! and a command that runs is named only in files of the operator.

mod approvals;
mod catalog;
mod openapi;
mod outputs;
mod runs;

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post};
use schemars::{Schema, SchemaGenerator};
use serde::Deserialize;

use crate::error::ApiError;
use crate::responses::{invalid, page_limit};
use crate::server::ServerState;

/// One route and its description.
struct NativeRoute {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// The parameters of the query, with their descriptions.
    query: &'static [(&'static str, &'static str)],
    body: Option<fn(&mut SchemaGenerator) -> Schema>,
    reply: NativeReply,
    handler: fn() -> MethodRouter<Arc<ServerState>>,
}

/// The content of a reply.
enum NativeReply {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A JSON object that another specification describes.
    Other(&'static str),
    /// Server-sent events.
    Events,
}

const PAGE: [(&str, &str); 2] = [
    ("limit", "The number of entries, from 1 to 100; by default 20"),
    ("skip", "The number of newer entries to skip"),
];

/// All routes below `/api/v1`.
const ROUTES: [NativeRoute; 14] = [
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
        summary: "Cancels a run that works, waits in the queue, or waits for approval.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<runs::RunObject>),
        handler: || post(runs::cancel),
    },
    NativeRoute {
        method: "get",
        path: "/runs/{id}/events",
        summary: "Returns the events of a run as server-sent events: first the past ones, then the new ones.",
        query: &[("after", "The number of an event; the stream begins with the next one")],
        body: None,
        reply: NativeReply::Events,
        handler: || get(runs::events),
    },
    NativeRoute {
        method: "get",
        path: "/runs/{id}/outputs/{handle}",
        summary: "Returns a part of a stored tool output.",
        query: &[
            ("from", "The first byte; by default 0"),
            ("bytes", "The number of bytes, at most 1048576; by default 65536"),
            ("find", "Returns only the lines of this part that contain this text"),
        ],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<outputs::OutputPart>),
        handler: || get(outputs::get),
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
        summary: "Approves or denies a call. The run continues as a background response, which the reply contains.",
        query: &[],
        body: Some(SchemaGenerator::subschema_for::<approvals::ApprovalDecisionBody>),
        reply: NativeReply::Other("A response object of the Open Responses specification"),
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
        path: "/groups",
        summary: "Lists the configured groups of tools.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::GroupList>),
        handler: || get(catalog::groups),
    },
    NativeRoute {
        method: "get",
        path: "/queues",
        summary: "Returns the runs of the caller's tenant that work and wait, and with the scope `admin` those of all.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::QueueList>),
        handler: || get(catalog::queues),
    },
    NativeRoute {
        method: "get",
        path: "/stats",
        summary: "Returns numbers about the server; needs the scope `admin`.",
        query: &[],
        body: None,
        reply: NativeReply::Json(SchemaGenerator::subschema_for::<catalog::ServerStats>),
        handler: || get(catalog::stats),
    },
    NativeRoute {
        method: "get",
        path: "/openapi.json",
        summary: "Returns this document.",
        query: &[],
        body: None,
        reply: NativeReply::Other("An OpenAPI document"),
        handler: || get(openapi::show),
    },
];

/// Returns the routes, without the checks around them.
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
