//! Limits of stored sessions.

use std::time::Duration;

/// The limits on the size and age of stored sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// The largest journal of one session.
    pub bytes_max: u64,
    /// Retention after the last line was written.
    pub keep: Duration,
}
