//! The tools that a run shows its model. The list is fixed when the run starts: providers cache a prompt by its beginning,
//! and tools come first in it, so a changed list would cost the whole cache.

use crate::internal_tools::tool_search;
use crate::model_request::ModelTool;

/// The tools that a run shows its model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolExposure {
    /// The exposed names of the shown tools, in the order of the request, without the run's own tools.
    pub shown: Vec<String>,
    /// The way to all other tools; `None` if there are none.
    pub search: Option<ToolSearchPlan>,
}

/// The search that reaches the tools which a run does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSearchPlan {
    /// The sources of the tools, as the model reads them.
    pub roster: String,
    /// The fate of the tool list after a search.
    pub growth: ToolListGrowth,
}

/// Decides if found tools join the tool list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolListGrowth {
    /// The list never changes. Found tools are called with `tool_call`, or in the provider's own way.
    #[default]
    Constant,
    /// Found tools are appended to the list, for models that call only what the list shows. Each search that finds
    /// something new costs the prompt cache.
    Append,
}

crate::name_table!(ToolListGrowth { Append: "append", Constant: "constant" });

impl ToolSearchPlan {
    /// Returns the tools of the search itself.
    pub(super) fn tools(&self) -> [ModelTool; 2] {
        [tool_search::search_tool(&self.roster), tool_search::call_tool()]
    }
}
