//! The limits that a run passes down to the calls and sub-agents it starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::meter::Meter;
use super::park_clock::ParkClock;

/// The scope of a run. A sub-agent spends from its meter and ends no later than it does.
#[derive(Debug, Clone)]
pub struct RunScope {
    /// Receives every event of the run and its sub-agents.
    pub meter: Arc<Meter>,
    /// The names of the agents from the first one down to the agent of this run.
    pub path: Vec<String>,
    /// The start of the run; the time budget counts from it.
    pub began: Instant,
    /// The time when the run is aborted, if neither it nor a sub-agent is ever parked.
    pub until: Instant,
    /// The time in which the run waited for a person or its caller. It counts against neither deadline nor budget.
    pub parked: Arc<ParkClock>,
}

impl RunScope {
    /// Creates the scope of a run that works for no other run.
    pub fn new(meter: Arc<Meter>, path: Vec<String>, began: Instant, until: Instant) -> Self {
        Self { meter, path, began, until, parked: Arc::default() }
    }

    /// Returns the time that counts against the time budget.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(self.parked.total(now))
    }

    /// Returns the time when the run is aborted, if it is not parked from now on.
    pub fn deadline(&self, now: Instant) -> Instant {
        self.until.checked_add(self.parked.total(now)).unwrap_or(self.until)
    }
}
