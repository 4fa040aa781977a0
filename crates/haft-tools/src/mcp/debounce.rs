//! The delay between a server's report that its tools have changed and the request that lists them again.

use std::time::{Duration, Instant};

/// The first delay. A server that changes its tools one by one gets one listing request for all changes within this
/// time.
const FIRST: Duration = Duration::from_millis(50);

/// The maximum delay, for a server that never stops changing its tools.
const LONGEST: Duration = Duration::from_secs(30);

/// The time without changes after which the delays start again at [`FIRST`].
const QUIET: Duration = Duration::from_secs(10);

/// The state of one server from which its next delay is computed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ListingDebounce {
    /// The delay before the last listing, and the time of that listing; `None` before the first listing.
    last: Option<(Duration, Instant)>,
}

impl ListingDebounce {
    /// Returns the delay for a change that is reported now: twice the last delay, unless the server was quiet in
    /// between.
    pub(super) fn wait(self, now: Instant) -> Duration {
        match self.last {
            Some((waited, listed)) if now.saturating_duration_since(listed) < QUIET => {
                (waited * 2).min(LONGEST)
            }
            Some(_) | None => FIRST,
        }
    }

    /// Records that haft listed the tools after this delay.
    pub(super) fn listed(waited: Duration, now: Instant) -> Self {
        Self { last: Some((waited, now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_list_changes_are_debounced_with_growing_delays() {
        let (mut now, mut settling) = (Instant::now(), ListingDebounce::default());
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = settling.wait(now);
            waits.push(wait.as_millis());
            now += wait;
            settling = ListingDebounce::listed(wait, now);
        }
        let expected = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(waits, expected);
        now += QUIET;
        assert_eq!(settling.wait(now), FIRST, "the delay is reset after a quiet period");
    }
}
