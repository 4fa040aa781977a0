//! The tools of a request: functions that the client runs, and tools that the server runs.

use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::naming::MCP_ITEM_PREFIX;
use haft_core::run::caller_approvals::{CallerApproval, ToolSelector};
use haft_runtime::models::RequestFeature;
use haft_runtime::spec::FunctionTool;
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid, required};
use super::model_settings::ModelSetting;
use super::requested_servers::{self, NamedServer};
use super::tool_origin::{identity_name, identity_pattern, mcp_selection};
use crate::error::ApiError;

/// The maximum number of tools in a request.
const TOOLS_MAX: usize = 128;

/// The prefix of a tool type that names a tool or a tool group of the server.
pub(crate) const OWN_PREFIX: &str = "haft:";

/// The types of OpenAI's own tools. They are skipped with a warning, because clients that offer them work without them.
const SKIPPED: [&str; 16] = [
    "file_search",
    "computer",
    "computer_use_preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "code_interpreter",
    "programmatic_tool_calling",
    "image_generation",
    "local_shell",
    "shell",
    "custom",
    "namespace",
    "tool_search",
    "apply_patch",
];

/// Returns true for a type of OpenAI's own tools that this server does not run.
pub(crate) fn is_hosted(kind: &str) -> bool {
    SKIPPED.contains(&kind)
}

/// The tools of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTools {
    /// Functions that the client runs.
    pub(crate) functions: Vec<FunctionTool>,
    /// Tools that the server runs.
    pub(crate) server: Vec<ServerTool>,
}

/// A request for tools of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerTool {
    /// A tool or group, by its name in the configuration.
    Named {
        /// The path of the tool in the request, for errors.
        path: String,
        name: String,
    },
    /// Tools of an MCP server; all of them if `tools` is `None`.
    Mcp {
        /// The path of the tool in the request, for errors.
        path: String,
        label: String,
        tools: Option<Vec<String>>,
        /// Selects the tools that change nothing (`true`) or all others (`false`); `None` selects both.
        read_only: Option<bool>,
        approval: Option<CallerApproval>,
        /// The server that the request names by URL; `None` for a configured server.
        named: Option<Box<NamedServer>>,
    },
}

impl ServerTool {
    /// Returns patterns for the tools: MCP tools by their identity, other tools and groups by name.
    pub(crate) fn globs(&self) -> Vec<ToolGlob> {
        let names = match self {
            Self::Named { name, .. } => vec![name.clone()],
            Self::Mcp { label, tools: None, read_only, .. } => {
                vec![mcp_selection(&identity_pattern(label), *read_only)]
            }
            Self::Mcp { label, tools: Some(tools), read_only, .. } => {
                tools.iter().map(|tool| mcp_selection(&identity_name(label, tool), *read_only)).collect()
            }
        };
        names.iter().filter_map(|name| ToolGlob::new(name).ok()).collect()
    }

    /// Returns the client's settings about which calls need approval.
    pub(crate) fn approval(&self) -> Option<&CallerApproval> {
        match self {
            Self::Named { .. } => None,
            Self::Mcp { approval, .. } => approval.as_ref(),
        }
    }
}

pub(crate) fn parse(
    field: &RequestField,
    warnings: &mut Vec<String>,
    settings: &mut Vec<ModelSetting>,
) -> Result<RequestTools, ApiError> {
    let mut tools = RequestTools::default();
    let Some(written) = field.array()? else { return Ok(tools) };
    if written.len() > TOOLS_MAX {
        return Err(invalid(
            "tools",
            format!("`tools` has {} tools; the limit is {TOOLS_MAX}", written.len()),
        ));
    }
    for (at, value) in written.iter().enumerate() {
        let path = format!("tools[{at}]");
        let Value::Object(tool) = value else {
            return Err(invalid(path.clone(), format!("`{path}` must be an object")));
        };
        let kind = required(&path, tool, "type")?;
        match kind.as_str() {
            "function" => tools.functions.push(function(&path, tool, &tools.functions, settings)?),
            "mcp" => {
                let tool = mcp(&path, tool)?;
                check_new_label(&path, &tool, &tools.server)?;
                tools.server.push(tool);
            }
            kind if kind.starts_with(OWN_PREFIX) => {
                let name = kind[OWN_PREFIX.len()..].to_owned();
                check_own_name(&path, &name)?;
                tools.server.push(ServerTool::Named { path, name });
            }
            kind if is_hosted(kind) => {
                warnings.push(format!("the server skipped `{path}`: it has no tool of type `{kind}`"));
            }
            kind => {
                let message = format!("the type `{kind}` of the tool is unknown");
                return Err(invalid(format!("{path}.type"), message));
            }
        }
    }
    Ok(tools)
}

/// Completes the functions that a response repeats: adds the fields that the specification requires, and flattens the
/// nested form of the Chat Completions API.
pub(crate) fn complete(tools: &mut Value) {
    for tool in tools.as_array_mut().into_iter().flatten().filter(|tool| tool["type"] == "function") {
        let Value::Object(tool) = tool else { continue };
        if let Some(Value::Object(nested)) = tool.remove("function") {
            tool.extend(nested);
        }
        for name in ["description", "parameters", "strict"] {
            tool.entry(name).or_insert(Value::Null);
        }
    }
}

/// Refuses a name that is not a valid tool pattern. Refuses patterns for MCP tools too: they need an entry of type
/// `mcp`, which has a label and approval settings.
fn check_own_name(path: &str, name: &str) -> Result<(), ApiError> {
    let wrong = |message: String| invalid(format!("{path}.type"), message);
    if name.starts_with(MCP_ITEM_PREFIX) {
        return Err(wrong(format!("use a tool of type `mcp` instead of `{OWN_PREFIX}{name}`")));
    }
    ToolGlob::new(name).map(|_| ()).map_err(|error| wrong(error.to_string()))
}

fn function(
    path: &str,
    tool: &Map<String, Value>,
    before: &[FunctionTool],
    settings: &mut Vec<ModelSetting>,
) -> Result<FunctionTool, ApiError> {
    // The Chat Completions API nests the function in an object; many clients send this form.
    let nested = tool.get("function").and_then(Value::as_object);
    let (path, tool) = nested.map_or((path.to_owned(), tool), |inner| (format!("{path}.function"), inner));
    let name = required(&path, tool, "name")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let param = format!("{path}.name");
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err(invalid(param, "a function name must have 1 to 64 characters of a-z, A-Z, 0-9, _ and -"));
    }
    if before.iter().any(|other| other.name == name) {
        return Err(invalid(param, format!("`tools` has two functions with the name `{name}`")));
    }
    let strict = RequestField::new(format!("{path}.strict"), tool.get("strict").cloned());
    let strict = strict.boolean()?.unwrap_or(false);
    if strict {
        // haft checks the arguments of its own tools, but the client checks the arguments of its functions.
        let warning =
            format!("`{path}.strict` has no effect; the model may call `{name}` with other arguments");
        settings.push(ModelSetting { feature: RequestFeature::StrictTools, warning });
    }
    let description = RequestField::new(format!("{path}.description"), tool.get("description").cloned());
    let parameters = RequestField::new(format!("{path}.parameters"), tool.get("parameters").cloned());
    let schema = parameters
        .object()?
        .cloned()
        .map_or_else(|| json!({"type": "object", "properties": {}}), Value::Object);
    Ok(FunctionTool {
        name,
        description: description.text()?.unwrap_or_default(),
        parameters: Arc::new(schema),
        strict,
    })
}

fn mcp(path: &str, tool: &Map<String, Value>) -> Result<ServerTool, ApiError> {
    let label = required(path, tool, "server_label")?;
    let server = requested_servers::parse(path, tool, &label)?.map(Box::new);
    for name in ["connector_id", "tunnel_id"] {
        if tool.get(name).is_some_and(|value| !value.is_null()) {
            let message = "connectors and tunnels are not supported; set `server_url` or the label of a configured server";
            return Err(invalid(format!("{path}.{name}"), message));
        }
    }
    let (tools, read_only) = allowed_tools(path, tool)?;
    let approval = require_approval(path, tool, &label, server.is_some())?;
    Ok(ServerTool::Mcp { path: path.to_owned(), label, tools, read_only, approval, named: server })
}

/// Reads `allowed_tools`: the names of tools, and whether the tools may change something.
fn allowed_tools(
    path: &str,
    tool: &Map<String, Value>,
) -> Result<(Option<Vec<String>>, Option<bool>), ApiError> {
    let path = format!("{path}.allowed_tools");
    let allowed = RequestField::new(path.clone(), tool.get("allowed_tools").cloned());
    match allowed.value() {
        None => Ok((None, None)),
        Some(Value::Array(_)) => Ok((names(&allowed)?, None)),
        Some(Value::Object(filter)) => {
            check_selector(&path, filter)?;
            let field = |name: &str| RequestField::new(format!("{path}.{name}"), filter.get(name).cloned());
            Ok((names(&field("tool_names"))?, field("read_only").boolean()?))
        }
        Some(_) => Err(allowed.wrong("a list of names or an object with `tool_names` or `read_only`")),
    }
}

/// Refuses unknown fields of a selection of tools, and a selection without fields. A misspelt field would otherwise
/// select every tool.
fn check_selector(path: &str, selector: &Map<String, Value>) -> Result<(), ApiError> {
    const FIELDS: [&str; 2] = ["tool_names", "read_only"];
    if let Some(other) = selector.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        let message = "a selection of tools can have only the fields `tool_names` and `read_only`";
        return Err(invalid(format!("{path}.{other}"), message));
    }
    if selector.values().all(Value::is_null) {
        return Err(invalid(path, format!("`{path}` must have the field `tool_names` or `read_only`")));
    }
    Ok(())
}

fn names(field: &RequestField) -> Result<Option<Vec<String>>, ApiError> {
    let text = |name: &Value| name.as_str().map(str::to_owned).ok_or_else(|| field.wrong("a list of names"));
    field.array()?.map(|names| names.iter().map(text).collect()).transpose()
}

/// Refuses two servers with the same label, because the names of their tools would be ambiguous.
fn check_new_label(path: &str, tool: &ServerTool, before: &[ServerTool]) -> Result<(), ApiError> {
    let named = |tool: &ServerTool| match tool {
        ServerTool::Mcp { label, named, .. } => Some((label.clone(), named.is_some())),
        ServerTool::Named { .. } => None,
    };
    let Some((label, is_named)) = named(tool) else { return Ok(()) };
    let is_taken = before
        .iter()
        .filter_map(named)
        .any(|(other, other_named)| other == label && (is_named || other_named));
    if is_taken {
        return Err(invalid(
            format!("{path}.server_label"),
            format!("`tools` has two MCP servers with the label `{label}`"),
        ));
    }
    Ok(())
}

/// Reads `require_approval`. With `never`, only the operator's rules decide. If it is missing, the operator's rules
/// decide for a configured server, but every call to a server that the request names needs approval, because the
/// operator has not reviewed this server. The same applies to calls that no selection of a filter covers.
fn require_approval(
    path: &str,
    tool: &Map<String, Value>,
    label: &str,
    is_named: bool,
) -> Result<Option<CallerApproval>, ApiError> {
    let path = format!("{path}.require_approval");
    let field = RequestField::new(path.clone(), tool.get("require_approval").cloned());
    let (always, never) = match field.value() {
        None if !is_named => return Ok(None),
        None => (Some(ToolSelector::default()), None),
        Some(Value::String(word)) if word == "never" => return Ok(None),
        Some(Value::String(word)) if word == "always" => (Some(ToolSelector::default()), None),
        Some(Value::Object(filter)) => {
            if let Some(other) = filter.keys().find(|key| !matches!(key.as_str(), "always" | "never")) {
                return Err(invalid(
                    format!("{path}.{other}"),
                    "an approval filter can have only the fields `always` and `never`",
                ));
            }
            let always = selector(&path, filter, "always", label)?;
            match selector(&path, filter, "never", label)? {
                // A filter without `never` exempts no call: each call to a server that the request names needs approval
                // by default.
                None if is_named => (Some(ToolSelector::default()), None),
                never => (always, never),
            }
        }
        Some(_) => return Err(field.wrong("always, never or a filter")),
    };
    let tools = ToolGlob::new(&identity_pattern(label)).map_err(|error| invalid(path, error.to_string()))?;
    Ok(Some(CallerApproval { tools, always, never }))
}

fn selector(
    path: &str,
    filter: &Map<String, Value>,
    name: &str,
    label: &str,
) -> Result<Option<ToolSelector>, ApiError> {
    let path = format!("{path}.{name}");
    let field = RequestField::new(path.clone(), filter.get(name).cloned());
    let Some(object) = field.object()? else { return Ok(None) };
    check_selector(&path, object)?;
    let read_only = RequestField::new(format!("{path}.read_only"), object.get("read_only").cloned());
    let names = RequestField::new(format!("{path}.tool_names"), object.get("tool_names").cloned());
    let glob = |value: &Value| {
        let name = value.as_str().ok_or_else(|| names.wrong("a list of names"))?;
        ToolGlob::new(&identity_name(label, name)).map_err(|_| names.wrong("a list of names"))
    };
    let globs = names.array()?.map(|all| all.iter().map(glob).collect::<Result<_, _>>()).transpose()?;
    Ok(Some(ToolSelector { names: globs, read_only: read_only.boolean()? }))
}
