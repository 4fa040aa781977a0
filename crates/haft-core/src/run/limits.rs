//! The limits of a run, and its counters.

/// The limits of a run. Each limit has its own finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// The maximum number of useful model replies. In the last turn the model may only answer.
    pub turns_max: u32,
    /// The maximum number of calls in the whole run, including those inside batches; `None` for no limit except
    /// `turns_max`.
    pub tool_calls_max: Option<u32>,
    /// The maximum number of calls in one turn. The run refuses further calls.
    pub tool_calls_per_turn_max: u32,
    /// The maximum number of attempts for one turn when replies are unusable.
    pub attempts_max: u32,
    /// The maximum number of times that the model may continue or rewrite a reply that reached the limit on output
    /// tokens. Each of them is a further request with the same limit, so a caller that bounds the output sets 0.
    pub continuations_max: u32,
    /// The limits of the context window; `None` if its size is unknown. Then only the provider limits the context.
    pub context: Option<RunContextLimit>,
}

/// The parts into which the model's context window is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunContextLimit {
    /// The size of the whole window, in tokens.
    pub window_tokens: u64,
    /// The tokens reserved for the answer.
    pub output_tokens: u64,
    /// The tokens that stay free because token counts are estimates.
    pub buffer_tokens: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            turns_max: 10,
            tool_calls_max: None,
            tool_calls_per_turn_max: 10,
            attempts_max: 5,
            continuations_max: 1,
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

    /// Returns true if a request with this many tokens does not leave enough room for the answer.
    pub fn is_full(&self, request_tokens: u64) -> bool {
        request_tokens > self.usable_tokens()
    }
}

/// The counters of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// The number of useful model replies so far.
    pub turns: u32,
    /// The number of turns with tool calls.
    pub tool_turns: u32,
    /// The number of calls that the run permitted.
    pub tool_calls: u32,
    /// The number of consecutive unusable replies. After each of them the run asks again within the same turn.
    pub attempts: u32,
    /// The number of invalid final reports.
    pub bad_reports: u32,
    /// The number of consecutive turns that exceeded the limit on calls per turn.
    pub crowded_turns: u32,
    /// The number of consecutive replies that reached the limit on output tokens.
    pub long_replies: u32,
    /// The number of consecutive turns in which the model only searched for tools.
    pub search_turns: u32,
}

impl RunCounters {
    /// Returns true if the model has replied at least once in this run.
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
