//! Confirm: checks again, directly before the call, that the tool is still active with its current definition.

use std::sync::Arc;

use haft_core::event::CallProgress;
use haft_core::result::{ToolError, ToolErrorKind};

use super::admit::inactive;
use crate::call_record::CallRecord;
use crate::catalog::{CatalogEntry, ResolvedTool, Snapshot};
use crate::orchestrator::Orchestrator;
use crate::stage::Deadline;

/// Waits for the current tool list of the tool's server, and denies the call if the tool is inactive in this list. The
/// call may have started with an older list: one that an earlier process cached, or one from before the call waited for
/// an approval. Does nothing if the activity of the tool does not depend on its definition.
pub(crate) async fn confirm(
    record: &mut CallRecord,
    (tool, known): (&ResolvedTool<'_>, &Arc<Snapshot>),
    orchestrator: &Orchestrator,
    deadline: &Deadline<'_>,
) -> Result<(), ToolError> {
    let tool = tool.entry();
    if !orchestrator.config().policies.judges_definition(tool) {
        return Ok(());
    }
    let sender = record.progress_sender();
    let progress = |step: CallProgress| sender.send(step);
    let refreshed = tool.provider().refresh_tools(&progress);
    deadline.wait(refreshed, "waiting for the tools of its server").await??;
    let current = orchestrator.catalog().snapshot();
    if Arc::ptr_eq(&current, known) {
        return Ok(());
    }
    let found = current.tools().find(|entry| entry.identity() == tool.identity());
    match found.map(|entry| orchestrator.config().inactivity(entry)) {
        Some(None) => Ok(()),
        Some(Some(why)) => Err(inactive(record, tool.exposed(), &why)),
        None => Err(removed(tool)),
    }
}

fn removed(tool: &CatalogEntry) -> ToolError {
    let message = format!("tool `{}` no longer exists; list the tools again", tool.exposed());
    ToolError::new(ToolErrorKind::UnknownTool, message)
}
