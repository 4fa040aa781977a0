use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver};
use haft_core::glob::ToolGlob;
use haft_core::grant::{Grant, GrantId, GrantOwner};
use haft_core::grant_store::{GrantStore, GrantStoreError, MemoryGrants};
use haft_core::naming::NamingScheme;
use haft_core::position::{RunPosition, SessionId};
use haft_core::principal::Principal;
use haft_core::provider::ProviderKind;
use haft_core::rules::{CommandPattern, PermissionDecision, PermissionRule, PermissionRules};
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{ResourceAccess, SandboxBinding};
use haft_core::tool::{CallId, Effects, ToolCall};
use haft_engine::{CallOptions, Catalog, Orchestrator, OrchestratorConfig, RunContext};
use serde_json::json;

use crate::fake::{FakeProvider, SharedLog, TestRig, call, orchestrator_for, said, schema};

/// An approver that always gives the same answer and records the requests.
struct RecordingApprover {
    answer: ApprovalAnswer,
    asked: SharedLog,
}

impl Approver for RecordingApprover {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        self.asked.write(format!("{} {:?}", request.tool, request.rules));
        Box::pin(async { self.answer })
    }
}

fn rule(tool: &str, command: Option<&str>, decision: PermissionDecision) -> PermissionRule {
    let command = command.map(|text| CommandPattern::new(text).unwrap());
    PermissionRule { tool: ToolGlob::new(tool).unwrap(), command, decision }
}

/// Returns a run whose approver always gives this answer; `None` means no approver.
fn run(answer: Option<ApprovalAnswer>, asked: &SharedLog) -> RunContext {
    let approver = answer
        .map(|answer| Arc::new(RecordingApprover { answer, asked: asked.clone() }) as Arc<dyn Approver>);
    RunContext { approver, ..RunContext::default() }
}

/// Returns an orchestrator in which `echo` acts as a shell: its `text` is a command line.
fn governed(rules: Vec<PermissionRule>, answer: Option<ApprovalAnswer>, asked: &SharedLog) -> TestRig {
    let rules = PermissionRules { rules, default: PermissionDecision::Allow };
    let config = OrchestratorConfig { rules, ..OrchestratorConfig::default() };
    orchestrator_for(run(answer, asked), config).0
}

async fn check(rules: Vec<PermissionRule>, answer: Option<ApprovalAnswer>, line: &str, expected: &str) {
    let orchestrator = governed(rules, answer, &SharedLog::default());
    let result = orchestrator.execute(call("echo", &format!(r#"{{"text": "{line}"}}"#))).await;
    assert!(said(&result).starts_with(expected), "{line}: {}", said(&result));
}

#[tokio::test]
async fn rules_apply_to_every_command_of_a_line() {
    let rules = || vec![rule("echo", Some("rm *"), PermissionDecision::Deny)];
    check(rules(), None, "ls -l", "echo: ls -l").await;
    check(rules(), None, "ls && rm -rf x", "denied: this call of `echo` is denied").await;
    check(rules(), None, "a=$(rm x)", "denied: this call of `echo` is denied").await;
}

#[tokio::test]
async fn denied_tool_reveals_no_schema_errors() {
    let orchestrator =
        governed(vec![rule("ech*", None, PermissionDecision::Deny)], None, &SharedLog::default());
    let result = orchestrator.execute(call("echo", r#"{"wrong": 1}"#)).await;
    assert!(said(&result).starts_with("denied: tool `echo` is denied"), "{}", said(&result));
    assert!(!result.receipt.executed);
}

#[tokio::test]
async fn approval_answer_decides_a_call_that_needs_approval() {
    let rules = || vec![rule("echo", None, PermissionDecision::Ask)];
    check(rules(), Some(ApprovalAnswer::AllowOnce), "ls", "echo: ls").await;
    check(rules(), Some(ApprovalAnswer::Deny), "ls", "denied: the user refused").await;
    check(rules(), Some(ApprovalAnswer::Later), "ls", "approval_pending").await;
    check(
        rules(),
        None,
        "ls",
        "denied: this call of `echo` needs approval, and no user is available to approve it",
    )
    .await;
}

#[tokio::test]
async fn exact_grant_covers_equal_calls_but_no_other_calls() {
    let asked = SharedLog::default();
    let rules = vec![rule("echo", None, PermissionDecision::Ask)];
    let orchestrator = governed(rules, Some(ApprovalAnswer::AllowExact), &asked);
    for _ in 0..2 {
        assert_eq!(said(&orchestrator.execute(call("echo", r#"{"text": "ls"}"#)).await), "echo: ls");
    }
    assert_eq!(asked.lines().len(), 1, "the second equal call needs no approval");
    orchestrator.execute(call("echo", r#"{"text": "ls -l"}"#)).await;
    assert_eq!(asked.lines().len(), 2, "a different call needs approval");
}

#[tokio::test]
async fn malformed_call_fails_without_an_approval_prompt() {
    let asked = SharedLog::default();
    let orchestrator =
        governed(vec![rule("*", None, PermissionDecision::Ask)], Some(ApprovalAnswer::AllowOnce), &asked);
    let result = orchestrator.execute(call("echo", "{}")).await;
    assert!(said(&result).starts_with("invalid_arguments"), "{}", said(&result));
    assert!(asked.lines().is_empty());
}

/// Returns two runs on one orchestrator that requires approval for `echo`. Anna always gives this answer, Bert always
/// refuses. Both use the same workspace and store, so only the principal differs.
fn two_principals(answer: ApprovalAnswer, asked: &SharedLog) -> (TestRig, TestRig) {
    let anna = governed(vec![rule("echo", None, PermissionDecision::Ask)], None, &SharedLog::default());
    let grants: Arc<dyn GrantStore> = Arc::new(MemoryGrants::default());
    let of = |subject: &str, answer: ApprovalAnswer| RunContext {
        principal: Principal::new("acme", subject, "key-1"),
        grants: Arc::clone(&grants),
        workspace: "/w".into(),
        ..run(Some(answer), asked)
    };
    (anna.with(of("anna", answer)), anna.with(of("bert", ApprovalAnswer::Deny)))
}

async fn echo(run: &TestRig, line: &str) -> String {
    said(&run.execute(call("echo", &format!(r#"{{"text": "{line}"}}"#))).await)
}

#[tokio::test]
async fn grant_of_one_principal_does_not_cover_another() {
    let answers = [
        (ApprovalAnswer::AllowExact, "ls"),
        (ApprovalAnswer::AllowPrefix, "ls -l"),
        (ApprovalAnswer::AllowRule, "ls -l"),
    ];
    for (answer, line) in answers {
        let asked = SharedLog::default();
        let (anna, bert) = two_principals(answer, &asked);
        assert_eq!(echo(&anna, "ls").await, "echo: ls");
        assert_eq!(echo(&anna, line).await, format!("echo: {line}"));
        assert_eq!(asked.lines().len(), 1, "{answer:?}: the grant covers the second call of anna");
        for line in ["ls", line] {
            assert_eq!(echo(&bert, line).await, "denied: the user refused this call", "{answer:?}");
        }
        assert_eq!(asked.lines().len(), 3, "{answer:?}: each call of bert needs approval");
        assert_eq!(
            echo(&anna, line).await,
            format!("echo: {line}"),
            "bert's refusals do not affect the grant of anna"
        );
        assert_eq!(asked.lines().len(), 3, "{answer:?}");
    }
}

#[tokio::test]
async fn grant_covers_a_later_run_of_its_principal_without_an_approver() {
    let asked = SharedLog::default();
    let (anna, _) = two_principals(ApprovalAnswer::AllowExact, &asked);
    assert_eq!(echo(&anna, "ls").await, "echo: ls");
    let later = |grants: Arc<dyn GrantStore>| {
        let principal = Principal::new("acme", "anna", "key-2");
        anna.with(RunContext { grants, principal, approver: None, ..anna.context().clone() })
    };
    assert_eq!(
        echo(&later(anna.context().grants.clone()), "ls").await,
        "echo: ls",
        "the grant covers a call with another credential"
    );
    let denied = echo(&later(Arc::new(MemoryGrants::default())), "ls").await;
    assert!(denied.contains("needs approval, and no user is available to approve it"), "{denied}");
}

const REMEMBERED: [ApprovalAnswer; 3] =
    [ApprovalAnswer::AllowExact, ApprovalAnswer::AllowPrefix, ApprovalAnswer::AllowRule];

#[tokio::test]
async fn grant_does_not_cover_a_call_in_another_workspace() {
    for answer in REMEMBERED {
        let asked = SharedLog::default();
        let (anna, _) = two_principals(answer, &asked);
        let elsewhere = anna.with(RunContext { workspace: "/v".into(), ..anna.context().clone() });
        for (run, questions) in [(&anna, 1), (&elsewhere, 2), (&anna, 2), (&elsewhere, 2)] {
            assert_eq!(echo(run, "ls").await, "echo: ls");
            assert_eq!(asked.lines().len(), questions, "{answer:?} {}", run.context().workspace);
        }
    }
}

#[tokio::test]
async fn grant_does_not_cover_a_less_strict_sandbox() {
    let narrow = SandboxBinding { mode: SandboxMode::Network, network: ResourceAccess::Deny };
    let wider = [
        SandboxBinding { network: ResourceAccess::Allow, ..narrow },
        SandboxBinding { mode: SandboxMode::Full, ..narrow },
    ];
    for answer in REMEMBERED {
        let asked = SharedLog::default();
        let (anna, _) = two_principals(answer, &asked);
        let within = |confinement| anna.with(RunContext { confinement, ..anna.context().clone() });
        echo(&within(narrow), "ls").await;
        echo(&within(SandboxBinding::NARROWEST), "ls").await;
        assert_eq!(asked.lines().len(), 1, "{answer:?}: the grant covers a narrower sandbox");
        for (count, confinement) in wider.into_iter().enumerate() {
            echo(&within(confinement), "ls").await;
            assert_eq!(asked.lines().len(), 2 + count, "{answer:?} {confinement:?}");
        }
    }
}

#[tokio::test]
async fn grant_does_not_cover_a_tool_whose_definition_changed() {
    for answer in REMEMBERED {
        let asked = SharedLog::default();
        let run = RunContext { workspace: "/w".into(), ..run(Some(answer), &asked) };
        let with_schema = |schema| {
            let tools = [("echo", Effects::ReadOnly, schema)];
            let provider = FakeProvider::new(ProviderKind::Builtin, "fake", &tools, SharedLog::default());
            let catalog = Catalog::new(vec![Arc::new(provider)], NamingScheme::Double);
            let rules = PermissionRules {
                rules: vec![rule("echo", None, PermissionDecision::Ask)],
                default: PermissionDecision::Allow,
            };
            let config = OrchestratorConfig { rules, ..OrchestratorConfig::default() };
            TestRig::new(Orchestrator::try_new(catalog, config).unwrap(), run.clone())
        };
        let (before, after) = (with_schema(schema(&["text"])), with_schema(json!({"type": "object"})));
        for (rig, questions) in [(&before, 1), (&before, 1), (&after, 2), (&before, 2)] {
            assert_eq!(echo(rig, "ls").await, "echo: ls");
            assert_eq!(asked.lines().len(), questions, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn remembered_prefix_allows_no_other_command_of_the_same_rule() {
    let asked = SharedLog::default();
    let rules = vec![rule("echo", Some("git *"), PermissionDecision::Ask)];
    let git = governed(rules, Some(ApprovalAnswer::AllowPrefix), &asked);
    for (line, questions) in [
        ("git status", 1),
        ("git status -s && ls", 1),
        ("git push --force", 2),
        ("git status && git commit", 3),
    ] {
        echo(&git, line).await;
        assert_eq!(asked.lines().len(), questions, "{line}");
    }
}

/// A grant store in which every operation fails.
struct BrokenStore;

impl BrokenStore {
    fn failure() -> GrantStoreError {
        GrantStoreError::Unavailable { reason: "disk full".into() }
    }
}

impl GrantStore for BrokenStore {
    fn load<'a>(
        &'a self,
        _: &'a GrantOwner,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        Box::pin(async { Err(Self::failure()) })
    }

    fn add<'a>(&'a self, _: &'a Grant) -> BoxFuture<'a, Result<(), GrantStoreError>> {
        Box::pin(async { Err(Self::failure()) })
    }

    fn list<'a>(&'a self, _: &'a GrantOwner) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        Box::pin(async { Err(Self::failure()) })
    }

    fn revoke<'a>(&'a self, _: &'a GrantOwner, _: GrantId) -> BoxFuture<'a, Result<bool, GrantStoreError>> {
        Box::pin(async { Err(Self::failure()) })
    }
}

#[tokio::test]
async fn approved_call_runs_once_when_its_grant_cannot_be_stored() {
    let asked = SharedLog::default();
    let rig = governed(vec![rule("echo", None, PermissionDecision::Ask)], None, &SharedLog::default());
    let run = rig
        .with(RunContext { grants: Arc::new(BrokenStore), ..run(Some(ApprovalAnswer::AllowExact), &asked) });
    for questions in 1..=2 {
        let result = run.execute(call("echo", r#"{"text": "ls"}"#)).await;
        assert_eq!(said(&result), "echo: ls");
        assert_eq!(result.receipt.notes["approval_not_stored"], "disk full");
        assert_eq!(asked.lines().len(), questions);
    }
}

#[tokio::test]
async fn covering_grants_lists_grants_without_executing_the_call() {
    let asked = SharedLog::default();
    let (anna, bert) = two_principals(ApprovalAnswer::AllowPrefix, &asked);
    let found = async |run: &TestRig, line: &str| {
        let asked = call("echo", &format!(r#"{{"text": "{line}"}}"#));
        let grants = run.covering_grants(asked, run.context()).await.unwrap();
        grants.iter().map(|grant| grant.scope.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&anna, "git status").await, Vec::<String>::new());
    echo(&anna, "git status").await;
    assert_eq!(found(&anna, "git status -s").await, ["git status *"]);
    assert_eq!(found(&anna, "git push").await, Vec::<String>::new());
    assert_eq!(found(&bert, "git status").await, Vec::<String>::new());
    assert_eq!(asked.lines().len(), 1);
    assert!(anna.covering_grants(call("nothing", "{}"), anna.context()).await.is_err());
}

/// An approver that defers every call and records the approval ids.
#[derive(Default)]
struct DeferringApprover(Mutex<Vec<ApprovalId>>);

impl Approver for DeferringApprover {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        self.0.lock().unwrap().push(request.id);
        Box::pin(async { ApprovalAnswer::Later })
    }
}

/// Returns the approval id of a call at this position. Each request uses a new orchestrator, as after a restart of the
/// process.
async fn approval_of(session: u128, turn: u32, id: &str) -> ApprovalId {
    let recorder = Arc::new(DeferringApprover::default());
    let orchestrator =
        governed(vec![rule("echo", None, PermissionDecision::Ask)], None, &SharedLog::default());
    let run = orchestrator.with(RunContext { approver: Some(recorder.clone()), ..RunContext::default() });
    let place = RunPosition { turn, ..RunPosition::first(SessionId(session)) };
    let call = ToolCall { id: CallId(id.into()), ..call("echo", r#"{"text": "ls"}"#) };
    run.execute_with(call, CallOptions { place, ..CallOptions::default() }).await;
    recorder.0.lock().unwrap().pop().unwrap()
}

#[tokio::test]
async fn approval_id_is_the_same_for_the_same_session_turn_and_call() {
    let approval = approval_of(7, 1, "c1").await;
    assert_eq!(approval_of(7, 1, "c1").await, approval);
    assert_eq!(ApprovalId::parse(&approval.to_string()), Some(approval));
}

#[tokio::test]
async fn approval_id_differs_by_session_turn_and_call_id() {
    let approval = approval_of(7, 1, "c1").await;
    for (session, turn, id) in [(7, 2, "c1"), (8, 1, "c1"), (7, 1, "c2"), (7, 11, "c1"), (7, 1, "1/c1")] {
        assert_ne!(approval_of(session, turn, id).await, approval, "{session} {turn} {id}");
    }
    assert_ne!(approval_of(7, 1, "1/c1").await, approval_of(7, 11, "c1").await);
}

#[tokio::test]
async fn approval_ids_of_long_call_ids_differ_by_their_last_character() {
    let long = |end: &str| format!("{}{end}", "x".repeat(1_000));
    assert_ne!(approval_of(7, 1, &long("1")).await, approval_of(7, 1, &long("2")).await);
}
