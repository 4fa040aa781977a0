//! Immutable blobs, stored under their digest: the agents and skills of runs. Many runs share one blob.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::blob_store::BlobStore;
use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::output_store::StoreError;
use haft_fs::private_file;

use crate::sweep;
use crate::tenant::directory_of;

/// Blobs in files: `blobs/TENANT/DIGEST`.
#[derive(Debug, Clone)]
pub struct FileBlobs {
    root: PathBuf,
}

impl FileBlobs {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("blobs") }
    }

    fn put_now(&self, tenant: &str, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of_bytes(bytes);
        let path = self.path(tenant, &digest);
        if let Ok(file) = File::options().append(true).open(&path) {
            file.set_modified(SystemTime::now())?;
            return Ok(digest);
        }
        private_file::create_parent_dir(&path)?;
        private_file::replace(&path, bytes)?;
        Ok(digest)
    }

    fn get_now(&self, tenant: &str, digest: &Digest) -> io::Result<Vec<u8>> {
        match fs::read(self.path(tenant, digest)) {
            // Look in the root directory too: earlier versions kept the blobs of all tenants there, and a resumed run
            // still needs them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::read(self.root.join(digest.to_string()))
            }
            read => read,
        }
    }

    /// Removes blobs that no run has stored or used for this time.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        let (directories, files): (Vec<_>, Vec<_>) =
            sweep::entries(&self.root).partition(|entry| entry.path().is_dir());
        let of_tenants = directories.into_iter().flat_map(|tenant| sweep::entries(&tenant.path()));
        sweep::remove_unchanged(of_tenants.chain(files), keep, now);
    }

    fn path(&self, tenant: &str, digest: &Digest) -> PathBuf {
        self.root.join(directory_of(tenant)).join(digest.to_string())
    }
}

impl BlobStore for FileBlobs {
    fn put<'a>(&'a self, tenant: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, Result<Digest, StoreError>> {
        Box::pin(async move { self.put_now(tenant, bytes).map_err(|error| store_error(&error)) })
    }

    fn get<'a>(&'a self, tenant: &'a str, digest: &'a Digest) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        Box::pin(async move { self.get_now(tenant, digest).map_err(|error| store_error(&error)) })
    }
}

fn store_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound => StoreError::NotFound,
        _ => StoreError::Unavailable { reason: error.to_string() },
    }
}

type BlobTable = HashMap<(String, Digest), Arc<[u8]>>;

/// A blob store in memory. Clones share the blobs, which are lost when the process ends.
#[derive(Debug, Clone, Default)]
pub struct MemoryBlobs(Arc<Mutex<BlobTable>>);

impl MemoryBlobs {
    fn blobs(&self) -> MutexGuard<'_, BlobTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlobStore for MemoryBlobs {
    fn put<'a>(&'a self, tenant: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, Result<Digest, StoreError>> {
        let digest = Digest::of_bytes(bytes);
        self.blobs().entry((tenant.to_owned(), digest)).or_insert_with(|| bytes.into());
        Box::pin(async move { Ok(digest) })
    }

    fn get<'a>(&'a self, tenant: &'a str, digest: &'a Digest) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        let found = self.blobs().get(&(tenant.to_owned(), *digest)).map(|bytes| bytes.to_vec());
        Box::pin(async move { found.ok_or(StoreError::NotFound) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on every store.
    async fn on_all(test: impl AsyncFn(&dyn BlobStore)) {
        let directory = tempfile::tempdir().unwrap();
        test(&FileBlobs::of(&Home::at(directory.path()))).await;
        test(&MemoryBlobs::default()).await;
    }

    #[tokio::test]
    async fn blob_is_found_by_its_digest_and_only_by_its_tenant() {
        on_all(async |blobs| {
            let one = blobs.put("a", b"one").await.unwrap();
            let other = blobs.put("a", b"other").await.unwrap();
            assert_ne!(one, other);
            assert_eq!(blobs.put("a", b"one").await.unwrap(), one);
            assert_eq!(blobs.get("a", &one).await.unwrap(), b"one");
            assert_eq!(blobs.get("a", &other).await.unwrap(), b"other");
            assert_eq!(blobs.get("b", &one).await, Err(StoreError::NotFound));
            assert_eq!(blobs.get("a", &Digest::of_bytes(b"third")).await, Err(StoreError::NotFound));
        })
        .await;
    }

    #[tokio::test]
    async fn sweep_removes_blobs_that_no_run_stored_recently() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = FileBlobs::of(&Home::at(directory.path()));
        let (one, other) = (blobs.put_now("a", b"one").unwrap(), blobs.put_now("a", b"other").unwrap());
        let hour = Duration::from_hours(1);
        let old = File::options().append(true).open(blobs.path("a", &other)).unwrap();
        old.set_modified(SystemTime::now() - 3 * hour).unwrap();
        blobs.sweep(hour, SystemTime::now());
        assert!(blobs.get_now("a", &one).is_ok() && blobs.get_now("a", &other).is_err());
    }

    #[test]
    fn blob_of_an_earlier_version_is_still_read_and_swept() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = FileBlobs::of(&Home::at(directory.path()));
        fs::create_dir_all(&blobs.root).unwrap();
        let digest = Digest::of_bytes(b"early");
        fs::write(blobs.root.join(digest.to_string()), b"early").unwrap();
        assert_eq!(blobs.get_now("local", &digest).unwrap(), b"early");
        let hour = Duration::from_hours(1);
        blobs.sweep(hour, SystemTime::now() + 2 * hour);
        assert!(blobs.get_now("local", &digest).is_err());
    }
}
