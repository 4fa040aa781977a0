//! Admit: decides by the name alone if the tool may be called.

use std::sync::Arc;

use haft_core::event::PolicyDecision;
use haft_core::name::ToolName;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{PermissionDecision, PermissionRules};
use haft_core::tool::ApprovalPolicy;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;
use crate::policy::{GovernedTool, InactiveReason};
use crate::selection::ToolFilter;

/// Denies a call if every call to this tool is denied. `inactivity` is the reason why the tool is inactive, if it is.
/// This stage runs before validation, so that a caller without permission learns nothing about the tool's schema.
pub(crate) fn admit(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    (governed, inactivity): (&GovernedTool, Option<InactiveReason>),
    selection: &ToolFilter,
    rules: &PermissionRules,
) -> Result<(), ToolError> {
    let name = tool.entry().exposed();
    if let Some(why) = inactivity {
        return Err(inactive(record, name, &why));
    }
    if !selection.covers(name, tool.entry().identity(), &governed.groups, governed.effects) {
        return Err(denied(record, None, format!("tool `{name}` is not among the tools of this request")));
    }
    let ruling = rules.admit(name.as_str());
    match (governed.policy.approval, ruling.decision) {
        (
            ApprovalPolicy::Allow | ApprovalPolicy::Ask,
            PermissionDecision::Allow | PermissionDecision::Ask,
        ) => Ok(()),
        (ApprovalPolicy::Deny, _) => {
            Err(denied(record, None, format!("tool `{name}` is denied by the operator")))
        }
        (ApprovalPolicy::Allow | ApprovalPolicy::Ask, PermissionDecision::Deny) => {
            Err(denied(record, rules.text(&ruling), format!("tool `{name}` is denied: {}", ruling.why)))
        }
    }
}

/// Records the refusal of a call to an inactive tool and returns its error.
pub(super) fn inactive(record: &mut CallRecord, name: &ToolName, why: &InactiveReason) -> ToolError {
    denied(record, why.rule(), format!("tool `{name}` is not active: {why}"))
}

/// Records the refusal of a call and returns its error.
pub(super) fn denied(record: &mut CallRecord, rule: Option<Arc<str>>, message: String) -> ToolError {
    record.judge(PolicyDecision { decision: PermissionDecision::Deny, rule, consent: None });
    ToolError::new(ToolErrorKind::Denied, message)
}
