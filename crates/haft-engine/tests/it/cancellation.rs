use futures_util::FutureExt;
use haft_engine::{CallOptions, EffectOrder};

use crate::fake::{call, orchestrator};

#[tokio::test(start_paused = true)]
async fn dropped_call_cleans_up_and_emits_one_cancelled_event() {
    let (orchestrator, log) = orchestrator();
    let mut execution = Box::pin(orchestrator.execute(call("hang", "{}")));
    assert!((&mut execution).now_or_never().is_none());
    assert_eq!(log.lines(), ["c1 hang started"]);
    drop(execution);
    assert_eq!(log.lines(), ["c1 hang started", "undone", "c1 hang finished cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiting_call_emits_a_cancelled_event() {
    let (orchestrator, log) = orchestrator();
    let order = EffectOrder::default();
    let running = orchestrator.execute_in_turn(&order, call("hang", "{}"), CallOptions::default());
    let waiting =
        orchestrator.execute_in_turn(&order, call("store", r#"{"text": "x"}"#), CallOptions::default());
    let mut both = Box::pin(futures_util::future::join(running, waiting));
    assert!((&mut both).now_or_never().is_none());
    drop(both);
    let mut told = log.lines();
    told.sort();
    assert_eq!(
        told,
        ["c1 hang finished cancelled", "c1 hang started", "c1 store finished cancelled", "undone"]
    );
}

#[tokio::test]
async fn call_future_can_be_spawned_on_another_task() {
    let (orchestrator, _) = orchestrator();
    let task = tokio::spawn(async move {
        orchestrator.execute_all(vec![call("note", "{}")], CallOptions::default()).await
    });
    assert_eq!(task.await.unwrap()[0].text(), "noted");
}
