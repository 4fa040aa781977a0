//! Tests that every output store passes.

use haft_core::output_store::WHOLE_OUTPUT;

use super::*;

/// Runs a test on every store.
async fn on_all(test: impl AsyncFn(&dyn OutputStores)) {
    let directory = tempfile::tempdir().unwrap();
    test(&FileOutputs::of(&Home::at(directory.path()))).await;
    test(&MemoryOutputs::default()).await;
}

fn key(tenant: &str, run: u128) -> RunKey {
    RunKey { tenant: tenant.into(), run: SessionId(run) }
}

fn open(stores: &dyn OutputStores, key: &RunKey) -> Arc<dyn OutputStore> {
    stores.open(key, &StoreLimits::default()).unwrap()
}

fn put(store: &dyn OutputStore, text: &str) -> StoreEntry {
    let mut spool = store.begin().unwrap();
    spool.write(text.as_bytes()).unwrap();
    spool.finish().unwrap()
}

#[tokio::test]
async fn output_is_readable_only_by_its_run_and_tenant() {
    on_all(async |stores| {
        let own = open(stores, &key("local", 1));
        let stored = put(&*own, "one\ntwo\n");
        assert_eq!((stored.bytes, stored.lines, stored.complete), (8, 2, true));
        assert_eq!(own.read_range(&stored.handle, WHOLE_OUTPUT).await.unwrap(), b"one\ntwo\n");
        for other in [key("local", 2), key("acme", 1), key("session-acme", 1)] {
            let store = open(stores, &other);
            assert!(store.is_empty(), "{other:?}");
            assert_eq!(store.read_range(&stored.handle, WHOLE_OUTPUT).await, Err(StoreError::NotFound));
            assert_eq!(store.delete(&stored.handle).await, Err(StoreError::NotFound));
        }
        assert!(own.read_range(&stored.handle, 0..1).await.is_ok(), "another run cannot delete the output");
    })
    .await;
}

#[tokio::test]
async fn resumed_run_reads_its_earlier_outputs() {
    on_all(async |stores| {
        for run in [key("local", 1), key("acme", 1)] {
            let stored = put(&*open(stores, &run), "earlier");
            let again = open(stores, &run);
            assert!(!again.is_empty());
            assert_eq!(again.read_range(&stored.handle, WHOLE_OUTPUT).await.unwrap(), b"earlier");
        }
    })
    .await;
}

#[tokio::test]
async fn range_beyond_the_end_of_an_output_is_shortened() {
    on_all(async |stores| {
        let store = open(stores, &key("acme", 1));
        let handle = put(&*store, "0123456789").handle;
        let read = async |range| String::from_utf8(store.read_range(&handle, range).await.unwrap()).unwrap();
        assert_eq!(read(2..5).await, "234");
        assert_eq!(read(8..99).await, "89");
        assert_eq!(read(99..100).await, "");
        store.delete(&handle).await.unwrap();
        assert_eq!(store.read_range(&handle, WHOLE_OUTPUT).await, Err(StoreError::NotFound));
        assert_eq!(store.delete(&handle).await, Err(StoreError::NotFound));
        assert!(store.is_empty());
    })
    .await;
}

#[tokio::test]
async fn unfinished_output_cannot_be_read() {
    on_all(async |stores| {
        let store = open(stores, &key("local", 1));
        let mut spool = store.begin().unwrap();
        spool.write(b"half").unwrap();
        assert!(store.is_empty());
        drop(spool);
        assert!(store.is_empty());
    })
    .await;
}

#[tokio::test]
async fn output_beyond_its_limit_is_truncated_and_marked_incomplete() {
    on_all(async |stores| {
        let limits = StoreLimits { output_bytes_max: 5, ..StoreLimits::default() };
        let store = stores.open(&key("local", 1), &limits).unwrap();
        let stored = put(&*store, "1234567");
        assert_eq!((stored.bytes, stored.complete), (5, false));
        assert_eq!(store.read_range(&stored.handle, WHOLE_OUTPUT).await.unwrap(), b"12345");
    })
    .await;
}

#[tokio::test]
async fn memory_store_keeps_the_newest_outputs_within_the_total_limit() {
    let limits = StoreLimits { total_bytes_max: 25, ..StoreLimits::default() };
    let stores = MemoryOutputs::default();
    let (one, other) =
        (stores.open(&key("a", 1), &limits).unwrap(), stores.open(&key("b", 2), &limits).unwrap());
    let first = put(&*one, "0123456789").handle;
    let second = put(&*other, "0123456789").handle;
    let third = put(&*one, "0123456789").handle;
    assert_eq!(one.read_range(&first, WHOLE_OUTPUT).await, Err(StoreError::NotFound));
    assert!(other.read_range(&second, WHOLE_OUTPUT).await.is_ok());
    assert!(one.read_range(&third, WHOLE_OUTPUT).await.is_ok());
    let expiring = StoreLimits { keep: Duration::ZERO, ..limits };
    let late = stores.open(&key("a", 1), &expiring).unwrap();
    assert_eq!(late.read_range(&third, WHOLE_OUTPUT).await, Err(StoreError::NotFound));
}
