//! Detects calls that were cancelled at their time limit: the caller no longer waits, but the server may be stuck.

use std::time::Instant;

use haft_core::time_limit::TimeLimit;

use super::server::SupervisedServer;
use super::supervisor::LifecycleEvent;

/// A guard that lives while a call waits. Dropping the guard after the deadline of the call triggers a health probe. A
/// call that was cancelled before its deadline triggers no probe, because such a cancellation says nothing about the
/// health of the server.
pub(super) struct OverdueGuard<'a> {
    server: &'a SupervisedServer,
    generation: u64,
    deadline: Option<Instant>,
}

impl<'a> OverdueGuard<'a> {
    pub(super) fn watch(server: &'a SupervisedServer, generation: u64, limit: Option<&TimeLimit>) -> Self {
        Self { server, generation, deadline: limit.map(|limit| limit.deadline) }
    }

    /// Disarms the guard, because the call has a result, even if it came late.
    pub(super) fn answered(mut self) {
        self.deadline = None;
    }
}

impl Drop for OverdueGuard<'_> {
    fn drop(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.server.note(self.generation, LifecycleEvent::Silent);
        }
    }
}
