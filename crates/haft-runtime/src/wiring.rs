//! Combines providers, engine, policy and configuration into an orchestrator.

mod authorization;
mod mcp;
mod parts;
mod requested;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use haft_core::home::Home;
use haft_core::name::QueueName;
use haft_core::provider::ToolProvider;
use haft_core::rules::{CommandPattern, PermissionDecision, PermissionRule, PermissionRules};
use haft_core::tool::{ApprovalPolicy, ToolDefinition};
use haft_core::tool_lock::ToolLock;
use haft_engine::{
    Catalog, CatalogConfig, CatalogEntry, CatalogWarning, GovernedTool, Orchestrator, PROVIDERS_AT_ONCE_MAX,
    QueueConfig, Queues, ToolActivity, ToolPolicies,
};
use haft_sandbox::SandboxPolicy;
use haft_store::cache::FileCache;
use haft_tools::output::OUTPUT_TOOL;
use haft_tools::rest::{RestTool, RestTools};

pub use authorization::{LoginTarget, TokenStorage, authorizer, has_own_account};
pub use mcp::{McpClientSettings, McpServers, ServerPatience, mcp_servers, remembered};
pub use parts::{EngineState, OrchestratorOptions, OrchestratorParts, cache_limits};
pub use requested::{check_requested_url, requested_servers};

use crate::governor::{ConfiguredGovernor, EffectExposure};
use haft_config::ResolvedConfig;

/// The configuration and sandbox policy of an orchestrator. The principal, approver, output store and event sink belong
/// to each run: see [`RunContext`](haft_core::run::context::RunContext).
#[derive(Debug)]
pub struct ToolSettings {
    /// The sandbox of the built-in tools and of local MCP servers.
    pub policy: SandboxPolicy,
    /// The timeout that replaces the configured timeout of every tool.
    pub timeout: Option<Duration>,
    /// The settings of tools, queues, cache and rules.
    pub config: ResolvedConfig,
}

/// Builds an orchestrator over the built-in tools, as configured.
pub fn orchestrator(settings: ToolSettings) -> Orchestrator {
    orchestrator_with(settings, Vec::new())
}

/// Builds an orchestrator with the built-in tools and the tools of other providers, for example [MCP
/// servers](McpServers::providers) or a [`Registry`](haft_tools::registry::Registry) of the embedding program.
pub fn orchestrator_with(settings: ToolSettings, others: Vec<Arc<dyn ToolProvider>>) -> Orchestrator {
    let parts = OrchestratorParts::new(settings, others);
    parts.orchestrator(parts.config(), OrchestratorOptions::default())
}

/// Builds an orchestrator like [`orchestrator_with`], but stores cached outputs in haft's home directory, so that other
/// processes share them.
pub fn orchestrator_with_stored_cache(
    settings: ToolSettings,
    others: Vec<Arc<dyn ToolProvider>>,
) -> Orchestrator {
    let engine = engine_with_stored_cache(&settings.config, settings.policy.home());
    orchestrator_with_engine(settings, others, OrchestratorOptions::default(), &engine)
}

/// Returns queues and a cache for the orchestrators of one process. The cache stores its outputs in haft's home
/// directory, so that other processes share them.
pub fn engine_with_stored_cache(config: &ResolvedConfig, home: &Home) -> EngineState {
    let store = FileCache::of(home, cache_limits(config));
    EngineState::new(config).with_cache_store(Some(Arc::new(store)))
}

/// Builds an orchestrator that shares queues and caches with others, with settings of its own.
pub fn orchestrator_with_engine(
    settings: ToolSettings,
    others: Vec<Arc<dyn ToolProvider>>,
    own: OrchestratorOptions,
    engine: &EngineState,
) -> Orchestrator {
    let parts = OrchestratorParts::with_engine(settings, others, engine);
    parts.orchestrator(parts.config(), own)
}

fn catalog_config(config: &ResolvedConfig) -> CatalogConfig {
    CatalogConfig {
        scheme: config.naming,
        tools_per_provider_max: config.catalog.tools_per_provider_max,
        warmup_timeout: warmup_timeout(config),
        providers_at_once_max: config.mcp_starts_max.max(PROVIDERS_AT_ONCE_MAX),
        ..CatalogConfig::default()
    }
}

/// Returns the longest configured startup timeout. The first start of a server may download its package, so a warm-up
/// must not end before the `startup_timeout` of any server.
fn warmup_timeout(config: &ResolvedConfig) -> Duration {
    let servers = config.mcp_servers.values().filter(|server| server.enabled);
    servers.map(|server| server.startup_timeout).fold(config.catalog.warmup_timeout, Duration::max)
}

/// Returns true if this is the name of a built-in tool. No other tool can have such a name.
pub fn is_builtin(name: &str) -> bool {
    let is_it = |tool: &ToolDefinition| tool.name.as_str().eq_ignore_ascii_case(name);
    name.eq_ignore_ascii_case(OUTPUT_TOOL) || haft_tools::builtin::definitions().iter().any(is_it)
}

/// Returns the names of the built-in tools.
pub fn builtin_names() -> Vec<String> {
    let own = haft_tools::builtin::definitions().into_iter().map(|tool| tool.name.as_str().to_owned());
    own.chain([OUTPUT_TOOL.to_owned()]).collect()
}

/// Returns the active tools with the operator's settings applied, under the names that a model uses.
pub fn definitions(config: &ResolvedConfig, rest: Vec<RestTool>) -> Vec<ToolDefinition> {
    let governor = ConfiguredGovernor {
        config: Arc::new(config.clone()),
        timeout: None,
        answers_kept: HashMap::new(),
        exposure: EffectExposure::All,
    };
    let described = |tool: ToolDefinition| {
        let policy = ToolPolicies::default().default;
        let undecided = GovernedTool {
            policy,
            effects: tool.effects,
            trusted_effects: tool.effects,
            groups: tool.groups.clone(),
            activity: ToolActivity::Active,
        };
        let GovernedTool { effects, groups, activity, .. } =
            governor.decide(&tool.name, &tool.facts, undecided);
        activity.is_active().then_some(ToolDefinition { effects, groups, ..tool })
    };
    let catalog = Catalog::with(vec![Arc::new(RestTools::new(rest))], catalog_config(config));
    let agreed = |entry: &Arc<CatalogEntry>| {
        let standing = |lock: &Arc<ToolLock>| lock.standing(entry.identity(), entry.definition(), None);
        config.tool_lock.as_ref().and_then(|lock| standing(lock).quarantine()).is_none()
    };
    let rest = catalog
        .tools()
        .filter(agreed)
        .map(|entry| ToolDefinition { name: entry.exposed().clone(), ..entry.definition().clone() });
    haft_tools::builtin::definitions().into_iter().chain(rest).filter_map(described).collect()
}

/// Converts the operator's rules to those that the engine evaluates.
pub fn rules(config: &ResolvedConfig) -> PermissionRules {
    let rules = config.policy.rules.iter().filter_map(|rule| {
        // The configuration reader already rejected patterns that do not compile.
        let command = match &rule.command {
            Some(pattern) => Some(CommandPattern::new(pattern).ok()?),
            None => None,
        };
        Some(PermissionRule { tool: rule.tool.clone(), command, decision: decision(rule.decision) })
    });
    PermissionRules { rules: rules.collect(), default: decision(config.policy.default) }
}

fn decision(approval: ApprovalPolicy) -> PermissionDecision {
    match approval {
        ApprovalPolicy::Allow => PermissionDecision::Allow,
        ApprovalPolicy::Ask => PermissionDecision::Ask,
        ApprovalPolicy::Deny => PermissionDecision::Deny,
    }
}

/// Returns the argument name under which a built-in tool gets a shell command line.
pub fn command_argument(tool: &str) -> Option<&'static str> {
    let mut tools = haft_tools::builtin::definitions().into_iter();
    tools.find(|definition| definition.name.as_str() == tool)?.facts.command_argument
}

fn queues(config: &ResolvedConfig) -> Queues {
    Queues::new(queue_configs(config))
}

fn queue_configs(config: &ResolvedConfig) -> impl Iterator<Item = (QueueName, QueueConfig)> {
    config.queues.iter().map(|(name, queue)| {
        let concurrent = NonZeroUsize::new(queue.concurrent).unwrap_or(NonZeroUsize::MIN);
        let queue =
            QueueConfig { concurrent, waiting_max: queue.waiting_max, timeout_default: queue.timeout };
        (name.clone(), queue)
    })
}

/// Prepares the tools of all providers, and returns warnings for the operator.
pub async fn warm_up(orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
    let catalog = orchestrator.catalog();
    let mut warnings = catalog.warm_up().await;
    warnings.extend(catalog.warnings());
    warnings
}

/// Stops the processes and connections that providers keep open between calls.
pub async fn shut_down(orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
    orchestrator.catalog().shut_down().await
}
