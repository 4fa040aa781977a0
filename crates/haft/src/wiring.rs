//! Puts providers, engine and policy together. The only place that knows every crate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use haft_core::event::EventSink;
use haft_core::name::ToolName;
use haft_core::naming::Scheme;
use haft_core::tool::{OutputPolicy, ToolPolicy};
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig, Policies};
use haft_sandbox::Policy;
use haft_tools::builtin::{BASH_TIMEOUT_SECS, BuiltinTools};

/// What an orchestrator is made from.
pub struct Settings {
    pub policy: Policy,
    pub timeout: Duration,
    pub events: Arc<dyn EventSink>,
}

/// How long a call may take unless the operator says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(BASH_TIMEOUT_SECS);

/// Built-in tools that cap their own output, each at its own limit.
const CAPPED_BY_THEMSELVES: [&str; 3] = ["bash", "read", "introspect"];

/// An orchestrator over the built-in tools.
pub fn orchestrator(settings: Settings) -> Orchestrator {
    let builtin = Arc::new(BuiltinTools::new(settings.policy));
    let catalog = Catalog::new(vec![builtin], Scheme::default());
    let default = ToolPolicy { timeout: settings.timeout, ..Policies::default().default };
    let capped = ToolPolicy { output: OutputPolicy::Pass, ..default.clone() };
    let by_tool: HashMap<ToolName, ToolPolicy> = CAPPED_BY_THEMSELVES
        .iter()
        .filter_map(|name| Some((ToolName::new(name).ok()?, capped.clone())))
        .collect();
    let policies = Policies { default, by_tool };
    Orchestrator::new(
        catalog,
        OrchestratorConfig { policies, events: settings.events, ..OrchestratorConfig::default() },
    )
}

/// Ends what providers keep running between calls.
pub async fn shut_down(orchestrator: &Orchestrator) {
    for provider in orchestrator.catalog().providers() {
        provider.shutdown().await;
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("policy", &self.policy)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
