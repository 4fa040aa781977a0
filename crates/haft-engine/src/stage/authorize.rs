//! Authorize: applies the permission rules to the call and its arguments.

use haft_core::event::PolicyDecision;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rules, Ruling};
use haft_core::tool::Approval;
use haft_core::validate::ValidArguments;
use serde_json::json;

use crate::catalog::ResolvedTool;
use crate::record::CallRecord;

/// Returns the ruling for the approve stage, or an error if the rules deny the call. The receipt names the deciding
/// rule.
pub(crate) fn authorize(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    approval: Approval,
    rules: &Rules,
) -> Result<Ruling, ToolError> {
    let name = tool.entry().exposed();
    let argument = tool.entry().definition().facts.command_argument;
    let line = argument.and_then(|argument| arguments.value().get(argument)?.as_str());
    let mut ruling = rules.decide(name.as_str(), line);
    if approval == Approval::Ask && ruling.decision == Decision::Allow {
        ruling = Ruling { decision: Decision::Ask, why: "the operator wants to be asked".into(), ..ruling };
    }
    let rule = rules.text(&ruling);
    if ruling.decision != Decision::Allow {
        let rule = rule.as_deref();
        record.note("ruling", json!({ "decision": ruling.decision.name(), "rule": rule, "why": ruling.why }));
    }
    record.judge(PolicyDecision { decision: ruling.decision, rule, consent: None });
    match ruling.decision {
        Decision::Deny => Err(ToolError::new(
            ToolErrorKind::Denied,
            format!("this call of `{name}` is denied: {}", ruling.why),
        )),
        Decision::Allow | Decision::Ask => Ok(ruling),
    }
}
