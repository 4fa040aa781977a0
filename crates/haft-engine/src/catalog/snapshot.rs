//! An immutable view of the catalog at one point in time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use haft_core::digest::Digest;
use haft_core::event::KnownTool;
use haft_core::model_request::ModelTool;
use haft_core::name::{GroupName, ToolName};
use haft_core::naming::{NameMatch, NameResolution, NameTable, NamedTool, NamingSource, ToolIdentity};
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool::ToolDefinition;
use haft_core::validate::{Schema, SchemaDraft, ValidArguments};
use serde_json::Value;

use super::definitions::DefinitionValues;
use super::listing::ProviderListing;
use super::{CatalogConfig, CatalogSources, CatalogWarning};
use crate::policy::{GovernedTool, ToolPolicies};

/// All tools at one point in time.
pub struct Snapshot {
    pub(super) sources: Arc<CatalogSources>,
    /// The sum of the change counters when the snapshot was built.
    pub(super) seen: u64,
    names: NameTable,
    /// The tool list of each provider.
    listings: Vec<ProviderListing>,
    /// The entries, in the order of the name table.
    entries: Vec<Arc<CatalogEntry>>,
    /// Indexes into `entries`, sorted by exposed name.
    sorted: Vec<usize>,
}

impl Snapshot {
    pub(super) fn first(sources: Arc<CatalogSources>, config: CatalogConfig, seen: u64) -> Self {
        let providers = &sources.providers;
        let listings = list(&sources, config);
        let names = named_afresh(&listings, config);
        let entries = entries(providers, &listings, names.tools(), |_| None);
        Self::sorted((sources, seen), names, listings, entries)
    }

    /// Builds the next snapshot. An entry keeps its compiled schemas while its provider returns the same list.
    pub(super) fn renewed(
        &self,
        sources: Arc<CatalogSources>,
        config: CatalogConfig,
        seen: u64,
        memory: NameMemory,
    ) -> Self {
        let providers = &sources.providers;
        let listings = list(&sources, config);
        let names = match memory {
            NameMemory::None => named_afresh(&listings, config),
            NameMemory::Kept => {
                self.names.rebuild(listings.iter().map(naming_source), listings.iter().flat_map(identities))
            }
        };
        let entries = entries(providers, &listings, names.tools(), |origin| {
            let is_it = |before: &Arc<dyn ToolProvider>| Arc::ptr_eq(before, &providers[origin]);
            let then = self.sources.providers.iter().position(is_it)?;
            let begin = self.listings[..then].iter().map(|listing| listing.counted.len()).sum();
            let before = &self.listings[then];
            let same = Arc::ptr_eq(&before.tools, &listings[origin].tools);
            same.then(|| &self.entries[begin..begin + before.counted.len()])
        });
        Self::sorted((sources, seen), names, listings, entries)
    }

    /// Returns true if every provider still returns the list that this snapshot was built from.
    pub(super) fn has_current_lists(&self) -> bool {
        let mut providers = self.sources.providers.iter().zip(&self.listings);
        providers.all(|(provider, listing)| listing.is_current(&**provider))
    }

    fn sorted(
        (sources, seen): (Arc<CatalogSources>, u64),
        names: NameTable,
        listings: Vec<ProviderListing>,
        entries: Vec<Arc<CatalogEntry>>,
    ) -> Self {
        let mut sorted: Vec<_> = (0..entries.len()).collect();
        sorted.sort_by(|&left, &right| entries[left].exposed.cmp(&entries[right].exposed));
        Self { sources, seen, names, listings, entries, sorted }
    }

    /// Returns all tools, sorted by exposed name.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<CatalogEntry>> {
        self.sorted.iter().map(|&position| &self.entries[position])
    }

    /// Returns the warnings about the providers' lists.
    pub fn warnings(&self) -> impl Iterator<Item = &CatalogWarning> {
        self.listings.iter().flat_map(|listing| &listing.warnings)
    }

    /// Returns the tool with a name, without considering arguments, or else the most similar names.
    pub fn find(&self, written: &str) -> Result<Arc<CatalogEntry>, Vec<ToolName>> {
        match self.names.resolve(written) {
            NameResolution::Known { tool, .. } => Ok(Arc::clone(&self.entries[tool.index])),
            NameResolution::Bare { tools } => match tools.as_slice() {
                [tool] => Ok(Arc::clone(&self.entries[tool.index])),
                _ => Err(self.names.nearest(written)),
            },
            NameResolution::Unknown { nearest } => Err(nearest),
        }
    }

    /// Returns the tool for a call, or else the most similar names. A name without a namespace is resolved only if
    /// exactly one active tool has this name and accepts the arguments.
    pub(crate) fn resolve(
        &self,
        written: &str,
        fits: impl Fn(&CatalogEntry) -> bool,
    ) -> Result<ResolvedTool<'_>, Vec<ToolName>> {
        match self.names.resolve(written) {
            NameResolution::Known { tool, matched } => {
                Ok(ResolvedTool { entry: &self.entries[tool.index], matched })
            }
            NameResolution::Bare { tools } => {
                let mut fitting =
                    tools.iter().map(|tool| &*self.entries[tool.index]).filter(|tool| fits(tool));
                match (fitting.next(), fitting.next()) {
                    (Some(entry), None) => Ok(ResolvedTool { entry, matched: NameMatch::Bare }),
                    (None | Some(_), _) => Err(self.names.nearest(written)),
                }
            }
            NameResolution::Unknown { nearest } => Err(nearest),
        }
    }
}

fn list(sources: &CatalogSources, config: CatalogConfig) -> Vec<ProviderListing> {
    let CatalogSources { providers, definitions, .. } = sources;
    let listing = |provider: &Arc<dyn ToolProvider>| {
        ProviderListing::of(&**provider, config.tools_per_provider_max, definitions)
    };
    providers.iter().map(listing).collect()
}

/// Selects whether a new snapshot keeps the names of the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameMemory {
    /// No caller has seen a name yet. The names depend on the tools alone, not on the order in which servers listed
    /// them.
    None,
    /// Tools keep the names that callers have seen.
    Kept,
}

fn named_afresh(listings: &[ProviderListing], config: CatalogConfig) -> NameTable {
    let sources = listings.iter().map(naming_source);
    NameTable::build(config.scheme, sources, listings.iter().flat_map(identities))
}

fn naming_source(listing: &ProviderListing) -> NamingSource {
    NamingSource { kind: listing.kind, namespace: listing.namespace.clone() }
}

fn identities(listing: &ProviderListing) -> impl Iterator<Item = ToolIdentity> {
    listing.counted.iter().map(|&position| ToolIdentity {
        kind: listing.kind,
        namespace: listing.namespace.clone(),
        tool: listing.tools[position].name.clone(),
    })
}

/// Builds the entries of all providers. `before` returns the previous entries of a provider whose list has not changed.
fn entries<'s>(
    providers: &[Arc<dyn ToolProvider>],
    listings: &[ProviderListing],
    tools: &[NamedTool],
    before: impl Fn(usize) -> Option<&'s [Arc<CatalogEntry>]>,
) -> Vec<Arc<CatalogEntry>> {
    let mut entries: Vec<Arc<CatalogEntry>> = Vec::with_capacity(tools.len());
    for (origin, (provider, listing)) in providers.iter().zip(listings).enumerate() {
        let before = before(origin);
        for (nth, &position) in listing.counted.iter().enumerate() {
            let named = &tools[entries.len()];
            let reused = before.map(|before| &before[nth]).filter(|entry| entry.exposed == named.exposed);
            entries.push(
                reused.map_or_else(
                    || Arc::new(CatalogEntry::new(named, listing, position, provider)),
                    Arc::clone,
                ),
            );
        }
    }
    entries
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("tools", &self.entries.len()).finish_non_exhaustive()
    }
}

/// One tool in the catalog.
pub struct CatalogEntry {
    exposed: ToolName,
    identity: ToolIdentity,
    /// The provider's list that contains the definition.
    tools: Arc<[ToolDefinition]>,
    /// The compiled schemas and other values that are computed from this list.
    values: Arc<[DefinitionValues]>,
    position: usize,
    provider: Arc<dyn ToolProvider>,
    worked_out: EntryValues,
}

/// Values computed on first use, because most tools are never called. An entry belongs to one orchestrator, so its
/// policies never change.
#[derive(Default)]
struct EntryValues {
    governed: OnceLock<Box<GovernedTool>>,
    known: OnceLock<Arc<KnownTool>>,
}

impl CatalogEntry {
    fn new(
        named: &NamedTool,
        listing: &ProviderListing,
        position: usize,
        provider: &Arc<dyn ToolProvider>,
    ) -> Self {
        Self {
            exposed: named.exposed.clone(),
            identity: named.identity.clone(),
            tools: Arc::clone(&listing.tools),
            values: Arc::clone(&listing.values),
            position,
            provider: Arc::clone(provider),
            worked_out: EntryValues::default(),
        }
    }

    /// Returns the name that the model and other callers use.
    pub fn exposed(&self) -> &ToolName {
        &self.exposed
    }

    /// Returns the tool's provider, and its name at this provider.
    pub fn identity(&self) -> &ToolIdentity {
        &self.identity
    }

    /// Returns the provider's definition. Its `name` has no namespace.
    pub fn definition(&self) -> &ToolDefinition {
        &self.tools[self.position]
    }

    /// Returns the digest of the definition. It changes when the tool's definition changes.
    pub fn digest(&self) -> Digest {
        self.values().digest(self.definition())
    }

    /// Returns the tool in the form that events contain.
    pub(crate) fn known(&self) -> Arc<KnownTool> {
        let make = || KnownTool {
            exposed: self.exposed.clone(),
            identity: self.identity.clone(),
            description: self.definition().description.as_str().into(),
        };
        Arc::clone(self.worked_out.known.get_or_init(|| Arc::new(make())))
    }

    /// Returns the digest of the tool's source, for output stores that other processes read. Returns `None` if the
    /// provider panics.
    pub(crate) fn source_digest(&self, arguments: &ValidArguments) -> Option<Digest> {
        let ask = || self.provider.source_digest(&self.definition().name, arguments);
        catch_unwind(AssertUnwindSafe(ask)).ok().flatten()
    }

    pub(crate) fn provider(&self) -> &dyn ToolProvider {
        &*self.provider
    }

    pub(crate) fn schema(&self, draft: SchemaDraft) -> &Schema {
        self.values().schema(self.definition(), draft)
    }

    /// Returns the compiled output schema, or `None` for a tool without one.
    pub(crate) fn output_schema(&self, draft: SchemaDraft) -> Option<&Schema> {
        self.values().output_schema(self.definition(), draft)
    }

    /// Returns the tool in the form that the model receives.
    pub(crate) fn model_tool(&self) -> ModelTool {
        ModelTool {
            name: self.exposed.as_str().to_owned(),
            description: self.definition().description.clone(),
            input_schema: self.input_schema(),
            strict: false,
        }
    }

    /// Returns the name of the server or OpenAPI document from which the tool comes.
    pub fn source(&self) -> &str {
        let group = match self.identity.kind {
            ProviderKind::Rest => self.definition().groups.first(),
            ProviderKind::Builtin | ProviderKind::Mcp | ProviderKind::Agent | ProviderKind::Client => None,
        };
        group.map_or(self.identity.namespace.as_str(), GroupName::as_str)
    }

    /// Returns the input schema in the form that model requests contain. All requests with this tool share it.
    pub(crate) fn input_schema(&self) -> Arc<Value> {
        self.values().input_schema(self.definition())
    }

    fn values(&self) -> &DefinitionValues {
        &self.values[self.position]
    }

    pub(crate) fn governed(&self, policies: &ToolPolicies) -> &GovernedTool {
        self.worked_out.governed.get_or_init(|| Box::new(policies.govern(self)))
    }
}

impl fmt::Debug for CatalogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogEntry")
            .field("exposed", &self.exposed)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The result of a name lookup. Only a snapshot can create it.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedTool<'a> {
    entry: &'a CatalogEntry,
    matched: NameMatch,
}

impl<'a> ResolvedTool<'a> {
    /// Returns the tool to which the name refers.
    pub fn entry(&self) -> &'a CatalogEntry {
        self.entry
    }

    /// Returns the way in which the name matched.
    pub fn matched(&self) -> NameMatch {
        self.matched
    }
}
