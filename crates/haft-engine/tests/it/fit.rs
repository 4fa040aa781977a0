use haft_core::tool::OutputPolicy;
use haft_engine::Policies;
use serde_json::json;

use crate::fake::{call, config, orchestrator_from, orchestrator_with};

async fn check(tool: &str, output: OutputPolicy, expected: &str) {
    let mut policies = Policies::default();
    policies.default.output = output;
    let result = orchestrator_with(policies).0.execute(call(tool, "{}")).await;
    assert_eq!(result.text(), expected);
    assert_eq!(result.receipt.output_bytes, expected.len());
}

#[tokio::test]
async fn large_output_is_cut_on_a_character_whichever_way_the_call_ended() {
    let cut = "ééé\n... (output truncated: 1000000 total chars, showing first 3)";
    check("huge", OutputPolicy::Truncate { chars_max: 3 }, cut).await;
    check("huge_fail", OutputPolicy::Truncate { chars_max: 3 }, cut).await;
    check("huge", OutputPolicy::Pass, &"é".repeat(1_000_000)).await;
}

#[tokio::test]
async fn without_a_policy_fifty_thousand_characters_are_shown() {
    let default = Policies::default().default.output;
    let cut = "\n... (output truncated: 1000000 total chars, showing first 50000)";
    check("huge", default, &format!("{}{cut}", "é".repeat(50_000))).await;
}

#[tokio::test]
async fn a_structured_part_that_is_too_large_is_left_out_and_noted() {
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
