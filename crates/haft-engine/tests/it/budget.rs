use std::sync::Arc;

use futures_util::FutureExt;
use haft_core::budget::{ContextLimits, ContextUsage, ContextWindow};
use haft_core::output_store::OutputStore;
use haft_core::result::ToolErrorKind;
use haft_core::tokens::{LengthEstimator, TokenCounter};
use haft_core::tool::OutputPolicy;
use haft_engine::{ANSWER_TOKENS_MIN, CallOptions, RunContext};
use serde_json::Value;

use crate::fake::{SharedLog, TestRig, call, config, orchestrator_for, orchestrator_from};
use crate::stored::FakeOutputStore;

fn budget(usable_tokens: u64) -> Arc<ContextWindow> {
    ContextWindow::new(
        ContextLimits { window_tokens: usable_tokens + 30, buffer_tokens: 10, output_tokens_max: 20 },
        Arc::new(LengthEstimator),
    )
}

fn options(budget: &Arc<ContextWindow>) -> CallOptions {
    CallOptions { budget: Some(Arc::clone(budget)), ..CallOptions::default() }
}

fn passing(store: Option<FakeOutputStore>) -> (TestRig, SharedLog) {
    let outputs = store.map(|shelf| Arc::new(shelf) as Arc<dyn OutputStore>);
    let context = RunContext { outputs, ..RunContext::default() };
    orchestrator_for(context, config(|policy| policy.output = OutputPolicy::Pass))
}

/// Returns a call whose result has slightly more than this many tokens, by the engine's estimate.
fn echo(tokens: usize) -> haft_core::tool::ToolCall {
    call("echo", &format!("{{\"text\": \"{}\"}}", "word".repeat(tokens)))
}

fn tokens(text: &str) -> u64 {
    LengthEstimator.count(text).count()
}

#[tokio::test]
async fn output_over_the_token_budget_is_stored_with_the_reason() {
    let shelf = FakeOutputStore::default();
    let (orchestrator, _) = passing(Some(shelf.clone()));
    let budget = budget(3_000);
    let first = orchestrator.execute_with(echo(2_000), options(&budget)).await;
    assert!(first.text().starts_with("echo: word"));
    assert_eq!(
        budget.usage(),
        ContextUsage { current_tokens: tokens(&first.text()), ..ContextUsage::default() }
    );
    let second = orchestrator.execute_with(echo(2_000), options(&budget)).await;
    let text = second.text();
    assert!(
        text.contains("about 2002 tokens; token_budget") && text.contains("It begins:\necho: word"),
        "{text}"
    );
    assert_eq!(second.receipt.notes["stored"]["reason"], "token_budget");
    assert_eq!(shelf.kept.lock().unwrap().len(), 4 * 2_000 + "echo: ".len());
    assert_eq!(budget.usage().current_tokens, tokens(&first.text()) + tokens(&text));
}

#[tokio::test]
async fn calls_of_one_turn_share_the_remaining_context() {
    let (orchestrator, _) = passing(Some(FakeOutputStore::default()));
    let budget = budget(4_000);
    let calls = (0..3).map(|_| echo(2_500)).collect();
    let results = orchestrator.execute_all(calls, options(&budget)).await;
    let reasons: Vec<Value> = results
        .iter()
        .map(|result| result.receipt.notes.get("stored").map_or(Value::Null, |note| note["reason"].clone()))
        .collect();
    assert_eq!(reasons[0], Value::Null, "{reasons:?}");
    assert!(
        reasons[1..].iter().all(|reason| reason == "token_budget" || reason == "reserve_failed"),
        "{reasons:?}"
    );
    let usage = budget.usage();
    let told: u64 = results.iter().map(|result| tokens(&result.text())).sum();
    assert_eq!((usage.current_tokens, usage.pending_tokens), (told, 0));
    assert!(told <= 4_000);
}

#[tokio::test]
async fn output_is_stored_with_reason_reserve_failed_if_others_have_reserved_the_tokens() {
    let (orchestrator, _) = passing(Some(FakeOutputStore::default()));
    let budget = budget(4_000);
    let _other = budget.reserve(2_000).unwrap();
    let result = orchestrator.execute_with(echo(2_500), options(&budget)).await;
    assert_eq!(result.receipt.notes["stored"]["reason"], "reserve_failed");
}

#[tokio::test]
async fn call_is_refused_when_the_context_cannot_hold_the_shortest_answer() {
    let (orchestrator, log) = passing(Some(FakeOutputStore::default()));
    let budget = budget(ANSWER_TOKENS_MIN - 1);
    let result = orchestrator.execute_with(echo(1), options(&budget)).await;
    assert_eq!(result.error_kind(), Some(ToolErrorKind::LimitExceeded));
    assert!(!result.receipt.executed && result.text().contains("511 tokens are left"), "{}", result.text());
    assert_eq!(log.lines(), ["c1 echo finished limit_exceeded"]);
    assert_eq!(budget.usage(), ContextUsage::default());
}

#[tokio::test]
async fn output_is_truncated_to_the_token_budget_without_a_store() {
    for (tool, policy) in
        [("huge", OutputPolicy::Pass), ("huge_fail", OutputPolicy::Truncate { chars_max: 900_000 })]
    {
        let (orchestrator, _) = orchestrator_from(config(|of_tool| of_tool.output = policy));
        let budget = budget(1_000);
        let result = orchestrator.execute_with(call(tool, "{}"), options(&budget)).await;
        let text = result.text();
        assert!(text.contains("output truncated") && text.starts_with('é') && text.ends_with('é'), "{text}");
        assert_eq!(budget.usage().current_tokens, tokens(&text));
        assert!((500..=1_000).contains(&tokens(&text)), "{}", tokens(&text));
    }
}

#[tokio::test]
async fn images_use_context_tokens_and_are_stored_when_they_do_not_fit() {
    let (orchestrator, _) = passing(Some(FakeOutputStore::default()));
    let wide = budget(100_000);
    orchestrator.execute_with(call("picture", "{}"), options(&wide)).await;
    assert!(wide.usage().current_tokens > 3_000, "two images take more than 3000 tokens: {:?}", wide.usage());
    let narrow = budget(1_500);
    let text = orchestrator.execute_with(call("picture", "{}"), options(&narrow)).await.text();
    assert!(text.contains("11 bytes, sha256") && text.contains("token_budget"), "{text}");
}

#[tokio::test]
async fn dropped_call_releases_its_token_reservation() {
    let (orchestrator, _) = passing(None);
    let budget = budget(1_000);
    {
        let mut hanging = std::pin::pin!(orchestrator.execute_with(call("hang", "{}"), options(&budget)));
        assert!(hanging.as_mut().now_or_never().is_none());
        assert_eq!(budget.usage().pending_tokens, ANSWER_TOKENS_MIN);
    }
    assert_eq!(budget.usage(), ContextUsage::default());
}
