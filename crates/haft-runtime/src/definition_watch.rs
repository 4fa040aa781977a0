//! Watches the definitions of external tools. Warns about tools that the lock file quarantines. Without a lock file,
//! warns about definitions that changed since haft last saw them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use haft_config::ResolvedConfig;
use haft_config::resolved::McpServerSettings;
use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::name::Namespace;
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool_lock::{CanonicalTool, LockedSource, ToolLock, is_watched, own_name, source_key};
use haft_engine::{CatalogEntry, CatalogWarning, Orchestrator, Snapshot};
use haft_store::tool_pins::{ChangedPins, SourceDigests, ToolPins};
use haft_tools::mcp::McpServerStatus;

use crate::source_address::address;

/// The maximum number of tool names that a warning lists.
const NAMES_MAX: usize = 5;

/// Compares the tools of an orchestrator with the lock file or, without one, with the pinned definitions.
#[derive(Debug, Clone)]
pub struct DefinitionWatch {
    lock: Option<Arc<ToolLock>>,
    pins: ToolPins,
    /// The addresses of the configured MCP servers, by the key of their source.
    addresses: Arc<BTreeMap<String, String>>,
    /// The MCP servers that a caller named. Their tools are not compared, because two callers may give the same name to
    /// different servers.
    ignored: Vec<String>,
}

impl DefinitionWatch {
    /// Creates a watch that compares definitions with the lock file of the configuration or, without a lock file, with
    /// the pins in haft's data directory.
    pub fn new(config: &ResolvedConfig, home: &Home) -> Self {
        let enabled = config.mcp_servers.iter().filter(|(_, server)| server.enabled);
        let addresses = enabled.map(|(name, server)| (server_key(name), address(server))).collect();
        Self {
            lock: config.tool_lock.clone(),
            pins: ToolPins::of(home),
            addresses: Arc::new(addresses),
            ignored: Vec::new(),
        }
    }

    /// Excludes the tools of these namespaces from the comparison.
    #[must_use]
    pub fn ignoring(mut self, namespaces: Vec<String>) -> Self {
        self.ignored = namespaces;
        self
    }

    /// Returns warnings about tools that the lock file quarantines, or whose definitions changed. A changed definition
    /// is reported only once.
    pub fn warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        let snapshot = orchestrator.catalog().snapshot();
        let is_external = |tool: &&Arc<CatalogEntry>| is_watched(tool.identity().kind, tool.definition());
        let watched = snapshot.tools().filter(is_external).map(|tool| &**tool);
        if let Some(lock) = &self.lock {
            return self.quarantined(lock, watched);
        }
        let compared = watched.filter(|tool| !self.is_ignored(&tool.identity().namespace));
        self.changed(compared, &orchestrator.catalog().providers())
    }

    /// Returns only the warnings about changed definitions. Quarantined tools were already reported at the start.
    pub fn late_warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        match &self.lock {
            Some(_) => Vec::new(),
            None => self.warnings(orchestrator),
        }
    }

    /// Returns true if every run reports the same warnings again. This holds with a lock file; without one, a changed
    /// definition is reported only once.
    fn repeats_warnings(&self) -> bool {
        self.lock.is_some()
    }

    fn quarantined<'a>(
        &self,
        lock: &ToolLock,
        tools: impl Iterator<Item = &'a CatalogEntry>,
    ) -> Vec<CatalogWarning> {
        let mut by_source: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for tool in tools {
            let identity = tool.identity();
            let source = source_key(identity.kind, identity.namespace.as_str());
            let address = self.addresses.get(&source).map(String::as_str);
            if lock.standing(identity, tool.definition(), address).quarantine().is_some() {
                let names = by_source.entry(identity.namespace.as_str().to_owned()).or_default();
                names.push(identity.tool.as_str().to_owned());
            }
        }
        let message = |names: Vec<String>| {
            format!("the lock file quarantines {} until a person reviews the changes", listed(&names))
        };
        by_source
            .into_iter()
            .map(|(provider, names)| CatalogWarning { provider, message: message(names) })
            .collect()
    }

    fn is_ignored(&self, namespace: &Namespace) -> bool {
        self.ignored.iter().any(|ignored| ignored == namespace.as_str())
    }

    fn changed<'a>(
        &self,
        tools: impl Iterator<Item = &'a CatalogEntry>,
        providers: &[Arc<dyn ToolProvider>],
    ) -> Vec<CatalogWarning> {
        let mut found = SourceDigests::new();
        for tool in tools {
            let (identity, canonical) = (tool.identity(), CanonicalTool::of(tool.definition()));
            let source = source_key(identity.kind, identity.namespace.as_str());
            let name = own_name(&canonical, tool.definition());
            found.entry(source).or_default().tools.insert(name, canonical.digest().to_string());
        }
        let servers = providers.iter().filter(|provider| provider.kind() == ProviderKind::Mcp);
        for provider in servers.filter(|provider| !self.is_ignored(provider.namespace())) {
            // A server with instructions has started before, so an empty list of its tools is its current list.
            if let Some(text) = provider.instructions() {
                let source = source_key(provider.kind(), provider.namespace().as_str());
                found.entry(source).or_default().instructions = Digest::of_text(&text).to_string();
            }
        }
        if found.is_empty() {
            return Vec::new();
        }
        match self.pins.renew(&found) {
            Ok(changes) => changes.into_iter().map(warning).collect(),
            Err(error) => {
                let message =
                    format!("haft cannot detect changes of tool definitions since earlier runs: {error}");
                vec![CatalogWarning { provider: "tools".into(), message }]
            }
        }
    }
}

/// The result of the last comparison, for runs with the same tools. A comparison hashes all definitions, so these runs
/// share one result.
#[derive(Debug, Default)]
pub(crate) struct ComparedDefinitions(Mutex<Option<ComparedSnapshot>>);

#[derive(Debug)]
struct ComparedSnapshot {
    snapshot: Arc<Snapshot>,
    /// The warnings that each run with these tools reports.
    warnings: Vec<CatalogWarning>,
}

impl ComparedDefinitions {
    /// Returns the warnings for the start of a run.
    pub(crate) fn warnings(&self, watch: &DefinitionWatch, tools: &Orchestrator) -> Vec<CatalogWarning> {
        let snapshot = tools.catalog().snapshot();
        let mut compared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = compared.as_ref().filter(|last| Arc::ptr_eq(&last.snapshot, &snapshot)) {
            return last.warnings.clone();
        }
        let found = watch.warnings(tools);
        let warnings = if watch.repeats_warnings() { found.clone() } else { Vec::new() };
        *compared = Some(ComparedSnapshot { snapshot, warnings });
        found
    }

    /// Returns the warnings about definitions that changed since the start of the run.
    pub(crate) fn late_warnings(&self, watch: &DefinitionWatch, tools: &Orchestrator) -> Vec<CatalogWarning> {
        if watch.repeats_warnings() { Vec::new() } else { self.warnings(watch, tools) }
    }
}

fn warning(change: ChangedPins) -> CatalogWarning {
    let ChangedPins { source, changed, added, removed, instructions } = change;
    let mut parts = Vec::new();
    if !changed.is_empty() {
        parts.push(format!("the definitions of {} changed", listed(&changed)));
    }
    if !added.is_empty() {
        parts.push(format!("the provider added {}", listed(&added)));
    }
    if !removed.is_empty() {
        parts.push(format!("the provider removed {}", listed(&removed)));
    }
    if instructions {
        parts.push("the instructions for models changed".to_owned());
    }
    let message = format!("{} since haft last listed the tools of this provider", parts.join(", and "));
    let provider = source.split_once('/').map_or(source.as_str(), |(_, name)| name).to_owned();
    CatalogWarning { provider, message }
}

fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the source entry for the lock file of an MCP server that is ready.
pub fn locked_server(server: &McpServerSettings, status: &McpServerStatus) -> LockedSource {
    let tools = status.listing.tools().iter().map(|definition| {
        let canonical = CanonicalTool::of(definition);
        (own_name(&canonical, definition), canonical)
    });
    let version = format!("{} {}", status.greeting.name, status.greeting.version);
    LockedSource {
        address: address(server),
        version: version.trim().to_owned(),
        instructions: status.greeting.instructions.as_deref().map(str::to_owned),
        tools: tools.collect(),
    }
}

/// Returns the source entry for the lock file of a provider that has neither an address nor a version.
pub fn locked_provider(provider: &dyn ToolProvider) -> LockedSource {
    let tools = provider.tools();
    let tools = tools.iter().map(|definition| {
        let canonical = CanonicalTool::of(definition);
        (own_name(&canonical, definition), canonical)
    });
    LockedSource { address: "configuration".into(), tools: tools.collect(), ..LockedSource::default() }
}

/// Returns the key of an MCP server in a lock file.
pub fn server_key(name: &str) -> String {
    source_key(ProviderKind::Mcp, Namespace::sanitize(name).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_a_few_tools_and_count_the_rest() {
        let names: Vec<String> = (0..7).map(|at| format!("t{at}")).collect();
        assert_eq!(listed(&names[..2]), "`t0`, `t1`");
        assert_eq!(listed(&names), "`t0`, `t1`, `t2`, `t3`, `t4` and 2 more");
        let change = ChangedPins {
            source: "mcp/a".into(),
            changed: vec!["t".into()],
            added: vec!["u".into()],
            removed: vec!["v".into()],
            instructions: true,
        };
        let expected = "tool provider `a`: the definitions of `t` changed, and the provider added `u`, and the \
                        provider removed `v`, and the instructions for models changed since haft last listed the \
                        tools of this provider";
        assert_eq!(warning(change).to_string(), expected);
    }
}
