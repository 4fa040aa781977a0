//! The run that a call is made for, as far as whoever works on its behalf must know it.

use std::sync::Arc;
use std::time::Instant;

use super::meter::Meter;

/// What a run hands down. A sub-agent spends from its meter, and ends no later than it does.
#[derive(Debug, Clone)]
pub struct RunScope {
    /// Sees every event of the run and of its descendants.
    pub meter: Arc<Meter>,
    /// The agents that work here: the one asked first, the one it called, and so on to the one whose run this is.
    pub path: Vec<String>,
    pub began: Instant,
    /// When the run is ended, however far it is.
    pub until: Instant,
}
