//! All tools of all providers, by exposed name.

mod definitions;
mod listing;
mod readiness;
mod snapshot;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::select_all;
use haft_core::change_counter::ChangeCounter;
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::provider::ToolProvider;

pub use definitions::SharedDefinitions;
pub use listing::CatalogWarning;
pub use readiness::PROVIDERS_AT_ONCE_MAX;
use snapshot::NameMemory;
pub use snapshot::{CatalogEntry, ResolvedTool, Snapshot};

/// The tools of all providers. Other modules decide which tools a model sees and which it may call.
///
/// The catalog holds an immutable [`Snapshot`], which is cheap to share. When a provider announces that its list has
/// changed, the next reader builds a new snapshot. Running calls keep the snapshot with which they started.
///
/// After the first time that a caller lists or looks up tools, every tool keeps its exposed name. Before that, each new
/// snapshot assigns all names again, so that they do not depend on the order in which servers become ready.
pub struct Catalog {
    config: CatalogConfig,
    current: RwLock<Arc<Snapshot>>,
    /// Locked while a thread builds a snapshot, so that concurrent readers build only one per change.
    renewing: Mutex<()>,
    /// Counts the additions and removals of providers.
    membership: ChangeCounter,
    /// True after a caller may have seen exposed names.
    names_seen: AtomicBool,
}

/// The providers of a catalog.
pub(crate) struct CatalogSources {
    providers: Arc<[Arc<dyn ToolProvider>]>,
    /// The change counters of the providers, without duplicates, and `announced`.
    changes: Vec<ChangeCounter>,
    definitions: SharedDefinitions,
    /// Announces changes that come from no provider, such as a tool that an administrator turned off.
    announced: ChangeCounter,
}

impl CatalogSources {
    fn of(
        providers: Vec<Arc<dyn ToolProvider>>,
        definitions: SharedDefinitions,
        announced: ChangeCounter,
    ) -> Arc<Self> {
        let mut changes = listing::changes(&providers);
        changes.push(announced.clone());
        Arc::new(Self { providers: providers.into(), changes, definitions, announced })
    }

    /// Returns the sum of the counters. Counters only grow, so the sum changes when any of them does.
    fn count(&self) -> u64 {
        self.changes.iter().map(ChangeCounter::count).fold(0, u64::wrapping_add)
    }
}

/// The operator's settings for the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogConfig {
    /// The scheme that builds exposed names from the provider's namespace and the tool's own name.
    pub scheme: NamingScheme,
    /// The maximum number of tools that the catalog accepts from one provider. It drops the rest and warns the
    /// operator.
    pub tools_per_provider_max: usize,
    /// The time limit for a provider's warm-up.
    pub warmup_timeout: Duration,
    /// The time limit for a provider's shutdown.
    pub shutdown_timeout: Duration,
    /// The maximum number of providers that warm up or shut down at the same time.
    pub providers_at_once_max: usize,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            scheme: NamingScheme::default(),
            tools_per_provider_max: 10_000,
            warmup_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
            providers_at_once_max: PROVIDERS_AT_ONCE_MAX,
        }
    }
}

impl Catalog {
    /// Calls [`with`](Self::with) with default settings.
    pub fn new(providers: Vec<Arc<dyn ToolProvider>>, scheme: NamingScheme) -> Self {
        Self::with(providers, CatalogConfig { scheme, ..CatalogConfig::default() })
    }

    /// Creates a catalog with the tools of every provider. Tools whose names collide get a digest of their identity as
    /// a suffix.
    pub fn with(providers: Vec<Arc<dyn ToolProvider>>, config: CatalogConfig) -> Self {
        Self::sharing(providers, config, SharedDefinitions::default(), ChangeCounter::default())
    }

    /// Creates a catalog like [`with`](Self::with) that shares compiled schemas with other catalogs. `announced` makes
    /// the catalog build a new snapshot, like a changed list of a provider.
    pub fn sharing(
        providers: Vec<Arc<dyn ToolProvider>>,
        config: CatalogConfig,
        definitions: SharedDefinitions,
        announced: ChangeCounter,
    ) -> Self {
        let sources = CatalogSources::of(providers, definitions, announced);
        let seen = sources.count();
        let current = RwLock::new(Arc::new(Snapshot::first(sources, config, seen)));
        Self {
            config,
            current,
            renewing: Mutex::default(),
            membership: ChangeCounter::default(),
            names_seen: AtomicBool::new(false),
        }
    }

    /// Adds a provider. The next call sees its tools, but running calls do not. No existing tool changes its name.
    pub fn add(&self, provider: Arc<dyn ToolProvider>) {
        let added = |before: &[Arc<dyn ToolProvider>]| before.iter().cloned().chain([provider]).collect();
        self.change(added);
    }

    /// Removes the providers of a namespace and returns them. Running calls finish; the caller must shut down the
    /// providers.
    pub fn remove(&self, namespace: &Namespace) -> Vec<Arc<dyn ToolProvider>> {
        let mut removed = Vec::new();
        self.change(|before| {
            let (gone, others) =
                before.iter().cloned().partition(|provider| provider.namespace() == namespace);
            removed = gone;
            others
        });
        removed
    }

    fn change(&self, change: impl FnOnce(&[Arc<dyn ToolProvider>]) -> Vec<Arc<dyn ToolProvider>>) {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let CatalogSources { providers, definitions, announced, .. } = &*before.sources;
        let sources = CatalogSources::of(change(providers), definitions.clone(), announced.clone());
        let seen = sources.count();
        self.replace(&before, sources, seen);
        self.membership.announce();
    }

    /// Waits until a provider announces a changed tool list, or until a provider is added or removed. Returns the new
    /// snapshot.
    pub async fn changed(&self, seen: &Arc<Snapshot>) -> Arc<Snapshot> {
        loop {
            let current = self.snapshot();
            if !Arc::ptr_eq(&current, seen) {
                return current;
            }
            let counters = current.sources.changes.iter().chain([&self.membership]);
            let waits: Vec<_> = counters.map(|changes| Box::pin(changes.changed(changes.count()))).collect();
            // The counters were read before this check, so no announcement is missed.
            if !Arc::ptr_eq(&self.snapshot(), seen) {
                continue;
            }
            select_all(waits).await;
        }
    }

    /// Returns the current snapshot. If no list has changed, the cost does not depend on the number of tools.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let current = self.current();
        if current.seen == current.sources.count() { current } else { self.renew() }
    }

    /// Returns all tools, sorted by exposed name, so that the model sees the same order in every run.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = Arc<CatalogEntry>> {
        let snapshot = self.named_snapshot();
        let tools: Vec<_> = snapshot.tools().cloned().collect();
        tools.into_iter()
    }

    /// Returns the tool with a name, without considering arguments, or else the most similar names.
    pub fn resolve(&self, written: &str) -> Result<Arc<CatalogEntry>, Vec<ToolName>> {
        self.named_snapshot().find(written)
    }

    /// Returns the current snapshot for a caller that uses exposed names. From now on, tools keep their names.
    pub(crate) fn named_snapshot(&self) -> Arc<Snapshot> {
        if !self.names_seen.load(Ordering::Acquire) {
            // Wait for a snapshot that is being built, because it may assign names again.
            let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
            self.names_seen.store(true, Ordering::Release);
        }
        self.snapshot()
    }

    /// Returns the providers in the order in which they were added.
    pub fn providers(&self) -> Arc<[Arc<dyn ToolProvider>]> {
        Arc::clone(&self.current().sources.providers)
    }

    /// Returns the warnings for the operator about the providers' tool lists.
    pub fn warnings(&self) -> Vec<CatalogWarning> {
        self.snapshot().warnings().cloned().collect()
    }

    fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn renew(&self) -> Arc<Snapshot> {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        // Read the counters before the lists. A change during the rebuild then causes another rebuild.
        let before = self.current();
        let seen = before.sources.count();
        if before.seen == seen {
            return before;
        }
        self.replace(&before, Arc::clone(&before.sources), seen)
    }

    /// Lists the tools of all providers again, even without an announcement. Keeps the snapshot if no list has changed,
    /// because runs that share a catalog refresh it at each start.
    fn refresh(&self) {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current();
        let seen = before.sources.count();
        if before.seen == seen && before.has_current_lists() {
            return;
        }
        self.replace(&before, Arc::clone(&before.sources), seen);
    }

    fn replace(&self, before: &Snapshot, sources: Arc<CatalogSources>, seen: u64) -> Arc<Snapshot> {
        let memory =
            if self.names_seen.load(Ordering::Acquire) { NameMemory::Kept } else { NameMemory::None };
        let renewed = Arc::new(before.renewed(sources, self.config, seen, memory));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&renewed);
        renewed
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("config", &self.config)
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}
