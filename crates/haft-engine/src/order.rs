//! The execution order of the calls in one turn: a fair read/write lock over effects.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::model_request::ParallelCalls;
use haft_core::tool::Effects;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

/// The queue of the calls in one turn, in call order. Read-only calls run together; every other call runs alone, after
/// all calls before it.
#[derive(Debug, Clone)]
pub struct EffectOrder {
    line: Arc<Mutex<EffectQueue>>,
    parallel: ParallelCalls,
}

impl Default for EffectOrder {
    fn default() -> Self {
        Self::of(ParallelCalls::Allowed)
    }
}

impl EffectOrder {
    /// Creates an empty queue. With `OneAtATime`, read-only calls run alone too: a model may ignore the request for one
    /// call at a time.
    pub fn of(parallel: ParallelCalls) -> Self {
        Self { line: Arc::default(), parallel }
    }

    /// Returns true if every call runs alone, whatever its effects are.
    pub(crate) fn is_one_at_a_time(&self) -> bool {
        match self.parallel {
            ParallelCalls::OneAtATime => true,
            ParallelCalls::Allowed => false,
        }
    }

    /// Takes the next position immediately. The future completes when it is the call's turn; dropping it releases the
    /// position.
    pub fn enter(&self, effects: Effects) -> impl Future<Output = EffectPermit> + Send + use<> {
        let (admit, admitted) = oneshot::channel();
        let ticket = lock(&self.line).join(EffectAccess::of(effects, self.parallel), admit);
        let turn = EffectPermit { line: Arc::clone(&self.line), ticket };
        async move {
            // `admitted` cannot fail, because the sender lives as long as the position in the queue, and the position
            // lives as long as `turn`. `unconstrained` disables tokio's cooperative budget: after 128 polls it would
            // let the rest of a long turn start in any order.
            let _ = unconstrained(admitted).await;
            turn
        }
    }
}

/// The permission to run. Dropping it admits the next calls.
#[derive(Debug)]
pub struct EffectPermit {
    line: Arc<Mutex<EffectQueue>>,
    ticket: u64,
}

impl Drop for EffectPermit {
    fn drop(&mut self) {
        lock(&self.line).leave(self.ticket);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EffectAccess {
    Shared,
    Alone,
}

impl EffectAccess {
    fn of(effects: Effects, parallel: ParallelCalls) -> Self {
        match (parallel, effects) {
            (ParallelCalls::Allowed, Effects::ReadOnly) => Self::Shared,
            (ParallelCalls::Allowed, Effects::Idempotent | Effects::Mutating | Effects::Unknown)
            | (ParallelCalls::OneAtATime, _) => Self::Alone,
        }
    }
}

/// All waiting and running calls, in order of arrival.
#[derive(Debug, Default)]
struct EffectQueue {
    places: VecDeque<EffectQueueEntry>,
    next_ticket: u64,
}

#[derive(Debug)]
struct EffectQueueEntry {
    ticket: u64,
    access: EffectAccess,
    /// The sender that admits the call; `None` after it was admitted.
    admit: Option<oneshot::Sender<()>>,
}

impl EffectQueue {
    fn join(&mut self, access: EffectAccess, admit: oneshot::Sender<()>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.places.push_back(EffectQueueEntry { ticket, access, admit: Some(admit) });
        self.admit();
        ticket
    }

    fn leave(&mut self, ticket: u64) {
        self.places.retain(|place| place.ticket != ticket);
        self.admit();
    }

    /// Admits every call that may run now: all shared calls before the first exclusive one, or an exclusive call at the
    /// front.
    fn admit(&mut self) {
        for (position, place) in self.places.iter_mut().enumerate() {
            if place.access == EffectAccess::Alone && position > 0 {
                return;
            }
            if let Some(admit) = place.admit.take() {
                // Ignore the error: the waiting call has dropped its receiver and is about to leave the queue.
                let _ = admit.send(());
            }
            if place.access == EffectAccess::Alone {
                return;
            }
        }
    }
}

fn lock(line: &Mutex<EffectQueue>) -> MutexGuard<'_, EffectQueue> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    /// Runs a script, then compares the numbers of the admitted calls. In the script, `r` and `w` join the queue, and a
    /// digit drops the call with that number.
    fn check(script: &str, expected_inside: &[usize]) {
        check_in(&EffectOrder::default(), script, expected_inside);
    }

    fn check_in(order: &EffectOrder, script: &str, expected_inside: &[usize]) {
        let mut waiting: Vec<Option<BoxFuture<'static, EffectPermit>>> = Vec::new();
        let mut inside: Vec<Option<EffectPermit>> = Vec::new();
        for step in script.chars() {
            match step {
                'r' => waiting.push(Some(order.enter(Effects::ReadOnly).boxed())),
                'w' => waiting.push(Some(order.enter(Effects::Mutating).boxed())),
                digit => {
                    let number = usize::try_from(digit.to_digit(10).unwrap()).unwrap();
                    waiting[number] = None;
                    inside[number] = None;
                }
            }
            inside.resize_with(waiting.len(), || None);
            for (waiting, inside) in waiting.iter_mut().zip(&mut inside) {
                if let Some(turn) = waiting.as_mut().and_then(FutureExt::now_or_never) {
                    *waiting = None;
                    *inside = Some(turn);
                }
            }
        }
        let found: Vec<_> = (0..inside.len()).filter(|&number| inside[number].is_some()).collect();
        assert_eq!(found, expected_inside, "{script}");
    }

    #[test]
    fn reads_run_together_and_each_write_runs_alone_in_order() {
        check("rrr", &[0, 1, 2]);
        check("rrw", &[0, 1]);
        check("rrwr", &[0, 1]);
        check("rrw0", &[1]);
        check("rrwr01", &[2]);
        check("rrwr012", &[3]);
        check("ww", &[0]);
        check("ww0", &[1]);
        check("wrr0", &[1, 2]);
    }

    #[test]
    fn reads_run_one_by_one_in_order_if_parallel_calls_are_off() {
        let check = |script: &str, expected_inside: &[usize]| {
            check_in(&EffectOrder::of(ParallelCalls::OneAtATime), script, expected_inside);
        };
        check("rrr", &[0]);
        check("rrr0", &[1]);
        check("rrr01", &[2]);
        check("rwr1", &[0]);
        check("rwr10", &[2]);
    }

    #[test]
    fn cancelled_waiter_does_not_block_later_calls() {
        check("rwr1", &[0, 2]);
        check("wwr1", &[0]);
        check("rww1", &[0]);
    }

    #[test]
    fn call_takes_its_position_before_its_future_is_polled() {
        let order = EffectOrder::default();
        let first = order.enter(Effects::Unknown);
        let second = order.enter(Effects::ReadOnly);
        assert!(second.now_or_never().is_none());
        assert!(first.now_or_never().is_some());
    }
}
