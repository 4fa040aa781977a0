//! How long a server that says that its tools have changed is left alone before they are listed again.

use std::time::{Duration, Instant};

/// A server that changes its tools one by one is asked once for all.
const FIRST: Duration = Duration::from_millis(50);

/// A server that never stops changing them is asked ever more rarely, down to this.
const LONGEST: Duration = Duration::from_secs(30);

/// After so long without a change it is taken for one that has settled.
const QUIET: Duration = Duration::from_secs(10);

/// What is known of the changes of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settling {
    wait: Duration,
    /// When its tools were listed last.
    listed: Option<Instant>,
}

impl Default for Settling {
    fn default() -> Self {
        Self { wait: FIRST, listed: None }
    }
}

impl Settling {
    /// How long to wait after a change that is told now.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        if self.is_restless(now) { self.wait } else { FIRST }
    }

    /// Its tools were listed because of a change, after the wait.
    pub(super) fn listed(self, now: Instant) -> Self {
        // The wait itself was no quiet.
        let restless = now.checked_sub(self.wait).is_some_and(|told| self.is_restless(told));
        let wait = if restless { (self.wait * 2).min(LONGEST) } else { FIRST * 2 };
        Self { wait, listed: Some(now) }
    }

    fn is_restless(&self, now: Instant) -> bool {
        self.listed.is_some_and(|listed| now.saturating_duration_since(listed) < QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_stops_is_asked_ever_more_rarely() {
        let (mut now, mut settling) = (Instant::now() + Duration::from_hours(1), Settling::default());
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = settling.wait(now);
            waits.push(wait.as_millis());
            now += wait;
            settling = settling.listed(now);
        }
        let expected = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(waits, expected);
        now += QUIET;
        assert_eq!(settling.wait(now), FIRST, "a while of quiet and all is forgiven");
        assert_eq!(settling.listed(now + FIRST).wait(now + FIRST), FIRST * 2);
    }
}
