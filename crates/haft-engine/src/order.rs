//! Which calls may run at the same time: a fair read/write lock over effects.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haft_core::tool::Effects;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

/// The line in which the calls of one turn stand, in call order. Those that only read go in together; any other goes in
/// alone, when all before it are done.
#[derive(Debug, Clone, Default)]
pub struct EffectOrder {
    line: Arc<Mutex<Line>>,
}

impl EffectOrder {
    /// Takes the next place in the line at once, and gives the turn when it has come. To drop the future is to leave.
    pub fn enter(&self, effects: Effects) -> impl Future<Output = Turn> + Send + use<> {
        let (admit, admitted) = oneshot::channel();
        let ticket = lock(&self.line).join(Access::of(effects), admit);
        let turn = Turn { line: Arc::clone(&self.line), ticket };
        async move {
            // The sender lives as long as the place, and the place as long as `turn`.
            // Without tokio's budget per task, which after 128 polls would make the rest of a long turn come in any order.
            let _ = unconstrained(admitted).await;
            turn
        }
    }
}

/// The right to run now. Dropping it lets the next ones in.
#[derive(Debug)]
pub struct Turn {
    line: Arc<Mutex<Line>>,
    ticket: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.line).leave(self.ticket);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Shared,
    Alone,
}

impl Access {
    fn of(effects: Effects) -> Self {
        match effects {
            Effects::ReadOnly => Self::Shared,
            Effects::Idempotent | Effects::Mutating | Effects::Unknown => Self::Alone,
        }
    }
}

/// Everyone who waits or runs, in the order they came.
#[derive(Debug, Default)]
struct Line {
    places: VecDeque<Place>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Place {
    ticket: u64,
    access: Access,
    /// `None` once admitted.
    admit: Option<oneshot::Sender<()>>,
}

impl Line {
    fn join(&mut self, access: Access, admit: oneshot::Sender<()>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.places.push_back(Place { ticket, access, admit: Some(admit) });
        self.admit();
        ticket
    }

    fn leave(&mut self, ticket: u64) {
        self.places.retain(|place| place.ticket != ticket);
        self.admit();
    }

    /// Lets in all who may run now: those who share, up to the first who wants to be alone, and that one when first.
    fn admit(&mut self) {
        for (position, place) in self.places.iter_mut().enumerate() {
            if place.access == Access::Alone && position > 0 {
                return;
            }
            if let Some(admit) = place.admit.take() {
                // Who stopped listening is about to leave.
                let _ = admit.send(());
            }
            if place.access == Access::Alone {
                return;
            }
        }
    }
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    /// Plays a script: `r` and `w` join the line, a digit drops that place. Returns who is inside, by number.
    fn check(script: &str, expected_inside: &[usize]) {
        let order = EffectOrder::default();
        let mut waiting: Vec<Option<BoxFuture<'static, Turn>>> = Vec::new();
        let mut inside: Vec<Option<Turn>> = Vec::new();
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
    fn readers_share_and_writers_are_alone_in_order() {
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
    fn who_leaves_while_waiting_holds_up_nobody() {
        check("rwr1", &[0, 2]);
        check("wwr1", &[0]);
        check("rww1", &[0]);
    }

    #[test]
    fn the_place_is_taken_before_the_first_poll() {
        let order = EffectOrder::default();
        let first = order.enter(Effects::Unknown);
        let second = order.enter(Effects::ReadOnly);
        assert!(second.now_or_never().is_none());
        assert!(first.now_or_never().is_some());
    }
}
