//! The lifecycle of a server as a table. Maps each state and event to the next state and an action, without IO.

use std::time::{Duration, Instant};

/// The waits before each restart, in seconds. haft uses the last wait for all further restarts.
const BACKOFF_SECONDS: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// The uptime after which haft ignores earlier failures.
const SUSTAINED_UPTIME: Duration = Duration::from_mins(1);

/// The names of all states.
pub const SERVER_STATES: [&str; 8] =
    ["configured", "starting", "ready", "degraded", "restarting", "failed", "needs_auth", "stopped"];

/// The lifecycle state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LifecycleState {
    /// The server is not started, because no caller has needed it yet.
    Configured,
    Starting {
        failures: usize,
    },
    Ready {
        since: Instant,
        failures: usize,
    },
    /// A call timed out, and a health probe is running.
    Degraded {
        since: Instant,
        failures: usize,
    },
    /// The server ended, or could not be started. It will be started again at the time `at`.
    Restarting {
        cause: RestartCause,
        failures: usize,
        reason: String,
        at: Instant,
    },
    NeedsAuth {
        reason: String,
    },
    Stopped,
}

/// The cause of a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartCause {
    NotOpened,
    Ended,
}

/// An event in the lifecycle of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LifecycleEvent {
    /// A caller needs the server.
    Wanted,
    Opened,
    NotOpened {
        reason: String,
    },
    AuthNeeded {
        reason: String,
    },
    /// The connection ended without a `Stop`.
    Ended {
        reason: String,
    },
    /// A call got no reply from the server in time.
    Silent,
    /// The server responded: to a health probe, or to a call after it had required authorization.
    Alive,
    /// The health probe failed.
    Dead,
    /// The server does not recognise the session any more; a new session must be opened at once.
    Expired,
    /// The wait before the next start is over.
    Due,
    Stop,
}

/// An action that the driver performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LifecycleAction {
    Nothing,
    Open,
    OpenAfter(Duration),
    /// Send a health probe.
    Probe,
    /// Close the connection, and start the server again after this wait.
    ReopenAfter(Duration),
    /// Close the connection, and start the server again at once.
    Reopen,
    Close,
}

/// Returns the next state and the action for an event.
pub(super) fn step(
    state: LifecycleState,
    event: LifecycleEvent,
    now: Instant,
) -> (LifecycleState, LifecycleAction) {
    use {LifecycleAction as A, LifecycleEvent as E, LifecycleState as S};
    match (state, event) {
        (S::Stopped, _) => (S::Stopped, A::Nothing),
        (_, E::Stop) => (S::Stopped, A::Close),
        (S::Configured | S::NeedsAuth { .. }, E::Wanted) => (S::Starting { failures: 0 }, A::Open),
        (S::Restarting { failures, .. }, E::Due) => (S::Starting { failures }, A::Open),
        (S::Starting { failures }, E::Opened) => (S::Ready { since: now, failures }, A::Nothing),
        (S::Starting { failures }, E::NotOpened { reason }) => {
            let (state, wait) = again(RestartCause::NotOpened, failures, reason, now);
            (state, A::OpenAfter(wait))
        }
        (S::Starting { .. }, E::AuthNeeded { reason }) => (S::NeedsAuth { reason }, A::Nothing),
        // Keep the connection: other calls may still succeed, and the user may have logged in before the next call.
        (S::Ready { .. } | S::Degraded { .. }, E::AuthNeeded { reason }) => {
            (S::NeedsAuth { reason }, A::Nothing)
        }
        (S::NeedsAuth { .. }, E::Alive) => (S::Ready { since: now, failures: 0 }, A::Nothing),
        (S::NeedsAuth { reason }, E::Ended { .. } | E::Expired) => (S::NeedsAuth { reason }, A::Close),
        (S::Ready { since, failures } | S::Degraded { since, failures }, E::Ended { reason }) => {
            let (state, wait) =
                again(RestartCause::Ended, failures_after_uptime(failures, since, now), reason, now);
            (state, A::ReopenAfter(wait))
        }
        (S::Ready { since, failures }, E::Silent) => (S::Degraded { since, failures }, A::Probe),
        (S::Degraded { since, failures }, E::Alive) => (S::Ready { since, failures }, A::Nothing),
        (S::Degraded { since, failures }, E::Dead) => {
            let reason = "the server no longer answers".to_owned();
            let (state, wait) =
                again(RestartCause::Ended, failures_after_uptime(failures, since, now), reason, now);
            (state, A::ReopenAfter(wait))
        }
        (S::Ready { failures, .. } | S::Degraded { failures, .. }, E::Expired) => {
            (S::Starting { failures }, A::Reopen)
        }
        // Ignore late events, which are about an earlier state.
        (
            state,
            E::Wanted
            | E::Opened
            | E::NotOpened { .. }
            | E::AuthNeeded { .. }
            | E::Ended { .. }
            | E::Silent
            | E::Alive
            | E::Dead
            | E::Expired
            | E::Due,
        ) => (state, A::Nothing),
    }
}

/// Schedules the next start with the backoff for this number of failures.
fn again(cause: RestartCause, failures: usize, reason: String, now: Instant) -> (LifecycleState, Duration) {
    let wait = Duration::from_secs(BACKOFF_SECONDS[failures.min(BACKOFF_SECONDS.len() - 1)]);
    (LifecycleState::Restarting { cause, failures: failures + 1, reason, at: now + wait }, wait)
}

/// Resets the number of failures after a sustained uptime.
fn failures_after_uptime(failures: usize, since: Instant, now: Instant) -> usize {
    if now.duration_since(since) >= SUSTAINED_UPTIME { 0 } else { failures }
}

impl LifecycleState {
    pub(super) fn name(&self) -> &'static str {
        match self {
            LifecycleState::Configured => "configured",
            LifecycleState::Starting { .. } => "starting",
            LifecycleState::Ready { .. } => "ready",
            LifecycleState::Degraded { .. } => "degraded",
            // The server failed after every wait in the table. haft still starts it once a minute.
            LifecycleState::Restarting { failures, .. } if *failures >= BACKOFF_SECONDS.len() => "failed",
            LifecycleState::Restarting { .. } => "restarting",
            LifecycleState::NeedsAuth { .. } => "needs_auth",
            LifecycleState::Stopped => "stopped",
        }
    }

    /// Returns the reason why the server is not ready, if there is one.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            LifecycleState::Restarting { reason, .. } | LifecycleState::NeedsAuth { reason } => Some(reason),
            LifecycleState::Configured
            | LifecycleState::Starting { .. }
            | LifecycleState::Ready { .. }
            | LifecycleState::Degraded { .. }
            | LifecycleState::Stopped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> LifecycleEvent {
        LifecycleEvent::Ended { reason: "gone".into() }
    }

    #[test]
    fn failing_server_is_retried_with_backoff_up_to_a_minute() {
        let now = Instant::now();
        let (mut state, action) = step(LifecycleState::Configured, LifecycleEvent::Wanted, now);
        assert_eq!(action, LifecycleAction::Open);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let (waiting, action) = step(state, LifecycleEvent::NotOpened { reason: "no".into() }, now);
            let LifecycleAction::OpenAfter(wait) = action else { unreachable!("{action:?}") };
            waits.push(wait.as_secs());
            state = step(waiting, LifecycleEvent::Due, now).0;
        }
        assert_eq!(waits, [0, 1, 2, 5, 10, 30, 60, 60, 60]);
    }

    #[test]
    fn server_states_lists_the_name_of_every_state() {
        let (now, reason) = (Instant::now(), String::new());
        let restarting = |failures| LifecycleState::Restarting {
            cause: RestartCause::Ended,
            failures,
            reason: String::new(),
            at: now,
        };
        let states = [
            LifecycleState::Configured,
            LifecycleState::Starting { failures: 0 },
            LifecycleState::Ready { since: now, failures: 0 },
            LifecycleState::Degraded { since: now, failures: 0 },
            restarting(0),
            restarting(BACKOFF_SECONDS.len()),
            LifecycleState::NeedsAuth { reason },
            LifecycleState::Stopped,
        ];
        assert_eq!(states.each_ref().map(LifecycleState::name), SERVER_STATES);
    }

    #[test]
    fn backoff_resets_only_after_a_minute_of_uptime() {
        let since = Instant::now();
        let check = |uptime: u64, wait: u64| {
            let now = since + Duration::from_secs(uptime);
            let (_, action) = step(LifecycleState::Ready { since, failures: 4 }, ended(), now);
            assert_eq!(action, LifecycleAction::ReopenAfter(Duration::from_secs(wait)), "{uptime}");
        };
        check(0, 10);
        check(59, 10);
        check(60, 0);
    }

    #[test]
    fn server_is_failed_after_all_backoffs_but_still_retried() {
        let now = Instant::now();
        let mut state = LifecycleState::Starting { failures: 0 };
        let mut names = Vec::new();
        for _ in 0..=BACKOFF_SECONDS.len() {
            state = step(state, LifecycleEvent::NotOpened { reason: "no".into() }, now).0;
            names.push(state.name());
            state = step(state, LifecycleEvent::Due, now).0;
            assert_eq!(state.name(), "starting");
        }
        assert_eq!(names[..6], ["restarting"; 6]);
        assert_eq!(names[6..], ["failed"; 2]);
    }

    #[test]
    fn silent_server_is_probed_before_it_is_restarted() {
        let now = Instant::now();
        let (state, action) =
            step(LifecycleState::Ready { since: now, failures: 0 }, LifecycleEvent::Silent, now);
        assert_eq!((state.name(), &action), ("degraded", &LifecycleAction::Probe));
        assert_eq!(step(state.clone(), LifecycleEvent::Alive, now).0.name(), "ready");
        let (state, action) = step(state, LifecycleEvent::Dead, now);
        assert_eq!((state.name(), action), ("restarting", LifecycleAction::ReopenAfter(Duration::ZERO)));
    }

    #[test]
    fn expired_session_is_reopened_without_counting_a_failure() {
        let now = Instant::now();
        let (state, action) =
            step(LifecycleState::Ready { since: now, failures: 3 }, LifecycleEvent::Expired, now);
        assert_eq!((state, action), (LifecycleState::Starting { failures: 3 }, LifecycleAction::Reopen));
    }

    /// Returns one value of each state. The exhaustive match fails to compile if a new state is missing.
    fn all_states(now: Instant) -> [LifecycleState; 7] {
        let (since, failures) = (now, 0);
        let reason = || "r".to_owned();
        match LifecycleState::Stopped {
            LifecycleState::Configured
            | LifecycleState::Starting { .. }
            | LifecycleState::Ready { .. }
            | LifecycleState::Degraded { .. }
            | LifecycleState::Restarting { .. }
            | LifecycleState::NeedsAuth { .. }
            | LifecycleState::Stopped => [
                LifecycleState::Configured,
                LifecycleState::Starting { failures },
                LifecycleState::Ready { since, failures },
                LifecycleState::Degraded { since, failures },
                LifecycleState::Restarting {
                    cause: RestartCause::Ended,
                    failures: 1,
                    reason: reason(),
                    at: now,
                },
                LifecycleState::NeedsAuth { reason: reason() },
                LifecycleState::Stopped,
            ],
        }
    }

    fn all_events() -> [LifecycleEvent; 11] {
        let reason = || "e".to_owned();
        match LifecycleEvent::Stop {
            LifecycleEvent::Wanted
            | LifecycleEvent::Opened
            | LifecycleEvent::NotOpened { .. }
            | LifecycleEvent::AuthNeeded { .. }
            | LifecycleEvent::Ended { .. }
            | LifecycleEvent::Silent
            | LifecycleEvent::Alive
            | LifecycleEvent::Dead
            | LifecycleEvent::Expired
            | LifecycleEvent::Due
            | LifecycleEvent::Stop => [
                LifecycleEvent::Wanted,
                LifecycleEvent::Opened,
                LifecycleEvent::NotOpened { reason: reason() },
                LifecycleEvent::AuthNeeded { reason: reason() },
                LifecycleEvent::Ended { reason: reason() },
                LifecycleEvent::Silent,
                LifecycleEvent::Alive,
                LifecycleEvent::Dead,
                LifecycleEvent::Expired,
                LifecycleEvent::Due,
                LifecycleEvent::Stop,
            ],
        }
    }

    /// For each state, the outcome of each event, in the order of [`all_events`]. A dot means that nothing changes and
    /// no action follows.
    const TABLE: [(&str, [&str; 11]); 7] = [
        ("configured", ["starting Open", ".", ".", ".", ".", ".", ".", ".", ".", ".", "stopped Close"]),
        (
            "starting",
            [
                ".",
                "ready Nothing",
                "restarting OpenAfter(0ns)",
                "needs_auth Nothing",
                ".",
                ".",
                ".",
                ".",
                ".",
                ".",
                "stopped Close",
            ],
        ),
        (
            "ready",
            [
                ".",
                ".",
                ".",
                "needs_auth Nothing",
                "restarting ReopenAfter(0ns)",
                "degraded Probe",
                ".",
                ".",
                "starting Reopen",
                ".",
                "stopped Close",
            ],
        ),
        (
            "degraded",
            [
                ".",
                ".",
                ".",
                "needs_auth Nothing",
                "restarting ReopenAfter(0ns)",
                ".",
                "ready Nothing",
                "restarting ReopenAfter(0ns)",
                "starting Reopen",
                ".",
                "stopped Close",
            ],
        ),
        ("restarting", [".", ".", ".", ".", ".", ".", ".", ".", ".", "starting Open", "stopped Close"]),
        (
            "needs_auth",
            [
                "starting Open",
                ".",
                ".",
                ".",
                "needs_auth Close",
                ".",
                "ready Nothing",
                ".",
                "needs_auth Close",
                ".",
                "stopped Close",
            ],
        ),
        ("stopped", ["."; 11]),
    ];

    #[test]
    fn every_event_in_every_state_follows_the_transition_table() {
        let now = Instant::now();
        for (state, (name, row)) in all_states(now).into_iter().zip(TABLE) {
            assert_eq!(state.name(), name);
            for (event, expected) in all_events().into_iter().zip(row) {
                let case = format!("{name}, {event:?}");
                let (next, action) = step(state.clone(), event, now);
                if expected == "." {
                    assert_eq!((&next, action), (&state, LifecycleAction::Nothing), "{case}");
                } else {
                    assert_eq!(format!("{} {action:?}", next.name()), expected, "{case}");
                }
            }
        }
    }

    /// Returns the name of the state after each event.
    fn life(state: LifecycleState, events: &[LifecycleEvent], now: Instant) -> Vec<&'static str> {
        let mut state = state;
        let names = events.iter().map(|event| {
            state = step(state.clone(), event.clone(), now).0;
            state.name()
        });
        names.collect()
    }

    #[test]
    fn state_needs_auth_ends_after_a_successful_call_or_a_login() {
        let now = Instant::now();
        let refused = || LifecycleEvent::AuthNeeded { reason: "401".into() };
        let ready = || LifecycleState::Ready { since: now, failures: 3 };
        // The server answers another call on the same connection, which was never closed.
        assert_eq!(life(ready(), &[refused(), LifecycleEvent::Alive], now), ["needs_auth", "ready"]);
        // Further refusals of the server leave the state unchanged.
        assert_eq!(life(ready(), &[refused(), refused()], now), ["needs_auth", "needs_auth"]);
        // The connection has ended in the meantime. After a login, the next call opens a new one.
        let login = [refused(), ended(), LifecycleEvent::Wanted, LifecycleEvent::Opened];
        assert_eq!(life(ready(), &login, now), ["needs_auth", "needs_auth", "starting", "ready"]);
        // A failed start leads to a login only if the server demands a login, and a login resets the number of
        // failures.
        let later = [
            LifecycleEvent::NotOpened { reason: "no".into() },
            LifecycleEvent::Due,
            refused(),
            LifecycleEvent::Wanted,
        ];
        let expected = ["restarting", "starting", "needs_auth", "starting"];
        assert_eq!(life(LifecycleState::Starting { failures: 5 }, &later, now), expected);
        let asked = LifecycleState::NeedsAuth { reason: "401".into() };
        assert_eq!(
            step(asked, LifecycleEvent::Wanted, now),
            (LifecycleState::Starting { failures: 0 }, LifecycleAction::Open)
        );
    }

    #[test]
    fn server_stopped_during_backoff_is_not_restarted() {
        let now = Instant::now();
        let begun = [
            ended(),
            LifecycleEvent::Stop,
            LifecycleEvent::Due,
            LifecycleEvent::Opened,
            LifecycleEvent::Wanted,
        ];
        let ready = LifecycleState::Ready { since: now, failures: 0 };
        let expected = ["restarting", "stopped", "stopped", "stopped", "stopped"];
        assert_eq!(life(ready, &begun, now), expected);
    }
}
