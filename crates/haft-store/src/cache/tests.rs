use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::cache_store::{CacheEntry, CacheKey, CacheLimits, CacheStore};
use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::output::{OutputContent, ToolOutput};
use haft_core::stored::StoredToolOutput;
use serde_json::json;

use super::*;

const ROOMY: CacheLimits = CacheLimits { entries_max: 100, bytes_max: 1 << 20 };

const HOUR_MS: u64 = 3_600_000;

/// A file store and a memory store, which must behave alike, and the directory of the files.
struct BothStores {
    stores: [(&'static str, Arc<dyn CacheStore>); 2],
    directory: tempfile::TempDir,
}

impl BothStores {
    fn with(limits: CacheLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = Arc::new(FileCache::of(&Home::at(directory.path()), limits));
        Self { stores: [("files", files), ("memory", Arc::new(MemoryCache::new(limits)))], directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("data/cache")
    }
}

fn key(tenant: &str, call: &str) -> CacheKey {
    CacheKey { tenant: tenant.into(), call: Digest::of_text(call) }
}

fn entry(output: &ToolOutput, expires_ms: u64) -> CacheEntry {
    CacheEntry { output: StoredToolOutput::of(output).unwrap(), expires_ms }
}

/// Returns an entry that expires after this many hours plus one.
fn text(text: &str, hours: u64) -> CacheEntry {
    entry(&ToolOutput::text(text), clock_ms() + HOUR_MS * (hours + 1))
}

/// Returns the letters of `calls` whose entries the store still has. Each letter is one call.
async fn left(store: &dyn CacheStore, calls: &str) -> String {
    let mut left = String::new();
    for call in calls.chars() {
        if store.get(key("t", &call.to_string())).await.unwrap().is_some() {
            left.push(call);
        }
    }
    left
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = sweep_entries(root).into_iter().flat_map(|tenant| sweep_entries(&tenant)).collect();
    all.sort();
    all
}

fn sweep_entries(directory: &Path) -> Vec<PathBuf> {
    crate::sweep::entries(directory).map(|entry| entry.path()).collect()
}

#[tokio::test]
async fn only_one_caller_at_a_time_has_the_lease_of_a_call() {
    for (name, store) in BothStores::with(ROOMY).stores {
        let first = store.lease(key("t", "a")).await.unwrap();
        store.lease(key("t", "b")).await.unwrap();
        store.lease(key("u", "a")).await.unwrap();
        let mut second = store.lease(key("t", "a"));
        tokio::select! {
            biased;
            _ = &mut second => panic!("{name}: two callers have the lease"),
            () = std::future::ready(()) => {}
        }
        drop(first);
        let second = second.await.unwrap();
        let third = store.lease(key("t", "a"));
        drop(second);
        third.await.unwrap();
    }
}

#[tokio::test]
async fn stored_output_round_trips_and_is_replaced_by_a_later_one() {
    for (name, store) in BothStores::with(ROOMY).stores {
        let image = OutputContent::Image { media_type: "image/png".into(), bytes: [0, 255, 10][..].into() };
        let link = OutputContent::Resource { uri: "a:b".into(), media_type: None, text: None };
        let binary = OutputContent::Binary { uri: None, media_type: None, bytes: [7; 3].into() };
        let structured = Some(json!({"rows": [1.25, null]}));
        let whole = ToolOutput { content: vec![image, link, binary], structured, raw: None };
        assert_eq!(store.get(key("t", "a")).await.unwrap(), None, "{name}");
        for output in [whole, ToolOutput::text("later"), ToolOutput::default()] {
            let put = entry(&output, clock_ms() + HOUR_MS);
            store.put(key("t", "a"), put.clone()).await.unwrap();
            let found = store.get(key("t", "a")).await.unwrap().unwrap();
            assert_eq!(found, put, "{name}");
            assert_eq!(found.output.into_output().unwrap(), output, "{name}");
        }
    }
}

#[tokio::test]
async fn cache_entry_is_not_returned_to_another_tenant_or_call() {
    for (name, store) in BothStores::with(ROOMY).stores {
        store.put(key("t", "a"), text("of t", 0)).await.unwrap();
        for other in [key("u", "a"), key("../t", "a"), key("T", "a"), key("", "a"), key("t", "b")] {
            assert_eq!(store.get(other.clone()).await.unwrap(), None, "{name} {other:?}");
        }
        store.put(key("../t", "a"), text("of another", 0)).await.unwrap();
        assert_eq!(store.get(key("t", "a")).await.unwrap().unwrap().output, text("of t", 0).output, "{name}");
    }
}

#[tokio::test]
async fn expired_cache_entry_is_never_returned() {
    for (name, store) in BothStores::with(ROOMY).stores {
        for expires_ms in [0, 1, clock_ms() - 1, clock_ms()] {
            store.put(key("t", "a"), entry(&ToolOutput::text("old"), expires_ms)).await.unwrap();
            assert_eq!(store.get(key("t", "a")).await.unwrap(), None, "{name} {expires_ms}");
        }
    }
}

#[tokio::test]
async fn entry_limit_evicts_entries_that_expire_first() {
    for (name, store) in BothStores::with(CacheLimits { entries_max: 3, ..ROOMY }).stores {
        for (call, hours) in [("a", 4), ("b", 1), ("c", 3), ("d", 2)] {
            store.put(key("t", call), text("x", hours)).await.unwrap();
        }
        assert_eq!(left(&*store, "abcd").await, "acd", "{name}");
        store.put(key("t", "a"), text("again", 4)).await.unwrap();
        assert_eq!(left(&*store, "acd").await.len(), 3, "{name}: replacing an entry evicts no entry");
        store.put(key("t", "e"), text("x", 5)).await.unwrap();
        assert_eq!(left(&*store, "acde").await, "ace", "{name}");
    }
    for (name, store) in BothStores::with(CacheLimits { entries_max: 0, ..ROOMY }).stores {
        store.put(key("t", "a"), text("x", 0)).await.unwrap();
        assert_eq!(left(&*store, "a").await, "", "{name}");
    }
}

#[tokio::test]
async fn byte_limit_evicts_entries_and_rejects_larger_outputs() {
    let both = BothStores::with(CacheLimits { bytes_max: 2_000, ..ROOMY });
    for (name, store) in &both.stores {
        for (call, hours) in [("a", 1), ("b", 2), ("c", 3)] {
            store.put(key("t", call), text(&"x".repeat(800), hours)).await.unwrap();
        }
        assert_eq!(left(&**store, "abc").await, "bc", "{name}");
        store.put(key("t", "d"), text(&"x".repeat(3_000), 4)).await.unwrap();
        assert_eq!(left(&**store, "bcd").await, "bc", "{name}");
    }
    let bytes: u64 = files(&both.root()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= 2_000, "{bytes}");
}

#[tokio::test]
async fn damaged_file_is_a_cache_miss_until_replaced() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    store.put(key("t", "a"), text("whole", 0)).await.unwrap();
    let [file] = files(&both.root()).try_into().unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let damaged = [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        "\0".repeat(whole.len()),
        whole.replace("\"version\":1", "\"version\":2"),
        whole.replace("\"text\"", "\"sculpture\""),
    ];
    for damaged in damaged {
        assert_ne!(damaged, whole);
        fs::write(&file, &damaged).unwrap();
        assert_eq!(store.get(key("t", "a")).await.unwrap(), None, "{damaged}");
    }
    store.put(key("t", "a"), text("whole", 0)).await.unwrap();
    assert_eq!(left(&**store, "a").await, "a");
}

#[tokio::test]
async fn cache_files_have_private_permissions() {
    let both = BothStores::with(ROOMY);
    both.stores[0].1.put(key("t", "a"), text("secret", 0)).await.unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let root = both.root();
    assert_eq!((mode(&root), mode(&root.join("t"))), (0o700, 0o700));
    assert_eq!((mode(&files(&root)[0]), mode(&root.join("usage.json"))), (0o600, 0o600));
}

#[tokio::test]
async fn sweep_removes_expired_entries_and_temp_files() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    for (call, expires_ms) in [("a", 1), ("b", clock_ms() - 1)] {
        store.put(key("t", call), entry(&ToolOutput::text("old"), expires_ms)).await.unwrap();
    }
    store.put(key("t", "c"), text("kept", 0)).await.unwrap();
    fs::write(both.root().join("t/.tmpleft"), "half").unwrap();
    let cache = FileCache::of(&Home::at(both.directory.path()), ROOMY);
    cache.sweep();
    assert_eq!(files(&both.root()).len(), 1);
    assert_eq!(left(&**store, "abc").await, "c");
    FileCache::of(&Home::at(both.directory.path()), CacheLimits { entries_max: 0, ..ROOMY }).sweep();
    assert_eq!(files(&both.root()), Vec::<PathBuf>::new(), "a sweep applies the lower entry limit");
}

#[tokio::test]
async fn put_sweeps_if_the_last_sweep_is_old_or_unknown() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    let usage = both.root().join("usage.json");
    store.put(key("t", "a"), entry(&ToolOutput::text("old"), 1)).await.unwrap();
    store.put(key("t", "b"), text("x", 0)).await.unwrap();
    assert_eq!(files(&both.root()).len(), 2, "a `put` soon after a sweep does not sweep");
    for unusable in [r#"{"entries":2,"bytes":100,"swept_ms":0}"#, "{\"entr", ""] {
        fs::write(&usage, unusable).unwrap();
        store.put(key("t", "b"), text("x", 0)).await.unwrap();
        assert_eq!(files(&both.root()).len(), 1, "{unusable}");
        store.put(key("t", "a"), entry(&ToolOutput::text("old"), 1)).await.unwrap();
    }
}

#[tokio::test]
async fn put_uses_stored_totals_instead_of_listing_the_cache() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    store.put(key("t", "a"), text("x", 0)).await.unwrap();
    // Add a file that the stored totals do not contain. A count of the files would include it.
    fs::write(both.root().join("t/foreign.json"), "x").unwrap();
    store.put(key("t", "b"), text("x", 0)).await.unwrap();
    let usage = fs::read_to_string(both.root().join("usage.json")).unwrap();
    assert!(usage.starts_with("{\"entries\":2,"), "{usage}");
}

#[tokio::test]
async fn put_fails_in_an_unwritable_cache_but_not_in_a_locked_cache() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    fs::create_dir_all(both.root().parent().unwrap()).unwrap();
    fs::write(both.root(), "not a directory").unwrap();
    assert!(store.put(key("t", "a"), text("x", 0)).await.is_err());
    assert!(store.get(key("t", "a")).await.is_err());
    fs::remove_file(both.root()).unwrap();

    store.put(key("t", "a"), text("x", 0)).await.unwrap();
    let lock = usage::UsageFile::lock(&both.root()).unwrap().unwrap();
    store.put(key("t", "b"), text("x", 0)).await.unwrap();
    assert_eq!(left(&**store, "ab").await, "a", "a locked cache is readable but skips `put`");
    drop(lock);
    store.put(key("t", "b"), text("x", 0)).await.unwrap();
    assert_eq!(left(&**store, "ab").await, "ab");
}

#[tokio::test]
async fn cache_does_not_follow_symlinks() {
    let both = BothStores::with(ROOMY);
    let store = &both.stores[0].1;
    store.put(key("t", "a"), text("x", 0)).await.unwrap();
    let [file] = files(&both.root()).try_into().unwrap();
    let elsewhere = both.directory.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(store.get(key("t", "a")).await.is_err());
    let before = elsewhere.metadata().unwrap().ino();
    store.put(key("t", "a"), text("y", 0)).await.unwrap();
    assert_eq!(elsewhere.metadata().unwrap().ino(), before);
    assert_eq!(left(&**store, "a").await, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_respect_limits_and_entries_stay_whole() {
    let directory = tempfile::tempdir().unwrap();
    let limits = CacheLimits { entries_max: 20, ..ROOMY };
    let writers = (0..4).map(|writer: u64| {
        let store = FileCache::of(&Home::at(directory.path()), limits);
        tokio::spawn(async move {
            for number in 0..25_u64 {
                let call = key("t", &(number % 10).to_string());
                store.put(call.clone(), text(&writer.to_string().repeat(5_000), number)).await.unwrap();
                let own = key("t", &format!("{writer} {number}"));
                store.put(own, text("x", number)).await.unwrap();
                if let Some(found) = store.get(call).await.unwrap() {
                    let output = found.output.into_output().unwrap();
                    assert_eq!(output.as_text().len(), 5_000);
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let files = files(&directory.path().join("data/cache")).len();
    assert!(files > 0 && files <= 20, "{files}");
}
