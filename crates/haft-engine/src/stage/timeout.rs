//! Timeout: no call takes longer than its policy allows.

use std::time::Duration;

use haft_core::output::ToolOutput;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::time_limit::TimeLimit;
use tokio::time::{Instant, timeout_at};

use crate::catalog::ResolvedTool;

/// Longer timeouts are cut to this, so that no clock overflows.
const TIMEOUT_MAX: Duration = Duration::from_hours(30 * 24);

/// What a provider has left at the deadline to end its work and answer. Without it partial output would be a race
/// between two timers of the same instant, and a provider that must first stop a process would always lose it.
const LAST_WORD: Duration = Duration::from_millis(250);

/// When a call is stopped. The provider is told the same instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        let timeout = timeout.min(TIMEOUT_MAX);
        Self { at: Instant::now() + timeout, timeout }
    }

    /// What the provider is told.
    pub(crate) fn limit(&self) -> TimeLimit {
        TimeLimit { timeout: self.timeout, deadline: self.at.into_std() }
    }

    /// Stops the call shortly after the deadline: a provider that watches it answers then with what it has so far.
    pub(crate) async fn bound(
        &self,
        tool: &ResolvedTool<'_>,
        call: impl Future<Output = Result<ToolOutput, ToolError>>,
    ) -> Result<ToolOutput, ToolError> {
        timeout_at(self.at + LAST_WORD, call).await.unwrap_or_else(|_| Err(self.timed_out(tool)))
    }

    fn timed_out(&self, tool: &ResolvedTool<'_>) -> ToolError {
        let message = format!("Tool `{}` timed out after {}", tool.entry().exposed(), self.limit().in_words());
        ToolError::new(ToolErrorKind::Timeout, message)
    }
}
