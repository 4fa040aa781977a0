//! Approve: asks a user where the rules require it.

use haft_core::approval::{Answer, ApprovalId, ApprovalKey, ApprovalRequest};
use haft_core::event::Consent;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rules, Ruling};
use haft_core::run::context::RunContext;
use haft_core::validate::ValidArguments;
use serde_json::json;

use crate::catalog::ResolvedTool;
use crate::record::CallRecord;

/// Succeeds if the rules allow the call, a stored grant covers it, or the user approves it now. Without an approver the
/// call is denied.
pub(crate) async fn approve(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    arguments: &ValidArguments,
    ruling: &Ruling,
    rules: &Rules,
    run: &RunContext,
) -> Result<(), ToolError> {
    match ruling.decision {
        Decision::Allow => return Ok(()),
        Decision::Ask | Decision::Deny => {}
    }
    let entry = tool.entry();
    let workspace = &*run.workspace;
    let key = ApprovalKey { identity: entry.identity(), definition: entry.digest(), arguments, workspace };
    let request = ApprovalRequest {
        id: ApprovalId::of_call(record.operation().place, &record.call.id),
        place: record.operation().place,
        tool: entry.exposed().to_string(),
        arguments: arguments.value().clone(),
        workspace: workspace.into(),
        digest: key.digest(),
        rules: rules.asking(ruling),
        why: ruling.why.clone(),
    };
    if run.grants.covers(rules, ruling, &request.digest) {
        record.note("approval", json!("remembered"));
        record.consent(Consent::Remembered);
        return Ok(());
    }
    let Some(approver) = &run.approver else {
        record.consent(Consent::Nobody);
        let message = format!(
            "this call of `{}` needs approval and there is no one to ask: {}",
            request.tool, ruling.why
        );
        return Err(ToolError::new(ToolErrorKind::Denied, message));
    };
    let answer = approver.ask(&request).await;
    record.consent(Consent::Answered { approver: approver.name(), answer });
    run.grants.remember(&request, answer);
    match answer {
        Answer::AllowOnce | Answer::AllowExact | Answer::AllowRule => {
            record.note("approval", json!("asked"));
            Ok(())
        }
        Answer::Deny => Err(ToolError::new(ToolErrorKind::Denied, "the user refused this call")),
        Answer::Later => Err(ToolError::new(ToolErrorKind::ApprovalPending, "this call waits for approval")),
    }
}
