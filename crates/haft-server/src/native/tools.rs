//! Routes of the native API that list and return tools and groups, and turn them on or off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use haft_config::ResolvedConfig;
use haft_config::namespace_conflict::namespace_conflict;
use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, Namespace};
use haft_core::naming::ToolIdentity;
use haft_core::provider::ProviderKind;
use haft_core::rules::PermissionDecision;
use haft_engine::{OfferedTool, ToolActivity};
use haft_runtime::runtime::ToolInventory;
use haft_store::api_keys::KeyScope;
use haft_store::audit_log::AuditEvent;
use haft_tools::output::OUTPUT_TOOL;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::NativePage;
use crate::auth::Caller;
use crate::body::DecisionObject;
use crate::error::{ApiError, ApiErrorKind};
use crate::responses::{self, HARMLESS, invalid};
use crate::server::ServerState;
use crate::tool_switchboard::{SwitchPosition, SwitchTarget};

/// A tool of the server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolObject {
    /// The name that models use
    name: String,
    /// The kind of the tool's provider: `builtin`, `mcp` or `rest`
    kind: &'static str,
    /// The name of the MCP server or HTTP API
    source: String,
    groups: Vec<String>,
    /// The effects of a call: `read-only`, `idempotent`, `mutating` or `unknown`
    effects: &'static str,
    /// The decision of the rules before the arguments of a call are known: `allow`, `ask`, or `deny` if every call is
    /// denied
    decision: &'static str,
    /// True if models see the tool and can call it
    active: bool,
    /// The reason why the tool is not active
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The description for models; absent for a tool that no call can reach
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// The JSON Schema of the arguments; absent in a list, and for a tool that no call can reach
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
    /// The JSON Schema of the structured output, if the tool has one
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolList {
    data: Vec<ToolObject>,
    /// True if there are further tools
    has_more: bool,
    /// The MCP servers whose tools are missing, because they did not start or are still starting
    unknown_servers: Vec<String>,
}

/// A group of tools: one of the configuration, an MCP server, an HTTP API, or the built-in tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GroupObject {
    name: String,
    /// The patterns of a group of the configuration
    patterns: Vec<String>,
    /// The names of the group's tools
    tools: Vec<String>,
    /// False if the group is turned off, or if `activeGroups` of the configuration does not contain it
    active: bool,
    /// The reason why the group is not active
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GroupList {
    data: Vec<GroupObject>,
}

/// The body of a request that turns a tool or a group on or off.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the body is read field by field")]
pub(crate) struct SwitchBody {
    /// False turns the tool or the group off, for all tenants. True turns it on again, but never activates a tool that
    /// the configuration or the lock file deactivates
    active: bool,
}

/// A tool or a group after a change of its switch.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SwitchObject {
    name: String,
    active: bool,
    /// The reason why the tool or group is not active
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The entries of tools in the `tools` of a response.
#[derive(Debug, Default)]
pub(super) struct ToolEntries {
    pub(super) tools: Vec<Value>,
    /// The names of the tools of HTTP APIs. A key may use them without the scope for built-in tools, as the list of
    /// tools says.
    pub(super) http_tools: Vec<String>,
}

/// `GET /api/v1/tools`: lists the tools that the key may use.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Query(page): Query<NativePage>,
) -> Result<Json<ToolList>, ApiError> {
    let (limit, skip) = (page.limit()?, page.skip()?);
    let inventory = inventory(&state, &caller).await?;
    let tools = visible(&inventory, &caller);
    let has_more = tools.len() > skip.saturating_add(limit);
    let shown = tools.iter().skip(skip).take(limit);
    let data = shown.map(|tool| object(&inventory, tool, ToolDetail::Summary)).collect();
    Ok(Json(ToolList { data, has_more, unknown_servers: inventory.unknown_servers() }))
}

/// `GET /api/v1/tools/{name}`: returns a tool with its definition.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<ToolObject>, ApiError> {
    let inventory = inventory(&state, &caller).await?;
    let found = find(&inventory, &caller, &name).ok_or_else(|| no_tool(&name))?;
    Ok(Json(object(&inventory, &found, ToolDetail::Definition)))
}

/// `PUT /api/v1/tools/{name}`: turns a tool off or on.
pub(super) async fn set(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(name): Path<String>,
    DecisionObject(body): DecisionObject,
) -> Result<Json<SwitchObject>, ApiError> {
    caller.require(KeyScope::Admin)?;
    let position = position(&body)?;
    let tools = inventory(&state, &caller).await?;
    let target = match find(&tools, &caller, &name) {
        Some(tool) => {
            SwitchTarget::Tool { name: tool.entry.exposed().clone(), identity: tool.entry.identity().clone() }
        }
        None if is_turned_off(&state, &name).await? => SwitchTarget::MissingTool { name: name.clone() },
        None => return Err(no_tool(&name)),
    };
    switch(&state, &caller, target, position).await?;
    let reason = match find(&tools, &caller, &name).map(|tool| tool.governed.activity) {
        Some(ToolActivity::Active) => None,
        Some(ToolActivity::Inactive { why }) => Some(why.to_string()),
        None => Some("no tool provider offers this tool at present".to_owned()),
    };
    Ok(Json(SwitchObject { name, active: reason.is_none(), reason }))
}

/// `GET /api/v1/groups`: lists the groups of tools.
pub(super) async fn groups(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
) -> Result<Json<GroupList>, ApiError> {
    let inventory = inventory(&state, &caller).await?;
    Ok(Json(GroupList { data: group_objects(&state, &caller, &inventory) }))
}

/// `PUT /api/v1/groups/{name}`: turns a group of tools off or on.
pub(super) async fn set_group(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(name): Path<String>,
    DecisionObject(body): DecisionObject,
) -> Result<Json<SwitchObject>, ApiError> {
    caller.require(KeyScope::Admin)?;
    let position = position(&body)?;
    let missing = || ApiError::new(ApiErrorKind::NotFound, format!("there is no group `{name}`"));
    let group = GroupName::new(&name).map_err(|_| missing())?;
    let inventory = inventory(&state, &caller).await?;
    let has_tools = group_objects(&state, &caller, &inventory).iter().any(|known| known.name == name);
    let is_off = state.runtime.switches().current().groups.contains_key(&group);
    if !(has_tools || is_off || is_server(&state.runtime.config(), &group)) {
        return Err(missing());
    }
    switch(&state, &caller, SwitchTarget::Group(group.clone()), position).await?;
    let reason = group_inactivity(&state, &group);
    Ok(Json(SwitchObject { name, active: reason.is_none(), reason }))
}

/// Changes a switch, and writes the change to the audit log.
async fn switch(
    state: &ServerState,
    caller: &Caller,
    target: SwitchTarget,
    position: SwitchPosition,
) -> Result<(), ApiError> {
    let name = match &target {
        SwitchTarget::Tool { name, .. } => name.as_str().to_owned(),
        SwitchTarget::MissingTool { name } => name.clone(),
        SwitchTarget::Group(group) => format!("@{}", group.as_str()),
    };
    state.switchboard.set(target, position, &caller.principal).await?;
    let detail = match position {
        SwitchPosition::On => "on",
        SwitchPosition::Off => "off",
    };
    state.audit.decided(&caller.principal, AuditEvent::ToolSwitched, &name, detail);
    Ok(())
}

/// Reads `{"active": BOOLEAN}`. Refuses other fields, because a request can change no other setting of a tool.
fn position(body: &Map<String, Value>) -> Result<SwitchPosition, ApiError> {
    if let Some(unknown) = body.keys().find(|key| *key != "active") {
        return Err(invalid(
            unknown.clone(),
            format!("the request has the unknown field `{unknown}`; the only field is `active`"),
        ));
    }
    match body.get("active").and_then(Value::as_bool) {
        Some(true) => Ok(SwitchPosition::On),
        Some(false) => Ok(SwitchPosition::Off),
        None => Err(invalid("active", "`active` must be true or false")),
    }
}

/// Returns the tools of the caller's runs. Starts the MCP servers if needed.
async fn inventory(state: &ServerState, caller: &Caller) -> Result<Arc<ToolInventory>, ApiError> {
    let workspace = responses::listing_workspace(state, &caller.principal)?;
    let inventory = state.runtime.tool_inventory(&caller.principal, &workspace).await;
    // The error may contain a path of the server, which the client must not see.
    inventory.map_err(|_| ApiError::new(ApiErrorKind::ServerError, "the server cannot list its tools"))
}

/// Returns the tools that the key may use. An administrator sees all tools, in order to turn them off.
fn visible(inventory: &ToolInventory, caller: &Caller) -> Vec<OfferedTool> {
    let has_scope =
        [KeyScope::BuiltinTools, KeyScope::Admin].iter().any(|scope| caller.scopes.contains(scope));
    let is_visible = |tool: &OfferedTool| match tool.entry.identity().kind {
        ProviderKind::Builtin => {
            has_scope || [HARMLESS, OUTPUT_TOOL].contains(&tool.entry.exposed().as_str())
        }
        ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Agent | ProviderKind::Client => true,
    };
    inventory.tools().into_iter().filter(is_visible).collect()
}

fn find(inventory: &ToolInventory, caller: &Caller, name: &str) -> Option<OfferedTool> {
    visible(inventory, caller).into_iter().find(|tool| tool.entry.exposed().as_str() == name)
}

/// Returns the entries of the tools with these names. The name of a tool depends on the naming scheme, so the tools of
/// MCP servers are found by their identity. A name that the list of tools does not contain becomes the entry of a
/// built-in tool, and the check of the response refuses it.
pub(super) async fn entries(
    state: &ServerState,
    caller: &Caller,
    names: &[String],
) -> Result<ToolEntries, ApiError> {
    let (config, inventory) = (state.runtime.config(), inventory(state, caller).await?);
    let known = visible(&inventory, caller);
    let mut entries = ToolEntries::default();
    for name in names {
        let found = known.iter().find(|tool| tool.entry.exposed().as_str() == name);
        let identity = found.map(|tool| tool.entry.identity());
        if identity.is_some_and(|identity| identity.kind == ProviderKind::Rest) {
            entries.http_tools.push(name.clone());
        }
        entries.tools.push(entry(name, identity, &config));
    }
    Ok(entries)
}

/// Returns the names of the tools of HTTP APIs.
pub(crate) async fn http_tools(state: &ServerState, caller: &Caller) -> Result<Vec<String>, ApiError> {
    let tools = inventory(state, caller).await?.tools();
    let of_apis = tools.iter().filter(|tool| tool.entry.identity().kind == ProviderKind::Rest);
    Ok(of_apis.map(|tool| tool.entry.exposed().to_string()).collect())
}

fn entry(name: &str, identity: Option<&ToolIdentity>, config: &ResolvedConfig) -> Value {
    let server = identity.filter(|identity| identity.kind == ProviderKind::Mcp).and_then(|identity| {
        let has_namespace = |server: &&String| {
            Namespace::sanitize(server) == identity.namespace
                && namespace_conflict(&config.mcp_servers, server).is_none()
        };
        Some((config.mcp_servers.keys().find(has_namespace)?, identity.tool.as_str()))
    });
    match server {
        Some((server, tool)) => json!({"type": "mcp", "server_label": server, "allowed_tools": [tool]}),
        None => json!({"type": format!("haft:{name}")}),
    }
}

fn no_tool(name: &str) -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, format!("there is no tool `{name}`"))
}

async fn is_turned_off(state: &ServerState, name: &str) -> Result<bool, ApiError> {
    Ok(state.switchboard.stored().await?.tools.iter().any(|tool| tool.name == name))
}

/// Selects how much of a tool's definition a [`ToolObject`] contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolDetail {
    /// The object has no schemas, which are the largest part of a definition.
    Summary,
    Definition,
}

fn object(inventory: &ToolInventory, tool: &OfferedTool, detail: ToolDetail) -> ToolObject {
    let OfferedTool { entry, governed } = tool;
    let decision = inventory.orchestrator().standing_decision(tool);
    let reason = match &governed.activity {
        ToolActivity::Active => None,
        ToolActivity::Inactive { why } => Some(why.to_string()),
    };
    // Omit the definition of a tool that cannot be called: like a denied call, the reply must not reveal its arguments.
    let is_reachable = reason.is_none() && decision != PermissionDecision::Deny;
    let definition = is_reachable.then(|| entry.definition());
    let full = definition.filter(|_| detail == ToolDetail::Definition);
    ToolObject {
        name: entry.exposed().as_str().to_owned(),
        kind: entry.identity().kind.name(),
        source: entry.source().to_owned(),
        groups: governed.groups.iter().map(|group| group.as_str().to_owned()).collect(),
        effects: governed.effects.name(),
        decision: decision.name(),
        active: reason.is_none(),
        reason,
        description: definition.map(|definition| definition.description.clone()),
        input_schema: full.map(|definition| definition.input_schema.clone()),
        output_schema: full.and_then(|definition| definition.output_schema.clone()),
    }
}

/// Returns the groups of the tools that the key may use. An administrator also sees configured groups without tools.
fn group_objects(state: &ServerState, caller: &Caller, inventory: &ToolInventory) -> Vec<GroupObject> {
    let config = state.runtime.config();
    let mut tools: BTreeMap<GroupName, BTreeSet<String>> = BTreeMap::new();
    if caller.scopes.contains(&KeyScope::Admin) {
        tools.extend(config.groups.keys().map(|group| (group.clone(), BTreeSet::new())));
    }
    for tool in visible(inventory, caller) {
        for group in &tool.governed.groups {
            tools.entry(group.clone()).or_default().insert(tool.entry.exposed().as_str().to_owned());
        }
    }
    let object = |(group, tools): (GroupName, BTreeSet<String>)| {
        let reason = group_inactivity(state, &group);
        let patterns = config.groups.get(&group).into_iter().flatten().map(ToolGlob::to_string).collect();
        let name = group.as_str().to_owned();
        GroupObject { name, patterns, tools: tools.into_iter().collect(), active: reason.is_none(), reason }
    };
    tools.into_iter().map(object).collect()
}

fn group_inactivity(state: &ServerState, group: &GroupName) -> Option<String> {
    let config = state.runtime.config();
    let is_active = config.active_groups.as_ref().is_none_or(|active| active.contains(group));
    let by_config =
        || (!is_active).then(|| "`activeGroups` of the configuration does not contain this group".to_owned());
    state.runtime.switches().current().groups.get(group).cloned().or_else(by_config)
}

/// Returns true if the group consists of the tools of a configured server. They may not be known yet.
fn is_server(config: &ResolvedConfig, group: &GroupName) -> bool {
    config.mcp_servers.keys().any(|name| Namespace::sanitize(name).as_str() == group.as_str())
}
