//! The waiting list of a queue: pure data, without clock or channels.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use haft_core::principal::Principal;
use haft_core::priority::Priority;

/// Returns the number of admissions by which a call with this priority is placed behind a call with the highest
/// priority.
fn priority_delay(priority: Priority) -> u64 {
    match priority {
        Priority::High => 0,
        Priority::Normal => AGEING_ADMISSIONS,
        Priority::Low => 2 * AGEING_ADMISSIONS,
    }
}

/// The number of admissions after which a waiting call has gained one priority level.
///
/// Ageing needs no clock: for each level below the highest priority, a call is placed as if it had arrived this many
/// admissions later. The place is fixed on arrival, so the list is never sorted again. Calls of equal priority keep
/// their order. A call of higher priority that arrives too many admissions later can no longer overtake, so no call
/// waits forever.
pub const AGEING_ADMISSIONS: u64 = 8;

/// A position in the waiting list, ordered by effective arrival, then by actual arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    counts_from: u64,
    ticket: u64,
}

/// The outcome of joining the waiting list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    In(QueuePosition),
    Waits(QueuePosition),
    Full,
}

/// All running and waiting calls. `W` wakes a waiting call.
///
/// A free slot is given to the first waiting call of the principal with the fewest running calls. So a principal with
/// many calls cannot keep other principals waiting, and each principal has its own limit of waiting calls.
#[derive(Debug)]
pub(super) struct WaitingList<W> {
    concurrent: usize,
    waiting_max: usize,
    in_use: usize,
    principals: BTreeMap<Principal, PrincipalCalls<W>>,
    admissions: u64,
    next_ticket: u64,
}

/// The calls of one principal. The waiting calls are in the order of admission.
#[derive(Debug)]
struct PrincipalCalls<W> {
    in_use: usize,
    waiting: BTreeMap<QueuePosition, W>,
}

impl<W> Default for PrincipalCalls<W> {
    fn default() -> Self {
        Self { in_use: 0, waiting: BTreeMap::new() }
    }
}

impl<W> WaitingList<W> {
    pub(super) fn new(concurrent: NonZeroUsize, waiting_max: usize) -> Self {
        let concurrent = concurrent.get();
        let principals = BTreeMap::new();
        Self { concurrent, waiting_max, in_use: 0, principals, admissions: 0, next_ticket: 0 }
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(super) fn waiting(&self) -> usize {
        self.principals.values().map(|calls| calls.waiting.len()).sum()
    }

    /// Adds a call, and admits it if a slot is free. No call waits while a slot is free, so the new call overtakes
    /// none.
    pub(super) fn join(
        &mut self,
        principal: &Principal,
        priority: Priority,
        waiter: impl FnOnce() -> W,
    ) -> JoinOutcome {
        let place = QueuePosition {
            counts_from: self.admissions + priority_delay(priority),
            ticket: self.next_ticket,
        };
        if self.in_use < self.concurrent {
            self.next_ticket += 1;
            self.let_in(principal);
            return JoinOutcome::In(place);
        }
        if self.principals.get(principal).map_or(0, |calls| calls.waiting.len()) >= self.waiting_max {
            return JoinOutcome::Full;
        }
        self.next_ticket += 1;
        self.principals.entry(principal.clone()).or_default().waiting.insert(place, waiter());
        JoinOutcome::Waits(place)
    }

    /// Removes a waiting call, or releases the slot of a running call. In the second case, admits the next call and
    /// returns its waker.
    pub(super) fn leave(&mut self, principal: &Principal, place: QueuePosition) -> Option<W> {
        let calls = self.principals.get_mut(principal)?;
        let waited = calls.waiting.remove(&place).is_some();
        if !waited {
            calls.in_use -= 1;
            self.in_use -= 1;
        }
        if calls.in_use == 0 && calls.waiting.is_empty() {
            self.principals.remove(principal);
        }
        if waited { None } else { self.admit_next() }
    }

    fn admit_next(&mut self) -> Option<W> {
        let order = |(principal, calls): (&Principal, &PrincipalCalls<W>)| {
            let (first, _) = calls.waiting.first_key_value()?;
            Some(((calls.in_use, *first), principal.clone()))
        };
        let (_, principal) = self.principals.iter().filter_map(order).min()?;
        let (_, next) = self.principals.get_mut(&principal)?.waiting.pop_first()?;
        self.let_in(&principal);
        Some(next)
    }

    fn let_in(&mut self, principal: &Principal) {
        self.principals.entry(principal.clone()).or_default().in_use += 1;
        self.in_use += 1;
        self.admissions += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script on one slot with up to nine waiting calls, and returns the call numbers in order of admission. In
    /// the script, `l`, `n` and `h` add a call with that priority and the next number, `.` ends the running call, and a
    /// digit makes the call with that number leave.
    fn play(script: &str) -> Vec<usize> {
        let (mut line, local) = (WaitingList::new(NonZeroUsize::MIN, 9), Principal::local());
        let (mut places, mut let_in) = (Vec::new(), Vec::new());
        for step in script.chars() {
            let number = places.len();
            let priority = match step {
                'l' => Priority::Low,
                'n' => Priority::Normal,
                'h' => Priority::High,
                '.' => {
                    let inside: usize = *let_in.last().unwrap();
                    let_in.extend(line.leave(&local, places[inside]));
                    continue;
                }
                digit => {
                    let number = usize::try_from(digit.to_digit(10).unwrap()).unwrap();
                    let_in.extend(line.leave(&local, places[number]));
                    continue;
                }
            };
            match line.join(&local, priority, || number) {
                JoinOutcome::In(place) => {
                    let_in.push(number);
                    places.push(place);
                }
                JoinOutcome::Waits(place) => places.push(place),
                JoinOutcome::Full => panic!("{script}: the waiting list is full"),
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
    fn cancelled_waiting_call_does_not_free_a_slot() {
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
        let (mut line, local) = (WaitingList::new(NonZeroUsize::MIN, 1), Principal::local());
        let mut join = || line.join(&local, Priority::Normal, || ());
        let JoinOutcome::In(inside) = join() else { panic!() };
        let JoinOutcome::Waits(_) = join() else { panic!() };
        assert_eq!(join(), JoinOutcome::Full);
        assert_eq!(line.leave(&local, inside), Some(()));
        assert!(matches!(line.join(&local, Priority::Normal, || ()), JoinOutcome::Waits(_)));
        assert_eq!((line.in_use(), line.waiting()), (1, 1));
    }

    #[test]
    fn free_slot_goes_to_the_principal_with_the_fewest_running_calls() {
        let (anna, bert) = (Principal::new("acme", "anna", ""), Principal::new("acme", "bert", ""));
        let mut line = WaitingList::new(NonZeroUsize::new(2).unwrap(), 9);
        let inside = |joined: JoinOutcome| match joined {
            JoinOutcome::In(place) | JoinOutcome::Waits(place) => place,
            JoinOutcome::Full => panic!("the waiting list is full"),
        };
        let places: Vec<_> =
            (0..5).map(|number| inside(line.join(&anna, Priority::High, || ("anna", number)))).collect();
        inside(line.join(&bert, Priority::Low, || ("bert", 0)));
        inside(line.join(&bert, Priority::Low, || ("bert", 1)));
        assert_eq!(line.leave(&anna, places[0]), Some(("bert", 0)), "bert has no running call");
        assert_eq!(line.leave(&anna, places[1]), Some(("anna", 2)), "anna has no running call");
        assert_eq!(line.leave(&anna, places[2]), Some(("anna", 3)));
        assert_eq!((line.in_use(), line.waiting()), (2, 2));
    }

    #[test]
    fn full_waiting_list_of_one_principal_does_not_refuse_calls_of_another_principal() {
        let (anna, bert) = (Principal::new("acme", "anna", ""), Principal::new("acme", "bert", ""));
        let mut line = WaitingList::new(NonZeroUsize::MIN, 1);
        assert!(matches!(line.join(&anna, Priority::Normal, || ()), JoinOutcome::In(_)));
        assert!(matches!(line.join(&anna, Priority::Normal, || ()), JoinOutcome::Waits(_)));
        assert_eq!(line.join(&anna, Priority::Normal, || ()), JoinOutcome::Full);
        assert!(matches!(line.join(&bert, Priority::Normal, || ()), JoinOutcome::Waits(_)));
    }
}
