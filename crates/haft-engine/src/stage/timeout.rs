//! Timeout: stops a call at the smallest limit that applies to it.

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

/// The maximum timeout, so that adding it to the clock cannot overflow.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_hours(30 * 24);

/// The grace period in which a provider can stop its work and return partial output at the deadline. Without it, two
/// timers would race at the same instant, and a provider that must first stop a process would always lose.
const LAST_WORD: Duration = Duration::from_millis(250);

/// The owner of a limit. The error names it, so that the reader can see which setting to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitOwner<'q> {
    Tool,
    Queue(&'q QueueName),
    Global,
    Call,
}

impl fmt::Display for LimitOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitOwner::Tool => f.write_str("timeout of the tool"),
            LimitOwner::Queue(name) => write!(f, "queue `{name}`"),
            LimitOwner::Global => f.write_str("global limit `toolTimeout`"),
            LimitOwner::Call => f.write_str("timeout of this call"),
        }
    }
}

/// Returns the smallest limit. Among equal limits, returns the first one.
fn smallest<'q>(limits: impl IntoIterator<Item = (Duration, LimitOwner<'q>)>) -> (Duration, LimitOwner<'q>) {
    limits.into_iter().min_by_key(|(timeout, _)| *timeout).unwrap_or((TIMEOUT_MAX, LimitOwner::Global))
}

/// The time at which a call is stopped. The provider receives the same instant.
///
/// The time limit starts when the call is allowed, and includes all waiting: for an equal call, for a slot, for the
/// provider. A caller therefore gets a result within this time, even if the queue is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    tool: &'a ToolName,
    at: Instant,
    timeout: Duration,
    owner: LimitOwner<'a>,
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
            queue.and_then(|queue| Some((queue.config().timeout_default?, LimitOwner::Queue(queue.name()))));
        let of_all = match (tool.entry().identity().kind, options.concurrency) {
            // The limit applies to each call inside a sub-agent or a batch, not to their sum.
            (ProviderKind::Agent, _) | (_, Concurrency::Bypass) => None,
            (
                ProviderKind::Builtin | ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Client,
                Concurrency::Queued,
            ) => Some((global, LimitOwner::Global)),
        };
        let own = options.timeout.map(|timeout| (timeout, LimitOwner::Call));
        let limits = [Some((policy.timeout, LimitOwner::Tool)), of_queue, of_all, own];
        let (timeout, owner) = smallest(limits.into_iter().flatten());
        let timeout = timeout.min(TIMEOUT_MAX);
        Self { tool: tool.entry().exposed(), at: Instant::now() + timeout, timeout, owner }
    }

    /// Returns the time limit for the provider.
    pub(crate) fn limit(&self) -> TimeLimit {
        TimeLimit { timeout: self.timeout, deadline: self.at.into_std() }
    }

    pub(crate) fn is_past(&self) -> bool {
        self.at <= Instant::now()
    }

    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Waits until the deadline at most. `doing` describes the wait in the error message.
    pub(crate) async fn wait<T>(
        &self,
        wait: impl Future<Output = T>,
        doing: &'static str,
    ) -> Result<T, ToolError> {
        timeout_at(self.at, wait).await.map_err(|_| self.timed_out(&format!(" while still {doing}")))
    }

    /// Stops the call shortly after the deadline, so that a provider that watches the deadline can return its partial
    /// output.
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
    fn smallest_timeout_applies_and_the_tool_timeout_wins_a_tie() {
        let slow = QueueName::new("slow").unwrap();
        let check = |tool: u64, queue: u64, global: u64, expected: (u64, LimitOwner<'_>)| {
            let limits =
                [(tool, LimitOwner::Tool), (queue, LimitOwner::Queue(&slow)), (global, LimitOwner::Global)];
            let found = smallest(limits.map(|(seconds, owner)| (Duration::from_secs(seconds), owner)));
            assert_eq!(found, (Duration::from_secs(expected.0), expected.1));
        };
        check(1, 2, 3, (1, LimitOwner::Tool));
        check(3, 2, 3, (2, LimitOwner::Queue(&slow)));
        check(9, 8, 3, (3, LimitOwner::Global));
        check(3, 3, 3, (3, LimitOwner::Tool));
        check(4, 3, 3, (3, LimitOwner::Queue(&slow)));
    }
}
