//! Applies the configured settings to each tool, by the name under which it is exposed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, ToolName};
use haft_core::provider::ProviderKind;
use haft_core::tool::{DefinitionAuthor, Effects, OutputFact, OutputPolicy, ToolFacts, ToolPolicy};
use haft_engine::{CatalogEntry, GovernedTool, Governor, InactiveReason, ToolActivity};
use serde::Deserialize;

use haft_config::ResolvedConfig;
use haft_config::mcp::ServerOfTool;
use haft_config::resolved::{CacheTtl, McpServerSettings, OversizeAction, PerToolSettings};

use crate::source_address::{server_of, source_address};

/// The operator's settings for each tool.
#[derive(Debug, Clone)]
pub struct ConfiguredGovernor {
    /// The configuration that holds the settings of tools, groups and servers.
    pub config: Arc<ResolvedConfig>,
    /// The timeout that overrides the configured timeout of every tool.
    pub timeout: Option<Duration>,
    /// The time for which an agent's answers are cached, by the tool name of the agent.
    pub answers_kept: HashMap<ToolName, Duration>,
    /// Selects the tools that an interface, such as the MCP gateway, offers.
    pub exposure: EffectExposure,
}

/// Selects the tools that an interface, such as the MCP gateway, offers. The effects of each tool decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EffectExposure {
    /// All tools.
    #[default]
    All,
    /// Only tools that are known to be read-only. The annotation of an MCP server about its own tool is not trusted.
    ReadOnly,
}

impl EffectExposure {
    fn excludes(self, trusted_effects: Effects) -> Option<&'static str> {
        match (self, trusted_effects) {
            (Self::All, _) | (Self::ReadOnly, Effects::ReadOnly) => None,
            (Self::ReadOnly, Effects::Idempotent | Effects::Mutating | Effects::Unknown) => {
                Some("this interface offers only tools that are known to be read-only")
            }
        }
    }
}

impl Governor for ConfiguredGovernor {
    fn govern(&self, tool: &CatalogEntry, undecided: GovernedTool) -> GovernedTool {
        let undecided = with_own_timeout(undecided, tool);
        let policy = policy_of_source(tool, undecided.policy, &self.config, &self.answers_kept);
        let mut decided =
            self.decide(tool.exposed(), &tool.definition().facts, GovernedTool { policy, ..undecided });
        if let Some(server) = self.server(tool) {
            self.apply_server_settings(&mut decided.policy, tool, server);
            decided.trusted_effects = match tool.definition().facts.author {
                DefinitionAuthor::Source => self.trusted_effects_of(tool, server),
                DefinitionAuthor::Haft | DefinitionAuthor::Protocol => decided.effects,
            };
        }
        let excluded = || self.exposure.excludes(decided.trusted_effects);
        let quarantined = self.quarantine(tool).map(InactiveReason::Quarantined);
        if let Some(why) = quarantined.or_else(|| excluded().map(|why| InactiveReason::TurnedOff(why.into())))
        {
            decided.activity = ToolActivity::Inactive { why };
        }
        decided
    }

    fn exclusion(&self, written_name: &str) -> Option<String> {
        ServerOfTool::find(&self.config.mcp_servers, written_name)?.exclusion()
    }

    fn judges_definition(&self, tool: &CatalogEntry) -> bool {
        self.config.tool_lock.is_some() && tool.identity().kind == ProviderKind::Mcp
    }
}

/// Returns the policy that a tool gets from its source: a REST configuration or an agent.
fn policy_of_source(
    tool: &CatalogEntry,
    undecided: ToolPolicy,
    config: &ResolvedConfig,
    agents: &HashMap<ToolName, Duration>,
) -> ToolPolicy {
    match tool.identity().kind {
        ProviderKind::Rest => {
            let groups = tool.definition().groups.iter().map(GroupName::as_str);
            let (queue, cache) = config.rest.policy_of(tool.identity().tool.as_str(), groups);
            let queue = queue.or(undecided.queue);
            ToolPolicy { queue, cache_ttl: ttl_or(cache, undecided.cache_ttl), ..undecided }
        }
        ProviderKind::Agent => {
            let cache_ttl = agents.get(&tool.identity().tool).copied().or(undecided.cache_ttl);
            ToolPolicy { cache_ttl, ..undecided }
        }
        ProviderKind::Builtin | ProviderKind::Mcp | ProviderKind::Client => undecided,
    }
}

fn ttl_or(wanted: Option<CacheTtl>, undecided: Option<Duration>) -> Option<Duration> {
    wanted.map_or(undecided, ttl)
}

impl ConfiguredGovernor {
    /// Applies the settings of the tool with this exposed name.
    pub fn decide(&self, exposed: &ToolName, facts: &ToolFacts, undecided: GovernedTool) -> GovernedTool {
        let name = exposed.as_str();
        let settings = self.config.tool(name);
        let groups = with_configured_groups(undecided.groups, name, &self.config);
        GovernedTool {
            activity: match facts.author {
                DefinitionAuthor::Source | DefinitionAuthor::Haft => {
                    activity(name, &groups, settings.enabled, &self.config)
                }
                DefinitionAuthor::Protocol => method_activity(name, settings.enabled, &self.config),
            },
            effects: settings.effects.unwrap_or(undecided.effects),
            trusted_effects: settings.effects.unwrap_or(undecided.trusted_effects),
            policy: self.policy(facts, settings, &undecided.policy),
            groups,
        }
    }

    /// Returns the reason why the lock file hides the tool from models.
    fn quarantine(&self, tool: &CatalogEntry) -> Option<&'static str> {
        let lock = self.config.tool_lock.as_ref()?;
        let address = source_address(&self.config, tool.identity());
        lock.standing(tool.identity(), tool.definition(), address.as_deref()).quarantine()
    }

    /// Returns the MCP server that provides the tool.
    fn server(&self, tool: &CatalogEntry) -> Option<&McpServerSettings> {
        server_of(&self.config, tool.identity())
    }

    /// Applies the settings of the tool's MCP server, except for settings that the tool itself has.
    fn apply_server_settings(
        &self,
        policy: &mut ToolPolicy,
        tool: &CatalogEntry,
        server: &McpServerSettings,
    ) {
        if policy.queue.is_none() {
            policy.queue.clone_from(&server.queue);
        }
        if self.config.tool(tool.exposed().as_str()).cache.is_none() {
            policy.cache_ttl = server.cache_of(&own_name(tool)).and_then(ttl);
        }
    }

    /// Returns the effects that the operator declared for a server's tool. The server's own annotations are not
    /// trusted.
    fn trusted_effects_of(&self, tool: &CatalogEntry, server: &McpServerSettings) -> Effects {
        let of_tool = self.config.tool(tool.exposed().as_str()).effects;
        of_tool.or_else(|| server.effects_of(&own_name(tool))).unwrap_or(Effects::Unknown)
    }

    fn policy(&self, facts: &ToolFacts, wanted: PerToolSettings, undecided: &ToolPolicy) -> ToolPolicy {
        ToolPolicy {
            timeout: self.timeout.or(wanted.timeout).unwrap_or(undecided.timeout),
            idle_timeout: wanted.idle_timeout.or(undecided.idle_timeout),
            output: output(facts.output, &wanted, self.config.tool_response_bytes_max),
            queue: wanted.queue.or_else(|| undecided.queue.clone()),
            priority: wanted.priority,
            cache_ttl: ttl_or(wanted.cache, undecided.cache_ttl),
            ..undecided.clone()
        }
    }
}

/// Returns the name that the server uses for the tool. It may contain characters that are not allowed in our tool
/// names.
fn own_name(tool: &CatalogEntry) -> String {
    #[derive(Deserialize)]
    struct RawToolName {
        name: String,
    }
    let definition = tool.definition();
    let sent = definition.raw.as_ref().and_then(|raw| serde_json::from_str::<RawToolName>(raw.get()).ok());
    sent.map_or_else(|| definition.name.as_str().to_owned(), |sent| sent.name)
}

fn ttl(cache: CacheTtl) -> Option<Duration> {
    match cache {
        CacheTtl::Time(ttl) => Some(ttl),
        CacheTtl::Off => None,
    }
}

/// Applies the tool's own timeout. A tool without one is limited by `toolTimeout` and by the timeout of its server.
fn with_own_timeout(mut undecided: GovernedTool, tool: &CatalogEntry) -> GovernedTool {
    undecided.policy.timeout = tool.definition().facts.timeout.unwrap_or(Duration::MAX);
    undecided
}

fn output(fact: OutputFact, wanted: &PerToolSettings, bytes_max_default: usize) -> OutputPolicy {
    let bytes_max = wanted.bytes_max.unwrap_or(bytes_max_default);
    match (wanted.output, fact) {
        (Some(OversizeAction::Pass), _) => OutputPolicy::Pass,
        (None, OutputFact::CapsItself) if wanted.bytes_max.is_none() => OutputPolicy::Pass,
        (None, OutputFact::Pages { chars_max }) => OutputPolicy::Truncate { chars_max },
        (Some(OversizeAction::Truncate), _) => OutputPolicy::Truncate { chars_max: bytes_max },
        (Some(OversizeAction::Store) | None, _) => OutputPolicy::Store { bytes_max },
    }
}

/// Returns the tool's own groups, and the configured groups whose patterns match it.
fn with_configured_groups(mut groups: Vec<GroupName>, name: &str, config: &ResolvedConfig) -> Vec<GroupName> {
    for (group, globs) in &config.groups {
        if any(globs, name) && !groups.contains(group) {
            groups.push(group.clone());
        }
    }
    groups
}

/// Decides whether a tool is active: `toolsDenied` takes precedence, then the settings of the tool itself, then its
/// groups.
fn activity(
    name: &str,
    groups: &[GroupName],
    enabled: Option<bool>,
    config: &ResolvedConfig,
) -> ToolActivity {
    let why = if any(&config.tools_denied, name) {
        "`toolsDenied` of the configuration matches this tool".to_owned()
    } else if !any(&config.tools_allowed, name) {
        "`toolsAllowed` of the configuration does not match this tool".to_owned()
    } else {
        match (enabled, &config.active_groups) {
            (Some(true), _) | (None, None) => return ToolActivity::Active,
            (Some(false), _) => "`tools` of the configuration sets `enabled: false` for this tool".to_owned(),
            (None, Some(active)) if groups.iter().any(|group| active.contains(group)) => {
                return ToolActivity::Active;
            }
            (None, Some(_)) => {
                let names: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
                format!(
                    "`activeGroups` of the configuration contains none of the tool's groups ({})",
                    names.join(", ")
                )
            }
        }
    };
    ToolActivity::Inactive { why: InactiveReason::TurnedOff(why) }
}

/// Decides whether a method that reads content is active. Ignores `toolsAllowed` and `activeGroups`: these lists select
/// tools and never contain a method, so they would turn off every method.
fn method_activity(name: &str, enabled: Option<bool>, config: &ResolvedConfig) -> ToolActivity {
    let why = if any(&config.tools_denied, name) {
        "`toolsDenied` of the configuration matches this method"
    } else if enabled == Some(false) {
        "`tools` of the configuration sets `enabled: false` for this method"
    } else {
        return ToolActivity::Active;
    };
    ToolActivity::Inactive { why: InactiveReason::TurnedOff(why.to_owned()) }
}

fn any(globs: &[ToolGlob], name: &str) -> bool {
    globs.iter().any(|glob| glob.matches(name))
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use haft_core::glob::ToolGlob;
    use haft_core::name::Namespace;
    use haft_core::naming::NamingScheme;
    use haft_core::output::ToolOutput;
    use haft_core::provider::{CallContext, ToolProvider};
    use haft_core::result::ToolError;
    use haft_core::tool::ToolDefinition;
    use haft_core::validate::ValidArguments;
    use haft_engine::{Catalog, Orchestrator, OrchestratorConfig, ToolPolicies};

    use super::*;

    fn globs(written: &[&str]) -> Vec<ToolGlob> {
        written.iter().map(|glob| ToolGlob::new(glob).unwrap()).collect()
    }

    fn group(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    /// A provider named `s`, for example an MCP server or an agent, whose only tool `t` declares the given effects.
    #[derive(Debug)]
    struct DeclaredEffectsProvider(ProviderKind, Namespace, Arc<[ToolDefinition]>);

    impl DeclaredEffectsProvider {
        fn of(kind: ProviderKind, effects: Effects) -> Self {
            let schema = serde_json::json!({"type": "object"});
            let tool = ToolDefinition::new("t", "", schema).with_effects(effects);
            Self(kind, Namespace::new("s").unwrap(), [tool].into())
        }
    }

    impl ToolProvider for DeclaredEffectsProvider {
        fn kind(&self) -> ProviderKind {
            self.0
        }

        fn namespace(&self) -> &Namespace {
            &self.1
        }

        fn tools(&self) -> Arc<[ToolDefinition]> {
            Arc::clone(&self.2)
        }

        fn call<'a>(
            &'a self,
            _: &'a ToolName,
            _: &'a ValidArguments,
            _: &'a CallContext,
        ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
            Box::pin(async { Ok(ToolOutput::text("")) })
        }
    }

    /// A resumed run repeats an unfinished call only if built-in code, the HTTP method or the operator declares it
    /// safe. The annotations of an MCP server are never trusted for this.
    #[test]
    fn repeat_after_crash_ignores_effects_declared_by_mcp_servers() {
        use Effects::{Idempotent, Mutating, ReadOnly, Unknown};
        use ProviderKind::{Agent, Builtin, Client, Mcp, Rest};
        let server = r#""mcpServers": {"s": {"command": "x"EFFECTS}}"#;
        let check = |kind: ProviderKind, says: Effects, operator: &str, expected: bool| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("{{{operator}}}")).unwrap();
            let sources = haft_config::ConfigSources { home: None, project: None, named: Some(file.path()) };
            let config = haft_config::load(sources, &|_| None).unwrap().resolved;
            let governor = ConfiguredGovernor {
                config: Arc::new(config),
                timeout: None,
                answers_kept: HashMap::new(),
                exposure: EffectExposure::All,
            };
            let policies = ToolPolicies { governor: Some(Arc::new(governor)), ..ToolPolicies::default() };
            let catalog = Catalog::new(
                vec![Arc::new(DeclaredEffectsProvider::of(kind, says)) as _],
                NamingScheme::Double,
            );
            let orchestrator =
                Orchestrator::new(catalog, OrchestratorConfig { policies, ..OrchestratorConfig::default() });
            let [tool] = orchestrator.catalog().tools().collect::<Vec<_>>().try_into().unwrap();
            let repeats = orchestrator.may_repeat(tool.exposed().as_str());
            assert_eq!(repeats, expected, "{kind:?} declares {says:?}, the operator sets {operator}");
        };
        let plain = server.replace("EFFECTS", "");
        for says in [ReadOnly, Idempotent, Mutating, Unknown] {
            let harmless = matches!(says, ReadOnly | Idempotent);
            check(Builtin, says, "", harmless);
            check(Rest, says, "", harmless);
            check(Mcp, says, "", false);
            check(Mcp, says, &plain, false);
            check(Client, says, "", false);
            // An agent resumes from its own journal, so repeating its call is safe.
            check(Agent, says, "", true);
            for (word, harmless) in [("read-only", true), ("idempotent", true), ("mutating", false)] {
                let of_server = server.replace("EFFECTS", &format!(r#", "effects": {{"t": "{word}"}}"#));
                check(Mcp, says, &of_server, harmless);
                let of_tool = format!(r#""tools": {{"s__t": {{"effects": "{word}"}}}}"#);
                check(Mcp, says, &of_tool, harmless);
                check(Mcp, says, &format!("{plain}, {of_tool}"), harmless);
            }
        }
    }

    #[test]
    fn settings_that_select_tools_do_not_apply_to_methods_that_read_content() {
        let check = |change: fn(&mut ResolvedConfig), expected: bool| {
            let mut config = haft_config::defaults().unwrap();
            change(&mut config);
            assert_eq!(method_activity("git__resources_read", None, &config).is_active(), expected);
        };
        check(|config| config.tools_allowed = globs(&["git__log"]), true);
        check(|config| config.active_groups = Some(vec![group("web")]), true);
        check(|config| config.tools_denied = globs(&["git__*"]), false);
        let config = haft_config::defaults().unwrap();
        assert!(!method_activity("git__resources_read", Some(false), &config).is_active());
    }

    #[test]
    fn setting_tools_denied_overrides_tool_settings_and_groups() {
        let check = |name: &str, enabled: Option<bool>, change: fn(&mut ResolvedConfig), expected: &str| {
            let mut config = haft_config::defaults().unwrap();
            change(&mut config);
            let groups = with_configured_groups(vec![group("git")], name, &config);
            let told = match activity(name, &groups, enabled, &config) {
                ToolActivity::Active => "active".to_owned(),
                ToolActivity::Inactive { why } => why.to_string(),
            };
            assert_eq!(told, expected, "{name} {enabled:?}");
        };
        check("git__log", None, |_| {}, "active");
        check(
            "git__log",
            Some(false),
            |_| {},
            "`tools` of the configuration sets `enabled: false` for this tool",
        );
        check(
            "git__log",
            Some(true),
            |config| config.tools_denied = globs(&["GIT__*"]),
            "`toolsDenied` of the configuration matches this tool",
        );
        check(
            "git__log",
            Some(true),
            |config| config.tools_allowed = globs(&["web__*"]),
            "`toolsAllowed` of the configuration does not match this tool",
        );
        check("git__log", None, |config| config.tools_allowed = globs(&["Git__L?g"]), "active");
        check(
            "git__log",
            None,
            |config| {
                config.tools_allowed = globs(&["git__log"]);
                config.tools_denied = globs(&["git__log"]);
            },
            "`toolsDenied` of the configuration matches this tool",
        );
        let some_groups = |config: &mut ResolvedConfig| {
            config.groups.insert(group("reading"), globs(&["*__log", "read"]));
            config.active_groups = Some(vec![group("reading")]);
        };
        check("git__log", None, some_groups, "active");
        check(
            "git__push",
            None,
            some_groups,
            "`activeGroups` of the configuration contains none of the tool's groups (git)",
        );
        check("git__push", Some(true), some_groups, "active");
        check(
            "git__log",
            Some(false),
            some_groups,
            "`tools` of the configuration sets `enabled: false` for this tool",
        );
        check("git__push", None, |config| config.active_groups = Some(vec![group("git")]), "active");
    }
}
