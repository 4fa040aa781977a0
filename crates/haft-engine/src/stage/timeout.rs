//! Timeout: no call takes longer than the smallest limit that holds for it.

use std::fmt;
use std::time::Duration;

use haft_core::name::{QueueName, ToolName};
use haft_core::output::ToolOutput;
use haft_core::provider::ProviderKind;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::time_limit::TimeLimit;
use haft_core::tool::ToolPolicy;
use tokio::time::{Instant, timeout_at};

use crate::catalog::ResolvedTool;
use crate::options::{CallOptions, Concurrency};
use crate::queue::Queue;

/// Longer timeouts are cut to this, so that no clock overflows.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_hours(30 * 24);

/// What a provider has left at the deadline to end its work and answer. Without it partial output would be a race
/// between two timers of the same instant, and a provider that must first stop a process would always lose it.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Whose limit it is. The reader of an error must know what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner<'q> {
    Tool,
    Queue(&'q QueueName),
    Global,
    Call,
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Tool => f.write_str("timeout of the tool"),
            Owner::Queue(name) => write!(f, "queue `{name}`"),
            Owner::Global => f.write_str("global limit `toolTimeout`"),
            Owner::Call => f.write_str("timeout of this call"),
        }
    }
}

/// The smallest wins; of equal ones, the one nearest to the tool.
fn smallest<'q>(limits: impl IntoIterator<Item = (Duration, Owner<'q>)>) -> (Duration, Owner<'q>) {
    limits.into_iter().min_by_key(|(timeout, _)| *timeout).unwrap_or((TIMEOUT_MAX, Owner::Global))
}

/// When a call is stopped. The provider is told the same instant.
///
/// It begins when the call is known to be allowed, and waiting counts against it: for an equal call, for a slot, for the
/// provider. So an asker knows how long an answer takes at most, however full a queue is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    tool: &'a ToolName,
    at: Instant,
    timeout: Duration,
    owner: Owner<'a>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn begin(
        tool: &ResolvedTool<'a>,
        policy: &ToolPolicy,
        queue: Option<&'a Queue>,
        options: &CallOptions,
        global: Duration,
    ) -> Self {
        let of_queue =
            queue.and_then(|queue| Some((queue.config().timeout_default?, Owner::Queue(queue.name()))));
        let of_all = match (tool.entry().identity().kind, options.concurrency) {
            // Each call inside a sub-agent or a batch is held to the limit; the whole of them is not one tool's work.
            (ProviderKind::Agent, _) | (_, Concurrency::Bypass) => None,
            (
                ProviderKind::Builtin | ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Client,
                Concurrency::Queued,
            ) => Some((global, Owner::Global)),
        };
        let own = options.timeout.map(|timeout| (timeout, Owner::Call));
        let limits = [Some((policy.timeout, Owner::Tool)), of_queue, of_all, own];
        let (timeout, owner) = smallest(limits.into_iter().flatten());
        let timeout = timeout.min(TIMEOUT_MAX);
        Self { tool: tool.entry().exposed(), at: Instant::now() + timeout, timeout, owner }
    }

    /// What the provider is told.
    pub(crate) fn limit(&self) -> TimeLimit {
        TimeLimit { timeout: self.timeout, deadline: self.at.into_std() }
    }

    pub(crate) fn is_past(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Ends a wait at the deadline. `doing` says what for.
    pub(crate) async fn wait<T>(
        &self,
        wait: impl Future<Output = T>,
        doing: &'static str,
    ) -> Result<T, ToolError> {
        timeout_at(self.at, wait).await.map_err(|_| self.timed_out(&format!(" while still {doing}")))
    }

    /// Stops the call shortly after the deadline: a provider that watches it answers then with what it has so far.
    pub(crate) async fn bound(
        &self,
        call: impl Future<Output = Result<ToolOutput, ToolError>>,
    ) -> Result<ToolOutput, ToolError> {
        timeout_at(self.at + LAST_WORD, call).await.unwrap_or_else(|_| Err(self.timed_out("")))
    }

    fn timed_out(&self, doing: &str) -> ToolError {
        let Self { tool, owner, .. } = self;
        let message = format!("Tool `{tool}` timed out after {} ({owner}){doing}", self.limit().in_words());
        ToolError::new(ToolErrorKind::Timeout, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_wins_and_the_nearest_of_equal_ones() {
        let slow = QueueName::new("slow").unwrap();
        let check = |tool: u64, queue: u64, global: u64, expected: (u64, Owner<'_>)| {
            let limits = [(tool, Owner::Tool), (queue, Owner::Queue(&slow)), (global, Owner::Global)];
            let found = smallest(limits.map(|(seconds, owner)| (Duration::from_secs(seconds), owner)));
            assert_eq!(found, (Duration::from_secs(expected.0), expected.1));
        };
        check(1, 2, 3, (1, Owner::Tool));
        check(3, 2, 3, (2, Owner::Queue(&slow)));
        check(9, 8, 3, (3, Owner::Global));
        check(3, 3, 3, (3, Owner::Tool));
        check(4, 3, 3, (3, Owner::Queue(&slow)));
    }
}
