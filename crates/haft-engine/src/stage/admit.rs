//! Admit: may this tool be called at all, by its name alone.

use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rules};
use haft_core::tool::Approval;

use crate::catalog::ResolvedTool;
use crate::policy::{Activity, Governed};
use crate::selection::Selection;

/// Denied here only if every call of the tool is: nothing about its arguments is told to who may not call it.
pub(crate) fn admit(
    tool: &ResolvedTool<'_>,
    governed: &Governed,
    selection: &Selection,
    rules: &Rules,
) -> Result<(), ToolError> {
    let name = tool.entry().exposed();
    if let Activity::Inactive { why } = &governed.activity {
        return Err(denied(format!("tool `{name}` is not active: {why}")));
    }
    if !selection.covers(name, &governed.groups) {
        return Err(denied(format!("tool `{name}` is not among the tools of this request")));
    }
    let ruling = rules.admit(name.as_str());
    match (governed.policy.approval, ruling.decision) {
        (Approval::Deny, _) => Err(denied(format!("tool `{name}` is denied by the operator"))),
        (_, Decision::Deny) => Err(denied(format!("tool `{name}` is denied: {}", ruling.why))),
        (Approval::Allow | Approval::Ask, Decision::Allow | Decision::Ask) => Ok(()),
    }
}

fn denied(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, message)
}
