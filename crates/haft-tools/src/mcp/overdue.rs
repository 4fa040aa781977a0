//! A call that was stopped at its time limit: whoever stopped it waits no more, but the server may be stuck.

use std::time::Instant;

use haft_core::time_limit::TimeLimit;

use super::server::Server;
use super::supervisor::Event;

/// Held while a call waits. When it is dropped after the limit of the call, the server is asked whether it is still there; a
/// call that somebody took back before says nothing about it.
pub(super) struct Overdue<'a> {
    server: &'a Server,
    generation: u64,
    deadline: Option<Instant>,
}

impl<'a> Overdue<'a> {
    pub(super) fn watch(server: &'a Server, generation: u64, limit: Option<&TimeLimit>) -> Self {
        Self { server, generation, deadline: limit.map(|limit| limit.deadline) }
    }

    /// Something came of the call, in whatever time.
    pub(super) fn answered(mut self) {
        self.deadline = None;
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.server.note(self.generation, Event::Silent);
        }
    }
}
