//! The limits that a run passes on to the calls and sub-agents that it starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::park_clock::ParkClock;

/// The scope of a run. A sub-agent spends from the run's meter and ends no later than the run.
#[derive(Debug, Clone)]
pub struct RunScope {
    /// The meter, which receives every event of the run and its sub-agents.
    pub meter: Arc<Meter>,
    /// The chain of agents, from the agent that was asked first to the agent of this run.
    pub path: Vec<String>,
    /// The start of the run, at which the time budget starts too.
    pub began: Instant,
    /// The deadline of the run, if neither the run nor a sub-agent is ever parked (waiting for a person or the caller).
    pub until: Instant,
    /// The time for which the run waited for a person or its caller. It is not counted for the deadline or the budget.
    pub parked: Arc<ParkClock>,
    /// The caller's request to end the run before its next turn. Sub-agents do not see it, because a call that has
    /// begun is never interrupted.
    pub end_request: Arc<EndRequest>,
}

/// A request to end a run between two turns.
#[derive(Debug, Default)]
pub struct EndRequest(AtomicBool);

impl EndRequest {
    /// Asks the run to end before its next turn.
    pub fn make(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns true if the run must not begin another turn.
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RunScope {
    /// Creates the scope of a run without a parent.
    pub fn new(meter: Arc<Meter>, path: Vec<String>, began: Instant, until: Instant) -> Self {
        Self { meter, path, began, until, parked: Arc::default(), end_request: Arc::default() }
    }

    /// Returns the time that the run has used of its time budget, without the parked time.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(self.parked.total(now))
    }

    /// Returns the deadline of the run, assuming that the run is not parked again.
    pub fn deadline(&self, now: Instant) -> Instant {
        self.until.checked_add(self.parked.total(now)).unwrap_or(self.until)
    }
}
