//! Journals in memory, for programs that store nothing on disk. They are lost when the process ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::run::journal::{Epoch, JournalError};

use super::{ClaimedJournal, HolderBefore, JournalClaim, JournalStore, ListedRun, RunListPage, Takeover};
use crate::accounting::now_ms;
use crate::sessions::line::{SessionJournalLine, SessionStart};
use crate::sessions::{SessionError, SessionHistory, SessionJournal};

/// The maximum number of journals in memory. At this number, each new journal replaces the oldest journal that has no
/// holder.
const JOURNALS_MAX: usize = 10_000;

/// Journals in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryJournals(Arc<Mutex<JournalTable>>);

#[derive(Default)]
struct JournalTable {
    journals: BTreeMap<RunKey, MemoryJournal>,
    /// The number of journals created so far, by which lists are ordered.
    created: u64,
}

struct MemoryJournal {
    lines: Vec<SessionJournalLine>,
    epoch: Epoch,
    is_held: bool,
    number: u64,
}

impl MemoryJournal {
    /// Returns the root run that a sub-agent works for.
    fn origin(&self) -> Option<&str> {
        match self.lines.first() {
            Some(SessionJournalLine::Session(opened)) => opened.origin.as_deref(),
            _ => None,
        }
    }
}

impl JournalTable {
    fn make_room(&mut self) {
        if self.journals.len() < JOURNALS_MAX {
            return;
        }
        let unheld = self.journals.iter().filter(|(_, journal)| !journal.is_held);
        let oldest = unheld.min_by_key(|(_, journal)| journal.number).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.journals.remove(&oldest);
        }
    }
}

impl MemoryJournals {
    fn state(&self) -> MutexGuard<'_, JournalTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_now(&self, key: &RunKey, opened: SessionStart) -> Result<SessionJournal, SessionError> {
        let mut state = self.state();
        if state.journals.contains_key(key) {
            return Err(SessionError::Exists { id: key.run });
        }
        state.make_room();
        state.created += 1;
        let (lines, number) = (vec![SessionJournalLine::Session(Box::new(opened))], state.created);
        state
            .journals
            .insert(key.clone(), MemoryJournal { lines, epoch: Epoch::FIRST, is_held: true, number });
        Ok(self.journal(key, Epoch::FIRST))
    }

    fn claim_now(&self, key: &RunKey, takeover: Takeover) -> Result<ClaimedJournal, SessionError> {
        let mut state = self.state();
        let journal = state.journals.get_mut(key).ok_or_else(|| not_found(key))?;
        let before = match (journal.is_held, takeover) {
            (false, _) => HolderBefore::Gone,
            (true, Takeover::Allowed) => HolderBefore::Fenced,
            (true, Takeover::Never) => return Err(SessionError::Busy { id: key.run }),
        };
        let lines = journal.lines.iter().cloned().map(Ok);
        let past =
            SessionHistory::of(lines).map_err(|problem| SessionError::Unreadable { id: key.run, problem })?;
        journal.epoch = journal.epoch.next();
        journal.is_held = true;
        journal.lines.push(SessionJournalLine::Resumed { at_ms: now_ms(), claim: None });
        let epoch = journal.epoch;
        drop(state);
        Ok(ClaimedJournal { past, journal: self.journal(key, epoch), before })
    }

    /// Removes the journals of a root run and of its sub-agents, and returns their lines. The lines of the root run are
    /// first.
    pub fn take_run(&self, root: &RunKey) -> Vec<(SessionId, Vec<SessionJournalLine>)> {
        let mut state = self.state();
        let origin = root.run.to_string();
        let below = state
            .journals
            .iter()
            .filter(|(key, journal)| key.tenant == root.tenant && journal.origin() == Some(origin.as_str()));
        let keys: Vec<RunKey> = [root.clone()].into_iter().chain(below.map(|(key, _)| key.clone())).collect();
        let taken = keys.into_iter().filter_map(|key| Some((key.run, state.journals.remove(&key)?.lines)));
        taken.collect()
    }

    /// Adds the journals that [`take_run`](Self::take_run) returned. Adds nothing if the store already has one of them.
    pub fn put_run(
        &self,
        tenant: &str,
        journals: Vec<(SessionId, Vec<SessionJournalLine>)>,
    ) -> Result<(), SessionError> {
        let mut state = self.state();
        let key = |run: SessionId| RunKey { tenant: tenant.to_owned(), run };
        if let Some((id, _)) = journals.iter().find(|(run, _)| state.journals.contains_key(&key(*run))) {
            return Err(SessionError::Busy { id: *id });
        }
        for (run, lines) in journals {
            state.make_room();
            state.created += 1;
            let number = state.created;
            let journal = MemoryJournal { lines, epoch: Epoch::FIRST, is_held: false, number };
            state.journals.insert(key(run), journal);
        }
        Ok(())
    }

    fn journal(&self, key: &RunKey, epoch: Epoch) -> SessionJournal {
        SessionJournal::new(key.run, Arc::new(MemoryClaim { store: self.clone(), key: key.clone(), epoch }))
    }

    fn list_now(&self, principal: &Principal, page: RunListPage) -> Vec<ListedRun> {
        let state = self.state();
        let mut mine: Vec<(u64, ListedRun)> = state
            .journals
            .iter()
            .filter_map(|(key, journal)| match journal.lines.first() {
                Some(SessionJournalLine::Session(opened))
                    if opened.origin.is_none() && opened.belongs_to(principal) =>
                {
                    let opened = SessionStart::clone(opened);
                    Some((journal.number, ListedRun::of(key.run, opened, journal.is_held)))
                }
                _ => None,
            })
            .collect();
        mine.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        mine.into_iter().map(|(_, run)| run).skip(page.skip).take(page.count).collect()
    }

    fn remove_now(&self, key: &RunKey) -> Result<(), SessionError> {
        let mut state = self.state();
        if state.journals.get(key).ok_or_else(|| not_found(key))?.is_held {
            return Err(SessionError::Busy { id: key.run });
        }
        state.journals.remove(key);
        Ok(())
    }
}

fn not_found(key: &RunKey) -> SessionError {
    SessionError::NotFound { id: key.run.to_string() }
}

impl JournalStore for MemoryJournals {
    fn create<'a>(
        &'a self,
        key: &'a RunKey,
        opened: SessionStart,
    ) -> BoxFuture<'a, Result<SessionJournal, SessionError>> {
        Box::pin(async move { self.create_now(key, opened) })
    }

    fn claim<'a>(
        &'a self,
        key: &'a RunKey,
        takeover: Takeover,
    ) -> BoxFuture<'a, Result<ClaimedJournal, SessionError>> {
        Box::pin(async move { self.claim_now(key, takeover) })
    }

    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: usize,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionJournalLine>, SessionError>> {
        Box::pin(async move {
            let state = self.state();
            let journal = state.journals.get(key).ok_or_else(|| not_found(key))?;
            Ok(journal.lines.iter().skip(from).take(count).cloned().collect())
        })
    }

    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        page: RunListPage,
    ) -> BoxFuture<'a, Result<Vec<ListedRun>, SessionError>> {
        Box::pin(async move { Ok(self.list_now(principal, page)) })
    }

    fn remove<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move { self.remove_now(key) })
    }
}

impl fmt::Debug for MemoryJournals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryJournals").field("journals", &self.state().journals.len()).finish()
    }
}

#[derive(Debug)]
struct MemoryClaim {
    store: MemoryJournals,
    key: RunKey,
    epoch: Epoch,
}

impl JournalClaim for MemoryClaim {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn append(&self, lines: &[SessionJournalLine]) -> Result<(), JournalError> {
        let mut state = self.store.state();
        let gone = || JournalError::unavailable("the journal of the session was removed");
        let journal = state.journals.get_mut(&self.key).ok_or_else(gone)?;
        if journal.epoch != self.epoch {
            return Err(JournalError::Fenced { epoch: self.epoch, by: journal.epoch });
        }
        journal.lines.extend_from_slice(lines);
        Ok(())
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        if let Some(journal) = self.store.state().journals.get_mut(&self.key)
            && journal.epoch == self.epoch
        {
            journal.is_held = false;
        }
    }
}
