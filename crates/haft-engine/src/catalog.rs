//! All tools of all providers, by exposed name.

mod listing;
mod readiness;
mod snapshot;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use haft_core::changes::Changes;
use haft_core::name::ToolName;
use haft_core::naming::Scheme;
use haft_core::provider::ToolProvider;

pub use listing::CatalogWarning;
pub use readiness::PROVIDERS_AT_ONCE_MAX;
pub use snapshot::{CatalogEntry, ResolvedTool, Snapshot};

/// The tools of all providers. Other modules decide which tools a model sees and which it may call.
///
/// The catalog holds an immutable [`Snapshot`], which is cheap to share. When a provider announces a changed list, the
/// next reader builds a new snapshot; running calls keep the snapshot they started with.
pub struct Catalog {
    providers: Vec<Arc<dyn ToolProvider>>,
    config: CatalogConfig,
    /// The change counters of the providers. A counter that providers share appears once.
    changes: Vec<Changes>,
    current: RwLock<Arc<Snapshot>>,
    /// Held while a thread builds a snapshot, so that concurrent readers build only one per change.
    renewing: Mutex<()>,
}

/// The operator's settings for the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogConfig {
    pub scheme: Scheme,
    /// The most tools that the catalog takes from one provider. It drops the rest and warns the operator.
    pub tools_per_provider_max: usize,
    /// The longest time for a provider's warm-up.
    pub warmup_timeout: Duration,
    /// The longest time for a provider's shutdown.
    pub shutdown_timeout: Duration,
    /// The most providers that warm up or shut down at the same time.
    pub providers_at_once_max: usize,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            scheme: Scheme::default(),
            tools_per_provider_max: 10_000,
            warmup_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(10),
            providers_at_once_max: PROVIDERS_AT_ONCE_MAX,
        }
    }
}

impl Catalog {
    /// Calls [`with`](Self::with) with default settings.
    pub fn new(providers: Vec<Arc<dyn ToolProvider>>, scheme: Scheme) -> Self {
        Self::with(providers, CatalogConfig { scheme, ..CatalogConfig::default() })
    }

    /// Lists the tools of every provider. If names collide, the earlier provider keeps the name.
    pub fn with(providers: Vec<Arc<dyn ToolProvider>>, config: CatalogConfig) -> Self {
        let changes = listing::changes(&providers);
        let seen = count(&changes);
        let current = RwLock::new(Arc::new(Snapshot::first(&providers, config, seen)));
        Self { providers, config, changes, current, renewing: Mutex::default() }
    }

    /// Returns the current snapshot. If no list changed, the cost does not depend on the number of tools.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let current = self.current();
        if current.seen == count(&self.changes) { current } else { self.renew() }
    }

    /// Returns all tools, sorted by exposed name, so that the model sees the same order in every run.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = Arc<CatalogEntry>> {
        let snapshot = self.snapshot();
        let tools: Vec<_> = snapshot.tools().cloned().collect();
        tools.into_iter()
    }

    /// Returns the tool of a name independently of arguments, else the most similar names.
    pub fn resolve(&self, written: &str) -> Result<Arc<CatalogEntry>, Vec<ToolName>> {
        self.snapshot().find(written)
    }

    /// Returns the providers in the order of construction.
    pub fn providers(&self) -> &[Arc<dyn ToolProvider>] {
        &self.providers
    }

    /// Returns the operator's warnings about the providers' tool lists.
    pub fn warnings(&self) -> Vec<CatalogWarning> {
        self.snapshot().warnings().cloned().collect()
    }

    fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn renew(&self) -> Arc<Snapshot> {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        // Read the counters before the lists: a change during the rebuild then triggers another rebuild.
        let seen = count(&self.changes);
        let before = self.current();
        if before.seen == seen {
            return before;
        }
        self.replace(&before, seen)
    }

    /// Lists all providers again, even without an announcement.
    fn refresh(&self) {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = count(&self.changes);
        self.replace(&self.current(), seen);
    }

    fn replace(&self, before: &Snapshot, seen: u64) -> Arc<Snapshot> {
        let renewed = Arc::new(before.renewed(&self.providers, self.config, seen));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&renewed);
        renewed
    }
}

/// Sums the counters. Each counter only grows, so the sum changes when any counter does.
fn count(changes: &[Changes]) -> u64 {
    changes.iter().map(Changes::count).fold(0, u64::wrapping_add)
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("config", &self.config)
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}
