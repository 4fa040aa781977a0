//! One generation of the configuration. Runs keep the generation under which they started.

use std::sync::Arc;

use haft_config::skills::Skills;
use haft_config::{ConfigErrors, ConfigTemplate, LoadedConfig, ResolvedConfig};
use haft_core::home::Home;
use haft_core::model_provider::ModelProvider;
use haft_core::provider::ToolProvider;
use haft_tools::rest::RestTools;

use super::shared_agents::SharedAgents;
use super::tool_inventory::ToolInventories;
use crate::rest::{self, Freshness, RestLoadContext};
use crate::runs::Variables;
use crate::wiring::EngineState;

/// The configuration of a runtime. If it was loaded from files, it includes their template, in which the secrets of a
/// run also provide values for `${VARIABLE}`.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    resolved: ResolvedConfig,
    template: Option<ConfigTemplate>,
}

impl From<ResolvedConfig> for RuntimeConfig {
    fn from(resolved: ResolvedConfig) -> Self {
        Self { resolved, template: None }
    }
}

impl From<LoadedConfig> for RuntimeConfig {
    fn from(loaded: LoadedConfig) -> Self {
        Self { resolved: loaded.resolved, template: Some(loaded.template) }
    }
}

impl RuntimeConfig {
    pub(super) fn resolved(&self) -> &ResolvedConfig {
        &self.resolved
    }
}

/// One loaded configuration, and the values that haft built from it.
pub(super) struct ConfigGeneration {
    pub(super) number: u64,
    pub(super) config: Arc<ResolvedConfig>,
    template: Option<ConfigTemplate>,
    pub(super) skills: Arc<Skills>,
    /// REST tools of the configuration, and the tools of the embedding program.
    pub(super) providers: Vec<Arc<dyn ToolProvider>>,
    own_tools: Vec<Arc<dyn ToolProvider>>,
    pub(super) models: Option<Arc<dyn ModelProvider>>,
    /// Queues and response cache, which all runs share.
    pub(super) engine: EngineState,
    pub(super) agents: Arc<SharedAgents>,
    pub(super) inventories: Arc<ToolInventories>,
}

/// The tools and the model provider of the embedding program.
pub(super) type OwnProviders = (Vec<Arc<dyn ToolProvider>>, Option<Arc<dyn ModelProvider>>);

impl ConfigGeneration {
    /// Builds the first generation. The warnings name REST tools of the configuration that cannot be used.
    pub(super) async fn first(
        config: RuntimeConfig,
        skills: Skills,
        (own_tools, models): OwnProviders,
        (engine, agents): (EngineState, Arc<SharedAgents>),
        (home, variables): (&Home, &Variables),
    ) -> (Self, Vec<String>) {
        let mut this = Self {
            number: 1,
            config: Arc::new(config.resolved),
            template: config.template,
            skills: Arc::new(skills),
            providers: own_tools.clone(),
            own_tools,
            models,
            engine,
            agents,
            inventories: Arc::default(),
        };
        let warnings = this.load_rest(home, variables).await;
        (this, warnings)
    }

    pub(super) async fn next(
        &self,
        (config, skills): (RuntimeConfig, Arc<Skills>),
        home: &Home,
        variables: &Variables,
    ) -> (Self, Vec<String>) {
        let RuntimeConfig { resolved, template } = config;
        let mut next = Self {
            number: self.number + 1,
            skills,
            engine: self.engine.renewed(&resolved),
            template,
            ..self.with_config(resolved)
        };
        let warnings = next.load_rest(home, variables).await;
        (next, warnings)
    }

    /// Returns the generation with the variables of one run, which include its secrets. Returns `None` if the
    /// configuration has no template.
    pub(super) async fn for_run(
        &self,
        home: &Home,
        variables: &Variables,
    ) -> Result<Option<(Self, Vec<String>)>, ConfigErrors> {
        let Some(template) = &self.template else { return Ok(None) };
        let mut own = self.with_config(template.resolve(&**variables)?);
        let warnings = own.load_rest(home, variables).await;
        Ok(Some((own, warnings)))
    }

    fn with_config(&self, config: ResolvedConfig) -> Self {
        Self {
            number: self.number,
            config: Arc::new(config),
            template: self.template.clone(),
            skills: Arc::clone(&self.skills),
            providers: self.own_tools.clone(),
            own_tools: self.own_tools.clone(),
            models: self.models.clone(),
            engine: self.engine.clone(),
            agents: self.agents.renewed(),
            inventories: Arc::default(),
        }
    }

    async fn load_rest(&mut self, home: &Home, variables: &Variables) -> Vec<String> {
        let around =
            RestLoadContext { home: Some(home), variables: &**variables, freshness: Freshness::Kept };
        let loaded = rest::load(&self.config.rest, around).await;
        if !loaded.tools.is_empty() {
            self.providers.push(Arc::new(RestTools::new(loaded.tools)));
        }
        let problem = |problem: &rest::RestConfigProblem| {
            format!("haft ignores `{}` of the configuration: {}", problem.key, problem.message)
        };
        loaded.problems.iter().map(problem).collect()
    }
}
