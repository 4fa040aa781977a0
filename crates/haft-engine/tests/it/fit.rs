use haft_core::tool::OutputPolicy;
use haft_engine::ToolPolicies;
use serde_json::json;

use crate::fake::{call, config, orchestrator_from, orchestrator_with};

async fn check(tool: &str, output: OutputPolicy, expected: &str) {
    let mut policies = ToolPolicies::default();
    policies.default.output = output;
    let result = orchestrator_with(policies).0.execute(call(tool, "{}")).await;
    assert_eq!(result.text(), expected);
    assert_eq!(result.receipt.output_bytes, expected.len());
}

#[tokio::test]
async fn large_output_of_a_successful_or_failed_call_is_truncated() {
    let cut = "éé\n... (output truncated: 1000000 total chars, showing first 2 and last 1)\né";
    check("huge", OutputPolicy::Truncate { chars_max: 3 }, cut).await;
    check("huge_fail", OutputPolicy::Truncate { chars_max: 3 }, cut).await;
    check("huge", OutputPolicy::Pass, &"é".repeat(1_000_000)).await;
}

#[tokio::test]
async fn default_output_limit_is_fifty_thousand_characters() {
    let default = ToolPolicies::default().default.output;
    let cut = "\n... (output truncated: 1000000 total chars, showing first 25000 and last 25000)\n";
    let half = "é".repeat(25_000);
    check("huge", default, &format!("{half}{cut}{half}")).await;
}

#[tokio::test]
async fn oversized_structured_output_is_dropped_and_noted() {
    let check = async |output: OutputPolicy, kept: bool| {
        let result = orchestrator_from(config(|policy| policy.output = output))
            .0
            .execute(call("structured", "{}"))
            .await;
        assert_eq!(result.outcome.unwrap().structured.is_some(), kept);
        let note = result.receipt.notes.get("structured").cloned();
        assert_eq!(note, (!kept).then(|| json!({"left_out_bytes": 610, "bytes_max": 100})));
    };
    check(OutputPolicy::Pass, true).await;
    check(OutputPolicy::Truncate { chars_max: 1_000 }, true).await;
    check(OutputPolicy::Truncate { chars_max: 100 }, false).await;
}

#[tokio::test]
async fn truncated_json_output_is_valid_json() {
    let (orchestrator, _) =
        orchestrator_from(config(|policy| policy.output = OutputPolicy::Truncate { chars_max: 300 }));
    let text = orchestrator.execute(call("rows", "{}")).await.text();
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(text.len() <= 300 && rows.len() > 2, "{text}");
    assert!(rows.last().unwrap().as_str().unwrap().ends_with("more items)"), "{text}");
}
