use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use haft_core::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use haft_core::event::{ApprovalOutcome, CapturedContent, Event, EventSink, PolicyDecision, ToolReference};
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::position::{OperationId, RunPosition, SessionId};
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{PermissionDecision, PermissionRule, PermissionRules};
use haft_core::tool::{ApprovalPolicy, CallId, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_engine::{CallOptions, Catalog, ContentCapture, Orchestrator, OrchestratorConfig, RunContext};
use serde_json::Value;

use crate::fake::{FakeProvider, SharedLog, TestRig, call, config};

/// A sink that keeps every event with all its fields.
#[derive(Clone, Default)]
struct EventRecorder(Arc<Mutex<Vec<Event>>>);

impl EventSink for EventRecorder {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl EventRecorder {
    fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    fn last(&self) -> Event {
        self.events().pop().unwrap()
    }
}

fn watched(provider: impl ToolProvider + 'static, config: OrchestratorConfig) -> (TestRig, EventRecorder) {
    let kept = EventRecorder::default();
    let catalog = Catalog::new(vec![Arc::new(provider)], NamingScheme::Double);
    let context = RunContext { events: Arc::new(kept.clone()), ..RunContext::default() };
    (TestRig::new(Orchestrator::try_new(catalog, config).unwrap(), context), kept)
}

/// Returns the built-in tools under these rules, for a run whose approver gives this answer.
fn judged(rules: PermissionRules, answer: Option<ApprovalAnswer>) -> (TestRig, EventRecorder) {
    let config = OrchestratorConfig { rules, ..OrchestratorConfig::default() };
    let (orchestrator, kept) = watched(FakeProvider::builtins(SharedLog::default()), config);
    let approver = answer.map(|answer| Arc::new(FixedApprover(answer)) as Arc<dyn Approver>);
    let context = RunContext { approver, events: Arc::new(kept.clone()), ..RunContext::default() };
    (orchestrator.with(context), kept)
}

fn verdict(event: &Event) -> Option<PolicyDecision> {
    match event {
        Event::ToolFinished { account, .. } => account.verdict.clone(),
        Event::ToolStarted { .. }
        | Event::ToolProgress { .. }
        | Event::ModelStarted { .. }
        | Event::ModelFinished { .. }
        | Event::Run { .. } => None,
    }
}

struct FixedApprover(ApprovalAnswer);

impl Approver for FixedApprover {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalAnswer> {
        Box::pin(async { self.0 })
    }
}

/// Checks the audit record of a call of `echo` under one rule.
async fn check(
    decision: PermissionDecision,
    answer: Option<ApprovalAnswer>,
    consent: Option<ApprovalOutcome>,
) {
    let rule = PermissionRule { tool: ToolGlob::new("echo").unwrap(), command: None, decision };
    let rules = PermissionRules { rules: vec![rule], default: PermissionDecision::Allow };
    let (orchestrator, kept) = judged(rules, answer);
    orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
    let rule = Some(format!("{} echo", decision.name()).into());
    assert_eq!(verdict(&kept.last()), Some(PolicyDecision { decision, rule, consent }));
}

#[tokio::test]
async fn finished_event_records_the_decision_of_allowed_and_refused_calls() {
    let answered = |answer| Some(ApprovalOutcome::Answered { approver: "person", answer });
    check(PermissionDecision::Allow, None, None).await;
    check(PermissionDecision::Deny, None, None).await;
    check(PermissionDecision::Ask, None, Some(ApprovalOutcome::NoApprover)).await;
    let answers = [
        ApprovalAnswer::AllowOnce,
        ApprovalAnswer::AllowExact,
        ApprovalAnswer::AllowPrefix,
        ApprovalAnswer::AllowRule,
        ApprovalAnswer::Deny,
        ApprovalAnswer::Unanswered("the operator is asleep"),
        ApprovalAnswer::Later,
    ];
    for answer in answers {
        check(PermissionDecision::Ask, Some(answer), answered(answer)).await;
    }
}

#[tokio::test]
async fn call_covered_by_a_grant_is_recorded_as_remembered() {
    let rules = PermissionRules { rules: Vec::new(), default: PermissionDecision::Ask };
    let (orchestrator, kept) = judged(rules, Some(ApprovalAnswer::AllowExact));
    for _ in 0..2 {
        orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
    }
    let expected = PolicyDecision {
        decision: PermissionDecision::Ask,
        rule: None,
        consent: Some(ApprovalOutcome::Remembered),
    };
    assert_eq!(verdict(&kept.last()), Some(expected));
}

#[tokio::test]
async fn unknown_tool_call_records_no_policy_decision() {
    let denied = config(|policy| policy.approval = ApprovalPolicy::Deny);
    let (orchestrator, kept) = watched(FakeProvider::builtins(SharedLog::default()), denied);
    orchestrator.execute(call("nothing", "{}")).await;
    assert_eq!(verdict(&kept.last()), None);
    orchestrator.execute(call("echo", "{}")).await;
    let expected = PolicyDecision { decision: PermissionDecision::Deny, rule: None, consent: None };
    assert_eq!(verdict(&kept.last()), Some(expected));
}

#[tokio::test]
async fn all_events_of_a_call_share_one_operation_id_and_position() {
    let (orchestrator, kept) =
        watched(FakeProvider::builtins(SharedLog::default()), OrchestratorConfig::default());
    let place =
        RunPosition { session: SessionId(7), turn: 3, parent: Some(OperationId(1)), origin: SessionId(6) };
    let options = CallOptions { place, ..CallOptions::default() };
    let long = haft_core::tool::ToolCall { id: CallId("x".repeat(1_000)), ..call("fail", "{}") };
    orchestrator.execute_with(long.clone(), options.clone()).await;
    orchestrator.execute_with(long, options).await;
    let events = kept.events();
    let operations: Vec<_> = events.iter().map(|event| event.operation().unwrap().id).collect();
    assert_eq!(operations[0], operations[1]);
    assert_eq!(operations[2], operations[3]);
    assert_ne!(operations[0], operations[2], "calls with equal call ids have different operation ids");
    assert!(events.iter().all(|event| event.operation().unwrap().place == place));
    assert!(
        events.iter().all(|event| event.operation().unwrap().call.0.len() == 64),
        "long call ids are truncated in events"
    );
    let Event::ToolFinished { tool: ToolReference::Known(tool), .. } = &events[1] else {
        panic!("{events:?}")
    };
    assert_eq!((tool.identity.namespace.as_str(), tool.exposed.as_str()), ("fake", "fail"));
}

#[tokio::test]
async fn arguments_and_results_are_captured_only_when_configured() {
    let content = async |capture: ContentCapture| {
        let config = OrchestratorConfig { capture, ..OrchestratorConfig::default() };
        let (orchestrator, kept) = watched(FakeProvider::builtins(SharedLog::default()), config);
        orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
        match kept.last() {
            Event::ToolFinished { content, .. } => content.map(Arc::unwrap_or_clone),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(content(ContentCapture::Nothing).await, None);
    let words = CapturedContent { arguments: r#"{"text": "x"}"#.into(), result: "echo: x".into() };
    assert_eq!(content(ContentCapture::Content).await, Some(words));
}

/// A provider that fails in the way that its arguments name, and puts the secret into every text that it returns.
struct LeakyProvider {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

const SECRET: &str = "s3cr3t-canary-value";

impl ToolProvider for LeakyProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        Arc::clone(&self.tools)
    }

    fn call<'a>(
        &'a self,
        _: &'a haft_core::name::ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            cx.note("leak", Value::from(SECRET));
            let name = arguments.value().get("text").and_then(Value::as_str).unwrap_or_default();
            assert!(!name.starts_with("panic"), "{SECRET}");
            match ToolErrorKind::ALL.into_iter().find(|kind| name.starts_with(kind.name())) {
                Some(kind) => Err(ToolError::new(kind, SECRET).with_source(SECRET)),
                None => Ok(ToolOutput::text(SECRET)),
            }
        })
    }
}

#[tokio::test]
async fn events_of_failed_calls_contain_no_arguments_or_results() {
    let builtins = FakeProvider::builtins(SharedLog::default());
    let ways = ToolErrorKind::ALL.iter().map(|kind| kind.name()).chain(["panic", "ok"]);
    let mut calls: Vec<_> =
        ways.map(|way| call("leaky__echo", &format!(r#"{{"text": "{way} {SECRET}"}}"#))).collect();
    // Calls refused before the provider runs: invalid JSON, a schema mismatch, an unknown tool.
    calls.push(call("leaky__echo", &format!("{{{SECRET}")));
    calls.push(call("leaky__echo", &format!(r#"{{"{SECRET}": "{SECRET}"}}"#)));
    calls.push(call("nothing", &format!(r#"{{"text": "{SECRET}"}}"#)));
    let leaky = LeakyProvider { namespace: Namespace::new("leaky").unwrap(), tools: builtins.tools() };
    let (orchestrator, kept) = watched(leaky, OrchestratorConfig::default());
    let asked = calls.len();
    for call in calls {
        orchestrator.execute(call).await;
    }
    let events = kept.events();
    let ends = events.iter().filter(|event| event.name() == "tool_finished").count();
    assert_eq!(ends, asked);
    for event in events {
        assert!(!format!("{event:?}").contains(SECRET), "{event:?}");
    }
}
