use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::name::{Namespace, ToolName};
use haft_core::naming::NamingScheme;
use haft_core::output::ToolOutput;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{Effects, OutputPolicy, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_engine::{Catalog, CatalogConfig, Orchestrator, OrchestratorConfig};
use serde_json::json;
use tokio::time::Instant;

use crate::fake::{FakeProvider, SharedLog, call, config, definition, said};

/// The way in which a test provider fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProviderFault {
    PanicsInTools,
    PanicsInWarmup,
    PanicsInShutdown,
    HangsInWarmup,
    HangsInShutdown,
    FailsToWarmUp,
    ListsThis(usize),
    ListsOneTwice,
    Gives(usize),
}

struct BadProvider {
    fault: ProviderFault,
    namespace: Namespace,
}

impl BadProvider {
    fn with(fault: ProviderFault) -> Arc<dyn ToolProvider> {
        Arc::new(Self { fault, namespace: Namespace::new("bad").unwrap() })
    }
}

impl ToolProvider for BadProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Mcp
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        assert_ne!(self.fault, ProviderFault::PanicsInTools, "secret detail");
        let tool = |name: &str| definition(name, Effects::ReadOnly, json!({"type": "object"}));
        match self.fault {
            ProviderFault::ListsThis(tools) => (0..tools).map(|number| tool(&format!("t{number}"))).collect(),
            ProviderFault::ListsOneTwice => [tool("x"), tool("x"), tool("y")].into(),
            _ => [tool("x")].into(),
        }
    }

    fn warmup(&self) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async {
            match self.fault {
                ProviderFault::PanicsInWarmup => panic!("secret detail"),
                ProviderFault::HangsInWarmup => std::future::pending().await,
                ProviderFault::FailsToWarmUp => {
                    Err(ToolError::new(ToolErrorKind::Unavailable, "no such server"))
                }
                _ => Ok(()),
            }
        })
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async {
            match self.fault {
                ProviderFault::Gives(bytes) => Ok(ToolOutput::text("x".repeat(bytes))),
                _ => Ok(ToolOutput::text("fine")),
            }
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.fault {
                ProviderFault::PanicsInShutdown => panic!("secret detail"),
                ProviderFault::HangsInShutdown => std::future::pending().await,
                _ => {}
            }
        })
    }
}

/// Returns an orchestrator with a bad provider before a good one.
fn orchestrator_with_faulty_provider(fault: ProviderFault) -> Orchestrator {
    let good = Arc::new(FakeProvider::builtins(SharedLog::default()));
    Orchestrator::new(
        Catalog::new(vec![BadProvider::with(fault), good], NamingScheme::Double),
        OrchestratorConfig::default(),
    )
}

/// Returns the warnings from building and warming up a catalog with one faulty provider. The healthy provider must
/// still work.
async fn provider_warnings(fault: ProviderFault) -> Vec<String> {
    let orchestrator = orchestrator_with_faulty_provider(fault);
    let mut warnings = orchestrator.catalog().warnings();
    warnings.extend(orchestrator.catalog().warm_up().await);
    let answer = orchestrator.execute(call("echo", r#"{"text": "hi"}"#)).await;
    assert_eq!(said(&answer), "echo: hi", "{fault:?}");
    warnings.extend(orchestrator.catalog().shut_down().await);
    warnings.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn faulty_provider_is_named_in_a_warning_and_affects_no_other_provider() {
    let check = async |fault: ProviderFault, expected: &[&str]| {
        let expected: Vec<String> =
            expected.iter().map(|line| format!("tool provider `bad`: {line}")).collect();
        assert_eq!(provider_warnings(fault).await, expected, "{fault:?}");
    };
    check(
        ProviderFault::PanicsInTools,
        &["the provider panicked while listing its tools, so haft can use none of them"],
    )
    .await;
    check(ProviderFault::PanicsInWarmup, &["the provider panicked while trying to prepare its tools"]).await;
    check(ProviderFault::PanicsInShutdown, &["the provider panicked while trying to shut down"]).await;
    check(
        ProviderFault::HangsInWarmup,
        &["the provider took more than 30 s to prepare its tools; haft no longer waits for it"],
    )
    .await;
    check(
        ProviderFault::HangsInShutdown,
        &["the provider took more than 10 s to shut down; haft no longer waits for it"],
    )
    .await;
    // This provider is an MCP server, whose errors are already sentences about the server.
    check(ProviderFault::FailsToWarmUp, &["no such server"]).await;
    check(
        ProviderFault::ListsThis(100_000),
        &["the provider lists 100000 tools, of which haft uses the first 10000; raise `catalog.maxToolsPerProvider` to use more"],
    )
    .await;
    check(
        ProviderFault::ListsOneTwice,
        &["1 of the provider's tools have duplicate names; haft uses the first tool of each name"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn tools_of_a_provider_that_failed_warm_up_still_work() {
    for fault in [ProviderFault::PanicsInWarmup, ProviderFault::HangsInWarmup, ProviderFault::FailsToWarmUp] {
        let orchestrator = orchestrator_with_faulty_provider(fault);
        orchestrator.catalog().warm_up().await;
        assert_eq!(said(&orchestrator.execute(call("bad__x", "{}")).await), "fine");
    }
}

#[tokio::test(start_paused = true)]
async fn sixteen_providers_warm_up_concurrently() {
    let began = Instant::now();
    let providers = vec![ProviderFault::HangsInWarmup; 20].into_iter().map(BadProvider::with).collect();
    let config = CatalogConfig { warmup_timeout: Duration::from_secs(3), ..CatalogConfig::default() };
    let warnings = Catalog::with(providers, config).warm_up().await;
    assert_eq!(warnings.len(), 20);
    assert_eq!(began.elapsed().as_secs(), 6, "16 providers warm up first, then the other 4");
}

#[test]
fn tools_per_provider_limit_is_configurable() {
    let config = CatalogConfig { tools_per_provider_max: 7, ..CatalogConfig::default() };
    let catalog = Catalog::with(
        vec![BadProvider::with(ProviderFault::ListsThis(8)), BadProvider::with(ProviderFault::ListsThis(7))],
        config,
    );
    assert_eq!(catalog.tools().len(), 14);
    assert_eq!(catalog.warnings().len(), 1);
    assert_eq!(catalog.resolve("bad__t6").unwrap().identity().tool.as_str(), "t6");
}

/// This test runs in its own process, so that it does not measure the memory of other tests.
#[test]
fn huge_output_is_truncated_without_a_copy() {
    const BYTES: usize = 256 * 1024 * 1024;
    const ALONE: &str = "HAFT_TEST_MEMORY_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "bad_providers::huge_output_is_truncated_without_a_copy";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args([name, "--exact"]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let mut cached = config(|policy| {
        policy.output = OutputPolicy::Truncate { chars_max: 1_000 };
        policy.cache_ttl = Some(Duration::from_mins(1));
    });
    cached.policies.default.timeout = Duration::from_mins(4);
    let catalog = Catalog::new(vec![BadProvider::with(ProviderFault::Gives(BYTES))], NamingScheme::Double);
    let orchestrator = Orchestrator::new(catalog, cached);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let before = peak_bytes();
    let result = runtime.block_on(orchestrator.execute(call("bad__x", "{}")));
    assert!(result.receipt.output_bytes < 2_000, "{}", result.receipt.output_bytes);
    let grown = peak_bytes() - before;
    assert!(grown < BYTES + BYTES / 4, "{grown} bytes for an output of {BYTES}");
}

/// Returns the peak memory of this process, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
