use std::sync::Arc;

use futures_util::future::join_all;
use haft_core::model_request::ParallelCalls;
use haft_core::naming::NamingScheme;
use haft_core::provider::ProviderKind;
use haft_core::tool::{Effects, ToolCall};
use haft_engine::{CallOptions, Catalog, EffectOrder, Orchestrator, OrchestratorConfig};
use serde_json::json;

use crate::fake::{FakeProvider, SharedLog, call, orchestrator, schema};

/// Returns one call per letter: upper case writes, lower case reads. Each call takes one second.
fn calls(letters: &str) -> Vec<ToolCall> {
    let make = |letter: char| {
        let tool = if letter.is_ascii_uppercase() { "slow_write" } else { "slow_read" };
        call(tool, &json!({"text": letter.to_string()}).to_string())
    };
    letters.chars().map(make).collect()
}

async fn check(letters: &str, seconds: u64, expected_log: &str) {
    let (orchestrator, log) = orchestrator();
    let started = tokio::time::Instant::now();
    let results = orchestrator.execute_all(calls(letters), CallOptions::default()).await;
    assert_eq!(started.elapsed().as_secs(), seconds, "{letters}");
    let texts: String = results.iter().map(haft_core::result::ToolResult::text).collect();
    assert_eq!(texts, letters, "results are in call order");
    assert!(
        results.iter().all(|result| result.receipt.latency.as_secs() == 1),
        "latency excludes the time in the queue"
    );
    let steps: Vec<_> = log.lines().into_iter().filter(|line| !line.starts_with("c1")).collect();
    assert_eq!(steps.join(", "), expected_log, "{letters}");
}

#[tokio::test(start_paused = true)]
async fn reads_run_concurrently_and_writes_run_alone() {
    check("ab", 1, "a in, b in, a out, b out").await;
    check("AB", 2, "A in, A out, B in, B out").await;
    check("aBc", 3, "a in, a out, B in, B out, c in, c out").await;
    check("abCde", 3, "a in, b in, a out, b out, C in, C out, d in, e in, d out, e out").await;
}

#[tokio::test(start_paused = true)]
async fn alternating_reads_and_writes_of_a_long_turn_run_in_order() {
    let (orchestrator, _) = orchestrator();
    let started = tokio::time::Instant::now();
    let results = orchestrator.execute_all(calls(&"aB".repeat(50)), CallOptions::default()).await;
    assert_eq!(started.elapsed().as_secs(), 100);
    assert!(results.iter().all(|result| result.outcome.is_ok()));
}

/// Returns an orchestrator with an agent whose runs take a second.
fn with_agent(log: &SharedLog) -> Orchestrator {
    let agents = [("slow_write", Effects::Unknown, schema(&["text"]))];
    let catalog = Catalog::new(
        vec![
            Arc::new(FakeProvider::builtins(log.clone())),
            Arc::new(FakeProvider::new(ProviderKind::Agent, "agent", &agents, log.clone())),
        ],
        NamingScheme::Double,
    );
    Orchestrator::new(catalog, OrchestratorConfig::default())
}

fn ask(text: &str) -> ToolCall {
    call("agent__slow_write", &json!({ "text": text }).to_string())
}

#[tokio::test(start_paused = true)]
async fn calls_of_sub_agents_do_not_wait_for_other_calls() {
    let log = SharedLog::default();
    let orchestrator = with_agent(&log);
    let started = tokio::time::Instant::now();
    let calls = [calls("A"), vec![ask("x"), ask("y")], calls("B")].concat();
    orchestrator.execute_all(calls, CallOptions::default()).await;
    assert_eq!(started.elapsed().as_secs(), 2, "A and both sub-agents run at once, then B");
    assert_eq!(log.lines()[..3], ["A in", "x in", "y in"]);
}

#[tokio::test(start_paused = true)]
async fn reads_and_sub_agents_run_one_by_one_if_parallel_calls_are_off() {
    let log = SharedLog::default();
    let orchestrator = with_agent(&log);
    let order = EffectOrder::of(ParallelCalls::OneAtATime);
    let started = tokio::time::Instant::now();
    let calls = [calls("ab"), vec![ask("x"), ask("y")]].concat();
    let in_turn = |call| orchestrator.execute_in_turn(&order, call, CallOptions::default());
    join_all(calls.into_iter().map(in_turn)).await;
    assert_eq!(started.elapsed().as_secs(), 4);
    let expected = ["a in", "a out", "b in", "b out", "x in", "x out", "y in", "y out"];
    assert_eq!(log.lines(), expected);
}
