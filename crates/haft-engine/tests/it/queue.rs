use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};
use haft_core::name::{Namespace, QueueName, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{CallId, ToolCall, ToolDefinition, ToolPolicy};
use haft_core::validate::ValidArguments;
use haft_engine::queue::{AGEING_ADMISSIONS, QUEUE_DEFAULT};
use haft_engine::{
    CallOptions, Catalog, Concurrency, Orchestrator, OrchestratorConfig, Priority, QueueConfig, Queues,
    UndefinedQueue,
};
use serde_json::json;
use tokio::time::{Instant, advance};

use crate::fake::{FakeProvider, SharedLog, TestRig, call, config, orchestrator_from, said};

fn name(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn queue(concurrent: usize, waiting_max: usize) -> QueueConfig {
    QueueConfig { concurrent: NonZeroUsize::new(concurrent).unwrap(), waiting_max, timeout_default: None }
}

/// Returns a configuration in which all tools use one queue, `slow`.
fn through(queue: QueueConfig) -> OrchestratorConfig {
    OrchestratorConfig {
        queues: Queues::new([(name("slow"), queue)]),
        ..config(|policy| policy.queue = Some(name("slow")))
    }
}

fn slow(text: &str) -> ToolCall {
    ToolCall { id: CallId(text.into()), ..call("slow_read", &json!({"text": text}).to_string()) }
}

fn with(priority: Priority) -> CallOptions {
    CallOptions { priority, ..Default::default() }
}

fn entered(log: &SharedLog) -> Vec<String> {
    log.lines().iter().filter_map(|line| line.strip_suffix(" in").map(Into::into)).collect()
}

/// Returns the number of running and waiting calls.
fn fill(orchestrator: &Orchestrator) -> (usize, usize) {
    let snapshot = orchestrator.config().queues.snapshot().remove(0);
    (snapshot.in_use, snapshot.waiting)
}

#[tokio::test(start_paused = true)]
async fn queue_limits_concurrent_calls() {
    let (orchestrator, log) = orchestrator_from(through(queue(2, 10)));
    let began = Instant::now();
    let results =
        orchestrator.execute_all(["a", "b", "c", "d", "e"].map(slow).into(), CallOptions::default()).await;
    assert_eq!(began.elapsed().as_secs(), 3);
    assert_eq!(entered(&log).join(""), "abcde");
    assert!(results.iter().all(|result| result.outcome.is_ok()));
    assert_eq!(
        results[4].receipt.notes["queue"],
        json!({"name": "slow", "waited_ms": 2000, "in_use": 2, "waiting": 3})
    );
    assert!(!results[0].receipt.notes.contains_key("queue"), "a call that did not wait has no `queue` note");
    let snapshot = orchestrator.config().queues.snapshot().remove(0);
    assert_eq!((snapshot.in_use, snapshot.waiting, snapshot.last_wait), (0, 0, Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn thousand_calls_pass_a_queue_of_eight_slots_in_order() {
    let mut config = through(queue(8, 1_000));
    config.policies.default.timeout = Duration::from_mins(5);
    let (orchestrator, log) = orchestrator_from(config);
    let names: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
    let began = Instant::now();
    orchestrator.execute_all(names.iter().map(|name| slow(name)).collect(), CallOptions::default()).await;
    assert_eq!(entered(&log), names);
    assert_eq!(began.elapsed().as_secs(), 125);
    assert_eq!(fill(&orchestrator), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn call_to_a_full_queue_fails_immediately() {
    let (orchestrator, _) = orchestrator_from(through(queue(1, 1)));
    let results = orchestrator.execute_all(["a", "b", "c"].map(slow).into(), CallOptions::default()).await;
    assert_eq!(
        said(&results[2]),
        "queue_full: queue `slow` is full: 1 call is waiting already; try again later"
    );
    assert!(!results[2].receipt.executed);
    assert_eq!(results[2].receipt.latency, Duration::ZERO);
    assert!(results[1].outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn high_priority_runs_first_and_low_priority_last() {
    let (orchestrator, log) = orchestrator_from(through(queue(1, 100)));
    let ask = |text: String, priority| {
        let orchestrator = &orchestrator;
        async move { orchestrator.execute_with(slow(&text), with(priority)).await }.boxed()
    };
    let mut calls = vec![ask("first".into(), Priority::Normal), ask("low".into(), Priority::Low)];
    calls.extend((0..40).map(|number| ask(format!("n{number}"), Priority::Normal)));
    calls.push(ask("high".into(), Priority::High));
    join_all(calls).await;
    let order = entered(&log);
    assert_eq!(order[..3], ["first", "high", "n0"]);
    // All calls arrived together, so ageing has no effect, and the call with low priority comes last.
    assert_eq!(order.last().unwrap(), "low");
}

#[tokio::test(start_paused = true)]
async fn low_priority_call_is_not_starved_by_new_high_priority_calls() {
    let (orchestrator, log) = orchestrator_from(through(queue(1, 100)));
    let mut low = orchestrator.execute_with(slow("low"), with(Priority::Low)).boxed();
    let mut others = vec![orchestrator.execute_with(slow("first"), with(Priority::High)).boxed()];
    assert!(others[0].as_mut().now_or_never().is_none());
    assert!(low.as_mut().now_or_never().is_none());
    for number in 0..100 {
        let mut other = orchestrator.execute_with(slow(&number.to_string()), with(Priority::High)).boxed();
        assert!(other.as_mut().now_or_never().is_none());
        others.push(other);
        advance(Duration::from_secs(1)).await;
        others.retain_mut(|other| other.now_or_never().is_none());
        if low.as_mut().now_or_never().is_some() {
            break;
        }
    }
    let passed = u64::try_from(entered(&log).iter().position(|text| text == "low").unwrap()).unwrap();
    assert!(passed <= 2 * AGEING_ADMISSIONS + 1, "{passed}");
}

#[tokio::test(start_paused = true)]
async fn queue_wait_counts_toward_the_timeout_named_in_the_message() {
    let check = async |tool_secs: u64, queue_secs: Option<u64>, expected: &str| {
        let timeout_default = queue_secs.map(Duration::from_secs);
        let mut config = through(QueueConfig { timeout_default, ..queue(1, 10) });
        config.policies.default.timeout = Duration::from_secs(tool_secs);
        let (orchestrator, log) = orchestrator_from(config);
        let ahead = orchestrator.execute_all(vec![call("hang", "{}")], CallOptions::default());
        let (ahead, waiting) = join(ahead, orchestrator.execute(call("note", "{}"))).await;
        assert_eq!(
            waiting.text(),
            format!("Tool `note` {expected} while still waiting for a slot in its queue")
        );
        assert_eq!(waiting.error_kind(), Some(ToolErrorKind::Timeout));
        assert!(!waiting.receipt.executed);
        assert_eq!(ahead[0].text(), format!("Tool `hang` {expected}"));
        assert!(!log.lines().contains(&"c1 note started".to_owned()));
        assert_eq!(fill(&orchestrator), (0, 0));
    };
    check(20, None, "timed out after 20 s (timeout of the tool)").await;
    check(20, Some(5), "timed out after 5 s (queue `slow`)").await;
    check(500, Some(400), "timed out after 5 min (global limit `toolTimeout`)").await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_leaves_the_queue_immediately() {
    let (orchestrator, log) = orchestrator_from(through(queue(1, 1)));
    let mut running = orchestrator.execute(call("hang", "{}")).boxed();
    let mut waiting = orchestrator.execute(slow("waiting")).boxed();
    assert!(running.as_mut().now_or_never().is_none());
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(fill(&orchestrator), (1, 1));
    drop(waiting);
    assert_eq!(fill(&orchestrator), (1, 0));
    let mut next = orchestrator.execute(slow("next")).boxed();
    assert!(next.as_mut().now_or_never().is_none());
    drop(running);
    assert_eq!(fill(&orchestrator), (1, 0), "the next waiter has the slot before it is polled");
    assert_eq!(said(&next.await), "next");
    assert_eq!(entered(&log), ["next"]);
    assert_eq!(fill(&orchestrator), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn slot_of_a_dropped_call_passes_to_the_next_waiter() {
    let (orchestrator, _) = orchestrator_from(through(queue(1, 2)));
    let mut calls: Vec<_> = ["a", "b", "c"].map(|text| orchestrator.execute(slow(text)).boxed()).into();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    // The dropped call `a` passes its slot to `b`. `b` is dropped before it is polled, so it must pass the slot to `c`.
    drop(calls.drain(..2));
    assert_eq!(fill(&orchestrator), (1, 0));
    assert_eq!(said(&calls.remove(0).await), "c");
}

#[tokio::test(start_paused = true)]
async fn panicking_call_releases_its_slot() {
    let (orchestrator, _) = orchestrator_from(through(queue(1, 10)));
    let calls = vec![call("panic", "{}"), call("panic_early", "{}"), slow("a")];
    let results = orchestrator.execute_all(calls, CallOptions::default()).await;
    assert_eq!(said(&results[2]), "a");
    assert_eq!(fill(&orchestrator), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn tools_without_a_queue_use_the_default_queue() {
    let queues = Queues::new([(name(QUEUE_DEFAULT), queue(1, 10))]);
    let (orchestrator, _) = orchestrator_from(OrchestratorConfig { queues, ..Default::default() });
    let began = Instant::now();
    orchestrator.execute_all(["a", "b"].map(slow).into(), CallOptions::default()).await;
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn orchestrators_with_shared_queues_share_slots() {
    let config = through(queue(1, 10));
    let (left, right) = (orchestrator_from(config.clone()).0, orchestrator_from(config).0);
    let began = Instant::now();
    join(left.execute(slow("a")), right.execute(slow("b"))).await;
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test]
async fn undefined_queue_is_an_error_before_the_first_call() {
    let config = config(|policy| policy.queue = Some(name("gone")));
    let catalog =
        || Catalog::new(vec![Arc::new(FakeProvider::builtins(SharedLog::default()))], NamingScheme::Double);
    let error = Orchestrator::try_new(catalog(), config.clone()).unwrap_err();
    assert_eq!(error, UndefinedQueue(name("gone")));
    assert_eq!(error.to_string(), "queue `gone` is not defined; define it under `queues`");
    let result = Orchestrator::new(catalog(), config).execute(call("note", "{}")).await;
    assert_eq!(said(&result), "internal: queue `gone` is not defined; define it under `queues`");
    assert!(!result.receipt.executed);
}

/// A sub-agent whose only tool calls another tool and returns that tool's output.
struct SubAgentProvider {
    kind: ProviderKind,
    namespace: Namespace,
    inner: TestRig,
}

impl ToolProvider for SubAgentProvider {
    fn kind(&self) -> ProviderKind {
        self.kind
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        let definition =
            |inner: &ToolDefinition| ToolDefinition { name: ToolName::new("ask").unwrap(), ..inner.clone() };
        let inner = self.inner.catalog().resolve("slow_read").unwrap();
        Arc::new([definition(inner.definition())])
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let text = arguments.value()["text"].as_str().unwrap();
        Box::pin(async move { self.inner.execute_with(slow(text), with(cx.priority)).await.outcome })
    }
}

/// Returns an orchestrator with one slot for both the outer and the inner calls.
fn nested(kind: ProviderKind) -> (Orchestrator, SharedLog) {
    let mut config = through(queue(1, 10));
    config.policies.default.timeout = Duration::from_secs(20);
    let (inner, log) = orchestrator_from(config.clone());
    let agent = SubAgentProvider { kind, namespace: Namespace::new("agent").unwrap(), inner };
    (Orchestrator::try_new(Catalog::new(vec![Arc::new(agent)], NamingScheme::Bare), config).unwrap(), log)
}

fn ask(text: &str) -> ToolCall {
    call("ask", &json!({"text": text}).to_string())
}

#[tokio::test(start_paused = true)]
async fn sub_agent_holds_no_slot_while_its_calls_wait() {
    let (orchestrator, _) = nested(ProviderKind::Agent);
    let results = orchestrator.execute_all(vec![ask("a"), ask("b"), ask("c")], CallOptions::default()).await;
    let texts: Vec<_> = results.iter().map(said).collect();
    assert_eq!(texts, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn batch_holding_a_slot_deadlocks_unless_it_bypasses_the_queue() {
    let (orchestrator, _) = nested(ProviderKind::Builtin);
    let stuck = orchestrator.execute(ask("a")).await;
    assert_eq!(stuck.error_kind(), Some(ToolErrorKind::Timeout), "{}", said(&stuck));
    assert_eq!(fill(&orchestrator), (0, 0));
    let options = CallOptions { concurrency: Concurrency::Bypass, ..CallOptions::default() };
    let through = orchestrator.execute_all(vec![ask("a"), ask("b")], options).await;
    assert_eq!(through.iter().map(said).collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_sub_agent_inherit_its_priority() {
    let (orchestrator, log) = nested(ProviderKind::Agent);
    let ask = |text: &'static str, priority| orchestrator.execute_with(ask(text), with(priority)).boxed();
    let calls = [
        ask("first", Priority::Normal),
        ask("low", Priority::Low),
        ask("normal", Priority::Normal),
        ask("high", Priority::High),
    ];
    join_all(calls).await;
    assert_eq!(entered(&log), ["first", "high", "normal", "low"]);
}

#[tokio::test(start_paused = true)]
async fn tool_policy_priority_overrides_the_call_priority() {
    let mut config = through(queue(1, 10));
    let urgent = ToolPolicy { priority: Some(Priority::High), ..config.policies.default.clone() };
    config.policies.by_tool.insert(ToolName::new("slow_write").unwrap(), urgent);
    let (orchestrator, log) = orchestrator_from(config);
    let ask = |tool: &str, text: &str| {
        let call = ToolCall { name: tool.into(), ..slow(text) };
        orchestrator.execute_with(call, with(Priority::Low)).boxed()
    };
    join_all([ask("slow_read", "first"), ask("slow_read", "low"), ask("slow_write", "urgent")]).await;
    assert_eq!(entered(&log), ["first", "urgent", "low"]);
}
