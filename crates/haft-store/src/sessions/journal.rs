//! Writes the journal of one session.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink};
use haft_core::place::{Operation, SessionId};
use haft_core::run::event::RunEvent;
use haft_core::run::input::RunInput;
use haft_core::run::journal::{Durability, JournalError, RunJournal};
use haft_core::run::snapshot::StoredInput;
use haft_core::tool::ToolCall;
use tokio::time::Instant;

use super::line::Line;
use crate::accounting::{model_record, now_ms, record};

/// The sync interval for entries whose work can be repeated.
const SECURED_EVERY: Duration = Duration::from_secs(1);

/// The open journal of one session. It holds a file lock, so that only one process continues the session.
#[derive(Debug)]
pub struct SessionJournal {
    session: SessionId,
    bytes_max: u64,
    written: Mutex<Written>,
    file: Arc<File>,
    /// The bytes that are known to be on disk. The task that holds the lock is syncing.
    secured: tokio::sync::Mutex<Secured>,
}

#[derive(Debug, Default)]
struct Secured {
    bytes: u64,
    at: Option<Instant>,
}

impl Secured {
    fn is_soon_enough(&self, durability: Durability) -> bool {
        match durability {
            Durability::Synced => false,
            Durability::Buffered => self.at.is_some_and(|at| at.elapsed() < SECURED_EVERY),
        }
    }
}

#[derive(Debug)]
struct Written {
    bytes: u64,
    /// The first failure. Every later write fails with it, because a journal with a missing line could not be replayed.
    failed: Option<JournalError>,
}

impl SessionJournal {
    /// Continues in a file that is locked, ends with a complete line and has this many bytes.
    pub(super) fn new(session: SessionId, file: File, bytes: u64, bytes_max: u64) -> Self {
        Self {
            session,
            bytes_max,
            written: Mutex::new(Written { bytes, failed: None }),
            file: Arc::new(file),
            secured: tokio::sync::Mutex::default(),
        }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Records that another process continues the session from here.
    pub fn resumed(&self) -> Result<(), JournalError> {
        self.write(&Line::Resumed { at_ms: now_ms() })
    }

    /// Appends a line in one write. It only reaches the page cache; `sync` makes it durable.
    pub(super) fn write(&self, line: &Line) -> Result<(), JournalError> {
        let mut bytes =
            serde_json::to_vec(line).map_err(|error| JournalError { problem: error.to_string() })?;
        bytes.push(b'\n');
        let mut written = self.written();
        if let Some(failed) = &written.failed {
            return Err(failed.clone());
        }
        let outcome = self.append_line(&bytes, written.bytes);
        match &outcome {
            Ok(()) => written.bytes += bytes.len() as u64,
            Err(error) => written.failed = Some(error.clone()),
        }
        outcome
    }

    fn append_line(&self, line: &[u8], bytes: u64) -> Result<(), JournalError> {
        if bytes.saturating_add(line.len() as u64) > self.bytes_max {
            let max = self.bytes_max;
            let problem = format!("a session may take {max} bytes, and this one would take more");
            return Err(JournalError { problem: format!("{problem}; see `sessions.bytesMax`") });
        }
        (&*self.file).write_all(line).map_err(|error| {
            // Truncate a partial line: a resumed run could not interpret it.
            let _ = self.file.set_len(bytes);
            JournalError { problem: error.to_string() }
        })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the journal line of an event. The calls and costs of sub-agents belong to this session too.
    fn line_of(&self, event: &Event) -> Option<Line> {
        match event {
            Event::ToolFinished { operation, tool, failure, latency, account, said: _ } => {
                Some(Line::Tool(Box::new(record(operation, tool, *failure, *latency, account))))
            }
            Event::ModelFinished { id, place, attempt, principal, account } => {
                Some(Line::Model(Box::new(model_record(id, *place, attempt, principal, account))))
            }
            Event::Run { place, event } if place.session == self.session => run_line(place.turn, event),
            Event::Run { .. }
            | Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ModelStarted { .. } => None,
        }
    }
}

/// Returns the line of a run event. Most events need none, because the recorded inputs contain their content.
fn run_line(turn: u32, event: &RunEvent) -> Option<Line> {
    match event {
        RunEvent::Noted(note) => Some(Line::Note { at_ms: now_ms(), turn, note: note.name().to_owned() }),
        RunEvent::Finished { finish, .. } => {
            let reason = finish.reason.name().to_owned();
            Some(Line::Finished { at_ms: now_ms(), reason, turns: turn })
        }
        RunEvent::Began(_)
        | RunEvent::Asked
        | RunEvent::Said(_)
        | RunEvent::Called(_)
        | RunEvent::Answered(_) => None,
    }
}

impl EventSink for SessionJournal {
    fn emit(&self, event: Event) {
        if let Some(line) = self.line_of(&event) {
            // Ignore a failure here: the next `append` reports it.
            let _ = self.write(&line);
        }
    }
}

impl RunJournal for SessionJournal {
    fn append(&self, input: &RunInput) -> Result<(), JournalError> {
        self.write(&Line::Input { at_ms: now_ms(), input: StoredInput::of(input) })
    }

    fn append_call(&self, call: &ToolCall, operation: &Operation) -> Result<(), JournalError> {
        self.write(&Line::Begun {
            at_ms: now_ms(),
            call: call.id.0.clone(),
            tool: call.name.clone(),
            turn: operation.place.turn,
            operation: operation.id.0,
        })
    }

    /// Syncs the file. Calls of one turn often end together, so a task that waited for the lock may find its bytes
    /// synced already.
    fn sync(&self, durability: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let wanted = self.written().bytes;
            let mut secured = self.secured.lock().await;
            if secured.bytes >= wanted || secured.is_soon_enough(durability) {
                return self.written().failed.clone().map_or(Ok(()), Err);
            }
            let bytes = self.written().bytes;
            let file = Arc::clone(&self.file);
            let outcome = tokio::task::spawn_blocking(move || file.sync_data()).await;
            let problem = match outcome {
                Ok(Ok(())) => {
                    *secured = Secured { bytes, at: Some(Instant::now()) };
                    return Ok(());
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            let error = JournalError { problem };
            self.written().failed = Some(error.clone());
            Err(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_again_is_secured_once_in_a_while() {
        let now = Instant::now();
        let check = |at: Option<Instant>, durability: Durability, expected: bool| {
            assert_eq!(
                Secured { bytes: 0, at }.is_soon_enough(durability),
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
