//! Journal stores. A journal belongs to one run, and only one holder at a time may append to it.
//!
//! [`SessionStore`](crate::sessions::SessionStore) keeps journals in files, [`MemoryJournals`] in memory. Both pass the
//! same tests. A further store, for example a database for many servers, would implement the same traits.

mod memory;
#[cfg(test)]
mod tests;

use std::fmt;

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::run::journal::{Epoch, JournalError};

use crate::sessions::line::{SessionJournalLine, SessionStart};
use crate::sessions::{SessionError, SessionHistory, SessionJournal};

pub use memory::MemoryJournals;

/// Keeps the journals of all runs.
pub trait JournalStore: fmt::Debug + Send + Sync {
    /// Creates the journal of a new run and claims it.
    fn create<'a>(
        &'a self,
        key: &'a RunKey,
        opened: SessionStart,
    ) -> BoxFuture<'a, Result<SessionJournal, SessionError>>;

    /// Claims the journal of a stored run. The previous holder cannot append any more.
    fn claim<'a>(
        &'a self,
        key: &'a RunKey,
        takeover: Takeover,
    ) -> BoxFuture<'a, Result<ClaimedJournal, SessionError>>;

    /// Reads up to `count` lines, skipping the first `from` lines. The journal may have a holder that appends at the
    /// same time.
    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: usize,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionJournalLine>, SessionError>>;

    /// Returns the root runs of a principal, newest first.
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        page: RunListPage,
    ) -> BoxFuture<'a, Result<Vec<ListedRun>, SessionError>>;

    /// Removes a journal that has no holder.
    fn remove<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<(), SessionError>>;
}

/// The right to append to one journal.
pub trait JournalClaim: fmt::Debug + Send + Sync {
    /// Returns the number of this claim.
    fn epoch(&self) -> Epoch;

    /// Appends lines in one write. They survive a crash of this process, and a crash of the machine only after `sync`.
    /// Once another holder has claimed the journal, this call or the next `sync` fails with [`JournalError::Fenced`].
    fn append(&self, lines: &[SessionJournalLine]) -> Result<(), JournalError>;

    /// Makes all appended lines durable.
    fn sync(&self) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Makes all appended lines durable, either now or soon after this method returns.
    fn sync_soon(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        self.sync()
    }
}

/// Selects whether a claim may replace the claim of a holder that still exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Takeover {
    /// A claim fails with "busy" if the journal has a holder.
    #[default]
    Never,
    /// The claim fences the present holder. Use this if the holder hangs, or if it was stopped and may continue later.
    Allowed,
}

/// A claimed journal and its content before the claim.
#[derive(Debug)]
pub struct ClaimedJournal {
    /// The content of the journal before the claim.
    pub past: SessionHistory,
    /// The journal, for further lines.
    pub journal: SessionJournal,
    /// The state of the previous holder.
    pub before: HolderBefore,
}

/// The state of the holder that a claim replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderBefore {
    /// The previous holder had already ended.
    Gone,
    /// The holder may still run and write events. It finds out that it is fenced when it next appends to the journal.
    Fenced,
}

/// A page of a run list.
#[derive(Debug, Clone, Copy)]
pub struct RunListPage {
    /// The number of newer runs to skip.
    pub skip: usize,
    /// The maximum number of runs on the page.
    pub count: usize,
}

/// One stored run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    /// The id of the run.
    pub id: SessionId,
    /// The beginning of the request.
    pub title: String,
    /// The name of the agent that received the request.
    pub agent: String,
    /// The start, in milliseconds since 1970.
    pub started_ms: u64,
    /// True if a process works on the run now.
    pub is_running: bool,
}

impl ListedRun {
    /// Returns the list entry of a run, from the first line of its journal.
    pub fn of(id: SessionId, opened: SessionStart, is_running: bool) -> Self {
        let SessionStart { title, agent, at_ms, .. } = opened;
        Self { id, title, agent, started_ms: at_ms, is_running }
    }
}

/// Returns the first line of a journal, which describes the start of the run.
pub async fn opened(store: &dyn JournalStore, key: &RunKey) -> Result<SessionStart, SessionError> {
    match store.read(key, 0, 1).await?.pop() {
        Some(SessionJournalLine::Session(opened)) => Ok(*opened),
        _ => Err(SessionError::NotFound { id: key.run.to_string() }),
    }
}
