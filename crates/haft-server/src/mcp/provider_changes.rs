//! Waits until any provider reports that its tools changed.

use std::time::Duration;

use futures_util::future::{FutureExt, select_all};
use haft_core::change_counter::ChangeCounter;
use haft_engine::Orchestrator;

/// The time to wait for further changes before a change is handled. Servers often announce several changes at once.
pub(super) const LIST_SETTLE_TIME: Duration = Duration::from_millis(100);

/// Returns the change counters of all providers, with their current counts.
pub(super) fn change_counts(orchestrator: &Orchestrator) -> Vec<(ChangeCounter, u64)> {
    let providers = orchestrator.catalog().providers();
    let counters = providers.iter().filter_map(|provider| provider.changes());
    counters.map(|counter| (counter.clone(), counter.count())).collect()
}

/// Waits until a counter differs from the count that was read with it. Never returns if there are no counters.
pub(super) async fn any_change(counted: &[(ChangeCounter, u64)]) {
    if counted.is_empty() {
        std::future::pending::<()>().await;
    }
    select_all(counted.iter().map(|(counter, count)| counter.changed(*count).boxed())).await;
}
