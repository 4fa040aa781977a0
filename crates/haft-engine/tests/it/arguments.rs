use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::naming::NamingScheme;
use haft_core::provider::ProviderKind;
use haft_core::result::ToolErrorKind;
use haft_core::tool::Effects;
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig, UncheckedSchemas};
use serde_json::json;

use crate::fake::{FakeProvider, SharedLog, call, orchestrator, orchestrator_from, said};

async fn check(tool: &str, arguments: &str, expected: &str) {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call(tool, arguments)).await;
    assert_eq!(said(&result), expected, "{arguments}");
    assert_eq!(result.call.arguments.as_text(), arguments, "the result has the original arguments");
    let reached = result.outcome.is_ok();
    assert_eq!(result.receipt.executed, reached, "{arguments}");
    assert_eq!(log.lines().len(), if reached { 2 } else { 1 }, "{:?}", log.lines());
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_schema_errors() {
    check("echo", r#"{"text": "hi"}"#, "echo: hi").await;
    check("echo", "{}", "invalid_arguments: Error: 'text' parameter is required (string)").await;
    check("echo", "", "invalid_arguments: Error: 'text' parameter is required (string)").await;
    check(
        "echo",
        r#"{"text": 1, "more": 2}"#,
        "invalid_arguments: Error: 'text' must be string; got number 1\n\
         Error: unknown parameter 'more'; known parameters are 'text'",
    )
    .await;
    check(
        "echo",
        "[1]",
        "invalid_arguments: Error: the arguments must be a JSON object; got an array; send {\"name\": value, ...}",
    )
    .await;
}

#[tokio::test]
async fn receipt_lists_argument_repairs() {
    let (orchestrator, _) = orchestrator();
    let result = orchestrator.execute(call("echo", "```json\n{'text': 'hi',}\n```")).await;
    assert_eq!(said(&result), "echo: hi");
    let repairs = [
        "replaced single quotes by double quotes",
        "removed a trailing comma",
        "removed a code fence around the arguments",
    ];
    assert_eq!(result.receipt.repairs, repairs);
}

#[tokio::test]
async fn truncated_arguments_are_refused_for_mutating_tools_only() {
    check("echo", r#"{"text": "hal"#, "echo: hal").await;
    check("store", r#"{"text": "whole""#, "store: whole").await;
    check(
        "store",
        r#"{"text": "hal"#,
        "invalid_arguments: Error: the arguments end in the middle of a value, so a part is missing; \
         nothing was done; send the whole call again, or split the work into smaller calls",
    )
    .await;
}

#[tokio::test]
async fn deeply_nested_arguments_are_rejected_quickly() {
    let (orchestrator, _) = orchestrator();
    let started = Instant::now();
    let result = orchestrator.execute(call("echo", &"[".repeat(1_000_000))).await;
    assert_eq!(result.error_kind(), Some(ToolErrorKind::InvalidArguments));
    assert!(result.text().contains("nest too deep: more than 64 levels"), "{}", result.text());
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn receipt_notes_a_schema_that_does_not_compile() {
    let (orchestrator, _) = orchestrator();
    let result = orchestrator.execute(call("unchecked", r#"{"text": "x"}"#)).await;
    assert_eq!(said(&result), "unchecked: x");
    assert!(result.receipt.unvalidated);
    assert!(result.receipt.notes["unvalidated"].as_str().unwrap().contains("does not compile"));
}

#[tokio::test]
async fn strict_mode_denies_a_tool_whose_schema_does_not_compile() {
    let config = OrchestratorConfig { unchecked: UncheckedSchemas::Denied, ..OrchestratorConfig::default() };
    let (orchestrator, _) = orchestrator_from(config);
    let result = orchestrator.execute(call("unchecked", "{}")).await;
    assert!(
        said(&result).starts_with("denied: the call is refused, because haft cannot check arguments or output with the schemas of tool `unchecked`"),
        "{}",
        said(&result)
    );
    assert!(!result.receipt.executed);
}

#[tokio::test]
async fn coerced_string_arguments_are_noted_on_the_receipt() {
    let tools = [(
        "page",
        Effects::ReadOnly,
        json!({"type": "object", "properties": {
        "limit": {"type": "integer"}, "tags": {"type": "array"}, "text": {"type": "string"}}}),
    )];
    let provider = FakeProvider::new(ProviderKind::Builtin, "fake", &tools, SharedLog::default());
    let orchestrator = Orchestrator::new(
        Catalog::new(vec![Arc::new(provider)], NamingScheme::Double),
        OrchestratorConfig::default(),
    );
    let written = r#"{"limit": "5", "tags": "[1]", "text": "5"}"#;
    let result = orchestrator.execute(call("page", written)).await;
    assert_eq!(said(&result), "page: 5");
    assert_eq!(result.receipt.notes["mended"], json!(["limit", "tags"]));
    assert_eq!(result.call.arguments.as_text(), written, "the result has the original arguments");
    let result = orchestrator.execute(call("page", r#"{"limit": "five"}"#)).await;
    assert_eq!(said(&result), "invalid_arguments: Error: 'limit' must be integer; got string \"five\"");
    assert!(!result.receipt.notes.contains_key("mended"));
}
