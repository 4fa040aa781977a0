//! The parts from which orchestrators are built. Orchestrators with the same parts share servers, queues, cache, output
//! store and approvals.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haft_core::cache_store::{CacheLimits, CacheStore};
use haft_core::name::ToolName;
use haft_core::provider::ToolProvider;
use haft_core::tool_switches::ToolSwitches;
use haft_engine::{
    Cache, CacheConfig, Catalog, ContentCapture, Orchestrator, OrchestratorConfig, Queues, SharedDefinitions,
    ToolPolicies, UncheckedSchemas,
};
use haft_models::http::ClientPool;
use haft_models::provider_circuit::ProviderCircuits;
use haft_sandbox::SandboxPolicy;
use haft_tools::builtin::BuiltinTools;
use haft_tools::output::{OutputReader, OutputTools};

use super::{ToolSettings, catalog_config, decision, queue_configs, queues, rules};
use crate::governor::{ConfiguredGovernor, EffectExposure};
use crate::tokens::UsedCounter;
use haft_config::ResolvedConfig;

/// The parts from which orchestrators are built. No server starts before an orchestrator is warmed up.
pub struct OrchestratorParts {
    config: Arc<ResolvedConfig>,
    policy: SandboxPolicy,
    timeout: Option<Duration>,
    providers: Vec<Arc<dyn ToolProvider>>,
    engine: OrchestratorConfig,
    definitions: SharedDefinitions,
}

/// The settings of a single orchestrator, apart from the shared parts.
#[derive(Default)]
pub struct OrchestratorOptions {
    /// Additional tool providers.
    pub providers: Vec<Arc<dyn ToolProvider>>,
    /// The time for which answers of agents are cached, by tool name.
    pub answers_kept: HashMap<ToolName, Duration>,
    /// The reader that answers questions in natural language about stored outputs.
    pub reader: Option<Arc<dyn OutputReader>>,
    /// The tools that the interface offers.
    pub exposure: EffectExposure,
}

/// Queues, response cache, compiled schemas, connections to models, and the tools that an administrator turned off. All
/// orchestrators of one configuration generation share them.
#[derive(Debug, Clone)]
pub struct EngineState {
    queues: Queues,
    cache: Cache,
    definitions: SharedDefinitions,
    clients: ClientPool,
    circuits: ProviderCircuits,
    switches: ToolSwitches,
}

impl EngineState {
    /// Creates empty queues and an empty cache with the configured limits.
    pub fn new(config: &ResolvedConfig) -> Self {
        Self {
            queues: queues(config),
            cache: cache(config),
            definitions: SharedDefinitions::default(),
            clients: ClientPool::default(),
            circuits: ProviderCircuits::default(),
            switches: ToolSwitches::default(),
        }
    }

    /// Adds a store to the cache, so that other processes share its outputs.
    #[must_use]
    pub fn with_cache_store(self, store: Option<Arc<dyn CacheStore>>) -> Self {
        match store {
            Some(store) => Self { cache: self.cache.with_store(store), ..self },
            None => self,
        }
    }

    /// Returns the same state with a cache that keeps its outputs in memory only.
    #[must_use]
    pub fn without_cache_store(&self) -> Self {
        Self { cache: self.cache.without_store(), ..self.clone() }
    }

    /// Returns the state for the next generation. A queue whose settings did not change keeps its slots and its waiting
    /// calls.
    #[must_use]
    pub fn renewed(&self, config: &ResolvedConfig) -> Self {
        Self {
            queues: self.queues.renewed(queue_configs(config)),
            cache: self.cache.clone(),
            // Do not keep the compiled definitions, because the new configuration may name another JSON Schema draft.
            definitions: SharedDefinitions::default(),
            clients: self.clients.clone(),
            circuits: self.circuits.clone(),
            switches: self.switches.clone(),
        }
    }

    /// Uses this set of turned-off tools, which other orchestrators of the process share.
    #[must_use]
    pub fn with_switches(self, switches: ToolSwitches) -> Self {
        Self { switches, ..self }
    }

    /// Returns the tools that an administrator turned off.
    pub fn switches(&self) -> &ToolSwitches {
        &self.switches
    }

    /// Returns the HTTP clients of model providers.
    pub fn clients(&self) -> &ClientPool {
        &self.clients
    }

    /// Returns the model providers that keep failing, which all runs skip.
    pub fn circuits(&self) -> &ProviderCircuits {
        &self.circuits
    }
}

fn cache(config: &ResolvedConfig) -> Cache {
    Cache::new(CacheConfig {
        entries_max: usize::try_from(config.cache.entries_max).unwrap_or(usize::MAX),
        bytes_max: usize::try_from(config.cache.bytes_max).unwrap_or(usize::MAX),
    })
}

/// Returns the limits of the store that persists cached outputs. They equal the limits of the cache in memory.
pub fn cache_limits(config: &ResolvedConfig) -> CacheLimits {
    CacheLimits { entries_max: config.cache.entries_max, bytes_max: config.cache.bytes_max }
}

impl OrchestratorParts {
    /// Combines the built-in tools with the tools of `others`. Creates new queues and a new cache.
    pub fn new(settings: ToolSettings, others: Vec<Arc<dyn ToolProvider>>) -> Self {
        let engine = EngineState::new(&settings.config);
        Self::with_engine(settings, others, &engine)
    }

    /// Combines the built-in tools with the tools of `others`, like `new`, but with the given queues and cache.
    pub fn with_engine(
        settings: ToolSettings,
        others: Vec<Arc<dyn ToolProvider>>,
        shared: &EngineState,
    ) -> Self {
        let ToolSettings { policy, timeout, config } = settings;
        Self { timeout, ..Self::sharing(policy, Arc::new(config), others, shared) }
    }

    /// Builds parts that share queues and cache with others.
    pub fn sharing(
        policy: SandboxPolicy,
        config: Arc<ResolvedConfig>,
        others: Vec<Arc<dyn ToolProvider>>,
        shared: &EngineState,
    ) -> Self {
        let builtin = BuiltinTools::new(policy.clone());
        let providers = std::iter::once(Arc::new(builtin) as _).chain(others).collect();
        let engine = OrchestratorConfig {
            unchecked: if config.validation.strict {
                UncheckedSchemas::Denied
            } else {
                UncheckedSchemas::Called
            },
            draft: config.validation.draft,
            queues: shared.queues.clone(),
            cache: shared.cache.clone(),
            rules: rules(&config),
            grant_lifetime: config.policy.keep_approvals,
            after_untrusted: decision(config.policy.after_untrusted),
            tokens: Arc::new(UsedCounter),
            capture: if config.telemetry.capture_content {
                ContentCapture::Content
            } else {
                ContentCapture::Nothing
            },
            switches: shared.switches.clone(),
            ..OrchestratorConfig::default()
        };
        let definitions = shared.definitions.clone();
        Self { config, policy, timeout: None, providers, engine, definitions }
    }

    /// Returns the configuration that orchestrators use by default.
    pub fn config(&self) -> &Arc<ResolvedConfig> {
        &self.config
    }

    /// Returns the sandbox policy of all processes that tools start.
    pub fn policy(&self) -> &SandboxPolicy {
        &self.policy
    }

    /// Returns the directory that tools work in.
    pub fn workspace(&self) -> &Path {
        self.policy.workspace()
    }

    /// Builds an orchestrator with all tools. `config` may differ from the shared configuration in its tool settings;
    /// the shared parts stay the same.
    pub fn orchestrator(&self, config: &Arc<ResolvedConfig>, own: OrchestratorOptions) -> Orchestrator {
        let stored = config.tool_output.enabled.then(|| {
            let tools = OutputTools::new(self.policy.clone(), config.tool_output.reading);
            Arc::new(tools.with_reader(own.reader)) as Arc<dyn ToolProvider>
        });
        let providers =
            stored.into_iter().chain(self.providers.iter().cloned()).chain(own.providers).collect();
        self.over(config, providers, own.answers_kept, own.exposure)
    }

    /// Builds an orchestrator whose only tool is `tool_output`.
    pub fn output_orchestrator(&self) -> Orchestrator {
        let tools = OutputTools::new(self.policy.clone(), self.config.tool_output.reading);
        self.over(&self.config, vec![Arc::new(tools)], HashMap::new(), EffectExposure::All)
    }

    fn over(
        &self,
        config: &Arc<ResolvedConfig>,
        providers: Vec<Arc<dyn ToolProvider>>,
        answers_kept: HashMap<ToolName, Duration>,
        exposure: EffectExposure,
    ) -> Orchestrator {
        let governor =
            ConfiguredGovernor { config: Arc::clone(config), timeout: self.timeout, answers_kept, exposure };
        let engine = OrchestratorConfig {
            policies: ToolPolicies { governor: Some(Arc::new(governor)), ..ToolPolicies::default() },
            tool_timeout_max: self.timeout.unwrap_or(config.tool_timeout),
            ..self.engine.clone()
        };
        // The configuration reader already checked that every named queue exists.
        let (definitions, switched) = (self.definitions.clone(), engine.switches.changes().clone());
        let catalog = Catalog::sharing(providers, catalog_config(config), definitions, switched);
        Orchestrator::new(catalog, engine)
    }
}

impl fmt::Debug for OrchestratorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrchestratorOptions")
            .field("answers_kept", &self.answers_kept)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OrchestratorParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrchestratorParts").field("policy", &self.policy).finish_non_exhaustive()
    }
}
