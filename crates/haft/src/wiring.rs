//! Puts providers, engine, policy and configuration together. The only place that knows every crate.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use haft_core::approval::Approver;
use haft_core::event::EventSink;
use haft_core::name::{GroupName, ToolName};
use haft_core::provider::ToolProvider;
use haft_core::rules::{CommandPattern, Decision, Rule, Rules};
use haft_core::store::OutputStore;
use haft_core::tool::{Approval, OutputPolicy, ToolDefinition, ToolPolicy};
use haft_engine::{
    Authority, Cache, CacheConfig, Capture, Catalog, Memory, Orchestrator, OrchestratorConfig, Policies,
    QueueConfig, Queues, UncheckedSchemas,
};
use haft_sandbox::Policy;
use haft_tools::builtin::{BASH_TIMEOUT_SECS, BuiltinTools};
use haft_tools::output::{OutputTools, PAGE_BYTES_MAX};
use haft_tools::shape::Described;

use crate::config::Resolved;
use crate::config::resolved::{CacheFor, Oversize};
use crate::tokens::Vocabulary;

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
}

/// How long a call of a built-in tool may take unless the operator says otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(BASH_TIMEOUT_SECS);

/// Built-in tools that cap their own output, each at its own limit.
const CAPPED_BY_THEMSELVES: [&str; 3] = ["bash", "read", "introspect"];

/// What an answer about a stored output may take: a page, and the lines around it. It is never stored itself.
const ANSWER_CHARS_MAX: usize = PAGE_BYTES_MAX + 1_000;

/// An orchestrator over the built-in tools, as configured.
pub fn orchestrator(settings: Settings) -> Orchestrator {
    let config = &settings.config;
    let workspace = settings.policy.workspace().to_string_lossy().into_owned();
    let store = settings.store.filter(|_| config.tool_output.enabled);
    let mut providers: Vec<Arc<dyn ToolProvider>> = Vec::new();
    if let Some(store) = &store {
        providers.push(Arc::new(OutputTools::new(
            Arc::clone(store),
            settings.policy.clone(),
            config.tool_output.reading,
        )));
    }
    providers.push(Arc::new(BuiltinTools::new(settings.policy, store.clone())));
    let shown = providers.into_iter().map(|provider| {
        Arc::new(Described::new(provider, |tool| described(tool, config))) as Arc<dyn ToolProvider>
    });
    let catalog = Catalog::new(shown.collect(), config.naming);
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
        tokens: Arc::new(Vocabulary),
        events: settings.events,
        capture: if config.telemetry.capture_content { Capture::Content } else { Capture::Nothing },
        ..OrchestratorConfig::default()
    };
    // Every queue that is named was found when the configuration was read.
    Orchestrator::new(catalog, engine)
}

/// The built-in tools as the operator wants them seen.
pub fn definitions(config: &Resolved) -> Vec<ToolDefinition> {
    haft_tools::builtin::definitions().into_iter().filter_map(|tool| described(tool, config)).collect()
}

/// The tool as the operator wants it seen; nothing when it is not to be there.
fn described(tool: ToolDefinition, config: &Resolved) -> Option<ToolDefinition> {
    let name = tool.name.as_str();
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
        None if name == "tool_output" => OutputPolicy::Truncate { chars_max: ANSWER_CHARS_MAX },
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
    for provider in orchestrator.catalog().providers() {
        provider.shutdown().await;
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("policy", &self.policy)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
