//! Adds up what a run costs and holds it against its budget, as a fold over the events that pass through it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::budget::{Budget, Spent};
use super::event::Bill;
use crate::event::{Event, EventSink};

/// Passes every event on and keeps the bill of one run and its descendants. The meter of a descendant passes its events to
/// the one above, so each bill has everything below it, once.
pub struct Meter {
    next: Next,
    budget: Budget,
    tally: Mutex<Tally>,
    /// Whoever keeps what happens; it sees every event before those who watch.
    keeper: OnceLock<Arc<dyn EventSink>>,
    /// Who waits until something that is set aside anywhere in the tree is known; only the first meter has any.
    waiting: Mutex<Vec<Waker>>,
}

/// Where events go from here.
enum Next {
    Watchers(Arc<dyn EventSink>),
    Above(Arc<Meter>),
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    bill: Bill,
    /// Set aside for what is under way.
    held: Amount,
}

/// What is about to be spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub tokens: u64,
    pub calls: u64,
}

impl Meter {
    /// Of a run that works for nobody else.
    pub fn new(watchers: Arc<dyn EventSink>, budget: Budget) -> Arc<Self> {
        Self::carried_on(watchers, budget, Bill::default())
    }

    /// Of a run that has spent something before.
    pub fn carried_on(watchers: Arc<dyn EventSink>, budget: Budget, bill: Bill) -> Arc<Self> {
        let tally = Tally { bill, ..Tally::default() };
        Arc::new(Self {
            next: Next::Watchers(watchers),
            budget,
            tally: Mutex::new(tally),
            keeper: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// Of a descendant: it has a budget of its own, within what is left here.
    pub fn below(self: &Arc<Self>, budget: Budget) -> Arc<Self> {
        Arc::new(Self {
            next: Next::Above(Arc::clone(self)),
            budget,
            tally: Mutex::default(),
            keeper: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// What was spent before, by a run that goes on; whoever is above knows it already.
    pub fn carry(&self, bill: Bill) {
        self.tally().bill = bill;
    }

    /// From now on this one sees every event, too. There is only one such, the first that comes.
    pub fn keep_with(&self, keeper: Arc<dyn EventSink>) {
        self.keeper.get_or_init(|| keeper);
    }

    pub fn bill(&self) -> Bill {
        self.tally().bill
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What may still be spent after so much time, here and above; what is held for others counts as spent. Time goes by for
    /// all at once, so a descendant is given what is left of it when it begins.
    pub fn left(&self, time: Duration) -> Budget {
        self.left_after(time, |tally| tally.spent(time))
    }

    /// Whether all that is in the way is set aside for requests under way: once those are answered, more may be left.
    pub fn is_only_held(&self) -> bool {
        let answered = |tally: &Tally| {
            let calls = tally.held.calls;
            Tally { held: Amount { tokens: 0, calls }, ..*tally }.spent(Duration::ZERO)
        };
        let now = self.left(Duration::ZERO).used_up();
        now.is_some() && self.left_after(Duration::ZERO, answered).used_up().is_none()
    }

    /// Ready when more is in the way than what is set aside, or nothing is. Whoever is told to wait is woken as soon as
    /// something that was set aside is known.
    pub fn poll_settled(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_only_held() {
            return Poll::Ready(());
        }
        self.first().wake_later(cx.waker());
        // What became known between the look and the word is not told again.
        if self.is_only_held() { Poll::Pending } else { Poll::Ready(()) }
    }

    fn left_after(&self, time: Duration, spent: impl Fn(&Tally) -> Spent + Copy) -> Budget {
        let mut tally = *self.tally();
        let own = self.budget.left(&Spent { time, ..spent(&tally) });
        let (mut left, mut next) = (own, &self.next);
        while let Next::Above(above) = next {
            tally = *above.tally();
            let there = above.budget.left(&Spent { time: Duration::ZERO, ..spent(&tally) });
            left = left.within(&Budget { time: None, ..there });
            next = &above.next;
        }
        left
    }

    /// Sets something aside, here and above, until it is known what was spent. Dropped, it is free again.
    pub fn hold(self: &Arc<Self>, amount: Amount) -> Held {
        self.for_all(|tally| tally.held = tally.held.plus(amount));
        Held { meter: Arc::clone(self), amount }
    }

    fn for_all(&self, change: impl Fn(&mut Tally)) {
        change(&mut self.tally());
        let mut next = &self.next;
        while let Next::Above(above) = next {
            change(&mut above.tally());
            next = &above.next;
        }
    }

    /// The meter of the run that works for nobody else.
    fn first(&self) -> &Self {
        let mut first = self;
        while let Next::Above(above) = &first.next {
            first = above;
        }
        first
    }

    fn wake_later(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn spent(&self, time: Duration) -> Spent {
        let Self { bill, held } = self;
        Spent {
            usd: dollars(bill.cost.nano_usd.saturating_add(self.held_nano_usd())),
            tokens: bill.tokens().saturating_add(held.tokens),
            calls: bill.calls.saturating_add(held.calls),
            time,
        }
    }

    /// What the tokens that are held will cost, if they cost what tokens have cost so far.
    fn held_nano_usd(&self) -> u64 {
        let Self { bill, held } = self;
        let product = u128::from(bill.cost.nano_usd) * u128::from(held.tokens);
        u64::try_from(product / u128::from(bill.tokens().max(1))).unwrap_or(u64::MAX)
    }
}

impl Amount {
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

/// Something that was set aside.
#[derive(Debug)]
pub struct Held {
    meter: Arc<Meter>,
    amount: Amount,
}

impl Drop for Held {
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
            Next::Watchers(watchers) => watchers.emit(event),
            Next::Above(above) => above.emit(event),
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

#[expect(clippy::cast_precision_loss, reason = "a budget is not held to the billionth of a dollar")]
fn dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NoEvents;
    use crate::model_provider::{Attempt, ModelAccount, Next as After};
    use crate::model_reply::Usage;
    use crate::price::Cost;
    use crate::provider::Principal;

    fn spend(meter: &Meter, tokens: u64, nano_usd: u64) {
        meter.emit(Event::ModelFinished {
            id: "1".into(),
            place: crate::place::Place::default(),
            attempt: Attempt { provider: "p".into(), model: "m".into(), number: 1 },
            principal: Principal::local(),
            account: ModelAccount {
                failure: None,
                latency: Duration::ZERO,
                first_event: None,
                usage: Some(Usage { input: tokens, ..Usage::default() }),
                cost: Some(Cost { nano_usd }),
                next: After::Nothing,
            },
        });
    }

    fn tokens(tokens: u64) -> Budget {
        Budget { tokens: Some(tokens), ..Budget::default() }
    }

    #[test]
    fn what_a_descendant_spends_is_spent_above_once() {
        let root = Meter::new(Arc::new(NoEvents), tokens(100));
        let (one, other) = (root.below(tokens(30)), root.below(Budget::default()));
        let below = one.below(Budget::default());
        spend(&below, 10, 0);
        spend(&one, 5, 0);
        spend(&other, 40, 0);
        let used = [&root, &one, &other, &below].map(|meter| meter.bill().tokens());
        assert_eq!(used, [55, 15, 40, 10]);
        let left = [&root, &one, &other, &below].map(|meter| meter.left(Duration::ZERO).tokens);
        assert_eq!(left, [Some(45), Some(15), Some(45), Some(15)]);
        spend(&other, 40, 0);
        assert_eq!(below.left(Duration::ZERO).tokens, Some(5), "others have used up what was left");
    }

    #[test]
    fn what_is_held_is_spent_for_everybody_until_it_is_known() {
        let root = Meter::new(Arc::new(NoEvents), Budget { usd: Some(1.0), calls: Some(3), ..tokens(100) });
        let (one, other) = (root.below(Budget::default()), root.below(Budget::default()));
        spend(&one, 10, 100_000_000);
        let held = one.hold(Amount { tokens: 40, calls: 2 });
        let left = other.left(Duration::ZERO);
        assert_eq!((left.tokens, left.calls), (Some(50), Some(1)));
        assert!((left.usd.unwrap() - 0.5).abs() < 1e-9, "forty tokens at the price of ten: {left:?}");
        drop(held);
        assert_eq!(other.left(Duration::ZERO).tokens, Some(90));
    }

    #[test]
    fn only_what_requests_have_set_aside_is_worth_waiting_for() {
        let check = |spent: u64, held: Amount, expected: bool| {
            let root =
                Meter::new(Arc::new(NoEvents), Budget { usd: Some(1.0), calls: Some(3), ..tokens(100) });
            let (one, other) = (root.below(Budget::default()), root.below(Budget::default()));
            spend(&one, spent, spent * 1_000_000);
            let _held = one.hold(held);
            assert_eq!(other.is_only_held(), expected, "{spent} {held:?}");
        };
        let tokens = |tokens: u64| Amount { tokens, calls: 0 };
        check(10, tokens(0), false);
        check(10, tokens(50), false);
        check(10, tokens(90), true);
        check(10, tokens(5000), true);
        check(100, tokens(90), false);
        // Calls are counted whatever comes of them; whoever made one may be waiting for us.
        check(10, Amount { tokens: 0, calls: 3 }, false);
        check(10, Amount { tokens: 90, calls: 3 }, false);
    }

    #[test]
    fn whoever_waits_is_woken_when_something_set_aside_is_known() {
        let root = Meter::new(Arc::new(NoEvents), tokens(100));
        let (one, other) = (root.below(Budget::default()), root.below(Budget::default()).below(tokens(90)));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert_eq!(other.poll_settled(&mut cx), Poll::Ready(()), "nothing is in the way");
        let held = [one.hold(Amount { tokens: 60, calls: 0 }), one.hold(Amount { tokens: 60, calls: 0 })];
        assert_eq!(other.poll_settled(&mut cx), Poll::Pending);
        assert_eq!(other.poll_settled(&mut cx), Poll::Pending, "asked again, it is woken once");
        assert_eq!(woken.count(), 0);
        drop(held);
        assert_eq!(woken.count(), 1);
        assert_eq!(other.poll_settled(&mut cx), Poll::Ready(()));
        let held = one.hold(Amount { tokens: 100, calls: 0 });
        assert_eq!(other.poll_settled(&mut cx), Poll::Pending);
        spend(&one, 100, 0);
        drop(held);
        assert_eq!(woken.count(), 2, "also when nothing was left of it");
        assert_eq!(other.poll_settled(&mut cx), Poll::Ready(()));
    }

    #[derive(Debug, Default)]
    struct Woken(std::sync::atomic::AtomicU32);

    impl Woken {
        fn count(&self) -> u32 {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn time_is_each_ones_own() {
        let time = Some(Duration::from_secs(10));
        let root = Meter::new(Arc::new(NoEvents), Budget { time, ..Budget::default() });
        assert_eq!(root.left(Duration::from_secs(4)).time, Some(Duration::from_secs(6)));
        assert_eq!(root.below(Budget::default()).left(Duration::from_secs(4)).time, None);
    }
}
