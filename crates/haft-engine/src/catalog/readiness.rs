//! Warms up and shuts down providers: concurrently, with a timeout, and isolated from each other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use haft_core::duration_text;
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::listing::name_of;
use super::{Catalog, CatalogWarning};

/// The default number of providers that warm up or shut down at the same time.
pub const PROVIDERS_AT_ONCE_MAX: usize = 16;

impl Catalog {
    /// Warms up all providers. A provider that fails, panics or times out yields a warning and does not affect the
    /// others.
    pub async fn warm_up(&self) -> Vec<CatalogWarning> {
        let warnings = self.for_each_provider(LifecycleStep::WarmUp, self.config.warmup_timeout).await;
        // A provider may have its tools only after warm-up, and not every provider announces changes.
        self.refresh();
        warnings
    }

    /// Shuts down all providers, ending the processes and connections that they keep between calls.
    pub async fn shut_down(&self) -> Vec<CatalogWarning> {
        self.for_each_provider(LifecycleStep::ShutDown, self.config.shutdown_timeout).await
    }

    /// Runs a step for all providers, and returns the warnings in provider order.
    async fn for_each_provider(&self, work: LifecycleStep, time: Duration) -> Vec<CatalogWarning> {
        let one = |provider: &Arc<dyn ToolProvider>| alone(Arc::clone(provider), work, time);
        let all: Vec<_> = self.providers().iter().map(one).collect();
        let warnings = stream::iter(all).buffered(self.config.providers_at_once_max.max(1));
        warnings.filter_map(std::future::ready).collect().await
    }
}

#[derive(Debug, Clone, Copy)]
enum LifecycleStep {
    WarmUp,
    ShutDown,
}

impl LifecycleStep {
    async fn on(self, provider: &dyn ToolProvider) -> Result<(), ToolError> {
        match self {
            LifecycleStep::WarmUp => provider.warmup().await,
            LifecycleStep::ShutDown => {
                provider.shutdown().await;
                Ok(())
            }
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            LifecycleStep::WarmUp => "prepare its tools",
            LifecycleStep::ShutDown => "shut down",
        }
    }
}

/// Runs the work in its own task, so that a panic or, on a multi-threaded runtime, a blocking provider affects only
/// this task. Dropping the future aborts the task.
async fn alone(
    provider: Arc<dyn ToolProvider>,
    work: LifecycleStep,
    time: Duration,
) -> Option<CatalogWarning> {
    let (name, kind) = (name_of(&*provider), provider.kind());
    let purpose = work.purpose();
    let mut task = JoinSet::new();
    task.spawn(async move { work.on(&*provider).await });
    let message = match timeout(time, task.join_next()).await {
        Ok(Some(Ok(Ok(()))) | None) => return None,
        // The error of an MCP server is a sentence that names the server.
        Ok(Some(Ok(Err(error)))) if kind == ProviderKind::Mcp => error.message,
        Ok(Some(Ok(Err(error)))) => format!("the provider could not {purpose}: {}", error.message),
        Ok(Some(Err(_))) => format!("the provider panicked while trying to {purpose}"),
        Err(_) => {
            let time = duration_text::in_words(time);
            format!("the provider took more than {time} to {purpose}; haft no longer waits for it")
        }
    };
    Some(CatalogWarning { provider: name, message })
}
