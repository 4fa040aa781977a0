//! The journal of calls by clients of the MCP gateway: a line before a call reaches its tool, and a line when it ends. A
//! call without the second line may have had effects when haft or the machine crashed.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use haft_core::event::{Event, EventSink};
use haft_core::home::Home;
use haft_core::position::CallOperation;
use haft_core::principal::Principal;
use haft_core::run::input::RunInput;
use haft_core::run::journal::{Durability, JournalError, RunJournal};
use haft_core::tool::ToolCall;
use serde::Serialize;

use crate::accounting::line_file::{LineFile, LineFileLimits, LinePaths};
use crate::accounting::now_ms;

/// The name of the file in haft's data directory, without its extension.
pub(crate) const FILE_NAME: &str = "gateway-calls";

/// The maximum size of the arguments in a line, in bytes. Longer arguments are truncated.
const ARGUMENTS_BYTES_MAX: usize = 16 << 10;

/// The minimum time between two syncs. A crash of the machine can lose the lines of this time.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The file `gateway-calls.jsonl` in haft's data directory. Older lines are in `gateway-calls.1.jsonl`. Other processes
/// append to the same file.
#[derive(Debug)]
pub struct CallJournalFile(Mutex<JournalState>);

#[derive(Debug)]
struct JournalState {
    file: LineFile,
    synced: Option<Instant>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CallLine<'a> {
    Begun {
        at: u64,
        principal: &'a str,
        session: String,
        call: &'a str,
        tool: &'a str,
        /// The arguments as the client sent them, truncated.
        arguments: &'a str,
    },
    Ended {
        at: u64,
        principal: &'a str,
        call: &'a str,
        /// `ok`, or the name of the error.
        outcome: &'a str,
    },
}

impl CallJournalFile {
    pub fn of(home: &Home) -> Self {
        let file = LineFile::new(LinePaths::rotated(&home.data(), FILE_NAME), LineFileLimits::default());
        Self(Mutex::new(JournalState { file, synced: None }))
    }

    /// Returns the journal for the calls of one principal.
    pub fn of_principal(self: &Arc<Self>, principal: &Principal) -> PrincipalCallJournal {
        let (file, principal) = (Arc::clone(self), principal.to_string());
        PrincipalCallJournal { file, principal, open: Mutex::default() }
    }

    fn append(&self, line: &CallLine<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.state().file.append(&bytes)
    }

    /// Syncs the file in the background, at most once per interval.
    fn sync_soon(&self) {
        let mut state = self.state();
        let is_due = state.synced.is_none_or(|at| at.elapsed() >= SYNC_INTERVAL);
        if is_due && let Some(file) = state.file.to_sync() {
            state.synced = Some(Instant::now());
            // Ignore a failure: the lines are in the file, and the next append reports a disk that fails.
            tokio::task::spawn_blocking(move || drop(file.sync_data()));
        }
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal for the calls of one principal.
#[derive(Debug)]
pub struct PrincipalCallJournal {
    file: Arc<CallJournalFile>,
    principal: String,
    /// The ids of the calls that have begun and not ended.
    open: Mutex<HashSet<String>>,
}

impl PrincipalCallJournal {
    fn open(&self) -> MutexGuard<'_, HashSet<String>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunJournal for PrincipalCallJournal {
    /// Does nothing: calls of clients belong to no run.
    fn append(&self, _: &RunInput) -> Result<(), JournalError> {
        Ok(())
    }

    fn append_call(&self, call: &ToolCall, operation: &CallOperation) -> Result<(), JournalError> {
        let line = CallLine::Begun {
            at: now_ms(),
            principal: &self.principal,
            session: operation.place.session.to_string(),
            call: &operation.call.0,
            tool: &call.name,
            arguments: truncated(call.arguments.as_text()),
        };
        self.file.append(&line).map_err(JournalError::unavailable)?;
        self.open().insert(operation.call.0.clone());
        Ok(())
    }

    fn sync(&self, _: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        self.file.sync_soon();
        Box::pin(async { Ok(()) })
    }
}

impl EventSink for PrincipalCallJournal {
    fn emit(&self, event: Event) {
        if let Event::ToolFinished { operation, failure, .. } = event
            && self.open().remove(&operation.call.0)
        {
            let line = CallLine::Ended {
                at: now_ms(),
                principal: &self.principal,
                call: &operation.call.0,
                outcome: failure.map_or("ok", |kind| kind.name()),
            };
            // Ignore a failure: the call has ended, and the usage records also contain its outcome.
            let _ = self.file.append(&line);
        }
    }
}

fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(ARGUMENTS_BYTES_MAX)]
}
