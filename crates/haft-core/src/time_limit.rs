//! The timeout and the deadline of a call.

use std::time::{Duration, Instant};

use crate::duration_text;

/// The time limit of one call. A provider that can return a partial result reads `deadline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// The whole time limit of the call, for messages.
    pub timeout: Duration,
    /// The time at which the engine stops the call.
    pub deadline: Instant,
}

impl TimeLimit {
    /// Formats the timeout for messages.
    pub fn in_words(&self) -> String {
        duration_text::in_words(self.timeout)
    }
}
