use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{Effects, ToolDefinition};
use haft_core::validate::{SchemaDraft, ValidArguments};
use haft_engine::{Catalog, Orchestrator, OrchestratorConfig, UncheckedSchemas};
use serde_json::{Value, json};

use crate::fake::{call, definition, said};

/// A provider of the tool `give`, with an output schema and a fixed output.
struct FixedOutputProvider {
    namespace: Namespace,
    promised: Option<Value>,
    given: Option<Value>,
}

impl ToolProvider for FixedOutputProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        let tool = definition("give", Effects::ReadOnly, json!({"type": "object"}));
        Arc::new([ToolDefinition { output_schema: self.promised.clone(), ..tool }])
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        arguments: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let failure =
            arguments.value().contains_key("fail").then(|| ToolError::new(ToolErrorKind::Failed, "no"));
        let output = ToolOutput { structured: self.given.clone(), ..ToolOutput::text("given") };
        Box::pin(async move { failure.map_or(Ok(output), Err) })
    }
}

fn orchestrator_returning(
    promised: Option<Value>,
    given: Option<Value>,
    config: OrchestratorConfig,
) -> Orchestrator {
    let namespace = Namespace::new("giving").unwrap();
    let provider = FixedOutputProvider { namespace, promised, given };
    Orchestrator::new(Catalog::new(vec![Arc::new(provider)], NamingScheme::Double), config)
}

fn strict() -> OrchestratorConfig {
    OrchestratorConfig { unchecked: UncheckedSchemas::Denied, ..OrchestratorConfig::default() }
}

fn marked(result: &ToolResult) -> Option<&str> {
    result.receipt.notes.get("output_mismatch").and_then(Value::as_str)
}

fn rows() -> Value {
    json!({"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]})
}

#[tokio::test]
async fn output_schema_mismatch_is_noted_and_fails_in_strict_mode() {
    let check = async |promised: Option<Value>, given: Option<Value>, complaint: Option<&str>| {
        let result = orchestrator_returning(promised.clone(), given.clone(), OrchestratorConfig::default());
        let result = result.execute(call("give", "{}")).await;
        assert_eq!(marked(&result), complaint);
        assert_eq!(result.outcome.unwrap().structured, given, "the structured output is unchanged");
        let result = orchestrator_returning(promised, given, strict()).execute(call("give", "{}")).await;
        assert_eq!(result.error_kind(), complaint.map(|_| ToolErrorKind::Failed));
        if let Some(complaint) = complaint {
            assert!(result.text().contains(complaint), "{}", result.text());
            assert!(result.receipt.executed);
        }
    };
    check(None, None, None).await;
    check(None, Some(json!({"any": "thing"})), None).await;
    check(Some(rows()), Some(json!({"rows": 3})), None).await;
    check(Some(rows()), Some(json!({"rows": "3"})), Some("'rows' must be integer; got string \"3\"")).await;
    check(Some(rows()), Some(json!({})), Some("'rows' parameter is required (integer)")).await;
    check(Some(rows()), None, Some("the tool returned no structured output")).await;
}

#[tokio::test]
async fn failed_call_is_not_checked_against_the_output_schema() {
    let result =
        orchestrator_returning(Some(rows()), None, strict()).execute(call("give", r#"{"fail": 1}"#)).await;
    assert_eq!((said(&result).as_str(), marked(&result)), ("failed: no", None));
}

#[tokio::test]
async fn strict_mode_denies_a_call_with_an_uncompilable_output_schema() {
    let nonsense = Some(json!({"type": "nonsense"}));
    let result = orchestrator_returning(nonsense.clone(), Some(json!({})), OrchestratorConfig::default());
    let result = result.execute(call("give", "{}")).await;
    assert!(marked(&result).unwrap().contains("does not compile"));
    let result =
        orchestrator_returning(nonsense, Some(json!({})), strict()).execute(call("give", "{}")).await;
    assert_eq!(result.error_kind(), Some(ToolErrorKind::Denied));
    assert!(!result.receipt.executed);
}

#[tokio::test]
async fn cached_output_schema_mismatch_is_noted_again() {
    let cached = |mut config: OrchestratorConfig| {
        config.policies.default.cache_ttl = Some(Duration::from_mins(1));
        orchestrator_returning(Some(rows()), Some(json!({"rows": "x"})), config)
    };
    let orchestrator = cached(OrchestratorConfig::default());
    for hit in [false, true] {
        let result = orchestrator.execute(call("give", "{}")).await;
        assert_eq!(result.receipt.notes.contains_key("cache"), hit);
        assert!(marked(&result).is_some());
    }
    let orchestrator = cached(strict());
    for _ in 0..2 {
        assert!(orchestrator.execute(call("give", "{}")).await.receipt.executed);
    }
}

#[tokio::test]
async fn configured_draft_applies_to_output_schemas_without_dollar_schema() {
    let tuple = Some(json!({"properties": {"pair": {"prefixItems": [{"type": "string"}]}}}));
    let check = async |draft: SchemaDraft, fits: bool| {
        let config = OrchestratorConfig { draft, ..OrchestratorConfig::default() };
        let orchestrator = orchestrator_returning(tuple.clone(), Some(json!({"pair": [1]})), config);
        assert_eq!(marked(&orchestrator.execute(call("give", "{}")).await).is_none(), fits, "{draft:?}");
    };
    check(SchemaDraft::Draft202012, false).await;
    check(SchemaDraft::Draft7, true).await;
}
