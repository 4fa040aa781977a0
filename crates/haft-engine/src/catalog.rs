//! All tools there are now, by the names under which they are exposed.

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

/// The tools of all providers. What the model is shown and what may be called are decided elsewhere.
///
/// What is known is a [`Snapshot`], which never changes and is cheap to hold. When a provider announces that its list
/// changed, whoever asks next makes a new one; calls under way keep the one they began with.
pub struct Catalog {
    providers: Vec<Arc<dyn ToolProvider>>,
    config: CatalogConfig,
    /// Where providers announce changes, each counter once.
    changes: Vec<Changes>,
    current: RwLock<Arc<Snapshot>>,
    /// Held while a new snapshot is made, so that a change is looked at once.
    renewing: Mutex<()>,
}

/// What the operator decides about the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogConfig {
    pub scheme: Scheme,
    /// Tools that a provider lists beyond these are left out, and the operator is told.
    pub tools_per_provider_max: usize,
    /// How long a provider may take to make its tools ready.
    pub warmup_timeout: Duration,
    /// How long a provider may take to end what it keeps running.
    pub shutdown_timeout: Duration,
    /// How many providers are made ready, or ended, at the same time.
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
    /// As [`with`](Self::with) what holds when the operator says nothing else.
    pub fn new(providers: Vec<Arc<dyn ToolProvider>>, scheme: Scheme) -> Self {
        Self::with(providers, CatalogConfig { scheme, ..CatalogConfig::default() })
    }

    /// Lists every provider's tools. The order of the providers decides who keeps a name that collides.
    pub fn with(providers: Vec<Arc<dyn ToolProvider>>, config: CatalogConfig) -> Self {
        let changes = listing::changes(&providers);
        let seen = count(&changes);
        let current = RwLock::new(Arc::new(Snapshot::first(&providers, config, seen)));
        Self { providers, config, changes, current, renewing: Mutex::default() }
    }

    /// All that is known now. Costs two loads when nothing changed, however many tools there are.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let current = self.current();
        if current.seen == count(&self.changes) { current } else { self.renew() }
    }

    /// All tools, sorted by exposed name, so that what a model is shown is the same from run to run.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = Arc<CatalogEntry>> {
        let snapshot = self.snapshot();
        let tools: Vec<_> = snapshot.tools().cloned().collect();
        tools.into_iter()
    }

    /// The tool that a written name means whatever the arguments are, else the names nearest to it.
    pub fn resolve(&self, written: &str) -> Result<Arc<CatalogEntry>, Vec<ToolName>> {
        self.snapshot().find(written)
    }

    /// In the order they were given.
    pub fn providers(&self) -> &[Arc<dyn ToolProvider>] {
        &self.providers
    }

    /// What is wrong with the lists of providers, for the operator.
    pub fn warnings(&self) -> Vec<CatalogWarning> {
        self.snapshot().warnings().cloned().collect()
    }

    fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn renew(&self) -> Arc<Snapshot> {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted before the lists are read: what changes meanwhile is seen the next time.
        let seen = count(&self.changes);
        let before = self.current();
        if before.seen == seen {
            return before;
        }
        self.replace(&before, seen)
    }

    /// Lists all providers again, whether or not they announced anything.
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

/// Every counter only grows, so the sum is another one when any of them is.
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
