use std::sync::Arc;

use haft_core::naming::NamingScheme;
use haft_core::provider::{ProviderKind, ToolProvider};
use haft_core::tool::Effects;
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig};
use serde_json::json;

use crate::fake::{FakeProvider, SharedLog, call, orchestrator, said, schema};

/// Returns an orchestrator with servers. The built-in tools are last, to show that the provider order does not affect
/// their names.
fn with_servers(scheme: NamingScheme) -> Orchestrator {
    let log = SharedLog::default();
    let server = |name: &str| -> Arc<dyn ToolProvider> {
        let tools = [("echo", Effects::Mutating, schema(&["text"]))];
        Arc::new(FakeProvider::new(ProviderKind::Mcp, name, &tools, log.clone()))
    };
    let providers = vec![server("one"), server("two"), Arc::new(FakeProvider::builtins(log.clone()))];
    Orchestrator::new(Catalog::new(providers, scheme), OrchestratorConfig::default())
}

async fn check(written: &str, expected: &str) {
    let (orchestrator, _) = orchestrator();
    let result = orchestrator.execute(call(written, r#"{"text": "hi"}"#)).await;
    assert_eq!(said(&result), expected, "{written}");
}

#[tokio::test]
async fn inexact_names_resolve_or_fail_as_unknown_tool() {
    check("echo", "echo: hi").await;
    check("Echo", "echo: hi").await;
    check("<|echo|>", "echo: hi").await;
    check("ehco", "unknown_tool: Unknown tool: ehco; did you mean `echo`?").await;
    check("slow", "unknown_tool: Unknown tool: slow").await;
    check("panik", "unknown_tool: Unknown tool: panik; did you mean `panic`?").await;
    check(&"x".repeat(1_000_000), &format!("unknown_tool: Unknown tool: {}", "x".repeat(200))).await;
}

#[tokio::test]
async fn receipt_notes_an_inexact_tool_name() {
    let (orchestrator, log) = orchestrator();
    let result = orchestrator.execute(call("ECHO", r#"{"text": "hi"}"#)).await;
    assert_eq!(result.receipt.notes["resolved_as"], json!("echo"));
    assert_eq!(result.call.name, "ECHO");
    assert_eq!(log.lines(), ["c1 echo started", "c1 echo finished ok"]);
}

/// Returns an orchestrator with two servers whose tools have the same name but different arguments, and one with a
/// unique tool name.
fn without_namespaces() -> Orchestrator {
    let server = |name: &str, tools: &[(&str, Effects, serde_json::Value)]| -> Arc<dyn ToolProvider> {
        Arc::new(FakeProvider::new(ProviderKind::Mcp, name, tools, SharedLog::default()))
    };
    let providers = vec![
        server("git", &[("search", Effects::ReadOnly, schema(&["text"]))]),
        server(
            "web",
            &[
                ("search", Effects::ReadOnly, schema(&["query"])),
                ("get", Effects::ReadOnly, schema(&["url"])),
            ],
        ),
        server("odd", &[("loose", Effects::ReadOnly, json!({"type": "nonsense"}))]),
    ];
    Orchestrator::new(Catalog::new(providers, NamingScheme::Double), OrchestratorConfig::default())
}

#[tokio::test]
async fn bare_name_resolves_to_the_one_tool_that_accepts_the_arguments() {
    let orchestrator = without_namespaces();
    let check = async |written: &str, arguments: &str, expected: Result<&str, &str>| {
        let result = orchestrator.execute(call(written, arguments)).await;
        let resolved = result.receipt.notes.get("resolved_as").and_then(|name| name.as_str());
        match expected {
            Ok(tool) => assert_eq!(resolved, Some(tool), "{written} {arguments}"),
            Err(said_instead) => assert_eq!(said(&result), said_instead, "{written} {arguments}"),
        }
        assert_eq!(result.receipt.executed, expected.is_ok());
    };
    check("search", r#"{"text": "x"}"#, Ok("git__search")).await;
    check("search", r#"{"query": "x"}"#, Ok("web__search")).await;
    check("get", r#"{"url": "x"}"#, Ok("web__get")).await;
    check("<|Get|>", r#"{"url": "x"}"#, Ok("web__get")).await;
    let unknown = "unknown_tool: Unknown tool: search; did you mean `git__search` or `web__search`?";
    check("search", "{}", Err(unknown)).await;
    check("get", "{}", Err("unknown_tool: Unknown tool: get; did you mean `web__get`?")).await;
    // A schema that does not compile cannot confirm that the arguments match.
    check("loose", "{}", Err("unknown_tool: Unknown tool: loose; did you mean `odd__loose`?")).await;
}

#[test]
fn ambiguous_bare_name_has_unknown_effects() {
    let orchestrator = without_namespaces();
    assert_eq!(orchestrator.effects_of("get"), Effects::ReadOnly);
    assert_eq!(orchestrator.effects_of("search"), Effects::Unknown);
}

#[test]
fn tool_list_is_sorted_and_builtins_keep_their_names() {
    let check = |scheme: NamingScheme, expected: &[&str]| {
        let orchestrator = with_servers(scheme);
        let exposed: Vec<_> = orchestrator.catalog().tools().map(|tool| tool.exposed().to_string()).collect();
        assert!(exposed.is_sorted());
        let echoes: Vec<_> = exposed.iter().filter(|name| name.contains("echo")).collect();
        let shown: Vec<String> = echoes.iter().map(|name| without_digest(name)).collect();
        assert_eq!(shown, expected, "{scheme:?}");
        assert_eq!(orchestrator.effects_of("echo"), Effects::ReadOnly, "`echo` is the built-in tool");
    };
    check(NamingScheme::Double, &["echo", "one__echo", "two__echo"]);
    check(NamingScheme::Bare, &["echo", "echo_#", "echo_#"]);
}

/// Returns the name with `#` in place of a digest.
fn without_digest(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((stem, end)) if end.len() == 8 && end.chars().all(|c| c.is_ascii_hexdigit()) => {
            format!("{stem}_#")
        }
        _ => name.to_owned(),
    }
}

#[test]
fn tool_effects_are_found_by_alias_and_by_name_in_any_case() {
    let orchestrator = with_servers(NamingScheme::Double);
    let check = |written: &str, expected: Effects| assert_eq!(orchestrator.effects_of(written), expected);
    check("Echo", Effects::ReadOnly);
    check("mcp__one__echo", Effects::Mutating);
    check("nothing", Effects::Unknown);
}
