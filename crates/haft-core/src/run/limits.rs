//! How much a run may do, and how much it did.

/// What a run may do. Every limit has a finish reason of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Useful replies of the model; the last of them is for the answer only.
    pub turns_max: u32,
    /// Calls of the whole run, those inside batches included; `None` leaves it to `turns_max`.
    pub tool_calls_max: Option<u32>,
    pub tool_calls_per_turn_max: u32,
    /// How often a turn is asked for, when replies are of no use.
    pub attempts_max: u32,
    pub context: Option<ContextLimit>,
}

/// How much a model can read and write at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextLimit {
    pub window_tokens: u64,
    /// Kept free for the answer.
    pub output_tokens: u64,
    /// Kept free because counts of tokens are estimates.
    pub buffer_tokens: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns_max: 10,
            tool_calls_max: None,
            tool_calls_per_turn_max: 10,
            attempts_max: 5,
            context: None,
        }
    }
}

impl ContextLimit {
    /// Whether a request of so many tokens leaves too little room.
    pub fn is_full(&self, request_tokens: u64) -> bool {
        let kept = self.output_tokens.saturating_add(self.buffer_tokens);
        request_tokens > self.window_tokens.saturating_sub(kept)
    }
}

/// What a run did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub turns: u32,
    /// Turns in which tools were called.
    pub tool_turns: u32,
    /// Calls that were let through.
    pub tool_calls: u32,
    /// Replies of no use in a row; each is asked for again within its turn.
    pub attempts: u32,
    /// Final reports that did not fit.
    pub bad_reports: u32,
    /// Turns in a row with more calls than a turn may have.
    pub crowded_turns: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_and_the_buffer_are_kept_free() {
        let limit = ContextLimit { window_tokens: 1000, output_tokens: 300, buffer_tokens: 100 };
        let check = |tokens: u64, full: bool| assert_eq!(limit.is_full(tokens), full, "{tokens}");
        check(0, false);
        check(600, false);
        check(601, true);
        check(u64::MAX, true);
        let small = ContextLimit { window_tokens: 100, ..limit };
        assert!(small.is_full(1));
    }
}
