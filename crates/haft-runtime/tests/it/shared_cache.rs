use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use haft_core::cache_store::{CacheLimits, CacheStore};
use haft_core::digest::Digest;
use haft_core::name::{Namespace, ToolName};
use haft_core::output::ToolOutput;
use haft_core::principal::Principal;
use haft_core::provider::{CallContext, ProviderKind, ToolProvider};
use haft_core::result::ToolError;
use haft_core::tool::{Effects, ToolDefinition};
use haft_core::validate::ValidArguments;
use haft_model_server::ScriptStep;
use haft_runtime::{RunSecrets, RunSpec, Stores};
use haft_store::cache::MemoryCache;
use serde_json::json;

use crate::fixture::{RuntimeFixture, finished};

/// A provider that counts the calls of all runtimes of a test.
struct CountingProvider {
    namespace: Namespace,
    calls: Arc<AtomicUsize>,
}

impl ToolProvider for CountingProvider {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Builtin
    }

    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn tools(&self) -> Arc<[ToolDefinition]> {
        let schema = json!({"type": "object"});
        [ToolDefinition::new("count", "Counts.", schema).with_effects(Effects::ReadOnly)].into()
    }

    fn source_digest(&self, _: &ToolName, _: &ValidArguments) -> Option<Digest> {
        Some(Digest::of_text("version 1"))
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolName,
        _: &'a ValidArguments,
        _: &'a CallContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(ToolOutput::text(number.to_string())) })
    }
}

/// Runs one call in a separate runtime for each subject, and returns the number of calls that reached the tool.
async fn calls_of(subjects: &[&str], choose: impl Fn(Stores) -> Stores) -> usize {
    let calls = Arc::<AtomicUsize>::default();
    let steps =
        subjects.iter().flat_map(|_| [ScriptStep::call("count", json!({})), ScriptStep::text("done")]);
    let fixture = RuntimeFixture::in_order(steps);
    for subject in subjects {
        let provider =
            CountingProvider { namespace: Namespace::new("own").unwrap(), calls: Arc::clone(&calls) };
        let runtime = fixture
            .builder(&json!({"tools": {"count": {"cache": "1h"}}}))
            .tools(Arc::new(provider))
            .stores(choose(Stores::at(&fixture.home())))
            .build()
            .await
            .unwrap();
        let spec = fixture.spec_of("---\nmodels: openai/m\ntools: [count]\n---\nYou work.\n", "go");
        let spec = RunSpec { principal: Principal::new("acme", *subject, "key"), ..spec };
        finished(&runtime.start(spec, RunSecrets::none()).await.unwrap()).await;
    }
    calls.load(Ordering::SeqCst)
}

#[tokio::test]
async fn runtimes_with_one_cache_store_share_outputs_per_principal() {
    assert_eq!(calls_of(&["anna", "anna", "bert"], |stores| stores).await, 2);
    let limits = CacheLimits { entries_max: 10, bytes_max: 1 << 20 };
    let memory: Arc<dyn CacheStore> = Arc::new(MemoryCache::new(limits));
    let shared = |stores: Stores| stores.with_cache(Arc::clone(&memory));
    assert_eq!(calls_of(&["anna", "anna", "bert"], shared).await, 2);
    assert_eq!(calls_of(&["anna", "anna"], Stores::without_cache).await, 2);
}
