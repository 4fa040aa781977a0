//! Writes down what happens in one session, as it happens.

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

/// How often what can be done again is secured while nothing else is done.
const SECURED_EVERY: Duration = Duration::from_secs(1);

/// The open journal of one session. It is locked for as long as this lives, so that only one process goes on with it.
#[derive(Debug)]
pub struct SessionJournal {
    session: SessionId,
    bytes_max: u64,
    written: Mutex<Written>,
    file: Arc<File>,
    /// What is known to be on the disk. Who holds it is just seeing to that.
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
    /// What went wrong first. A line that is missing must not be followed by others, so that is the end.
    failed: Option<JournalError>,
}

impl SessionJournal {
    /// Goes on in a file that is locked, ends with a whole line and has this many bytes.
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

    /// Puts down that another process goes on from here.
    pub fn resumed(&self) -> Result<(), JournalError> {
        self.write(&Line::Resumed { at_ms: now_ms() })
    }

    /// Appends a line in one write. A short wait for the disk's cache is all it takes.
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
            // Half a line is worse than none: whoever goes on would have to guess.
            let _ = self.file.set_len(bytes);
            JournalError { problem: error.to_string() }
        })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What whoever works for this session does and costs is a part of it.
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

/// What the run was told holds everything else that is said in it.
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
            // A failure is found again by whoever puts down what counts.
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

    /// Calls of one turn end together often; who waited while another's bytes were secured may find its own among them.
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
