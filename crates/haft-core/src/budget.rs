//! What a model's context still holds: reserved before a call, settled after it, never overdrawn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::StoreReason;

/// How a model's context is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextLimits {
    /// All that the model can see at once.
    pub window_tokens: u64,
    /// Kept free, because counting is never quite as the model counts.
    pub buffer_tokens: u64,
    /// Kept free for the model's reply.
    pub output_tokens_max: u64,
}

impl ContextLimits {
    /// What messages and schemas may take together.
    pub fn usable_tokens(&self) -> u64 {
        self.window_tokens.saturating_sub(self.buffer_tokens).saturating_sub(self.output_tokens_max)
    }
}

/// The context of one run. The calls of a turn share it, and together never promise more than there is.
#[derive(Debug)]
pub struct Budget {
    usable_tokens: u64,
    usage: Mutex<Usage>,
}

/// What is taken, by what took it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The conversation so far.
    pub current_tokens: u64,
    /// Reserved by calls that have not answered yet.
    pub pending_tokens: u64,
    /// The definitions of the tools that are shown.
    pub schema_tokens: u64,
}

impl Usage {
    /// What there would be if `new` came on top.
    fn projected(&self, new_tokens: u64) -> u64 {
        [self.current_tokens, self.pending_tokens, self.schema_tokens, new_tokens]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl Budget {
    pub fn new(limits: ContextLimits, schema_tokens: u64) -> Arc<Self> {
        let usage = Usage { schema_tokens, ..Usage::default() };
        Arc::new(Self { usable_tokens: limits.usable_tokens(), usage: Mutex::new(usage) })
    }

    /// Takes the conversation's size as the model reported it. What is reserved stays so.
    pub fn set_current(&self, tokens: u64) {
        self.usage_mut().current_tokens = tokens;
    }

    /// The tools that are shown have changed.
    pub fn set_schemas(&self, tokens: u64) {
        self.usage_mut().schema_tokens = tokens;
    }

    /// Sets tokens aside for the answer of one call. Dropped, they are free again.
    pub fn reserve(self: &Arc<Self>, tokens: u64) -> Result<Reservation, Shortage> {
        let mut reservation = Reservation { budget: Arc::clone(self), tokens: 0 };
        reservation.resize(tokens)?;
        Ok(reservation)
    }

    pub fn usage(&self) -> Usage {
        *self.usage_mut()
    }

    pub fn usable_tokens(&self) -> u64 {
        self.usable_tokens
    }

    /// What can still be reserved.
    pub fn left_tokens(&self) -> u64 {
        self.usable_tokens.saturating_sub(self.usage().projected(0))
    }

    fn usage_mut(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens set aside for the answer of one call.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    tokens: u64,
}

impl Reservation {
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Sets aside as many tokens as the answer turned out to take. A reservation that cannot grow stays as it was.
    pub fn resize(&mut self, tokens: u64) -> Result<(), Shortage> {
        let mut usage = self.budget.usage_mut();
        let others = Usage { pending_tokens: usage.pending_tokens.saturating_sub(self.tokens), ..*usage };
        if tokens > self.tokens && others.projected(tokens) > self.budget.usable_tokens {
            return Err(Shortage::of(&others, tokens, self.budget.usable_tokens));
        }
        usage.pending_tokens = others.pending_tokens.saturating_add(tokens);
        self.tokens = tokens;
        Ok(())
    }

    /// What this reservation could grow to at the moment.
    pub fn room_tokens(&self) -> u64 {
        self.budget.left_tokens().saturating_add(self.tokens)
    }

    /// The answer is now part of the conversation.
    pub fn settle(mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        let mut usage = self.budget.usage_mut();
        usage.pending_tokens = usage.pending_tokens.saturating_sub(tokens);
        usage.current_tokens = usage.current_tokens.saturating_add(tokens);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut usage = self.budget.usage_mut();
        usage.pending_tokens = usage.pending_tokens.saturating_sub(self.tokens);
    }
}

/// Why tokens could not be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub asked_tokens: u64,
    pub left_tokens: u64,
    pub cause: ShortageCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortageCause {
    /// It would not fit even if no other call were under way.
    Context,
    /// It would fit, had other calls of the turn not reserved what is left.
    OtherCalls,
}

impl Shortage {
    fn of(others: &Usage, asked_tokens: u64, usable_tokens: u64) -> Self {
        let alone = Usage { pending_tokens: 0, ..*others };
        let cause = if alone.projected(asked_tokens) > usable_tokens {
            ShortageCause::Context
        } else {
            ShortageCause::OtherCalls
        };
        Self { asked_tokens, left_tokens: usable_tokens.saturating_sub(others.projected(0)), cause }
    }

    /// Why an output is stored that could not get the tokens it takes.
    pub fn reason(&self) -> StoreReason {
        match self.cause {
            ShortageCause::Context => StoreReason::TokenBudget,
            ShortageCause::OtherCalls => StoreReason::ReserveFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(window_tokens: u64) -> Arc<Budget> {
        Budget::new(ContextLimits { window_tokens, buffer_tokens: 10, output_tokens_max: 20 }, 5)
    }

    #[test]
    fn what_is_usable_is_the_window_without_buffer_and_reply() {
        let check =
            |window_tokens: u64, expected: u64| assert_eq!(budget(window_tokens).usable_tokens(), expected);
        check(130, 100);
        check(30, 0);
        check(3, 0);
    }

    #[test]
    fn calls_of_a_turn_cannot_together_reserve_more_than_there_is() {
        let budget = budget(130);
        let mut first = budget.reserve(60).unwrap();
        let refused = budget.reserve(40).unwrap_err();
        assert_eq!(refused, Shortage { asked_tokens: 40, left_tokens: 35, cause: ShortageCause::OtherCalls });
        assert_eq!(refused.reason(), StoreReason::ReserveFailed);
        first.resize(10).unwrap();
        let second = budget.reserve(85).unwrap();
        assert_eq!(first.resize(11).unwrap_err().left_tokens, 10);
        assert_eq!(first.tokens(), 10, "one that cannot grow stays as it was");
        drop(second);
        first.settle();
        assert_eq!(budget.usage(), Usage { current_tokens: 10, pending_tokens: 0, schema_tokens: 5 });
    }

    #[test]
    fn what_would_not_fit_alone_is_told_apart() {
        let budget = budget(130);
        let refused = budget.reserve(96).unwrap_err();
        assert_eq!((refused.cause, refused.reason()), (ShortageCause::Context, StoreReason::TokenBudget));
        budget.set_current(1_000);
        assert_eq!(budget.left_tokens(), 0);
        assert_eq!(budget.reserve(1).unwrap_err().cause, ShortageCause::Context);
        assert!(budget.reserve(0).is_ok(), "nothing needs no room");
    }

    /// What can happen to a budget.
    #[derive(Debug, Clone)]
    enum Act {
        Reserve(u64),
        Resize(usize, u64),
        Settle(usize),
        Drop(usize),
        Current(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..200u64).prop_map(Act::Reserve),
            (0..8usize, 0..300u64).prop_map(|(at, tokens)| Act::Resize(at, tokens)),
            (0..8usize).prop_map(Act::Settle),
            (0..8usize).prop_map(Act::Drop),
            prop_oneof![0..150u64, Just(u64::MAX)].prop_map(Act::Current),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_nothing_is_promised_that_is_not_there(acts in prop::collection::vec(act(), 0..60)) {
            let budget = budget(230);
            let mut held: Vec<Reservation> = Vec::new();
            for act in acts {
                let before = budget.left_tokens();
                match act {
                    Act::Reserve(tokens) => {
                        let reserved = budget.reserve(tokens);
                        prop_assert_eq!(reserved.is_ok(), tokens <= before || tokens == 0);
                        held.extend(reserved.ok());
                    }
                    Act::Resize(at, tokens) => {
                        if let Some(reservation) = held.get_mut(at) {
                            let (had, room) = (reservation.tokens(), reservation.room_tokens());
                            let resized = reservation.resize(tokens);
                            prop_assert_eq!(resized.is_ok(), tokens <= had || tokens <= room);
                        }
                    }
                    Act::Settle(at) if at < held.len() => held.remove(at).settle(),
                    Act::Drop(at) if at < held.len() => drop(held.remove(at)),
                    Act::Settle(_) | Act::Drop(_) => {}
                    Act::Current(tokens) => budget.set_current(tokens),
                }
                let usage = budget.usage();
                let promised: u64 = held.iter().map(Reservation::tokens).sum();
                prop_assert_eq!(usage.pending_tokens, promised, "pending is what is held, no more and no less");
            }
            held.clear();
            prop_assert_eq!(budget.usage().pending_tokens, 0);
        }
    }
}
