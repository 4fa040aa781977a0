//! The limits of a run, and its counters.

/// The limits of a run. Each limit has its own finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// The most useful replies of the model. The last one may only answer.
    pub turns_max: u32,
    /// The most calls of the whole run, including those inside batches; `None` leaves only `turns_max`.
    pub tool_calls_max: Option<u32>,
    /// The most calls of one turn. The run refuses the calls beyond it.
    pub tool_calls_per_turn_max: u32,
    /// The most attempts at one turn when replies are unusable.
    pub attempts_max: u32,
    /// `None` if the size of the window is unknown; then only the provider limits the context.
    pub context: Option<RunContextLimit>,
}

/// The division of the model's context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunContextLimit {
    /// The size of the whole window.
    pub window_tokens: u64,
    /// Reserved for the answer.
    pub output_tokens: u64,
    /// Reserved because token counts are estimates.
    pub buffer_tokens: u64,
}

impl Default for RunLimits {
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

impl RunContextLimit {
    /// Returns the tokens that messages and tools may take together.
    pub fn usable_tokens(&self) -> u64 {
        let reserved = self.output_tokens.saturating_add(self.buffer_tokens);
        self.window_tokens.saturating_sub(reserved)
    }

    /// Returns true if a request of this many tokens leaves too little room.
    pub fn is_full(&self, request_tokens: u64) -> bool {
        request_tokens > self.usable_tokens()
    }
}

/// The counters of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// Useful replies of the model so far.
    pub turns: u32,
    /// Turns with tool calls.
    pub tool_turns: u32,
    /// Calls that the run permitted.
    pub tool_calls: u32,
    /// Consecutive unusable replies. The run asks again for each within its turn.
    pub attempts: u32,
    /// Invalid final reports.
    pub bad_reports: u32,
    /// Consecutive turns with more calls than the limit per turn.
    pub crowded_turns: u32,
    /// Consecutive replies that reached the limit of output tokens.
    pub long_replies: u32,
    /// Consecutive turns in which the model only searched for tools.
    pub search_turns: u32,
}

impl RunCounters {
    /// Returns true if the model has replied to this run at least once.
    pub fn has_asked(&self) -> bool {
        self.turns > 0 || self.attempts > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_full_when_output_and_buffer_no_longer_fit() {
        let limit = RunContextLimit { window_tokens: 1000, output_tokens: 300, buffer_tokens: 100 };
        let check = |tokens: u64, full: bool| assert_eq!(limit.is_full(tokens), full, "{tokens}");
        check(0, false);
        check(600, false);
        check(601, true);
        check(u64::MAX, true);
        let small = RunContextLimit { window_tokens: 100, ..limit };
        assert!(small.is_full(1));
    }
}
