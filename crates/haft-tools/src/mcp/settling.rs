//! How long a server that says that its tools have changed is left alone before they are listed again.

use std::time::{Duration, Instant};

/// A server that changes its tools one by one is asked once for all.
const FIRST: Duration = Duration::from_millis(50);

/// A server that never stops changing them is asked ever more rarely, down to this.
const LONGEST: Duration = Duration::from_secs(30);

/// After so long without a change it is taken for one that has settled.
const QUIET: Duration = Duration::from_secs(10);

/// What is known of the changes of one server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settling {
    /// How long was waited the last time, and when its tools were listed then.
    last: Option<(Duration, Instant)>,
}

impl Settling {
    /// How long to wait after a change that is told now: twice as long as the last time, unless there was quiet in between.
    pub(super) fn wait(self, now: Instant) -> Duration {
        match self.last {
            Some((waited, listed)) if now.saturating_duration_since(listed) < QUIET => {
                (waited * 2).min(LONGEST)
            }
            Some(_) | None => FIRST,
        }
    }

    /// Its tools were listed after that wait.
    pub(super) fn listed(waited: Duration, now: Instant) -> Self {
        Self { last: Some((waited, now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_stops_is_asked_ever_more_rarely() {
        let (mut now, mut settling) = (Instant::now(), Settling::default());
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = settling.wait(now);
            waits.push(wait.as_millis());
            now += wait;
            settling = Settling::listed(wait, now);
        }
        let expected = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(waits, expected);
        now += QUIET;
        assert_eq!(settling.wait(now), FIRST, "a while of quiet and all is forgiven");
    }
}
