//! Approve: asks a user for approval if the rules require it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalKey, ApprovalRequest};
use haft_core::event::ApprovalOutcome;
use haft_core::grant::{
    AskedCall, Grant, GrantBinding, GrantDecision, GrantOwner, GrantScope, GrantTarget, covering,
    offered_prefix,
};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{PermissionDecision, PermissionRules, Ruling};
use haft_core::run::context::RunContext;
use haft_core::validate::ValidArguments;
use serde_json::json;

use super::authorize::command_line;
use super::caller_approval::AskedRuling;
use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;

/// Succeeds if the rules allow the call, a stored grant covers the call, or the user approves the call now. Without an
/// approver, the call is denied. A new grant is valid for `lifetime`, or until it is revoked.
pub(crate) async fn approve(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    asked: &AskedRuling,
    (rules, lifetime): (&PermissionRules, Option<Duration>),
    run: &RunContext,
) -> Result<(), ToolError> {
    let ruling = &asked.ruling;
    match ruling.decision {
        PermissionDecision::Allow => return Ok(()),
        PermissionDecision::Ask | PermissionDecision::Deny => {}
    }
    let binding = binding(tool, run);
    let call = asked_call(tool, arguments, ruling, rules, &binding);
    let granted = covering_grants(&call, run).await;
    if !granted.is_empty() {
        let ids: Vec<String> = granted.iter().map(|grant| grant.id.to_string()).collect();
        record.note("approval", json!("remembered"));
        record.note("grants", json!(ids));
        record.consent(ApprovalOutcome::Remembered);
        return Ok(());
    }
    let request = request(record, &call, arguments, run);
    let Some(approver) = run.approver.as_ref().filter(|_| asked.may_be_decided(run.authority)) else {
        record.consent(ApprovalOutcome::NoApprover);
        let message = format!(
            "this call of `{}` needs approval, and no user is available to approve it; the reason for approval: {}",
            request.tool, ruling.why
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message));
    };
    let answer = approver.ask(&request).await;
    record.consent(ApprovalOutcome::Answered { approver: approver.name(), answer });
    let decision = GrantDecision { by: approver.name().to_owned(), at_ms: now_ms() };
    let scopes = GrantScope::of_answer(answer, &request).into_iter();
    let grants = scopes.map(|scope| Grant::new(&binding, scope, decision.clone()).lasting(lifetime));
    remember(record, grants, run).await;
    match answer {
        ApprovalAnswer::AllowOnce
        | ApprovalAnswer::AllowExact
        | ApprovalAnswer::AllowPrefix
        | ApprovalAnswer::AllowRule => {
            record.note("approval", json!("asked"));
            Ok(())
        }
        ApprovalAnswer::Deny => Err(ToolError::new(ToolErrorKind::Denied, "the user refused this call")),
        ApprovalAnswer::Unanswered(reason) => {
            let message = format!(
                "this call of `{}` needs approval, and {reason}; the reason for approval: {}",
                request.tool, ruling.why
            );
            Err(ToolError::new(ToolErrorKind::Denied, message))
        }
        ApprovalAnswer::Later => {
            Err(ToolError::new(ToolErrorKind::ApprovalPending, "this call waits for approval"))
        }
    }
}

/// Returns the stored grants that together cover a call. The list is empty if the user must be asked.
pub(crate) async fn covering_grants(call: &AskedCall<'_>, run: &RunContext) -> Vec<Grant> {
    let GrantBinding { owner, target, .. } = call.binding;
    // If the store cannot be read, use no grants: the user is asked again, and the store reports the problem.
    let stored = run.grants.load(owner, &target.workspace).await.unwrap_or_default();
    covering(&stored, call, now_ms()).unwrap_or_default().into_iter().cloned().collect()
}

pub(crate) fn binding(tool: &ResolvedTool<'_>, run: &RunContext) -> GrantBinding {
    let entry = tool.entry();
    GrantBinding {
        owner: GrantOwner::of(&run.principal),
        target: GrantTarget {
            workspace: run.workspace.to_string(),
            tool: entry.identity().clone(),
            definition: entry.digest(),
        },
        confinement: run.confinement,
    }
}

pub(crate) fn asked_call<'a>(
    tool: &'a ResolvedTool<'_>,
    arguments: &'a ValidArguments,
    ruling: &'a Ruling,
    rules: &'a PermissionRules,
    binding: &'a GrantBinding,
) -> AskedCall<'a> {
    let GrantTarget { workspace, tool: identity, definition } = &binding.target;
    let key = ApprovalKey { identity, definition: *definition, arguments, workspace };
    AskedCall {
        binding,
        digest: key.digest(),
        exposed: tool.entry().exposed().as_str(),
        line: command_line(tool, arguments),
        rules,
        ruling,
    }
}

fn request(
    record: &CallRecord,
    call: &AskedCall<'_>,
    arguments: &ValidArguments,
    run: &RunContext,
) -> ApprovalRequest {
    let place = record.operation().place;
    ApprovalRequest {
        id: ApprovalId::of_call(place, &record.call.id),
        place,
        tool: call.exposed.to_owned(),
        arguments: arguments.value().clone(),
        workspace: (*run.workspace).into(),
        digest: call.digest,
        rules: call.rules.asking(call.ruling),
        prefix: offered_prefix(call),
        why: call.ruling.why.clone().into_owned(),
    }
}

/// Stores the grants before the call runs, so that a crash during the call does not lose them. If they cannot be
/// stored, the call still runs, because the user has approved it.
async fn remember(record: &mut CallRecord, grants: impl Iterator<Item = Grant>, run: &RunContext) {
    for grant in grants {
        if let Err(error) = run.grants.add(&grant).await {
            record.note("approval_not_stored", json!(error.to_string()));
        }
    }
}

/// Returns the current time. If the clock is before 1970, returns the maximum, so that every grant with an expiry time
/// has expired.
fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    elapsed.and_then(|elapsed| u64::try_from(elapsed.as_millis()).ok()).unwrap_or(u64::MAX)
}
