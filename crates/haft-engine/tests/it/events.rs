use serde_json::json;

use crate::fake::{call, orchestrator, said};

async fn check(tool: &str, arguments: &str, expected: &[&str]) {
    let (orchestrator, log) = orchestrator();
    orchestrator.execute(call(tool, arguments)).await;
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn every_call_emits_a_finished_event() {
    check("echo", r#"{"text": "x"}"#, &["c1 echo started", "c1 echo finished ok"]).await;
    check("fail", "{}", &["c1 fail started", "c1 fail finished failed"]).await;
    check("echo", "{}", &["c1 echo finished invalid_arguments"]).await;
    check("nothing", "{}", &["c1 nothing finished unknown_tool"]).await;
    check("echo", "nonsense", &["c1 echo finished invalid_arguments"]).await;
}

#[tokio::test(start_paused = true)]
async fn receipt_has_latency_output_size_and_notes() {
    let (orchestrator, _) = orchestrator();
    let noted = orchestrator.execute(call("note", "{}")).await;
    assert_eq!(noted.receipt.notes["sandbox"], json!({"layers": 2}));
    assert_eq!(noted.receipt.output_bytes, "noted".len());
    let slow = orchestrator.execute(call("slow_read", r#"{"text": "x"}"#)).await;
    assert_eq!(said(&slow), "x");
    assert_eq!(slow.receipt.latency.as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_progress_events_are_counted_on_the_receipt() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("flood", "{}")).await;
    assert_eq!(log.lines().iter().filter(|line| line.contains("progress")).count(), 100);
    assert_eq!(result.receipt.notes["progress"], json!({"left_out": 900}));
    assert!(log.lines().contains(&"c1 progress 0.25 a quarter".to_owned()));
}
