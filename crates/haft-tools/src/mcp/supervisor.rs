//! The life of a server as a table: what state follows which event, and what is to be done. Nothing is done here.

use std::time::{Duration, Instant};

/// How long is waited before each further start; the last holds for ever.
const BACKOFF_SECONDS: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// A server that was up for so long is forgiven what went before.
const SUSTAINED_UPTIME: Duration = Duration::from_mins(1);

/// Where a server is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not started, because nobody has needed it yet.
    Configured,
    Starting {
        failures: usize,
    },
    Ready {
        since: Instant,
        failures: usize,
    },
    /// It let a call wait too long, and is being asked whether it is still there.
    Degraded {
        since: Instant,
        failures: usize,
    },
    /// It ended, or could not be started, and will be started again at this time.
    Restarting {
        cause: Cause,
        failures: usize,
        reason: String,
        at: Instant,
    },
    NeedsAuth {
        reason: String,
    },
    Stopped,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    NotOpened,
    Ended,
}

/// What happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Somebody needs it.
    Wanted,
    Opened,
    NotOpened {
        reason: String,
    },
    AuthNeeded {
        reason: String,
    },
    /// The connection ended by itself.
    Ended {
        reason: String,
    },
    /// A call waited in vain.
    Silent,
    /// It answered when asked whether it is there, or did not.
    Alive,
    Dead,
    /// Its session is gone; a new one is needed at once.
    Expired,
    /// The time set for the next start has come.
    Due,
    Stop,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Open,
    OpenAfter(Duration),
    /// Ask it whether it is still there.
    Probe,
    /// Let go of what is left of it, and start it again after a while.
    ReopenAfter(Duration),
    /// Let go of what is left of it, and start it at once.
    Reopen,
    Close,
}

/// The table.
pub(super) fn step(state: State, event: Event, now: Instant) -> (State, Action) {
    use {Action as A, Event as E, State as S};
    match (state, event) {
        (S::Stopped, _) => (S::Stopped, A::Nothing),
        (_, E::Stop) => (S::Stopped, A::Close),
        (S::Configured | S::NeedsAuth { .. }, E::Wanted) => (S::Starting { failures: 0 }, A::Open),
        (S::Restarting { failures, .. }, E::Due) => (S::Starting { failures }, A::Open),
        (S::Starting { failures }, E::Opened) => (S::Ready { since: now, failures }, A::Nothing),
        (S::Starting { failures }, E::NotOpened { reason }) => {
            let (state, wait) = again(Cause::NotOpened, failures, reason, now);
            (state, A::OpenAfter(wait))
        }
        (S::Starting { .. }, E::AuthNeeded { reason }) => (S::NeedsAuth { reason }, A::Nothing),
        // The connection stays: other calls go on, and the next may find that somebody has logged in.
        (S::Ready { .. } | S::Degraded { .. }, E::AuthNeeded { reason }) => {
            (S::NeedsAuth { reason }, A::Nothing)
        }
        (S::NeedsAuth { .. }, E::Alive) => (S::Ready { since: now, failures: 0 }, A::Nothing),
        (S::NeedsAuth { reason }, E::Ended { .. } | E::Expired) => (S::NeedsAuth { reason }, A::Close),
        (S::Ready { since, failures } | S::Degraded { since, failures }, E::Ended { reason }) => {
            let (state, wait) = again(Cause::Ended, forgiven(failures, since, now), reason, now);
            (state, A::ReopenAfter(wait))
        }
        (S::Ready { since, failures }, E::Silent) => (S::Degraded { since, failures }, A::Probe),
        (S::Degraded { since, failures }, E::Alive) => (S::Ready { since, failures }, A::Nothing),
        (S::Degraded { since, failures }, E::Dead) => {
            let reason = "the server does not answer any more".to_owned();
            let (state, wait) = again(Cause::Ended, forgiven(failures, since, now), reason, now);
            (state, A::ReopenAfter(wait))
        }
        (S::Ready { failures, .. } | S::Degraded { failures, .. }, E::Expired) => {
            (S::Starting { failures }, A::Reopen)
        }
        // Late news: what they speak of is over.
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

fn again(cause: Cause, failures: usize, reason: String, now: Instant) -> (State, Duration) {
    let wait = Duration::from_secs(BACKOFF_SECONDS[failures.min(BACKOFF_SECONDS.len() - 1)]);
    (State::Restarting { cause, failures: failures + 1, reason, at: now + wait }, wait)
}

fn forgiven(failures: usize, since: Instant, now: Instant) -> usize {
    if now.duration_since(since) >= SUSTAINED_UPTIME { 0 } else { failures }
}

impl State {
    pub(super) fn name(&self) -> &'static str {
        match self {
            State::Configured => "configured",
            State::Starting { .. } => "starting",
            State::Ready { .. } => "ready",
            State::Degraded { .. } => "degraded",
            // It had every wait there is, and did not stay. It is still tried once a minute.
            State::Restarting { failures, .. } if *failures >= BACKOFF_SECONDS.len() => "failed",
            State::Restarting { .. } => "restarting",
            State::NeedsAuth { .. } => "needs_auth",
            State::Stopped => "stopped",
        }
    }

    /// Why it is not ready, where there is a reason.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            State::Restarting { reason, .. } | State::NeedsAuth { reason } => Some(reason),
            State::Configured
            | State::Starting { .. }
            | State::Ready { .. }
            | State::Degraded { .. }
            | State::Stopped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended() -> Event {
        Event::Ended { reason: "gone".into() }
    }

    #[test]
    fn a_server_that_always_fails_is_tried_ever_more_rarely_and_for_ever() {
        let now = Instant::now();
        let (mut state, action) = step(State::Configured, Event::Wanted, now);
        assert_eq!(action, Action::Open);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let (waiting, action) = step(state, Event::NotOpened { reason: "no".into() }, now);
            let Action::OpenAfter(wait) = action else { unreachable!("{action:?}") };
            waits.push(wait.as_secs());
            state = step(waiting, Event::Due, now).0;
        }
        assert_eq!(waits, [0, 1, 2, 5, 10, 30, 60, 60, 60]);
    }

    #[test]
    fn only_sustained_uptime_is_a_fresh_start() {
        let since = Instant::now();
        let check = |uptime: u64, wait: u64| {
            let now = since + Duration::from_secs(uptime);
            let (_, action) = step(State::Ready { since, failures: 4 }, ended(), now);
            assert_eq!(action, Action::ReopenAfter(Duration::from_secs(wait)), "{uptime}");
        };
        check(0, 10);
        check(59, 10);
        check(60, 0);
    }

    #[test]
    fn a_server_that_had_every_wait_there_is_has_failed_and_is_still_tried() {
        let now = Instant::now();
        let mut state = State::Starting { failures: 0 };
        let mut names = Vec::new();
        for _ in 0..=BACKOFF_SECONDS.len() {
            state = step(state, Event::NotOpened { reason: "no".into() }, now).0;
            names.push(state.name());
            state = step(state, Event::Due, now).0;
            assert_eq!(state.name(), "starting");
        }
        assert_eq!(names[..6], ["restarting"; 6]);
        assert_eq!(names[6..], ["failed"; 2]);
    }

    #[test]
    fn a_server_that_is_silent_is_asked_before_it_is_given_up() {
        let now = Instant::now();
        let (state, action) = step(State::Ready { since: now, failures: 0 }, Event::Silent, now);
        assert_eq!((state.name(), &action), ("degraded", &Action::Probe));
        assert_eq!(step(state.clone(), Event::Alive, now).0.name(), "ready");
        let (state, action) = step(state, Event::Dead, now);
        assert_eq!((state.name(), action), ("restarting", Action::ReopenAfter(Duration::ZERO)));
    }

    #[test]
    fn a_forgotten_session_is_opened_again_at_once_and_is_no_failure() {
        let now = Instant::now();
        let (state, action) = step(State::Ready { since: now, failures: 3 }, Event::Expired, now);
        assert_eq!((state, action), (State::Starting { failures: 3 }, Action::Reopen));
    }

    /// One of each. The match lists what must be added here when there are more.
    fn all_states(now: Instant) -> [State; 7] {
        let (since, failures) = (now, 0);
        let reason = || "r".to_owned();
        match State::Stopped {
            State::Configured
            | State::Starting { .. }
            | State::Ready { .. }
            | State::Degraded { .. }
            | State::Restarting { .. }
            | State::NeedsAuth { .. }
            | State::Stopped => [
                State::Configured,
                State::Starting { failures },
                State::Ready { since, failures },
                State::Degraded { since, failures },
                State::Restarting { cause: Cause::Ended, failures: 1, reason: reason(), at: now },
                State::NeedsAuth { reason: reason() },
                State::Stopped,
            ],
        }
    }

    fn all_events() -> [Event; 11] {
        let reason = || "e".to_owned();
        match Event::Stop {
            Event::Wanted
            | Event::Opened
            | Event::NotOpened { .. }
            | Event::AuthNeeded { .. }
            | Event::Ended { .. }
            | Event::Silent
            | Event::Alive
            | Event::Dead
            | Event::Expired
            | Event::Due
            | Event::Stop => [
                Event::Wanted,
                Event::Opened,
                Event::NotOpened { reason: reason() },
                Event::AuthNeeded { reason: reason() },
                Event::Ended { reason: reason() },
                Event::Silent,
                Event::Alive,
                Event::Dead,
                Event::Expired,
                Event::Due,
                Event::Stop,
            ],
        }
    }

    /// For each state what each event leads to, in the order of [`all_events`]; a dot is nothing at all.
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
    fn every_event_in_every_state_leads_where_the_table_says() {
        let now = Instant::now();
        for (state, (name, row)) in all_states(now).into_iter().zip(TABLE) {
            assert_eq!(state.name(), name);
            for (event, expected) in all_events().into_iter().zip(row) {
                let case = format!("{name}, {event:?}");
                let (next, action) = step(state.clone(), event, now);
                if expected == "." {
                    assert_eq!((&next, action), (&state, Action::Nothing), "{case}");
                } else {
                    assert_eq!(format!("{} {action:?}", next.name()), expected, "{case}");
                }
            }
        }
    }

    /// What each event in turn makes of a server.
    fn life(state: State, events: &[Event], now: Instant) -> Vec<&'static str> {
        let mut state = state;
        let names = events.iter().map(|event| {
            state = step(state.clone(), event.clone(), now).0;
            state.name()
        });
        names.collect()
    }

    #[test]
    fn who_is_refused_is_let_in_again_by_a_call_or_by_a_login() {
        let now = Instant::now();
        let refused = || Event::AuthNeeded { reason: "401".into() };
        let ready = || State::Ready { since: now, failures: 3 };
        // Another call got through: the connection never went.
        assert_eq!(life(ready(), &[refused(), Event::Alive], now), ["needs_auth", "ready"]);
        // Refused again and again it stays what it is.
        assert_eq!(life(ready(), &[refused(), refused()], now), ["needs_auth", "needs_auth"]);
        // The connection went meanwhile; somebody logged in, and the next call opens another.
        let login = [refused(), ended(), Event::Wanted, Event::Opened];
        assert_eq!(life(ready(), &login, now), ["needs_auth", "needs_auth", "starting", "ready"]);
        // A start that fails leads to a login only where the server says so, and a login is a fresh start.
        let later = [Event::NotOpened { reason: "no".into() }, Event::Due, refused(), Event::Wanted];
        let expected = ["restarting", "starting", "needs_auth", "starting"];
        assert_eq!(life(State::Starting { failures: 5 }, &later, now), expected);
        let asked = State::NeedsAuth { reason: "401".into() };
        assert_eq!(step(asked, Event::Wanted, now), (State::Starting { failures: 0 }, Action::Open));
    }

    #[test]
    fn a_server_that_is_stopped_while_it_waits_is_not_started_when_its_time_comes() {
        let now = Instant::now();
        let begun = [ended(), Event::Stop, Event::Due, Event::Opened, Event::Wanted];
        let ready = State::Ready { since: now, failures: 0 };
        let expected = ["restarting", "stopped", "stopped", "stopped", "stopped"];
        assert_eq!(life(ready, &begun, now), expected);
    }
}
