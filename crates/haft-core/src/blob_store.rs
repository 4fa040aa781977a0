//! The trait of stores that hold immutable blobs: the texts of agents and skills, which many runs share.

use futures_util::future::BoxFuture;

use crate::digest::Digest;
use crate::output_store::StoreError;

/// Stores bytes under their digest. The tenant comes first in every key, so a tenant who learns another tenant's digest
/// cannot read the bytes.
pub trait BlobStore: Send + Sync {
    /// Stores bytes and returns their digest. Storing the same bytes again restarts their retention time.
    fn put<'a>(&'a self, tenant: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, Result<Digest, StoreError>>;

    /// Returns the bytes. Returns [`StoreError::NotFound`] if the tenant has not stored them, or if they have been
    /// removed.
    fn get<'a>(&'a self, tenant: &'a str, digest: &'a Digest) -> BoxFuture<'a, Result<Vec<u8>, StoreError>>;
}
