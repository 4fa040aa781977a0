//! The write-ahead journal of a run, from which it resumes after a crash.

use std::fmt;

use crate::place::Operation;
use crate::result::{ToolError, ToolErrorKind};
use crate::run::input::RunInput;
use crate::tool::{Effects, ToolCall};
use futures_util::future::BoxFuture;

/// Records the inputs of a run and the calls that reach their tools. A call that is not in the journal does not run, so
/// the journal contains every call that may have had effects.
pub trait RunJournal: fmt::Debug + Send + Sync {
    /// Appends an input of the run. From then on it survives a crash of this process.
    fn append(&self, input: &RunInput) -> Result<(), JournalError>;

    /// Appends the start of a call, before the call reaches its tool.
    fn append_call(&self, call: &ToolCall, operation: &Operation) -> Result<(), JournalError>;

    /// Returns when all appended entries survive a crash of the machine, or will soon enough.
    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>>;
}

/// The required durability of journal entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Synced to disk before anything else happens.
    Synced,
    /// May be lost with the machine, because the lost work can be repeated without a visible difference. The journal
    /// syncs it at most once a second.
    Buffered,
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

/// The journal could not record an entry. It accepts no further entries until an operator fixes the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalError {
    pub problem: String,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what happens can no longer be put on record: {}", self.problem)
    }
}

impl std::error::Error for JournalError {}

impl From<JournalError> for ToolError {
    fn from(error: JournalError) -> Self {
        let message = format!("the call was not made: {error}");
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}
