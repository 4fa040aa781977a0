//! The version of the toolset that the model sees, to detect changes between turns.

use std::sync::Arc;

use haft_core::model_request::ModelTool;
use haft_core::run::context::RunContext;

use crate::catalog::Snapshot;
use crate::orchestrator::{OfferedTool, Orchestrator};
use crate::selection::ToolFilter;

/// The inputs that determine which tools a model sees, at one point in time. The cost of creating and comparing it does
/// not depend on the number of tools.
#[derive(Debug)]
pub struct ToolsetVersion {
    snapshot: Arc<Snapshot>,
    /// One flag per provider: true if the run shows its tools.
    shown: Vec<bool>,
}

impl PartialEq for ToolsetVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot) && self.shown == other.shown
    }
}

impl ToolsetVersion {
    /// Returns true if a tool had this exposed name at that time.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.snapshot.find(name).is_ok_and(|tool| tool.exposed().as_str() == name)
    }
}

impl Orchestrator {
    /// Returns the version of the tools that this run sees.
    pub fn toolset_version(&self, run: &RunContext) -> ToolsetVersion {
        let catalog = self.catalog();
        let shown = catalog.providers().iter().map(|provider| provider.is_shown(run)).collect();
        ToolsetVersion { snapshot: catalog.snapshot(), shown }
    }

    /// Returns the tools of a request in the form that the model receives.
    pub fn model_tools(&self, selection: &ToolFilter, run: &RunContext) -> Arc<[ModelTool]> {
        self.tools(selection, run).iter().map(model_tool).collect()
    }
}

fn model_tool(shown: &OfferedTool) -> ModelTool {
    shown.entry.model_tool()
}
