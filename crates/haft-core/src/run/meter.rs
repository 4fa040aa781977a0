//! Sums up the cost of a run from its events, and compares the cost with the budget.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::budget::{SpendLimit, SpendTotals};
use super::event::RunBill;
use crate::event::{Event, EventSink};

/// Forwards every event, and keeps the bill of one run and its sub-agents. A sub-agent's meter forwards to its parent's
/// meter, so the bill of a run includes the cost of each run below it exactly once.
pub struct Meter {
    next: EventReceiver,
    budget: SpendLimit,
    tally: Mutex<MeterTotals>,
    /// A sink that records events. The meter passes each event to this sink before it passes the event to `next`.
    keeper: OnceLock<Arc<dyn EventSink>>,
    /// The tasks that wait until a reservation in the tree is released. Only the root meter uses this field.
    waiting: Mutex<Vec<Waker>>,
}

/// The sink or meter that receives the events next.
enum EventReceiver {
    Watchers(Arc<dyn EventSink>),
    Above(Arc<Meter>),
}

#[derive(Debug, Clone, Copy, Default)]
struct MeterTotals {
    bill: RunBill,
    /// The reservations of requests and calls in progress.
    held: SpendAmount,
}

/// An amount of tokens and tool calls to reserve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpendAmount {
    /// The number of input and output tokens together.
    pub tokens: u64,
    /// The number of tool calls.
    pub calls: u64,
}

impl Meter {
    /// Creates the meter of a run without a parent.
    pub fn new(watchers: Arc<dyn EventSink>, budget: SpendLimit) -> Arc<Self> {
        Self::resume_with_bill(watchers, budget, RunBill::default())
    }

    /// Creates the meter of a resumed run that has already spent `bill`.
    pub fn resume_with_bill(watchers: Arc<dyn EventSink>, budget: SpendLimit, bill: RunBill) -> Arc<Self> {
        let tally = MeterTotals { bill, ..MeterTotals::default() };
        Arc::new(Self {
            next: EventReceiver::Watchers(watchers),
            budget,
            tally: Mutex::new(tally),
            keeper: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// Creates the meter of a sub-agent. The sub-agent has its own budget within the remaining budget of this meter.
    pub fn below(self: &Arc<Self>, budget: SpendLimit) -> Arc<Self> {
        Arc::new(Self {
            next: EventReceiver::Above(Arc::clone(self)),
            budget,
            tally: Mutex::default(),
            keeper: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// Sets the cost so far of a resumed run. The parent's bill already includes this cost.
    pub fn carry(&self, bill: RunBill) {
        self.tally().bill = bill;
    }

    /// Also sends every later event to `keeper`. Further calls of this function have no effect.
    pub fn set_keeper(&self, keeper: Arc<dyn EventSink>) {
        self.keeper.get_or_init(|| keeper);
    }

    /// Returns the cost so far, without reservations.
    pub fn bill(&self) -> RunBill {
        self.tally().bill
    }

    /// Returns the budget of this run alone, without the budgets of its parents.
    pub fn budget(&self) -> &SpendLimit {
        &self.budget
    }

    /// Returns the remaining budget after `time`, within the limits of this run and all its parents. Reservations are
    /// subtracted too. The parents' time limits are not applied, because a sub-agent gets its share of the remaining
    /// time when it starts.
    pub fn left(&self, time: Duration) -> SpendLimit {
        self.left_after(time, |tally| tally.spent(time))
    }

    /// Returns the expected cost of this many tokens in US dollars, at the average price per token so far, or `None`
    /// before the first request with a known cost.
    pub fn expected_usd(&self, tokens: u64) -> Option<f64> {
        let bill = self.bill();
        (bill.cost.nano_usd > 0).then(|| dollars(priced(&bill, tokens)))
    }

    /// Returns true if a request with this many tokens would fit without the token reservations of pending requests.
    /// Waiting for their replies may then free enough of the budget.
    pub fn is_blocked_by_reservations(&self, request_tokens: u64) -> bool {
        let answered = |tally: &MeterTotals| {
            let calls = tally.held.calls;
            MeterTotals { held: SpendAmount { tokens: 0, calls }, ..*tally }.spent(Duration::ZERO)
        };
        let usd = self.expected_usd(request_tokens).unwrap_or(0.0);
        let is_short = |left: SpendLimit| left.used_up().is_some() || left.is_below(request_tokens, usd);
        is_short(self.left(Duration::ZERO)) && !is_short(self.left_after(Duration::ZERO, answered))
    }

    /// Returns `Ready` unless waiting can help, as `is_blocked_by_reservations` decides. After `Pending`, the task is
    /// woken when any reservation in the tree is released.
    pub fn poll_settled(&self, request_tokens: u64, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_blocked_by_reservations(request_tokens) {
            return Poll::Ready(());
        }
        self.first().register_waker(cx.waker());
        // Check again: a reservation released between the first check and the registration would not wake this task.
        if self.is_blocked_by_reservations(request_tokens) { Poll::Pending } else { Poll::Ready(()) }
    }

    fn left_after(&self, time: Duration, spent: impl Fn(&MeterTotals) -> SpendTotals + Copy) -> SpendLimit {
        let mut tally = *self.tally();
        let own = self.budget.left(&SpendTotals { time, ..spent(&tally) });
        let (mut left, mut next) = (own, &self.next);
        while let EventReceiver::Above(above) = next {
            tally = *above.tally();
            let there = above.budget.left(&SpendTotals { time: Duration::ZERO, ..spent(&tally) });
            left = left.within(&SpendLimit { time: None, ..there });
            next = &above.next;
        }
        left
    }

    /// Reserves an amount in this meter and all its parents until the real cost is known. Dropping the result releases
    /// the reservation.
    pub fn hold(self: &Arc<Self>, amount: SpendAmount) -> SpendReservation {
        self.for_all(|tally| tally.held = tally.held.plus(amount));
        SpendReservation { meter: Arc::clone(self), amount }
    }

    fn for_all(&self, change: impl Fn(&mut MeterTotals)) {
        change(&mut self.tally());
        let mut next = &self.next;
        while let EventReceiver::Above(above) = next {
            change(&mut above.tally());
            next = &above.next;
        }
    }

    /// Returns the root meter.
    fn first(&self) -> &Self {
        let mut first = self;
        while let EventReceiver::Above(above) = &first.next {
            first = above;
        }
        first
    }

    fn register_waker(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tally(&self) -> MutexGuard<'_, MeterTotals> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterTotals {
    fn spent(&self, time: Duration) -> SpendTotals {
        let Self { bill, held } = self;
        SpendTotals {
            usd: dollars(bill.cost.nano_usd.saturating_add(self.held_nano_usd())),
            tokens: bill.tokens().saturating_add(held.tokens),
            calls: bill.calls.saturating_add(held.calls),
            time,
        }
    }

    fn held_nano_usd(&self) -> u64 {
        priced(&self.bill, self.held.tokens)
    }
}

/// Returns the expected cost of tokens in billionths of a dollar, at the average price per token so far.
fn priced(bill: &RunBill, tokens: u64) -> u64 {
    let product = u128::from(bill.cost.nano_usd) * u128::from(tokens);
    u64::try_from(product / u128::from(bill.tokens().max(1))).unwrap_or(u64::MAX)
}

impl SpendAmount {
    fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            calls: self.calls.saturating_add(other.calls),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            calls: self.calls.saturating_sub(other.calls),
        }
    }
}

/// A reserved amount, which is released on drop.
#[derive(Debug)]
pub struct SpendReservation {
    meter: Arc<Meter>,
    amount: SpendAmount,
}

impl Drop for SpendReservation {
    fn drop(&mut self) {
        let amount = self.amount;
        self.meter.for_all(|tally| tally.held = tally.held.minus(amount));
        let waiting = std::mem::take(&mut *self.meter.first().waiting());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl EventSink for Meter {
    fn emit(&self, event: Event) {
        self.tally().bill.add(&event);
        if let Some(keeper) = self.keeper.get() {
            keeper.emit(event.clone());
        }
        match &self.next {
            EventReceiver::Watchers(watchers) => watchers.emit(event),
            EventReceiver::Above(above) => above.emit(event),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("budget", &self.budget)
            .field("tally", &self.tally())
            .finish_non_exhaustive()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a budget need not be exact to a billionth of a dollar")]
fn dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NoEvents;
    use crate::model_provider::{AttemptFollowUp as After, ModelAccount, ModelAttempt};
    use crate::model_reply::TokenUsage;
    use crate::price::Cost;
    use crate::provider::Principal;

    fn spend(meter: &Meter, tokens: u64, nano_usd: u64) {
        meter.emit(Event::ModelFinished {
            id: "1".into(),
            place: crate::position::RunPosition::default(),
            attempt: ModelAttempt { provider: "p".into(), model: "m".into(), number: 1 },
            principal: Principal::local(),
            account: ModelAccount {
                failure: None,
                latency: Duration::ZERO,
                first_event: None,
                usage: Some(TokenUsage { input: tokens, ..TokenUsage::default() }),
                cost: Some(Cost { nano_usd }),
                next: After::Nothing,
            },
        });
    }

    fn tokens(tokens: u64) -> SpendLimit {
        SpendLimit { tokens: Some(tokens), ..SpendLimit::default() }
    }

    #[test]
    fn child_spending_counts_once_in_every_ancestor() {
        let root = Meter::new(Arc::new(NoEvents), tokens(100));
        let (one, other) = (root.below(tokens(30)), root.below(SpendLimit::default()));
        let below = one.below(SpendLimit::default());
        spend(&below, 10, 0);
        spend(&one, 5, 0);
        spend(&other, 40, 0);
        let used = [&root, &one, &other, &below].map(|meter| meter.bill().tokens());
        assert_eq!(used, [55, 15, 40, 10]);
        let left = [&root, &one, &other, &below].map(|meter| meter.left(Duration::ZERO).tokens);
        assert_eq!(left, [Some(45), Some(15), Some(45), Some(15)]);
        spend(&other, 40, 0);
        assert_eq!(
            below.left(Duration::ZERO).tokens,
            Some(5),
            "a sibling's spending reduces the remaining tokens"
        );
    }

    #[test]
    fn reserved_amounts_reduce_the_budget_of_all_runs_until_released() {
        let root =
            Meter::new(Arc::new(NoEvents), SpendLimit { usd: Some(1.0), calls: Some(3), ..tokens(100) });
        let (one, other) = (root.below(SpendLimit::default()), root.below(SpendLimit::default()));
        spend(&one, 10, 100_000_000);
        let held = one.hold(SpendAmount { tokens: 40, calls: 2 });
        let left = other.left(Duration::ZERO);
        assert_eq!((left.tokens, left.calls), (Some(50), Some(1)));
        assert!(
            (left.usd.unwrap() - 0.5).abs() < 1e-9,
            "40 reserved tokens have the average price of the spent tokens: {left:?}"
        );
        drop(held);
        assert_eq!(other.left(Duration::ZERO).tokens, Some(90));
    }

    #[test]
    fn run_waits_only_for_tokens_reserved_by_other_requests() {
        let check = |spent: u64, held: SpendAmount, expected: bool| {
            let root =
                Meter::new(Arc::new(NoEvents), SpendLimit { usd: Some(1.0), calls: Some(3), ..tokens(100) });
            let (one, other) = (root.below(SpendLimit::default()), root.below(SpendLimit::default()));
            spend(&one, spent, spent * 1_000_000);
            let _held = one.hold(held);
            assert_eq!(other.is_blocked_by_reservations(0), expected, "{spent} {held:?}");
        };
        let tokens = |tokens: u64| SpendAmount { tokens, calls: 0 };
        check(10, tokens(0), false);
        check(10, tokens(50), false);
        check(10, tokens(90), true);
        check(10, tokens(5000), true);
        check(100, tokens(90), false);
        // A run does not wait for reserved calls: calls count even if they fail, and the run that reserved them may
        // itself wait for this run.
        check(10, SpendAmount { tokens: 0, calls: 3 }, false);
        check(10, SpendAmount { tokens: 90, calls: 3 }, false);
    }

    #[test]
    fn request_waits_if_only_reservations_keep_it_from_fitting_the_budget() {
        let root = Meter::new(Arc::new(NoEvents), SpendLimit { usd: Some(1.0), ..tokens(100) });
        let (one, other) = (root.below(SpendLimit::default()), root.below(SpendLimit::default()));
        assert_eq!(root.expected_usd(10), None);
        spend(&one, 10, 100_000_000);
        assert!((root.expected_usd(10).unwrap() - 0.1).abs() < 1e-9);
        let held = one.hold(SpendAmount { tokens: 60, calls: 0 });
        assert_eq!(
            (other.is_blocked_by_reservations(30), other.is_blocked_by_reservations(31)),
            (false, true)
        );
        assert!(!other.is_blocked_by_reservations(91), "a request over the whole budget does not wait");
        drop(held);
        assert!(!other.is_blocked_by_reservations(31));
    }

    #[test]
    fn waiting_run_is_woken_once_when_a_reservation_is_released() {
        let root = Meter::new(Arc::new(NoEvents), tokens(100));
        let (one, other) =
            (root.below(SpendLimit::default()), root.below(SpendLimit::default()).below(tokens(90)));
        let woken = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert_eq!(
            other.poll_settled(0, &mut cx),
            Poll::Ready(()),
            "without reservations, the run does not wait"
        );
        let held =
            [one.hold(SpendAmount { tokens: 60, calls: 0 }), one.hold(SpendAmount { tokens: 60, calls: 0 })];
        assert_eq!(other.poll_settled(0, &mut cx), Poll::Pending);
        assert_eq!(other.poll_settled(0, &mut cx), Poll::Pending, "a second poll still waits");
        assert_eq!(woken.count(), 0);
        drop(held);
        assert_eq!(woken.count(), 1);
        assert_eq!(other.poll_settled(0, &mut cx), Poll::Ready(()));
        let held = one.hold(SpendAmount { tokens: 100, calls: 0 });
        assert_eq!(other.poll_settled(0, &mut cx), Poll::Pending);
        spend(&one, 100, 0);
        drop(held);
        assert_eq!(woken.count(), 2, "a release wakes the run even if the reserved tokens are spent");
        assert_eq!(other.poll_settled(0, &mut cx), Poll::Ready(()));
    }

    #[derive(Debug, Default)]
    struct WakeCounter(std::sync::atomic::AtomicU32);

    impl WakeCounter {
        fn count(&self) -> u32 {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    impl std::task::Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn child_meter_does_not_inherit_the_time_limit() {
        let time = Some(Duration::from_secs(10));
        let root = Meter::new(Arc::new(NoEvents), SpendLimit { time, ..SpendLimit::default() });
        assert_eq!(root.left(Duration::from_secs(4)).time, Some(Duration::from_secs(6)));
        assert_eq!(root.below(SpendLimit::default()).left(Duration::from_secs(4)).time, None);
    }
}
