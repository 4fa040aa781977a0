//! Admit: may this tool be called at all, by its name alone.

use haft_core::event::Verdict;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rules};
use haft_core::tool::Approval;

use crate::catalog::ResolvedTool;
use crate::record::CallRecord;

/// Denied here only if every call of the tool is: nothing about its arguments is told to who may not call it.
pub(crate) fn admit(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    approval: Approval,
    rules: &Rules,
) -> Result<(), ToolError> {
    let name = tool.entry().exposed();
    let ruling = rules.admit(name.as_str());
    let (rule, message) = match (approval, ruling.decision) {
        (Approval::Allow | Approval::Ask, Decision::Allow | Decision::Ask) => return Ok(()),
        (Approval::Deny, _) => (None, format!("tool `{name}` is denied by the operator")),
        (Approval::Allow | Approval::Ask, Decision::Deny) => {
            (rules.text(&ruling), format!("tool `{name}` is denied: {}", ruling.why))
        }
    };
    record.judge(Verdict { decision: Decision::Deny, rule, consent: None });
    Err(ToolError::new(ToolErrorKind::Denied, message))
}
