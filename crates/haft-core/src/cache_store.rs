//! The trait of stores that hold cached call outputs, so that other processes can use them, even later ones.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::digest::Digest;
use crate::output_store::StoreError;
use crate::stored::StoredToolOutput;

/// The key of a cached output. The tenant comes first, so that no query can reach another tenant's entries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// The tenant of the call's principal.
    pub tenant: String,
    /// The digest of the call and of everything else that affects its output.
    pub call: Digest,
}

/// A cached output and the time at which it expires. Processes share only the wall clock, so the time is in
/// milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheEntry {
    /// The output in its stored form.
    pub output: StoredToolOutput,
    /// The time at which the entry expires, in milliseconds since 1970. From this millisecond on the entry is not used.
    pub expires_ms: u64,
}

/// The capacity of a cache, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// The maximum number of entries in the cache.
    pub entries_max: u64,
    /// The maximum size of all entries together, in bytes.
    pub bytes_max: u64,
}

/// The exclusive right to make a call whose output will be cached. When the lease is dropped, the next caller may make
/// the call.
pub struct CacheLease {
    _held: Option<Box<dyn Send + Sync>>,
}

impl CacheLease {
    /// Creates a lease that excludes other callers until it is dropped. It owns `held`, and dropping `held` must let
    /// the next caller make the call.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }

    /// Creates a lease that does not exclude other callers, for a caller that cannot get an exclusive lease.
    pub fn shared() -> Self {
        Self { _held: None }
    }
}

impl fmt::Debug for CacheLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheLease")
    }
}

/// Stores cached outputs until they expire, within size limits. A store may drop an entry at any time.
pub trait CacheStore: Send + Sync {
    /// Returns the entry under a key, or `None` if there is no entry, or if the entry has expired or cannot be decoded.
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<CacheEntry>, StoreError>>;

    /// Stores an entry and replaces an earlier one. An entry that exceeds the limits is not stored; this is not an
    /// error.
    fn put(&self, key: CacheKey, entry: CacheEntry) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Waits while another task or process makes the call with this key, then returns a lease. Read the store again
    /// after this: the other holder may have stored the output.
    fn lease(&self, key: CacheKey) -> BoxFuture<'_, Result<CacheLease, StoreError>>;
}
