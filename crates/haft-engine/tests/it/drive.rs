use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use haft_core::arguments::RawArguments;
use haft_core::budget::{ContextLimits, ContextWindow as ContextBudget};
use haft_core::conversation::{Conversation, Message, MessagePart, PartBody};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_provider::{
    AttemptFollowUp, ModelAccount, ModelAttempt, ModelContext, ModelProvider, ReplyStream,
};
use haft_core::model_reply::{ModelReply, StopReason, TokenUsage};
use haft_core::model_request::ModelRequest;
use haft_core::naming::NamingScheme;
use haft_core::position::{RunPosition, SessionId};
use haft_core::price::Cost;
use haft_core::run::budget::SpendLimit;
use haft_core::run::finish::RunFinish;
use haft_core::run::limits::RunContextLimit;
use haft_core::run::meter::SpendAmount;
use haft_core::run::{AgentRun, RunPlan};
use haft_core::tokens::LengthEstimator;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{
    CallOptions, Catalog, DriveOutcome, Meter, Orchestrator, OrchestratorConfig, RunDriver, RunScope,
};
use tokio::time::Instant;

use crate::fake::{ChangingProvider, FakeProvider, SharedLog};

/// A model that returns these replies in order and then never replies again.
pub(crate) struct ScriptedModel(Mutex<VecDeque<Result<Vec<PartBody>, ModelErrorKind>>>);

impl ScriptedModel {
    pub(crate) fn new(replies: Vec<Result<Vec<PartBody>, ModelErrorKind>>) -> Self {
        Self(Mutex::new(replies.into()))
    }
}

impl ModelProvider for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn ask(&self, _request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let attempt = ModelAttempt { provider: "scripted".into(), model: "m".into(), number: 1 };
        cx.attempt_started(&attempt);
        let Some(next) = self.0.lock().unwrap().pop_front() else { return stream::pending().boxed() };
        let usage = TokenUsage { input: 100, output: 10, ..TokenUsage::default() };
        cx.attempt_finished(
            &attempt,
            ModelAccount {
                failure: next.as_ref().err().copied(),
                latency: Duration::ZERO,
                first_event: None,
                usage: Some(usage),
                cost: Some(Cost { nano_usd: 5 }),
                next: AttemptFollowUp::Nothing,
            },
        );
        match next {
            Ok(bodies) => stream::iter(reply(bodies, usage).into_events()).map(Ok).boxed(),
            Err(kind) => stream::iter([Err(ModelError::new(kind, "it broke"))]).boxed(),
        }
    }
}

fn reply(bodies: Vec<PartBody>, usage: TokenUsage) -> ModelReply {
    let parts: Vec<MessagePart> = bodies.into_iter().map(MessagePart::new).collect();
    let calls = parts.iter().any(|part| part.as_call().is_some());
    let stop = if calls { StopReason::ToolCalls } else { StopReason::EndOfTurn };
    ModelReply { id: None, model: None, parts, stop, usage: Some(usage), notes: Vec::new() }
}

pub(crate) fn text(text: &str) -> PartBody {
    PartBody::Text { text: text.into(), annotations: Vec::new() }
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> PartBody {
    PartBody::Call(ToolCall {
        id: CallId(id.into()),
        name: name.into(),
        arguments: RawArguments::from_text(arguments),
    })
}

pub(crate) fn run(plan: RunPlan) -> AgentRun {
    let mut conversation = Conversation::default();
    conversation.push(Message::user("go")).unwrap();
    AgentRun::new(ModelRequest::new("m", Arc::new(conversation)), plan)
}

pub(crate) struct DriveFixture {
    pub(crate) log: SharedLog,
    meter: Arc<Meter>,
    orchestrator: Orchestrator,
}

impl DriveFixture {
    pub(crate) fn new() -> Self {
        let log = SharedLog::default();
        let meter = Meter::new(Arc::new(log.clone()), SpendLimit::default());
        let catalog = Catalog::new(vec![Arc::new(FakeProvider::builtins(log.clone()))], NamingScheme::Double);
        Self { log, meter, orchestrator: Orchestrator::new(catalog, OrchestratorConfig::default()) }
    }

    pub(crate) fn driver<'a>(&'a self, models: &'a ScriptedModel) -> RunDriver<'a> {
        RunDriver {
            models,
            summary_models: models,
            orchestrator: &self.orchestrator,
            scope: self.scope(Duration::from_mins(10)),
            options: CallOptions { place: RunPosition::first(SessionId(7)), ..CallOptions::default() },
            reply_timeout: Duration::from_mins(5),
            observer: None,
        }
    }

    fn scope(&self, timeout: Duration) -> Arc<RunScope> {
        let began = Instant::now().into_std();
        Arc::new(RunScope::new(Arc::clone(&self.meter), vec!["run".into()], began, began + timeout))
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        self.log.lines().iter().filter(|line| line.contains(part)).count()
    }
}

pub(crate) fn done(driven: DriveOutcome) -> RunFinish {
    match driven {
        DriveOutcome::Done(finish) => finish,
        other => panic!("the run has not ended: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn run_calls_tools_and_ends_with_the_answer() {
    let world = DriveFixture::new();
    let models = ScriptedModel::new(vec![
        Ok(vec![call("1", "echo", r#"{"text":"a"}"#), call("2", "store", r#"{"text":"b"}"#)]),
        Ok(vec![call("3", "nothing_like_it", "{}")]),
        Ok(vec![text("done")]),
    ]);
    let mut run = run(RunPlan::default());
    let finish = done(world.driver(&models).drive(&mut run).await.unwrap());
    assert_eq!((finish.reason.name(), finish.answer.unwrap().text().as_str()), ("completed", "done"));
    let bill = world.meter.bill();
    assert_eq!((bill.requests, bill.tokens(), bill.cost.nano_usd, bill.calls), (3, 330, 15, 3));
    assert_eq!(world.count("turn 1 called"), 2);
    assert_eq!(world.count("turn 1 answered"), 2);
    assert_eq!(world.count("turn 2 called"), 1);
    assert_eq!(world.count("3 nothing_like_it finished unknown_tool"), 1);
    assert_eq!(world.count("turn 3 asked"), 1);
    assert_eq!(world.log.lines().last().unwrap(), "turn 3 finished");
}

#[tokio::test(start_paused = true)]
async fn model_failure_ends_the_run_with_its_message() {
    let world = DriveFixture::new();
    let models = ScriptedModel::new(vec![Err(ModelErrorKind::QuotaExhausted)]);
    let finish = done(world.driver(&models).drive(&mut run(RunPlan::default())).await.unwrap());
    assert_eq!(finish.reason.name(), "model_failed");
    assert!(finish.detail.contains("it broke"), "{}", finish.detail);
}

#[tokio::test(start_paused = true)]
async fn model_reply_timeout_ends_the_run_as_model_failed() {
    let world = DriveFixture::new();
    let (models, began) = (ScriptedModel::new(vec![]), Instant::now());
    let finish = done(world.driver(&models).drive(&mut run(RunPlan::default())).await.unwrap());
    assert_eq!((finish.reason.name(), began.elapsed()), ("model_failed", Duration::from_mins(5)));
    assert!(finish.detail.contains("`llmTimeout`"), "{}", finish.detail);
}

#[tokio::test(start_paused = true)]
async fn budget_reserved_by_other_runs_forces_the_last_turn() {
    let calls = || vec![call("1", "echo", r#"{"text":"a"}"#), call("2", "echo", r#"{"text":"b"}"#)];
    for (held, expected) in [(0, "completed"), (2, "budget")] {
        let mut world = DriveFixture::new();
        world.meter =
            Meter::new(Arc::new(world.log.clone()), SpendLimit { calls: Some(4), ..SpendLimit::default() });
        let _held = world.meter.below(SpendLimit::default()).hold(SpendAmount { tokens: 0, calls: held });
        let models = ScriptedModel::new(vec![Ok(calls()), Ok(vec![text("done")])]);
        let finish = done(world.driver(&models).drive(&mut run(RunPlan::default())).await.unwrap());
        assert_eq!(finish.reason.name(), expected, "{held}");
        assert_eq!(world.meter.bill().calls, 2);
    }
}

/// A model that takes a second per reply. Each reply costs 110 tokens.
struct SlowModel(ScriptedModel);

impl ModelProvider for SlowModel {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let cx = cx.clone();
        let asked = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.ask(request, &cx)
        };
        stream::once(asked).flatten().boxed()
    }
}

/// Several runs share a budget. Each sends two requests that may cost 10,000 tokens but really cost 110.
#[tokio::test(start_paused = true)]
async fn concurrent_runs_wait_for_reserved_budget_before_their_last_turn() {
    const WORST_CASE: u64 = 10_000;
    let check = async |runs: usize, budget: u64, completed: usize, tokens_max: u64| {
        let mut world = DriveFixture::new();
        let tokens = SpendLimit { tokens: Some(budget), ..SpendLimit::default() };
        world.meter = Meter::new(Arc::new(world.log.clone()), tokens);
        let models: Vec<SlowModel> = (0..runs)
            .map(|_| {
                SlowModel(ScriptedModel::new(vec![
                    Ok(vec![call("1", "echo", r#"{"text":"a"}"#)]),
                    Ok(vec![text("done")]),
                ]))
            })
            .collect();
        let driven = models.iter().map(async |models| {
            let mut conversation = Conversation::default();
            conversation.push(Message::user("go")).unwrap();
            let request = ModelRequest {
                output_tokens_max: u32::try_from(WORST_CASE).ok(),
                ..ModelRequest::new("m", Arc::new(conversation))
            };
            let scope = RunScope {
                meter: world.meter.below(SpendLimit::default()),
                ..(*world.scope(Duration::from_mins(10))).clone()
            };
            let driver = RunDriver {
                models,
                summary_models: models,
                orchestrator: &world.orchestrator,
                scope: Arc::new(scope),
                options: CallOptions::default(),
                reply_timeout: Duration::from_mins(5),
                observer: None,
            };
            done(driver.drive(&mut AgentRun::new(request, RunPlan::default())).await.unwrap())
        });
        let finished = futures_util::future::join_all(driven).await;
        let whole = finished.iter().filter(|finish| finish.reason.name() == "completed").count();
        let spent = world.meter.bill().tokens();
        assert_eq!(whole, completed, "{runs} runs, {budget} tokens: {spent} spent");
        assert!(spent <= tokens_max, "{runs} runs, {budget} tokens: {spent} spent");
    };
    // The budget covers the real cost of all runs, but not their worst-case cost.
    check(1, 1_000, 1, 220).await;
    check(4, 1_000, 4, 880).await;
    check(4, 50_000, 4, 880).await;
    // The budget does not cover all runs. They may exceed it by one request that began within the limit, and by a final
    // turn of each run.
    check(4, 500, 2, 500 + 110 + 4 * 110).await;
    check(1, 100, 0, 220).await;
}

#[tokio::test(start_paused = true)]
async fn tools_added_during_a_run_are_offered_from_the_next_turn() {
    let catalog = Catalog::new(vec![ChangingProvider::new("late", &["shift"]) as _], NamingScheme::Double);
    let orchestrator = Orchestrator::new(catalog, OrchestratorConfig::default());
    let world = DriveFixture { orchestrator, ..DriveFixture::new() };
    let models = ScriptedModel::new(vec![Ok(vec![call("1", "late__shift", "{}")]), Ok(vec![text("done")])]);
    let mut run = run(RunPlan::default());
    done(world.driver(&models).drive(&mut run).await.unwrap());
    assert!(run.tools().iter().any(|tool| tool.name == "late__shifted"), "{:?}", run.tools());
}

#[tokio::test(start_paused = true)]
async fn run_timeout_ends_the_run_during_a_model_or_tool_call() {
    for replies in [vec![], vec![Ok(vec![call("1", "hang", "{}")])]] {
        let world = DriveFixture::new();
        let models = ScriptedModel::new(replies);
        let driver = RunDriver { scope: world.scope(Duration::from_secs(30)), ..world.driver(&models) };
        let began = Instant::now();
        let finish = done(driver.drive(&mut run(RunPlan::default())).await.unwrap());
        assert_eq!(finish.reason.name(), "timed_out");
        assert_eq!(began.elapsed(), Duration::from_secs(30));
        assert_eq!(world.count("undone"), world.count("1 hang started"), "{:?}", world.log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn parked_time_of_a_sub_agent_does_not_count_toward_the_deadline() {
    let world = DriveFixture::new();
    let models = ScriptedModel::new(vec![]);
    let scope = world.scope(Duration::from_secs(30));
    let (began, hour) = (Instant::now(), Duration::from_hours(1));
    let driver = RunDriver { scope: Arc::clone(&scope), reply_timeout: 2 * hour, ..world.driver(&models) };
    let below = scope.parked.below();
    let parking = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        below.park(Instant::now().into_std());
        tokio::time::sleep(hour).await;
        below.unpark(Instant::now().into_std());
    };
    let mut run = run(RunPlan::default());
    let (outcome, ()) = tokio::join!(driver.drive(&mut run), parking);
    assert_eq!(done(outcome.unwrap()).reason.name(), "timed_out");
    assert_eq!(began.elapsed(), hour + Duration::from_secs(30));
    assert_eq!(scope.elapsed(Instant::now().into_std()), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn dropped_run_cancels_its_call_and_can_then_be_aborted() {
    let world = DriveFixture::new();
    let models = ScriptedModel::new(vec![Ok(vec![call("1", "hang", "{}")])]);
    let mut run = run(RunPlan::default());
    let driver = world.driver(&models);
    let dropped = tokio::time::timeout(Duration::from_secs(1), driver.drive(&mut run)).await;
    assert!(dropped.is_err());
    assert_eq!(world.count("1 hang finished cancelled"), 1, "{:?}", world.log.lines());
    run.abort(haft_core::run::AbortReason::Interrupted);
    let finish = done(driver.drive(&mut run).await.unwrap());
    assert_eq!(finish.reason.name(), "aborted");
    assert_eq!(
        run.conversation().messages().len(),
        3,
        "the conversation has the request, the call and its result"
    );
}

#[tokio::test(start_paused = true)]
async fn full_context_forces_the_last_turn() {
    let world = DriveFixture::new();
    let models =
        ScriptedModel::new(vec![Ok(vec![call("1", "echo", r#"{"text":"a"}"#)]), Ok(vec![text("so far")])]);
    let limits = ContextLimits { window_tokens: 200, buffer_tokens: 50, output_tokens_max: 50 };
    let budget = ContextBudget::new(limits, Arc::new(LengthEstimator));
    let mut plan = RunPlan::default();
    plan.limits.context = Some(RunContextLimit { window_tokens: 200, output_tokens: 50, buffer_tokens: 50 });
    let mut driver = world.driver(&models);
    driver.options.budget = Some(budget);
    let finish = done(driver.drive(&mut run(plan)).await.unwrap());
    assert_eq!((finish.reason.name(), finish.answer.unwrap().text().as_str()), ("context_full", "so far"));
}
