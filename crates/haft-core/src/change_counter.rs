//! Announces that a provider's tool list has changed.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Counts changes. A provider owns a counter and announces changes; the holder of a snapshot compares counts or waits
/// for a change.
///
/// This is a counter and not a callback, because a provider may announce at any moment, even during a call or while it
/// holds a lock, and no other code may run at that point. Clones share the counter, so several providers can use the
/// same one.
#[derive(Debug, Clone, Default)]
pub struct ChangeCounter(Arc<CounterState>);

#[derive(Debug, Default)]
struct CounterState {
    count: AtomicU64,
    /// The waiting tasks, each with the number of its wait.
    waiting: Mutex<HashMap<u64, Waker>>,
    waits: AtomicU64,
}

/// One wait for a change. Dropping it removes its waker; otherwise a counter that rarely changes would keep the wakers
/// of all earlier waits in memory.
struct CounterWait<'a> {
    counter: &'a CounterState,
    number: u64,
}

impl Drop for CounterWait<'_> {
    fn drop(&mut self) {
        self.counter.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl ChangeCounter {
    /// Announces that the provider's `tools()` now returns a different list. The next tool call uses the new list.
    pub fn announce(&self) {
        self.0.count.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_values().for_each(Waker::wake);
    }

    /// Returns the number of announcements. Read this count before the tool list, so that no change is missed.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until the count differs from `seen`, and returns the new count.
    pub async fn changed(&self, seen: u64) -> u64 {
        let number = self.0.waits.fetch_add(1, Ordering::Relaxed);
        let wait = CounterWait { counter: &self.0, number };
        poll_fn(|cx| {
            let count = self.count();
            if count != seen {
                return Poll::Ready(count);
            }
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert(wait.number, cx.waker().clone());
            drop(waiting);
            // Check again: an announcement between the two checks would have woken only earlier waiters.
            if self.count() == seen { Poll::Pending } else { Poll::Ready(self.count()) }
        })
        .await
    }

    /// Returns true if both values share the same counter.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn wait_for_a_change_ends_even_if_the_change_came_before_the_wait() {
        let changes = ChangeCounter::default();
        let seen = changes.count();
        let mut waiting = Box::pin(changes.changed(seen));
        assert_eq!((&mut waiting).now_or_never(), None);
        changes.announce();
        assert_eq!(waiting.now_or_never(), Some(1));
        assert_eq!(changes.changed(seen).now_or_never(), Some(1), "a change before the wait ends the wait");
    }

    #[test]
    fn ended_wait_leaves_no_waker_in_the_change_counter() {
        let changes = ChangeCounter::default();
        for _ in 0..3 {
            assert_eq!(changes.changed(changes.count()).now_or_never(), None);
        }
        assert_eq!(changes.0.waiting.lock().unwrap().len(), 0);
    }
}
