//! Measures the time for which a run waits for a person or its caller. This time is not part of the run's own time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The total time for which a run, or an agent that works for it, was parked (waiting). If several agents are parked at
/// the same time, the clock counts this time once.
#[derive(Default)]
pub struct ParkClock {
    /// The clock of the parent run. It counts the parked time of this run too, because the parent waits for this run.
    above: Option<Arc<ParkClock>>,
    state: Mutex<ParkState>,
}

#[derive(Default)]
struct ParkState {
    /// The number of runs that are parked now.
    parked: usize,
    /// The time at which the first of the parked runs was parked; `None` while no run is parked.
    since: Option<Instant>,
    /// The total parked time of earlier periods.
    total: Duration,
    /// The tasks that wait until no run is parked.
    waiting: Vec<Waker>,
}

impl ParkClock {
    /// Creates the clock of a run that works for this one.
    #[must_use]
    pub fn below(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { above: Some(Arc::clone(self)), state: Mutex::default() })
    }

    /// Records that a run is parked now, in its own clock and in the clocks of all its parents.
    pub fn park(&self, now: Instant) {
        let mut state = self.state();
        state.parked += 1;
        state.since.get_or_insert(now);
        drop(state);
        if let Some(above) = &self.above {
            above.park(now);
        }
    }

    /// Records that a run continues.
    pub fn unpark(&self, now: Instant) {
        let mut state = self.state();
        state.parked = state.parked.saturating_sub(1);
        let mut woken = Vec::new();
        if state.parked == 0 {
            let since = state.since.take().unwrap_or(now);
            state.total += now.saturating_duration_since(since);
            woken = std::mem::take(&mut state.waiting);
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if let Some(above) = &self.above {
            above.unpark(now);
        }
    }

    /// Returns the parked time until now.
    pub fn total(&self, now: Instant) -> Duration {
        let state = self.state();
        let current = state.since.map(|since| now.saturating_duration_since(since));
        state.total + current.unwrap_or_default()
    }

    /// Returns `Ready` if no run is parked. After `Pending`, the task is woken when no run is parked any more.
    pub fn poll_running(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.parked == 0 {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|other| other.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, ParkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ParkClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("ParkClock").field("parked", &state.parked).field("total", &state.total).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_parked_times_of_two_runs_count_once_in_their_parent() {
        let root = Arc::new(ParkClock::default());
        let (one, other) = (root.below(), root.below());
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let totals = |seconds: u64| [&root, &one, &other].map(|clock| clock.total(at(seconds)).as_secs());
        one.park(at(10));
        other.park(at(12));
        assert_eq!(totals(15), [5, 5, 3]);
        one.unpark(at(20));
        assert_eq!(totals(30), [20, 10, 18]);
        other.unpark(at(30));
        assert_eq!(totals(99), [20, 10, 18]);
        one.park(at(100));
        one.unpark(at(101));
        assert_eq!(totals(200), [21, 11, 18]);
    }

    #[test]
    fn unparking_wakes_the_waiting_task() {
        struct ParkWakeCounter(std::sync::atomic::AtomicU32);
        impl std::task::Wake for ParkWakeCounter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let (root, now) = (Arc::new(ParkClock::default()), Instant::now());
        let below = root.below();
        let counter = Arc::new(ParkWakeCounter(0.into()));
        let waker = Waker::from(Arc::clone(&counter));
        let mut cx = Context::from_waker(&waker);
        assert!(root.poll_running(&mut cx).is_ready());
        below.park(now);
        assert!(root.poll_running(&mut cx).is_pending());
        below.unpark(now);
        assert_eq!(counter.0.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(root.poll_running(&mut cx).is_ready());
    }
}
