//! Writes the journal of one session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink};
use haft_core::position::{CallOperation, SessionId};
use haft_core::run::input::RunInput;
use haft_core::run::journal::{Durability, Epoch, JournalError, RunJournal};
use haft_core::tool::ToolCall;
use tokio::time::Instant;

use super::line::SessionJournalLine;
use crate::journals::JournalClaim;

/// The sync interval for lines whose work can be repeated.
const SECURED_EVERY: Duration = Duration::from_secs(1);

/// The journal of one session, with the claim that allows this process to append to it.
#[derive(Debug)]
pub struct SessionJournal {
    session: SessionId,
    claim: Arc<dyn JournalClaim>,
    written: Mutex<AppendedLines>,
    /// The lines that are known to be durable. The task that holds this lock is syncing.
    secured: tokio::sync::Mutex<SyncedLines>,
}

#[derive(Debug, Default)]
struct SyncedLines {
    lines: u64,
    at: Option<Instant>,
}

impl SyncedLines {
    fn is_recent_enough(&self, durability: Durability) -> bool {
        match durability {
            Durability::Synced | Durability::Ended => false,
            Durability::Buffered => self.at.is_some_and(|at| at.elapsed() < SECURED_EVERY),
        }
    }
}

#[derive(Debug, Default)]
struct AppendedLines {
    lines: u64,
    /// The deferred lines, which are appended together with the next line.
    deferred: Vec<SessionJournalLine>,
    /// The first failure. Every later write fails with the same error, because a journal with a missing line cannot be
    /// replayed.
    failed: Option<JournalError>,
}

impl SessionJournal {
    /// Creates the journal from a claim that a store returned.
    pub fn new(session: SessionId, claim: Arc<dyn JournalClaim>) -> Self {
        let (written, secured) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { session, claim, written, secured }
    }

    /// Returns the claim, for a store that wraps another store.
    pub fn into_claim(self) -> Arc<dyn JournalClaim> {
        Arc::clone(&self.claim)
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the number of the claim.
    pub fn epoch(&self) -> Epoch {
        self.claim.epoch()
    }

    /// Appends a line now, after the deferred lines.
    fn write(&self, line: SessionJournalLine) -> Result<(), JournalError> {
        let mut written = self.written();
        written.deferred.push(line);
        self.append_deferred(&mut written)
    }

    /// Defers a line until the next one, so that one write appends both. This saves two of the seven writes of a turn
    /// with one call.
    fn defer(&self, line: SessionJournalLine) -> Result<(), JournalError> {
        let mut written = self.written();
        if let Some(failed) = &written.failed {
            return Err(failed.clone());
        }
        written.deferred.push(line);
        Ok(())
    }

    fn append_deferred(&self, written: &mut AppendedLines) -> Result<(), JournalError> {
        let lines = std::mem::take(&mut written.deferred);
        if let Some(failed) = &written.failed {
            return Err(failed.clone());
        }
        if lines.is_empty() {
            return Ok(());
        }
        let outcome = self.claim.append(&lines);
        match &outcome {
            Ok(()) => written.lines += lines.len() as u64,
            Err(error) => written.failed = Some(error.clone()),
        }
        outcome
    }

    /// Returns true if the run appends an input directly after this event, so that the two can share a write. The
    /// record of a failed model attempt is not deferred: the next attempt may take minutes. The record of a sub-agent
    /// is not deferred either: its run has a journal of its own.
    fn precedes_input(&self, event: &Event) -> bool {
        match event {
            Event::ToolFinished { operation, .. } => operation.place.session == self.session,
            Event::ModelFinished { place, account, .. } => {
                place.session == self.session && account.failure.is_none()
            }
            Event::Run { .. }
            | Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. } => false,
        }
    }

    fn written(&self) -> MutexGuard<'_, AppendedLines> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionJournal {
    fn drop(&mut self) {
        // Ignore a failure: the run has ended, and a resumed run does not need these lines.
        let _ = self.append_deferred(&mut self.written());
    }
}

impl EventSink for SessionJournal {
    fn emit(&self, event: Event) {
        if let Some(line) = SessionJournalLine::of_event(self.session, &event) {
            // Ignore a failure: the next `append` reports it.
            let _ = if self.precedes_input(&event) { self.defer(line) } else { self.write(line) };
        }
    }
}

impl RunJournal for SessionJournal {
    fn append(&self, input: &RunInput) -> Result<(), JournalError> {
        self.write(SessionJournalLine::of_input(input))
    }

    fn append_call(&self, call: &ToolCall, operation: &CallOperation) -> Result<(), JournalError> {
        self.write(SessionJournalLine::of_call(call, operation))
    }

    /// Syncs the journal. Calls of one turn often end together, so a task that waited for the lock may find its lines
    /// synced already.
    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let target = {
                let mut written = self.written();
                self.append_deferred(&mut written)?;
                written.lines
            };
            let mut secured = self.secured.lock().await;
            if secured.lines >= target || secured.is_recent_enough(durability) {
                return self.written().failed.clone().map_or(Ok(()), Err);
            }
            let lines = self.written().lines;
            let outcome = match durability {
                Durability::Synced | Durability::Buffered => self.claim.sync().await,
                Durability::Ended => self.claim.sync_soon().await,
            };
            match &outcome {
                Ok(()) => *secured = SyncedLines { lines, at: Some(Instant::now()) },
                Err(error) => self.written().failed = Some(error.clone()),
            }
            // A line that could not be appended is not durable, even if all others are.
            self.written().failed.clone().map_or(Ok(()), Err)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_durability_syncs_once_per_interval() {
        let now = Instant::now();
        let check = |at: Option<Instant>, durability: Durability, expected: bool| {
            assert_eq!(
                SyncedLines { lines: 0, at }.is_recent_enough(durability),
                expected,
                "{at:?} {durability:?}"
            );
        };
        check(None, Durability::Buffered, false);
        check(now.checked_sub(SECURED_EVERY), Durability::Buffered, false);
        check(now.checked_add(SECURED_EVERY), Durability::Buffered, true);
        check(now.checked_add(SECURED_EVERY), Durability::Synced, false);
    }
}
