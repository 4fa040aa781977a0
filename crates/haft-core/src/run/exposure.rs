//! The tools that a run shows to its model. The list is fixed when the run starts: providers cache a prompt from its
//! beginning, and the tools come first, so a changed list would invalidate the whole cache.

use crate::internal_tools::tool_search;
use crate::model_request::ModelTool;

/// The tools that a run shows to its model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolExposure {
    /// The exposed names of the shown tools, in the order of the request, without the run's own tools.
    pub shown: Vec<String>,
    /// The search that gives access to all other tools; `None` if there are no other tools.
    pub search: Option<ToolSearchPlan>,
}

/// The search for tools that a run does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSearchPlan {
    /// The sources of the hidden tools, listed as text for the model.
    pub roster: String,
    /// Selects whether found tools are added to the tool list.
    pub growth: ToolListGrowth,
}

/// Selects whether found tools are added to the tool list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolListGrowth {
    /// The list never changes. The model calls found tools with `tool_call`, or in the provider's own way.
    #[default]
    Constant,
    /// Found tools are appended to the list, for models that call only listed tools. Each search that finds a new tool
    /// invalidates the prompt cache.
    Append,
}

crate::name_table!(ToolListGrowth { Append: "append", Constant: "constant" });

impl ToolSearchPlan {
    /// Returns the two tools of the search: `tool_search` and `tool_call`.
    pub(super) fn tools(&self) -> [ModelTool; 2] {
        [tool_search::search_tool(&self.roster), tool_search::call_tool()]
    }
}
