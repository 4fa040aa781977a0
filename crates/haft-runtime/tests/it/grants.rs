//! Tests of remembered approvals: stored when given, bound to principal and workspace, listed and revoked.

use std::sync::Arc;

use haft_core::grant::GrantOwner;
use haft_core::grant_store::MemoryGrants;
use haft_core::principal::Principal;
use haft_core::settings::mode::SandboxMode;
use haft_model_server::ScriptStep;
use haft_runtime::{
    ApprovalDecision, DecideError, ParkReason, PendingApproval, RunHandle, RunSecrets, RunSpec, RunState,
    Runtime, Stores, WorkspaceSpec,
};
use serde_json::{Value, json};

use crate::fixture::{RuntimeFixture, answer, asking, finished, note, process};

async fn pending(run: &RunHandle) -> PendingApproval {
    match run.wait().await.unwrap() {
        RunState::Parked(ParkReason::Approval(mut pending)) => pending.remove(0),
        other => panic!("{other:?}"),
    }
}

fn principal(subject: &str) -> Principal {
    Principal::new("acme", subject, "key")
}

fn of(fixture: &RuntimeFixture, subject: &str) -> RunSpec {
    RunSpec { principal: principal(subject), ..fixture.spec("go") }
}

/// Returns a fixture whose model calls `note` once in each of these runs.
fn notes(runs: usize) -> RuntimeFixture {
    RuntimeFixture::in_order((0..runs).flat_map(|_| [note("same"), ScriptStep::text("done")]))
}

async fn start(runtime: &Runtime, spec: RunSpec) -> RunHandle {
    runtime.start(spec, RunSecrets::none()).await.unwrap()
}

#[test]
fn grants_survive_restart_and_cover_only_their_owner() {
    for (decision, scope) in
        [(ApprovalDecision::AllowExact, "exactly same"), (ApprovalDecision::AllowRule, "rule ask note")]
    {
        let fixture = notes(3);
        process().block_on(async {
            let runtime = fixture.runtime(&asking()).await;
            let run = start(&runtime, of(&fixture, "anna")).await;
            run.decide(pending(&run).await.id, decision).unwrap();
            assert_eq!(answer(&finished(&run).await), "done");
        });
        process().block_on(async {
            let runtime = fixture.runtime(&asking()).await;
            finished(&start(&runtime, of(&fixture, "anna")).await).await;
            let run = start(&runtime, of(&fixture, "bert")).await;
            run.decide(pending(&run).await.id, ApprovalDecision::Deny).unwrap();
            finished(&run).await;
            let list = runtime.grants().list(&GrantOwner::of(&principal("anna"))).await.unwrap();
            let scopes: Vec<_> = list.iter().map(|grant| grant.scope.to_string()).collect();
            assert_eq!((scopes, list[0].decision.by.as_str()), (vec![scope.to_owned()], "caller"));
        });
        assert_eq!(fixture.calls.count(), 2, "{decision:?}");
    }
}

#[tokio::test]
async fn grant_ends_after_the_configured_time() {
    let mut config = asking();
    for (keep, is_asked_again) in [("1h", false), ("1ms", true)] {
        let fixture = notes(2);
        config["policy"]["keepApprovals"] = json!(keep);
        let runtime = fixture.runtime(&config).await;
        let run = start(&runtime, of(&fixture, "anna")).await;
        run.decide(pending(&run).await.id, ApprovalDecision::AllowExact).unwrap();
        finished(&run).await;
        let [grant] =
            runtime.grants().list(&GrantOwner::of(&principal("anna"))).await.unwrap().try_into().unwrap();
        let lifetime = grant.expires_ms.unwrap() - grant.decision.at_ms;
        assert_eq!(lifetime, if keep == "1h" { 3_600_000 } else { 1 });
        let run = start(&runtime, of(&fixture, "anna")).await;
        let state = run.wait().await.unwrap();
        assert_eq!(matches!(state, RunState::Parked(_)), is_asked_again, "{keep}: {state:?}");
        run.cancel();
        run.closed().await;
    }
}

#[tokio::test]
async fn revoked_grant_requires_approval_again() {
    let fixture = notes(2);
    let runtime = fixture.runtime(&asking()).await;
    let run = start(&runtime, of(&fixture, "anna")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::AllowExact).unwrap();
    finished(&run).await;
    let owner = GrantOwner::of(&principal("anna"));
    let [grant] = runtime.grants().list(&owner).await.unwrap().try_into().unwrap();
    assert!(runtime.grants().revoke(&owner, grant.id).await.unwrap());
    let run = start(&runtime, of(&fixture, "anna")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::Deny).unwrap();
    finished(&run).await;
    assert_eq!(fixture.calls.count(), 1);
}

#[tokio::test]
async fn grant_does_not_cover_another_workspace_or_a_less_strict_sandbox_mode() {
    let fixture = notes(3);
    let runtime = fixture.runtime(&asking()).await;
    let run = start(&runtime, fixture.spec("go")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::AllowRule).unwrap();
    finished(&run).await;
    let elsewhere = fixture.directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let here = WorkspaceSpec::at(fixture.workspace());
    for workspace in [WorkspaceSpec::at(&elsewhere), WorkspaceSpec { mode: SandboxMode::Network, ..here }] {
        let run = start(&runtime, RunSpec { workspace, ..fixture.spec("go") }).await;
        run.decide(pending(&run).await.id, ApprovalDecision::Deny).unwrap();
        finished(&run).await;
    }
    assert_eq!(fixture.calls.count(), 1);
}

/// Returns a spec whose agent may use `bash`, and a configuration in which calls of `bash` wait for approval.
fn bash(fixture: &RuntimeFixture) -> (RunSpec, Value) {
    let spec = fixture.spec_of("---\nmodels: openai/m\ntools: [bash]\n---\n", "go");
    (spec, json!({"policy": {"rules": [{"tool": "bash", "command": "echo *", "decision": "ask"}]}}))
}

#[tokio::test]
async fn allowed_prefix_covers_no_other_command() {
    let line = |command: &str| ScriptStep::call("bash", json!({ "command": command }));
    let steps = [line("echo one --x"), line("echo one"), line("echo two"), ScriptStep::text("done")];
    let fixture = RuntimeFixture::new(steps);
    let (spec, config) = bash(&fixture);
    let runtime = fixture.runtime(&config).await;
    let run = start(&runtime, spec).await;
    let first = pending(&run).await;
    assert_eq!(first.prefix.as_deref(), Some(&["echo".to_owned(), "one".to_owned()][..]));
    assert_eq!(first.rules, ["ask bash: echo *"]);
    run.decide(first.id, ApprovalDecision::AllowPrefix).unwrap();
    let second = pending(&run).await;
    assert_eq!(second.arguments, json!({"command": "echo two"}), "`echo one` was covered");
    run.decide(second.id, ApprovalDecision::Deny).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
}

#[tokio::test]
async fn unoffered_decision_is_an_error_and_the_call_still_waits() {
    let fixture = notes(1);
    let runtime = fixture.runtime(&asking()).await;
    let run = start(&runtime, fixture.spec("go")).await;
    let waiting = pending(&run).await;
    assert_eq!(waiting.prefix, None, "`note` runs no command");
    let refused = run.decide(waiting.id, ApprovalDecision::AllowPrefix).unwrap_err();
    assert_eq!(refused, DecideError::NotOffered { id: waiting.id.to_string() });
    run.decide(waiting.id, ApprovalDecision::Allow).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
}

#[tokio::test]
async fn unwritable_grant_store_causes_a_warning_and_the_call_still_runs() {
    let fixture = notes(1);
    std::fs::write(fixture.home().data().join("grants"), "in the way").unwrap();
    let runtime = fixture.runtime(&asking()).await;
    let run = start(&runtime, fixture.spec("go")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::AllowExact).unwrap();
    assert_eq!(answer(&finished(&run).await), "done");
    assert_eq!(fixture.calls.count(), 1);
    let warnings = run.warnings().join("\n");
    assert!(
        warnings.contains("haft could not store the approval, so the approval applies to this call only"),
        "{warnings}"
    );
}

#[tokio::test]
async fn memory_grant_store_writes_no_files() {
    let fixture = notes(2);
    let stores = Stores::at(&fixture.home()).with_grants(Arc::new(MemoryGrants::default()));
    let runtime = fixture.builder(&asking()).stores(stores).build().await.unwrap();
    let run = start(&runtime, fixture.spec("go")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::AllowExact).unwrap();
    finished(&run).await;
    finished(&start(&runtime, fixture.spec("go")).await).await;
    assert_eq!(fixture.calls.count(), 2);
    assert!(!fixture.home().data().join("grants").exists());
}

#[tokio::test]
async fn rules_in_the_old_format_are_dropped_with_one_warning() {
    let fixture = notes(1);
    let old = json!({"exact": [], "rules": ["ask note"]});
    std::fs::write(fixture.home().data().join("approvals.json"), old.to_string()).unwrap();
    let (runtime, warnings) = fixture.builder(&asking()).build_with_warnings().await.unwrap();
    assert!(
        warnings.iter().any(|warning| warning.starts_with("1 remembered rule was dropped")),
        "{warnings:?}"
    );
    let run = start(&runtime, fixture.spec("go")).await;
    run.decide(pending(&run).await.id, ApprovalDecision::Deny).unwrap();
    finished(&run).await;
    let (_, warnings) = fixture.builder(&asking()).build_with_warnings().await.unwrap();
    assert_eq!(warnings, Vec::<String>::new());
}
