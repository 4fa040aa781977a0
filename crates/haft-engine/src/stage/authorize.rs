//! Authorize: applies the permission rules to the call and its arguments.

use haft_core::event::PolicyDecision;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{PermissionDecision, PermissionRules, Ruling};
use haft_core::tool::ApprovalPolicy;
use haft_core::validate::ValidArguments;
use serde_json::json;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;

/// Returns the ruling for the approve stage, or an error if the rules deny the call. The receipt contains the deciding
/// rule.
pub(crate) fn authorize(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    approval: ApprovalPolicy,
    rules: &PermissionRules,
) -> Result<Ruling, ToolError> {
    let name = tool.entry().exposed();
    let ruling = ruling(tool, arguments, approval, rules);
    let rule = rules.text(&ruling);
    if ruling.decision != PermissionDecision::Allow {
        let rule = rule.as_deref();
        record.note("ruling", json!({ "decision": ruling.decision.name(), "rule": rule, "why": ruling.why }));
    }
    record.judge(PolicyDecision { decision: ruling.decision, rule, consent: None });
    match ruling.decision {
        PermissionDecision::Deny => Err(ToolError::new(
            ToolErrorKind::Denied,
            format!("this call of `{name}` is denied: {}", ruling.why),
        )),
        PermissionDecision::Allow | PermissionDecision::Ask => Ok(ruling),
    }
}

/// Returns the stricter of two rulings: from the rules, and from the tool's own policy.
pub(crate) fn ruling(
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    approval: ApprovalPolicy,
    rules: &PermissionRules,
) -> Ruling {
    let ruling = rules.decide(tool.entry().exposed().as_str(), command_line(tool, arguments));
    if approval == ApprovalPolicy::Ask && ruling.decision == PermissionDecision::Allow {
        return Ruling {
            decision: PermissionDecision::Ask,
            why: "the operator requires approval".into(),
            ..ruling
        };
    }
    ruling
}

/// Returns the shell line that the call would run, for tools that run one.
pub(super) fn command_line<'a>(tool: &ResolvedTool<'_>, arguments: &'a ValidArguments) -> Option<&'a str> {
    let argument = tool.entry().definition().facts.command_argument?;
    arguments.value().get(argument)?.as_str()
}
