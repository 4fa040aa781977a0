//! Call: runs the provider. If the provider panics, only this call fails.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::validate::ValidArguments;

use crate::catalog::ResolvedTool;

pub(crate) async fn call(
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    context: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let entry = tool.entry();
    // The `async` block also catches a panic while the provider creates its future.
    let work = async { entry.provider().call(&entry.identity().tool, arguments, context).await };
    // A panic may leave the provider's own state inconsistent. Of the state that the provider shares with the engine,
    // only the call's notes are read after a panic.
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => Err(panicked(tool, panic.as_ref())),
    }
}

fn panicked(tool: &ResolvedTool<'_>, panic: &(dyn Any + Send)) -> ToolError {
    let reason = (panic.downcast_ref::<&str>().map(ToString::to_string))
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into());
    let message = format!("tool `{}` failed inside haft; other tools still work", tool.entry().exposed());
    ToolError::new(ToolErrorKind::Internal, message).with_source(reason)
}
