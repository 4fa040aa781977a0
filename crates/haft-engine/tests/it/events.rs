use serde_json::json;

use crate::fake::{call, orchestrator, said};

async fn check(tool: &str, arguments: &str, expected: &[&str]) {
    let (orchestrator, log) = orchestrator();
    orchestrator.execute(call(tool, arguments)).await;
    assert_eq!(log.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn every_call_is_told_to_its_end() {
    check("echo", r#"{"text": "x"}"#, &["c1 echo started", "c1 echo finished ok"]).await;
    check("fail", "{}", &["c1 fail started", "c1 fail finished failed"]).await;
    check("echo", "{}", &["c1 echo finished invalid_arguments"]).await;
    check("nothing", "{}", &["c1 nothing finished unknown_tool"]).await;
    check("echo", "nonsense", &["c1 echo finished invalid_arguments"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_receipt_says_what_it_cost_and_what_was_noted() {
    let (orchestrator, _) = orchestrator();
    let noted = orchestrator.execute(call("note", "{}")).await;
    assert_eq!(noted.receipt.notes["sandbox"], json!({"layers": 2}));
    assert_eq!(noted.receipt.output_bytes, "noted".len());
    let slow = orchestrator.execute(call("slow_read", r#"{"text": "x"}"#)).await;
    assert_eq!(said(&slow), "x");
    assert_eq!(slow.receipt.latency.as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_progress_is_thinned_and_the_receipt_says_so() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("flood", "{}")).await;
    assert_eq!(log.lines().iter().filter(|line| line.contains("progress")).count(), 100);
    assert_eq!(result.receipt.notes["progress"], json!({"left_out": 900}));
    assert!(log.lines().contains(&"c1 progress 0.25 a quarter".to_owned()));
}
