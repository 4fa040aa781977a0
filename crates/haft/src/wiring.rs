//! Puts providers, engine, policy and configuration together. The only place that knows every crate.

mod mcp;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use haft_core::approval::Approver;
use haft_core::event::EventSink;
use haft_core::name::{GroupName, ToolName};
use haft_core::naming::{NameTable, ToolIdentity};
use haft_core::provider::ToolProvider;
use haft_core::rules::{CommandPattern, Decision, Rule, Rules};
use haft_core::store::OutputStore;
use haft_core::tool::{Approval, OutputPolicy, ToolDefinition, ToolPolicy};
use haft_engine::{
    Authority, Cache, CacheConfig, Catalog, Memory, Orchestrator, OrchestratorConfig, Policies, QueueConfig,
    Queues, UncheckedSchemas,
};
use haft_sandbox::Policy;
use haft_tools::builtin::{BASH_TIMEOUT_SECS, BuiltinTools};
use haft_tools::mcp::{McpProvider, Server};
use haft_tools::output::OutputTools;
use haft_tools::shape::Described;

pub use mcp::{McpServers, mcp_servers};

use crate::config::Resolved;
use crate::config::resolved::{CacheFor, Oversize};

/// What an orchestrator is made from.
pub struct Settings {
    pub policy: Policy,
    /// Beats what the configuration says about any tool.
    pub timeout: Option<Duration>,
    pub events: Arc<dyn EventSink>,
    pub config: Resolved,
    /// Whom calls are asked about that the rules want asked; nobody means no.
    pub approver: Option<Arc<dyn Approver>>,
    /// What was allowed for good before.
    pub remembered: Memory,
    /// Where outputs go that are too large; without it they are cut.
    pub store: Option<Arc<dyn OutputStore>>,
    /// MCP servers; their tools are those that are known when the orchestrator is made.
    pub servers: Vec<Arc<Server>>,
}

/// How long a call of a built-in tool may take unless the operator says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(BASH_TIMEOUT_SECS);

/// Built-in tools that cap their own output, each at its own limit.
const CAPPED_BY_THEMSELVES: [&str; 4] = ["bash", "read", "introspect", "tool_output"];

/// An orchestrator over the built-in tools and those of servers, as configured.
pub fn orchestrator(settings: Settings) -> Orchestrator {
    let config = &settings.config;
    let workspace = settings.policy.workspace().to_string_lossy().into_owned();
    let store = settings.store.filter(|_| config.tool_output.enabled);
    let mut providers: Vec<Arc<dyn ToolProvider>> = Vec::new();
    if let Some(store) = &store {
        providers.push(Arc::new(OutputTools::new(Arc::clone(store), settings.policy.clone())));
    }
    providers.push(Arc::new(BuiltinTools::new(settings.policy, store.clone())));
    providers.extend(settings.servers.into_iter().map(|server| provider_of(&server)));
    let catalog = Catalog::new(shown(providers, config), config.naming);
    let policies = policies(&catalog, config, settings.timeout);
    let engine = OrchestratorConfig {
        policies,
        unchecked: if config.validation.strict { UncheckedSchemas::Denied } else { UncheckedSchemas::Called },
        scope: workspace.into(),
        tool_timeout_max: settings.timeout.unwrap_or(config.tool_timeout),
        queues: queues(config),
        cache: Cache::new(CacheConfig {
            entries_max: usize::try_from(config.cache.entries_max).unwrap_or(usize::MAX),
            bytes_max: usize::try_from(config.cache.bytes_max).unwrap_or(usize::MAX),
        }),
        authority: Authority {
            rules: rules(config),
            approver: settings.approver,
            command_lines: command_lines(),
            remembered: settings.remembered,
        },
        store,
        events: settings.events,
        ..OrchestratorConfig::default()
    };
    // Every queue that is named was found when the configuration was read.
    Orchestrator::new(catalog, engine)
}

/// The built-in tools and those of servers, as the operator wants them seen, under the names by which they are called.
pub fn definitions(config: &Resolved, servers: &[Arc<Server>]) -> Vec<ToolDefinition> {
    let builtin =
        haft_tools::builtin::definitions().into_iter().filter_map(|tool| described(None, tool, config));
    let catalog = Catalog::new(shown(servers.iter().map(provider_of).collect(), config), config.naming);
    let exposed = |entry: &haft_engine::CatalogEntry| ToolDefinition {
        name: entry.exposed().clone(),
        ..entry.definition().clone()
    };
    builtin.chain(catalog.tools().map(exposed)).collect()
}

fn provider_of(server: &Arc<Server>) -> Arc<dyn ToolProvider> {
    Arc::new(McpProvider::new(Arc::clone(server)))
}

fn shown(providers: Vec<Arc<dyn ToolProvider>>, config: &Resolved) -> Vec<Arc<dyn ToolProvider>> {
    let show = |provider: Arc<dyn ToolProvider>| {
        let giver = Arc::clone(&provider);
        Arc::new(Described::new(provider, |tool| described(Some(giver.as_ref()), tool, config))) as _
    };
    providers.into_iter().map(show).collect()
}

/// The name that patterns are held against: that by which the tool is called.
fn name_of(provider: Option<&dyn ToolProvider>, tool: &ToolName, config: &Resolved) -> ToolName {
    let identity = provider.map(|provider| ToolIdentity {
        kind: provider.kind(),
        namespace: provider.namespace().clone(),
        tool: tool.clone(),
    });
    let table = NameTable::build(config.naming, identity);
    table.tools().first().map_or_else(|| tool.clone(), |named| named.exposed.clone())
}

/// The tool as the operator wants it seen; nothing when it is not to be there.
fn described(
    provider: Option<&dyn ToolProvider>,
    tool: ToolDefinition,
    config: &Resolved,
) -> Option<ToolDefinition> {
    let name = name_of(provider, &tool.name, config);
    let name = name.as_str();
    let wanted = config.tool(name);
    let allowed = config.tools_allowed.iter().any(|glob| glob.matches(name));
    let denied = config.tools_denied.iter().any(|glob| glob.matches(name));
    let named = config.groups.iter().filter(|(_, globs)| globs.iter().any(|glob| glob.matches(name)));
    let groups: Vec<GroupName> =
        tool.groups.iter().cloned().chain(named.map(|(group, _)| group.clone())).collect();
    let active =
        config.active_groups.as_ref().is_none_or(|active| groups.iter().any(|group| active.contains(group)));
    let there = wanted.enabled.unwrap_or(true) && allowed && !denied && active;
    there.then(|| ToolDefinition { effects: wanted.effects.unwrap_or(tool.effects), groups, ..tool })
}

fn policies(catalog: &Catalog, config: &Resolved, timeout: Option<Duration>) -> Policies {
    let default = Policies::default().default;
    let by_tool: HashMap<ToolName, ToolPolicy> = catalog
        .tools()
        .map(|entry| (entry.exposed().clone(), policy(entry.exposed().as_str(), config, timeout, &default)))
        .collect();
    Policies { default, by_tool }
}

fn policy(name: &str, config: &Resolved, timeout: Option<Duration>, default: &ToolPolicy) -> ToolPolicy {
    let wanted = config.tool(name);
    let bytes_max = wanted.bytes_max.unwrap_or(config.tool_response_bytes_max);
    let by_itself = CAPPED_BY_THEMSELVES.contains(&name) && wanted.bytes_max.is_none();
    let output = match wanted.output {
        Some(Oversize::Pass) => OutputPolicy::Pass,
        None if by_itself => OutputPolicy::Pass,
        Some(Oversize::Truncate) => OutputPolicy::Truncate { chars_max: bytes_max },
        Some(Oversize::Store) | None => OutputPolicy::Store { bytes_max },
    };
    ToolPolicy {
        timeout: timeout.or(wanted.timeout).unwrap_or(TIMEOUT_DEFAULT),
        output,
        queue: wanted.queue,
        cache_ttl: match wanted.cache {
            Some(CacheFor::Time(ttl)) => Some(ttl),
            Some(CacheFor::Off) | None => None,
        },
        ..default.clone()
    }
}

/// The operator's rules, as the engine decides by them.
pub fn rules(config: &Resolved) -> Rules {
    let rules = config.policy.rules.iter().filter_map(|rule| {
        // Patterns were tried when the configuration was read.
        let command = match &rule.command {
            Some(pattern) => Some(CommandPattern::new(pattern).ok()?),
            None => None,
        };
        Some(Rule { tool: rule.tool.clone(), command, decision: decision(rule.decision) })
    });
    Rules { rules: rules.collect(), default: decision(config.policy.default) }
}

fn decision(approval: Approval) -> Decision {
    match approval {
        Approval::Allow => Decision::Allow,
        Approval::Ask => Decision::Ask,
        Approval::Deny => Decision::Deny,
    }
}

/// The tools one of whose arguments is a shell command line, and which.
pub fn command_lines() -> HashMap<ToolName, String> {
    ToolName::new("bash").into_iter().map(|name| (name, "command".to_owned())).collect()
}

fn queues(config: &Resolved) -> Queues {
    Queues::new(config.queues.iter().map(|(name, queue)| {
        let concurrent = NonZeroUsize::new(queue.concurrent).unwrap_or(NonZeroUsize::MIN);
        let queue =
            QueueConfig { concurrent, waiting_max: queue.waiting_max, timeout_default: queue.timeout };
        (name.clone(), queue)
    }))
}

/// Ends what providers keep running between calls.
pub async fn shut_down(orchestrator: &Orchestrator) {
    join_all(orchestrator.catalog().providers().iter().map(|provider| provider.shutdown())).await;
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("policy", &self.policy)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
