//! The limits that a run passes down to the calls and sub-agents it starts.

use std::sync::Arc;
use std::time::Instant;

use super::meter::Meter;

/// The scope of a run. A sub-agent spends from its meter and ends no later than it does.
#[derive(Debug, Clone)]
pub struct RunScope {
    /// Receives every event of the run and its sub-agents.
    pub meter: Arc<Meter>,
    /// The names of the agents from the first one down to the agent of this run.
    pub path: Vec<String>,
    /// The start of the run; the time budget counts from it.
    pub began: Instant,
    /// The time when the run is aborted.
    pub until: Instant,
}
