//! Idempotency keys: starting a second run with the same key returns the first run.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::idempotency_store::IdempotencyStore;
use haft_core::output_store::StoreError;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_fs::private_file;

use crate::grants::lock;
use crate::sweep;
use crate::tenant::directory_of;

/// Idempotency keys in files: `idempotency/TENANT/DIGEST`, where the digest covers the subject and the key.
#[derive(Debug, Clone)]
pub struct FileIdempotencyKeys {
    root: PathBuf,
}

impl FileIdempotencyKeys {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("idempotency") }
    }

    fn bind_now(&self, principal: &Principal, key: &str, run: SessionId) -> io::Result<SessionId> {
        let path = self.path(principal, key);
        private_file::create_parent_dir(&path)?;
        let temporary = path.with_extension(run.to_string());
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(run.to_string().as_bytes())?;
        // Create the file by a hard link: the link fails if the name already exists, and no reader sees an incomplete
        // file.
        let linked = std::fs::hard_link(&temporary, &path);
        std::fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => Ok(run),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bound_run(&path),
            Err(error) => Err(error),
        }
    }

    fn release_now(&self, principal: &Principal, key: &str, run: SessionId) -> io::Result<()> {
        let path = self.path(principal, key);
        // Without the lock, a release could read the outdated binding, and then remove a newer one.
        let _lock = lock(&self.root.with_extension("lock"))?;
        let is_bound = bound_run(&path)? == run;
        if is_bound { std::fs::remove_file(&path) } else { Ok(()) }
    }

    /// Removes keys that are older than the retention time of sessions.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        let of_tenants = sweep::entries(&self.root).flat_map(|tenant| sweep::entries(&tenant.path()));
        sweep::remove_unchanged(of_tenants, keep, now);
    }

    /// Returns the files of all keys of a tenant, with the run that each key is bound to. The file names are digests.
    /// Omits incomplete files, and files that another process removes.
    pub(crate) fn of_tenant(&self, tenant: &str) -> io::Result<Vec<(SessionId, PathBuf)>> {
        let files = sweep::list(&self.root.join(directory_of(tenant)))?.into_iter().map(|entry| entry.path());
        let bound = files.filter_map(|path| {
            let text = std::fs::read_to_string(&path).ok()?;
            Some((SessionId(uuid::Uuid::parse_str(text.trim()).ok()?.as_u128()), path))
        });
        Ok(bound.collect())
    }

    fn path(&self, principal: &Principal, key: &str) -> PathBuf {
        let name = Digest::of_text(&format!("{}\n{key}", principal.subject()));
        self.root.join(directory_of(principal.tenant())).join(name.to_string())
    }
}

/// Reads the run from the file of a key.
fn bound_run(path: &Path) -> io::Result<SessionId> {
    let text = std::fs::read_to_string(path)?;
    let id = uuid::Uuid::parse_str(text.trim()).map_err(io::Error::other)?;
    Ok(SessionId(id.as_u128()))
}

impl IdempotencyStore for FileIdempotencyKeys {
    fn bind<'a>(
        &'a self,
        principal: &'a Principal,
        key: &'a str,
        run: SessionId,
    ) -> BoxFuture<'a, Result<SessionId, StoreError>> {
        let unavailable = |error: io::Error| StoreError::Unavailable { reason: error.to_string() };
        Box::pin(async move { self.bind_now(principal, key, run).map_err(unavailable) })
    }

    fn release<'a>(&'a self, principal: &'a Principal, key: &'a str, run: SessionId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _ = self.release_now(principal, key, run);
        })
    }
}

/// Idempotency keys in memory. Clones share the keys, which are lost when the process ends.
#[derive(Debug, Clone, Default)]
pub struct MemoryIdempotencyKeys(Arc<Mutex<HashMap<OwnedKey, SessionId>>>);

/// The tenant, the subject and the key.
type OwnedKey = (String, String, String);

impl MemoryIdempotencyKeys {
    fn keys(&self) -> MutexGuard<'_, HashMap<OwnedKey, SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned(principal: &Principal, key: &str) -> OwnedKey {
    (principal.tenant().to_owned(), principal.subject().to_owned(), key.to_owned())
}

impl IdempotencyStore for MemoryIdempotencyKeys {
    fn bind<'a>(
        &'a self,
        principal: &'a Principal,
        key: &'a str,
        run: SessionId,
    ) -> BoxFuture<'a, Result<SessionId, StoreError>> {
        let bound = *self.keys().entry(owned(principal, key)).or_insert(run);
        Box::pin(async move { Ok(bound) })
    }

    fn release<'a>(&'a self, principal: &'a Principal, key: &'a str, run: SessionId) -> BoxFuture<'a, ()> {
        let (mut keys, owned) = (self.keys(), owned(principal, key));
        if keys.get(&owned) == Some(&run) {
            keys.remove(&owned);
        }
        Box::pin(async {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on every store.
    async fn on_all(test: impl AsyncFn(&dyn IdempotencyStore)) {
        let directory = tempfile::tempdir().unwrap();
        test(&FileIdempotencyKeys::of(&Home::at(directory.path()))).await;
        test(&MemoryIdempotencyKeys::default()).await;
    }

    #[tokio::test]
    async fn idempotency_key_is_bound_to_the_first_run_of_its_principal() {
        on_all(async |keys| {
            let (anna, bert) = (Principal::new("t", "anna", "1"), Principal::new("t", "bert", "1"));
            let bind = async |principal: &Principal, key: &str, run: u128| {
                keys.bind(principal, key, SessionId(run)).await.unwrap().0
            };
            assert_eq!(bind(&anna, "k", 1).await, 1);
            assert_eq!(bind(&anna, "k", 2).await, 1);
            assert_eq!(bind(&bert, "k", 3).await, 3, "another subject has its own keys");
            assert_eq!(
                bind(&Principal::new("u", "anna", "1"), "k", 4).await,
                4,
                "another tenant has its own keys"
            );
            keys.release(&anna, "k", SessionId(1)).await;
            assert_eq!(bind(&anna, "k", 5).await, 5);
        })
        .await;
    }

    #[tokio::test]
    async fn release_of_an_earlier_run_keeps_the_binding_to_a_later_run() {
        on_all(async |keys| {
            let anna = Principal::new("t", "anna", "1");
            let bind = async |run: u128| keys.bind(&anna, "k", SessionId(run)).await.unwrap().0;
            assert_eq!(bind(1).await, 1);
            // Two requests have read the first binding. The first of them releases it, and binds the key again.
            keys.release(&anna, "k", SessionId(1)).await;
            assert_eq!(bind(2).await, 2);
            keys.release(&anna, "k", SessionId(1)).await;
            assert_eq!(bind(3).await, 2);
        })
        .await;
    }

    #[test]
    fn concurrent_runs_with_one_idempotency_key_agree_on_one_run() {
        let directory = tempfile::tempdir().unwrap();
        let keys = FileIdempotencyKeys::of(&Home::at(directory.path()));
        let found: Vec<u128> = std::thread::scope(|scope| {
            let bind = |run: u128| {
                let keys = &keys;
                scope.spawn(move || keys.bind_now(&Principal::local(), "k", SessionId(run)).unwrap().0)
            };
            let threads: Vec<_> = (1..=8).map(bind).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|run| *run == found[0]), "{found:?}");
    }
}
