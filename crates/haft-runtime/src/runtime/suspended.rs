//! Runs whose sessions are only in memory. When such a run is suspended, the caller gets the whole run as a value and
//! keeps it.

use std::fmt;
use std::sync::Arc;

use haft_core::event_store::RunKey;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_store::journals::MemoryJournals;
use haft_store::sessions::SessionError;
use haft_store::sessions::line::{SessionJournalLine, SessionStart};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    OutputStorage, ResumeFailure, RunHooks, Runtime, SessionStorage, StoppedRun, restored_spec, root_spec,
};
use crate::handle::RunHandle;
use crate::spec::{RunSecrets, RunSpec};

/// A suspended run: its journals, agents and skills. It contains the conversation and determines the next calls, so a
/// program must keep it secret and must reject a modified copy.
#[derive(Clone, Serialize, Deserialize)]
pub struct SuspendedRun {
    /// The journal of the run, followed by the journals of its sub-agents.
    journals: Vec<SuspendedJournal>,
    /// The blob with the agents and skills.
    sources: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct SuspendedJournal {
    /// The id of the session, a UUID.
    session: String,
    lines: Vec<SessionJournalLine>,
}

impl SuspendedRun {
    /// Returns the id of the run; `None` if the value has no valid journal.
    pub fn id(&self) -> Option<SessionId> {
        self.journals.first()?.id()
    }

    /// Returns the first line of the run's journal.
    fn opened(&self) -> Option<&SessionStart> {
        match self.journals.first()?.lines.first()? {
            SessionJournalLine::Session(opened) => Some(opened),
            _ => None,
        }
    }
}

impl SuspendedJournal {
    fn id(&self) -> Option<SessionId> {
        Uuid::parse_str(&self.session).ok().map(|id| SessionId(id.as_u128()))
    }
}

impl fmt::Debug for SuspendedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuspendedRun").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The session of a run in memory. Dropping it removes the journals, because no other process can continue the run.
pub(crate) struct MemorySession {
    journals: MemoryJournals,
    key: RunKey,
    sources: Vec<u8>,
}

impl MemorySession {
    /// Takes the session of a run that is not driven any more.
    pub(crate) fn suspend(mut self) -> SuspendedRun {
        let taken = self.journals.take_run(&self.key).into_iter();
        let journals = taken.map(|(id, lines)| SuspendedJournal { session: id.to_string(), lines }).collect();
        let sources = std::mem::take(&mut self.sources);
        SuspendedRun { journals, sources: String::from_utf8_lossy(&sources).into_owned() }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.journals.take_run(&self.key);
    }
}

impl Runtime {
    pub(super) fn memory_session(&self, key: RunKey, sources: Vec<u8>) -> MemorySession {
        MemorySession { journals: self.shared.memory_journals.clone(), key, sources }
    }

    /// Returns the spec of a suspended run. Returns "not found" for a run of another principal.
    pub fn suspended_spec(
        &self,
        principal: &Principal,
        run: &SuspendedRun,
    ) -> Result<RunSpec, ResumeFailure> {
        let opened = run.opened().filter(|opened| opened.belongs_to(principal));
        let opened = opened.ok_or_else(|| not_found(run))?.clone();
        let stored = root_spec(&opened)?;
        restored_spec(principal, opened, stored, run.sources.as_bytes())
    }

    /// Continues a run that [`RunHandle::suspended_run`] returned, in this or in another process. The caller must make
    /// sure that it passes the same suspended run only once, because each run continues from the same point.
    pub async fn resume_suspended(
        &self,
        run: SuspendedRun,
        spec: RunSpec,
        secrets: RunSecrets,
        hooks: RunHooks,
    ) -> Result<RunHandle, ResumeFailure> {
        let id = run.id().ok_or_else(|| not_found(&run))?;
        let SuspendedRun { journals, sources } = run;
        let tenant = spec.principal.tenant().to_owned();
        let lines = journals.into_iter().filter_map(|journal| Some((journal.id()?, journal.lines)));
        let put = self.shared.memory_journals.put_run(&tenant, lines.collect());
        put.map_err(ResumeFailure::Session)?;
        let memory = self.memory_session(RunKey { tenant, run: id }, sources.into_bytes());
        let journals = Arc::new(self.shared.memory_journals.clone());
        let stopped = StoppedRun { id, journals, memory: Some(memory) };
        let hooks =
            RunHooks { sessions: SessionStorage::Memory, output_storage: OutputStorage::Memory, ..hooks };
        self.resume_stopped(stopped, spec, None, secrets, hooks).await
    }
}

fn not_found(run: &SuspendedRun) -> ResumeFailure {
    let id = run.id().map(|id| id.to_string()).unwrap_or_default();
    ResumeFailure::Session(SessionError::NotFound { id })
}
