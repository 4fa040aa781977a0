//! What is kept of a run, so that it can go on after whatever ended its process.

use std::fmt;

use crate::place::Operation;
use crate::result::{ToolError, ToolErrorKind};
use crate::run::told::Told;
use crate::tool::{Effects, ToolCall};
use futures_util::future::BoxFuture;

/// Keeps what a run was told, and which calls reached their tool. A call that is not on record is not made, so whatever a
/// chronicle does not know did not happen.
pub trait Chronicle: fmt::Debug + Send + Sync {
    /// Puts down what the run is told. It outlives this process from then on.
    fn told(&self, told: &Told) -> Result<(), Unrecorded>;

    /// Puts down that a call is about to reach its tool.
    fn begins(&self, call: &ToolCall, operation: &Operation) -> Result<(), Unrecorded>;

    /// Returns when everything that was put down outlives the machine, too, or will soon enough.
    fn secure(&self, haste: Haste) -> BoxFuture<'_, Result<(), Unrecorded>>;
}

/// How soon what was put down must outlive the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// Before anything else is done.
    Now,
    /// Whatever is lost with the machine can be done again and nobody sees a difference: to be secured once in a while
    /// is enough.
    Soon,
}

impl Haste {
    /// For a call of which this much is known for sure.
    pub fn for_effects(assured: Effects) -> Self {
        match assured {
            Effects::ReadOnly => Self::Soon,
            Effects::Idempotent | Effects::Mutating | Effects::Unknown => Self::Now,
        }
    }
}

/// Something could not be put down; after that nothing more can be, until somebody has looked after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    pub problem: String,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what happens can no longer be put on record: {}", self.problem)
    }
}

impl std::error::Error for Unrecorded {}

impl From<Unrecorded> for ToolError {
    fn from(unrecorded: Unrecorded) -> Self {
        let message = format!("the call was not made: {unrecorded}");
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}
