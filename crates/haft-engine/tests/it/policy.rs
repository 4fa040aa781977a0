use haft_core::name::ToolName;
use haft_core::tool::ApprovalPolicy;
use haft_engine::ToolPolicies;

use crate::fake::{call, orchestrator_with, said};

async fn check(approval: ApprovalPolicy, expected: &str) {
    let mut policies = ToolPolicies::default();
    let policy = haft_core::tool::ToolPolicy { approval, ..policies.default.clone() };
    policies.by_tool.insert(ToolName::new("echo").unwrap(), policy);
    let (orchestrator, _) = orchestrator_with(policies);
    let result = orchestrator.execute(call("echo", "{}")).await;
    assert_eq!(said(&result), expected);
    let other = orchestrator.execute(call("note", "{}")).await;
    assert_eq!(said(&other), "noted", "the default policy applies to other tools");
}

#[tokio::test]
async fn denied_tool_reveals_no_schema_errors() {
    check(ApprovalPolicy::Deny, "denied: tool `echo` is denied by the operator").await;
    // A malformed call fails before the approver is asked.
    check(ApprovalPolicy::Ask, "invalid_arguments: Error: 'text' parameter is required (string)").await;
    check(ApprovalPolicy::Allow, "invalid_arguments: Error: 'text' parameter is required (string)").await;
}
