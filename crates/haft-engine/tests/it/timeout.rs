use std::time::Duration;

use haft_engine::{CallOptions, Concurrency, OrchestratorConfig, ToolPolicies};

use crate::fake::{call, config, orchestrator, orchestrator_from, orchestrator_with, said};

#[tokio::test(start_paused = true)]
async fn hanging_call_is_stopped_at_the_tool_timeout() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("hang", "{}")).await;
    assert_eq!(said(&result), "timeout: Tool `hang` timed out after 2 min (timeout of the tool)");
    assert!(result.receipt.executed);
    assert_eq!(result.receipt.latency.as_secs(), 120);
    assert_eq!(result.receipt.notes["sandbox"], "active", "the receipt keeps notes from before the timeout");
    assert_eq!(log.lines(), ["c1 hang started", "undone", "c1 hang finished timeout"]);
}

#[tokio::test(start_paused = true)]
async fn timeout_message_names_the_limit_that_applied() {
    let check = async |timeout: Duration, expected: &str| {
        let mut policies = ToolPolicies::default();
        policies.default.timeout = timeout;
        let result = orchestrator_with(policies).0.execute(call("hang", "{}")).await;
        assert_eq!(result.text(), expected);
    };
    check(Duration::from_millis(1500), "Tool `hang` timed out after 1.5 s (timeout of the tool)").await;
    check(Duration::from_millis(250), "Tool `hang` timed out after 250 ms (timeout of the tool)").await;
    check(Duration::MAX, "Tool `hang` timed out after 5 min (global limit `toolTimeout`)").await;
}

#[tokio::test(start_paused = true)]
async fn call_timeout_is_at_most_thirty_days() {
    let check = async |idle_timeout: Option<Duration>, expected: &str| {
        let config = config(|policy| {
            policy.timeout = Duration::MAX;
            policy.idle_timeout = idle_timeout;
        });
        let config = OrchestratorConfig { tool_timeout_max: Duration::MAX, ..config };
        let result = orchestrator_from(config).0.execute(call("hang", "{}")).await;
        assert_eq!(result.text(), expected);
    };
    check(None, "Tool `hang` timed out after 30 d (timeout of the tool)").await;
    check(Some(Duration::MAX), "Tool `hang` timed out after 30 d without progress (idle timeout)").await;
}

/// Checks the timeout of `hang` with a limit of `of_tool` seconds in the policy and `of_call` seconds in the call's
/// options.
async fn check_call_timeout(of_tool: u64, of_call: Option<u64>, seconds: u64, expected: &str) {
    let (orchestrator, _) = orchestrator_from(config(|policy| policy.timeout = Duration::from_secs(of_tool)));
    let options = CallOptions { timeout: of_call.map(Duration::from_secs), ..CallOptions::default() };
    let result = orchestrator.execute_with(call("hang", "{}"), options).await;
    assert_eq!(said(&result), format!("timeout: Tool `hang` timed out after {expected}"));
    assert_eq!(result.receipt.latency.as_secs(), seconds, "{of_tool} {of_call:?}");
}

#[tokio::test(start_paused = true)]
async fn shorter_call_timeout_overrides_the_tool_timeout() {
    check_call_timeout(120, Some(10), 10, "10 s (timeout of this call)").await;
    check_call_timeout(500, Some(299), 299, "4 min 59 s (timeout of this call)").await;
}

#[tokio::test(start_paused = true)]
async fn longer_call_timeout_has_no_effect() {
    for of_call in [None, Some(120), Some(121), Some(1_000_000)] {
        check_call_timeout(120, of_call, 120, "2 min (timeout of the tool)").await;
    }
    for of_call in [None, Some(300), Some(301), Some(1_000_000)] {
        check_call_timeout(500, of_call, 300, "5 min (global limit `toolTimeout`)").await;
    }
}

#[tokio::test(start_paused = true)]
async fn provider_receives_the_shorter_call_timeout() {
    let (orchestrator, _) = orchestrator();
    let options = CallOptions { timeout: Some(Duration::from_secs(10)), ..CallOptions::default() };
    let result = orchestrator.execute_with(call("partial", "{}"), options).await;
    assert_eq!((said(&result).as_str(), result.receipt.latency.as_secs()), ("half of it", 10));
}

#[tokio::test(start_paused = true)]
async fn batch_stops_at_its_own_call_timeout() {
    let (orchestrator, _) = orchestrator();
    let options = CallOptions {
        timeout: Some(Duration::from_secs(10)),
        concurrency: Concurrency::Bypass,
        ..CallOptions::default()
    };
    let result = orchestrator.execute_with(call("hang", "{}"), options).await;
    assert_eq!(result.text(), "Tool `hang` timed out after 10 s (timeout of this call)");
}

#[tokio::test(start_paused = true)]
async fn progress_resets_the_idle_timeout_but_not_the_deadline() {
    let check = async |tool: &str, timeout: u64, idle: u64, seconds: u64, expected: &str| {
        let config = config(|policy| {
            policy.timeout = Duration::from_secs(timeout);
            policy.idle_timeout = Some(Duration::from_secs(idle));
        });
        let result = orchestrator_from(config).0.execute(call(tool, "{}")).await;
        assert_eq!(result.text(), expected);
        assert_eq!(result.receipt.latency.as_secs(), seconds, "{expected}");
    };
    let idle = "timed out after 10 s without progress (idle timeout)";
    check("hang", 120, 10, 10, &format!("Tool `hang` {idle}")).await;
    check("beat", 120, 10, 60, &format!("Tool `beat` {idle}")).await;
    check("beat", 30, 10, 30, "Tool `beat` timed out after 30 s (timeout of the tool)").await;
    check("beat", 120, 4, 4, "Tool `beat` timed out after 4 s without progress (idle timeout)").await;
}

#[tokio::test(start_paused = true)]
async fn provider_can_return_partial_output_at_the_deadline() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("partial", "{}")).await;
    assert_eq!(said(&result), "half of it");
    assert_eq!(log.lines(), ["c1 partial started", "c1 progress half", "c1 partial finished ok"]);
}

/// Uses a real clock, because timers of the same instant then fire in no fixed order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timed_out_call_always_returns_its_partial_output() {
    let mut policies = ToolPolicies::default();
    policies.default.timeout = Duration::from_millis(20);
    let (orchestrator, _) = orchestrator_with(policies);
    let results = orchestrator.execute_all(vec![call("partial", "{}"); 100], CallOptions::default()).await;
    assert!(results.iter().all(|result| said(result) == "half of it"));
}

#[tokio::test(start_paused = true)]
async fn global_tool_timeout_does_not_apply_to_a_batch() {
    let config = OrchestratorConfig { tool_timeout_max: Duration::from_millis(100), ..config(|_| {}) };
    let (orchestrator, _) = orchestrator_from(config);
    let slow = || call("slow_read", r#"{"text":"done"}"#);
    let stopped = orchestrator.execute(slow()).await;
    assert!(said(&stopped).contains("global limit `toolTimeout`"), "{}", said(&stopped));
    let batch = CallOptions { concurrency: Concurrency::Bypass, ..CallOptions::default() };
    assert_eq!(said(&orchestrator.execute_with(slow(), batch).await), "done");
}
