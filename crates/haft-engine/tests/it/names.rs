use std::sync::Arc;

use haft_core::naming::Scheme;
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool::Effects;
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig};
use serde_json::json;

use crate::fake::{Fake, Log, call, orchestrator, said, schema};

/// Built-ins last, to show that their place in the list does not matter.
fn with_servers(scheme: Scheme) -> Orchestrator {
    let log = Log::default();
    let server = |name: &str| -> Arc<dyn ToolProvider> {
        let tools = [("echo", Effects::Mutating, schema(&["text"]))];
        Arc::new(Fake::new(ProviderKind::Mcp, name, &tools, log.clone()))
    };
    let providers = vec![server("one"), server("two"), Arc::new(Fake::builtins(log.clone()))];
    Orchestrator::new(Catalog::new(providers, scheme), OrchestratorConfig::default())
}

async fn check(written: &str, expected: &str) {
    let (orchestrator, _) = orchestrator();
    let result = orchestrator.execute(call(written, r#"{"text": "hi"}"#)).await;
    assert_eq!(said(&result), expected, "{written}");
}

#[tokio::test]
async fn written_names_lead_to_tools() {
    check("echo", "echo: hi").await;
    check("Echo", "echo: hi").await;
    check("<|echo|>", "echo: hi").await;
    check("ehco", "unknown_tool: Unknown tool: ehco; did you mean `echo`?").await;
    check("slow", "unknown_tool: Unknown tool: slow").await;
    check("panik", "unknown_tool: Unknown tool: panik; did you mean `panic`?").await;
    check(&"x".repeat(1_000_000), &format!("unknown_tool: Unknown tool: {}", "x".repeat(200))).await;
}

#[tokio::test]
async fn a_name_that_was_not_exact_is_noted() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("ECHO", r#"{"text": "hi"}"#)).await;
    assert_eq!(result.receipt.notes["resolved_as"], json!("echo"));
    assert_eq!(result.call.name, "ECHO");
    assert_eq!(log.lines(), ["c1 echo started", "c1 echo finished ok"]);
}

#[test]
fn the_listing_is_sorted_and_builtins_keep_their_names() {
    let check = |scheme: Scheme, expected: &[&str]| {
        let orchestrator = with_servers(scheme);
        let exposed: Vec<_> = orchestrator.catalog().tools().map(|tool| tool.exposed().to_string()).collect();
        assert!(exposed.is_sorted());
        let echoes: Vec<_> = exposed.iter().filter(|name| name.contains("echo")).collect();
        assert_eq!(echoes, expected, "{scheme:?}");
        assert_eq!(orchestrator.effects_of("echo"), Effects::ReadOnly, "the built-in");
    };
    check(Scheme::Double, &["echo", "one__echo", "two__echo"]);
    check(Scheme::Bare, &["echo", "echo_2", "echo_3"]);
}

#[test]
fn effects_are_known_by_any_name_of_the_tool() {
    let orchestrator = with_servers(Scheme::Double);
    let check = |written: &str, expected: Effects| assert_eq!(orchestrator.effects_of(written), expected);
    check("Echo", Effects::ReadOnly);
    check("mcp__one__echo", Effects::Mutating);
    check("nothing", Effects::Unknown);
}
