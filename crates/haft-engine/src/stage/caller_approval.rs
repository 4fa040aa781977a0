//! Caller approval: requires approval for calls that the caller of the run wants to approve.

use haft_core::event::PolicyDecision;
use haft_core::rules::{PermissionDecision, Ruling};
use haft_core::run::caller_approvals::{ApproverAuthority, CALLER_REQUIRES};
use haft_core::run::context::RunContext;
use serde_json::json;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;
use crate::policy::GovernedTool;

/// A ruling and, if it requires approval, the party that requires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedRuling {
    pub(crate) ruling: Ruling,
    asked_by: AskedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    Operator,
    Caller,
}

impl AskedRuling {
    /// Returns true if an approver with this authority may decide about the call.
    pub(crate) fn may_be_decided(&self, authority: ApproverAuthority) -> bool {
        match (authority, self.asked_by) {
            (ApproverAuthority::AllCalls, _) | (ApproverAuthority::CallersOwn, AskedBy::Caller) => true,
            (ApproverAuthority::CallersOwn, AskedBy::Operator) => false,
        }
    }
}

/// Makes an allowed call require approval if the caller wants to approve it. Does not change other rulings, because a
/// caller cannot weaken the operator's rules. Requires approval if the filters of the caller require it for the
/// declared effects or for the trusted effects: a hostile server would declare that its deleting tool only reads.
pub(crate) fn caller_approval(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    (ruling, governed): (Ruling, &GovernedTool),
    run: &RunContext,
) -> AskedRuling {
    let entry = tool.entry();
    let is_required = !run.caller_approvals.is_empty() && {
        let name = entry.identity().mcp_name().unwrap_or_else(|| entry.exposed().to_string());
        let effects = [governed.effects, governed.trusted_effects];
        run.caller_approvals.iter().any(|approval| effects.iter().any(|one| approval.requires(&name, *one)))
    };
    if ruling.decision != PermissionDecision::Allow || !is_required {
        return AskedRuling { ruling, asked_by: AskedBy::Operator };
    }
    let decision = PermissionDecision::Ask;
    record.note("ruling", json!({ "decision": decision.name(), "rule": null, "why": CALLER_REQUIRES }));
    record.judge(PolicyDecision { decision, rule: None, consent: None });
    // Leave the list of asking rules empty, so that allowing a rule does not cover the call.
    let ruling = Ruling { decision, rule: None, why: CALLER_REQUIRES.into(), asking: Vec::new() };
    AskedRuling { ruling, asked_by: AskedBy::Caller }
}
