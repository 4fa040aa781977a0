//! Offers a tool search instead of all tool definitions: the client sees the tools `tool_search`, `tool_describe` and
//! `tool_call`, and uses all other tools through them.
//!
//! The gateway replaces a `tool_call` with the call inside it before the orchestrator sees it, so that rules, approvals
//! and usage records apply to the inner tool. The orchestrator answers `tool_search` itself.

use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::internal_tools::tool_search::{self, TOOL_CALL, TOOL_SEARCH};
use haft_core::model_request::ModelTool;
use haft_core::tool::{Effects, ToolCall};
use haft_core::tool_lock::{LOCKED_MEMBERS, ToolLock};
use haft_engine::{CatalogWarning, OfferedTool, Orchestrator, SearchScope};
use haft_tools::output::OUTPUT_TOOL;
use serde::Deserialize;
use serde_json::{Value, json};

use super::era::RequestEra;
use super::listing::{ListedItem, ListedItems, corrected, tool_json};
use super::object::RawObject;

/// The tool that returns complete tool definitions.
const TOOL_DESCRIBE: &str = "tool_describe";

/// The maximum number of definitions that one request returns.
const DESCRIBED_MAX: usize = 20;

/// The maximum size of the definitions that one request returns, in bytes.
const DESCRIBED_BYTES_MAX: usize = 256 << 10;

/// The tools in the list of a client.
#[derive(Debug, Clone)]
pub enum ListedTools {
    /// All tools that the client may call.
    All,
    /// The search tools, and the tools of `always_show`.
    Search(SearchSettings),
}

/// The settings of a search.
#[derive(Debug, Clone, Default)]
pub struct SearchSettings {
    /// Tools that the client's tool list contains in addition to the search tools.
    pub always_show: Vec<ToolGlob>,
    /// The tool lock, which records approved tool definitions. The search omits descriptions that differ from it.
    pub lock: Option<Arc<ToolLock>>,
}

/// The list of a client, and the scope of its searches.
#[derive(Debug, Clone)]
pub(super) struct ToolListing {
    pub(super) items: Arc<ListedItems>,
    /// The scope of searches; `None` if the list contains all tools.
    pub(super) search: Option<Arc<SearchScope>>,
}

impl ListedTools {
    /// Builds the list from the tools that the client may call.
    pub(super) fn listing(&self, orchestrator: &Orchestrator, tools: &[OfferedTool]) -> ToolListing {
        match self {
            Self::All => ToolListing { items: Arc::new(ListedItems::of_tools(tools)), search: None },
            Self::Search(settings) => settings.listing(orchestrator, tools),
        }
    }

    /// Returns the call inside a `tool_call`, or the call itself if it is another tool. The error is written for the model.
    pub(super) fn inner_call(&self, call: ToolCall) -> Result<ToolCall, String> {
        match self {
            Self::Search(_) if call.name == TOOL_CALL => tool_search::unwrap(&call),
            Self::Search(_) | Self::All => Ok(call),
        }
    }

    /// Returns true for a call of `tool_describe`.
    pub(super) fn is_description(&self, call: &ToolCall) -> bool {
        matches!(self, Self::Search(_)) && call.name == TOOL_DESCRIBE
    }
}

impl SearchSettings {
    fn listing(&self, orchestrator: &Orchestrator, tools: &[OfferedTool]) -> ToolListing {
        let is_shown = |tool: &&OfferedTool| {
            let name = tool.entry.exposed().as_str();
            name == OUTPUT_TOOL || self.always_show.iter().any(|glob| glob.matches(name))
        };
        let (shown, hidden): (Vec<&OfferedTool>, Vec<&OfferedTool>) = tools.iter().partition(is_shown);
        let roster = orchestrator.roster(hidden.into_iter(), self.lock.as_deref());
        // The search tools come first, because the list keeps the first of several tools with the same name.
        let mut items = vec![
            meta_item(&tool_search::search_tool(&roster), Effects::ReadOnly, tools),
            meta_item(&describe_tool(), Effects::ReadOnly, tools),
            meta_item(&tool_search::call_tool(), Effects::Unknown, tools),
        ];
        items.extend(shown.iter().map(|tool| ListedItem::of_tool(tool)));
        let names = shown.iter().map(|tool| tool.entry.exposed().to_string()).collect();
        let search = SearchScope { shown: names, ..SearchScope::default() };
        ToolListing { items: Arc::new(ListedItems::new(items)), search: Some(Arc::new(search)) }
    }
}

fn meta_item(tool: &ModelTool, effects: Effects, tools: &[OfferedTool]) -> ListedItem {
    let mut json =
        json!({ "name": tool.name, "description": tool.description, "inputSchema": *tool.input_schema });
    if let Some(annotations) = corrected(None, effects) {
        json["annotations"] = annotations;
    }
    let hidden = tools.iter().find(|hidden| hidden.entry.exposed().as_str() == tool.name);
    ListedItem::new(tool.name.clone(), None, json.to_string()).with_warning(hidden.map(unreachable_tool))
}

/// Returns the warning about a tool of a server that has the name of a search tool, as a naming without prefixes allows.
fn unreachable_tool(tool: &OfferedTool) -> CatalogWarning {
    let message = format!(
        "clients cannot call the tool `{}`, because the search of the gateway has a tool with this name; set `naming` \
         to a scheme that adds the name of the server",
        tool.entry.exposed()
    );
    CatalogWarning { provider: tool.entry.identity().namespace.to_string(), message }
}

fn describe_tool() -> ModelTool {
    let names = json!({
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": DESCRIBED_MAX,
        "description": "The exact names of the tools.",
    });
    let schema = json!({"type": "object", "properties": {"names": names}, "required": ["names"]});
    let description =
        format!("Returns the whole definitions of tools that `{TOOL_SEARCH}` found, with their schemas.");
    ModelTool { name: TOOL_DESCRIBE.into(), description, input_schema: Arc::new(schema), strict: false }
}

/// Returns the definitions that a call asks for, as a JSON array. The error is written for the model.
pub(super) fn described(call: &ToolCall, tools: &[OfferedTool], era: RequestEra) -> Result<String, String> {
    let names = described_names(call)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for name in &names {
        let tool = tools.iter().find(|tool| tool.entry.exposed().as_str() == name);
        let tool = tool.ok_or_else(|| {
            format!("there is no tool {}; find the names with `{TOOL_SEARCH}`", Value::from(name.as_str()))
        })?;
        let json = model_definition(tool_json(tool).0.in_era(era));
        bytes += json.len();
        if json.len() > DESCRIBED_BYTES_MAX {
            let (bytes, max) = (json.len(), DESCRIBED_BYTES_MAX);
            return Err(format!("the definition of `{name}` has {bytes} bytes; the limit is {max} bytes"));
        }
        if bytes > DESCRIBED_BYTES_MAX {
            return Err(format!(
                "the definitions have more than {DESCRIBED_BYTES_MAX} bytes; request fewer tools"
            ));
        }
        found.push(json);
    }
    Ok(format!("[{}]", found.join(",")))
}

/// Reads the names of the tools that a call asks for.
fn described_names(call: &ToolCall) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct DescribeArguments {
        names: Vec<String>,
    }
    let read = serde_json::from_str::<DescribeArguments>(call.arguments.as_text());
    let DescribeArguments { names } =
        read.map_err(|_| "`names` must be an array of tool names".to_owned())?;
    if names.len() > DESCRIBED_MAX {
        return Err(format!(
            "`names` has {} names; request at most {DESCRIBED_MAX} tools at once",
            names.len()
        ));
    }
    Ok(names)
}

/// Returns the members of a definition that the tool lock covers. A model reads the result of `tool_describe`, so a
/// member that is not locked could give the model instructions that no person has accepted.
fn model_definition(json: &str) -> String {
    let Some(mut definition) = RawObject::of(json) else { return "{}".into() };
    definition.keep_only(&LOCKED_MEMBERS);
    definition.to_string()
}
