//! The write-ahead journal of a run, from which it resumes after a crash.

use std::fmt;

use crate::position::CallOperation;
use crate::result::{ToolError, ToolErrorKind};
use crate::run::input::RunInput;
use crate::tool::{Effects, ToolCall};
use futures_util::future::BoxFuture;

/// Records the inputs of a run and the calls that reach their tools. A call runs only after it is in the journal, so
/// the journal contains every call that may have had effects.
pub trait RunJournal: fmt::Debug + Send + Sync {
    /// Appends an input of the run. When this returns, the input survives a crash of this process.
    fn append(&self, input: &RunInput) -> Result<(), JournalError>;

    /// Appends the start of a call, before the call reaches its tool.
    fn append_call(&self, call: &ToolCall, operation: &CallOperation) -> Result<(), JournalError>;

    /// Makes all appended entries survive a crash of the machine: before this returns, or soon after it, depending on
    /// `durability`.
    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>>;
}

/// The required durability of journal entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The journal syncs the entry to disk before the run continues.
    Synced,
    /// A crash of the machine may lose the entry, because the lost work can be repeated without a visible difference.
    /// The journal syncs such entries at most once a second.
    Buffered,
    /// The last entries of a run. No later action depends on them, so the journal may sync them soon after, together
    /// with the entries of other runs.
    Ended,
}

impl Durability {
    /// Returns the durability for a call with these trusted effects.
    pub fn for_effects(trusted: Effects) -> Self {
        match trusted {
            Effects::ReadOnly => Self::Buffered,
            Effects::Idempotent | Effects::Mutating | Effects::Unknown => Self::Synced,
        }
    }
}

/// The number of a process's claim on a journal, counted from 1. Each process that takes over a run makes a new claim;
/// a process whose claim is not the newest must not append anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the process that created the journal.
    pub const FIRST: Self = Self(1);

    /// Returns the epoch of the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The reason why the journal did not record an entry. It accepts no further entries from this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The store is full, read-only, gone, or over its limit.
    #[error("haft cannot write the journal of the run: {problem}")]
    Unavailable {
        /// The reason why the store cannot be written, for the operator.
        problem: String,
    },
    /// Another process claimed the journal, so this process must stop working on the run.
    #[error("another process has taken over this run (claim {} replaced claim {} of this process)", .by.0, .epoch.0)]
    Fenced {
        /// The epoch of this process.
        epoch: Epoch,
        /// The epoch of the newer claim.
        by: Epoch,
    },
}

impl JournalError {
    /// Creates the error for a store that cannot be written.
    pub fn unavailable(problem: impl fmt::Display) -> Self {
        Self::Unavailable { problem: problem.to_string() }
    }
}

impl From<JournalError> for ToolError {
    fn from(error: JournalError) -> Self {
        let message = format!("the call was not made: {error}");
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}
