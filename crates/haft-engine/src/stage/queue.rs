//! Queue: waits for a free slot in the tool's queue.

use haft_core::principal::Principal;
use haft_core::priority::Priority;
use haft_core::provider::ProviderKind;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::ToolPolicy;
use serde_json::json;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;
use crate::options::Concurrency;
use crate::queue::{Queue, QueueFull, Queues, Slot, UndefinedQueue};
use crate::stage::Deadline;

/// Returns the queue of a call. A sub-agent's call has no queue, because the calls inside the sub-agent need slots. If
/// the outer call held a slot while the inner calls wait for slots, there could be a deadlock.
pub(crate) fn queue_of<'q>(
    tool: &ResolvedTool<'_>,
    policy: &ToolPolicy,
    concurrency: Concurrency,
    queues: &'q Queues,
) -> Result<Option<&'q Queue>, UndefinedQueue> {
    match (tool.entry().identity().kind, concurrency) {
        (ProviderKind::Agent, _) | (_, Concurrency::Bypass) => Ok(None),
        (
            ProviderKind::Builtin | ProviderKind::Mcp | ProviderKind::Rest | ProviderKind::Client,
            Concurrency::Queued,
        ) => queues.of(policy.queue.as_ref()),
    }
}

/// Waits for a slot, at most until the deadline of the call, which has already started.
pub(crate) async fn queue(
    record: &mut CallRecord,
    queue: Option<&Queue>,
    (principal, priority): (&Principal, Priority),
    deadline: &Deadline<'_>,
) -> Result<Option<Slot>, ToolError> {
    let Some(queue) = queue else { return Ok(None) };
    let slot = deadline.wait(queue.acquire(principal, priority), "waiting for a slot in its queue").await??;
    record.set_queue(queue.name());
    if let Some(wait) = slot.wait() {
        let waited_ms = u64::try_from(wait.time.as_millis()).unwrap_or(u64::MAX);
        let name = queue.name().as_str();
        record.note(
            "queue",
            json!({"name": name, "waited_ms": waited_ms, "in_use": wait.in_use, "waiting": wait.waiting}),
        );
    }
    Ok(Some(slot))
}

impl From<QueueFull> for ToolError {
    fn from(full: QueueFull) -> Self {
        ToolError::new(ToolErrorKind::QueueFull, full.to_string())
    }
}

/// The error of a call to a tool whose queue is not defined. `Orchestrator::try_new` reports such a queue at the start;
/// after `new`, each call fails instead of running without a limit.
impl From<UndefinedQueue> for ToolError {
    fn from(undefined: UndefinedQueue) -> Self {
        ToolError::new(ToolErrorKind::Internal, undefined.to_string())
    }
}
