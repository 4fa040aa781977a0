//! Admit: may this tool be called at all, by its name alone.

use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rules};
use haft_core::tool::Approval;

use crate::catalog::ResolvedTool;

/// Denied here only if every call of the tool is: nothing about its arguments is told to who may not call it.
pub(crate) fn admit(tool: &ResolvedTool<'_>, approval: Approval, rules: &Rules) -> Result<(), ToolError> {
    let name = tool.entry().exposed();
    let ruling = rules.admit(name.as_str());
    match (approval, ruling.decision) {
        (Approval::Deny, _) => Err(denied(format!("tool `{name}` is denied by the operator"))),
        (_, Decision::Deny) => Err(denied(format!("tool `{name}` is denied: {}", ruling.why))),
        (Approval::Allow | Approval::Ask, Decision::Allow | Decision::Ask) => Ok(()),
    }
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, message)
}
