//! The waiting list of a queue: pure data, without clock or channels.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use haft_core::priority::Priority;

/// Returns the number of admissions that a priority is placed behind the highest priority.
fn priority_delay(priority: Priority) -> u64 {
    match priority {
        Priority::High => 0,
        Priority::Normal => AGEING_ADMISSIONS,
        Priority::Low => 2 * AGEING_ADMISSIONS,
    }
}

/// The number of admissions after which a waiting call has gained one priority level.
///
/// Ageing needs no clock: a call is placed as if it had arrived this many admissions later per level below the highest.
/// Its place is fixed on arrival, so the list is never sorted again. Equal priorities keep their order, and a call that
/// arrives that many admissions later can no longer overtake, so no call starves.
pub const AGEING_ADMISSIONS: u64 = 8;

/// A position in the waiting list: ordered by effective arrival, then by actual arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    counts_from: u64,
    ticket: u64,
}

/// The outcome of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    In(QueuePosition),
    Waits(QueuePosition),
    Full,
}

/// All waiting calls, in the order of admission. `W` wakes a waiting call.
#[derive(Debug)]
pub(super) struct WaitingList<W> {
    concurrent: usize,
    waiting_max: usize,
    in_use: usize,
    waiting: BTreeMap<QueuePosition, W>,
    admissions: u64,
    next_ticket: u64,
}

impl<W> WaitingList<W> {
    pub(super) fn new(concurrent: NonZeroUsize, waiting_max: usize) -> Self {
        let concurrent = concurrent.get();
        Self { concurrent, waiting_max, in_use: 0, waiting: BTreeMap::new(), admissions: 0, next_ticket: 0 }
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Admits the call if a slot is free. No call waits while a slot is free, so this overtakes none.
    pub(super) fn join(&mut self, priority: Priority, waiter: impl FnOnce() -> W) -> JoinOutcome {
        let place = QueuePosition {
            counts_from: self.admissions + priority_delay(priority),
            ticket: self.next_ticket,
        };
        if self.in_use < self.concurrent {
            self.next_ticket += 1;
            self.let_in();
            return JoinOutcome::In(place);
        }
        if self.waiting.len() >= self.waiting_max {
            return JoinOutcome::Full;
        }
        self.next_ticket += 1;
        self.waiting.insert(place, waiter());
        JoinOutcome::Waits(place)
    }

    /// Leaves the waiting list, or returns the slot. In the second case it admits the next call and returns its waker.
    pub(super) fn leave(&mut self, place: QueuePosition) -> Option<W> {
        if self.waiting.remove(&place).is_some() {
            return None;
        }
        self.in_use -= 1;
        let (_, next) = self.waiting.pop_first()?;
        self.let_in();
        Some(next)
    }

    fn let_in(&mut self) {
        self.in_use += 1;
        self.admissions += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script on one slot with up to nine waiting calls: `l`, `n` and `h` join with that priority and get the
    /// next number, `.` ends the running call, a digit makes that call leave. Returns the numbers in order of
    /// admission.
    fn play(script: &str) -> Vec<usize> {
        let mut line = WaitingList::new(NonZeroUsize::MIN, 9);
        let (mut places, mut let_in) = (Vec::new(), Vec::new());
        for step in script.chars() {
            let number = places.len();
            let priority = match step {
                'l' => Priority::Low,
                'n' => Priority::Normal,
                'h' => Priority::High,
                '.' => {
                    let inside: usize = *let_in.last().unwrap();
                    let_in.extend(line.leave(places[inside]));
                    continue;
                }
                digit => {
                    let number = usize::try_from(digit.to_digit(10).unwrap()).unwrap();
                    let_in.extend(line.leave(places[number]));
                    continue;
                }
            };
            match line.join(priority, || number) {
                JoinOutcome::In(place) => {
                    let_in.push(number);
                    places.push(place);
                }
                JoinOutcome::Waits(place) => places.push(place),
                JoinOutcome::Full => panic!("{script}: full"),
            }
        }
        let_in
    }

    fn check(script: &str, expected: &[usize]) {
        assert_eq!(play(script), expected, "{script}");
    }

    #[test]
    fn calls_of_equal_priority_are_admitted_in_arrival_order() {
        check("nnn", &[0]);
        check("nnn..", &[0, 1, 2]);
        check("nnn.n..", &[0, 1, 2, 3]);
        check("lll..", &[0, 1, 2]);
    }

    #[test]
    fn higher_priority_is_admitted_first() {
        check("nlnh...", &[0, 3, 2, 1]);
        check("nlhnh....", &[0, 2, 4, 3, 1]);
    }

    #[test]
    fn cancelled_waiter_frees_no_slot() {
        check("nnn1", &[0]);
        check("nnn1.", &[0, 2]);
        check("nnn12.", &[0]);
        check("nnn12.n", &[0, 3]);
    }

    #[test]
    fn waiting_low_priority_call_is_admitted_after_ageing() {
        // One slot, and a new `h` before each admission: the low call is admitted after two levels of ageing.
        let script = format!("nl{}", "h.".repeat(30));
        let let_in = play(&script);
        let turn = let_in.iter().position(|&number| number == 1).unwrap();
        assert_eq!(u64::try_from(turn).unwrap(), 2 * AGEING_ADMISSIONS + 1);
    }

    #[test]
    fn join_fails_when_the_waiting_list_is_full() {
        let mut line = WaitingList::new(NonZeroUsize::MIN, 1);
        let mut join = || line.join(Priority::Normal, || ());
        let JoinOutcome::In(inside) = join() else { panic!() };
        let JoinOutcome::Waits(_) = join() else { panic!() };
        assert_eq!(join(), JoinOutcome::Full);
        assert_eq!(line.leave(inside), Some(()));
        assert!(matches!(line.join(Priority::Normal, || ()), JoinOutcome::Waits(_)));
        assert_eq!((line.in_use(), line.waiting()), (1, 1));
    }
}
