//! The token budget of a model's context window. A call reserves tokens for its output, and settles the reservation
//! when the output is in the conversation. A reservation never takes more tokens than are left.

mod load;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use load::{SchemaLoad, TokenLoad};

use crate::model_request::ModelTool;
use crate::output_store::StoreReason;
use crate::tokens::TokenCounter;

/// The parts into which a model's context window is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextLimits {
    /// The size of the model's context window.
    pub window_tokens: u64,
    /// Tokens that stay free, because haft's token counts differ slightly from the model's own.
    pub buffer_tokens: u64,
    /// Tokens that stay free for the model's reply.
    pub output_tokens_max: u64,
}

impl ContextLimits {
    /// Returns the tokens that messages and tool schemas may take together.
    pub fn usable_tokens(&self) -> u64 {
        self.window_tokens.saturating_sub(self.buffer_tokens).saturating_sub(self.output_tokens_max)
    }
}

/// The token budget of one run. The tool calls of a turn share it and cannot together reserve more than is left.
///
/// A text never has more tokens than bytes. While this upper bound fits, the budget need not count tokens, and its
/// decisions are the same as with exact counts. The tokenizer's vocabulary is therefore loaded only when a context is
/// nearly full.
pub struct ContextWindow {
    usable_tokens: u64,
    counter: Arc<dyn TokenCounter>,
    taken: Mutex<ContextLoad>,
}

/// The used and reserved tokens, by consumer.
#[derive(Debug, Default)]
struct ContextLoad {
    /// The tokens of the conversation so far.
    current: TokenLoad,
    /// The tokens reserved by calls that have not returned yet.
    pending_tokens: u64,
    /// The tokens of all tool definitions that the model sees.
    schemas: SchemaLoad,
}

impl ContextLoad {
    /// Returns an upper bound of the tokens in use.
    fn most(&self) -> u64 {
        self.bounds().projected(0)
    }

    /// Returns an upper bound of the usage, or the exact usage if all texts have been counted.
    fn bounds(&self) -> ContextUsage {
        self.usage(self.current.most(), self.schemas.most())
    }

    /// Returns an estimate of the usage. The tokens of uncounted texts are estimated from their length.
    fn estimate(&self) -> ContextUsage {
        self.usage(self.current.about(), self.schemas.about())
    }

    fn usage(&self, current_tokens: u64, schema_tokens: u64) -> ContextUsage {
        ContextUsage { current_tokens, pending_tokens: self.pending_tokens, schema_tokens }
    }

    /// Counts the texts that are not counted yet and returns the exact usage.
    fn counted(&mut self, counter: &dyn TokenCounter) -> ContextUsage {
        self.current.count(counter);
        self.schemas.count(counter);
        self.bounds()
    }
}

/// The tokens in use, by consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextUsage {
    /// The tokens of the conversation so far.
    pub current_tokens: u64,
    /// The tokens reserved by calls that have not returned yet.
    pub pending_tokens: u64,
    /// The tokens of all tool definitions that the model sees.
    pub schema_tokens: u64,
}

impl ContextUsage {
    /// Returns the total usage with `new_tokens` added.
    fn projected(&self, new_tokens: u64) -> u64 {
        [self.current_tokens, self.pending_tokens, self.schema_tokens, new_tokens]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl ContextWindow {
    /// Creates the budget of an empty conversation without tools.
    pub fn new(limits: ContextLimits, counter: Arc<dyn TokenCounter>) -> Arc<Self> {
        Arc::new(Self { usable_tokens: limits.usable_tokens(), counter, taken: Mutex::default() })
    }

    /// Records the number of tokens that the conversation and the tools take together, as the model reported it. Does
    /// not change reservations.
    pub fn report(&self, tokens: u64) {
        let mut taken = self.taken();
        let schema_tokens = taken.schemas.about().min(tokens);
        taken.schemas = SchemaLoad::Counted(schema_tokens);
        taken.current = TokenLoad::tokens(tokens - schema_tokens);
    }

    /// Adds a text to the conversation.
    pub fn add(&self, text: String) {
        self.taken().current.add(text);
    }

    /// Replaces the conversation by these texts and by media that take `media_tokens`. Tools and reservations stay.
    pub fn replace_conversation(&self, texts: impl IntoIterator<Item = String>, media_tokens: u64) {
        let mut current = TokenLoad::tokens(media_tokens);
        texts.into_iter().for_each(|text| current.add(text));
        self.taken().current = current;
    }

    /// Replaces the tools that the model sees.
    pub fn set_tools(&self, tools: &Arc<[ModelTool]>) {
        self.taken().schemas = SchemaLoad::of(tools);
    }

    /// Reserves tokens for the output of one call. Dropping the reservation frees them.
    pub fn reserve(self: &Arc<Self>, tokens: u64) -> Result<Reservation, TokenShortage> {
        let mut reservation = Reservation { budget: Arc::clone(self), tokens: 0 };
        reservation.resize(tokens)?;
        Ok(reservation)
    }

    /// Returns the tokens of conversation and tools. The number is exact if they may exceed the budget, else an
    /// estimate.
    pub fn taken_tokens(&self) -> u64 {
        let mut taken = self.taken();
        let full = taken.most().saturating_sub(taken.pending_tokens) > self.usable_tokens;
        let usage = if full { taken.counted(&*self.counter) } else { taken.estimate() };
        usage.current_tokens.saturating_add(usage.schema_tokens)
    }

    /// Counts the texts that are not counted yet, and returns the exact number of tokens in use.
    pub fn usage(&self) -> ContextUsage {
        self.taken().counted(&*self.counter)
    }

    /// Returns an estimate of the tokens of the tool definitions.
    pub fn schema_tokens(&self) -> u64 {
        self.taken().schemas.about()
    }

    /// Returns the tokens that messages, tool schemas and reservations may take together.
    pub fn usable_tokens(&self) -> u64 {
        self.usable_tokens
    }

    /// Returns the tokens that a call can still reserve.
    pub fn left_tokens(&self) -> u64 {
        self.usable_tokens.saturating_sub(self.usage().projected(0))
    }

    fn taken(&self) -> MutexGuard<'_, ContextLoad> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ContextWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextWindow").field("usable_tokens", &self.usable_tokens).finish_non_exhaustive()
    }
}

/// Tokens reserved for the output of one call.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<ContextWindow>,
    tokens: u64,
}

impl Reservation {
    /// Returns the number of reserved tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Changes the reservation to the size of the actual output. On error the reservation keeps its size.
    pub fn resize(&mut self, tokens: u64) -> Result<(), TokenShortage> {
        let ContextWindow { usable_tokens, counter, taken } = &*self.budget;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let others_tokens = taken.pending_tokens.saturating_sub(self.tokens);
        let fits = |usage: ContextUsage| {
            let others = ContextUsage { pending_tokens: others_tokens, ..usage };
            if others.projected(tokens) > *usable_tokens {
                return Err(TokenShortage::of(&others, tokens, *usable_tokens));
            }
            Ok(())
        };
        // Count only if the upper bound does not fit. Shrinking always succeeds, even when the budget is overdrawn.
        if tokens > self.tokens && fits(taken.bounds()).is_err() {
            fits(taken.counted(&**counter))?;
        }
        taken.pending_tokens = others_tokens.saturating_add(tokens);
        self.tokens = tokens;
        Ok(())
    }

    /// Returns the size to which this reservation could grow now.
    pub fn growable_tokens(&self) -> u64 {
        self.budget.left_tokens().saturating_add(self.tokens)
    }

    /// Turns the reserved tokens into tokens of the conversation, which now contains the output.
    pub fn settle(mut self) {
        // `drop` frees `self.tokens`, so set it to zero or the tokens would be freed twice.
        let tokens = std::mem::take(&mut self.tokens);
        let mut taken = self.budget.taken();
        taken.pending_tokens = taken.pending_tokens.saturating_sub(tokens);
        taken.current.grow(tokens);
    }

    /// Adds `text` to the conversation without counting its tokens. This is possible only if the upper bound fits into
    /// the budget: one token per byte of the text, plus `tokens` for the other content. Otherwise returns the
    /// reservation and the text, so that the caller can count the tokens.
    pub fn settle_uncounted(self, text: String, tokens: u64) -> Result<(), (Self, String)> {
        let mut taken = self.budget.taken();
        let most = taken.most().saturating_sub(self.tokens).saturating_add(tokens);
        if most.saturating_add(text.len() as u64) > self.budget.usable_tokens {
            drop(taken);
            return Err((self, text));
        }
        taken.current.grow(tokens);
        taken.current.add(text);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut taken = self.budget.taken();
        taken.pending_tokens = taken.pending_tokens.saturating_sub(self.tokens);
    }
}

/// The reason why a reservation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenShortage {
    /// The tokens that the call asked for.
    pub asked_tokens: u64,
    /// The tokens that the call could have reserved.
    pub left_tokens: u64,
    /// The cause, which shows if the call may succeed after other calls of the turn have ended.
    pub cause: ShortageCause,
}

/// The cause of a shortage. It shows if waiting for other calls would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortageCause {
    /// The reservation would not fit even if no other call had reserved tokens.
    Context,
    /// The reservation would fit without the tokens that other calls of the turn have reserved.
    OtherCalls,
}

impl TokenShortage {
    fn of(others: &ContextUsage, asked_tokens: u64, usable_tokens: u64) -> Self {
        let alone = ContextUsage { pending_tokens: 0, ..*others };
        let cause = if alone.projected(asked_tokens) > usable_tokens {
            ShortageCause::Context
        } else {
            ShortageCause::OtherCalls
        };
        Self { asked_tokens, left_tokens: usable_tokens.saturating_sub(others.projected(0)), cause }
    }

    /// Returns the reason to record for an output that is stored because it did not get enough tokens.
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
    use crate::tokens::{LengthEstimator, Tokens};

    /// Returns a budget whose tool definitions take five tokens.
    fn budget(window_tokens: u64) -> Arc<ContextWindow> {
        let limits = ContextLimits { window_tokens, buffer_tokens: 10, output_tokens_max: 20 };
        let budget = ContextWindow::new(limits, Arc::new(LengthEstimator));
        budget.set_tools(&tools_of_bytes(20));
        budget
    }

    /// Returns tools whose text has this many bytes.
    fn tools_of_bytes(bytes: usize) -> Arc<[ModelTool]> {
        let input_schema = Arc::new(serde_json::json!(0));
        let name = "x".repeat(bytes - "  0".len());
        Arc::from([ModelTool { name, description: String::new(), input_schema, strict: false }])
    }

    struct PanickingCounter;

    impl TokenCounter for PanickingCounter {
        fn count(&self, text: &str) -> Tokens {
            unreachable!("the budget counted the tokens of {} bytes", text.len())
        }
    }

    #[test]
    fn tokens_are_not_counted_while_the_byte_bound_fits() {
        let limits = ContextLimits { window_tokens: 700, buffer_tokens: 0, output_tokens_max: 0 };
        let budget = ContextWindow::new(limits, Arc::new(PanickingCounter));
        budget.set_tools(&tools_of_bytes(100));
        budget.add("x".repeat(100));
        let reserved = budget.reserve(400).unwrap();
        reserved.settle_uncounted("x".repeat(100), 400).unwrap();
        assert_eq!(budget.taken_tokens(), 3 * 25 + 400);
        let (reserved, text) = budget.reserve(0).unwrap().settle_uncounted("one".to_owned(), 0).unwrap_err();
        assert_eq!(
            (reserved.tokens(), text.as_str()),
            (0, "one"),
            "a text whose bytes exceed the window is returned"
        );
    }

    #[test]
    fn reported_usage_replaces_all_earlier_estimates() {
        let budget = budget(130);
        budget.add("x".repeat(400));
        assert_eq!(budget.taken_tokens(), 105, "the text is counted because its bytes exceed the window");
        budget.report(50);
        assert_eq!(budget.usage(), ContextUsage { current_tokens: 45, pending_tokens: 0, schema_tokens: 5 });
        budget.set_tools(&tools_of_bytes(40));
        assert_eq!(budget.taken_tokens(), 55);
        budget.report(3);
        assert_eq!(budget.usage(), ContextUsage { current_tokens: 0, pending_tokens: 0, schema_tokens: 3 });
    }

    #[test]
    fn usable_tokens_exclude_the_buffer_and_the_reply() {
        let check =
            |window_tokens: u64, expected: u64| assert_eq!(budget(window_tokens).usable_tokens(), expected);
        check(130, 100);
        check(30, 0);
        check(3, 0);
    }

    #[test]
    fn reservations_of_one_turn_never_exceed_the_window_together() {
        let budget = budget(130);
        let mut first = budget.reserve(60).unwrap();
        let refused = budget.reserve(40).unwrap_err();
        assert_eq!(
            refused,
            TokenShortage { asked_tokens: 40, left_tokens: 35, cause: ShortageCause::OtherCalls }
        );
        assert_eq!(refused.reason(), StoreReason::ReserveFailed);
        first.resize(10).unwrap();
        let second = budget.reserve(85).unwrap();
        assert_eq!(first.resize(11).unwrap_err().left_tokens, 10);
        assert_eq!(first.tokens(), 10, "a failed resize leaves the reservation unchanged");
        drop(second);
        first.settle();
        assert_eq!(budget.usage(), ContextUsage { current_tokens: 10, pending_tokens: 0, schema_tokens: 5 });
    }

    #[test]
    fn shortage_cause_is_context_when_a_call_alone_does_not_fit() {
        let budget = budget(130);
        let refused = budget.reserve(96).unwrap_err();
        assert_eq!((refused.cause, refused.reason()), (ShortageCause::Context, StoreReason::TokenBudget));
        budget.report(1_000);
        assert_eq!(budget.left_tokens(), 0);
        assert_eq!(budget.reserve(1).unwrap_err().cause, ShortageCause::Context);
        assert!(budget.reserve(0).is_ok(), "a reservation of 0 tokens succeeds in a full window");
    }

    /// An operation on a budget, for the property tests.
    #[derive(Debug, Clone)]
    enum WindowOperation {
        Reserve(u64),
        Resize(usize, u64),
        Settle(usize),
        Drop(usize),
        /// Settles the reservation with this index, for an output text with this many bytes.
        Answer(usize, usize),
        Report(u64),
    }

    fn act() -> impl Strategy<Value = WindowOperation> {
        prop_oneof![
            (0..200u64).prop_map(WindowOperation::Reserve),
            (0..8usize, 0..300u64).prop_map(|(at, tokens)| WindowOperation::Resize(at, tokens)),
            (0..8usize).prop_map(WindowOperation::Settle),
            (0..8usize).prop_map(WindowOperation::Drop),
            prop_oneof![0..150u64, Just(u64::MAX)].prop_map(WindowOperation::Report),
            (0..8usize, 0..200usize).prop_map(|(at, bytes)| WindowOperation::Answer(at, bytes)),
        ]
    }

    /// The time at which the tokens of an output are counted.
    #[derive(Debug, Clone, Copy)]
    enum CountTime {
        Late,
        AtOnce,
    }

    /// Settles a reservation with an output. Returns true if the output fitted.
    fn answer(held: &mut Vec<Reservation>, at: usize, bytes: usize, counting: CountTime) -> bool {
        if at >= held.len() {
            return false;
        }
        let (reservation, text) = (held.remove(at), "x".repeat(bytes));
        match counting {
            CountTime::AtOnce => settle_counted(reservation, &text),
            CountTime::Late => match reservation.settle_uncounted(text, 0) {
                Ok(()) => true,
                Err((reservation, text)) => settle_counted(reservation, &text),
            },
        }
    }

    fn settle_counted(mut reservation: Reservation, text: &str) -> bool {
        let fits = reservation.resize(LengthEstimator.count(text).count()).is_ok();
        reservation.settle();
        fits
    }

    /// Carries out one operation and returns true if it succeeded.
    fn carry_out(
        act: &WindowOperation,
        budget: &Arc<ContextWindow>,
        held: &mut Vec<Reservation>,
        counting: CountTime,
    ) -> bool {
        match *act {
            WindowOperation::Reserve(tokens) => {
                let reserved = budget.reserve(tokens);
                let fits = reserved.is_ok();
                held.extend(reserved.ok());
                return fits;
            }
            WindowOperation::Resize(at, tokens) => {
                return held.get_mut(at).is_some_and(|held| held.resize(tokens).is_ok());
            }
            WindowOperation::Answer(at, bytes) => return answer(held, at, bytes, counting),
            WindowOperation::Settle(at) if at < held.len() => held.remove(at).settle(),
            WindowOperation::Drop(at) if at < held.len() => drop(held.remove(at)),
            WindowOperation::Settle(_) | WindowOperation::Drop(_) => {}
            WindowOperation::Report(tokens) => budget.report(tokens),
        }
        true
    }

    proptest! {
        #[test]
        fn late_and_immediate_token_counting_give_the_same_decisions(acts in prop::collection::vec(act(), 0..60)) {
            let (late, at_once) = (budget(230), budget(230));
            let (mut held_late, mut held_at_once) = (Vec::new(), Vec::new());
            for act in acts {
                let decided = carry_out(&act, &late, &mut held_late, CountTime::Late);
                let expected = carry_out(&act, &at_once, &mut held_at_once, CountTime::AtOnce);
                prop_assert_eq!(decided, expected, "{:?}", act);
                at_once.usage();
                let full = |budget: &ContextWindow| budget.taken_tokens() > budget.usable_tokens();
                prop_assert_eq!(full(&late), full(&at_once));
            }
            prop_assert_eq!(late.usage(), at_once.usage());
        }

        #[test]
        fn reservations_never_exceed_the_tokens_left(acts in prop::collection::vec(act(), 0..60)) {
            let budget = budget(230);
            let mut held: Vec<Reservation> = Vec::new();
            for act in acts {
                let before = budget.left_tokens();
                match act {
                    WindowOperation::Reserve(tokens) => {
                        let reserved = budget.reserve(tokens);
                        prop_assert_eq!(reserved.is_ok(), tokens <= before || tokens == 0);
                        held.extend(reserved.ok());
                    }
                    WindowOperation::Resize(at, tokens) => {
                        if let Some(reservation) = held.get_mut(at) {
                            let (had, room) = (reservation.tokens(), reservation.growable_tokens());
                            let resized = reservation.resize(tokens);
                            prop_assert_eq!(resized.is_ok(), tokens <= had || tokens <= room);
                        }
                    }
                    WindowOperation::Settle(at) if at < held.len() => held.remove(at).settle(),
                    WindowOperation::Drop(at) if at < held.len() => drop(held.remove(at)),
                    WindowOperation::Settle(_) | WindowOperation::Drop(_) => {}
                    WindowOperation::Answer(at, bytes) => { answer(&mut held, at, bytes, CountTime::Late); }
                    WindowOperation::Report(tokens) => budget.report(tokens),
                }
                let usage = budget.usage();
                let promised: u64 = held.iter().map(Reservation::tokens).sum();
                prop_assert_eq!(usage.pending_tokens, promised, "pending tokens equal the tokens of all reservations");
            }
            held.clear();
            prop_assert_eq!(budget.usage().pending_tokens, 0);
        }
    }
}
