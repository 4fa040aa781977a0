//! The journal of a recorded run. Its lines are written to the recording, and to the stored session if there is one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink};
use haft_core::position::{CallOperation, SessionId};
use haft_core::run::input::RunInput;
use haft_core::tool::ToolCall;
use haft_engine::{Durability, JournalError, RunJournal};
use haft_models::cassette::{Recording, RecordingError, RecordingProblem, Tape};
use haft_store::sessions::line::SessionJournalLine;
use haft_store::sessions::{JournalLines, SessionHistory, SessionJournal};

use super::line::JournalLine;
use super::remaining::beginning;

/// Reads the journal of the root run from a recording.
pub fn root(recording: &Recording) -> Result<SessionHistory, RecordingError> {
    past(recording, &beginning(recording)?.session)
}

/// Reads the journal of a session from a recording, in the same form as a stored session.
pub fn past(recording: &Recording, session: &str) -> Result<SessionHistory, RecordingError> {
    let journal = recording.journal(session);
    let wrong = |problem| RecordingError { path: recording.path().to_owned(), problem };
    if journal.is_empty() {
        return Err(wrong(RecordingProblem::NoJournal));
    }
    let bad = |error| wrong(RecordingProblem::BadJournal { problem: format!("{error}") });
    SessionHistory::of(JournalLines::of(journal.as_bytes())).map_err(bad)
}

/// The two sinks of a run's journal: one for the inputs of the run, one for its events. Both are `None` if nothing is
/// stored.
#[derive(Clone, Default)]
pub(crate) struct JournalSinks {
    pub(crate) inputs: Option<Arc<dyn RunJournal>>,
    pub(crate) events: Option<Arc<dyn EventSink>>,
}

impl JournalSinks {
    fn of<J: RunJournal + EventSink + 'static>(journal: J) -> Self {
        let journal = Arc::new(journal);
        Self { inputs: Some(Arc::clone(&journal) as _), events: Some(journal) }
    }
}

impl From<SessionJournal> for JournalSinks {
    fn from(journal: SessionJournal) -> Self {
        Self::of(journal)
    }
}

/// Writes each line to a recording and to the stored journal.
struct RecordedJournal {
    session: SessionId,
    tape: Arc<Tape>,
    stored: JournalSinks,
}

/// Returns the sinks of a run that is recorded and stored.
pub(super) fn recorded(session: SessionId, tape: Arc<Tape>, stored: JournalSinks) -> JournalSinks {
    JournalSinks::of(RecordedJournal { session, tape, stored })
}

impl RecordedJournal {
    fn write(&self, line: &SessionJournalLine) {
        self.tape.append(&JournalLine { line, journal: &self.session.to_string() });
    }
}

impl EventSink for RecordedJournal {
    fn emit(&self, event: Event) {
        if let Some(line) = SessionJournalLine::of_event(self.session, &event) {
            self.write(&line);
        }
        if let Some(stored) = &self.stored.events {
            stored.emit(event);
        }
    }
}

impl RunJournal for RecordedJournal {
    fn append(&self, input: &RunInput) -> Result<(), JournalError> {
        self.write(&SessionJournalLine::of_input(input));
        self.stored.inputs.as_ref().map_or(Ok(()), |stored| stored.append(input))
    }

    fn append_call(&self, call: &ToolCall, operation: &CallOperation) -> Result<(), JournalError> {
        self.write(&SessionJournalLine::of_call(call, operation));
        self.stored.inputs.as_ref().map_or(Ok(()), |stored| stored.append_call(call, operation))
    }

    /// Syncs the stored journal only, because no run is resumed from a recording.
    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        match &self.stored.inputs {
            Some(stored) => stored.sync(durability),
            None => Box::pin(async { Ok(()) }),
        }
    }
}

impl std::fmt::Debug for RecordedJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedJournal").field("session", &self.session).finish_non_exhaustive()
    }
}
