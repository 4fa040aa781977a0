//! Watches the definitions of external tools. Warns about tools that the lock file quarantines. Without a lock file,
//! warns about definitions that changed since haft last saw them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_config::ResolvedConfig;
use haft_config::resolved::McpServerSettings;
use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::name::Namespace;
use haft_core::principal::Principal;
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool_lock::{
    CanonicalTool, LockFormat, LockedSource, ToolLock, is_watched, own_name, source_key, source_key_of,
};
use haft_engine::{CatalogEntry, CatalogWarning, Orchestrator, Snapshot};
use haft_store::tool_pins::{ChangedPins, SourceDigests, ToolPins};
use haft_tools::mcp::McpServerStatus;
use haft_tools::rest::RestTools;

use crate::source_address::address;

/// The maximum number of tool names that a warning lists.
const NAMES_MAX: usize = 5;

/// The number of hexadecimal digits of each digest in the key of a pin.
const KEY_DIGITS: usize = 16;

/// Compares the tools of an orchestrator with the lock file or, without one, with the pinned definitions.
#[derive(Debug, Clone)]
pub struct DefinitionWatch {
    lock: Option<Arc<ToolLock>>,
    pins: ToolPins,
    /// The addresses of the configured MCP servers, by their key in the lock file.
    addresses: Arc<BTreeMap<String, String>>,
    /// The MCP servers that a caller named. Their tools are not compared, because two callers may give the same name to
    /// different servers.
    ignored: Vec<String>,
    /// The identity for which the tools were listed. A server may show other tools to each principal.
    principal: Principal,
    /// The quarantined tools that were already reported, shared by the clones of this watch.
    reported: Arc<Mutex<QuarantinedTools>>,
}

/// Quarantined tools, by the namespace of their provider.
type QuarantinedTools = BTreeMap<String, BTreeSet<String>>;

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
            principal: Principal::local(),
            reported: Arc::default(),
        }
    }

    /// Excludes the tools of these namespaces from the comparison.
    #[must_use]
    pub fn ignoring(mut self, namespaces: Vec<String>) -> Self {
        self.ignored = namespaces;
        self
    }

    /// Compares the tools with the pins of this principal.
    #[must_use]
    pub fn for_principal(mut self, principal: &Principal) -> Self {
        self.principal = principal.clone();
        self
    }

    /// Returns warnings about tools that the lock file quarantines, or whose definitions changed. A changed definition
    /// is reported only once.
    pub fn warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        let snapshot = orchestrator.catalog().snapshot();
        let Some(lock) = &self.lock else {
            return self.changed(&snapshot, &orchestrator.catalog().providers());
        };
        let found = self.quarantined(lock, &snapshot);
        let warnings = quarantine_warnings(lock, &found);
        *self.reported() = found;
        warnings
    }

    /// Returns warnings about definitions that changed since the last warnings, and about tools that the lock file has
    /// quarantined since then.
    pub fn late_warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        let Some(lock) = &self.lock else { return self.warnings(orchestrator) };
        let found = self.quarantined(lock, &orchestrator.catalog().snapshot());
        let mut reported = self.reported();
        let new = without(&found, &reported);
        *reported = found;
        quarantine_warnings(lock, &new)
    }

    /// Returns warnings like [`late_warnings`](Self::late_warnings), but reports each quarantined tool only once for all
    /// clones of this watch, for an interface that opens the same servers for many clients.
    pub fn unreported_warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        let Some(lock) = &self.lock else { return self.warnings(orchestrator) };
        let found = self.quarantined(lock, &orchestrator.catalog().snapshot());
        let mut reported = self.reported();
        let new = without(&found, &reported);
        for (provider, names) in found {
            reported.entry(provider).or_default().extend(names);
        }
        quarantine_warnings(lock, &new)
    }

    /// Returns warnings about all tools that the lock file quarantines, whether they were reported or not.
    pub fn quarantine_warnings(&self, orchestrator: &Orchestrator) -> Vec<CatalogWarning> {
        let warnings = |lock: &Arc<ToolLock>| {
            quarantine_warnings(lock, &self.quarantined(lock, &orchestrator.catalog().snapshot()))
        };
        self.lock.as_ref().map(warnings).unwrap_or_default()
    }

    /// Returns true if there is no lock file, or if it contains this MCP server with its current address.
    pub fn has_reviewed_server(&self, namespace: &str) -> bool {
        let key = source_key(ProviderKind::Mcp, namespace);
        let address = self.addresses.get(&key);
        self.lock.as_ref().is_none_or(|lock| {
            lock.sources.get(&key).is_some_and(|source| address.is_none_or(|now| *now == source.address))
        })
    }

    fn reported(&self) -> MutexGuard<'_, QuarantinedTools> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if every run reports the same warnings again. This holds with a lock file; without one, a changed
    /// definition is reported only once.
    fn repeats_warnings(&self) -> bool {
        self.lock.is_some()
    }

    fn quarantined(&self, lock: &ToolLock, snapshot: &Snapshot) -> QuarantinedTools {
        let mut found = QuarantinedTools::new();
        for tool in watched(snapshot) {
            let identity = tool.identity();
            let address = self.addresses.get(&source_key_of(identity, tool.definition()));
            let standing = lock.standing(identity, tool.definition(), address.map(String::as_str));
            if standing.quarantine().is_some() {
                let names = found.entry(identity.namespace.as_str().to_owned()).or_default();
                names.insert(identity.tool.as_str().to_owned());
            }
        }
        found
    }

    fn is_ignored(&self, namespace: &Namespace) -> bool {
        self.ignored.iter().any(|ignored| ignored == namespace.as_str())
    }

    /// Returns the key of a source's pins. Two projects may give the same name to different servers, so the key contains
    /// a digest of the address. It names no principal, because the file outlives the data of a principal.
    fn pin_key(&self, kind: ProviderKind, namespace: &Namespace) -> String {
        let mut key = source_key(kind, namespace.as_str());
        let digits = |text: &str| Digest::of_text(text).to_string()[..KEY_DIGITS].to_owned();
        if let Some(address) = self.addresses.get(&key) {
            let _ = write!(key, " {}", digits(address));
        }
        if self.principal != Principal::local() {
            let _ = write!(key, " {}", digits(&self.principal.to_string()));
        }
        key
    }

    fn changed(&self, snapshot: &Snapshot, providers: &[Arc<dyn ToolProvider>]) -> Vec<CatalogWarning> {
        let mut found = SourceDigests::new();
        for tool in watched(snapshot).filter(|tool| !self.is_ignored(&tool.identity().namespace)) {
            let (identity, canonical) = (tool.identity(), CanonicalTool::of(tool.definition()));
            let source = self.pin_key(identity.kind, &identity.namespace);
            let name = own_name(&canonical, tool.definition());
            found.entry(source).or_default().tools.insert(name, canonical.digest().to_string());
        }
        let servers = providers.iter().filter(|provider| provider.kind() == ProviderKind::Mcp);
        for provider in servers.filter(|provider| !self.is_ignored(provider.namespace())) {
            // A server whose instructions are known has listed its tools, so it is compared even if its list is empty.
            if let Some(text) = provider.instructions() {
                let source = self.pin_key(provider.kind(), provider.namespace());
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

/// Returns the tools whose definitions come from a server or an HTTP API.
fn watched(snapshot: &Snapshot) -> impl Iterator<Item = &CatalogEntry> {
    let is_external = |tool: &&Arc<CatalogEntry>| is_watched(tool.identity().kind, tool.definition());
    snapshot.tools().filter(is_external).map(|tool| &**tool)
}

/// Returns the tools of `found` that are not in `known`.
fn without(found: &QuarantinedTools, known: &QuarantinedTools) -> QuarantinedTools {
    let none = BTreeSet::new();
    let new = found.iter().map(|(provider, names)| {
        let known = known.get(provider).unwrap_or(&none);
        (provider.clone(), names.difference(known).cloned().collect::<BTreeSet<String>>())
    });
    new.filter(|(_, names)| !names.is_empty()).collect()
}

fn quarantine_warnings(lock: &ToolLock, found: &QuarantinedTools) -> Vec<CatalogWarning> {
    let reason = match lock.format {
        LockFormat::Current => "",
        LockFormat::Former => {
            "; an earlier version of haft wrote the lock file and recorded less, so the tools may be unchanged"
        }
    };
    let warning = |(provider, names): (&String, &BTreeSet<String>)| {
        let names: Vec<String> = names.iter().cloned().collect();
        let message = format!(
            "the lock file quarantines {} until a person reviews the changes{reason}",
            listed(&names)
        );
        CatalogWarning { provider: provider.clone(), message }
    };
    found.iter().map(warning).collect()
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

    /// Returns the warnings about definitions that changed since the start of the run. With a lock file, each run has
    /// reported its quarantined tools at its start.
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
    // After the namespace, the key of a pin contains the address and the principal.
    let name = source.split_once('/').map_or(source.as_str(), |(_, name)| name);
    let provider = name.split(' ').next().unwrap_or(name).to_owned();
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
    LockedSource {
        address: address(server),
        name: Some(status.greeting.name.clone()),
        version: status.greeting.version.clone(),
        instructions: status.greeting.instructions.as_deref().map(str::to_owned),
        tools: tools.collect(),
    }
}

/// Returns the source entries for the lock file of the HTTP APIs, one for each host.
pub fn locked_apis(provider: &RestTools) -> BTreeMap<String, LockedSource> {
    let mut sources: BTreeMap<String, LockedSource> = BTreeMap::new();
    for definition in provider.tools().iter() {
        let host = definition.facts.host.as_deref().unwrap_or(provider.namespace().as_str());
        let source = sources.entry(source_key(ProviderKind::Rest, host)).or_default();
        host.clone_into(&mut source.address);
        let canonical = CanonicalTool::of(definition);
        source.tools.insert(own_name(&canonical, definition), canonical);
    }
    sources
}

/// Returns the key of an MCP server in a lock file.
pub fn server_key(name: &str) -> String {
    source_key(ProviderKind::Mcp, Namespace::sanitize(name).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_key_is_different_for_each_address_and_principal() {
        let place = tempfile::tempdir().unwrap();
        let with_address = |address: &str| DefinitionWatch {
            lock: None,
            pins: ToolPins::of(&Home::at(place.path())),
            addresses: Arc::new([("mcp/docs".to_owned(), address.to_owned())].into()),
            ignored: Vec::new(),
            principal: Principal::local(),
            reported: Arc::default(),
        };
        let key =
            |watch: &DefinitionWatch| watch.pin_key(ProviderKind::Mcp, &Namespace::new("docs").unwrap());
        let (one, other) = (with_address("program one"), with_address("program other"));
        let of = |subject: &str| one.clone().for_principal(&Principal::new("acme", subject, "key"));
        let keys = [key(&one), key(&other), key(&of("me")), key(&of("you"))];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        assert_eq!(key(&one), key(&with_address("program one")));
        assert_eq!(
            key(&of("me")),
            key(&one.clone().for_principal(&Principal::new("acme", "me", "other key")))
        );
        assert!(keys.iter().all(|key| key.starts_with("mcp/docs ") && !key.contains("acme")), "{keys:?}");
    }

    #[test]
    fn warnings_name_a_few_tools_and_count_the_rest() {
        let names: Vec<String> = (0..7).map(|at| format!("t{at}")).collect();
        assert_eq!(listed(&names[..2]), "`t0`, `t1`");
        assert_eq!(listed(&names), "`t0`, `t1`, `t2`, `t3`, `t4` and 2 more");
        let change = ChangedPins {
            source: "mcp/a 0123456789abcdef acme/me".into(),
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
