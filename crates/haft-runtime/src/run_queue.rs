//! The queue of all root runs of a process. It limits the number of concurrent runs, and treats tenants fairly.
//!
//! Sub-agents do not enter the queue. Otherwise runs that wait for their sub-agents could hold all slots, and no
//! sub-agent could start.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunQueueLimits {
    /// The maximum number of runs that are driven at the same time.
    pub concurrent_runs_max: usize,
    /// The maximum number of waiting runs.
    pub waiting_runs_max: usize,
}

impl RunQueueLimits {
    /// No limits, for a program that decides itself when each run starts.
    pub const UNLIMITED: Self = Self { concurrent_runs_max: usize::MAX, waiting_runs_max: usize::MAX };
}

/// The reason why the queue refuses a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunQueueFull {
    /// The tenant already has as many waiting runs as one tenant may have now.
    #[error("the run queue has too many waiting runs of this tenant; try again later")]
    ForTenant,
    /// The queue has the maximum number of waiting runs.
    #[error("the run queue has too many waiting runs; try again later")]
    ForAll,
}

/// Selects whether the queue may refuse a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueEntry {
    /// The limit of waiting runs applies.
    #[default]
    Limited,
    /// An earlier process accepted the run, so it must not be refused now.
    Accepted,
}

/// The state of a queue at one moment, and its counters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunQueueStats {
    /// The number of runs that are driven now.
    pub running: usize,
    /// The number of waiting runs.
    pub waiting: usize,
    /// The time that the oldest waiting run has waited so far.
    pub oldest_wait: Duration,
    /// The number of runs that were admitted, including runs that did not wait.
    pub admitted_total: u64,
    /// The total time that the admitted runs waited.
    pub waited_total: Duration,
    /// The number of runs that were refused because their tenant had too many waiting runs.
    pub refused_for_tenant_total: u64,
    /// The number of runs that were refused because the queue was full.
    pub refused_for_all_total: u64,
}

/// The queue with the running and waiting runs of all tenants. Clones share the same queue.
#[derive(Debug, Clone)]
pub struct RunQueue(Arc<Mutex<QueueState>>);

/// The place of one run in the queue. Dropping it removes a waiting run, or frees the slot of an admitted run.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    queue: RunQueue,
    tenant: String,
    number: u64,
    /// The channel that announces the admission of the run; `None` after the run was admitted.
    admission: Option<oneshot::Receiver<()>>,
}

#[derive(Debug)]
struct QueueState {
    limits: RunQueueLimits,
    /// The tenants that have a run in the queue.
    tenants: BTreeMap<String, TenantRuns>,
    next_number: u64,
    stats: RunQueueStats,
}

#[derive(Debug, Default)]
struct TenantRuns {
    running: usize,
    waiting: VecDeque<WaitingRun>,
    /// The value of `admitted_total` when the queue last admitted a run of this tenant, or when its first run arrived.
    last_turn: u64,
}

#[derive(Debug)]
struct WaitingRun {
    number: u64,
    since: Instant,
    admit: oneshot::Sender<()>,
}

impl Default for RunQueue {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(QueueState {
            limits: RunQueueLimits::UNLIMITED,
            tenants: BTreeMap::new(),
            next_number: 0,
            stats: RunQueueStats::default(),
        })))
    }
}

impl RunQueue {
    /// Replaces the limits of the queue. Running and waiting runs stay in the queue, even if they exceed the new
    /// limits.
    pub fn set_limits(&self, limits: RunQueueLimits) {
        let mut state = self.state();
        state.limits = limits;
        state.admit_next(Instant::now());
    }

    /// Returns the current state and the counters of the queue.
    pub fn stats(&self) -> RunQueueStats {
        let state = self.state();
        let heads = state.tenants.values().filter_map(|tenant| tenant.waiting.front());
        let oldest_wait = heads.map(|run| run.since.elapsed()).max().unwrap_or_default();
        RunQueueStats { oldest_wait, ..state.stats }
    }

    /// Returns the numbers of running and of waiting runs of a tenant.
    pub fn of_tenant(&self, tenant: &str) -> (usize, usize) {
        self.state().tenants.get(tenant).map_or((0, 0), |runs| (runs.running, runs.waiting.len()))
    }

    /// Adds a run of a tenant.
    pub(crate) fn enter(&self, tenant: &str, entry: QueueEntry) -> Result<QueuePlace, RunQueueFull> {
        let mut state = self.state();
        let must_wait = state.stats.waiting > 0 || state.stats.running >= state.limits.concurrent_runs_max;
        if must_wait && entry == QueueEntry::Limited {
            state.check_space(tenant)?;
        }
        let (admit, admission) = oneshot::channel();
        let number = state.join(tenant, admit);
        state.admit_next(Instant::now());
        drop(state);
        Ok(QueuePlace { queue: self.clone(), tenant: tenant.to_owned(), number, admission: Some(admission) })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuePlace {
    /// Waits until the queue admits the run. Cancelling this future keeps the run's place in the queue.
    pub(crate) async fn admitted(&mut self) {
        if let Some(admission) = &mut self.admission {
            // Ignore the error: the queue drops the sender only after it has admitted the run.
            let _ = admission.await;
            self.admission = None;
        }
    }

    /// Returns true if the run is admitted.
    pub(crate) fn is_admitted(&mut self) -> bool {
        if self.admission.as_mut().is_some_and(|admission| admission.try_recv().is_ok()) {
            self.admission = None;
        }
        self.admission.is_none()
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        self.queue.state().leave(&self.tenant, self.number);
    }
}

impl QueueState {
    /// Refuses a run if its tenant already has as many waiting runs as the queue has free places. So one tenant can
    /// fill at most half of the queue, which leaves places for other tenants.
    fn check_space(&mut self, tenant: &str) -> Result<(), RunQueueFull> {
        let free = self.limits.waiting_runs_max.saturating_sub(self.stats.waiting);
        let waiting = self.tenants.get(tenant).map_or(0, |runs| runs.waiting.len());
        if free == 0 {
            self.stats.refused_for_all_total += 1;
            Err(RunQueueFull::ForAll)
        } else if waiting >= free {
            self.stats.refused_for_tenant_total += 1;
            Err(RunQueueFull::ForTenant)
        } else {
            Ok(())
        }
    }

    fn join(&mut self, tenant: &str, admit: oneshot::Sender<()>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.stats.waiting += 1;
        let last_turn = self.stats.admitted_total;
        let runs = self.tenants.entry(tenant.to_owned());
        let runs = runs.or_insert_with(|| TenantRuns { last_turn, ..TenantRuns::default() });
        runs.waiting.push_back(WaitingRun { number, since: Instant::now(), admit });
        number
    }

    /// Admits waiting runs while slots are free.
    fn admit_next(&mut self, now: Instant) {
        while self.stats.running < self.limits.concurrent_runs_max {
            let Some(runs) = next_tenant(&mut self.tenants) else { return };
            let Some(run) = runs.waiting.pop_front() else { return };
            runs.running += 1;
            self.stats.waiting -= 1;
            self.stats.running += 1;
            self.stats.admitted_total += 1;
            runs.last_turn = self.stats.admitted_total;
            self.stats.waited_total += now.saturating_duration_since(run.since);
            // Ignore the error: if the run has just left the queue, dropping its place frees the slot.
            let _ = run.admit.send(());
        }
    }

    fn leave(&mut self, tenant: &str, number: u64) {
        let Some(runs) = self.tenants.get_mut(tenant) else { return };
        if let Some(at) = runs.waiting.iter().position(|run| run.number == number) {
            runs.waiting.remove(at);
            self.stats.waiting -= 1;
        } else {
            runs.running -= 1;
            self.stats.running -= 1;
        }
        if runs.running == 0 && runs.waiting.is_empty() {
            self.tenants.remove(tenant);
        }
        self.admit_next(Instant::now());
    }
}

/// Returns the tenant whose run is admitted next: the tenant with the fewest running runs, then the one that has waited
/// longest for its turn, then the one with the fewest waiting runs.
fn next_tenant(tenants: &mut BTreeMap<String, TenantRuns>) -> Option<&mut TenantRuns> {
    let waiting = tenants.values_mut().filter(|runs| !runs.waiting.is_empty());
    waiting.min_by_key(|runs| (runs.running, runs.last_turn, runs.waiting.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(concurrent_runs_max: usize, waiting_runs_max: usize) -> RunQueue {
        let queue = RunQueue::default();
        queue.set_limits(RunQueueLimits { concurrent_runs_max, waiting_runs_max });
        queue
    }

    fn enter(queue: &RunQueue, tenant: &str) -> QueuePlace {
        queue.enter(tenant, QueueEntry::Limited).unwrap()
    }

    fn counts(queue: &RunQueue) -> (usize, usize) {
        (queue.stats().running, queue.stats().waiting)
    }

    /// Ends the admitted runs one after the other, and returns the tenants of the runs in this order.
    fn order(mut places: Vec<QueuePlace>) -> String {
        let mut order = String::new();
        while let Some(at) = places.iter_mut().position(QueuePlace::is_admitted) {
            order.push_str(&places.remove(at).tenant);
        }
        assert!(places.is_empty(), "{places:?}");
        order
    }

    #[test]
    fn many_waiting_runs_of_a_tenant_do_not_delay_another_tenant() {
        let queue = queue(1, 1_000);
        let mut places: Vec<QueuePlace> = (0..101).map(|_| enter(&queue, "a")).collect();
        places.push(enter(&queue, "b"));
        let order = order(places);
        assert_eq!(order.find('b'), Some(1), "tenant b is second: {order}");
    }

    #[test]
    fn tenants_take_turns_and_share_the_slots_equally() {
        let queue = queue(1, 100);
        let places = "aaaabbbc".split("").filter(|name| !name.is_empty());
        assert_eq!(order(places.map(|name| enter(&queue, name)).collect()), "acababab");
        let queue = super::tests::queue(4, 100);
        let mut places: Vec<QueuePlace> =
            "aaaaaabbbb".chars().map(|name| enter(&queue, &name.to_string())).collect();
        places.drain(..2);
        assert_eq!(
            (queue.of_tenant("a"), queue.of_tenant("b")),
            ((2, 2), (2, 2)),
            "each tenant has half of the slots"
        );
    }

    #[test]
    fn new_tenants_cannot_overtake_a_waiting_tenant_forever() {
        let queue = queue(1, 100);
        let mut working = enter(&queue, "a");
        let mut waiting = enter(&queue, "w");
        let mut others = 0;
        while !waiting.is_admitted() {
            let mut next = enter(&queue, &format!("other {others}"));
            drop(working);
            others += 1;
            assert!(others < 10, "the waiting run was overtaken ten times");
            working = if next.is_admitted() { next } else { enter(&queue, "a") };
        }
    }

    #[test]
    fn run_queue_refuses_a_run_if_the_queue_is_full_or_half_full_with_runs_of_its_tenant() {
        let queue = queue(1, 4);
        let _working = enter(&queue, "a");
        let _waiting = [enter(&queue, "a"), enter(&queue, "a")];
        let refused = |tenant: &str| queue.enter(tenant, QueueEntry::Limited).unwrap_err();
        assert_eq!(refused("a"), RunQueueFull::ForTenant);
        let _others = [enter(&queue, "b"), enter(&queue, "c")];
        assert_eq!(refused("d"), RunQueueFull::ForAll);
        let stats = queue.stats();
        assert_eq!((stats.refused_for_tenant_total, stats.refused_for_all_total), (1, 1));
        let accepted = queue.enter("a", QueueEntry::Accepted).unwrap();
        assert_eq!(counts(&queue), (1, 5));
        drop(accepted);
        assert_eq!(counts(&queue), (1, 4));
    }

    #[test]
    fn cancelled_run_leaves_the_queue_and_frees_its_slot() {
        let queue = queue(1, 10);
        let (working, gone, mut next) = (enter(&queue, "a"), enter(&queue, "a"), enter(&queue, "a"));
        drop(gone);
        assert_eq!((counts(&queue), next.is_admitted()), ((1, 1), false));
        drop(working);
        assert_eq!((counts(&queue), next.is_admitted()), ((1, 0), true));
        drop(next);
        assert_eq!(counts(&queue), (0, 0));
        assert!(queue.state().tenants.is_empty(), "the queue keeps no tenant without runs");
    }

    #[test]
    fn raised_queue_limit_admits_waiting_runs_at_once() {
        let queue = queue(1, 10);
        let mut places = [enter(&queue, "a"), enter(&queue, "a"), enter(&queue, "a")];
        queue.set_limits(RunQueueLimits { concurrent_runs_max: 2, waiting_runs_max: 0 });
        let admitted: Vec<bool> = places.iter_mut().map(QueuePlace::is_admitted).collect();
        assert_eq!(admitted, [true, true, false]);
    }
}
