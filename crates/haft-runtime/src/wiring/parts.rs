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
use haft_tools::output::{OutputReader, OutputTools};

use super::{Settings, catalog_config, command_lines, queues, rules};
use crate::governing::Configured;
#[cfg(feature = "tiktoken")]
use crate::tokens::Vocabulary;
use haft_config::Resolved;
#[cfg(not(feature = "tiktoken"))]
use haft_core::tokens::ByLength as Vocabulary;

/// The parts of orchestrators. None of its servers runs before an orchestrator is warmed up.
pub struct Parts {
    config: Arc<Resolved>,
    policy: Policy,
    timeout: Option<Duration>,
    store: Option<Arc<dyn OutputStore>>,
    providers: Vec<Arc<dyn ToolProvider>>,
    engine: OrchestratorConfig,
}

/// What one orchestrator has beside what all of them share.
#[derive(Default)]
pub struct Own {
    /// More tools.
    pub providers: Vec<Arc<dyn ToolProvider>>,
    /// How long the answers of agents among them are kept.
    pub answers_kept: HashMap<ToolName, Duration>,
    /// Who answers questions in free words about stored outputs.
    pub reader: Option<Arc<dyn OutputReader>>,
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

    /// An orchestrator over all tools. What the configuration says about tools may be changed for it; what is shared
    /// stays as it is.
    pub fn orchestrator(&self, config: &Arc<Resolved>, own: Own) -> Orchestrator {
        let store = self.store.clone().filter(|_| config.tool_output.enabled);
        let stored = store.clone().map(|store| {
            let tools = OutputTools::new(store, self.policy.clone(), config.tool_output.reading);
            Arc::new(tools.with_reader(own.reader)) as Arc<dyn ToolProvider>
        });
        let providers =
            stored.into_iter().chain(self.providers.iter().cloned()).chain(own.providers).collect();
        self.over(config, store, providers, own.answers_kept)
    }

    /// An orchestrator that has nothing but `tool_output`, and of what is stored only what `store` gives.
    pub fn output_orchestrator(&self, store: Arc<dyn OutputStore>) -> Orchestrator {
        let tools = OutputTools::new(store, self.policy.clone(), self.config.tool_output.reading);
        self.over(&self.config, None, vec![Arc::new(tools)], HashMap::new())
    }

    pub fn store(&self) -> Option<&Arc<dyn OutputStore>> {
        self.store.as_ref()
    }

    fn over(
        &self,
        config: &Arc<Resolved>,
        store: Option<Arc<dyn OutputStore>>,
        providers: Vec<Arc<dyn ToolProvider>>,
        answers_kept: HashMap<ToolName, Duration>,
    ) -> Orchestrator {
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

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("answers_kept", &self.answers_kept).finish_non_exhaustive()
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("policy", &self.policy).finish_non_exhaustive()
    }
}
