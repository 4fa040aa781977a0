use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use haft_core::approval::{Answer, ApprovalRequest, Approver};
use haft_core::event::{Consent, Event, EventSink, PolicyDecision, Said, ToolSeen};
use haft_core::glob::ToolGlob;
use haft_core::name::Namespace;
use haft_core::naming::Scheme;
use haft_core::output::ToolOutput;
use haft_core::place::{OperationId, Place, SessionId};
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::rules::{Decision, Rule, Rules};
use haft_core::tool::{Approval, CallId, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_engine::{CallOptions, Capture, Catalog, Orchestrator, OrchestratorConfig, RunContext};
use serde_json::Value;

use crate::fake::{Fake, Log, Rig, call, config};

/// A sink that keeps whole events.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Event>>>);

impl EventSink for Kept {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl Kept {
    fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }

    fn last(&self) -> Event {
        self.events().pop().unwrap()
    }
}

fn watched(provider: impl ToolProvider + 'static, config: OrchestratorConfig) -> (Rig, Kept) {
    let kept = Kept::default();
    let catalog = Catalog::new(vec![Arc::new(provider)], Scheme::Double);
    let context = RunContext { events: Arc::new(kept.clone()), ..RunContext::default() };
    (Rig::new(Orchestrator::try_new(catalog, config).unwrap(), context), kept)
}

/// Returns the built-ins under these rules, for a run whose approver gives this answer.
fn judged(rules: Rules, answer: Option<Answer>) -> (Rig, Kept) {
    let config = OrchestratorConfig { rules, ..OrchestratorConfig::default() };
    let (orchestrator, kept) = watched(Fake::builtins(Log::default()), config);
    let approver = answer.map(|answer| Arc::new(Person(answer)) as Arc<dyn Approver>);
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

struct Person(Answer);

impl Approver for Person {
    fn name(&self) -> &'static str {
        "person"
    }

    fn ask<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.0 })
    }
}

/// Checks the audit record of a call of `echo` under one rule.
async fn check(decision: Decision, answer: Option<Answer>, consent: Option<Consent>) {
    let rule = Rule { tool: ToolGlob::new("echo").unwrap(), command: None, decision };
    let rules = Rules { rules: vec![rule], default: Decision::Allow };
    let (orchestrator, kept) = judged(rules, answer);
    orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
    let rule = Some(format!("{} echo", decision.name()).into());
    assert_eq!(verdict(&kept.last()), Some(PolicyDecision { decision, rule, consent }));
}

#[tokio::test]
async fn who_decided_is_on_record_also_for_calls_that_were_refused() {
    let answered = |answer| Some(Consent::Answered { approver: "person", answer });
    check(Decision::Allow, None, None).await;
    check(Decision::Deny, None, None).await;
    check(Decision::Ask, None, Some(Consent::Nobody)).await;
    let answers = [
        Answer::AllowOnce,
        Answer::AllowExact,
        Answer::AllowPrefix,
        Answer::AllowRule,
        Answer::Deny,
        Answer::Later,
    ];
    for answer in answers {
        check(Decision::Ask, Some(answer), answered(answer)).await;
    }
}

#[tokio::test]
async fn an_answer_given_before_is_on_record_as_such() {
    let rules = Rules { rules: Vec::new(), default: Decision::Ask };
    let (orchestrator, kept) = judged(rules, Some(Answer::AllowExact));
    for _ in 0..2 {
        orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
    }
    let expected = PolicyDecision { decision: Decision::Ask, rule: None, consent: Some(Consent::Remembered) };
    assert_eq!(verdict(&kept.last()), Some(expected));
}

#[tokio::test]
async fn nobody_decided_about_a_call_that_means_no_tool() {
    let denied = config(|policy| policy.approval = Approval::Deny);
    let (orchestrator, kept) = watched(Fake::builtins(Log::default()), denied);
    orchestrator.execute(call("nothing", "{}")).await;
    assert_eq!(verdict(&kept.last()), None);
    orchestrator.execute(call("echo", "{}")).await;
    let expected = PolicyDecision { decision: Decision::Deny, rule: None, consent: None };
    assert_eq!(verdict(&kept.last()), Some(expected));
}

#[tokio::test]
async fn all_events_of_a_call_name_one_operation_and_its_place() {
    let (orchestrator, kept) = watched(Fake::builtins(Log::default()), OrchestratorConfig::default());
    let place = Place { session: SessionId(7), turn: 3, parent: Some(OperationId(1)), origin: SessionId(6) };
    let options = CallOptions { place, ..CallOptions::default() };
    let long = haft_core::tool::ToolCall { id: CallId("x".repeat(1_000)), ..call("fail", "{}") };
    orchestrator.execute_with(long.clone(), options.clone()).await;
    orchestrator.execute_with(long, options).await;
    let events = kept.events();
    let operations: Vec<_> = events.iter().map(|event| event.operation().unwrap().id).collect();
    assert_eq!(operations[0], operations[1]);
    assert_eq!(operations[2], operations[3]);
    assert_ne!(operations[0], operations[2], "equal ids of an asker are different calls");
    assert!(events.iter().all(|event| event.operation().unwrap().place == place));
    assert!(
        events.iter().all(|event| event.operation().unwrap().call.0.len() == 64),
        "an id is told in part"
    );
    let Event::ToolFinished { tool: ToolSeen::Known(tool), .. } = &events[1] else { panic!("{events:?}") };
    assert_eq!((tool.identity.namespace.as_str(), tool.exposed.as_str()), ("fake", "fail"));
}

#[tokio::test]
async fn words_are_told_only_when_the_operator_wants_it() {
    let said = async |capture: Capture| {
        let config = OrchestratorConfig { capture, ..OrchestratorConfig::default() };
        let (orchestrator, kept) = watched(Fake::builtins(Log::default()), config);
        orchestrator.execute(call("echo", r#"{"text": "x"}"#)).await;
        match kept.last() {
            Event::ToolFinished { said, .. } => said.map(Arc::unwrap_or_clone),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(said(Capture::Nothing).await, None);
    let words = Said { arguments: r#"{"text": "x"}"#.into(), result: "echo: x".into() };
    assert_eq!(said(Capture::Content).await, Some(words));
}

/// A provider that fails in the way its arguments name, and puts the secret into every text it returns.
struct Leaky {
    namespace: Namespace,
    tools: Arc<[ToolDefinition]>,
}

const SECRET: &str = "s3cr3t-canary-value";

impl ToolProvider for Leaky {
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
async fn no_way_to_fail_puts_what_was_said_into_an_event() {
    let builtins = Fake::builtins(Log::default());
    let ways = ToolErrorKind::ALL.iter().map(|kind| kind.name()).chain(["panic", "ok"]);
    let mut calls: Vec<_> =
        ways.map(|way| call("leaky__echo", &format!(r#"{{"text": "{way} {SECRET}"}}"#))).collect();
    // Calls refused before the provider runs: invalid JSON, a schema mismatch, an unknown tool.
    calls.push(call("leaky__echo", &format!("{{{SECRET}")));
    calls.push(call("leaky__echo", &format!(r#"{{"{SECRET}": "{SECRET}"}}"#)));
    calls.push(call("nothing", &format!(r#"{{"text": "{SECRET}"}}"#)));
    let leaky = Leaky { namespace: Namespace::new("leaky").unwrap(), tools: builtins.tools() };
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
