use haft_core::tool::OutputPolicy;
use haft_engine::Policies;

use crate::fake::{call, orchestrator_with};

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
