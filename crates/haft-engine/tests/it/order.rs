use std::sync::Arc;

use haft_core::naming::NamingScheme;
use haft_core::provider::ProviderKind;
use haft_core::tool::{Effects, ToolCall};
use haft_engine::{CallOptions, Catalog, Orchestrator, OrchestratorConfig};
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

#[tokio::test(start_paused = true)]
async fn calls_of_sub_agents_do_not_wait_for_other_calls() {
    let log = SharedLog::default();
    let agents = [("slow_write", Effects::Unknown, schema(&["text"]))];
    let catalog = Catalog::new(
        vec![
            Arc::new(FakeProvider::builtins(log.clone())),
            Arc::new(FakeProvider::new(ProviderKind::Agent, "agent", &agents, log.clone())),
        ],
        NamingScheme::Double,
    );
    let orchestrator = Orchestrator::new(catalog, OrchestratorConfig::default());
    let ask = |text: &str| call("agent__slow_write", &json!({ "text": text }).to_string());
    let started = tokio::time::Instant::now();
    let calls = [calls("A"), vec![ask("x"), ask("y")], calls("B")].concat();
    orchestrator.execute_all(calls, CallOptions::default()).await;
    assert_eq!(started.elapsed().as_secs(), 2, "A and both sub-agents run at once, then B");
    assert_eq!(log.lines()[..3], ["A in", "x in", "y in"]);
}
