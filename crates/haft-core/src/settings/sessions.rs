//! Limits of stored sessions.

use std::time::Duration;

/// The limits on the size and age of stored sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// The maximum size of one session's journal, in bytes.
    pub bytes_max: u64,
    /// The time for which a session is kept after its last line was written.
    pub keep: Duration,
}
