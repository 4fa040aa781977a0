//! The timeout and the deadline of a call.

use std::time::{Duration, Instant};

/// The time limit of one call. A provider that can return a partial result reads `deadline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// The whole time limit of the call, for messages.
    pub timeout: Duration,
    /// The time at which the engine stops the call.
    pub deadline: Instant,
}

impl TimeLimit {
    /// Formats the timeout for messages: `120s`, `1.5s`, `250ms`.
    pub fn in_words(&self) -> String {
        match (self.timeout.as_secs(), self.timeout.subsec_millis()) {
            (0, millis) => format!("{millis}ms"),
            (seconds, 0) => format!("{seconds}s"),
            (seconds, millis) => format!("{}s", format!("{seconds}.{millis:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_print_in_seconds_or_milliseconds() {
        let check = |millis: u64, expected: &str| {
            let limit = TimeLimit { timeout: Duration::from_millis(millis), deadline: Instant::now() };
            assert_eq!(limit.in_words(), expected);
        };
        check(120_000, "120s");
        check(1_500, "1.5s");
        check(10_050, "10.05s");
        check(250, "250ms");
        check(0, "0ms");
    }
}
