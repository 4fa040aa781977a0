//! All tools there are now, by the names under which they are exposed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use haft_core::digest::Digest;
use haft_core::event::KnownTool;
use haft_core::name::ToolName;
use haft_core::naming::{Match, NameTable, Resolution, Scheme, ToolIdentity};
use haft_core::provider::ToolProvider;
use haft_core::tool::ToolDefinition;
use haft_core::validate::Schema;

/// The tools of all providers. What the model is shown and what may be called are decided elsewhere.
#[derive(Debug)]
pub struct Catalog {
    names: NameTable,
    /// In the order of the name table.
    entries: Vec<CatalogEntry>,
    /// Positions in `entries`, by exposed name.
    sorted: Vec<usize>,
    providers: Providers,
}

impl Catalog {
    /// Takes a snapshot of every provider's tools. The order of the providers decides who keeps a name that collides.
    pub fn new(providers: Vec<Arc<dyn ToolProvider>>, scheme: Scheme) -> Self {
        let offers: Vec<_> = providers.iter().flat_map(offers).collect();
        let names = NameTable::build(scheme, offers.iter().map(|offer| offer.identity.clone()));
        let entries: Vec<_> = names
            .tools()
            .iter()
            .zip(offers)
            .map(|(named, offer)| CatalogEntry {
                exposed: named.exposed.clone(),
                offer,
                schema: OnceLock::new(),
                digest: OnceLock::new(),
                known: OnceLock::new(),
            })
            .collect();
        let mut sorted: Vec<_> = (0..entries.len()).collect();
        sorted.sort_by(|&left, &right| entries[left].exposed.cmp(&entries[right].exposed));
        Self { names, entries, sorted, providers: Providers(providers) }
    }

    /// All tools, sorted by exposed name, so that what a model is shown is the same from run to run.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &CatalogEntry> {
        self.sorted.iter().map(|&position| &self.entries[position])
    }

    /// The tools that a model is shown at the moment, sorted as [`tools`](Self::tools): those of no use now are left out.
    pub fn shown(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.tools().filter(|entry| entry.provider().is_shown())
    }

    /// In the order they were given.
    pub fn providers(&self) -> &[Arc<dyn ToolProvider>] {
        &self.providers.0
    }

    /// The tool that a written name means, else the names nearest to it.
    pub fn resolve(&self, written: &str) -> Result<ResolvedTool<'_>, Vec<ToolName>> {
        match self.names.resolve(written) {
            Resolution::Known { tool, matched } => {
                Ok(ResolvedTool { entry: &self.entries[tool.index], matched })
            }
            Resolution::Unknown { nearest } => Err(nearest),
        }
    }
}

/// One tool of the catalog.
#[derive(Debug)]
pub struct CatalogEntry {
    exposed: ToolName,
    offer: Offer,
    /// Compiled when the tool is first called: most tools never are.
    schema: OnceLock<Schema>,
    digest: OnceLock<Digest>,
    /// Made at the first call and shared by all others.
    known: OnceLock<Arc<KnownTool>>,
}

impl CatalogEntry {
    /// The name by which askers know the tool.
    pub fn exposed(&self) -> &ToolName {
        &self.exposed
    }

    pub fn identity(&self) -> &ToolIdentity {
        &self.offer.identity
    }

    /// As the provider describes it; its `name` is the provider's own.
    pub fn definition(&self) -> &ToolDefinition {
        self.offer.definition()
    }

    /// Of the definition: a tool that changed has another one.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of_definition(self.offer.definition()))
    }

    /// The tool as those who watch are told of it.
    pub(crate) fn known(&self) -> Arc<KnownTool> {
        let make = || KnownTool {
            exposed: self.exposed.clone(),
            identity: self.identity().clone(),
            description: self.definition().description.as_str().into(),
        };
        Arc::clone(self.known.get_or_init(|| Arc::new(make())))
    }

    pub(crate) fn provider(&self) -> &dyn ToolProvider {
        &*self.offer.provider
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| Schema::compile(&self.offer.definition().input_schema))
    }
}

/// A tool that a written name led to. Only [`Catalog::resolve`] makes one.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedTool<'a> {
    entry: &'a CatalogEntry,
    matched: Match,
}

impl<'a> ResolvedTool<'a> {
    pub fn entry(&self) -> &'a CatalogEntry {
        self.entry
    }

    /// How the written name was recognised.
    pub fn matched(&self) -> Match {
        self.matched
    }
}

/// A tool and who gives it.
struct Offer {
    identity: ToolIdentity,
    /// The provider's snapshot, shared by all its tools: to copy 10,000 schemas is most of what a catalog would cost.
    tools: Arc<[ToolDefinition]>,
    position: usize,
    provider: Arc<dyn ToolProvider>,
}

impl Offer {
    fn definition(&self) -> &ToolDefinition {
        &self.tools[self.position]
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Providers have no `Debug` of their own; their namespaces say enough.
struct Providers(Vec<Arc<dyn ToolProvider>>);

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|provider| provider.namespace())).finish()
    }
}

fn offers(provider: &Arc<dyn ToolProvider>) -> Vec<Offer> {
    let identity = |tool: &ToolName| ToolIdentity {
        kind: provider.kind(),
        namespace: provider.namespace().clone(),
        tool: tool.clone(),
    };
    let tools = provider.tools();
    let offer = |(position, definition): (usize, &ToolDefinition)| Offer {
        identity: identity(&definition.name),
        tools: Arc::clone(&tools),
        position,
        provider: Arc::clone(provider),
    };
    tools.iter().enumerate().map(offer).collect()
}
