//! What orchestrators are made from. Those made from the same parts share servers, queues, cache, store and what people said.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::ToolName;
use haft_core::provider::ToolProvider;
use haft_core::store::OutputStore;
use haft_engine::{
    Authority, Cache, CacheConfig, Capture, Catalog, Orchestrator, OrchestratorConfig, Policies,
    UncheckedSchemas,
};
use haft_sandbox::Policy;
use haft_tools::builtin::BuiltinTools;
use haft_tools::output::OutputTools;

use super::{Settings, catalog_config, command_lines, queues, rules};
use crate::config::Resolved;
use crate::governing::Configured;
use crate::tokens::Vocabulary;

/// The parts of orchestrators. None of its servers runs before an orchestrator is warmed up.
pub struct Parts {
    config: Arc<Resolved>,
    policy: Policy,
    timeout: Option<Duration>,
    store: Option<Arc<dyn OutputStore>>,
    providers: Vec<Arc<dyn ToolProvider>>,
    engine: OrchestratorConfig,
}

impl Parts {
    pub fn new(settings: Settings, others: Vec<Arc<dyn ToolProvider>>) -> Self {
        let config = Arc::new(settings.config);
        let store = settings.store.filter(|_| config.tool_output.enabled);
        let workspace = settings.policy.workspace().to_string_lossy().into_owned();
        let builtin = BuiltinTools::new(settings.policy.clone(), store.clone());
        let providers = std::iter::once(Arc::new(builtin) as _).chain(others).collect();
        let engine = OrchestratorConfig {
            unchecked: if config.validation.strict {
                UncheckedSchemas::Denied
            } else {
                UncheckedSchemas::Called
            },
            draft: config.validation.draft,
            scope: workspace.into(),
            queues: queues(&config),
            cache: Cache::new(CacheConfig {
                entries_max: usize::try_from(config.cache.entries_max).unwrap_or(usize::MAX),
                bytes_max: usize::try_from(config.cache.bytes_max).unwrap_or(usize::MAX),
            }),
            authority: Authority {
                rules: rules(&config),
                approver: settings.approver,
                command_lines: command_lines(),
                remembered: settings.remembered,
            },
            tokens: Arc::new(Vocabulary),
            events: settings.events,
            capture: if config.telemetry.capture_content { Capture::Content } else { Capture::Nothing },
            ..OrchestratorConfig::default()
        };
        Self { config, policy: settings.policy, timeout: settings.timeout, store, providers, engine }
    }

    pub fn config(&self) -> &Arc<Resolved> {
        &self.config
    }

    /// What confines everything that is started.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn workspace(&self) -> &Path {
        self.policy.workspace()
    }

    /// An orchestrator over all tools and `more` of them. What the configuration says about tools may be changed for it;
    /// what is shared stays as it is. `answers_kept` says how long those of agents among them are.
    pub fn orchestrator(
        &self,
        config: &Arc<Resolved>,
        more: Vec<Arc<dyn ToolProvider>>,
        answers_kept: HashMap<ToolName, Duration>,
    ) -> Orchestrator {
        let store = self.store.clone().filter(|_| config.tool_output.enabled);
        let stored = store.clone().map(|store| {
            let tools = OutputTools::new(store, self.policy.clone(), config.tool_output.reading);
            Arc::new(tools) as Arc<dyn ToolProvider>
        });
        let providers = stored.into_iter().chain(self.providers.iter().cloned()).chain(more).collect();
        let governor = Configured { config: Arc::clone(config), timeout: self.timeout, answers_kept };
        let engine = OrchestratorConfig {
            policies: Policies { governor: Some(Arc::new(governor)), ..Policies::default() },
            tool_timeout_max: self.timeout.unwrap_or(config.tool_timeout),
            store,
            ..self.engine.clone()
        };
        // Every queue that is named was found when the configuration was read.
        Orchestrator::new(Catalog::with(providers, catalog_config(config)), engine)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("policy", &self.policy).finish_non_exhaustive()
    }
}
