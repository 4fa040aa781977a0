//! Builds the run spec of a checked request. A request can restrict the permissions of its agent and of the operator,
//! but never extend them.

use std::sync::{Arc, LazyLock};

use haft_config::ResolvedConfig;
use haft_config::agents::graph::{AgentGraph, AgentGraphError};
use haft_config::agents::loader::{self, AgentLoader};
use haft_config::agents::{AgentDefinition, AgentOverride, AgentOverrides};
use haft_config::namespace_conflict::namespace_conflict;
use haft_config::resolved::ModelName;
use haft_core::conversation::{Message, MessagePart, PartBody, Role};
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::naming::MCP_ITEM_PREFIX;
use haft_runtime::RunQueueFull;
use haft_runtime::models::{ModelsError, has_tools_of_its_own};
use haft_runtime::runtime::StartError;
use haft_runtime::spec::{AgentChanges, ModelChoice, RunSpec, WorkspaceSpec};
use haft_runtime::wiring::check_requested_url;
use haft_store::api_keys::KeyScope;
use serde_json::Value;

use super::field::invalid;
use super::items::ATTACHMENTS_OF;
use super::request::{CreateRequest, ModelFields, RunNarrowing, TextFormat, Truncation};
use super::requested_servers::NamedServer;
use super::tools::ServerTool;
use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::models::ROUTE;
use crate::native::http_tools;
use crate::server::ServerState;
use crate::settings::AuthMode;

/// The built-in tool that needs no scope, because it neither reads files nor changes anything.
pub(crate) const HARMLESS: &str = "current_date";

/// Builds the run spec. `opening` is the whole conversation, including the message that the model answers.
pub(crate) fn build(
    target: &ModelTarget,
    caller: &Caller,
    request: &CreateRequest,
    workspace: WorkspaceSpec,
    opening: Vec<Message>,
) -> Result<RunSpec, ApiError> {
    let text = last_text(&opening);
    let mut spec = match target {
        ModelTarget::Agent(graph) => {
            let mut spec = RunSpec::new(graph, text, workspace);
            spec.changes = changes_to_agent(&graph.first().agent, request);
            narrow(&mut spec.changes, &graph.first().agent, &request.narrowing);
            spec
        }
        ModelTarget::Model(name) => {
            let mut spec = spec_of_model(request, text, workspace)?;
            spec.changes.models = name.iter().cloned().collect();
            spec
        }
        ModelTarget::Route => {
            let mut spec = spec_of_model(request, text, workspace)?;
            spec.model_choice = ModelChoice::Routed;
            spec
        }
    };
    spec.opening = opening;
    spec.functions.clone_from(&request.tools.functions);
    spec.approvals = request.tools.server.iter().filter_map(ServerTool::approval).cloned().collect();
    spec.tool_choice = request.tool_choice.choice.clone();
    spec.allowed_tools.clone_from(&request.tool_choice.allowed);
    spec.principal = caller.principal.clone();
    Ok(spec)
}

fn spec_of_model(
    request: &CreateRequest,
    text: String,
    workspace: WorkspaceSpec,
) -> Result<RunSpec, ApiError> {
    let graph = plain_agent()?;
    let mut spec = RunSpec::new(graph, text, workspace);
    spec.changes = changes_to_model(request);
    narrow(&mut spec.changes, &graph.first().agent, &request.narrowing);
    Ok(spec)
}

/// Lowers the limits of the agent, and never raises one.
fn narrow(changes: &mut AgentChanges, agent: &AgentDefinition, narrowing: &RunNarrowing) {
    let RunNarrowing { turns_max, usd_max, timeout, allowed_tools, http_tools: _ } = narrowing;
    changes.turns_max = turns_max.map(|turns| turns.min(agent.limits.turns_max));
    changes.timeout = timeout.map(|timeout| timeout.min(agent.times.run));
    if let Some(asked) = usd_max {
        let usd = agent.budget.usd.map_or(*asked, |own| own.min(*asked));
        changes.overrides.0.push(AgentOverride::new("budget.usd", usd.into()));
    }
    if let Some(asked) = allowed_tools {
        let own = agent.reach.allowed_tools.as_ref();
        let is_own = |name: &&String| own.is_none_or(|own| own.contains(name));
        changes.allowed_tools = Some(asked.iter().filter(is_own).cloned().collect());
    }
}

/// Checks the model and the tools of a request, before the server creates anything for the request.
pub(crate) fn check(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
) -> Result<ModelTarget, ApiError> {
    let target = target(state, request)?;
    check_tools(state, caller, request, &target)?;
    Ok(target)
}

/// Returns true if the run of a checked request may run commands or read files.
pub(crate) fn uses_files(state: &ServerState, request: &CreateRequest, target: &ModelTarget) -> bool {
    let names_tool = request.tools.server.iter().any(|tool| matches!(tool, ServerTool::Named { .. }));
    let reaches = match target {
        ModelTarget::Agent(graph) => reaches_builtin_tools(graph),
        ModelTarget::Model(_) | ModelTarget::Route => false,
    };
    names_tool || reaches || acts_by_itself(&state.runtime.config(), target)
}

/// Returns true if a call of a checked request may need approval. If not, the run needs no journal.
pub(crate) fn may_ask(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    target: &ModelTarget,
) -> bool {
    match state.settings.auth {
        AuthMode::Keys => {}
        AuthMode::NoAuth => return false,
    }
    let has_scope = caller.require(KeyScope::Approvals).is_ok();
    match target {
        ModelTarget::Agent(_) => has_scope,
        ModelTarget::Model(_) | ModelTarget::Route => {
            let tools = &request.tools.server;
            tools.iter().any(|tool| has_scope || tool.approval().is_some())
        }
    }
}

/// The agent or model that the field `model` names.
pub(crate) enum ModelTarget {
    Agent(Arc<AgentGraph>),
    /// `None` for the configured default.
    Model(Option<String>),
    Route,
}

pub(super) fn target(state: &ServerState, request: &CreateRequest) -> Result<ModelTarget, ApiError> {
    let Some(name) = request.model.as_deref() else {
        let has_default = state.runtime.config().models.default.is_some();
        let missing =
            || invalid("model", "`model` is missing, and the server has no default model; set `model`");
        return has_default.then_some(ModelTarget::Model(None)).ok_or_else(missing);
    };
    if let Some(graph) = state.agents.get().get(name) {
        return Ok(ModelTarget::Agent(Arc::clone(graph)));
    }
    if name == ROUTE {
        return Ok(ModelTarget::Route);
    }
    let unknown =
        |_| unknown_model(format!("there is no agent `{name}`; to use a model, write PROVIDER/MODEL"));
    ModelName::parse(name).map(|_| ModelTarget::Model(Some(name.to_owned()))).map_err(unknown)
}

fn unknown_model(message: String) -> ApiError {
    invalid("model", message).with_code("model_not_found")
}

/// Refuses tools that the request may not use, before a run starts.
fn check_tools(
    state: &ServerState,
    caller: &Caller,
    request: &CreateRequest,
    target: &ModelTarget,
) -> Result<(), ApiError> {
    let config = state.runtime.config();
    for tool in &request.tools.server {
        match tool {
            ServerTool::Named { name, .. } if request.narrowing.http_tools.contains(name) => {}
            ServerTool::Named { .. } => caller.require(KeyScope::BuiltinTools)?,
            ServerTool::Mcp { label, named: Some(named), .. } => check_named(&config, label, named)?,
            ServerTool::Mcp { path, label, .. } => check_configured(&config, path, label)?,
        }
    }
    if acts_by_itself(&config, target) {
        caller.require(KeyScope::BuiltinTools)?;
    }
    match target {
        ModelTarget::Agent(graph) if reaches_builtin_tools(graph) => caller.require(KeyScope::BuiltinTools),
        ModelTarget::Agent(_) => Ok(()),
        ModelTarget::Model(_) | ModelTarget::Route => check_choice(request),
    }?;
    match (target, request.tools.server.is_empty()) {
        (ModelTarget::Agent(_), false) => Err(invalid(
            "tools",
            "an agent has only the tools of its own file; a request can add functions, but no other tools",
        )),
        _ => Ok(()),
    }
}

/// Checks the key that continues a stored run. Another key of the same subject may have started the run, with tools that
/// this key may not use.
pub(crate) async fn check_resumed(
    state: &ServerState,
    caller: &Caller,
    spec: &RunSpec,
) -> Result<(), ApiError> {
    let unreadable = |error: AgentGraphError| {
        let message = format!("the server cannot read the agents of the stored run: {error}");
        ApiError::new(ApiErrorKind::ServerError, message)
    };
    let graph = state.runtime.agents_of(spec).map_err(unreadable)?;
    let reaches = match &spec.changes.tools {
        // The run has the tools of a request, which names tools and groups of the server without the prefix.
        Some(globs) => names_more_than_http_tools(state, caller, globs).await?,
        None => reaches_builtin_tools(&graph),
    };
    if reaches || is_agent_with_own_tools(&state.runtime.config(), &graph) {
        return caller.require(KeyScope::BuiltinTools);
    }
    Ok(())
}

/// Returns true if one of these globs of a request means neither a tool of an MCP server nor one of an HTTP API. A key
/// may start a run with such tools without the scope for built-in tools, so it must be able to continue the run.
async fn names_more_than_http_tools(
    state: &ServerState,
    caller: &Caller,
    globs: &[ToolGlob],
) -> Result<bool, ApiError> {
    let names = globs.iter().map(ToString::to_string).filter(|name| !name.starts_with(MCP_ITEM_PREFIX));
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Ok(false);
    }
    let http_tools = http_tools(state, caller).await?;
    Ok(!names.iter().all(|name| http_tools.contains(name)))
}

/// Checks the label of a configured server. If the labels of two servers give the same namespace, only one of the
/// servers has tools, and the other one is refused.
fn check_configured(config: &ResolvedConfig, path: &str, label: &str) -> Result<(), ApiError> {
    let problem = if config.mcp_servers.contains_key(label) {
        namespace_conflict(&config.mcp_servers, label)
    } else {
        Some(format!("the configuration of this server has no MCP server `{label}`"))
    };
    problem.map_or(Ok(()), |message| Err(invalid(format!("{path}.server_label"), message)))
}

/// Checks a server that the request names by URL. A host name is resolved and checked later, when the connection is
/// opened.
fn check_named(config: &ResolvedConfig, label: &str, named: &NamedServer) -> Result<(), ApiError> {
    if config.mcp_servers.keys().any(|name| Namespace::sanitize(name).as_str() == label) {
        let message =
            format!("the configuration of this server has an MCP server `{label}`; use another label");
        return Err(invalid(format!("{}.server_label", named.path), message));
    }
    let refused = |reason: String| {
        invalid(format!("{}.server_url", named.path), format!("the server refuses `server_url`: {reason}"))
    };
    check_requested_url(&named.server.url, config.serve.server_urls).map_err(refused)
}

/// Returns true if a model of the request may be a command with its own shell and file tools. haft's rules do not see
/// the calls of such a command, so it needs the same scope as haft's built-in tools.
fn acts_by_itself(config: &ResolvedConfig, target: &ModelTarget) -> bool {
    match target {
        ModelTarget::Agent(graph) => is_agent_with_own_tools(config, graph),
        ModelTarget::Model(Some(name)) => have_own_tools(config, std::slice::from_ref(name)),
        ModelTarget::Model(None) | ModelTarget::Route => have_own_tools(config, &[]),
    }
}

fn is_agent_with_own_tools(config: &ResolvedConfig, graph: &AgentGraph) -> bool {
    graph.nodes().any(|node| have_own_tools(config, &node.agent.models))
}

/// Checks the named models, or the configured models if the request names none.
fn have_own_tools(config: &ResolvedConfig, names: &[String]) -> bool {
    let models = &config.models;
    let mut usual = models.default.iter().chain(&models.fallback).chain(&models.fast).chain(&models.complex);
    if names.is_empty() {
        return usual.any(|name| has_tools_of_its_own(config, &name.provider));
    }
    let mut parsed = names.iter().filter_map(|name| ModelName::parse(name).ok());
    parsed.any(|name| has_tools_of_its_own(config, &name.provider))
}

/// Checks the tool names in `tool_choice`. A model without an agent has only the tools of the request, so an unknown
/// name is an error. The names of tools that the server runs are known only when the run starts.
fn check_choice(request: &CreateRequest) -> Result<(), ApiError> {
    if !request.tools.server.is_empty() {
        return Ok(());
    }
    let is_known = |name: &String| request.tools.functions.iter().any(|function| function.name == *name);
    match request.tool_choice.names().find(|name| !is_known(name)) {
        Some(name) => Err(invalid("tool_choice", format!("`tool_choice` names the unknown tool `{name}`"))),
        None => Ok(()),
    }
}

/// Returns true if a caller needs the scope for built-in tools to run the agent.
pub fn needs_builtin_tools(config: &ResolvedConfig, graph: &AgentGraph) -> bool {
    reaches_builtin_tools(graph) || is_agent_with_own_tools(config, graph)
}

/// Returns true if the agent, or an agent that it can call, may use a tool that reads files or runs commands.
fn reaches_builtin_tools(graph: &AgentGraph) -> bool {
    let definitions = haft_tools::builtin::definitions();
    let names: Vec<&str> =
        definitions.iter().map(|tool| tool.name.as_str()).filter(|name| *name != HARMLESS).collect();
    graph.nodes().any(|node| match &node.agent.reach.tools {
        None => true,
        Some(globs) => globs.iter().any(|glob| {
            // A group can contain any tool.
            glob.to_string().starts_with('@') || names.iter().any(|name| glob.matches(name))
        }),
    })
}

/// Returns the agent of a request that names a model. It is the same for all requests, so it is parsed only once.
fn plain_agent() -> Result<&'static AgentGraph, ApiError> {
    static AGENT: LazyLock<Result<AgentGraph, String>> = LazyLock::new(|| {
        let agent = loader::of_text("model", "", &AgentOverrides::default());
        let agent = agent.map_err(|error| error.to_string())?;
        AgentGraph::gather(agent, &AgentLoader::default()).map_err(|error| error.to_string())
    });
    AGENT.as_ref().map_err(|problem| ApiError::new(ApiErrorKind::ServerError, problem.clone()))
}

fn changes_to_model(request: &CreateRequest) -> AgentChanges {
    // The API promises that no messages are dropped unless the request allows it.
    let compaction = request.truncation.unwrap_or(Truncation::Disabled);
    AgentChanges {
        system: Some(request.instructions.clone().unwrap_or_default()),
        tools: Some(request.tools.server.iter().flat_map(ServerTool::globs).collect()),
        continuations_max: continuations_max(request),
        output_schema: schema(request),
        overrides: AgentOverrides(overrides(&request.parameters, &request.format, compaction)),
        ..AgentChanges::default()
    }
}

/// Returns the changes that a request makes to its agent. The instructions are added after the agent's text, which is
/// kept.
fn changes_to_agent(agent: &AgentDefinition, request: &CreateRequest) -> AgentChanges {
    let lower = |own: Option<u32>, asked: Option<u32>| match (own, asked) {
        (Some(own), Some(asked)) => Some(own.min(asked)),
        (own, asked) => own.or(asked),
    };
    let mut parameters = request.parameters.clone();
    parameters.max_output_tokens =
        parameters.max_output_tokens.and_then(|asked| lower(agent.asking.output_tokens_max, Some(asked)));
    parameters.max_tool_calls =
        parameters.max_tool_calls.and_then(|asked| lower(agent.limits.tool_calls_max, Some(asked)));
    let system = request.instructions.as_ref().map(|more| format!("{}\n\n{more}", agent.body.trim_end()));
    AgentChanges {
        system,
        continuations_max: continuations_max(request),
        output_schema: schema(request),
        overrides: AgentOverrides(overrides(
            &parameters,
            &request.format,
            request.truncation.unwrap_or(Truncation::Auto),
        )),
        ..AgentChanges::default()
    }
}

/// Returns the number of times that the model may continue a reply at the limit on output tokens; `None` for the
/// default. A client that sets `max_output_tokens` gets a response that ends at this limit, because a continuation would
/// double it.
fn continuations_max(request: &CreateRequest) -> Option<u32> {
    request.parameters.max_output_tokens.map(|_| 0)
}

fn schema(request: &CreateRequest) -> Option<Arc<Value>> {
    match &request.format {
        TextFormat::JsonSchema(schema) => Some(Arc::new(schema.clone())),
        TextFormat::Text | TextFormat::JsonObject => None,
    }
}

fn overrides(parameters: &ModelFields, format: &TextFormat, truncation: Truncation) -> Vec<AgentOverride> {
    let ModelFields {
        temperature,
        top_p,
        max_output_tokens,
        max_tool_calls,
        parallel_tool_calls,
        effort,
        summary,
        verbosity,
    } = parameters;
    let mut all = vec![
        ("temperature", temperature.map(Value::from)),
        ("topP", top_p.map(Value::from)),
        ("maxOutputTokens", max_output_tokens.map(Value::from)),
        ("maxToolCalls", max_tool_calls.map(Value::from)),
        // `true` must not undo `parallelToolCalls: false` of the agent.
        ("parallelToolCalls", parallel_tool_calls.filter(|parallel| !parallel).map(Value::from)),
        ("reasoning", effort.map(Value::from)),
        ("reasoningSummary", summary.map(Value::from)),
        ("verbosity", verbosity.map(Value::from)),
    ];
    if truncation == Truncation::Disabled {
        all.push(("compaction", Some("off".into())));
    }
    // The model gives the answer as text, so that it can be streamed. The run checks the text and asks the model again
    // if it is invalid.
    if *format != TextFormat::Text {
        all.push(("output.format", Some("json".into())));
        all.push(("finalReport", Some("none".into())));
    }
    all.into_iter().filter_map(|(key, value)| Some(AgentOverride::new(key, value?))).collect()
}

/// Returns the text of the user's last message, which is used to select skills and a model.
fn last_text(messages: &[Message]) -> String {
    // Skip messages with attachments of function outputs, because the server wrote their text.
    let is_attached = |message: &Message| {
        message
            .parts
            .first()
            .and_then(MessagePart::as_text)
            .is_some_and(|text| text.starts_with(ATTACHMENTS_OF))
    };
    let mut users = messages.iter().rev().filter(|message| message.role == Role::User);
    let last = users.find(|message| !is_attached(message));
    let parts = last.into_iter().flat_map(|message| &message.parts);
    let texts: Vec<&str> = parts
        .filter_map(|part| match &part.body {
            PartBody::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

/// The `Retry-After` time if the queue is full, in seconds. It is a guess, because the end of a run cannot be
/// predicted.
const QUEUE_RETRY_S: u64 = 5;

/// Returns the error for a run that the queue refuses: 429 if the tenant has used its whole share of the queue,
/// otherwise 503, because the server lacks capacity.
fn queue_full(full: RunQueueFull) -> ApiError {
    let kind = match full {
        RunQueueFull::ForTenant => ApiErrorKind::TooManyRequests,
        RunQueueFull::ForAll => ApiErrorKind::Unavailable,
    };
    ApiError::new(kind, full.to_string()).with_code("queue_full").after(QUEUE_RETRY_S)
}

/// Returns the API error for a new request whose run did not start.
pub(crate) fn not_started_for(error: &StartError, request: &CreateRequest) -> ApiError {
    match error {
        // The request itself sets the cost limit that needs a price, so this is an error of the request.
        StartError::Models(ModelsError::NoPrice { .. }) if request.narrowing.usd_max.is_some() => {
            invalid("max_cost_usd", error.to_string())
        }
        StartError::UnknownTools { names } => unknown_tool(names, request),
        error => not_started(error),
    }
}

/// Returns the error for a tool of the request that the server does not have.
fn unknown_tool(names: &[String], request: &CreateRequest) -> ApiError {
    // Compare in lower case, because patterns are in lower case.
    let of_tool = |tool: &ServerTool| match tool {
        ServerTool::Named { path, name } if names.contains(&name.to_ascii_lowercase()) => {
            Some((path.clone(), name.clone()))
        }
        ServerTool::Named { .. } | ServerTool::Mcp { .. } => None,
    };
    match request.tools.server.iter().find_map(of_tool) {
        Some((path, name)) => {
            invalid(format!("{path}.type"), format!("this server has no tool or group `{name}`"))
        }
        None => invalid("tools", format!("this server has no tool or group `{}`", names.join("`, `"))),
    }
}

/// Returns the API error for a run that did not start.
pub(crate) fn not_started(error: &StartError) -> ApiError {
    let message = error.to_string();
    match error {
        StartError::Models(ModelsError::Unknown { .. } | ModelsError::Name(_) | ModelsError::NoModel) => {
            unknown_model(message)
        }
        StartError::Input { .. } | StartError::Run(_) => invalid("input", message),
        StartError::ToolChoice { problem, .. } => {
            invalid("tool_choice", format!("the tools of the request cannot meet `tool_choice`: {problem}"))
        }
        StartError::UnknownTools { .. } => invalid("tools", message),
        StartError::QueueFull(full) => queue_full(*full),
        StartError::AlreadyStarted { .. } => ApiError::new(ApiErrorKind::Conflict, message),
        StartError::Agent(_)
        | StartError::Config(_)
        | StartError::Policy(_)
        | StartError::Models(_)
        | StartError::Outputs(_)
        | StartError::Store(_) => ApiError::new(ApiErrorKind::ServerError, message),
    }
}
