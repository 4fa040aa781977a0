//! The line before a queue's slots: pure, without clock or channel.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use haft_core::priority::Priority;

/// How many admissions later than the highest a priority counts as having come.
fn handicap(priority: Priority) -> u64 {
    match priority {
        Priority::High => 0,
        Priority::Normal => AGEING_ADMISSIONS,
        Priority::Low => 2 * AGEING_ADMISSIONS,
    }
}

/// After so many admissions a call that waits has caught up one level of priority.
///
/// Ageing is a head start, not a clock: a call stands in the line as if it had come this many admissions later per level
/// below the highest. Its place is fixed when it comes, so nothing is sorted again; equal priorities keep their order;
/// and whoever comes that many admissions later can no longer pass, so nobody starves.
pub const AGEING_ADMISSIONS: u64 = 8;

/// Where somebody stands: by when they count as having come, then by when they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    counts_from: u64,
    ticket: u64,
}

/// What came of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    In(Place),
    Waits(Place),
    Full,
}

/// Everyone who waits, in the order they will be let in. `W` is how a waiter is woken.
#[derive(Debug)]
pub(super) struct Line<W> {
    concurrent: usize,
    waiting_max: usize,
    in_use: usize,
    waiting: BTreeMap<Place, W>,
    admissions: u64,
    next_ticket: u64,
}

impl<W> Line<W> {
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

    /// Goes in when there is room. Nobody waits while there is, so nobody is passed.
    pub(super) fn join(&mut self, priority: Priority, waiter: impl FnOnce() -> W) -> Joined {
        let place = Place { counts_from: self.admissions + handicap(priority), ticket: self.next_ticket };
        if self.in_use < self.concurrent {
            self.next_ticket += 1;
            self.let_in();
            return Joined::In(place);
        }
        if self.waiting.len() >= self.waiting_max {
            return Joined::Full;
        }
        self.next_ticket += 1;
        self.waiting.insert(place, waiter());
        Joined::Waits(place)
    }

    /// Leaves the line, or gives back the slot; then the next one is in, and is to be woken.
    pub(super) fn leave(&mut self, place: Place) -> Option<W> {
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

    /// Plays a script over one slot and up to nine waiting: `l`, `n` and `h` join with that priority and are numbered as
    /// they come, `.` ends the one inside, a digit leaves. Returns the numbers in the order they were let in.
    fn play(script: &str) -> Vec<usize> {
        let mut line = Line::new(NonZeroUsize::MIN, 9);
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
                Joined::In(place) => {
                    let_in.push(number);
                    places.push(place);
                }
                Joined::Waits(place) => places.push(place),
                Joined::Full => panic!("{script}: full"),
            }
        }
        let_in
    }

    fn check(script: &str, expected: &[usize]) {
        assert_eq!(play(script), expected, "{script}");
    }

    #[test]
    fn equal_priorities_keep_their_order() {
        check("nnn", &[0]);
        check("nnn..", &[0, 1, 2]);
        check("nnn.n..", &[0, 1, 2, 3]);
        check("lll..", &[0, 1, 2]);
    }

    #[test]
    fn a_higher_priority_goes_first() {
        check("nlnh...", &[0, 3, 2, 1]);
        check("nlhnh....", &[0, 2, 4, 3, 1]);
    }

    #[test]
    fn who_leaves_while_waiting_frees_no_slot() {
        check("nnn1", &[0]);
        check("nnn1.", &[0, 2]);
        check("nnn12.", &[0]);
        check("nnn12.n", &[0, 3]);
    }

    #[test]
    fn a_low_priority_that_waits_is_not_passed_for_ever() {
        // One slot, always a fresh `h` in the line: the low one is let in after two levels of ageing.
        let script = format!("nl{}", "h.".repeat(30));
        let let_in = play(&script);
        let turn = let_in.iter().position(|&number| number == 1).unwrap();
        assert_eq!(u64::try_from(turn).unwrap(), 2 * AGEING_ADMISSIONS + 1);
    }

    #[test]
    fn the_line_is_bounded() {
        let mut line = Line::new(NonZeroUsize::MIN, 1);
        let mut join = || line.join(Priority::Normal, || ());
        let Joined::In(inside) = join() else { panic!() };
        let Joined::Waits(_) = join() else { panic!() };
        assert_eq!(join(), Joined::Full);
        assert_eq!(line.leave(inside), Some(()));
        assert!(matches!(line.join(Priority::Normal, || ()), Joined::Waits(_)));
        assert_eq!((line.in_use(), line.waiting()), (1, 1));
    }
}
