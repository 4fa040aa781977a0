use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use haft_core::name::ToolName;
use haft_core::principal::Principal;
use haft_core::result::{ToolErrorKind, ToolResult};
use haft_core::tool::OutputPolicy;
use haft_engine::{Cache, CacheConfig, CacheUse, CallOptions, OrchestratorConfig, RunContext};
use serde_json::Value;
use tokio::time::{Instant, advance};

use crate::fake::{TestRig, call, config, orchestrator_from, said};

fn bypass() -> CallOptions {
    CallOptions { cache: CacheUse::Bypass, ..CallOptions::default() }
}

/// Returns a configuration that caches outputs for a minute.
fn caching_config() -> OrchestratorConfig {
    config(|policy| policy.cache_ttl = Some(Duration::from_mins(1)))
}

fn caching_orchestrator() -> TestRig {
    orchestrator_from(caching_config()).0
}

fn is_hit(result: &ToolResult) -> bool {
    let noted = result.receipt.notes.get("cache") == Some(&Value::from("hit"));
    assert_eq!(noted, !result.receipt.executed, "a call is executed exactly if the cache has no output");
    noted
}

/// Makes a call, and checks which provider call produced the answer and if it came from the cache.
async fn check(orchestrator: &TestRig, tool: &str, arguments: &str, expected: &str, hit: bool) {
    let result = orchestrator.execute(call(tool, arguments)).await;
    assert_eq!(result.text(), expected, "{tool} {arguments}");
    assert_eq!(is_hit(&result), hit, "{tool} {arguments}");
}

#[tokio::test(start_paused = true)]
async fn equal_call_is_answered_from_the_cache_until_it_expires() {
    let orchestrator = caching_orchestrator();
    check(&orchestrator, "count", r#"{"a": 1, "b": 2}"#, "0", false).await;
    check(&orchestrator, "count", r#"{"b":2,"a":1,}"#, "0", true).await;
    check(&orchestrator, "Count", r#"{"a": 1, "b": 2}"#, "0", true).await;
    check(&orchestrator, "count", r#"{"a": 1, "b": 3}"#, "1", false).await;
    advance(Duration::from_mins(1)).await;
    check(&orchestrator, "count", r#"{"a": 1, "b": 2}"#, "2", false).await;
}

#[tokio::test(start_paused = true)]
async fn failed_and_mutating_calls_are_not_cached() {
    let orchestrator = caching_orchestrator();
    check(&orchestrator, "count_fail", "{}", "0", false).await;
    check(&orchestrator, "count_fail", "{}", "1", false).await;
    check(&orchestrator, "count_write", "{}", "2", false).await;
    check(&orchestrator, "count_write", "{}", "3", false).await;
    assert_eq!(orchestrator.config().cache.snapshot().entries, 0);
}

#[tokio::test(start_paused = true)]
async fn partial_output_is_not_cached() {
    let orchestrator = caching_orchestrator();
    check(&orchestrator, "partial", "{}", "half of it", false).await;
    check(&orchestrator, "partial", "{}", "half of it", false).await;
}

#[tokio::test(start_paused = true)]
async fn output_is_not_cached_without_a_cache_ttl() {
    let (orchestrator, _) = orchestrator_from(OrchestratorConfig::default());
    check(&orchestrator, "count", "{}", "0", false).await;
    check(&orchestrator, "count", "{}", "1", false).await;
}

#[tokio::test(start_paused = true)]
async fn call_with_bypass_skips_the_cache() {
    let orchestrator = caching_orchestrator();
    check(&orchestrator, "count", "{}", "0", false).await;
    let past = orchestrator.execute_with(call("count", "{}"), bypass()).await;
    assert_eq!((past.text().as_str(), is_hit(&past)), ("1", false));
    check(&orchestrator, "count", "{}", "0", true).await;
}

#[tokio::test(start_paused = true)]
async fn cached_output_is_not_shared_across_principals_or_workspaces() {
    let orchestrator = caching_orchestrator();
    let runs = [
        ("acme", "anna", "key-1", "w"),
        ("acme", "bert", "key-1", "w"),
        ("acme", "anna", "key-1", "v"),
        ("other", "anna", "key-1", "w"),
        ("acme", "anna", "key-2", "w"),
    ]
    .map(|(tenant, subject, credential, workspace)| {
        let principal = Principal::new(tenant, subject, credential);
        orchestrator.with(RunContext { principal, workspace: workspace.into(), ..RunContext::default() })
    });
    // All runs call the same provider, so a cached answer of another run would have the number of that run.
    for hit in [false, true] {
        for (number, run) in runs.iter().enumerate() {
            check(run, "count", "{}", &number.to_string(), hit).await;
        }
    }
    assert_eq!(orchestrator.config().cache.snapshot().entries, runs.len());
}

#[tokio::test(start_paused = true)]
async fn ten_concurrent_equal_calls_reach_the_provider_once() {
    let orchestrator = caching_orchestrator();
    let began = Instant::now();
    let results = orchestrator.execute_all(vec![call("count", "{}"); 10], CallOptions::default()).await;
    assert_eq!(began.elapsed().as_secs(), 1);
    assert!(results.iter().all(|result| result.text() == "0"));
    assert_eq!(results.iter().filter(|result| is_hit(result)).count(), 9);
    assert_eq!(orchestrator.config().cache.snapshot().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_leader_hands_over_to_a_waiting_equal_call() {
    let orchestrator = caching_orchestrator();
    let mut calls: Vec<_> = (0..3).map(|_| orchestrator.execute(call("count", "{}")).boxed()).collect();
    assert!(calls.iter_mut().all(|call| call.now_or_never().is_none()));
    drop(calls.remove(0));
    let (second, third) = join(calls.remove(0), calls.remove(0)).await;
    assert_eq!((second.text().as_str(), is_hit(&second)), ("1", false));
    assert_eq!((third.text().as_str(), is_hit(&third)), ("1", true));
    assert_eq!(orchestrator.config().cache.snapshot().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn failed_leader_hands_over_to_a_waiting_equal_call() {
    let orchestrator = caching_orchestrator();
    let results = orchestrator.execute_all(vec![call("count_fail", "{}"); 3], CallOptions::default()).await;
    let said: Vec<_> = results.iter().map(said).collect();
    assert_eq!(said, ["failed: 0", "failed: 1", "failed: 2"]);
    let results = orchestrator
        .execute_all(vec![call("panic", "{}"), call("panic", "{}")], CallOptions::default())
        .await;
    assert!(results.iter().all(|result| result.error_kind() == Some(ToolErrorKind::Internal)));
    assert_eq!(orchestrator.config().cache.snapshot().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_equal_call_ends_at_the_timeout() {
    let (orchestrator, _) = orchestrator_from(config(|policy| {
        policy.cache_ttl = Some(Duration::from_mins(1));
        policy.timeout = Duration::from_secs(10);
    }));
    let mut leader = orchestrator.execute(call("hang", "{}")).boxed();
    assert!(leader.as_mut().now_or_never().is_none());
    let waiting = orchestrator.execute(call("hang", "{}")).await;
    let expected =
        "Tool `hang` timed out after 10 s (timeout of the tool) while still waiting for an identical call";
    assert_eq!(waiting.text(), expected);
    assert!(!waiting.receipt.executed);
    drop(leader);
    assert_eq!(orchestrator.config().cache.snapshot().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn output_too_large_to_cache_still_answers_waiting_equal_calls() {
    let cache = Cache::new(CacheConfig { entries_max: 10, bytes_max: 0 });
    let (orchestrator, _) = orchestrator_from(OrchestratorConfig { cache, ..caching_config() });
    let results = orchestrator.execute_all(vec![call("count", "{}"); 3], CallOptions::default()).await;
    assert!(results.iter().all(|result| result.text() == "0"));
    check(&orchestrator, "count", "{}", "1", false).await;
}

#[tokio::test(start_paused = true)]
async fn lowered_output_limit_applies_to_cached_output() {
    let config = caching_config();
    let first = orchestrator_from(config.clone()).0.execute(call("huge", "{}")).await;
    assert!(first.receipt.output_bytes > 50_000);
    let mut lowered = config;
    let policy = &mut lowered.policies;
    let huge = haft_core::tool::ToolPolicy {
        output: OutputPolicy::Truncate { chars_max: 3 },
        ..policy.default.clone()
    };
    policy.by_tool.insert(ToolName::new("huge").unwrap(), huge);
    let second = orchestrator_from(lowered).0.execute(call("huge", "{}")).await;
    assert!(is_hit(&second));
    assert!(second.text().starts_with("éé\n... (output truncated: 1000000 total chars"), "{}", second.text());
}
