//! Making providers ready and ending them: all at the same time, none for ever, each on its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use haft_core::provider::ToolProvider;
use haft_core::result::ToolError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::listing::name_of;
use super::{Catalog, CatalogWarning};

/// How many providers are made ready, or ended, at the same time when nobody says otherwise.
pub const PROVIDERS_AT_ONCE_MAX: usize = 16;

impl Catalog {
    /// Makes the tools of all providers ready. What fails, panics or takes too long is told, and touches no other.
    pub async fn warm_up(&self) -> Vec<CatalogWarning> {
        let warnings = self.with_each(Work::WarmUp, self.config.warmup_timeout).await;
        // A provider may have found its tools only now, and not every provider announces.
        self.refresh();
        warnings
    }

    /// Ends what providers keep running between calls.
    pub async fn shut_down(&self) -> Vec<CatalogWarning> {
        self.with_each(Work::ShutDown, self.config.shutdown_timeout).await
    }

    /// The warnings stand in the order of the providers.
    async fn with_each(&self, work: Work, time: Duration) -> Vec<CatalogWarning> {
        let one = |provider: &Arc<dyn ToolProvider>| alone(Arc::clone(provider), work, time);
        let all: Vec<_> = self.providers.iter().map(one).collect();
        let warnings = stream::iter(all).buffered(self.config.providers_at_once_max.max(1));
        warnings.filter_map(std::future::ready).collect().await
    }
}

#[derive(Debug, Clone, Copy)]
enum Work {
    WarmUp,
    ShutDown,
}

impl Work {
    async fn on(self, provider: &dyn ToolProvider) -> Result<(), ToolError> {
        match self {
            Work::WarmUp => provider.warmup().await,
            Work::ShutDown => {
                provider.shutdown().await;
                Ok(())
            }
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            Work::WarmUp => "make its tools ready",
            Work::ShutDown => "end",
        }
    }
}

/// In a task of its own: a panic stays there, and where there are several threads so does one that blocks. Dropped, the
/// task ends.
async fn alone(provider: Arc<dyn ToolProvider>, work: Work, time: Duration) -> Option<CatalogWarning> {
    let name = name_of(&*provider);
    let purpose = work.purpose();
    let mut task = JoinSet::new();
    task.spawn(async move { work.on(&*provider).await });
    let message = match timeout(time, task.join_next()).await {
        Ok(Some(Ok(Ok(()))) | None) => return None,
        Ok(Some(Ok(Err(error)))) => format!("it could not {purpose}: {}", error.message),
        Ok(Some(Err(_))) => format!("it panicked when it was to {purpose}"),
        Err(_) => format!("it took more than {} ms to {purpose} and was left behind", time.as_millis()),
    };
    Some(CatalogWarning { provider: name, message })
}
