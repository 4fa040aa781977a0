use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use haft_core::cache_store::{CacheEntry, CacheKey, CacheLease, CacheStore};
use haft_core::digest::Digest;
use haft_core::naming::NamingScheme;
use haft_core::output_store::StoreError;
use haft_core::principal::Principal;
use haft_core::stored::StoredToolOutput;
use haft_engine::{Cache, CacheUse, CallOptions, Catalog, Orchestrator, OrchestratorConfig, RunContext};
use serde_json::Value;
use tokio::time::{Instant, advance};

use crate::fake::{FakeProvider, SharedLog, TestRig, call, config};

/// A store whose entries a test can read and change.
#[derive(Default)]
struct FakeStore {
    entries: Mutex<HashMap<CacheKey, CacheEntry>>,
    /// The number of `get` and `put` calls.
    asked: AtomicUsize,
    fault: Mutex<StoreFault>,
    leases: Mutex<HashMap<CacheKey, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Clone, Copy, Default)]
enum StoreFault {
    #[default]
    None,
    Fails,
    Hangs,
}

impl FakeStore {
    async fn answer<T>(&self, work: impl FnOnce() -> T) -> Result<T, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.lock().unwrap();
        match fault {
            StoreFault::None => Ok(work()),
            StoreFault::Fails => Err(StoreError::Unavailable { reason: "the disk is full".into() }),
            StoreFault::Hangs => std::future::pending().await,
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn each(&self, change: impl Fn(&mut CacheEntry)) {
        self.entries.lock().unwrap().values_mut().for_each(change);
    }
}

impl CacheStore for FakeStore {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<CacheEntry>, StoreError>> {
        Box::pin(self.answer(move || self.entries.lock().unwrap().get(&key).cloned()))
    }

    fn put(&self, key: CacheKey, entry: CacheEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.answer(move || drop(self.entries.lock().unwrap().insert(key, entry))))
    }

    fn lease(&self, key: CacheKey) -> BoxFuture<'_, Result<CacheLease, StoreError>> {
        let lock = Arc::clone(self.leases.lock().unwrap().entry(key).or_default());
        Box::pin(async move { Ok(CacheLease::holding(lock.lock_owned().await)) })
    }
}

/// Returns an orchestrator like that of another process, with its own memory and provider.
fn process_with(store: &Arc<FakeStore>, source: Option<&str>, ttl: Duration) -> TestRig {
    let store = Arc::clone(store) as Arc<dyn CacheStore>;
    let cache = Cache::default().with_store(store);
    let config = OrchestratorConfig { cache, ..config(|policy| policy.cache_ttl = Some(ttl)) };
    let fake = FakeProvider::builtins(SharedLog::default()).with_source(source.map(Digest::of_text));
    let catalog = Catalog::new(vec![Arc::new(fake)], NamingScheme::Double);
    TestRig::new(Orchestrator::try_new(catalog, config).unwrap(), RunContext::default())
}

fn process(store: &Arc<FakeStore>) -> TestRig {
    process_with(store, Some("s"), MINUTE)
}

const MINUTE: Duration = Duration::from_mins(1);

/// Makes a call, and checks if it reached the provider.
async fn check(process: &TestRig, tool: &str, arguments: &str, hit: bool) {
    let result = process.execute(call(tool, arguments)).await;
    assert!(result.outcome.is_ok(), "{tool}: {:?}", result.outcome);
    assert_eq!(result.receipt.executed, !hit, "{tool} {arguments}");
    assert_eq!(result.receipt.notes.get("cache"), hit.then_some(&Value::from("hit")), "{tool} {arguments}");
}

#[tokio::test(start_paused = true)]
async fn cached_output_of_one_process_answers_an_equal_call_in_another() {
    let store = Arc::<FakeStore>::default();
    let first = process(&store).execute(call("structured", "{}")).await;
    let other = process(&store);
    let second = other.execute(call("structured", "{}")).await;
    assert_eq!(
        second.outcome.unwrap(),
        first.outcome.unwrap(),
        "the cached output equals the original output"
    );
    assert!(first.receipt.executed && !second.receipt.executed);
    let asked = store.asked();
    check(&other, "structured", "{}", true).await;
    assert_eq!(store.asked(), asked, "a hit in memory does not query the store");
}

#[tokio::test(start_paused = true)]
async fn calls_differing_in_any_cache_key_field_miss_the_store() {
    let store = Arc::<FakeStore>::default();
    check(&process(&store), "count", r#"{"a": 1}"#, false).await;
    check(&process(&store), "count", r#"{"a": 2}"#, false).await;
    check(&process_with(&store, Some("another server"), MINUTE), "count", r#"{"a": 1}"#, false).await;
    check(&process_with(&store, Some("s"), 2 * MINUTE), "count", r#"{"a": 1}"#, false).await;
    let run = |tenant: &str, subject: &str, credential: &str, workspace: &str| {
        let principal = Principal::new(tenant, subject, credential);
        let context = RunContext { principal, workspace: workspace.into(), ..RunContext::default() };
        process(&store).with(context)
    };
    let runs = [
        ("t", "a", "k", "w"),
        ("u", "a", "k", "w"),
        ("t", "b", "k", "w"),
        ("t", "a", "l", "w"),
        ("t", "a", "k", "v"),
    ];
    for hit in [false, true] {
        for (tenant, subject, credential, workspace) in runs {
            check(&run(tenant, subject, credential, workspace), "count", r#"{"a": 1}"#, hit).await;
        }
    }
    let tenants: Vec<_> = store.entries.lock().unwrap().keys().map(|key| key.tenant.clone()).collect();
    assert_eq!(tenants.iter().filter(|tenant| *tenant == "u").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cache_store_is_queried_only_for_cacheable_calls_with_a_source_digest() {
    let store = Arc::<FakeStore>::default();
    let process = process(&store);
    check(&process, "count_write", "{}", false).await;
    let bypass = CallOptions { cache: CacheUse::Bypass, ..CallOptions::default() };
    assert!(process.execute_with(call("count", "{}"), bypass).await.receipt.executed);
    check(&process_with(&store, None, MINUTE), "count", "{}", false).await;
    assert_eq!(store.asked(), 0);

    assert!(process.execute(call("count_fail", "{}")).await.outcome.is_err());
    check(&process, "partial", "{}", false).await;
    assert_eq!(store.entries.lock().unwrap().len(), 0, "failed calls and partial outputs are not stored");
}

#[tokio::test(start_paused = true)]
async fn stored_entry_is_used_only_until_it_expires() {
    let store = Arc::<FakeStore>::default();
    check(&process(&store), "count", "{}", false).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let now = u64::try_from(now).unwrap();
    store.each(|entry| assert!(entry.expires_ms <= now + 60_000 && entry.expires_ms > now + 30_000));

    store.each(|entry| entry.expires_ms = now + 30_000);
    let other = process(&store);
    check(&other, "count", "{}", true).await;
    advance(Duration::from_secs(31)).await;
    store.each(|entry| entry.expires_ms = 0);
    check(&other, "count", "{}", false).await;

    for unusable in [now - 1, now + 3_600_000, u64::MAX] {
        store.each(|entry| entry.expires_ms = unusable);
        check(&process(&store), "count", "{}", false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_or_hanging_cache_store_fails_no_call() {
    for fault in [StoreFault::Fails, StoreFault::Hangs] {
        let store = Arc::<FakeStore>::default();
        *store.fault.lock().unwrap() = fault;
        let process = process(&store);
        let began = Instant::now();
        check(&process, "count", "{}", false).await;
        assert_eq!(store.asked(), 2, "{fault:?}");
        assert!(began.elapsed() <= Duration::from_secs(3), "{fault:?}: {:?}", began.elapsed());
        check(&process, "count", "{}", true).await;

        let short = CallOptions { timeout: Some(Duration::from_millis(1_500)), ..CallOptions::default() };
        let result = process.execute_with(call("count", r#"{"other": 1}"#), short).await;
        assert!(result.outcome.is_ok(), "{fault:?}: {:?}", result.outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_cache_entry_is_a_miss() {
    let store = Arc::<FakeStore>::default();
    check(&process(&store), "picture", "{}", false).await;
    check(&process(&store), "picture", "{}", true).await;
    let damaged = r#"{"content": [{"image": {"media_type": "image/png", "base64": "?"}}]}"#;
    let damaged: StoredToolOutput = serde_json::from_str(damaged).unwrap();
    store.each(|entry| entry.output = damaged.clone());
    check(&process(&store), "picture", "{}", false).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_calls_query_the_store_once() {
    let store = Arc::<FakeStore>::default();
    let first = process(&store);
    let results = first.execute_all(vec![call("count", "{}"); 10], CallOptions::default()).await;
    assert!(results.iter().all(|result| result.text() == "0"));
    assert_eq!(store.asked(), 3, "one `get` before the lease, one under it, and one `put`");
    let results = process(&store).execute_all(vec![call("count", "{}"); 10], CallOptions::default()).await;
    assert!(results.iter().all(|result| result.text() == "0" && !result.receipt.executed));
    assert_eq!(store.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_calls_of_two_processes_reach_the_tool_once() {
    let store = Arc::<FakeStore>::default();
    let slow = || call("slow_read", r#"{"text": "a"}"#);
    let (one, other) = (process(&store), process(&store));
    let (first, second) = tokio::join!(one.execute(slow()), other.execute(slow()));
    assert_eq!(first.text(), second.text());
    assert_eq!([first, second].iter().filter(|result| result.receipt.executed).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn second_process_makes_a_call_itself_if_the_call_fails_or_hangs_in_the_first() {
    let store = Arc::<FakeStore>::default();
    let (one, other) = (process(&store), process(&store));
    let (first, second) =
        tokio::join!(one.execute(call("count_fail", "{}")), other.execute(call("count_fail", "{}")));
    assert!(first.receipt.executed && second.receipt.executed, "each process makes the call after a failure");

    let hanging = process(&store);
    let hang = hanging.execute(call("hang", "{}"));
    let short = CallOptions { timeout: Some(Duration::from_secs(4)), ..CallOptions::default() };
    let waits = async {
        let result = other.execute_with(call("hang", "{}"), short).await;
        assert!(result.receipt.executed, "the second process makes the call after half of its timeout");
    };
    tokio::select! {
        _ = hang => panic!("the call of the first process did not hang"),
        () = waits => {}
    }
}
