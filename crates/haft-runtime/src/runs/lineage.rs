//! Derives the session id of a sub-agent from the session of the run that calls it, so that a resumed run finds the
//! sessions of its sub-agents again.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::position::{CallOperation, SessionId};
use haft_core::run::input::RunInput;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{Durability, JournalError, RunJournal};
use sha2::{Digest as _, Sha256};

use crate::recordings::JournalSinks;

/// Returns the session of the agent that a tool call starts.
pub(super) fn below(session: SessionId, turn: u32, call: &CallId) -> SessionId {
    derived(&format!("{session}/{turn}/{}", call.0))
}

/// Returns the session of run number `number`, for a call that starts several runs.
pub(super) fn nth(session: SessionId, number: usize) -> SessionId {
    derived(&format!("{session}/part/{number}"))
}

/// Returns the session of the agent that takes over a request.
pub(super) fn after(session: SessionId) -> SessionId {
    derived(&format!("{session}/after"))
}

fn derived(from: &str) -> SessionId {
    let digest = Sha256::digest(from.as_bytes());
    let bytes = digest.iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    SessionId(bytes)
}

/// The journal of a session that could not be opened. It refuses every write, so the run makes no calls.
#[derive(Debug)]
pub(super) struct LostJournal(pub(super) String);

impl LostJournal {
    fn refused<T>(&self) -> Result<T, JournalError> {
        Err(JournalError::unavailable(&self.0))
    }
}

impl From<LostJournal> for JournalSinks {
    fn from(journal: LostJournal) -> Self {
        Self { inputs: Some(Arc::new(journal)), events: None }
    }
}

impl RunJournal for LostJournal {
    fn append(&self, _: &RunInput) -> Result<(), JournalError> {
        self.refused()
    }

    fn append_call(&self, _: &ToolCall, _: &CallOperation) -> Result<(), JournalError> {
        self.refused()
    }

    fn sync(&self, _: Durability) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async { self.refused() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sub_agent_call_has_a_distinct_stable_session_id() {
        let call = |id: &str| CallId(id.into());
        let all = [
            below(SessionId(1), 1, &call("a")),
            below(SessionId(1), 1, &call("b")),
            below(SessionId(1), 2, &call("a")),
            below(SessionId(2), 1, &call("a")),
            nth(SessionId(1), 1),
            nth(SessionId(1), 2),
            after(SessionId(1)),
            after(SessionId(2)),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(
            below(SessionId(1), 1, &call("a")),
            all[0],
            "the same call always has the same session id"
        );
    }
}
