//! Admit: may this tool be called at all.

use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::Approval;

use crate::catalog::ResolvedTool;

/// A tool that needs a human's word is refused while there is no one to ask: what cannot decide, denies.
pub(crate) fn admit(tool: &ResolvedTool<'_>, approval: Approval) -> Result<(), ToolError> {
    let name = tool.entry().exposed();
    match approval {
        Approval::Allow => Ok(()),
        Approval::Ask => Err(denied(format!("tool `{name}` needs approval and there is no one to ask"))),
        Approval::Deny => Err(denied(format!("tool `{name}` is denied by the operator"))),
    }
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, message)
}
