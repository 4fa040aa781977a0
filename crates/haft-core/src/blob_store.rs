//! The trait of stores that hold immutable blobs: the texts of agents and skills, which many runs share.

use futures_util::future::BoxFuture;

use crate::digest::Digest;
use crate::output_store::StoreError;

/// Keeps bytes under their digest. The tenant comes first in every key, so that a tenant who learns a digest of another
/// one cannot read the bytes.
pub trait BlobStore: Send + Sync {
    /// Stores bytes and returns their digest. Storing them again marks them as used now, so that retention counts from
    /// now.
    fn put<'a>(&'a self, tenant: &'a str, bytes: &'a [u8]) -> BoxFuture<'a, Result<Digest, StoreError>>;

    /// Returns the bytes; [`StoreError::NotFound`] if the tenant stored none, or if they were removed since.
    fn get<'a>(&'a self, tenant: &'a str, digest: &'a Digest) -> BoxFuture<'a, Result<Vec<u8>, StoreError>>;
}
